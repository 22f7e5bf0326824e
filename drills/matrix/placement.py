"""Cases of a host as a whole: one on which forks break in a row, one that is full, taken down, or cannot write."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from drills.matrix.case import Case, Terms, breaks, there
from drills.matrix.scene import Scene
from workers.command import ports_of

# A self-test is due ten seconds after a host was taken out, and restores a machine.
BACK_WITHIN_S = 45.0
MOUNT_S = 30.0
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


@contextmanager
def shut(scene: Scene) -> Iterator[None]:
    """The operator takes the only host out of placement for as long as the run lasts."""
    (row,) = scene.rows("SELECT host_id FROM host")
    with ports_of(scene.rig.places.directory) as ports:
        ports.hosts.quarantine(row["host_id"], "the fault matrix wants it empty")
        try:
            yield
        finally:
            ports.hosts.release(row["host_id"])


def take_down(scene: Scene) -> None:
    """Stop the whole stack on purpose while a command runs, and start it again."""
    scene.running()
    scene.rig.restart()


@contextmanager
def read_only(scene: Scene) -> Iterator[None]:
    """No machine's directory can be made on the host for as long as the run lasts."""
    root = str(scene.rig.machines)
    mount = ("mount", "-t", "tmpfs", "-o", "ro,mode=700", "tmpfs", root)
    subprocess.run(mount, check=True, timeout=MOUNT_S)
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", root), check=True, timeout=MOUNT_S)


CASES = (
    Case(
        name="no-capacity",
        shows="no host takes forks for longer than the run lets its forks wait",
        expect=breaks("no_capacity", "place", there("hosts"), attempts=0, failed=(), cost=None),
        terms=Terms(queue_timeout_s=2.0),
        around=shut,
        alone=True,
        released=False,
        siblings=False,
    ),
    Case(
        name="restore-fails",
        shows="the host cannot write what a machine needs before it starts",
        expect=breaks("restore_failed", "restore", task_may_have_caused=False, retryable=True),
        around=read_only,
        alone=True,
        siblings=False,
    ),
    Case(
        name="host-taken-down",
        shows="the host is taken down while a command runs, and started again",
        command="sleep 60",
        expect=breaks("host_lost", "collect", task_may_have_caused=False),
        cause=take_down,
        alone=True,
        siblings=False,
    ),
    Case(
        name="host-quarantined",
        shows="three forks in a row break on one host: it gets no more until its self-test passes",
        hook=MARKED,
        expect=(breaks("contract_broken", "contract"),) * 3,
        cause=follow,
        also=_came_back,
        alone=True,
        released=False,
        siblings_s=20,
        within_s=120,
    ),
)
