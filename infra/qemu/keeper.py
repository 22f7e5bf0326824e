"""Start a machine under its keeper, read what the keeper wrote, ask it to kill. The keeper itself is `keeper.c`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.domain.machine import Deadline, Death, DeathCause, Handle
from app.errors import Conflict, Unavailable
from infra.qemu.home import Home, write_atomically

# Killing takes a moment: by how much a keeper fires before the lease ends, so that the process is gone when it does.
KILL_MARGIN_NS = 150_000_000
_GONE_WITHIN_S = 10.0
_STARTED_WITHIN_S = 20.0
_SENTENCES_BYTES = 4096
# Between a keeper's lock and its record lie a fork and a few files.
_BORN_LOOKS, _BORN_LOOK_S = 500, 0.01
# The keeper writes a stop in place, within microseconds: who comes in between looks again.
_STOPS_LOOKS = 20
# The kernel's struct flock: type, whence, start, length, process.
_FLOCK = "hhqqi0q"
_WRITE_LOCK = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class NotStartedError(Exception):
    """The program does not run; the text says why, in the keeper's or its own words."""

    @property
    def for_want_of_room(self) -> bool:
        """Whether that is because the disk is full."""
        return os.strerror(errno.ENOSPC) in str(self)


@dataclass(frozen=True, slots=True)
class Program:
    """What a keeper is to run. `fds` are passed on; `own_fd` is given to the machine's user, `cgroup_fd` is entered.

    `scoped` are words before the keeper's own, of a program that runs it elsewhere and passes all of these on.
    """

    argv: tuple[str, ...]
    fds: tuple[int, ...]
    console_fd: int
    first_uid: int | None = None
    own_fd: int | None = None
    cgroup_fd: int | None = None
    scoped: tuple[str, ...] = ()


def start(keeper: Path, home: Home, program: Program, deadline: Deadline) -> Handle:
    """Run a program under a keeper of its own; returns when it runs.

    Raises NotStartedError; then nothing is left running.

    `program.console_fd` is the reading end of the pipe whose writing end is among `program.fds`.
    """
    write_deadline(home, deadline.boot_ns)
    log_out, log_in = os.pipe()
    try:
        done = subprocess.run(
            _argv(keeper, program, deadline),
            cwd=home.directory,
            env={},
            stdin=program.console_fd,
            stdout=log_out,
            stderr=log_in,
            pass_fds=_passed(program),
            timeout=_STARTED_WITHIN_S,
            check=False,
        )
        handle = read_born(home) if done.returncode == 0 else None
        if handle is None:
            raise NotStartedError(_why(home, log_out) or f"the keeper ended with {done.returncode}")
        return handle
    except subprocess.TimeoutExpired as error:
        raise NotStartedError("the keeper did not start it in time") from error
    finally:
        os.close(log_out)
        os.close(log_in)


def write_deadline(home: Home, boot_ns: int) -> None:
    """What the keeper goes by from its next look on."""
    write_atomically(home.deadline, f"{boot_ns}\n")


def read_deadline(home: Home) -> int | None:
    """What was written last; None for a machine that is gone."""
    try:
        return int(home.deadline.read_text())
    except FileNotFoundError:
        return None


def read_born(home: Home) -> Handle | None:
    """Who runs the machine, as its keeper wrote it; None if none has."""
    record = _record(home.born)
    if record is None:
        return None
    started_ns = int(record["started_boot_ns"])
    return Handle(home.name, int(record["pid"]), int(record["keeper_pid"]), started_ns)


def read_exit(home: Home) -> Death | None:
    """How the machine ended, as its keeper wrote it; None if none has."""
    record = _record(home.exit)
    if record is None:
        return None
    code, signal_number = int(record["exit_code"]), int(record["signal"])
    return Death(
        cause=DeathCause(record["cause"]),
        exit_code=code if code >= 0 else None,
        signal=signal_number if signal_number >= 0 else None,
        ended_boot_ns=int(record["ended_boot_ns"]),
        late_ns=int(record["late_ns"]),
    )


@dataclass(frozen=True, slots=True)
class Stops:
    """How often and how long a program stood still by a signal; `since_boot_ns` while it does."""

    count: int = 0
    stopped_ns: int = 0
    since_boot_ns: int | None = None


def read_stops(home: Home) -> Stops:
    """What the keeper noted; no stops where it had nothing to note, or where its note cannot be read."""
    for _ in range(_STOPS_LOOKS):
        with contextlib.suppress(KeyError, ValueError):
            record = _record(home.stops)
            if not record:
                return Stops()
            if record["begun"] == record["done"]:
                since_ns = int(record["since_boot_ns"])
                return Stops(int(record["count"]), int(record["stopped_ns"]), since_ns or None)
    return Stops()


def write_keeper_lost(home: Home, ended_boot_ns: int) -> Death:
    """Record, in a dead keeper's place, an end that it could not witness; where the disk is full, only return it."""
    line = f"cause=keeper_lost exit_code=-1 signal=-1 ended_boot_ns={ended_boot_ns} late_ns=0\n"
    with contextlib.suppress(OSError):
        write_atomically(home.exit, line)
    return Death(DeathCause.KEEPER_LOST, None, None, ended_boot_ns)


def keeper_lives(home: Home) -> bool:
    """Whether a keeper holds its lock: true from before `born` is written until after `exit` is."""
    return _is_locked(home.directory / "keeper")


def program_lives(home: Home) -> bool:
    """Whether the machine's process holds its lock, be its keeper alive or not."""
    return _is_locked(home.directory / "machine")


def tell_deadline(home: Home) -> None:
    """Let the keeper read its deadline now; it would at the old one anyway. Silent when it is gone."""
    with _keeper(home) as pidfd:
        _signal(pidfd, signal.SIGHUP)


def ask_to_kill(home: Home) -> None:
    """Let the keeper kill, without waiting. Silent when it is gone."""
    with _keeper(home) as pidfd:
        _signal(pidfd, signal.SIGTERM)


def kill(home: Home) -> None:
    """End the machine and wait until both its process and its keeper are gone; one that is not born yet never will be.

    Raises Unavailable if a process outlives SIGKILL for 10 s (the kernel holds it).
    """
    if read_born(home) is None:
        _prevent(home)
    with _keeper(home) as pidfd:
        _signal(pidfd, signal.SIGTERM)
        if not _gone(pidfd, _GONE_WITHIN_S):
            _signal(pidfd, signal.SIGKILL)
            _gone(pidfd, _GONE_WITHIN_S)
    with _program(home) as pidfd:
        _signal(pidfd, signal.SIGKILL)
        if not _gone(pidfd, _GONE_WITHIN_S):
            raise Unavailable(
                "machine_will_not_die", f"the process of {home.name} outlives SIGKILL"
            )


@contextlib.contextmanager
def buried(home: Home) -> Iterator[None]:
    """Hold a dead machine's lock while its files are removed: a late keeper then finds it gone, and starts nothing.

    Raises Conflict while a keeper or the machine lives.
    """
    try:
        fd = os.open(home.directory / "keeper", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield
        return
    try:
        if program_lives(home) or not _lock(fd):
            raise Conflict("machine_lives", f"machine {home.name} lives; kill it first")
        yield
    finally:
        os.close(fd)


def _prevent(home: Home) -> None:
    """A worker may have died with its keeper on the way: let that find its lease over, or wait until it is born."""
    with contextlib.suppress(OSError):
        write_deadline(home, 1)
    for _ in range(_BORN_LOOKS):
        if read_born(home) is not None or not keeper_lives(home):
            return
        time.sleep(_BORN_LOOK_S)


def _argv(keeper: Path, program: Program, deadline: Deadline) -> list[str]:
    by = str(deadline.start_by_boot_ns)
    options = [*program.scoped, str(keeper), "-s", by, "-m", str(KILL_MARGIN_NS)]
    wishes = (("-u", program.first_uid), ("-o", program.own_fd), ("-g", program.cgroup_fd))
    for option, value in wishes:
        if value is not None:
            options += [option, str(value)]
    return [*options, "--", *program.argv]


def _passed(program: Program) -> tuple[int, ...]:
    extra = (program.own_fd, program.cgroup_fd)
    return (*program.fds, *(fd for fd in extra if fd is not None))


def _why(home: Home, log_out: int) -> str:
    """What was said on the log pipe; a keeper that got far enough has taken it from there into the file."""
    kill(home)
    said = b""
    with contextlib.suppress(FileNotFoundError):
        said = (home.directory / "log").read_bytes()
    os.set_blocking(log_out, False)
    with contextlib.suppress(BlockingIOError):
        said += os.read(log_out, _SENTENCES_BYTES)
    return said[-_SENTENCES_BYTES:].decode(errors="replace").strip()


def _record(path: Path) -> dict[str, str] | None:
    """A line of `key=value` words."""
    try:
        words = path.read_text().split()
    except FileNotFoundError:
        return None
    return dict(word.split("=", 1) for word in words)


def _is_locked(path: Path) -> bool:
    """Asked without locking anything, so that nobody who asks is ever taken for one who lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WRITE_LOCK)
    finally:
        os.close(fd)
    kind: int = struct.unpack(_FLOCK, found)[0]
    return kind != fcntl.F_UNLCK


def _lock(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WRITE_LOCK)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _keeper(home: Home) -> Iterator[int | None]:
    born = read_born(home)
    with _process(born.keeper_pid if born else None, lambda: keeper_lives(home)) as pidfd:
        yield pidfd


@contextlib.contextmanager
def _program(home: Home) -> Iterator[int | None]:
    born = read_born(home)
    with _process(born.pid if born else None, lambda: program_lives(home)) as pidfd:
        yield pidfd


@contextlib.contextmanager
def _process(pid: int | None, lives: Callable[[], bool]) -> Iterator[int | None]:
    """A descriptor of the process, None when it is gone.

    The lock is looked at after the number was pinned, so it never is a later process with the same number.
    """
    try:
        pidfd = os.pidfd_open(pid) if pid else None
    except ProcessLookupError:
        pidfd = None
    try:
        yield pidfd if pidfd is not None and lives() else None
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _signal(pidfd: int | None, number: signal.Signals) -> None:
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


def _gone(pidfd: int | None, within_s: float) -> bool:
    if pidfd is None:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
