"""What one machine's lines may cost its host."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from infra.guest import wire
from infra.guest.machine import Machine

PATIENCE_S = 10.0
SESSION = 7


class Channel:
    """An SSH channel that tells when it is closed."""

    def __init__(self) -> None:
        self.closed: queue.Queue[None] = queue.Queue()

    def close(self) -> None:
        self.closed.put(None)


@pytest.fixture
def opened(tmp_path: Path) -> tuple[Machine, Channel]:
    """A machine with a channel, as `Machine.channel` leaves it."""
    machine, channel = Machine("m1", tmp_path, None), Channel()
    fields: dict[str, Any] = {"_channel": channel, "_session": SESSION}
    for name, value in fields.items():
        setattr(machine, name, value)
    return machine, channel


def shut(number: int) -> wire.Line:
    return wire.Line("SHUT", {"n": str(number)})


def test_a_channel_whose_server_ended_is_closed_once_however_often_the_guest_says_so(
    opened: tuple[Machine, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, channel = opened
    made, thread = [], threading.Thread

    def make(**asked: Any) -> threading.Thread:
        made.append(asked)
        return thread(**asked)

    monkeypatch.setattr(threading, "Thread", make)
    for _ in range(1000):
        machine.heard(shut(SESSION))
    channel.closed.get(timeout=PATIENCE_S)
    assert len(made) == 1


@pytest.mark.parametrize("line", [shut(SESSION - 1), shut(0), wire.Line("SHUT", {})])
def test_another_servers_end_closes_nothing(
    opened: tuple[Machine, Channel], monkeypatch: pytest.MonkeyPatch, line: wire.Line
) -> None:
    machine, _ = opened
    monkeypatch.setattr(threading, "Thread", lambda **_: pytest.fail("a thread"))
    machine.heard(line)
