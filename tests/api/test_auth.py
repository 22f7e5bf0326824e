"""Who calls: no key, no answer. `test_scopes.py` has what a key opens, `test_foreign.py` what is another project's."""

from __future__ import annotations

import re

import pytest

from app.api.middleware import OPEN_PATHS
from app.api.openapi import document
from tests.api.world import Door

OPERATIONS = [
    (method.upper(), path)
    for path, operations in sorted(document()["paths"].items())
    for method in operations
]
CLOSED = [operation for operation in OPERATIONS if operation[1] not in OPEN_PATHS]


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_no_route_answers_without_a_key(still: Door, method: str, path: str) -> None:
    there = re.sub(r"{(\w+)}", "none", path)
    answer = still.client.request(method, there, headers={"Authorization": ""})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert method == "HEAD" or answer.json()["error"]["code"] == "unauthorized"


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
