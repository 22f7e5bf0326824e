"""Health and readiness: real probes, asked seldom, told to all and therefore told in few words."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.api.main import create_api
from app.errors import Unavailable
from tests.api.world import Door, MovingWorld


def _client(door: Door, tmp_path: Path, **probes: object) -> TestClient:
    api = create_api(
        door.stage.ports,
        MovingWorld(door.stage),
        spool=tmp_path,
        probes=probes,  # type: ignore[arg-type]
    )
    return TestClient(api)


def test_both_answer_without_a_key(door: Door) -> None:
    for path in ("/healthz", "/readyz"):
        assert door.client.get(path, headers={"Authorization": ""}).status_code == 200
    assert door.get("/healthz") == {"status": "ok"}
    assert door.get("/readyz") == {
        "ready": True,
        "parts": [{"name": "hosts", "ready": True, "detail": "ok"}],
    }


def test_a_part_that_does_not_answer_makes_it_unready_and_tells_no_more(
    door: Door, tmp_path: Path
) -> None:
    def away() -> None:
        raise Unavailable("database_away", "postgresql://user:secret@db does not answer")

    def broken() -> None:
        raise RuntimeError("the inside")

    answer = _client(door, tmp_path, database=away, broker=broken).get("/readyz")
    assert answer.status_code == 503
    parts = {part["name"]: part for part in answer.json()["parts"]}
    assert [parts[name]["ready"] for name in ("database", "broker", "hosts")] == [
        False,
        False,
        True,
    ]
    assert "secret" not in answer.text
    assert "inside" not in answer.text


def test_without_a_host_it_is_not_ready_but_healthy(door: Door) -> None:
    door.stage.clock.advance(60)
    assert door.client.get("/readyz").status_code == 503
    assert door.client.get("/healthz").status_code == 200


def test_a_part_that_hangs_is_given_up(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.ready.PROBE_S", 0.05)
    let_go = threading.Event()
    try:
        answer = _client(door, tmp_path, database=lambda: let_go.wait(30)).get("/readyz")
    finally:
        let_go.set()
    assert answer.status_code == 503


def test_many_who_ask_are_one_probe(door: Door, tmp_path: Path) -> None:
    asked = []
    client = _client(door, tmp_path, database=lambda: asked.append("probe"))
    with client:
        for _ in range(20):
            assert client.get("/readyz").status_code == 200
    assert len(asked) <= 3
