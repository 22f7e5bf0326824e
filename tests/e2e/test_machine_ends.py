"""How machines end, who is told, and how another worker takes over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from app.domain.machine import DeathCause
from app.errors import Conflict, Unavailable
from infra.qemu.argv import fork_argv
from infra.qemu.home import Home
from infra.qemu.launch import launch
from infra.qemu.restore import prepare
from tests.e2e.conftest import Factory, Frozen
from tests.e2e.kept import SECOND_NS
from tests.e2e.processes import gone

pytestmark = pytest.mark.machines


# Its end


def test_kill_waits_for_the_end_and_may_come_twice(factory: Factory) -> None:
    fork = factory.fork()
    death = factory.machines.kill(fork.name)
    assert death is not None
    assert (death.cause, death.signal) == (DeathCause.ASKED, 9)
    assert fork.started_boot_ns < death.ended_boot_ns <= factory.host.clock.boot_ns()
    assert not Path(f"/proc/{fork.pid}/exe").exists()
    assert factory.machines.kill(fork.name) == death
    assert factory.machines.death(fork.name) == death
    assert factory.machines.live() == ()


def test_nothing_is_known_of_a_name_that_never_lived(factory: Factory) -> None:
    name = factory.name()
    assert factory.machines.kill(name) is None
    assert factory.machines.death(name) is None
    assert factory.machines.events(name) == ()
    assert factory.machines.console_tail(name) == ""
    assert factory.machines.recover(name) is None
    factory.machines.extend(name, 1)
    factory.machines.forget(name)


def test_a_living_machine_is_not_forgotten(factory: Factory) -> None:
    fork = factory.fork()
    assert factory.machines.death(fork.name) is None
    with pytest.raises(Conflict):
        factory.machines.forget(fork.name)
    factory.machines.kill(fork.name)
    factory.machines.forget(fork.name)
    factory.machines.forget(fork.name)
    assert fork.name not in factory.machines.known()


def test_a_machine_ends_with_its_lease(factory: Factory) -> None:
    fork = factory.fork(lease_s=1.0)
    assert gone(fork.pid, fork.keeper_pid)
    death = factory.machines.death(fork.name)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert death.ended_boot_ns >= fork.started_boot_ns


def test_a_longer_lease_is_lived(factory: Factory) -> None:
    fork = factory.fork(lease_s=2.0)
    longer_ns = factory.host.clock.boot_ns() + 4 * SECOND_NS
    factory.machines.extend(fork.name, longer_ns)
    assert gone(fork.pid, fork.keeper_pid)
    death = factory.machines.death(fork.name)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert death.ended_boot_ns > longer_ns - SECOND_NS


def test_a_crash_of_the_hypervisor_is_its_signal(factory: Factory) -> None:
    fork = factory.fork()
    os.kill(fork.pid, signal.SIGSEGV)
    assert gone(fork.pid, fork.keeper_pid)
    death = factory.machines.death(fork.name)
    assert death is not None
    assert (death.cause, death.signal) == (DeathCause.SIGNAL, 11)


def test_a_lost_keeper_takes_its_machine_along_and_the_end_is_told_once(factory: Factory) -> None:
    fork = factory.fork()
    os.kill(fork.keeper_pid, signal.SIGKILL)
    assert gone(fork.pid, fork.keeper_pid)
    death = factory.machines.death(fork.name)
    assert death is not None
    assert death.cause is DeathCause.KEEPER_LOST
    assert factory.machines.death(fork.name) == death
    assert factory.machines.kill(fork.name) == death


def test_its_monitor_s_events_outlive_it(factory: Factory) -> None:
    fork = factory.fork()
    names = [event.name for event in factory.machines.events(fork.name)]
    assert "RESUME" in names
    factory.machines.kill(fork.name)
    assert [event.name for event in factory.machines.events(fork.name)] == names


# Another worker


def test_another_worker_takes_over_a_machine(factory: Factory) -> None:
    fork = factory.fork()
    factory.machines.close()
    later = factory.machines = factory.host.machines()
    try:
        assert later.live() == (fork,)
        assert later.recover(fork.name) == fork
        assert later.recover(fork.name) == fork
        with factory.wire(fork.name) as wire:
            assert wire.wake()["verb"] == "AWAKE"
        death = later.kill(fork.name)
        assert death is not None
        assert death.cause is DeathCause.ASKED
        assert later.recover(fork.name) is None
        factory.end()
    finally:
        later.close()


def test_two_workers_do_not_hold_one_machine(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.qemu.machines._ADOPTED_WITHIN_S", 0.2)
    fork = factory.fork()
    other = factory.host.machines()
    try:
        with pytest.raises(Unavailable, match="another process holds"):
            other.recover(fork.name)
        assert other.death(fork.name) is None
    finally:
        other.close()
    with factory.wire(fork.name) as wire:
        assert wire.wake()["verb"] == "AWAKE"


def test_a_machine_left_half_restored_is_ended(factory: Factory, frozen: Frozen) -> None:
    """As by a worker that died between the start of QEMU and the load of the state."""
    host, name = factory.host, factory.name()
    home = Home(host.root / name)
    home.directory.mkdir()
    launched = launch(
        host.means[0],
        factory.machines._loop,
        home,
        frozen.bundle.shape,
        prepare(home, frozen.bundle),
        fork_argv,
        host.deadline(),
    )
    handle = factory.keep(launched.handle)
    factory.machines._loop.detach(launched.monitor)
    assert factory.machines.recover(name) is None
    assert gone(handle.pid, handle.keeper_pid)
    death = factory.machines.death(name)
    assert death is not None
    assert death.cause is DeathCause.ASKED
