"""Keys and quotes."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import select

from app.domain.account import Caller, Scope
from app.errors import BadRequest, NotFound, PromigenceError, Unauthorized
from infra.store import create_store
from infra.store.tables import api_keys
from tests import builders as a
from tests.contract.rows import Rows


def test_a_secret_names_its_project_and_is_nowhere_stored(rows: Rows) -> None:
    key, secret = rows.store.keys.create("team", "laptop")
    assert re.fullmatch(r"pmg_[0-9a-f]{64}", secret)
    assert (key.project_id, key.name, key.prefix) == ("team", "laptop", secret[:12])
    assert rows.store.keys.list() == (key,)
    assert rows.store.keys.caller_of(secret) == Caller("team", key.key_id, frozenset(Scope))
    with rows.store.database.read() as at:
        (row,) = at.execute(select(api_keys))
    assert secret not in str(tuple(row))
    assert secret[12:] not in str(tuple(row))


def test_a_key_makes_no_project_of_any_name(rows: Rows) -> None:
    with pytest.raises(BadRequest, match="a project's name"):
        rows.store.keys.create("a team", "laptop")
    assert rows.store.keys.list() == ()
    assert rows.store.projects.list() == ()


@pytest.mark.parametrize("secret", ["", "pmg_", "pmg_" + "0" * 64, "\ud800", "x" * 10_000, "\0"])
def test_a_wrong_key_is_refused(rows: Rows, secret: str) -> None:
    rows.store.keys.create("team", "laptop")
    with pytest.raises(Unauthorized) as caught:
        rows.store.keys.caller_of(secret)
    assert caught.value.code == "wrong_key"


def test_a_revoked_key_is_refused_for_ever(rows: Rows) -> None:
    key, secret = rows.store.keys.create("team", "laptop")
    _, other = rows.store.keys.create("team", "cluster")
    revoked = rows.store.keys.revoke(key.key_id)
    rows.clock.advance(5)
    assert rows.store.keys.revoke(key.key_id) == revoked
    with pytest.raises(Unauthorized) as caught:
        rows.store.keys.caller_of(secret)
    assert caught.value.code == "revoked_key"
    assert rows.store.keys.caller_of(other).project_id == "team"
    with pytest.raises(NotFound):
        rows.store.keys.revoke("key_none")


def test_a_hash_is_worth_nothing_without_the_deployments_secret(rows: Rows, url: str) -> None:
    _, secret = rows.store.keys.create("team", "laptop")
    elsewhere = create_store(url, key_secret=b"another deployment's secret")
    with pytest.raises(Unauthorized):
        elsewhere.keys.caller_of(secret)
    elsewhere.close()
    host = create_store(url)
    with pytest.raises(PromigenceError) as caught:
        host.keys.caller_of(secret)
    assert caught.value.code == "no_key_secret"
    host.close()


def test_a_quote_is_read_as_it_was_given(rows: Rows) -> None:
    quote = a.quote(expires_ns=rows.clock.wall_ns())
    rows.store.quotes.save(a.PROJECT, quote, "sha")
    assert rows.store.quotes.get(a.PROJECT, quote.quote_id) == (quote, "sha")
    with pytest.raises(NotFound) as caught:
        rows.store.quotes.get(a.PROJECT, "quote_none")
    assert caught.value.code == "unknown_quote"


def test_a_quote_long_over_is_forgotten(rows: Rows) -> None:
    old = a.quote(expires_ns=rows.clock.wall_ns())
    rows.store.quotes.save(a.PROJECT, old, "sha")
    rows.clock.advance(24 * 3600)
    rows.store.quotes.save(a.PROJECT, a.quote(expires_ns=rows.clock.wall_ns()), "sha")
    with pytest.raises(NotFound):
        rows.store.quotes.get(a.PROJECT, old.quote_id)
