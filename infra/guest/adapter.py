"""`Guest` over a machine's two ports: control lines for what must be cheap, SSH for commands and files."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import paramiko

from app.domain.egress import host_and_port
from app.domain.machine import Awake, Command, CommandEnd, Identity, Probe
from app.errors import EnvironmentFault, FailureKind
from app.ports import GuestEvents
from infra.guest import files, hostkey, probe, wire
from infra.guest.commands import Journal, request
from infra.guest.control import ControlLoop, ControlPort
from infra.guest.faults import connect, hung, lost
from infra.guest.ssh import SshChannel

_ANSWER_TIMEOUT_S = 10.0
_OPEN_TIMEOUT_S = 30.0
_START_TIMEOUT_S = 30.0
_FETCH_SILENCE_S = 60.0
# Freezing waits for user processes and for the disk.
_QUIESCE_TIMEOUT_S = 120.0


class Egress(Protocol):
    """Serves the connections that a machine's programs make to their proxy."""

    def serve(self, name: str, stream: paramiko.Channel, targets: tuple[str, ...]) -> None:
        """Serve one connection to its end."""
        ...

    def log(self, name: str) -> tuple[dict[str, str], ...]:
        """The last faults and refusals of this machine."""
        ...

    def forget(self, name: str) -> None:
        """Drop what is known of a machine."""
        ...


class SshGuest:
    """`machine_dir` says where a machine's `control.sock` and `ssh.sock` are; its host key is pinned there too."""

    def __init__(
        self,
        machine_dir: Callable[[str], Path],
        events: GuestEvents | None = None,
        egress: Egress | None = None,
    ) -> None:
        self._machine_dir = machine_dir
        self._events = events
        self._egress = egress
        self._loop = ControlLoop(self._lost)
        self._machines: dict[str, _Machine] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def attach(self, name: str, *, booted_within_s: float | None = None) -> None:
        """Take the control channel. Raises EnvironmentFault(restore_failed) when the guest says why it cannot boot."""
        machine = self._attached(name)
        if booted_within_s is None:
            return
        hello = machine.control.ask(wire.bare("HELLO"), _hello, booted_within_s)
        if hello.verb == "ERROR":
            raise EnvironmentFault(
                FailureKind.RESTORE_FAILED,
                f"machine {name} cannot boot: {hello.text('reason')[:200]}",
            )

    def wake(self, name: str, identity: Identity, timeout_s: float) -> Awake:
        """Pass the barrier, then set the clock once more, without the barrier's own time in it."""
        machine = self._machine(name)
        key_file, public = hostkey.make_host_key()
        hostkey.pin(self._machine_dir(name), public)

        def answer(line: wire.Line) -> wire.Line | None:
            refused = line.verb == "ERROR" and line.text("verb") == "WAKE"
            return line if line.verb == "AWAKE" or refused else None

        told = wire.wake(identity, key_file, time.time_ns())
        try:
            line = machine.control.ask(told, answer, timeout_s)
        except EnvironmentFault as fault:
            if fault.kind is FailureKind.GUEST_LOST:
                raise
            raise _barrier(name, "no answer", timeout_s=timeout_s) from fault
        awake = wire.awake_of(line, public, time.time_ns())
        if awake is None:
            reason = line.text("reason")[:200] or "its answer is not sound"
            raise _barrier(name, f"the barrier was not passed: {reason}")
        if awake.nonce != identity.nonce:
            raise _barrier(name, "the answer is to another nonce", nonce=awake.nonce)
        machine.control.say(wire.time(time.time_ns()))
        return awake

    def ping(self, name: str, timeout_s: float) -> None:
        """The guest answers."""
        number = next(self._numbers)

        def is_pong(line: wire.Line) -> bool | None:
            return (line.verb == "PONG" and line.number("n") == number) or None

        self._machine(name).control.ask(wire.ping(number), is_pong, timeout_s)

    def open(self, name: str, timeout_s: float) -> None:
        """Open the SSH channel, unless it is open."""
        self._channel(self._machine(name), timeout_s)

    def probe(self, name: str, marker: str, exit_code: int, timeout_s: float) -> Probe:
        """Run the contract's probe over the SSH channel."""
        machine = self._machine(name)
        return probe.run(
            self._channel(machine), marker, exit_code, bool(machine.targets), timeout_s
        )

    def start(self, name: str, exec_id: str, command: Command) -> None:
        """Start a command; an id that the guest has seen is not started again. A broken channel is opened once more."""
        asked = request(exec_id, command)
        machine = self._machine(name)
        machine.journal.watch(exec_id)
        with _unwatched_on_error(machine, exec_id):
            try:
                answer = self._channel(machine).start(asked, _START_TIMEOUT_S)
            except EnvironmentFault:
                if machine.control.is_lost:
                    raise
                answer = self._channel(machine).start(asked, _START_TIMEOUT_S)
            verb, _, why = answer.partition(" ")
            if verb not in ("STARTED", "KNOWN"):
                raise EnvironmentFault(
                    FailureKind.EXEC_NOT_STARTED, why[:500] or "the guest refused the command"
                )

    def end(self, name: str, exec_id: str, wait_s: float = 0.0) -> CommandEnd | None:
        """How a command ended, asked of the guest's journal when its end was not heard."""
        machine = self._machine(name)
        watched = machine.journal.is_watched(exec_id)
        ended = machine.journal.wait(exec_id, wait_s if watched else 0.0)
        if ended is None:
            ended = self._status(machine, exec_id)
        if ended is None and not watched:
            ended = machine.journal.wait(exec_id, wait_s)
        if ended is None:
            return None
        stdout, stderr = ended.stdout, ended.stderr
        if stdout is None:
            stdout = self._output(machine, exec_id, "stdout")
        if stderr is None:
            stderr = self._output(machine, exec_id, "stderr")
        return ended.with_output(stdout, stderr)

    def interrupt(self, name: str, exec_id: str) -> None:
        """Kill every process of a command."""
        self._machine(name).control.say(wire.about("KILL", exec_id))

    def upload(self, name: str, source: BinaryIO, guest_path: str, mode: int = 0o644) -> int:
        """Write a file as root."""
        return files.upload(self._channel(self._machine(name)), source, guest_path, mode)

    def download(self, name: str, guest_path: str, sink: BinaryIO, limit_bytes: int) -> int:
        """Read a file."""
        return files.download(self._channel(self._machine(name)), guest_path, sink, limit_bytes)

    def unpack(self, name: str, tar: BinaryIO, guest_path: str) -> None:
        """Unpack a tar."""
        files.unpack(self._channel(self._machine(name)), tar, guest_path)

    def allow(self, name: str, targets: tuple[str, ...]) -> None:
        """Say what the guest may reach from now on. Raises BadRequest for what is no target.

        The proxy's port is opened with the first target and stays; closed means that the proxy refuses everything.
        """
        for target in targets:
            host_and_port(target)
        machine = self._machine(name)
        machine.targets = targets
        if targets:
            self._forward(machine, self._channel(machine))

    def egress_log(self, name: str) -> tuple[dict[str, str], ...]:
        """What this machine's proxy refused, and what failed."""
        return self._egress.log(name) if self._egress else ()

    def quiesce(self, name: str) -> str:
        """Make a template ready to be frozen. Raises EnvironmentFault(barrier_failed) while a command runs."""
        machine = self._machine(name)
        machine.close_channel()

        def answer(line: wire.Line) -> wire.Line | None:
            refused = line.verb == "ERROR" and line.text("verb") == "QUIESCE"
            return line if line.verb == "QUIET" or refused else None

        line = machine.control.ask(wire.bare("QUIESCE"), answer, _QUIESCE_TIMEOUT_S)
        boot_id = wire.boot_id_of(line)
        if line.verb == "ERROR" or boot_id is None:
            reason = line.text("reason")[:200]
            raise _barrier(name, f"it cannot be frozen: {reason or 'no boot id'}")
        return boot_id

    def close(self, name: str) -> None:
        """Give up the channels of a machine."""
        with self._lock:
            machine = self._machines.pop(name, None)
        if machine is not None:
            self._give_up(machine)
        if self._egress is not None:
            self._egress.forget(name)

    def shut_down(self) -> None:
        """Give up all machines and end the reading thread; the machines live on."""
        with self._lock:
            machines = tuple(self._machines.values())
            self._machines.clear()
        for machine in machines:
            self._give_up(machine)
        self._loop.close()

    def _give_up(self, machine: _Machine) -> None:
        machine.close_channel()
        machine.journal.close()
        self._loop.detach(machine.control)

    def _attached(self, name: str) -> _Machine:
        with self._lock:
            machine = self._machines.get(name)
            if machine is not None and not machine.control.is_lost:
                return machine
            sock = connect(name, self._machine_dir(name) / "control.sock")
            machine = _Machine(name)
            machine.control = self._loop.attach(name, sock, lambda line: self._heard(machine, line))
            self._machines[name] = machine
        # The end of whatever half a line an earlier worker left.
        machine.control.say(b"\n")
        return machine

    def _machine(self, name: str) -> _Machine:
        with self._lock:
            machine = self._machines.get(name)
        if machine is None:
            raise lost(name, "its control channel is not attached")
        return machine

    def _channel(self, machine: _Machine, timeout_s: float = _OPEN_TIMEOUT_S) -> SshChannel:
        """The machine's SSH channel; opened, with its way out, if it is not open."""
        with machine.opening:
            if machine.channel is not None and machine.channel.is_open:
                return machine.channel
            try:
                channel = self._connect(machine, timeout_s)
            except EnvironmentFault:
                # What an earlier connection left in the port may have come between: the next one starts clean.
                if machine.control.is_lost:
                    raise
                channel = self._connect(machine, timeout_s)
            machine.channel = channel
            if machine.targets:
                self._forward(machine, channel)
            return channel

    def _connect(self, machine: _Machine, timeout_s: float) -> SshChannel:
        """The guest starts a fresh server for us first: what an earlier connection left must not be in our way."""
        directory = self._machine_dir(machine.name)
        key = hostkey.pinned(directory)
        if key is None:
            raise lost(machine.name, "it has passed no barrier, so its host key is not known")
        number = next(self._numbers)

        def answer(line: wire.Line) -> wire.Line | None:
            told = line.verb in ("OPENED", "SHUT") and line.number("n") == number
            return line if told else None

        sock = connect(machine.name, directory / "ssh.sock")
        try:
            line = machine.control.ask(wire.open_ssh(number), answer, timeout_s)
            if line.verb != "OPENED":
                raise hung(machine.name, "it cannot start its SSH server")
        except BaseException:
            sock.close()
            raise
        machine.session = number
        return SshChannel.connect(machine.name, sock, key, timeout_s)

    def _forward(self, machine: _Machine, channel: SshChannel) -> None:
        egress = self._egress
        if egress is None:
            raise EnvironmentFault(FailureKind.EGRESS_LOST, "this host has no egress proxy")
        channel.forward(
            lambda stream: egress.serve(machine.name, stream, machine.targets), _ANSWER_TIMEOUT_S
        )

    def _status(self, machine: _Machine, exec_id: str) -> wire.Ended | None:
        """What the guest's journal says; None while it runs. Its end is then heard."""
        machine.journal.watch(exec_id)

        def answer(line: wire.Line) -> wire.Line | None:
            known = line.verb in ("STARTED", "UNKNOWN", "FORGOTTEN") or wire.ended_of(line)
            return line if known and line.text("id") == exec_id else None

        line = machine.control.ask(wire.about("STATUS", exec_id), answer, _ANSWER_TIMEOUT_S)
        if line.verb == "ENDED":
            return wire.ended_of(line)
        if line.verb == "STARTED":
            return None
        machine.journal.unwatch(exec_id)
        if line.verb == "UNKNOWN":
            raise EnvironmentFault(
                FailureKind.EXEC_NOT_STARTED, "the guest does not know this command"
            )
        raise lost(machine.name, "it has let go of this command's output", exec_id=exec_id)

    def _output(self, machine: _Machine, exec_id: str, which: str) -> bytes:
        kept = bytearray()
        finished = self._channel(machine).run(
            f":output {exec_id} {which}", sink=kept.extend, timeout_s=_FETCH_SILENCE_S
        )
        if finished.exit_code:
            raise lost(machine.name, f"a command's output cannot be read: {finished.message}")
        return bytes(kept)

    def _heard(self, machine: _Machine, line: wire.Line) -> None:
        if line.verb == "SHUT" and line.number("n") == machine.session:
            machine.channel_shut()
        end = wire.ended_of(line)
        if end is not None and machine.journal.ended(end) and self._events is not None:
            self._events.ended(machine.name, end.exec_id)

    def _lost(self, name: str) -> None:
        with self._lock:
            machine = self._machines.get(name)
        if machine is None:
            return
        machine.journal.close()
        if self._events is not None:
            self._events.lost(name)


class _Machine:
    """What this process holds of one machine. `control` is set before anybody else can see it."""

    control: ControlPort

    def __init__(self, name: str) -> None:
        self.name = name
        self.journal = Journal()
        self.channel: SshChannel | None = None
        self.session = 0
        self.targets: tuple[str, ...] = ()
        self.opening = threading.Lock()

    def channel_shut(self) -> None:
        """The guest's server ended: the transport must not wait for what cannot come. Closed elsewhere, for the library
        waits for its own thread."""
        channel = self.channel
        if channel is not None:
            threading.Thread(target=channel.close, name="ssh-shut", daemon=True).start()

    def close_channel(self) -> None:
        """End the SSH channel, if there is one."""
        with self.opening:
            if self.channel is not None:
                self.channel.close()
            self.channel = None


@contextlib.contextmanager
def _unwatched_on_error(machine: _Machine, exec_id: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        machine.journal.unwatch(exec_id)
        raise


def _hello(line: wire.Line) -> wire.Line | None:
    if line.verb == "ERROR" and line.text("verb") == "BOOT":
        return line
    return line if line.verb == "HELLO" and wire.boot_id_of(line) else None


def _barrier(name: str, what: str, **evidence: object) -> EnvironmentFault:
    return EnvironmentFault(FailureKind.BARRIER_FAILED, f"machine {name}: {what}", **evidence)
