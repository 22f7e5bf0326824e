"""A host that is short of memory, or of room on its disk: the kernel's word for the one, its error for the other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.domain.machine import Death, DeathCause, Handle
from app.errors import EnvironmentFault, FailureKind
from drills.matrix.cgroups import tight
from infra.qemu import oom
from infra.qemu.machines import QemuMachines
from infra.qemu.qmp import Monitor
from tests.e2e.conftest import Factory, Frozen
from tests.e2e.inside import Machine
from tests.e2e.processes import gone

pytestmark = [
    pytest.mark.machines,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be so unkind to a host"),
]


def handle_of(machine: Machine) -> Handle:
    return next(each for each in machine.inside.machines.live() if each.name == machine.name)


def death_of(machine: Machine) -> Death:
    death = machine.inside.machines.death(machine.name)
    assert death is not None
    return death


def killed_for_memory(machine: Machine) -> Handle:
    handle = handle_of(machine)
    machine.start("sleep 1; dd if=/dev/zero of=/root/fill bs=1M count=60")
    with tight(handle.pid, 8):
        assert gone(handle.pid, handle.keeper_pid)
    return handle


def process_numbers() -> str:
    """The name of the process namespace that we are in."""
    return str(Path("/proc/self/ns/pid").readlink())


@pytest.mark.skipif(
    process_numbers() != oom._FIRST_NAMESPACE,
    reason="in a process namespace of its own the kernel's log names other numbers",
)
def test_the_kernel_s_kill_for_memory_is_told_with_its_own_line(fork: Machine) -> None:
    handle = killed_for_memory(fork)
    death = death_of(fork)
    assert (death.cause, death.signal) == (DeathCause.OUT_OF_MEMORY, 9)
    assert f"Killed process {handle.pid} " in death.seen
    assert death_of(fork) == death


def test_without_the_kernel_s_log_its_counts_tell(
    fork: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(oom, "_LOG", tmp_path / "none")
    killed_for_memory(fork)
    assert death_of(fork).cause is DeathCause.OUT_OF_MEMORY
    assert "oom_kill" in death_of(fork).seen


def test_a_kill_by_somebody_else_is_none_for_memory(fork: Machine) -> None:
    handle = handle_of(fork)
    os.kill(handle.pid, signal.SIGKILL)
    assert gone(handle.pid, handle.keeper_pid)
    assert death_of(fork).cause is DeathCause.SIGNAL


def test_a_kill_for_memory_in_a_restore_is_called_that(
    factory: Factory, frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's log is written here; the rest is as it is."""
    killed: list[int] = []

    def killed_in_it(monitor: Monitor, _: object) -> None:
        (handle,) = factory.machines.live()
        killed.append(handle.pid)
        os.kill(handle.pid, signal.SIGKILL)
        monitor.expect(lambda _: False, 30)

    def log() -> Iterator[tuple[int, str]]:
        line = f"Out of memory: Killed process {killed[0]} (qemu-system-x86) total-vm:1kB"
        yield factory.host.clock.boot_ns(), line

    monkeypatch.setattr("infra.qemu.machines.restore.resume", killed_in_it)
    monkeypatch.setattr(oom, "_log", log)
    monkeypatch.setattr(oom, "_FIRST_NAMESPACE", process_numbers())
    with pytest.raises(EnvironmentFault) as refused:
        factory.fork()
    assert refused.value.kind is FailureKind.HOST_OUT_OF_MEMORY
    assert f"Killed process {killed[0]} " in str(refused.value.evidence["process_said"])
    assert factory.machines.known() == ()


@contextmanager
def small_disk(at: Path, mib: int) -> Iterator[Path]:
    """A file system of its own; gone afterwards."""
    at.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(at)], check=True, timeout=30
    )
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True, timeout=30)


@pytest.mark.parametrize("left_bytes", [0, 4096, 150_000], ids=lambda left: f"{left} left")
def test_a_restore_onto_a_full_disk_says_so_and_leaves_nothing(
    factory: Factory, frozen: Frozen, tmp_path: Path, left_bytes: int
) -> None:
    host = factory.host
    with small_disk(tmp_path / "small", 2) as small:
        machines = QemuMachines(small / "machines", host.means, host.fingerprint, host.clock)
        try:
            stat = os.statvfs(small)
            with (small / "fill").open("wb") as fill:
                os.posix_fallocate(fill.fileno(), 0, stat.f_bavail * stat.f_frsize - left_bytes)
            with pytest.raises(EnvironmentFault) as refused:
                machines.restore(factory.name(), frozen.bundle, host.deadline())
            assert refused.value.kind is FailureKind.HOST_DISK_FULL
            assert machines.known() == ()
        finally:
            machines.close()
