"""The drill's eyes on processes that are no machines: what ended when, and which deadlines there were."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drills.cap.judge import LATE_NS, late_kills, orphans
from drills.watch import POLL_MS, Seen, Watch, boot_ns, living, watching

SECOND_NS = 1_000_000_000
LOOKS = 200


def test_a_process_that_outlives_its_deadline_is_seen_to(tmp_path: Path) -> None:
    with watching(tmp_path) as watch, machine(tmp_path / "att_1", boot_ns() + SECOND_NS // 5):
        seen = until(watch, lambda each: each.late_ns(boot_ns()) > LATE_NS)
        assert late_kills([seen], boot_ns()) != []


def test_the_end_of_a_process_is_told_by_the_kernel(tmp_path: Path) -> None:
    with watching(tmp_path) as watch, machine(tmp_path / "att_1", boot_ns() + 60 * SECOND_NS) as it:
        alive = until(watch, lambda each: each.gone_ns is None)
        assert living(watch.seen()) == [alive]
        before_ns = boot_ns()
        it.kill()
        gone = until(watch, lambda each: each.gone_ns is not None)
        assert before_ns <= (gone.gone_ns or 0) <= boot_ns()
        assert late_kills([gone], boot_ns()) == []
        assert living(watch.seen()) == []


def test_the_latest_deadline_counts_and_none_is_taken_back(tmp_path: Path) -> None:
    first_ns = boot_ns() + 60 * SECOND_NS
    with watching(tmp_path) as watch, machine(tmp_path / "att_1", first_ns):
        until(watch, lambda each: each.deadline_ns == first_ns)
        write_deadline(tmp_path / "att_1", first_ns + SECOND_NS)
        until(watch, lambda each: each.deadline_ns == first_ns + SECOND_NS)
        write_deadline(tmp_path / "att_1", 1)
        (tmp_path / "att_1" / "exit").write_text("cause=deadline exit_code=-1\n")
        os.kill(watch.seen()["att_1"].pid, signal.SIGKILL)
        ended = until(watch, lambda each: each.cause is not None)
        assert (ended.deadline_ns, ended.cause) == (first_ns + SECOND_NS, "deadline")


def test_a_machine_without_its_keeper_is_seen(tmp_path: Path) -> None:
    home = tmp_path / "att_1"
    home.mkdir()
    keeper = subprocess.Popen(["sleep", "60"], cwd=home)
    with watching(tmp_path) as watch, machine(home, boot_ns() + 60 * SECOND_NS, keeper.pid):
        until(watch, lambda each: each.keeper_gone_ns is None)
        keeper.kill()
        keeper.wait()
        seen = until(watch, lambda each: each.keeper_gone_ns is not None)
        assert seen.gone_ns is None
        assert orphans([seen], boot_ns() + 2 * SECOND_NS) != []


def test_a_number_that_is_another_process_by_now_is_not_watched(tmp_path: Path) -> None:
    home = tmp_path / "att_1"
    home.mkdir()
    write_deadline(home, boot_ns() + 60 * SECOND_NS)
    write(home / "born", f"keeper_pid={os.getpid()} pid={os.getpid()} started_boot_ns=1\n")
    with watching(tmp_path) as watch:
        assert until(watch, lambda each: each.gone_ns is not None).keeper_gone_ns is not None


@contextmanager
def machine(
    home: Path, deadline_ns: int, keeper_pid: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the files of a machine; where no keeper is given, it is its own."""
    home.mkdir(exist_ok=True)
    process = subprocess.Popen(["sleep", "60"], cwd=home)
    write_deadline(home, deadline_ns)
    write(home / "born", f"keeper_pid={keeper_pid or process.pid} pid={process.pid}\n")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(watch: Watch, holds: Callable[[Seen], bool]) -> Seen:
    """The one machine, once it is as it should be; looks as often as the watch does."""
    pause = threading.Event()
    for _ in range(LOOKS):
        for seen in watch.seen().values():
            if holds(seen):
                return seen
        pause.wait(POLL_MS / 1000)
    raise AssertionError(f"not seen: {watch.seen()}")


def write_deadline(home: Path, boot: int) -> None:
    write(home / "deadline", f"{boot}\n")


def write(path: Path, text: str) -> None:
    """Whole or not at all, as keeper and worker write."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)
