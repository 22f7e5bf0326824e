"""A program that is stopped by a signal: its keeper, which alone is told, notes how often and for how long."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from infra.qemu import keeper
from tests.e2e.kept import Kept
from tests.e2e.processes import gone, soon, status_of

pytestmark = pytest.mark.machines


def stop(kept: Kept, pid: int) -> None:
    """Stopped, and noted as such."""
    os.kill(pid, signal.SIGSTOP)
    assert soon(lambda: keeper.read_stops(kept.home).since_boot_ns is not None)


def go_on(kept: Kept, pid: int) -> None:
    """Running again, and noted as such."""
    os.kill(pid, signal.SIGCONT)
    assert soon(lambda: keeper.read_stops(kept.home).since_boot_ns is None)


def test_a_program_that_was_never_stopped_has_no_stops(kept: Kept) -> None:
    kept.start("/bin/sleep", "1000")
    assert keeper.read_stops(kept.home) == keeper.Stops()


def test_stops_add_up(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    outer_ns = inner_ns = 0
    for number in (1, 2):
        before_ns = kept.clock.boot_ns()
        stop(kept, handle.pid)
        stopped_ns = kept.clock.boot_ns()
        assert before_ns <= (keeper.read_stops(kept.home).since_boot_ns or 0) <= stopped_ns
        assert not soon(lambda: False, within_s=0.1)
        inner_ns += kept.clock.boot_ns() - stopped_ns
        go_on(kept, handle.pid)
        outer_ns += kept.clock.boot_ns() - before_ns
        seen = keeper.read_stops(kept.home)
        assert seen.count == number
        assert inner_ns <= seen.stopped_ns <= outer_ns
    assert status_of(handle.pid)["State"].startswith("S")


def test_a_stop_that_ends_with_the_program_is_closed(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    stop(kept, handle.pid)
    keeper.kill(kept.home)
    assert gone(handle.pid, handle.keeper_pid)
    seen = keeper.read_stops(kept.home)
    assert seen.count == 1
    assert seen.since_boot_ns is None
    assert seen.stopped_ns > 0


def test_a_stopped_program_still_ends_at_its_deadline(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000", lease_ns=2_000_000_000)
    stop(kept, handle.pid)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert (death.cause.value, death.signal) == ("deadline", 9)


def test_a_stop_is_noted_where_no_new_file_can_be_made(kept: Kept) -> None:
    """As on a full disk: its room was taken before the program started, and it is written in place."""
    handle = kept.start("/bin/sleep", "1000")
    file = kept.home.stops
    inode, size = file.stat().st_ino, file.stat().st_size
    stop(kept, handle.pid)
    go_on(kept, handle.pid)
    assert (file.stat().st_ino, file.stat().st_size) == (inode, size)
    assert [entry.name for entry in Path(kept.home.directory).glob("stops.*")] == []


def test_half_a_record_is_never_taken_for_one(kept: Kept) -> None:
    for half in ("begun=2 count=1 stopped_ns=5 since_boot_ns=0 done=1", "begun=2 count=1 stopp"):
        kept.home.stops.write_text(f"{half}\n")
        assert keeper.read_stops(kept.home) == keeper.Stops()
