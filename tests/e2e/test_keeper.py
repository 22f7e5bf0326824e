"""The keeper with plain programs in the machine's place: deadlines, exit records, and who dies with whom."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.domain.machine import DeathCause
from app.errors import Conflict
from infra.qemu import keeper
from infra.qemu.fingerprint import FIRST_UID
from infra.qemu.home import listen, write_atomically
from tests.e2e.kept import AGES_NS, KEEPER, PRODUCTS, SECOND_NS, Kept, record_of
from tests.e2e.processes import descriptors, gone, soon, status_of

pytestmark = pytest.mark.machines


def test_kills_at_the_deadline_so_that_the_process_is_gone_when_the_lease_ends(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000", lease_ns=SECOND_NS)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert (death.cause, death.signal, death.exit_code) == (DeathCause.DEADLINE, 9, None)
    lease_end_ns = int(kept.home.deadline.read_text())
    assert death.late_ns == max(0, death.ended_boot_ns - lease_end_ns)
    assert death.ended_boot_ns >= lease_end_ns - keeper.KILL_MARGIN_NS


def test_a_deadline_that_moved_away_is_read_when_the_old_one_comes(kept: Kept) -> None:
    """No signal tells the keeper here: a worker may have died right after its write."""
    handle = kept.start("/bin/sleep", "1000", lease_ns=SECOND_NS)
    old_ns = int(kept.home.deadline.read_text())
    keeper.write_deadline(kept.home, old_ns + SECOND_NS)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert death.ended_boot_ns > old_ns


def test_a_deadline_that_moved_nearer_is_obeyed_when_told(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    keeper.write_deadline(kept.home, kept.clock.boot_ns())
    keeper.tell_deadline(kept.home)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert death.late_ns > 0


@pytest.mark.parametrize("nonsense", ["", "soon\n", "-5\n", "0\n", "5", "5 hours\n"])
def test_an_unreadable_deadline_leaves_the_old_one(kept: Kept, nonsense: str) -> None:
    handle = kept.start("/bin/sleep", "1000", lease_ns=SECOND_NS // 2)
    old_ns = keeper.read_deadline(kept.home)
    write_atomically(kept.home.deadline, nonsense)
    keeper.tell_deadline(kept.home)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert int(record_of(kept.home)["deadline_boot_ns"]) == old_ns


def test_kill_when_asked_is_recorded_and_waits_for_both(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    keeper.kill(kept.home)
    assert not keeper.keeper_lives(kept.home)
    assert not keeper.program_lives(kept.home)
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert (death.cause, death.signal) == (DeathCause.ASKED, 9)
    keeper.kill(kept.home)  # twice is safe


@pytest.mark.parametrize(
    ("script", "cause", "exit_code", "number"),
    [
        ("exit 3", DeathCause.EXIT, 3, None),
        ("kill -SEGV $$", DeathCause.SIGNAL, None, 11),
        ("kill -KILL $$", DeathCause.SIGNAL, None, 9),
    ],
)
def test_an_end_of_the_program_s_own_is_told_apart(
    kept: Kept, script: str, cause: DeathCause, exit_code: int | None, number: int | None
) -> None:
    handle = kept.start("/bin/sh", "-c", script)
    assert gone(handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert (death.cause, death.exit_code, death.signal) == (cause, exit_code, number)


def test_who_asks_while_the_program_is_ending_is_not_its_killer(kept: Kept) -> None:
    """A worker sees a machine's sockets close, and asks, before the keeper can have seen its end."""
    handle = kept.start("/bin/sleep", "1000")
    os.kill(handle.keeper_pid, signal.SIGSTOP)
    os.kill(handle.pid, signal.SIGKILL)
    assert soon(lambda: status_of(handle.pid)["State"].startswith("Z"))
    keeper.ask_to_kill(kept.home)
    os.kill(handle.keeper_pid, signal.SIGCONT)
    assert gone(handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert (death.cause, death.signal) == (DeathCause.SIGNAL, 9)


def test_nothing_starts_after_the_start_window(kept: Kept) -> None:
    with pytest.raises(keeper.NotStartedError, match="time to start it passed"):
        kept.start("/bin/sleep", "1000", start_window_ns=-1)
    assert keeper.read_born(kept.home) is None
    assert not keeper.program_lives(kept.home)


def test_nothing_starts_whose_lease_is_over(kept: Kept) -> None:
    """So a kill that finds a keeper still on the way puts the deadline into the past."""
    with pytest.raises(keeper.NotStartedError, match="its lease is over"):
        kept.start("/bin/sleep", "1000", lease_ns=0)
    assert keeper.read_born(kept.home) is None
    keeper.kill(kept.home)
    assert keeper.read_deadline(kept.home) == 1


def test_a_keeper_that_comes_after_its_machine_was_forgotten_starts_nothing(kept: Kept) -> None:
    with ThreadPoolExecutor(1) as pool:
        with keeper.buried(kept.home):
            late = pool.submit(kept.start, "/bin/sleep", "1000")
            assert soon(lambda: is_waited_for(kept.home.directory / "keeper"))
            shutil.rmtree(kept.home.directory)
        with pytest.raises(keeper.NotStartedError, match="forgotten before it started"):
            late.result(60)
    assert not kept.home.directory.exists()


def test_a_living_program_is_not_buried(kept: Kept) -> None:
    kept.start("/bin/sleep", "1000")
    with pytest.raises(Conflict), keeper.buried(kept.home):
        raise AssertionError("its files would be removed")


def test_a_program_that_cannot_run_is_told_in_words(kept: Kept) -> None:
    with pytest.raises(keeper.NotStartedError, match="cannot run /no/such/program"):
        kept.start("/no/such/program")
    assert not keeper.program_lives(kept.home)


def test_the_program_dies_with_its_keeper_at_once(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    os.kill(handle.keeper_pid, signal.SIGKILL)
    assert gone(handle.keeper_pid, handle.pid)
    assert not keeper.program_lives(kept.home)
    assert keeper.read_exit(kept.home) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a program a user of its own")
def test_the_program_dies_with_its_keeper_also_as_another_user(kept: Kept) -> None:
    """The change of user clears the parent-death signal: it must be set after it."""
    handle = kept.start("/bin/sleep", "1000", first_uid=FIRST_UID)
    os.kill(handle.keeper_pid, signal.SIGKILL)
    assert gone(handle.keeper_pid, handle.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a program a user of its own")
def test_the_program_has_a_user_of_its_own_and_no_way_back(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000", first_uid=FIRST_UID)
    uid = str(FIRST_UID + handle.keeper_pid)
    status = status_of(handle.pid)
    assert status["Uid"].split() == [uid] * 4
    assert status["Gid"].split() == [uid] * 4
    assert status["Groups"].split() == []
    assert status["NoNewPrivs"] == "1"


def test_program_and_keeper_have_a_session_each(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    assert os.getsid(handle.pid) == handle.pid
    assert os.getsid(handle.keeper_pid) == handle.keeper_pid


def test_the_program_sees_nothing_of_our_environment(kept: Kept) -> None:
    handle = kept.start("/bin/sleep", "1000")
    assert Path(f"/proc/{handle.pid}/environ").read_bytes() == b""


def test_the_keeper_outlives_the_worker_that_started_it(kept: Kept) -> None:
    worker = textwrap.dedent(
        f"""
        from pathlib import Path
        import os
        from app.domain.machine import Deadline
        from infra.qemu import keeper
        from infra.qemu.home import Home
        out, into = os.pipe()
        program = keeper.Program(("/bin/sleep", "1000"), (into,), out)
        deadline = Deadline({kept.clock.boot_ns() + AGES_NS}, {kept.clock.boot_ns() + AGES_NS})
        keeper.start(Path({str(KEEPER)!r}), Home(Path({str(kept.home.directory)!r})), program, deadline)
        os.kill(os.getpid(), 9)
        """
    )
    root = PRODUCTS.parent
    done = subprocess.run([sys.executable, "-c", worker], cwd=root, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    handle = keeper.read_born(kept.home)
    assert handle is not None
    assert keeper.keeper_lives(kept.home)
    assert keeper.program_lives(kept.home)
    assert os.getsid(handle.keeper_pid) == handle.keeper_pid


def test_the_console_is_kept_and_bounded(kept: Kept) -> None:
    """400 KiB go through; the end of it is there, and no more than 128 KiB of files."""
    script = (
        "i=0; while [ $i -lt 6400 ]; do printf '%063d\\n' $i; i=$((i+1)); done >/proc/self/fd/$0"
    )
    handle = kept.start("/bin/sh", "-c", script, str(kept.console_in))
    assert gone(handle.keeper_pid)
    files = [kept.home.directory / name for name in ("console.old", "console")]
    text = b"".join(file.read_bytes() for file in files if file.exists())
    assert text.endswith(b"%063d\n" % 6399)
    assert 64 * 1024 <= len(text) <= 2 * 64 * 1024 + 2 * 4096


def test_what_the_program_inherits_ends_with_it(kept: Kept) -> None:
    """The keeper holds no copy: a socket that listens means a machine that lives."""
    path = kept.home.control
    with listen(path) as server:
        handle = kept.start("/bin/sleep", "1000", fds=(server.fileno(),))
        inode = str(Path(f"/proc/self/fd/{server.fileno()}").readlink())
    assert inode in descriptors(handle.pid)
    assert inode not in descriptors(handle.keeper_pid)


def is_waited_for(lock: Path) -> bool:
    """Whether a process waits for this file's lock."""
    waiting = f":{lock.stat().st_ino} "
    return any(
        "->" in line and waiting in line for line in Path("/proc/locks").read_text().splitlines()
    )


# Which memory gets huge pages: less than a guest's, and none that is larger.
ADVISED = """
    import mmap, sys
    def advised(mib):
        try:
            mmap.mmap(-1, mib << 20).madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            return False
        return True
    sys.exit([advised(mib) for mib in (32, 64, 128, 4096, 5000)] != [True] + 4 * [False])
"""


def test_no_touch_of_a_guests_memory_reads_a_huge_page_of_its_file(kept: Kept) -> None:
    handle = kept.start(sys.executable, "-c", textwrap.dedent(ADVISED))
    assert gone(handle.pid, handle.keeper_pid)
    death = keeper.read_exit(kept.home)
    assert death is not None
    assert death.exit_code == 0
