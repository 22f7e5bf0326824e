"""`Guest` over a machine's two ports: control lines for what must be cheap, SSH for commands and files."""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from app.domain.egress import host_and_port
from app.domain.machine import Awake, Command, CommandEnd, Identity, Probe
from app.errors import EnvironmentFault, FailureKind
from app.ports import GuestEvents
from infra.guest import files, hostkey, probe, wire
from infra.guest.commands import request
from infra.guest.control import ControlLoop
from infra.guest.faults import connect, lost
from infra.guest.machine import Egress, Machine

_START_TIMEOUT_S = 30.0
# Freezing waits for user processes and for the disk.
_QUIESCE_TIMEOUT_S = 120.0
# A line that sets a clock makes it late by the line's own time, at most the time until its answer. On a busy host
# that is much; a second or third line may be quick.
_CLOCK_ROUNDS = 3
_QUICK_NS = 100_000_000


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
        self._machines: dict[str, Machine] = {}
        self._lock = threading.Lock()
        self._attaching = threading.Lock()
        self._numbers = itertools.count(1)

    def attach(self, name: str, *, booted_within_s: float | None = None) -> None:
        """Take the control channel. Raises EnvironmentFault(restore_failed) when the guest says why it cannot boot."""
        machine = self._attached(name)
        if booted_within_s is None:
            return
        hello = machine.control.ask(wire.bare("HELLO"), _hello, booted_within_s)
        if hello.verb == "ERROR":
            reason = hello.text("reason")[:200]
            raise EnvironmentFault(
                FailureKind.RESTORE_FAILED, f"machine {name} cannot boot: {reason}"
            )

    def wake(self, name: str, identity: Identity, timeout_s: float) -> Awake:
        """Pass the barrier, then set the clock once more, closely."""
        machine = self._machine(name)
        key_file, public = hostkey.make_host_key()
        try:
            hostkey.pin(self._machine_dir(name), public)
        except OSError as error:
            kind = (
                FailureKind.HOST_DISK_FULL
                if error.errno == errno.ENOSPC
                else FailureKind.BARRIER_FAILED
            )
            raise EnvironmentFault(kind, f"machine {name}: its host key: {error}") from error

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
            reason = line.text("reason")[:200] or "its answer is not sound, or of another protocol"
            raise _barrier(name, f"the barrier was not passed: {reason}")
        if awake.nonce != identity.nonce:
            raise _barrier(name, "the answer is to another nonce", nonce=awake.nonce)
        machine.taken_over = False
        return _with_clock_set(machine, awake)

    def ping(self, name: str, timeout_s: float) -> None:
        """The guest answers."""
        number = next(self._numbers)

        def is_pong(line: wire.Line) -> bool | None:
            return (line.verb == "PONG" and line.number("n") == number) or None

        self._machine(name).control.ask(wire.ping(number), is_pong, timeout_s)

    def open(self, name: str, timeout_s: float) -> None:
        """Open the SSH channel, unless it is open."""
        self._machine(name).channel(timeout_s)

    def probe(self, name: str, marker: str, exit_code: int, timeout_s: float) -> Probe:
        """Run the contract's probe over the SSH channel."""
        machine = self._machine(name)
        return probe.run(machine.channel(), marker, exit_code, bool(machine.targets), timeout_s)

    def start(self, name: str, exec_id: str, command: Command) -> None:
        """Start a command; an id that the guest has seen is not started again. A broken channel is opened once more."""
        asked = request(exec_id, command)
        machine = self._machine(name)
        machine.journal.watch(exec_id)
        with _unwatched_on_error(machine, exec_id):
            try:
                answer = machine.channel().start(asked, _START_TIMEOUT_S)
            except EnvironmentFault as fault:
                if not machine.broke_in_ssh_only(fault):
                    raise
                answer = machine.channel().start(asked, _START_TIMEOUT_S)
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
            ended = machine.status(exec_id)
        if ended is None and not watched:
            ended = machine.journal.wait(exec_id, wait_s)
        if ended is None:
            return None
        stdout, stderr = ended.stdout, ended.stderr
        if stdout is None:
            stdout = machine.output(exec_id, "stdout")
        if stderr is None:
            stderr = machine.output(exec_id, "stderr")
        return ended.with_output(stdout, stderr)

    def output(self, name: str, exec_id: str, stream: str, start: int, limit_bytes: int) -> bytes:
        """What a running command has printed so far, a part of it."""
        return self._machine(name).output_so_far(exec_id, stream, start, limit_bytes)

    def interrupt(self, name: str, exec_id: str) -> None:
        """Kill every process of a command."""
        self._machine(name).control.say(wire.about("KILL", exec_id))

    def result(self, name: str, exec_id: str, limit_bytes: int) -> bytes | None:
        """A grade's result file. A broken channel is opened once more: reading twice is safe."""
        machine = self._machine(name)
        try:
            return files.result(machine.channel(), exec_id, limit_bytes)
        except EnvironmentFault as fault:
            if not machine.broke_in_ssh_only(fault):
                raise
            return files.result(machine.channel(), exec_id, limit_bytes)

    def upload(self, name: str, source: BinaryIO, guest_path: str, mode: int = 0o644) -> int:
        """Write a file as root."""
        return files.upload(self._machine(name).channel(), source, guest_path, mode)

    def download(self, name: str, guest_path: str, sink: BinaryIO, limit_bytes: int) -> int:
        """Read a file."""
        return files.download(self._machine(name).channel(), guest_path, sink, limit_bytes)

    def unpack(self, name: str, tar: BinaryIO, guest_path: str) -> None:
        """Unpack a tar."""
        files.unpack(self._machine(name).channel(), tar, guest_path)

    def allow(self, name: str, targets: tuple[str, ...]) -> None:
        """Say what the guest may reach from now on. Raises BadRequest for what is no target."""
        for target in targets:
            host_and_port(target)
        self._machine(name).allow(targets)

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

    def _give_up(self, machine: Machine) -> None:
        machine.close_channel()
        machine.journal.close()
        self._loop.detach(machine.control)

    def _attached(self, name: str) -> Machine:
        with self._attaching:
            with self._lock:
                known = self._machines.get(name)
            if known is not None and not known.control.is_lost:
                return known
            if known is not None:
                self._give_up(known)
            sock = connect(name, self._machine_dir(name) / "control.sock")
            machine = Machine(name, self._machine_dir(name), self._egress)
            machine.control = self._loop.attach(name, sock, lambda line: self._heard(machine, line))
            with self._lock:
                self._machines[name] = machine
        # The end of whatever half a line an earlier worker left.
        machine.control.say(b"\n")
        return machine

    def _machine(self, name: str) -> Machine:
        with self._lock:
            machine = self._machines.get(name)
        if machine is None:
            raise lost(name, "its control channel is not attached")
        return machine

    def _heard(self, machine: Machine, line: wire.Line) -> None:
        end = machine.heard(line)
        if end is not None and self._events is not None:
            self._events.ended(machine.name, end.exec_id)

    def _lost(self, name: str) -> None:
        with self._lock:
            machine = self._machines.get(name)
        if machine is None:
            return
        machine.journal.close()
        if self._events is not None:
            self._events.lost(name)


@contextlib.contextmanager
def _unwatched_on_error(machine: Machine, exec_id: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        machine.journal.unwatch(exec_id)
        raise


def _with_clock_set(machine: Machine, awake: Awake) -> Awake:
    """Set the clock without the barrier's own time in it; `awake` then tells what the last round read."""
    for _ in range(_CLOCK_ROUNDS):
        sent_ns = time.time_ns()
        line = machine.control.ask(wire.time(sent_ns), _timed, _START_TIMEOUT_S)
        heard_ns = time.time_ns()
        awake = replace(awake, guest_wall_ns=line.number("time_ns") or 0, host_wall_ns=heard_ns)
        if heard_ns - sent_ns <= _QUICK_NS:
            break
    return awake


def _timed(line: wire.Line) -> wire.Line | None:
    return line if line.verb == "TIMED" else None


def _hello(line: wire.Line) -> wire.Line | None:
    if line.verb == "ERROR" and line.text("verb") == "BOOT":
        return line
    return line if line.verb == "HELLO" and wire.boot_id_of(line) else None


def _barrier(name: str, what: str, **evidence: object) -> EnvironmentFault:
    return EnvironmentFault(FailureKind.BARRIER_FAILED, f"machine {name}: {what}", **evidence)
