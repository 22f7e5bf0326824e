"""What one process holds of one machine: its control port, its SSH channel, its commands, its way out."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Protocol

import paramiko

from app.domain.machine import OUTPUT_LIMIT_BYTES
from app.errors import EnvironmentFault, FailureKind, NotFound
from infra.guest import hostkey, wire
from infra.guest.commands import Journal
from infra.guest.control import ControlPort
from infra.guest.faults import connect, hung, lost
from infra.guest.ssh import Finished, SshChannel

_ANSWER_TIMEOUT_S = 10.0
_OPEN_TIMEOUT_S = 30.0
_FETCH_SILENCE_S = 60.0
_FETCH_TIMEOUT_S = 600.0
# No line can name it.
_NO_SESSION = -1


class Egress(Protocol):
    """Serves the connections that a machine's programs make to their proxy."""

    def serve(self, name: str, stream: paramiko.Channel, targets: tuple[str, ...]) -> None:
        """Serve one connection to its end."""
        ...

    def was_away(self, name: str, targets: tuple[str, ...]) -> None:
        """Keep that a machine had no proxy for a while, and what it could not reach."""
        ...

    def log(self, name: str) -> tuple[dict[str, str], ...]:
        """The last faults and refusals of this machine."""
        ...

    def forget(self, name: str) -> None:
        """Drop what is known of a machine."""
        ...


class Machine:
    """One machine. `control` is set before anybody else can see it."""

    control: ControlPort

    def __init__(self, name: str, directory: Path, egress: Egress | None) -> None:
        self.name = name
        self.directory = directory
        self.journal = Journal()
        self.targets: tuple[str, ...] = ()
        # Until its barrier is passed here, it is a machine of an earlier worker's.
        self.taken_over = True
        self._egress = egress
        self._channel: SshChannel | None = None
        self._opening = threading.Lock()
        self._session = _NO_SESSION

    def heard(self, line: wire.Line) -> wire.Ended | None:
        """Take a line that the guest said; the end of a command, if it is news."""
        if line.verb == "SHUT" and line.number("n") == self._session:
            # Said again it is no news: a guest that floods its port must not have a thread for each line.
            self._session = _NO_SESSION
            self._channel_shut()
        end = wire.ended_of(line)
        return end if end is not None and self.journal.ended(end) else None

    def channel(self, timeout_s: float = _OPEN_TIMEOUT_S) -> SshChannel:
        """The SSH channel; opened, with its way out, if it is not open."""
        with self._opening:
            if self._channel is not None and self._channel.is_open:
                return self._channel
            try:
                self._channel = self._connect(timeout_s)
            except EnvironmentFault as fault:
                # What an earlier connection left in the port may have come between: the next one starts clean.
                if not self.broke_in_ssh_only(fault):
                    raise
                self._channel = self._connect(timeout_s)
            if self.targets:
                self._forward(self._channel)
            return self._channel

    def close_channel(self) -> None:
        """End the SSH channel, if there is one."""
        with self._opening:
            if self._channel is not None:
                self._channel.close()
            self._channel = None

    def broke_in_ssh_only(self, fault: EnvironmentFault) -> bool:
        """Whether the machine is there still: its root may have killed the SSH server, and a fresh one can be had."""
        return fault.kind is FailureKind.GUEST_LOST and not self.control.is_lost

    def allow(self, targets: tuple[str, ...]) -> None:
        """What the guest may reach from now on. Its proxy's port is opened with the first target and stays.

        A machine that is taken over had no proxy since its earlier worker ended: that is kept as a fault of ours.
        """
        if self.taken_over and self._egress is not None and targets:
            self._egress.was_away(self.name, targets)
            self.taken_over = False
        self.targets = targets
        if targets:
            self._forward(self.channel())

    def status(self, exec_id: str) -> wire.Ended | None:
        """What the guest's journal says of a command; None while it runs. Its end is then heard."""
        self.journal.watch(exec_id)

        def answer(line: wire.Line) -> wire.Line | None:
            known = line.verb in ("STARTED", "UNKNOWN", "FORGOTTEN") or wire.ended_of(line)
            return line if known and line.text("id") == exec_id else None

        line = self.control.ask(wire.about("STATUS", exec_id), answer, _ANSWER_TIMEOUT_S)
        if line.verb == "ENDED":
            return wire.ended_of(line)
        if line.verb == "STARTED":
            return None
        self.journal.unwatch(exec_id)
        if line.verb == "UNKNOWN":
            raise EnvironmentFault(
                FailureKind.EXEC_NOT_STARTED, "the guest does not know this command"
            )
        raise lost(self.name, "it has let go of this command's output", exec_id=exec_id)

    def output(self, exec_id: str, which: str) -> bytes:
        """A long stream of a command that ended, from where the guest keeps it."""
        kept, finished = self._output(exec_id, f":output {exec_id} {which}", OUTPUT_LIMIT_BYTES)
        if finished.exit_code:
            raise lost(self.name, f"a command's output cannot be read: {finished.message}")
        return kept

    def output_so_far(self, exec_id: str, which: str, start: int, limit_bytes: int) -> bytes:
        """A part of what a running command has printed. Raises NotFound where the guest has none to show."""
        asked = f":output {exec_id} {which} {start} {limit_bytes}"
        seen, finished = self._output(exec_id, asked, limit_bytes)
        if finished.exit_code:
            raise NotFound("no_output", finished.message or "its output cannot be read now")
        return seen

    def _output(self, exec_id: str, asked: str, limit_bytes: int) -> tuple[bytes, Finished]:
        kept = bytearray()

        def keep(data: bytes) -> None:
            kept.extend(data)
            if len(kept) > limit_bytes:
                raise lost(self.name, "it sends more output than it may keep", exec_id=exec_id)

        finished = self.channel().run(
            asked, sink=keep, silence_s=_FETCH_SILENCE_S, within_s=_FETCH_TIMEOUT_S
        )
        return bytes(kept), finished

    def _connect(self, timeout_s: float) -> SshChannel:
        """The guest starts a fresh server for us first: what an earlier connection left must not be in our way."""
        key = hostkey.pinned(self.directory)
        if key is None:
            raise hung(self.name, "it has passed no barrier, so its host key is not known")
        number = next(_SESSIONS)

        def answer(line: wire.Line) -> wire.Line | None:
            told = line.verb in ("OPENED", "SHUT") and line.number("n") == number
            return line if told else None

        sock = connect(self.name, self.directory / "ssh.sock")
        try:
            line = self.control.ask(wire.open_ssh(number), answer, timeout_s)
            if line.verb != "OPENED":
                raise hung(self.name, "it cannot start its SSH server")
        except BaseException:
            sock.close()
            raise
        self._session = number
        return SshChannel.connect(self.name, sock, key, timeout_s)

    def _forward(self, channel: SshChannel) -> None:
        egress = self._egress
        if egress is None:
            raise EnvironmentFault(FailureKind.EGRESS_LOST, "this host has no egress proxy")
        channel.forward(
            lambda stream: egress.serve(self.name, stream, self.targets), _ANSWER_TIMEOUT_S
        )

    def _channel_shut(self) -> None:
        """The guest's server ended, so the transport waits for what cannot come. Closed by a thread of its own, for the
        control ports' thread must not wait.
        """
        channel = self._channel
        if channel is not None:
            threading.Thread(target=channel.close, name="ssh-shut", daemon=True).start()


_SESSIONS = itertools.count(1)
