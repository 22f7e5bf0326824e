"""The supervisor with processes that are real and small: one that freezes, one that drains, one that keeps ending."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from infra.stack.parts import Part
from infra.stack.process import Process
from infra.stack.records import Places, make_directories, read_processes
from infra.stack.supervisor import LOOK_S, Kept, looked_at

LIMIT_S = 30.0
SUPERVISES = """
import sys
from pathlib import Path
from infra.logs import configure
from infra.stack import supervisor
from infra.stack.parts import Part
from infra.stack.records import Places
supervisor.LOOK_S, supervisor.FROZEN_LOOKS = 0.05, 6
configure("info")
directory = Path(sys.argv[1])
part = Part("worker", (sys.executable, "-c", sys.argv[2]), pulses=True)
supervisor.supervise((part,), {"PYTHONPATH": sys.argv[3]}, Places(directory, directory / "run"))
"""
# Pulses until it gets SIGUSR1, which makes it drain; SIGUSR2 then ends it. After a while it says that it was heard.
PULSES = """
import os, signal, sys, threading
from pathlib import Path
from infra.stack.pulse import ALIVE, DRAINING, beat
mouth, word, over = int(sys.argv[-1]), [ALIVE], threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: word.append(DRAINING))
signal.signal(signal.SIGUSR2, lambda *_: over.set())
for number in range(10**9):
    beat(mouth, word[-1])
    if number == 10:
        Path(f"heard-{os.getpid()}").touch()
    if over.wait(0.05):
        break
"""
ROOT = Path(__file__).parents[2]


def test_a_part_that_freezes_is_ended_and_followed(tmp_path: Path) -> None:
    with supervised(tmp_path, PULSES) as places:
        first = pulsing(places)
        first.signal(signal.SIGSTOP)
        until(lambda: started(places, "worker") != first, "another process")
        assert not first.alive()
    assert len(told(places, "part_frozen")) == 1


def test_a_part_that_drains_is_followed_at_once_and_ends_in_its_own_time(tmp_path: Path) -> None:
    with supervised(tmp_path, PULSES) as places:
        first = pulsing(places)
        first.signal(signal.SIGUSR1)
        until(lambda: started(places, "worker") != first, "its successor")
        second = started(places, "worker")
        leaving = f"worker-{first.pid}"
        assert read_processes(places)[leaving] == first
        assert first.alive()
        first.signal(signal.SIGUSR2)
        until(lambda: leaving not in read_processes(places), "the note that it left")
        assert read_processes(places) == {"worker": second}
        assert second.alive()
    assert [each["code"] for each in told(places, "part_left")] == [0]


def test_all_that_runs_is_stopped_also_what_drains(tmp_path: Path) -> None:
    with supervised(tmp_path, PULSES) as places:
        first = pulsing(places)
        first.signal(signal.SIGUSR1)
        until(lambda: started(places, "worker") != first, "its successor")
        second = started(places, "worker")
    assert not first.alive()
    assert not second.alive()


def test_a_part_that_never_pulsed_is_starting_and_not_frozen() -> None:
    starting = Kept(Part("worker", (), pulses=True))
    assert looked_at(starting, b"") == starting
    heard = looked_at(starting, b".")
    assert heard.quiet == 0
    assert looked_at(replace(heard, looked_s=heard.looked_s - LOOK_S), b"").quiet == 1


@contextmanager
def supervised(directory: Path, part: str) -> Iterator[Places]:
    places = Places(directory, directory / "run")
    make_directories(places)
    with (directory / "supervisor.log").open("wb") as out:
        supervisor = subprocess.Popen(
            (sys.executable, "-c", SUPERVISES, str(directory), part, str(ROOT)),
            cwd=ROOT,
            stdout=out,
            stderr=out,
        )
    try:
        yield places
    finally:
        supervisor.terminate()
        supervisor.wait(LIMIT_S)


def pulsing(places: Places) -> Process:
    """The worker, once its supervisor has heard it."""
    first = started(places, "worker")
    until((places.directory / f"heard-{first.pid}").exists, "pulses")
    return first


def started(places: Places, name: str) -> Process:
    until(lambda: name in read_processes(places), f"process {name}")
    return read_processes(places)[name]


def told(places: Places, event: str) -> list[dict[str, object]]:
    lines = (places.directory / "supervisor.log").read_text().splitlines()
    return [json.loads(line) for line in lines if f'"{event}"' in line]


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.02)
