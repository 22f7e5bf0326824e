"""Keys and the audit log: the client against the API itself."""

from __future__ import annotations

import pytest

from promigence import Conflict, Forbidden, NotFound, Unauthorized
from tests.api.world import Door
from tests.sdk.door import client_of


def test_a_key_is_made_used_found_in_the_log_and_revoked(door: Door) -> None:
    client = client_of(door, door.key)
    made = client.keys.create("nightly", ["run", "read"], expires_days=7)
    assert made["scopes"] == ["read", "run"]
    nightly = client_of(door, made["secret"])
    with pytest.raises(NotFound):
        nightly.runs.cancel("run_none")
    with pytest.raises(Forbidden) as caught:
        nightly.keys.list()
    assert caught.value.code == "missing_scope"
    assert caught.value.details == {"needed": ["admin"], "scopes": ["read", "run"]}
    (deed,) = client.audit.list(key=made["key_id"])
    assert (deed["action"], deed["target"], deed["outcome"]) == (
        "cancel_run",
        "run_none",
        "refused",
    )
    assert client.keys.revoke(made["key_id"])["revoked_at"] is not None
    with pytest.raises(Unauthorized):
        nightly.runs.list()
    with pytest.raises(NotFound, match="unknown_key"):
        client.keys.revoke("key_none")


def test_the_last_key_stays_and_every_key_is_listed(door: Door) -> None:
    client = client_of(door, door.key)
    (own,) = client.keys.list()
    with pytest.raises(Conflict, match="last_admin_key"):
        client.keys.revoke(own["key_id"])
    names = [client.keys.create(f"k{number}", ["read"])["name"] for number in range(3)]
    assert {key["name"] for key in client.keys.list()} == {own["name"], *names}
    assert len(client.audit.list(limit=2)) == 2
    assert len(client.audit.list(limit=None)) == 4
