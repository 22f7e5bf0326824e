"""What a cause sees of its case: forks and machines by number, and waits that end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from drills.matrix.scene import Machine, NotCaused, Scene
from drills.watch import Seen

FORKS = [
    {"fork_id": "fork_a", "index": 2, "state": "running"},
    {"fork_id": "fork_b", "index": 3, "state": "queued"},
]
ATTEMPT = {"attempt_id": "att_2", "number": 2, "intent": True, "closed_boot_ns": None}


class Stack:
    """A rig, its database and a watch in one: a run of two forks, the first on its second machine."""

    def __init__(self, command: str = "running", gone_ns: int | None = None) -> None:
        self.command = command
        self.gone_ns = gone_ns
        self.machines = Path("/machines")

    @property
    def postgres(self) -> Stack:
        return self

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        if "run_id FROM attempt" in statement:
            owners = {"att_2": "fork_a", "att_3": "fork_b", "att_9": "fork_of_another"}
            return [{"fork_id": owners[str(values[0])], "run_id": "run_1"}]
        if "FROM attempt" in statement:
            return [ATTEMPT] if values == ("fork_a",) else []
        if "FROM exec" in statement:
            return [{"state": self.command}]
        assert values == ("run_1", "case")
        return FORKS

    def seen(self) -> dict[str, Seen]:
        return {"att_2": Seen("att_2", 11, 21, 0, gone_ns=self.gone_ns)}


def test_a_machine_is_found_by_the_number_of_its_fork() -> None:
    found = scene().machine()
    assert found == Machine("att_2", 11, 21, Path("/machines/att_2"))
    assert scene().running() == found


def test_forks_are_numbered_within_the_case() -> None:
    assert scene().fork(1)["fork_id"] == "fork_b"
    assert scene().number_of("att_3") == 1
    assert scene().number_of("att_9") is None


def test_what_does_not_come_in_time_was_not_caused() -> None:
    with pytest.raises(NotCaused, match="a machine of the fork: not within 0 s"):
        scene().machine(number=1, within_s=0.0)
    with pytest.raises(NotCaused, match="a machine of the fork"):
        scene(Stack(gone_ns=1)).machine(within_s=0.0)
    with pytest.raises(NotCaused, match="command at work"):
        scene(Stack(command="queued")).running(within_s=0.0)


def test_what_does_not_come_before_the_run_is_over_was_not_caused() -> None:
    late = scene()
    late.over.set()
    with pytest.raises(NotCaused, match="the run was over"):
        late.until(lambda: None, "a miracle")


def test_false_is_nothing_and_zero_is_something() -> None:
    with pytest.raises(NotCaused):
        scene().until(lambda: False, "a yes", within_s=0.0)
    assert scene().until(lambda: 0, "a number") == 0


def test_a_machine_gets_the_signal_and_its_keeper_does_not() -> None:
    with subprocess.Popen(["sleep", "60"]) as machine:
        Machine("att", machine.pid, os.getpid(), Path()).signal(signal.SIGKILL)
        assert machine.wait(10) == -signal.SIGKILL


def scene(stack: Stack | None = None) -> Scene:
    made = cast(Any, stack or Stack())
    return Scene(made, made, "case", run_id="run_1")
