"""Start QEMU on open files and listening sockets, under a keeper, and take its monitor."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from app.domain.machine import Accelerator, Deadline, Handle, RestoreKey, Shape, not_served
from app.errors import EnvironmentFault, FailureKind
from infra.qemu import evidence, keeper, limits, oom
from infra.qemu.argv import Descriptors, Hypervisor
from infra.qemu.home import Home, connect, listen
from infra.qemu.probe import Trial
from infra.qemu.programs import file_of
from infra.qemu.qmp import (
    Monitor,
    MonitorLoop,
    MonitorLostError,
    MonitorRefusedError,
    MonitorSilentError,
)

ArgvOf = Callable[[Hypervisor, str, Shape, Descriptors], tuple[str, ...]]

_ANSWERS_WITHIN_S = 30.0
_KVM = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class Means:
    """What this host runs machines of one QEMU build with. Without `first_uid` (we are not root) QEMU runs as the
    worker's own user.

    `trial` is what shows that a guest gets anywhere at all by this program. `file` is what the program was when its
    build was asked for.
    """

    keeper: Path
    hypervisor: Hypervisor
    first_uid: int | None
    trial: Trial
    file: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Files:
    """What a machine is made of. A template writes its memory, state and root disk; a fork only its overlay."""

    memory: Path
    state: Path
    root: Path
    tools: Path
    overlay: Path | None = None
    kernel: Path | None = None
    initramfs: Path | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """A machine that runs and answers. `files` are the numbers by which QEMU knows its files."""

    handle: Handle
    monitor: Monitor
    files: Descriptors


def means_of(key: RestoreKey, all_of_them: tuple[Means, ...]) -> Means:
    """Those of the one program that restores what was frozen under this key: any other might load the state and run it
    wrongly. Raises EnvironmentFault(snapshot_unavailable).
    """
    for means in all_of_them:
        if means.hypervisor.key == key:
            return means
    raise not_served(key, (means.hypervisor.key for means in all_of_them))


def same_build(means: Means) -> None:
    """An upgrade in place leaves the name and changes the build: it would run machines that another one froze.

    Raises EnvironmentFault(restore_failed): until its worker begins anew, this host is not what it says that it is.
    """
    program, build = means.hypervisor.program, means.hypervisor.key.qemu_build
    if file_of(program) != means.file:
        raise EnvironmentFault(
            FailureKind.RESTORE_FAILED,
            f"{program} was QEMU {build} when this worker began and has been replaced since: restart the worker",
            reason="program_replaced",
            build=build,
        )


def launch(
    means: Means,
    loop: MonitorLoop,
    home: Home,
    shape: Shape,
    files: Files,
    argv_of: ArgvOf,
    deadline: Deadline,
) -> Launched:
    """Start a machine in its prepared home; returns when its monitor answers.

    Raises EnvironmentFault(restore_failed, host_disk_full); the caller then clears the home.
    """
    with translated(home):
        same_build(means)
        handle, numbers = _start(means, home, shape, files, argv_of, deadline)
        oom.note_birth(home, handle.pid)
        return Launched(handle, attach(loop, home), numbers)


def attach(loop: MonitorLoop, home: Home, timeout_s: float = _ANSWERS_WITHIN_S) -> Monitor:
    """Take a running machine's monitor. Raises OSError, MonitorSilentError, MonitorLostError."""
    monitor = loop.attach(home.name, connect(home.monitor, timeout_s))
    try:
        monitor.greet(timeout_s)
    except BaseException:
        loop.detach(monitor)
        raise
    return monitor


@contextlib.contextmanager
def translated(home: Home) -> Iterator[None]:
    """What goes wrong with a process, its monitor or its files, as a fault of the environment with what was seen.

    The machine is ended first, so that its log is whole.
    """
    try:
        yield
    except keeper.NotStartedError as error:
        kind = FailureKind.HOST_DISK_FULL if error.for_want_of_room else FailureKind.RESTORE_FAILED
        raise _fault(home, str(error), kind) from error
    except MonitorRefusedError as error:
        raise _fault(home, str(error)) from error
    except (MonitorLostError, MonitorSilentError) as error:
        raise _fault(home, f"its monitor: {error}") from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = FailureKind.HOST_DISK_FULL if full else FailureKind.RESTORE_FAILED
        raise _fault(home, str(error), kind) from error


def _fault(
    home: Home, message: str, kind: FailureKind = FailureKind.RESTORE_FAILED
) -> EnvironmentFault:
    keeper.kill(home)
    killed = evidence.killed_for_memory(home)
    if killed is not None:
        return EnvironmentFault(
            FailureKind.HOST_OUT_OF_MEMORY,
            f"machine {home.name}: the host's kernel killed it for want of memory",
            process_said=killed,
            met=message,
        )
    return EnvironmentFault(
        kind,
        f"machine {home.name}: {message}",
        hypervisor_log=evidence.log_tail(home),
        console_tail=evidence.console_tail(home),
    )


def _start(
    means: Means, home: Home, shape: Shape, files: Files, argv_of: ArgvOf, deadline: Deadline
) -> tuple[Handle, Descriptors]:
    """All that QEMU inherits is closed here afterwards: a socket that we held would seem to listen after its end."""
    with ExitStack() as stack:
        console_out, console_in = _pipe(stack)
        numbers = _open(stack, home, files, console_in, means.hypervisor.key.accelerator)
        program = keeper.Program(
            argv=argv_of(means.hypervisor, home.name, shape, numbers),
            fds=numbers.numbers(),
            console_fd=console_out,
            first_uid=means.first_uid,
            # A template maps its memory for writing, which QEMU does by the file's name.
            own_fd=numbers.memory if files.overlay is None else None,
            cgroup_fd=limits.enter(stack, home.name, shape),
            scoped=limits.scoped(home.name, shape),
        )
        return keeper.start(means.keeper, home, program, deadline), numbers


def _pipe(stack: ExitStack) -> tuple[int, int]:
    """The machine's console. A keeper that lags must not stall its machine, so the writing end never blocks."""
    out, into = os.pipe()
    stack.callback(os.close, out)
    stack.callback(os.close, into)
    os.set_blocking(into, False)
    return out, into


def _open(
    stack: ExitStack, home: Home, files: Files, console: int, accelerator: Accelerator
) -> Descriptors:
    def opened(path: Path, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        return fd

    def listening(path: Path) -> int:
        return stack.enter_context(listen(path)).fileno()

    is_fork = files.overlay is not None
    return Descriptors(
        console=console,
        monitor=listening(home.monitor),
        control=listening(home.control),
        ssh=listening(home.ssh),
        memory=opened(files.memory, os.O_RDONLY if is_fork else os.O_RDWR),
        state=opened(files.state, os.O_RDONLY if is_fork else os.O_WRONLY),
        root=opened(files.root, os.O_RDONLY if is_fork else os.O_RDWR),
        tools=opened(files.tools, os.O_RDONLY),
        overlay=opened(files.overlay, os.O_RDWR) if files.overlay else None,
        kernel=opened(files.kernel, os.O_RDONLY) if files.kernel else None,
        initramfs=opened(files.initramfs, os.O_RDONLY) if files.initramfs else None,
        accelerator=opened(_KVM, os.O_RDWR) if accelerator is Accelerator.KVM else None,
    )
