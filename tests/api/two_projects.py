"""Two projects on one deployment, each with one of everything; and a request in which one text is another's."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from infra.store.tables import METADATA
from tests.api.places import Route
from tests.api.world import DEFINITION, HOLD, STEP, Door, open_door
from tests.flow.stage import PROJECT, Stage

FILE = "/tmp/file"
# What an open meter makes of the time that goes by.
METERED = {"tasks_micros"}
# What is new in each answer, and what time does to it.
PASSING = re.compile(
    r"\b(req|run|quote|build|key|audit|fork|exec)_[0-9a-f]{16}\b|\d{4}-\d\d-\d\dT[\d:.]+Z"
)


@dataclass(frozen=True, slots=True)
class Side:
    """One project's key and things by the names of the places that name them; `content` was uploaded by it."""

    project_id: str
    headers: dict[str, str]
    things: dict[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """What a route is sent beside the ids of its path. `$name` in it is a thing of that name."""

    json: Any = None
    params: dict[str, str] = field(default_factory=dict)
    content: bool = False


@dataclass(frozen=True, slots=True)
class Projects:
    door: Door
    owner: Side
    stranger: Side

    def ask(self, route: Route, sent: Sent, side: Side, things: dict[str, str]) -> Any:
        """The route as this side calls it, with these things in their places."""
        path = re.sub(r"{(\w+)}", lambda name: things[name[1]], route.path)
        return self.door.client.request(
            route.method,
            path,
            headers=side.headers,
            params={name: _filled(told, things) for name, told in sent.params.items()},
            json=_filled(sent.json, things),
            content=_content(side, things) if sent.content else None,
        )

    def rows_of_owner(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that the owner's project has in the database, but for what its open meter makes of the time."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        with self.door.stage.stores.database.read() as at:
            for table in METADATA.sorted_tables:
                kept = [column for column in table.c if column.name not in METERED]
                if "project_id" in table.c:
                    whose = table.c.project_id == self.owner.project_id
                elif "run_id" in table.c:
                    whose = table.c.run_id == self.owner.things["run_id"]
                else:
                    continue
                found[table.name] = sorted(
                    map(tuple, at.execute(select(*kept).where(whose))), key=repr
                )
        return found


@contextmanager
def two_projects(path: Path) -> Iterator[Projects]:
    """Both furnished."""
    path.mkdir(exist_ok=True)
    stage = Stage(path)
    door = open_door(stage, path)
    with door.client:
        owner = _furnished(door, PROJECT, door.key, "task-suite")
        stranger = _furnished(door, "stranger", door.strange_key, "zebra")
        yield Projects(door, owner, stranger)
    stage.stores.close()


def never(real: str) -> str:
    """An id of the same form and length that nothing ever had."""
    return re.sub(r"[0-9a-z](?=@|$)", lambda last: "1" if last[0] != "1" else "2", real, count=1)


def worn(answer: Any, value: str) -> tuple[int, dict[str, str], str]:
    """An answer without the id that was asked for, and without what is new in each."""
    headers = {name: told for name, told in answer.headers.items() if name != "x-request-id"}
    return answer.status_code, headers, PASSING.sub("-", answer.text.replace(value, "-"))


def _furnished(door: Door, project_id: str, key: str, name: str) -> Side:
    headers = {"Authorization": f"Bearer {key}"}

    def post(path: str, body: Any) -> Any:
        answer = door.client.post(path, json=body, headers=headers)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    content = f"files of {name}".encode()
    sha256 = hashlib.sha256(content).hexdigest()
    assert door.client.put(f"/v1/files/{sha256}", content=content, headers=headers).is_success
    build = post("/v1/snapshots", {"definition": {**DEFINITION, "name": name}})
    door.stage.run_for(30)
    run = post("/v1/runs", {**HOLD, "snapshot": name, "labels": {"team": name}})
    door.stage.run_for(2)
    (fork, *_) = door.client.get(f"/v1/runs/{run['run_id']}/forks", headers=headers).json()["forks"]
    exec_id = f"step-of-{name}"
    line = f"a line that only {name} may read"
    command = {"sh": f"sim: print '{line}'", "exec_id": exec_id}
    post(f"/v1/forks/{fork['fork_id']}/execs", command)
    files = f"/v1/forks/{fork['fork_id']}/files"
    put = door.client.put(files, params={"path": FILE}, content=content, headers=headers)
    assert put.is_success, put.text
    quote = post("/v1/quotes", {**STEP, "snapshot": name})
    made = post("/v1/keys", {"name": f"of {name}", "scopes": ["read"]})
    log = door.client.get("/v1/audit", params={"limit": "1"}, headers=headers).json()
    things = {
        "run_id": run["run_id"],
        "fork_id": fork["fork_id"],
        "exec_id": exec_id,
        "sh": command["sh"],
        "line": line,
        "build_id": build["build_id"],
        "key_id": made["key_id"],
        "quote_id": quote["quote_id"],
        "entry": log["next_cursor"],
        "ref": f"{name}@1",
        "name": name,
        "sha256": sha256,
    }
    return Side(project_id, headers, things, content)


def _filled(told: Any, things: dict[str, str]) -> Any:
    """A body with the things in their places."""
    if isinstance(told, dict):
        return {name: _filled(each, things) for name, each in told.items()}
    if isinstance(told, list):
        return [_filled(each, things) for each in told]
    if isinstance(told, str) and told.startswith("$"):
        return things[told[1:]]
    return copy.copy(told)


def _content(side: Side, things: dict[str, str]) -> bytes:
    return things.get("content", side.content.decode()).encode()
