"""A guest's SSH server that refuses to begin a program while its transport is up."""

from __future__ import annotations

from typing import cast

import paramiko
import pytest

from app.errors import EnvironmentFault, FailureKind
from infra.guest.ssh import SshChannel


class Session:
    """One channel: refuses its program, or says that it ended with status 7."""

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses
        self.closed = False
        self.began: list[str] = []

    def settimeout(self, _seconds: float) -> None: ...

    def exec_command(self, command: str) -> None:
        if self._refuses:
            raise paramiko.SSHException("Channel closed.")
        self.began.append(command)

    def close(self) -> None:
        self.closed = True

    def shutdown_write(self) -> None: ...

    def recv(self, _limit: int) -> bytes:
        return b""

    def recv_stderr(self, _limit: int) -> bytes:
        return b""

    @property
    def status_event(self) -> Session:
        return self

    def wait(self, _seconds: float) -> bool:
        return True

    exit_status = 7


class Transport:
    """Gives the sessions in turn."""

    def __init__(self, *refuses: bool, active: bool = True) -> None:
        self.sessions = [Session(refuses=each) for each in refuses]
        self._left = iter(self.sessions)
        self._active = active

    def is_active(self) -> bool:
        return self._active

    def open_session(self, timeout: float) -> Session:
        assert timeout == 5
        return next(self._left)


def exit_code(transport: Transport) -> int:
    channel = SshChannel("m1", cast(paramiko.Transport, transport))
    return channel.run(":get 1 2f", sink=lambda _: None, silence_s=5, within_s=5).exit_code


def test_a_program_that_was_refused_is_asked_for_again_and_runs_once() -> None:
    transport = Transport(True, True, False)
    assert exit_code(transport) == 7
    assert [each.began for each in transport.sessions] == [[], [], [":get 1 2f"]]
    assert all(each.closed for each in transport.sessions)


@pytest.mark.parametrize(
    "transport", [Transport(True, True, True, False), Transport(True, False, active=False)]
)
def test_one_that_stays_refused_or_whose_transport_is_gone_is_a_lost_channel(
    transport: Transport,
) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        exit_code(transport)
    assert caught.value.kind is FailureKind.GUEST_LOST
    assert not any(each.began for each in transport.sessions)
