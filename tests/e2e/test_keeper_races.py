"""A deadline that is extended around the very moment at which the keeper fires; and a keeper whose disk gives out."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.domain.machine import DeathCause
from app.domain.money import NS_PER_SECOND
from infra.clock import HostClock
from infra.qemu import evidence, keeper
from infra.qemu.home import Home
from tests.e2e.kept import KEEPER, Kept, record_of
from tests.e2e.processes import gone

pytestmark = pytest.mark.machines

MS = 1_000_000
ROUNDS = 40
NOTICE_NS = 60 * MS
# On either side of the firing; a keeper wakes within a fraction of it.
AROUND_NS = 3 * MS
EXTENSION_NS = 100 * MS


@dataclass(frozen=True, slots=True)
class Raced:
    """One extension: when its writing began and was over, and what the keeper then recorded."""

    fires_ns: int
    began_ns: int
    written_ns: int
    old_ns: int
    acted_on_ns: int
    died_ns: int


def test_an_extension_races_the_kill_and_one_of_them_wins_whole(tmp_path: Path) -> None:
    """In the file before the timer fires, it counts; written after the kill, it brings nobody back; never a mixture."""
    chance = random.Random(3)
    raced = [race(tmp_path / f"m{number}", chance) for number in range(ROUNDS)]
    for one in raced:
        assert one.acted_on_ns in (one.old_ns, one.old_ns + EXTENSION_NS)
        assert one.died_ns >= one.acted_on_ns - keeper.KILL_MARGIN_NS
        if one.written_ns < one.fires_ns:
            assert one.acted_on_ns == one.old_ns + EXTENSION_NS, "it was there in time"
        if one.began_ns > one.died_ns:
            assert one.acted_on_ns == one.old_ns, "it came after the end"
    assert any(one.written_ns < one.fires_ns for one in raced)
    assert any(one.began_ns > one.fires_ns for one in raced)


def race(directory: Path, chance: random.Random) -> Raced:
    """One program, and an extension within microseconds of its end; half of the times the keeper is told too."""
    directory.mkdir()
    kept = Kept(Home(directory))
    try:
        handle = kept.start("/bin/sleep", "1000")
        old_ns = kept.clock.boot_ns() + keeper.KILL_MARGIN_NS + NOTICE_NS
        keeper.write_deadline(kept.home, old_ns)
        keeper.tell_deadline(kept.home)
        fires_ns = old_ns - keeper.KILL_MARGIN_NS
        wait_for(kept.clock, fires_ns + chance.randrange(-AROUND_NS, AROUND_NS))
        began_ns = kept.clock.boot_ns()
        keeper.write_deadline(kept.home, old_ns + EXTENSION_NS)
        written_ns = kept.clock.boot_ns()
        if chance.random() < 0.5:
            keeper.tell_deadline(kept.home)
        assert gone(handle.pid, handle.keeper_pid)
    finally:
        kept.close()
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert (death.cause, death.signal) == (DeathCause.DEADLINE, signal.SIGKILL)
    acted_on_ns = int(record_of(kept.home)["deadline_boot_ns"])
    assert death.late_ns == max(0, death.ended_boot_ns - acted_on_ns)
    return Raced(fires_ns, began_ns, written_ns, old_ns, acted_on_ns, death.ended_boot_ns)


def wait_for(clock: HostClock, boot_ns: int) -> None:
    """To some microseconds: the last millisecond is spun."""
    time.sleep(max(0, boot_ns - clock.boot_ns() - MS) / NS_PER_SECOND)
    while clock.boot_ns() < boot_ns:
        continue


@contextmanager
def mounted(folder: Path) -> Iterator[Kept]:
    """A machine's home on a file system of 64 KiB."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True, timeout=30
    )
    home = Home(folder / "m")
    home.directory.mkdir()
    kept = Kept(home)
    try:
        yield kept
    finally:
        kept.close()
        subprocess.run(["umount", str(folder)], check=True, timeout=30)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Kept]:
    """Needs root, as its user can fill or freeze it."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    with mounted(tmp_path / "tiny") as kept:
        yield kept


def test_on_a_full_disk_the_old_deadline_holds_and_the_end_is_still_recorded(tiny: Kept) -> None:
    handle = tiny.start("/bin/sleep", "1000", lease_ns=NS_PER_SECOND)
    lease_end_ns = keeper.read_deadline(tiny.home)
    fill(tiny.home.directory)
    with pytest.raises(OSError, match="No space left"):
        keeper.write_deadline(tiny.home, 10**18)
    keeper.tell_deadline(tiny.home)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(tiny.home)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert int(record_of(tiny.home)["deadline_boot_ns"]) == lease_end_ns


def test_nothing_runs_that_could_not_be_noted(tiny: Kept) -> None:
    """Room for the deadline alone: the keeper takes its room before it starts anything, or says that it has none."""
    keeper.write_deadline(tiny.home, 1)
    keeper.write_deadline(tiny.home, 1)
    fill(tiny.home.directory, but_bytes=4096)
    with pytest.raises(keeper.NotStartedError, match=r"cannot write (born|exit)\.new: No space"):
        tiny.start("/bin/sleep", "1000")
    assert not keeper.keeper_lives(tiny.home)
    assert not keeper.program_lives(tiny.home)


def test_a_program_whose_birth_cannot_be_written_is_ended(tiny: Kept) -> None:
    """Nobody could ever find it. A directory in the record's place stands for every way in which that can fail."""
    tiny.home.born.mkdir()
    said = start_by_hand(tiny.home)
    tiny.home.born.rmdir()
    assert said.startswith("cannot write born: ")
    assert not keeper.keeper_lives(tiny.home)
    assert not keeper.program_lives(tiny.home)


def test_on_a_disk_that_went_read_only_it_kills_in_time_and_the_end_is_seen_by_its_absence(
    tiny: Kept,
) -> None:
    handle = tiny.start("/bin/sleep", "1000", lease_ns=NS_PER_SECOND)
    lease_end_ns = keeper.read_deadline(tiny.home)
    assert lease_end_ns is not None
    freeze(tiny.home.directory)
    with pytest.raises(OSError, match="Read-only file system"):
        keeper.write_deadline(tiny.home, 10**18)
    keeper.tell_deadline(tiny.home)
    assert keeper.program_lives(tiny.home)
    assert gone(handle.pid, handle.keeper_pid)
    assert tiny.clock.boot_ns() >= lease_end_ns - keeper.KILL_MARGIN_NS
    assert keeper.read_exit(tiny.home) is None
    death = evidence.death(tiny.home, (), tiny.clock)
    assert death is not None, "its locks are free, so it is known to be gone, though not how"
    assert death.cause is DeathCause.KEEPER_LOST
    assert death.ended_boot_ns >= lease_end_ns - keeper.KILL_MARGIN_NS


def fill(directory: Path, but_bytes: int = 0) -> None:
    """Take all room on its file system, or all but some."""
    room = os.statvfs(directory)
    with (directory.parent / "filling").open("wb") as filling:
        filling.write(b"." * (room.f_bavail * room.f_bsize - but_bytes))


def freeze(directory: Path) -> None:
    """Make its file system read-only, as the kernel does after an error of the disk."""
    subprocess.run(["mount", "-o", "remount,ro", str(directory.parent)], check=True, timeout=30)


def start_by_hand(home: Home) -> str:
    """Run the keeper with `sleep`; it must fail, and what it said is returned."""
    keeper.write_deadline(home, 10**18)
    argv = (str(KEEPER), "-s", str(10**18), "-m", "0", "--", "/bin/sleep", "1000")
    done = subprocess.run(
        argv,
        cwd=home.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.decode()
