"""QEMU is upgraded under running work: snapshots go where their key is, and are made anew when it goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from app.domain.worker import Worker
from app.flow import report, snapshots
from infra.fakes.machines import RESTORE_KEY
from tests.flow.stage import PROJECT, Stage, definition, spec

OLD = RESTORE_KEY
NEW = replace(RESTORE_KEY, qemu_build="fake-2")


def pages(stage: Stage, *, stale: bool = False) -> dict[str, dict[str, Any]]:
    """By ref."""
    found = snapshots.every(stage.ports, PROJECT, stale=stale)
    return {str(page["snapshot"]): page for page in snapshots.pages(stage.ports, PROJECT, found)}


def hosts_of(page: dict[str, Any]) -> set[str]:
    return {fork["host"] for fork in page["forks"]}


def waits(stage: Stage, run_id: str) -> str:
    progress: Any = report.summary(stage.ports, PROJECT, run_id)["progress"]
    return str(progress["waiting_for"])


def drain(stage: Stage, host_id: str) -> None:
    """As `promigence-server host drain` does with the one worker process that runs there."""
    claim = stage.hosts[host_id].claim
    stage.ports.workers.begin(Worker(claim, host_id, "boot", pid=1, started_ticks=1, version="1"))
    stage.ports.workers.drain(host_id)


def gone(stage: Stage, host_id: str) -> None:
    """It has ended, and its host is heard of no more."""
    stage.ports.workers.end(stage.hosts[host_id].claim)
    del stage.hosts[host_id], stage.worlds[host_id]
    stage.run_for(20)


def test_a_snapshot_goes_where_its_key_is_and_a_template_where_it_can(
    suite: Stage, tmp_path: Path
) -> None:
    """The newer host has more room, so that the older one gets only what needs it."""
    suite.add_host("host1", tmp_path, 1000, (NEW,))
    first = suite.run_until_final(suite.start(spec(count=8)))
    assert (first["totals"]["passed"], hosts_of(first)) == (8, {"host0"})
    assert suite.build(definition(name="later"))["snapshot"] == "later@1"
    assert suite.ports.snapshots.get(PROJECT, "later").restore_key == NEW
    later = (replace(spec().groups[0], snapshot="later", count=8),)
    second = suite.run_until_final(suite.start(spec(groups=later)))
    assert (second["totals"]["passed"], hosts_of(second)) == (8, {"host1"})


def test_a_host_with_both_builds_restores_what_either_froze(suite: Stage, tmp_path: Path) -> None:
    suite.add_host("host0", tmp_path, 100, (NEW, OLD))
    assert suite.build(definition(name="later"))["snapshot"] == "later@1"
    assert suite.ports.snapshots.get(PROJECT, "later").restore_key == NEW
    both = replace(spec().groups[0], count=2), replace(spec().groups[0], snapshot="later", count=2)
    ended = suite.run_until_final(suite.start(spec(groups=both)))
    assert ended["totals"]["passed"] == 4
    assert pages(suite, stale=True) == {}


def test_a_host_that_was_upgraded_makes_its_snapshots_stale(suite: Stage, tmp_path: Path) -> None:
    suite.add_host("host0", tmp_path, 100, (NEW,))
    suite.tick()
    page = pages(suite, stale=True)["task-suite@1"]
    assert page["state"] == "stale"
    assert page["restore"] == {
        "needs": str(OLD),
        "keys": [str(NEW)],
        "serving": [],
        "able": [],
        "why": f"no host that is up restores {OLD}; there are: {NEW}",
    }
    run_id = suite.start(spec(count=1))
    suite.run_for(3)
    assert suite.report(run_id)["totals"]["pending"] == 1
    assert waits(suite, run_id) == (
        f"no host that is up restores {OLD}; a rebuild of the snapshot is one way out"
    )


def test_a_run_says_that_it_waits_for_a_bundle_which_nobody_can_get_at(suite: Stage) -> None:
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 100, fetches=False)
    suite.ports.hosts.heartbeat("host0", (), ())
    run_id = suite.start(spec(count=2))
    assert waits(suite, run_id) == (
        "2 forks wait: no host can take it "
        "(host0: the snapshot is not in its own folder, and it fetches none)"
    )


def test_the_whole_way_of_an_upgrade(suite: Stage, tmp_path: Path) -> None:
    """A newer host beside the old one; the old one drains and goes; what it left is made anew on the newer one."""
    suite.add_host("host1", tmp_path, 100, (NEW,))
    running = suite.start(spec("30s exit 0", count=4))
    suite.run_for(3)
    drain(suite, "host0")
    warned = pages(suite)["task-suite@1"]
    assert (warned["state"], warned["restore"]["able"]) == ("verified", ["host0"])
    assert warned["restore"]["why"] == "every host that can restore it is leaving: host0"
    ended = suite.run_until_final(running)
    assert (ended["totals"]["passed"], hosts_of(ended)) == (4, {"host0"})
    gone(suite, "host0")
    assert [page["state"] for page in pages(suite, stale=True).values()] == ["stale"]
    assert suite.rebuild("task-suite")["snapshot"] == "task-suite@2"
    assert set(pages(suite, stale=True)) == {"task-suite@1"}
    newest = suite.ports.snapshots.get(PROJECT, "task-suite")
    assert newest.provenance["rebuilt_from"] == {
        "snapshot": "task-suite@1",
        "differs": {"restore_key": {"was": str(OLD), "is": str(NEW)}},
    }
    after = suite.run_until_final(suite.start(spec(count=4)))
    assert (after["totals"]["passed"], hosts_of(after)) == (4, {"host1"})
