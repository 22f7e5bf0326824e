"""Snapshots: uploaded, built, refused, listed, deleted."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.fakes.machines import RESTORE_KEY
from tests.api.world import DEFINITION, HOLD, Door


def _built(door: Door, **change: Any) -> Any:
    """A build's page at its end."""
    body = {"definition": {**DEFINITION, **change}}
    build = door.post("/v1/snapshots", body, 202)
    return _followed(door, build["build_id"])


def _followed(door: Door, build_id: str) -> Any:
    after = 0
    while True:
        page = door.get(f"/v1/builds/{build_id}", wait_seconds=25, after=after)
        if page["state"] not in ("queued", "building", "verifying"):
            return page
        after = page["log"][-1]["n"]


def test_a_build_from_its_definition_to_its_snapshot(door: Door) -> None:
    build = door.post("/v1/snapshots", {"definition": DEFINITION}, 202)
    assert (build["state"], build["name"]) == ("queued", "task-suite")
    assert (build["snapshot"], build["error"]) == (None, None)
    page = _followed(door, build["build_id"])
    assert (page["state"], page["snapshot"]) == ("verified", "task-suite@1")
    assert page["cost_usd"] > 0
    snapshot = door.get("/v1/snapshots/task-suite")
    assert (snapshot["snapshot"], snapshot["latest"]) == ("task-suite@1", True)
    assert (snapshot["state"], snapshot["image"]) == ("verified", "debian-12")
    assert snapshot["shape"] == {"vcpus": 1, "memory_mib": 512, "disk_gib": 4}
    assert snapshot["checks"] != []
    assert snapshot["provenance"] != {}
    assert snapshot["created_at"].endswith("Z")


def test_a_log_is_followed_line_by_line(door: Door) -> None:
    build_id = _built(door, setup=["sim: 1s print one", "sim: 1s print two"])["build_id"]
    lines = door.get(f"/v1/builds/{build_id}")["log"]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    later = door.get(f"/v1/builds/{build_id}", after=2)["log"]
    assert later == lines[2:]


def test_a_snapshot_that_does_not_pass_is_refused_and_not_stored(door: Door) -> None:
    page = _built(door, test={"sh": "sim: 1s print broken exit 1", "timeout_seconds": 60})
    assert (page["state"], page["snapshot"]) == ("refused", None)
    error = page["error"]
    assert error["code"] == "snapshot_refused"
    assert "broken" in error["details"]["output"]
    assert error["details"]["check"]
    assert error["details"]["reproduce"]
    assert door.get("/v1/snapshots")["snapshots"] == []
    door.refused("GET", "/v1/snapshots/task-suite", 404, "unknown_snapshot")


def test_a_definition_that_cannot_be_built(door: Door) -> None:
    def refused(status: int, code: str, files: Any = (), **change: Any) -> Any:
        body = {"definition": {**DEFINITION, **change}, "files": list(files)}
        return door.refused("POST", "/v1/snapshots", status, code, json=body)

    assert "debian-12" in refused(400, "unknown_image", image="debian-13")["message"]
    refused(400, "bad_definition", shape={"vcpus": 1000})
    refused(400, "cap_too_small", spend_cap=0.000001)
    refused(403, "egress_not_allowed", build_egress=["mirror.internal:80"])
    refused(400, "unknown_field", warn=["serve"])
    missing = [{"guest_path": "/a", "sha256": "0" * 64}]
    assert "/a" in refused(400, "missing_file", files=missing)["message"]
    assert door.get("/v1/snapshots")["snapshots"] == []


def test_a_repeated_build_is_the_same_build(door: Door) -> None:
    body = {"definition": DEFINITION}
    first = door.post("/v1/snapshots", body, 202, key="once")
    assert door.post("/v1/snapshots", body, 202, key="once")["build_id"] == first["build_id"]
    other = {"definition": {**DEFINITION, "spend_cap": 0.4}}
    headers = {"Idempotency-Key": "once"}
    door.refused("POST", "/v1/snapshots", 409, "idempotency_mismatch", json=other, headers=headers)


def test_versions_are_listed_newest_first_and_deleted_one_by_one(door: Door) -> None:
    for name in ("beta", "alpha", "alpha"):
        assert _built(door, name=name)["state"] == "verified"
    rows = door.get("/v1/snapshots")["snapshots"]
    told = [(row["snapshot"], row["latest"]) for row in rows]
    assert told == [("alpha@2", True), ("alpha@1", False), ("beta@1", True)]
    page = door.get("/v1/snapshots", limit=2)
    rest = door.get("/v1/snapshots", limit=2, cursor=page["next_cursor"])
    assert [row["snapshot"] for row in page["snapshots"] + rest["snapshots"]] == [
        ref for ref, _ in told
    ]
    assert door.get("/v1/snapshots/alpha@1")["version"] == 1
    gone = door.client.delete("/v1/snapshots/alpha@1")
    assert (gone.status_code, gone.json()) == (200, {"deleted": ["alpha@1"]})
    assert door.client.delete("/v1/snapshots/alpha").json() == {"deleted": ["alpha@2"]}
    door.refused("DELETE", "/v1/snapshots/alpha", 404, "unknown_snapshot")


def test_a_snapshot_that_a_live_run_needs_stays(suite: Door) -> None:
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    for ref in ("task-suite", "task-suite@1"):
        error = suite.refused("DELETE", f"/v1/snapshots/{ref}", 409, "snapshot_in_use")
        assert error["details"]["runs"] == [run_id]
    suite.post(f"/v1/runs/{run_id}/cancel", None)
    assert suite.client.delete("/v1/snapshots/task-suite").status_code == 200


def test_a_snapshot_that_no_host_restores_is_stale(suite: Door, tmp_path: Path) -> None:
    def states(**query: Any) -> dict[str, str]:
        rows = suite.get("/v1/snapshots", **query)["snapshots"]
        return {row["snapshot"]: row["state"] for row in rows}

    assert suite.get("/v1/snapshots/task-suite")["restore"]["why"] is None
    assert states(stale=True) == {}
    newer = replace(RESTORE_KEY, qemu_build="fake-2")
    suite.stage.add_host("host0", tmp_path, 100, (newer,))
    assert _built(suite, name="later")["state"] == "verified"
    assert states(stale=True) == {"task-suite@1": "stale"}
    assert states() == {"later@1": "verified", "task-suite@1": "stale"}
    restore = suite.get("/v1/snapshots/task-suite")["restore"]
    assert (restore["needs"], restore["keys"]) == (str(RESTORE_KEY), [str(newer)])
    assert (restore["serving"], restore["able"]) == ([], [])
    suite.refused("GET", "/v1/snapshots?stale=perhaps", 400, "bad_request")
    suite.stage.clock.advance(60)
    assert suite.get("/v1/snapshots/later")["restore"]["why"] == "no host is up"


def test_a_bundle_that_no_able_host_can_get_at_is_told_apart(suite: Door) -> None:
    host = suite.stage.host
    hosts = suite.stage.ports.hosts
    hosts.register(host.machines.fingerprint(), 100, fetches=False)
    hosts.heartbeat("host0", (), ())
    (row,) = suite.get("/v1/snapshots", stale=True)["snapshots"]
    assert (row["state"], row["restore"]["serving"], row["restore"]["able"]) == (
        "unreachable",
        ["host0"],
        [],
    )
    assert row["restore"]["why"] == "its bundle is on none of the hosts that restore it: host0"
    assert suite.post("/v1/quotes", HOLD)["concurrency"]["slots"] == 0
    hosts.heartbeat("host0", (), host.bundles.known())
    assert suite.get("/v1/snapshots", stale=True)["snapshots"] == []


def test_a_rebuild_is_a_build_that_says_of_what(suite: Door) -> None:
    build = suite.post("/v1/snapshots/task-suite/rebuild", None, 202, key="again")
    assert (build["state"], build["rebuilds"]) == ("queued", "task-suite@1")
    again = suite.post("/v1/snapshots/task-suite/rebuild", None, 202, key="again")
    assert again["build_id"] == build["build_id"]
    page = _followed(suite, build["build_id"])
    assert (page["state"], page["snapshot"]) == ("verified", "task-suite@2")
    snapshot = suite.get("/v1/snapshots/task-suite")
    assert snapshot["provenance"]["rebuilt_from"]["snapshot"] == "task-suite@1"
    of_first = suite.post("/v1/snapshots/task-suite@1/rebuild", {"spend_cap": 0.4}, 202)
    assert of_first["rebuilds"] == "task-suite@1"


def test_a_rebuild_that_cannot_be(suite: Door) -> None:
    def refused(ref: str, status: int, code: str, body: Any = None) -> Any:
        return suite.refused("POST", f"/v1/snapshots/{ref}/rebuild", status, code, json=body)

    assert "task-suite" in refused("task-suit", 404, "unknown_snapshot")["message"]
    refused("task-suite@9", 404, "unknown_snapshot")
    refused("Task", 400, "bad_request")
    refused("task-suite", 400, "bad_request", {"spend_cap": -1})
    refused("task-suite", 400, "unknown_field", {"spend": 1})
    refused("task-suite", 400, "cap_too_small", {"spend_cap": 0.000001})
    suite.post("/v1/snapshots/task-suite/rebuild", None, 202, key="once")
    headers = {"Idempotency-Key": "once"}
    path = "/v1/snapshots/task-suite/rebuild"
    other = {"json": {"spend_cap": 0.4}, "headers": headers}
    suite.refused("POST", path, 409, "idempotency_mismatch", **other)
    suite.refused("POST", path, 404, "unknown_snapshot", headers=suite.as_stranger())


def test_a_rebuild_without_its_files_names_them(door: Door) -> None:
    tar = b"\0" * 10_240
    sha256 = hashlib.sha256(tar).hexdigest()
    door.client.put(f"/v1/files/{sha256}", content=tar)
    files = [{"guest_path": "/workspace/repo", "sha256": sha256}]
    build = door.post("/v1/snapshots", {"definition": DEFINITION, "files": files}, 202)
    assert _followed(door, build["build_id"])["state"] == "verified"
    door.stage.ports.blobs.delete([sha256])
    error = door.refused("POST", "/v1/snapshots/task-suite/rebuild", 409, "files_gone")
    assert error["details"]["files"] == files


def test_a_snapshot_is_kept_warm_on_so_many_hosts(suite: Door) -> None:
    path = "/v1/snapshots/task-suite/warm"
    assert suite.get("/v1/snapshots/task-suite")["warm"] is None
    answer = suite.client.put(path, json={"hosts": 2})
    assert answer.status_code == 200, answer.text
    warm = answer.json()["warm"]
    assert (warm["hosts"], warm["snapshot"], warm["follows_name"]) == (2, "task-suite@1", True)
    assert (warm["missing"], warm["met"]) == (1, False)
    suite.stage.tick()
    assert suite.get("/v1/snapshots/task-suite")["warm"]["warm_on"] == ["host0"]
    assert _built(suite)["snapshot"] == "task-suite@2"
    assert suite.get("/v1/snapshots/task-suite@1")["warm"] is None
    assert suite.get("/v1/snapshots/task-suite")["warm"]["snapshot"] == "task-suite@2"
    for _ in range(2):
        assert suite.client.delete(path).json()["warm"] is None


def test_one_version_is_kept_warm_beside_its_name(suite: Door) -> None:
    suite.client.put("/v1/snapshots/task-suite/warm", json={"hosts": 1})
    suite.client.put("/v1/snapshots/task-suite@1/warm", json={"hosts": 3})
    warm = suite.get("/v1/snapshots/task-suite")["warm"]
    assert (warm["hosts"], warm["follows_name"]) == (3, False)
    suite.client.delete("/v1/snapshots/task-suite@1/warm")
    assert suite.get("/v1/snapshots/task-suite")["warm"]["hosts"] == 1


@pytest.mark.parametrize("body", [{"hosts": 0}, {"hosts": -1}, {"hosts": 1001}, {"hosts": "2"}, {}])
def test_a_warm_target_is_a_number_of_hosts(still: Door, body: Any) -> None:
    still.refused("PUT", "/v1/snapshots/task-suite/warm", 400, "bad_request", json=body)


def test_only_what_is_verified_is_kept_warm(door: Door) -> None:
    for method, sent in (("PUT", {"json": {"hosts": 1}}), ("DELETE", {})):
        door.refused(method, "/v1/snapshots/task-suite/warm", 404, "unknown_snapshot", **sent)
    build = door.post("/v1/snapshots", {"definition": DEFINITION}, 202)
    body = {"json": {"hosts": 1}}
    door.refused("PUT", "/v1/snapshots/task-suite/warm", 404, "unknown_snapshot", **body)
    assert _followed(door, build["build_id"])["state"] == "verified"
    answer = door.client.put("/v1/snapshots/task-suite/warm", json={"hosts": 1})
    assert answer.status_code == 200


@pytest.mark.parametrize("ref", ["Task", "task@", "task@0", "task@x", "a" * 64])
def test_a_ref_is_a_name_and_perhaps_a_version(still: Door, ref: str) -> None:
    still.refused("GET", f"/v1/snapshots/{ref}", 400, "bad_request")


def test_a_build_uses_files_that_were_uploaded(door: Door) -> None:
    tar = b"\0" * 10_240
    sha256 = hashlib.sha256(tar).hexdigest()
    assert door.client.put(f"/v1/files/{sha256}", content=tar).status_code == 201
    files = [{"guest_path": "/workspace/repo", "sha256": sha256}]
    body = {"definition": DEFINITION, "files": files}
    build_id = door.post("/v1/snapshots", body, 202)["build_id"]
    assert _followed(door, build_id)["state"] == "verified"
