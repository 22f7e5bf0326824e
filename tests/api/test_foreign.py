"""A key of another project, on every route of the document and in every place of it that names a thing.

The answer is the one for a thing that never was, to the byte; nothing of the thing changes; no list shows it. A route
or a place that is new has to be added here, or the first test fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.places import ROUTES
from tests.api.two_projects import FILE, Projects, Sent, never, two_projects, worn
from tests.api.world import DEFINITION, STEP

# Texts that name nothing which somebody else could have.
PLAIN = {
    *("path", "query path", "query mode", "query label.[]", "query by", "query from"),
    *("query until", "query action", "body name", "body cwd", "body sh", "body user"),
    *("body argv.[]", "body env.{}", "body labels.{}", "body egress.[]"),
    *(f"body {each}.{leaf}" for each in ("exec", "grade") for leaf in ("cwd", "sh", "user")),
    *(f"body {each}.{leaf}" for each in ("exec", "grade") for leaf in ("argv.[]", "env.{}")),
    *("body groups.[].key", "body groups.[].env.{}", "body files.[].guest_path"),
    *("body definition.build_egress.[]", "body definition.egress.[]", "body definition.image"),
    *("body definition.on_fork.[]", "body definition.setup.[]", "body definition.warm.[]"),
    *(f"body definition.test.{leaf}" for leaf in ("argv.[]", "cwd", "sh", "user", "env.{}")),
}
# Where a page goes on, by its number.
NUMBERED = {"GET /v1/hosts", "GET /v1/keys", "GET /v1/runs/{run_id}/forks", "GET /v1/snapshots"}

# What stands in a place, and the status that it is answered with where that is not 404.
NAMED: dict[tuple[str, str], tuple[str, int]] = {
    ("GET /v1/audit", "query key"): ("key_id", 200),
    ("GET /v1/audit", "query cursor"): ("entry", 200),
    ("GET /v1/runs", "query cursor"): ("run_id", 404),
    ("GET /v1/forks/{fork_id}/logs", "query exec_id"): ("exec_id", 404),
    # Bytes that a project has not sent itself are missing; sent, they are new to it.
    ("POST /v1/snapshots", "body files.[].sha256"): ("sha256", 400),
    ("PUT /v1/files/{sha256}", "path sha256"): ("sha256", 201),
    ("POST /v1/quotes", "body snapshot"): ("ref", 404),
    ("POST /v1/quotes", "body groups.[].snapshot"): ("ref", 404),
    ("POST /v1/runs", "body snapshot"): ("ref", 404),
    ("POST /v1/runs", "body groups.[].snapshot"): ("ref", 404),
    ("POST /v1/runs", "body quote_id"): ("quote_id", 404),
    **{
        (route.name, place): (place.removeprefix("path "), 404)
        for route in ROUTES.values()
        for place in route.places
        if place.startswith("path ") and route.name != "PUT /v1/files/{sha256}"
    },
}

# Callers name commands within a fork, and snapshots within a project: what others call theirs is free.
FREE: dict[tuple[str, str], tuple[str, int]] = {
    ("POST /v1/forks/{fork_id}/execs", "body exec_id"): ("exec_id", 200),
    ("POST /v1/snapshots", "body definition.name"): ("name", 202),
}

OF_NAME = {key: told for key, told in STEP.items() if key not in ("snapshot", "count")}
GROUPS = [{"snapshot": "$group", "count": 1}]
SENT: dict[str, Sent] = {
    "GET /v1/audit": Sent(params={"key": "$key_id", "cursor": "$entry"}),
    "GET /v1/runs": Sent(params={"cursor": "$run_id"}),
    "GET /v1/runs/{run_id}/events": Sent(params={"format": "json"}),
    "GET /v1/forks/{fork_id}/logs": Sent(params={"exec_id": "$exec_id"}),
    "GET /v1/forks/{fork_id}/files": Sent(params={"path": FILE}),
    "PUT /v1/forks/{fork_id}/files": Sent(params={"path": FILE}, content=True),
    "PUT /v1/files/{sha256}": Sent(content=True),
    "POST /v1/forks/{fork_id}/execs": Sent({"sh": "$sh", "exec_id": "$exec_id"}),
    "POST /v1/forks/{fork_id}/release": Sent({"passed": True}),
    "POST /v1/keys": Sent({"name": "another", "scopes": ["read"]}),
    "POST /v1/quotes": Sent({**STEP, "snapshot": "$ref"}),
    "POST /v1/runs": Sent({**STEP, "snapshot": "$ref", "quote_id": "$quote_id"}),
    "POST /v1/snapshots": Sent(
        {
            "definition": {**DEFINITION, "name": "$name"},
            "files": [{"guest_path": "/workspace", "sha256": "$sha256"}],
        }
    ),
    "PUT /v1/snapshots/{ref}/warm": Sent({"hosts": 1}),
}
# Beside `snapshot`: a step is of one or of groups.
IN_GROUPS = Sent({**OF_NAME, "groups": [{"snapshot": "$ref", "count": 1}]})
CASES = sorted(NAMED)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Projects]:
    with two_projects(tmp_path_factory.mktemp("foreign")) as opened:
        yield opened


def test_every_place_of_every_route_is_known() -> None:
    """The document is walked: what is in it and neither named nor plain has no case."""
    said = {(route.name, place) for route in ROUTES.values() for place in route.places}
    plain = {(name, place) for name, place in said if place in PLAIN}
    numbered = {(name, "query cursor") for name in NUMBERED}
    assert said - plain - numbered == NAMED.keys() | FREE.keys()
    assert len(NAMED) > 30


@pytest.mark.parametrize(("name", "place"), CASES)
def test_a_thing_of_another_project_is_one_that_never_was(
    projects: Projects, name: str, place: str
) -> None:
    assert _seen_by_the_stranger(projects, name, place, *NAMED[name, place]) == []


def test_a_name_that_another_project_has_given_is_free(tmp_path: Path) -> None:
    for (name, place), named in FREE.items():
        with two_projects(tmp_path / place) as projects:
            assert _seen_by_the_stranger(projects, name, place, *named) == []


def test_its_own_key_is_answered(projects: Projects) -> None:
    """Or a 404 to a stranger would say nothing. What ends or removes things is not tried."""
    ends = {"cancel_run", "release", "cancel"}
    for name, route in ROUTES.items():
        if route.method == "DELETE" or route.path.rpartition("/")[2] in ends:
            continue
        things = projects.owner.things
        answer = projects.ask(route, SENT.get(name, Sent()), projects.owner, things)
        assert answer.status_code < 300, (name, answer.text)


def test_all_things_of_another_project_at_once(projects: Projects) -> None:
    """A command of a fork with that fork, and so on: no two ids open what one does not."""
    before = projects.rows_of_owner()
    for name, route in ROUTES.items():
        ids = {place for place in route.places if place.startswith("path ")}
        if not ids or "path sha256" in ids:
            continue
        sent, things = SENT.get(name, Sent()), projects.owner.things
        answer = projects.ask(route, sent, projects.stranger, things)
        assert answer.status_code == 404, (name, answer.text)
        assert projects.owner.things["line"] not in answer.text
    assert projects.rows_of_owner() == before


def test_what_a_project_reads_names_nothing_of_another(projects: Projects) -> None:
    """Every GET of the stranger's own things, its lists among them."""
    foreign = {each for name, each in projects.owner.things.items() if name != "entry"}
    foreign |= {f'"{projects.owner.project_id}"', projects.owner.headers["Authorization"][7:]}
    reads = [name for name, route in ROUTES.items() if route.method == "GET"]
    assert len(reads) > 15
    for name in reads:
        sent = Sent() if name in ("GET /v1/audit", "GET /v1/runs") else SENT.get(name, Sent())
        stranger = projects.stranger
        answer = projects.ask(ROUTES[name], sent, stranger, stranger.things)
        assert answer.status_code == 200, (name, answer.text)
        if name == "GET /v1/audit":
            # It has the ids that the stranger itself asked for, and nobody else's deeds.
            own = {key.key_id for key in projects.door.stage.ports.keys.list(stranger.project_id)}
            assert {entry["actor"] for entry in answer.json()["entries"]} <= own
            continue
        assert [each for each in foreign if each in answer.text] == [], name


def test_an_idempotency_key_is_a_projects_own(projects: Projects) -> None:
    door, body = projects.door, {**STEP, "snapshot": "task-suite"}
    headers = {"Idempotency-Key": "the same in both"}
    owners = door.client.post("/v1/quotes", json=body, headers=projects.owner.headers | headers)
    again = door.client.post("/v1/quotes", json=body, headers=projects.owner.headers | headers)
    assert owners.json() == again.json()
    strangers = door.client.post(
        "/v1/quotes", json=body, headers=projects.stranger.headers | headers
    )
    assert (strangers.status_code, strangers.json()["error"]["code"]) == (404, "unknown_snapshot")


def test_a_hash_alone_opens_no_bytes(projects: Projects) -> None:
    """Whoever knows what a file hashes to cannot learn that it is here, nor have it put into a machine."""
    door, sha256 = projects.door, projects.owner.things["sha256"]
    there = f"/v1/files/{sha256}"
    assert door.client.head(there, headers=projects.owner.headers).status_code == 200
    lone = hashlib.sha256(b"sent by the owner alone").hexdigest()
    sent = door.client.put(
        f"/v1/files/{lone}", content=b"sent by the owner alone", headers=projects.owner.headers
    )
    assert sent.status_code == 201
    for unknown in (lone, never(lone)):
        head = door.client.head(f"/v1/files/{unknown}", headers=projects.stranger.headers)
        assert head.status_code == 404
        body: Any = {
            "definition": {**DEFINITION, "name": "thief"},
            "files": [{"guest_path": "/loot", "sha256": unknown}],
        }
        built = door.client.post("/v1/snapshots", json=body, headers=projects.stranger.headers)
        assert (built.status_code, built.json()["error"]["code"]) == (400, "missing_file")


def _seen_by_the_stranger(
    projects: Projects, name: str, place: str, thing: str, status: int
) -> list[str]:
    """What is different from a thing that never was, and what has changed."""
    route, sent = ROUTES[name], IN_GROUPS if "groups" in place else SENT.get(name, Sent())
    before = projects.rows_of_owner()
    seen = [
        worn(projects.ask(route, sent, projects.stranger, things), things[thing])
        for things in _things(projects, name, thing)
    ]
    after = projects.rows_of_owner()
    found = [f"{table} has changed" for table in before if before[table] != after[table]]
    if seen[0] != seen[1]:
        found.append(f"{seen[0]} is not {seen[1]}")
    if seen[0][0] != status or projects.owner.things["line"] in seen[0][2]:
        found.append(f"answered {seen[0]}")
    return found


def _things(projects: Projects, name: str, thing: str) -> tuple[dict[str, str], dict[str, str]]:
    """The stranger's own things with one of the owner's among them; and with one that never was in its place."""
    own, foreign = projects.stranger.things, projects.owner.things[thing]
    if name != "PUT /v1/files/{sha256}":
        return own | {thing: foreign}, own | {thing: never(foreign)}
    new = projects.owner.content.decode().swapcase()
    return (
        own | {thing: foreign, "content": projects.owner.content.decode()},
        own | {thing: hashlib.sha256(new.encode()).hexdigest(), "content": new},
    )
