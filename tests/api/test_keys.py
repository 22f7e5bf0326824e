"""Keys of a project over the API: made, listed, revoked, and changed one for another while both are used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.api.main import create_api
from app.domain.account import Key
from app.ports import Keys, Waiter
from infra.fakes.bells import FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.machines import FakeImages
from infra.store import create_store
from tests.api.world import Door, raw
from tests.flow.stage import PROJECT, ports_of

DAY_S = 24 * 3600


def made(door: Door, *scopes: str, key: str | None = None, **more: Any) -> Any:
    return door.post("/v1/keys", {"name": "made", "scopes": scopes, **more}, 201, key)


def opens(door: Door, secret: str, path: str = "/v1/runs") -> int:
    header = {"Authorization": f"Bearer {secret}"}
    return int(door.client.get(path, headers=header).status_code)


def as_key(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_key_opens_what_it_was_made_for_until_it_is_revoked(door: Door) -> None:
    key = made(door, "run", "read", "read")
    assert key["secret"].startswith(key["prefix"])
    assert (key["project"], key["scopes"]) == (PROJECT, ["read", "run"])
    assert (key["expires_at"], key["last_used_at"], key["revoked_at"]) == (None, None, None)
    assert opens(door, key["secret"]) == 200
    assert opens(door, key["secret"], "/v1/keys") == 403
    gone = door.client.delete(f"/v1/keys/{key['key_id']}").json()
    assert gone["revoked_at"] is not None
    assert door.client.delete(f"/v1/keys/{key['key_id']}").json() == gone
    assert opens(door, key["secret"]) == 401


def test_a_list_has_no_secrets_and_comes_by_pages(door: Door) -> None:
    secrets = [made(door, "read")["secret"] for _ in range(3)]
    first = door.get("/v1/keys", limit=3)
    rest = door.get("/v1/keys", limit=3, cursor=first["next_cursor"])
    assert (len(first["keys"]), len(rest["keys"]), rest["next_cursor"]) == (3, 1, None)
    told = str(first) + str(rest)
    assert [secret for secret in secrets if secret[12:] in told] == []


def test_a_use_is_noted_once_a_minute(door: Door) -> None:
    key = made(door, "read")
    seen = []
    for pause_s in (0, 59, 1):
        door.stage.clock.advance(pause_s)
        opens(door, key["secret"])
        (found,) = (each for each in door.get("/v1/keys")["keys"] if each["name"] == "made")
        seen.append(found["last_used_at"])
    assert seen[0] == seen[1] < seen[2]


def test_a_key_ends_by_itself(door: Door) -> None:
    key = made(door, "read", expires_days=1)
    door.stage.clock.advance(DAY_S - 1)
    assert opens(door, key["secret"]) == 200
    door.stage.clock.advance(1)
    assert opens(door, key["secret"]) == 401


def test_no_key_gives_what_it_lacks_or_outlives_its_maker(door: Door) -> None:
    small = made(door, "admin", "read", expires_days=1)
    body = {"name": "greater", "scopes": ["run", "read"]}
    error = door.refused(
        "POST", "/v1/keys", 403, "missing_scope", json=body, headers=as_key(small["secret"])
    )
    assert error["details"] == {"needed": ["run"], "scopes": ["read", "admin"]}
    assert len(door.get("/v1/keys")["keys"]) == 2
    for days in (None, 30):
        heir = door.client.post(
            "/v1/keys",
            json={"name": "heir", "scopes": ["read"], "expires_days": days},
            headers=as_key(small["secret"]),
        ).json()
        assert heir["expires_at"] == small["expires_at"]


def test_a_key_that_is_revoked_while_it_calls_leaves_no_heir(door: Door) -> None:
    """Its call was let in; its body came after its end."""
    maker = made(door, "admin")

    def body() -> Iterator[bytes]:
        yield b'{"name": "heir", '
        door.stage.ports.keys.revoke(maker["key_id"])
        yield b'"scopes": ["admin"]}'

    seen = raw(replace(door, key=maker["secret"]), "POST", "/v1/keys", chunks=body(),
               headers=[("content-type", "application/json")])  # fmt: skip
    assert (seen.status, seen.error["code"]) == (401, "revoked_key")
    assert "heir" not in {key["name"] for key in door.get("/v1/keys")["keys"]}


@pytest.mark.parametrize(
    "body",
    [
        {"name": "n", "scopes": []},
        {"name": "n"},
        {"name": "", "scopes": ["read"]},
        {"name": "n", "scopes": ["all"]},
        {"name": "n", "scopes": ["read"], "expires_days": 0},
        {"name": "n", "scopes": ["read"], "expires_days": 1e9},
        {"name": "n\0", "scopes": ["read"]},
    ],
)
def test_what_makes_no_key_makes_none(still: Door, body: Any) -> None:
    before = len(still.stage.ports.keys.list(PROJECT))
    still.refused("POST", "/v1/keys", 400, "bad_request", json=body)
    assert len(still.stage.ports.keys.list(PROJECT)) == before


def test_the_last_key_with_admin_stays(door: Door) -> None:
    (own,) = door.get("/v1/keys")["keys"]
    there = f"/v1/keys/{own['key_id']}"
    # Neither a key without the scope nor one that is over stands in for it.
    made(door, "read", "run", "build")
    made(door, "admin", expires_days=1)
    door.stage.clock.advance(DAY_S)
    door.refused("DELETE", there, 409, "last_admin_key")
    other = made(door, "admin", "read")
    assert door.client.delete(there).status_code == 200
    assert opens(door, other["secret"]) == 200
    # The operator is not kept from it.
    assert door.stage.ports.keys.revoke(other["key_id"]).revoked_ns is not None


def test_a_call_that_is_sent_again_makes_one_key_and_shows_its_secret_once(door: Door) -> None:
    key = made(door, "read", key="again")
    body = {"name": "made", "scopes": ["read"]}
    header = {"Idempotency-Key": "again"}
    error = door.refused("POST", "/v1/keys", 409, "secret_shown_once", json=body, headers=header)
    assert error["details"]["key_id"] == key["key_id"]
    other = {"name": "other", "scopes": ["read"]}
    door.refused("POST", "/v1/keys", 409, "idempotency_mismatch", json=other, headers=header)
    assert len(door.get("/v1/keys")["keys"]) == 2
    receipt = door.stage.ports.receipts.find(PROJECT, "again")
    assert receipt is not None
    assert key["secret"] not in str(receipt.answer)


def test_one_key_is_changed_for_another_while_both_are_used(suite: Door) -> None:
    """As the page about access says: two live keys, then the old one's last use stands still, then it goes."""
    old = made(suite, "read", "run")
    new = made(suite, "read", "run")
    secrets = old["secret"], new["secret"]
    assert [opens(suite, secret) for secret in secrets] == [200, 200]
    suite.stage.clock.advance(120)
    assert opens(suite, new["secret"]) == 200
    used = {each["key_id"]: each["last_used_at"] for each in suite.get("/v1/keys")["keys"]}
    assert used[old["key_id"]] < used[new["key_id"]]
    assert suite.client.delete(f"/v1/keys/{old['key_id']}").status_code == 200
    assert [opens(suite, secret) for secret in secrets] == [401, 200]


@dataclass(frozen=True, slots=True)
class Restarted:
    """The API over rows that were there before it, with the secrets that it was started with."""

    client: TestClient
    keys: Keys

    def opens(self, secret: str) -> int:
        return int(self.client.get("/v1/runs", headers=as_key(secret)).status_code)

    def under(self, key: Key) -> str:
        (found,) = (each for each in self.keys.list() if each.key_id == key.key_id)
        return found.under.value


@contextmanager
def started(path: Path, secret: bytes, previous: bytes | None = None) -> Iterator[Restarted]:
    clock = ManualClock()
    stores = create_store(
        f"sqlite:///{path}/rows.db",
        key_secret=secret,
        key_secret_previous=previous,
        now_ns=clock.wall_ns,
    )
    stores.migrate()
    ports = ports_of(stores, FakeBells(), clock, FakeImages("debian-12"), path)
    with TestClient(create_api(ports, Silence(), spool=path)) as client:
        yield Restarted(client, stores.keys)
    stores.close()


class Silence:
    """`Wakes` for routes that do not wait."""

    def listening(self, about: str) -> AbstractAsyncContextManager[Waiter]:
        raise AssertionError(f"{about} was waited for")


def test_the_secret_of_keys_is_changed_under_live_keys(tmp_path: Path) -> None:
    """The API under the old secret, then under both, then under the new one alone."""
    with started(tmp_path, b"old") as api:
        (used, secret), (idle, unused) = (api.keys.create(PROJECT, name) for name in "ab")
        assert api.opens(secret) == 200
    with started(tmp_path, b"new", b"old") as api:
        assert api.under(used) == api.under(idle) == "previous"
        assert api.opens(secret) == 200
        assert (api.under(used), api.under(idle)) == ("present", "previous")
        fresh = api.keys.create(PROJECT, "c")[1]
    with started(tmp_path, b"new") as api:
        assert (api.under(used), api.under(idle)) == ("present", "lost")
        assert [api.opens(each) for each in (secret, fresh, unused)] == [200, 200, 401]


def test_processes_that_know_both_secrets_never_refuse_each_others_keys(tmp_path: Path) -> None:
    """One has the new one for its own, the other still the old one: they are restarted one after another."""
    with started(tmp_path, b"old", b"new") as behind, started(tmp_path, b"new", b"old") as ahead:
        secret = behind.keys.create(PROJECT, "a")[1]
        assert [each.opens(secret) for each in (ahead, behind, ahead, behind)] == [200] * 4
