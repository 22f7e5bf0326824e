"""Snapshots: uploaded, built, refused, listed, deleted."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

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


def test_a_snapshot_that_no_host_restores_is_stale(suite: Door) -> None:
    suite.stage.clock.advance(60)
    assert suite.get("/v1/snapshots/task-suite")["state"] == "stale"


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
