"""The drill sees what it is there for: keepers that are sabotaged from outside, on real machines."""

from __future__ import annotations

import os
import signal

import pytest

from drills.cap.judge import late_kills, lateness_ms, orphans
from drills.watch import Seen, Watch, boot_ns, watching
from tests.e2e.conftest import Factory
from tests.e2e.processes import gone, soon

pytestmark = pytest.mark.machines


def test_a_frozen_keeper_is_a_late_kill(factory: Factory) -> None:
    with watching(factory.host.root) as watch:
        handle = factory.fork(lease_s=4.0)
        os.kill(handle.keeper_pid, signal.SIGSTOP)
        try:
            assert soon(lambda: late_kills(seen(watch, handle.name), boot_ns()) != [])
        finally:
            os.kill(handle.keeper_pid, signal.SIGCONT)
        assert gone(handle.pid, handle.keeper_pid)
        assert soon(lambda: lateness_ms(seen(watch, handle.name), boot_ns()) != [])
        assert len(late_kills(seen(watch, handle.name), boot_ns())) == 1


def test_an_honest_keeper_is_in_time_and_a_killed_one_takes_its_machine_along(
    factory: Factory,
) -> None:
    with watching(factory.host.root) as watch:
        honest, killed = factory.fork(lease_s=4.0), factory.fork()
        assert soon(lambda: len(watch.seen()) == 2)
        os.kill(killed.keeper_pid, signal.SIGKILL)
        assert gone(honest.pid, killed.pid)
        assert soon(lambda: lateness_ms(seen(watch, honest.name), boot_ns()) != [])
        both = watch.seen().values()
        assert late_kills(both, boot_ns()) == []
        assert orphans(both, boot_ns()) == []


def seen(watch: Watch, name: str) -> list[Seen]:
    """This machine, once it was seen."""
    return [each for each in watch.seen().values() if each.name == name]
