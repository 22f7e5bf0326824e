"""Who calls: no key, no answer; another project's key, no such thing. Held against every route of the document."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.api.middleware import OPEN_PATHS
from app.api.openapi import document
from tests.api.world import DEFINITION, HOLD, STEP, Door

SHA256 = "0" * 64
OPERATIONS = [
    (method.upper(), path)
    for path, operations in sorted(document()["paths"].items())
    for method in operations
]
CLOSED = [operation for operation in OPERATIONS if operation[1] not in OPEN_PATHS]
# These answer from the caller's own project or from what all projects share: they name nothing of another's.
NAMELESS = {
    ("GET", "/v1/audit"),
    ("GET", "/v1/keys"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/snapshots"),
    ("GET", "/v1/hosts"),
    ("GET", "/v1/project"),
    ("GET", "/v1/usage"),
    ("POST", "/v1/keys"),
    ("POST", "/v1/snapshots"),
    ("HEAD", "/v1/files/{sha256}"),
    ("PUT", "/v1/files/{sha256}"),
}
BODIES: dict[str, Any] = {
    "/v1/keys": {"name": "another", "scopes": ["read"]},
    "/v1/quotes": STEP,
    "/v1/runs": STEP,
    "/v1/snapshots": {"definition": DEFINITION},
    "/v1/snapshots/{ref}/warm": {"hosts": 1},
    "/v1/forks/{fork_id}/execs": {"sh": "true"},
    "/v1/forks/{fork_id}/release": {"passed": True},
}


@pytest.fixture
def furnished(suite: Door) -> Door:
    """A door behind which there is one of everything."""
    held = suite.post("/v1/runs", HOLD, 201)
    suite.stage.run_for(2)
    fork = suite.get(f"/v1/runs/{held['run_id']}/forks")["forks"][0]
    command = {"sh": "sim: 0.1s", "exec_id": "mine"}
    suite.post(f"/v1/forks/{fork['fork_id']}/execs", command)
    build = suite.post("/v1/snapshots", {"definition": {**DEFINITION, "name": "other"}}, 202)
    suite.made = {
        "run_id": held["run_id"],
        "fork_id": fork["fork_id"],
        "exec_id": "mine",
        "build_id": build["build_id"],
        "key_id": suite.stage.ports.keys.list()[0].key_id,
        "ref": "task-suite",
        "sha256": SHA256,
    }
    return suite


def _call(door: Door, method: str, path: str, headers: dict[str, str]) -> Any:
    there = re.sub(r"{(\w+)}", lambda name: door.made.get(name[1], "none"), path)
    has_body = path in BODIES and method in ("POST", "PUT")
    sent: dict[str, Any] = {"json": BODIES[path]} if has_body else {}
    if path.endswith("/files"):
        sent["params"] = {"path": "/tmp/file"}
    return door.client.request(method, there, headers=headers, **sent)


def test_there_are_routes_to_hold_this_against() -> None:
    assert len(CLOSED) >= 20
    assert set(CLOSED) >= NAMELESS
    assert {path for _, path in OPERATIONS} >= OPEN_PATHS


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_no_route_answers_without_a_key(still: Door, method: str, path: str) -> None:
    answer = _call(still, method, path, {"Authorization": ""})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert method == "HEAD" or answer.json()["error"]["code"] == "unauthorized"


def test_what_belongs_to_another_project_is_not_there(furnished: Door) -> None:
    """All routes on one furnished world: to furnish one for each would only cost time."""
    seen = {}
    for method, path in CLOSED:
        if (method, path) in NAMELESS:
            continue
        own_answer_missing = method == "GET" and (
            _call(furnished, method, path, {}).status_code not in (200, 404)
        )
        assert not own_answer_missing, path
        answer = _call(furnished, method, path, furnished.as_stranger())
        seen[method, path] = (answer.status_code, answer.json()["error"]["code"])
    assert len(seen) == len(CLOSED) - len(NAMELESS)
    wrong = {
        operation: told
        for operation, told in seen.items()
        if told[0] != 404 or not told[1].startswith("unknown_")
    }
    assert wrong == {}


def test_lists_have_nothing_of_another_project(furnished: Door) -> None:
    for path, things in (("/v1/runs", "runs"), ("/v1/snapshots", "snapshots")):
        assert furnished.get(path)[things] != []
        strange = furnished.client.get(path, headers=furnished.as_stranger())
        assert (strange.status_code, strange.json()[things]) == (200, [])


def test_a_stranger_did_no_harm(furnished: Door) -> None:
    for method, path in CLOSED:
        if method in ("POST", "DELETE", "PUT") and (method, path) not in NAMELESS:
            _call(furnished, method, path, furnished.as_stranger())
    furnished.stage.run_for(2)
    fork = furnished.get(f"/v1/forks/{furnished.made['fork_id']}")
    assert (fork["state"], fork["outcome"]) == ("ready", None)
    assert furnished.get("/v1/snapshots/task-suite")["version"] == 1


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer pmg_" + "0" * 64,
        "Bearer " + "x" * 513,
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer  {key}",
    ],
)
def test_every_wrong_key_gets_the_same_answer(still: Door, header: str) -> None:
    said = header.format(key=still.key)
    answer = still.client.get("/v1/hosts", headers={"Authorization": said})
    missing = still.client.get("/v1/hosts", headers={"Authorization": ""})
    assert answer.status_code == 401
    told, known = answer.json()["error"], missing.json()["error"]
    assert {**told, "request_id": ""} == {**known, "request_id": ""}


def test_a_revoked_key_is_refused_at_once_and_like_a_wrong_one(door: Door) -> None:
    key, secret = door.stage.ports.keys.create("default", "short-lived")
    header = {"Authorization": f"Bearer {secret}"}
    assert door.client.get("/v1/hosts", headers=header).status_code == 200
    door.stage.ports.keys.revoke(key.key_id)
    revoked = door.client.get("/v1/hosts", headers=header)
    wrong = door.client.get("/v1/hosts", headers={"Authorization": "Bearer wrong"})
    assert revoked.status_code == 401
    assert revoked.json()["error"]["message"] == wrong.json()["error"]["message"]


def test_a_key_is_asked_for_before_anything_of_the_body_is_read(still: Door) -> None:
    answer = still.client.post("/v1/runs", content=b"{", headers={"Authorization": ""})
    assert answer.status_code == 401


def test_the_scheme_may_be_written_in_any_case(still: Door) -> None:
    header = {"Authorization": f"bearer {still.key}"}
    assert still.client.get("/v1/hosts", headers=header).status_code == 200
