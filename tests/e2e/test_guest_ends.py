"""What a guest does to itself, told apart from what happens to it; and what it writes, kept from its siblings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from app.domain.machine import DeathCause, Handle, MonitorEvent
from app.errors import EnvironmentFault, FailureKind
from infra import manifest
from infra.egress import EgressProxy, Reach
from infra.qemu.home import Home
from infra.qemu.launch import attach
from infra.qemu.machines import QemuMachines
from infra.qemu.qmp import MonitorLoop
from tests.e2e.conftest import Frozen, Host
from tests.e2e.inside import Inside, Machine
from tests.e2e.processes import gone, soon

pytestmark = pytest.mark.machines


@pytest.mark.parametrize(
    ("command", "cause", "event", "shown"),
    [
        ("poweroff -f", DeathCause.SHUTDOWN, "SHUTDOWN", "Power down"),
        ("reboot -f", DeathCause.SHUTDOWN, "SHUTDOWN", "Restarting system"),
        (
            "echo c > /proc/sysrq-trigger",
            DeathCause.PANICKED,
            "GUEST_PANICKED",
            "sysrq triggered crash",
        ),
    ],
    ids=["power off", "reboot", "panic"],
)
def test_an_end_of_the_guest_s_own_is_ended_and_told_by_its_event(
    fork: Machine, command: str, cause: DeathCause, event: str, shown: str
) -> None:
    machines, handle = fork.inside.machines, handle_of(fork)
    start(fork, command)
    assert gone(handle.pid, handle.keeper_pid)
    death = machines.kill(fork.name)
    assert death is not None
    assert death.cause is cause
    assert event in names(machines.events(fork.name))
    assert shown in machines.console_tail(fork.name)


def test_a_guest_that_ended_itself_while_nobody_listened_is_told_to_who_comes(
    fork: Machine,
) -> None:
    host, handle = fork.inside.host, handle_of(fork)
    root = fork.inside.machine_dir(fork.name).parent
    # The worker that holds the monitor goes away; one that does nothing sees the guest end.
    fork.inside.machines._loop.detach(fork.inside.machines._monitors.pop(fork.name))
    idle = MonitorLoop(host.clock, lambda *_: None, lambda _: None)
    try:
        monitor = attach(idle, Home(root / fork.name))
        start(fork, "poweroff -f")
        monitor.expect(lambda event: event.name == "SHUTDOWN", fork.inside.patience_s)
    finally:
        idle.close()
    later = QemuMachines(root, host.means, host.fingerprint, host.clock)
    try:
        assert later.recover(fork.name) is None
        assert gone(handle.pid, handle.keeper_pid)
        death = later.death(fork.name)
        assert death is not None
        assert death.cause is DeathCause.SHUTDOWN
        assert "SHUTDOWN" in names(later.events(fork.name))
    finally:
        later.close()


def test_what_a_fork_writes_is_its_own(inside: Inside, fork: Machine, frozen: Frozen) -> None:
    fork.says("head -c 500000 /dev/urandom > /written && sync && echo done")
    other = inside.fork(frozen.bundle)
    assert other.says("test -e /written || echo nothing") == "nothing"
    manifest.check_chunks(frozen.bundle.directory, manifest.read(frozen.bundle.directory))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_of_the_host_is_an_event_and_not_a_silence(
    host: Host, frozen: Frozen, tmp_path: Path
) -> None:
    """The guest's disk is larger than the room that its host has left; the end is recorded all the same."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", small], check=True, timeout=30)
    inside = Inside.of(host, small / "machines", frozen.patience_s, EgressProxy(Reach().dial))
    try:
        fork = inside.fork(frozen.bundle)
        handle = handle_of(fork)
        start(fork, "head -c 8000000 /dev/zero | tr '\\0' x > /written; sync")
        assert soon(lambda: "BLOCK_IO_ERROR" in names(inside.machines.events(fork.name)))
        (error,) = {
            event.data["nospace"]
            for event in inside.machines.events(fork.name)
            if event.name == "BLOCK_IO_ERROR"
        }
        assert error is True
        inside.machines.extend(fork.name, host.clock.boot_ns() + 10**12)
        death = inside.machines.kill(fork.name)
        assert death is not None
        assert death.cause is DeathCause.ASKED
        assert gone(handle.pid, handle.keeper_pid)
    finally:
        inside.close()
        subprocess.run(["umount", small], check=True, timeout=30)


def start(fork: Machine, command: str) -> None:
    """The machine may be gone before it has answered."""
    try:
        fork.start(command)
    except EnvironmentFault as fault:
        if fault.kind not in (FailureKind.GUEST_LOST, FailureKind.GUEST_HUNG):
            raise


def handle_of(fork: Machine) -> Handle:
    return next(handle for handle in fork.inside.machines.live() if handle.name == fork.name)


def names(events: tuple[MonitorEvent, ...]) -> list[str]:
    return [event.name for event in events]
