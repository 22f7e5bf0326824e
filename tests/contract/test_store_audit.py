"""The audit log, what projects have sent, and keys that two secrets are known for; on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from app.domain.account import Receipt, Scope
from app.domain.audit import Entry, Place, Sought, place_of
from app.domain.run import Exec, ExecPurpose
from app.errors import BadRequest, Conflict, NotFound, Unauthorized
from app.ids import new_id
from infra.store import Stores, create_store
from infra.store.tables import api_keys, audit, execs
from tests import builders as a
from tests.contract.rows import Rows

DAY_S = 24 * 3600
DAY_NS = DAY_S * 10**9
SHA256, OTHER = "0" * 64, "1" * 64


def entry(action: str = "start_run", project_id: str | None = "team", **more: Any) -> Entry:
    return Entry(new_id("audit"), more.pop("actor", "key_1"), action, project_id, **more)


def begun(rows: Rows, *entries: Entry) -> None:
    for each in entries:
        rows.store.audit.begin(each)
        rows.clock.advance(1)


def listed(rows: Rows, project_id: str | None, **sought: Any) -> list[str]:
    found = rows.store.audit.list(project_id, Sought(**sought), 100, None)
    return [each.action for each in found]


def test_an_entry_has_its_time_from_the_database_and_its_outcome_later(rows: Rows) -> None:
    mine = entry(target="run_1", request_id="req_1", client="10.0.0.7")
    now_ns = rows.clock.wall_ns()
    rows.store.audit.begin(mine)
    (seen,) = rows.store.audit.list("team", Sought(), 10, None)
    assert seen == replace(mine, at_ns=now_ns)
    assert seen.outcome == "unknown"
    rows.clock.advance(5)
    rows.store.audit.end(replace(mine, status=404, target="run_2"))
    (ended,) = rows.store.audit.list("team", Sought(), 10, None)
    assert ended == replace(seen, status=404, target="run_2")
    assert ended.outcome == "refused"


def test_an_entry_that_is_begun_twice_stays_as_it_was(rows: Rows) -> None:
    mine = entry()
    begun(rows, replace(mine, status=202), replace(mine, status=409))
    (seen,) = rows.store.audit.list(None, Sought(), 10, None)
    assert seen.status == 202


def test_entries_are_sought_newest_first(rows: Rows) -> None:
    begun(rows, entry("a"), entry("b", actor="key_2"), entry("c", "other"), entry("d", None))
    assert listed(rows, "team") == ["b", "a"]
    assert listed(rows, None) == ["d", "c", "b", "a"]
    assert listed(rows, "team", actor="key_2") == ["b"]
    assert listed(rows, "team", action="a") == ["a"]
    second = rows.store.audit.list("team", Sought(action="b"), 1, None)[0].at_ns
    assert listed(rows, None, begin_ns=second) == ["d", "c", "b"]
    assert listed(rows, None, until_ns=second) == ["a"]


def test_pages_go_on_where_the_last_one_ended_whatever_was_of_one_instant(rows: Rows) -> None:
    for number in range(7):
        rows.store.audit.begin(entry(str(number)))
    seen: list[str] = []
    after: Place | None = None
    while page := rows.store.audit.list("team", Sought(), 2, after):
        seen += [each.action for each in page]
        after = place_of(page[-1])
    assert sorted(seen) == [str(number) for number in range(7)]


def test_what_a_caller_writes_can_be_kept_whatever_it_is(rows: Rows) -> None:
    rows.store.audit.begin(entry(target="\0\ud800", client="\0"))
    (seen,) = rows.store.audit.list("team", Sought(), 10, None)
    assert seen.target == "\ufffd?"


def test_old_entries_are_forgotten_by_pages(rows: Rows) -> None:
    begun(rows, *[entry(str(number)) for number in range(5)])
    rows.clock.advance(DAY_S - 3)
    assert rows.store.audit.forget(DAY_NS, 2) == 2
    assert rows.store.audit.forget(DAY_NS, 2) == 1
    assert rows.store.audit.forget(DAY_NS, 2) == 0
    assert listed(rows, "team") == ["4", "3"]


def test_a_command_and_its_entry_are_there_together_or_not_at_all(rows: Rows) -> None:
    live = rows.ready(rows.started(hold_ns=10**12))
    asked = Exec("exec_1", live.fork.fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
    mine = replace(entry("run_command", a.PROJECT), status=202)
    rows.store.execs.request(asked, mine)
    assert listed(rows, a.PROJECT) == ["run_command"]
    rows.store.execs.request(asked, replace(mine, entry_id="audit_again"))
    assert listed(rows, a.PROJECT) == ["run_command"], "the same command again is no change"
    other = replace(asked, exec_id="exec_2")
    with pytest.raises(NotFound):
        rows.store.execs.request(replace(other, fork_id="fork_none"), replace(mine, entry_id="x"))
    assert listed(rows, a.PROJECT) == ["run_command"]
    with rows.store.database.read() as at:
        assert at.execute(select(execs.c.exec_id)).scalars().all() == ["exec_1"]
        assert at.execute(select(audit.c.at_ns)).scalar_one() == rows.clock.wall_ns()


def test_what_one_project_has_sent_another_has_not(rows: Rows) -> None:
    rows.store.uploads.note("team", SHA256)
    rows.store.uploads.note("team", SHA256)
    rows.store.uploads.note("other", OTHER)
    assert rows.store.uploads.known("team", (SHA256, OTHER)) == {SHA256}
    assert rows.store.uploads.known("nobody", (SHA256, OTHER)) == frozenset()
    assert rows.store.uploads.known("team", ()) == frozenset()


def test_what_was_sent_long_ago_and_not_again_is_forgotten(rows: Rows) -> None:
    rows.store.uploads.note("team", SHA256)
    rows.store.uploads.note("team", OTHER)
    rows.clock.advance(DAY_S)
    rows.store.uploads.note("team", OTHER)
    assert rows.store.uploads.forget(DAY_NS) == 1
    assert rows.store.uploads.known("team", (SHA256, OTHER)) == {OTHER}


@pytest.fixture
def rotated(rows: Rows, url: str) -> Iterator[tuple[Stores, Stores]]:
    """The same rows by a process that knows both secrets, and by one that knows the new one alone."""
    clock = rows.clock.wall_ns
    both = create_store(url, key_secret=b"new", key_secret_previous=OLD, now_ns=clock)
    new = create_store(url, key_secret=b"new", now_ns=clock)
    yield both, new
    both.close()
    new.close()


OLD = b"the secret of the tests' own deployment"


def test_a_key_of_the_previous_secret_is_hashed_anew_where_it_is_used(
    url: str, rows: Rows, rotated: tuple[Stores, Stores]
) -> None:
    both, new = rotated
    old = create_store(url, key_secret=OLD, now_ns=rows.clock.wall_ns)
    (used, secret), (idle, unused) = (old.keys.create("team", name) for name in "ab")
    old.keys.caller_of(secret)  # so that only the secret is a reason to write now
    old.close()
    assert [each.under for each in both.keys.list()] == ["previous", "previous"]
    with pytest.raises(Unauthorized):
        new.keys.caller_of(secret)
    assert both.keys.caller_of(secret).key_id == used.key_id
    assert {each.key_id: each.under for each in both.keys.list()} == {
        used.key_id: "present",
        idle.key_id: "previous",
    }
    assert new.keys.caller_of(secret).key_id == used.key_id
    assert {each.under for each in new.keys.list()} == {"present", "lost"}
    with pytest.raises(Unauthorized):
        new.keys.caller_of(unused)


def test_a_key_of_an_older_release_has_all_scopes_and_is_known_when_it_is_used(rows: Rows) -> None:
    key, secret = rows.store.keys.create("team", "old")
    with rows.store.database.write() as at:
        at.execute(update(api_keys).values(secret_id=None))
    assert [each.under for each in rows.store.keys.list()] == ["unknown"]
    assert rows.store.keys.caller_of(secret).scopes == frozenset(Scope)
    assert [each.under for each in rows.store.keys.list()] == ["present"]
    assert key.scopes == tuple(Scope)


def test_a_use_is_written_at_most_once_a_minute(rows: Rows) -> None:
    _, secret = rows.store.keys.create("team", "busy")

    def used_ns() -> int | None:
        rows.store.keys.caller_of(secret)
        return rows.store.keys.list()[0].used_ns

    first = used_ns()
    assert first == rows.clock.wall_ns()
    rows.clock.advance(59)
    assert used_ns() == first
    rows.clock.advance(1)
    assert used_ns() == rows.clock.wall_ns()


def test_a_key_ends_by_the_databases_clock_and_never_later_than_told(rows: Rows) -> None:
    now_ns = rows.clock.wall_ns()
    lasting = rows.store.keys.create("team", "lasting")[0].key_id
    brief = rows.store.keys.create("team", "brief", expires_s=5)[0].key_id
    ends = [
        rows.store.keys.create("team", "k", expires_s=expires_s, maker=maker)[0].expires_ns
        for expires_s, maker in ((None, None), (60, lasting), (None, brief), (60, brief))
    ]
    assert ends == [None, now_ns + 60 * 10**9, now_ns + 5 * 10**9, now_ns + 5 * 10**9]
    _, secret = rows.store.keys.create("team", "short", expires_s=60)
    rows.clock.advance(59)
    assert rows.store.keys.caller_of(secret).expires_ns is not None
    rows.clock.advance(1)
    with pytest.raises(Unauthorized) as caught:
        rows.store.keys.caller_of(secret)
    assert caught.value.code == "expired_key"


def test_a_key_that_is_over_makes_none(rows: Rows) -> None:
    revoked, brief = (
        rows.store.keys.create("team", "maker", expires_s=expires_s)[0] for expires_s in (None, 60)
    )
    rows.store.keys.revoke(revoked.key_id)
    rows.clock.advance(60)
    before = rows.store.keys.list()
    for maker, project in ((revoked, "team"), (brief, "team"), (revoked, "other")):
        with pytest.raises(Unauthorized):
            rows.store.keys.create(project, "heir", maker=maker.key_id)
    assert rows.store.keys.list() == before


def test_a_key_needs_a_scope(rows: Rows) -> None:
    with pytest.raises(BadRequest, match="opens nothing"):
        rows.store.keys.create("team", "k", scopes=())
    assert rows.store.keys.list() == ()


def test_a_key_and_the_receipt_of_its_call_are_written_together(rows: Rows) -> None:
    def made() -> str:
        return rows.store.keys.create("team", "k", receipt_of=lambda _: receipt)[0].key_id

    receipt = Receipt("once", "sha", {"key_id": "key_1"})
    key_id = made()
    with pytest.raises(Conflict) as caught:
        made()
    assert caught.value.code == "idempotency_race"
    assert [each.key_id for each in rows.store.keys.list()] == [key_id]


def test_of_two_last_admins_that_revoke_each_other_one_stays(rows: Rows) -> None:
    for _ in range(5):
        pair = [rows.store.keys.create("team", "admin", [Scope.ADMIN])[0].key_id for _ in "ab"]

        def revoked(key_id: str) -> bool:
            with suppress(Conflict):
                return rows.store.keys.revoke(key_id, of="team").revoked_ns is not None
            return False

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(revoked, pair)) == [False, True]
        (stays,) = (key for key in rows.store.keys.list("team") if key.revoked_ns is None)
        rows.store.keys.revoke(stays.key_id)


def test_a_key_of_another_project_is_not_there_to_be_revoked(rows: Rows) -> None:
    key, secret = rows.store.keys.create("team", "k")
    with pytest.raises(NotFound):
        rows.store.keys.revoke(key.key_id, of="other")
    assert rows.store.keys.caller_of(secret).key_id == key.key_id
    assert rows.store.keys.list("other") == ()
