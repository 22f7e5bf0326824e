"""A planned upgrade under work: the worker drains, the next one begins beside it, and nobody notices."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Any

from demo.stack import SERVER
from drills.matrix.case import Case, Terms, fails
from drills.matrix.scene import Scene
from drills.matrix.workers import until_siblings

ASKED = 120
# A request that fails once ends the command with 9, and a fault of its way out makes its 4 an environment failure: so
# the one says that all were answered, the other that nothing was even noted.
COMMAND = (
    f"n=0; while [ $n -lt {ASKED} ]; do wget -q -O /dev/null http://$POLICY/ || exit 9; n=$((n+1)); sleep 0.2; done;"
    " echo asked $n; exit 4"
)
_CLAIMS = "SELECT DISTINCT claim FROM attempt WHERE run_id = %s"
_CLAIM_OF = "SELECT claim FROM worker WHERE pid = %s"


def upgrade(scene: Scene) -> None:
    """Drain, with a held fork on the old worker; then a step and a held fork on the new one."""
    client, old = scene.rig.client, scene.part("worker")
    kept = _held(scene)
    scene.running()
    until_siblings(scene, "running")
    scene.note("before", _says(scene, kept, "before"))
    drain = (str(SERVER), "host", "drain", "--wait", "--json")
    with subprocess.Popen(
        (*drain, "--dir", str(scene.rig.places.directory)), stdout=subprocess.PIPE, text=True
    ) as draining:
        scene.until(lambda: scene.part("worker") != old, "a worker beside it")
        step = client.runs.start(
            "matrix", count=2, spend_cap=1.0, exec={"sh": "exit 0"}, verify_each=False
        )
        scene.note("step", client.runs.wait(step["run_id"], timeout=120)["totals"]["passed"])
        scene.note("new", _claims(scene, step["run_id"]) == _claim_of(scene))
        added = _held(scene)
        scene.note("after", _says(scene, kept, "after") + _says(scene, added, "new"))
        scene.note("old still there", draining.poll() is None)
        for fork_id in (kept, added):
            client.forks.release(fork_id, passed=True)
        told, _ = draining.communicate(timeout=120)
    scene.note("drained", (draining.returncode, json.loads(told.splitlines()[-1])["draining"]))


def went_well(scene: Scene) -> Iterable[str]:
    """What was seen of the two workers."""
    expected: dict[str, Any] = {
        "before": "before\n",
        "step": 2,
        "new": True,
        "after": "after\nnew\n",
        "old still there": True,
        "drained": (0, []),
    }
    for name, value in expected.items():
        if scene.notes.get(name) != value:
            yield f"{name}: {scene.notes.get(name)!r}"


def _held(scene: Scene) -> str:
    """A fork of a run of its own, ready for commands."""
    run = scene.rig.client.runs.start(
        "matrix", count=1, spend_cap=1.0, hold_seconds=300, verify_each=False
    )
    return scene.until(lambda: _ready(scene, run["run_id"]), "a held fork")


def _ready(scene: Scene, run_id: str) -> str | None:
    (fork,) = scene.rig.client.runs.forks(run_id)
    return fork["fork_id"] if fork["state"] == "ready" else None


def _says(scene: Scene, fork_id: str, word: str) -> str:
    return str(scene.rig.client.forks.exec(fork_id, {"sh": f"echo {word}"})["stdout"])


def _claims(scene: Scene, run_id: str) -> list[str]:
    return [row["claim"] for row in scene.rows(_CLAIMS, run_id)]


def _claim_of(scene: Scene) -> list[str]:
    return [row["claim"] for row in scene.rows(_CLAIM_OF, scene.part("worker"))]


CASES = (
    Case(
        "worker-upgraded",
        "the worker drains beside the next, under a command that keeps asking its policy; not one request fails",
        fails(4, output=f"asked {ASKED}"),
        COMMAND,
        terms=Terms(egress=True, timeout_s=200),
        cause=upgrade,
        also=went_well,
        alone=True,
        siblings_s=10,
        within_s=200,
    ),
)
