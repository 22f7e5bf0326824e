"""That the demo stops its stack however it is left, on a stand-in for `promigence-server` that notes its calls."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from demo import stack

# `up` writes what the real one writes; a file `broken` beside it makes it fail after that.
STAND_IN = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case $1 in
up)
  mkdir -p "$3/logs"
  echo "PROMIGENCE_API_KEY='key'" > "$3/env"
  echo "PROMIGENCE_BASE_URL=http://127.0.0.1:9" >> "$3/env"
  echo "said" > "$3/logs/api.log"
  ! [ -e "$here/broken" ] ;;
machines) echo "[{\\"fork_id\\": \\"fork-1\\", \\"pid\\": $(cat "$here/pid")}]" ;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    server = tmp_path / "promigence-server"
    server.write_text(STAND_IN)
    server.chmod(0o755)
    monkeypatch.setattr(stack, "SERVER", server)
    return tmp_path / "calls"


def test_a_stack_is_started_used_and_removed(calls: Path, tmp_path: Path) -> None:
    directory = tmp_path / "stack"

    with stack.running(directory, "127.0.0.1:1") as running:
        assert "http://127.0.0.1:9" in repr(running.client)
        assert directory.exists()

    assert verbs(calls) == ["up", "down"]
    assert "--egress-allow 127.0.0.1:1" in calls.read_text()
    assert not directory.exists()


def test_an_error_stops_the_stack_and_keeps_its_logs(calls: Path, tmp_path: Path) -> None:
    directory = tmp_path / "stack"

    with pytest.raises(ZeroDivisionError), stack.running(directory, "127.0.0.1:1"):
        raise ZeroDivisionError

    assert verbs(calls) == ["up", "down"]
    assert not directory.exists()
    assert (stack.kept_logs(directory) / "api.log").read_text() == "said\n"


def test_an_interruption_stops_the_stack_and_leaves_nothing(calls: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())

    with pytest.raises(KeyboardInterrupt), stack.running(tmp_path / "stack", "127.0.0.1:1"):
        raise KeyboardInterrupt

    assert verbs(calls) == ["up", "down"]
    assert set(tmp_path.iterdir()) == before | {calls}


def test_a_stack_that_does_not_come_up_is_taken_down(calls: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()

    with (
        pytest.raises(subprocess.CalledProcessError),
        stack.running(tmp_path / "stack", "127.0.0.1:1"),
    ):
        pytest.fail("the block ran without a stack")

    assert verbs(calls) == ["up", "down"]
    assert not (tmp_path / "stack").exists()


def test_what_a_killed_demo_left_is_stopped_first(calls: Path, tmp_path: Path) -> None:
    (tmp_path / "stack").mkdir()

    with stack.running(tmp_path / "stack", "127.0.0.1:1"):
        pass

    assert verbs(calls) == ["down", "up", "down"]


def test_a_second_demo_leaves_the_first_ones_stack_alone(calls: Path, tmp_path: Path) -> None:
    directory = tmp_path / "stack"

    with stack.running(directory):
        with pytest.raises(BlockingIOError), stack.running(directory):
            pytest.fail("two demos had one stack")
        assert verbs(calls) == ["up"]


def test_the_clean_up_is_not_interrupted() -> None:
    before = [signal.getsignal(number) for number in stack.ENDING]

    with stack.uninterrupted():
        for number in stack.ENDING:
            signal.raise_signal(number)

    assert [signal.getsignal(number) for number in stack.ENDING] == before


def test_exactly_the_machine_of_a_fork_is_killed(calls: Path, tmp_path: Path) -> None:
    with stack.running(tmp_path / "stack", "127.0.0.1:1") as running:
        machine = subprocess.Popen(["sleep", "600"])
        (tmp_path / "pid").write_text(str(machine.pid))
        try:
            with pytest.raises(LookupError, match="fork-2"):
                running.kill_machine_of("fork-2")
            assert machine.poll() is None

            assert running.kill_machine_of("fork-1") == machine.pid
            assert machine.wait(30) == -signal.SIGKILL
        finally:
            machine.kill()
            machine.wait()


def verbs(calls: Path) -> list[str]:
    return [line.split()[0] for line in calls.read_text().splitlines() if "machines" not in line]
