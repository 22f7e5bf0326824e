"""Cases of placement: what becomes of a host on which forks break in a row."""

from __future__ import annotations

from collections.abc import Iterator

from drills.matrix.case import Case, breaks
from drills.matrix.scene import Scene

# A self-test is due ten seconds after a host was taken out, and restores a machine.
BACK_WITHIN_S = 45.0
MARKED = "touch /.promigence-marker-sibling"


def follow(scene: Scene) -> None:
    """See the host taken out, ask for one fork more, and see it pass once the host is back."""
    shut = scene.until(lambda: _quarantine(scene), "a quarantine")
    scene.note("reason", shut["reason"])
    client = scene.rig.client
    later = client.runs.start(
        "matrix", count=1, spend_cap=1.0, verify_each=False, exec={"sh": "exit 0"}
    )
    scene.note("waited_for", client.runs.get(later["run_id"])["progress"]["waiting_for"])
    report = client.runs.wait(later["run_id"], BACK_WITHIN_S)
    scene.note("later", report["totals"]["passed"])


def _quarantine(scene: Scene) -> dict[str, object] | None:
    (host,) = scene.rig.client.hosts.list()
    return None if host["quarantine"] is None else dict(host["quarantine"])


def _came_back(scene: Scene) -> Iterator[str]:
    if "contract_broken" not in str(scene.notes.get("reason")):
        yield f"the quarantine's reason is {scene.notes.get('reason')}"
    if scene.notes.get("later") != 1:
        yield f"the host did not come back: a fork that waited for it: {scene.notes.get('later')}"
    if _quarantine(scene) is not None:
        yield "the host is still in quarantine"


CASES = (
    Case(
        name="host-quarantined",
        shows="three forks in a row break on one host: it gets no more until its self-test passes",
        hook=MARKED,
        expect=(breaks("contract_broken", "contract"),) * 3,
        cause=follow,
        also=_came_back,
        alone=True,
        trusted=False,
        siblings_s=20,
        within_s=120,
    ),
)
