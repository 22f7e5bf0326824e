"""The fault matrix can fail: on a real stack it sees a wrong name, a fault that never came, harm to others, a leak."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing

import pytest
from rich.console import Console

from drills.matrix import output
from drills.matrix.__main__ import play_all
from drills.matrix.batch import SIBLING
from drills.matrix.case import Case, breaks, fails, passes
from drills.matrix.scene import Scene

pytestmark = pytest.mark.machines

# What the stack itself leaves for a moment is gone by then; what is planted is not.
SETTLED_WITHIN_S = 15.0
_SIBLING = (
    "SELECT attempt_id FROM attempt JOIN fork USING (attempt_id) WHERE fork.run_id = %s"
    " AND fork.key = %s AND fork.state = 'running'"
)


def harm_a_sibling(scene: Scene) -> None:
    """Kill the machine of one that has nothing to do with it."""
    (name, *_) = scene.until(lambda: _at_work(scene) or None, "a sibling at work")
    os.kill(scene.watch.seen()[name].pid, signal.SIGKILL)


def _at_work(scene: Scene) -> list[str]:
    return [row["attempt_id"] for row in scene.rows(_SIBLING, scene.run_id, SIBLING)]


def leave_a_socket(scene: Scene) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(scene.rig.places.run_dir / "left.sock"))


PLANTED = (
    Case(
        name="called-a-panic",
        shows="a power-off that is said to be a panic",
        command="poweroff -f",
        expect=breaks("guest_panicked", "exec"),
    ),
    Case(
        name="never-struck",
        shows="a fault that does not come about",
        expect=passes(),
        cause=lambda scene: scene.until(lambda: None, "what never comes"),
    ),
    Case(
        name="harms-a-sibling",
        shows="a case that strikes its sibling",
        expect=passes(),
        cause=harm_a_sibling,
    ),
    Case(
        name="leaves-something",
        shows="a case that leaves something behind",
        command="exit 4",
        expect=fails(4),
        cause=leave_a_socket,
        siblings_s=4.0,
    ),
)


def test_each_way_to_fail_is_counted_and_told() -> None:
    played, leaks = play_all(PLANTED, Console(quiet=True), SETTLED_WITHIN_S)
    summary = output.summed_up(played, leaks, 0.0)
    counted = {what: summary[what] for what in ("cases", "misnamed", "uncaused", "harmed", "leaks")}
    assert counted == {"cases": 4, "misnamed": 1, "uncaused": 1, "harmed": 1, "leaks": 1}
    assert not output.held(summary)
    wrong = summary["wrong"]
    assert "it is failed instead of env_failed" in wrong["called-a-panic"][0]
    assert wrong["never-struck"][0].startswith("not caused: what never comes")
    assert leaks == ["left.sock in the runtime directory"]
