"""The API over real rows and fake machines; while a handler waits, the world behind it goes on by a second."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio import to_thread
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Message, Scope

from app.api.main import create_api
from tests.flow.stage import PROJECT, Stage

STRANGER = "stranger"
HOLD: dict[str, Any] = {
    "snapshot": "task-suite",
    "count": 2,
    "spend_cap": 10.0,
    "hold_seconds": 600,
    "verify_each": False,
}
STEP: dict[str, Any] = {
    "snapshot": "task-suite",
    "count": 2,
    "spend_cap": 10.0,
    "verify_each": False,
    "exec": {"sh": "sim: 1s exit 0", "timeout_seconds": 60},
}
DEFINITION: dict[str, Any] = {
    "name": "task-suite",
    "image": "debian-12",
    "test": {"sh": "sim: 1s exit 0", "timeout_seconds": 60},
}


class MovingWorld:
    """`Wakes` whose waiters are woken after a second of the stage's own time; nobody sleeps."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.still = False
        self.heard: list[str] = []

    @asynccontextmanager
    async def listening(self, exec_id: str) -> AsyncIterator[MovingWorld]:
        self.heard.append(exec_id)
        yield self

    async def wait(self, timeout_s: float) -> bool:
        assert 0 < timeout_s <= 1.0, "a row is read again at least once a second"
        if self.still:
            await anyio.sleep(timeout_s)
            return False
        await to_thread.run_sync(self.stage.run_for, 1.0)
        return True


@dataclass
class Door:
    """The API with a key of the stage's project and one of a stranger's."""

    stage: Stage
    wakes: MovingWorld
    api: FastAPI
    client: TestClient
    key: str
    strange_key: str
    made: dict[str, str] = field(default_factory=dict)

    def as_stranger(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.strange_key}"}

    def get(self, path: str, **query: Any) -> Any:
        """A good answer's body."""
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int = 200, key: str | None = None) -> Any:
        """An answer's body, of this status."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.client.post(path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def refused(self, method: str, path: str, status: int, code: str, **sent: Any) -> Any:
        """An error's `error`, of this status and code."""
        answer = self.client.request(method, path, **sent)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error["code"] == code, error
        return error

    def held_fork(self) -> str:
        """The first fork of a new held run, ready."""
        run_id = self.post("/v1/runs", HOLD, 201)["run_id"]
        self.stage.run_for(2)
        fork = self.get(f"/v1/runs/{run_id}/forks")["forks"][0]
        assert fork["state"] == "ready"
        return str(fork["fork_id"])


def open_door(stage: Stage, spool: Any) -> Door:
    wakes = MovingWorld(stage)
    api = create_api(stage.ports, wakes, spool=spool)
    key, strange_key = (stage.ports.keys.create(name, "test")[1] for name in (PROJECT, STRANGER))
    client = TestClient(api, headers={"Authorization": f"Bearer {key}"})
    return Door(stage, wakes, api, client, key, strange_key)


@dataclass
class Raw:
    """What an application sent, message by message, and whether it broke off."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False
    broke: BaseException | None = None

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


def raw(
    door: Door,
    method: str,
    path: str,
    *,
    headers: Iterable[tuple[str, str]] = (),
    chunks: Iterable[bytes] = (),
    query: str = "",
    silent: bool = False,
) -> Raw:
    """One request by ASGI's own messages: a body is handed out chunk by chunk, as a socket would.

    A `silent` sender stops after its chunks and does not say that they were all.
    """
    said = [("authorization", f"Bearer {door.key}"), *headers]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in said],
        "scheme": "http",
        "server": ("test", 80),
        "client": ("test", 1),
        "root_path": "",
    }
    left = iter(chunks)
    seen = Raw()
    ended = False

    async def receive() -> Message:
        nonlocal ended
        if ended:
            await anyio.sleep_forever()
        chunk = next(left, None)
        ended = chunk is None
        if ended and silent:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            seen.status = message["status"]
            seen.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            seen.body += message.get("body", b"")
            seen.whole = not message.get("more_body", False)

    async def serve() -> None:
        try:
            await door.api(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - what a server would see of the application
            seen.broke = error

    anyio.run(serve)
    return seen
