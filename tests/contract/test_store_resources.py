"""Rows of volumes and snapshots: written before the cloud is asked, kept after they are gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.domain.cloud import Resource, ResourceKind
from app.domain.money import NS_PER_SECOND
from app.errors import Conflict, NotFound, PromigenceError
from infra.store.resources import KEPT_NS
from tests import builders as a
from tests.contract.rows import Rows

MINUTE_NS = 60 * NS_PER_SECOND


def test_what_is_intended_has_the_databases_time_and_a_deadline(rows: Rows) -> None:
    now_ns = rows.clock.wall_ns()
    asked = a.volume("tok_1", cloud_id="vol-9", intended_ns=5, made_ns=6, gone_ns=7)
    noted = rows.store.resources.intend(asked, MINUTE_NS)
    assert noted == a.volume("tok_1", intended_ns=now_ns, deadline_ns=now_ns + MINUTE_NS)
    assert rows.store.resources.living() == (noted,)


def test_of_two_with_one_token_the_first_is_what_counts(rows: Rows) -> None:
    resources = rows.store.resources
    first = resources.intend(a.volume("tok_1"), MINUTE_NS)
    rows.clock.advance(1)
    assert resources.intend(a.volume("tok_1", bundle_id="other"), 2 * MINUTE_NS) == first
    resources.gone("tok_1")
    again = resources.intend(a.volume("tok_1"), MINUTE_NS)
    assert again.gone_ns == rows.clock.wall_ns()
    assert resources.living() == ()


def test_of_many_at_once_with_one_token_all_get_the_first(rows: Rows) -> None:
    bundles = [f"build_{n}" for n in range(8)]
    with ThreadPoolExecutor(len(bundles)) as pool:
        noted = list(
            pool.map(
                lambda bundle_id: rows.store.resources.intend(
                    a.volume("tok_1", bundle_id=bundle_id), MINUTE_NS
                ),
                bundles,
            )
        )
    assert set(noted) == set(rows.store.resources.living())
    assert len(set(noted)) == 1


def test_of_two_ids_at_once_for_one_token_one_is_refused(rows: Rows) -> None:
    rows.store.resources.intend(a.volume("tok_1"), MINUTE_NS)

    def made(cloud_id: str) -> str:
        try:
            rows.store.resources.made("tok_1", cloud_id)
        except Conflict as refused:
            return refused.code
        return cloud_id

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(made, ("vol-1", "vol-2")))
    (row,) = rows.store.resources.living()
    assert sorted(told) == sorted(["resource_differs", str(row.cloud_id)])


def test_from_intent_to_its_owner_and_to_its_end(rows: Rows) -> None:
    resources = rows.store.resources
    noted = resources.intend(a.volume("tok_1"), MINUTE_NS)
    rows.clock.advance(1)
    made_ns = rows.clock.wall_ns()
    resources.made("tok_1", "vol-1")
    assert resources.living() == (replace(noted, cloud_id="vol-1", made_ns=made_ns),)
    rows.clock.advance(1)
    resources.made("tok_1", "vol-1")
    resources.settle("tok_1")
    resources.settle("tok_1")
    settled = replace(noted, cloud_id="vol-1", made_ns=made_ns, deadline_ns=None)
    assert resources.living() == (settled,)
    gone_ns = rows.clock.wall_ns()
    resources.gone("tok_1")
    rows.clock.advance(1)
    resources.gone("tok_1")
    assert resources.living() == ()
    assert resources.made_within(0, gone_ns) == (replace(settled, gone_ns=gone_ns),)


def test_what_was_never_made_can_be_given_up(rows: Rows) -> None:
    rows.store.resources.intend(a.volume("tok_1"), MINUTE_NS)
    rows.store.resources.gone("tok_1")
    assert rows.store.resources.living() == ()
    assert rows.store.resources.made_within(0, rows.clock.wall_ns() + 1) == ()


def test_a_second_id_for_one_token_is_nobodys(rows: Rows) -> None:
    rows.store.resources.intend(a.volume("tok_1"), MINUTE_NS)
    rows.store.resources.made("tok_1", "vol-1")
    with pytest.raises(Conflict) as refused:
        rows.store.resources.made("tok_1", "vol-2")
    assert refused.value.code == "resource_differs"
    assert [each.cloud_id for each in rows.store.resources.living()] == ["vol-1"]


def test_what_is_made_after_it_was_given_up_is_nobodys(rows: Rows) -> None:
    rows.store.resources.intend(a.volume("tok_1"), MINUTE_NS)
    rows.store.resources.gone("tok_1")
    with pytest.raises(Conflict) as refused:
        rows.store.resources.made("tok_1", "vol-1")
    assert refused.value.code == "resource_gone"
    with pytest.raises(Conflict) as refused:
        rows.store.resources.settle("tok_1")
    assert refused.value.code == "resource_gone"


def test_what_the_cloud_has_not_answered_for_is_not_settled(rows: Rows) -> None:
    noted = rows.store.resources.intend(a.volume("tok_1"), MINUTE_NS)
    with pytest.raises(Conflict) as refused:
        rows.store.resources.settle("tok_1")
    assert refused.value.code == "resource_not_made"
    assert rows.store.resources.living() == (noted,)


def test_a_token_of_no_row_is_an_error_but_for_what_is_gone(rows: Rows) -> None:
    with pytest.raises(NotFound):
        rows.store.resources.made("tok_none", "vol-1")
    with pytest.raises(NotFound):
        rows.store.resources.settle("tok_none")
    rows.store.resources.gone("tok_none")


def test_a_volume_without_a_place_is_refused_and_leaves_no_row(rows: Rows) -> None:
    with pytest.raises(PromigenceError) as refused:
        rows.store.resources.intend(a.volume("tok_1", zone=None), MINUTE_NS)
    assert refused.value.code == "constraint_refused"
    assert rows.store.resources.living() == ()


def test_they_are_found_by_owner_oldest_first(rows: Rows) -> None:
    resources = rows.store.resources
    resources.intend(a.volume("tok_z"), MINUTE_NS)
    rows.clock.advance(1)
    resources.intend(a.volume("tok_a", host_id="host2"), MINUTE_NS)
    resources.intend(a.stored("tok_s"), MINUTE_NS)
    resources.intend(a.volume("tok_b", bundle_id="build_2"), MINUTE_NS)
    resources.intend(a.volume("tok_gone"), MINUTE_NS)
    resources.gone("tok_gone")
    assert _tokens(resources.of_bundle("build_1")) == ["tok_z", "tok_a", "tok_s"]
    assert _tokens(resources.of_host(a.HOST)) == ["tok_z", "tok_b"]
    assert _tokens(resources.of_host("host9")) == []
    assert _tokens(resources.living(ResourceKind.SNAPSHOT)) == ["tok_s"]
    assert _tokens(resources.living()) == ["tok_z", "tok_a", "tok_b", "tok_s"]


def test_a_statement_counts_what_was_there_at_some_moment_of_its_window(rows: Rows) -> None:
    resources = rows.store.resources
    began_ns = rows.clock.wall_ns()
    for token, cloud_id in (("tok_1", "vol-1"), ("tok_2", "vol-2")):
        resources.intend(a.volume(token), MINUTE_NS)
        resources.made(token, cloud_id)
    rows.clock.advance(10)
    resources.gone("tok_1")
    ended_ns = rows.clock.wall_ns()
    assert _tokens(resources.made_within(began_ns, began_ns + 1)) == ["tok_1", "tok_2"]
    assert _tokens(resources.made_within(began_ns - 9, began_ns)) == []
    assert _tokens(resources.made_within(ended_ns, ended_ns + 1)) == ["tok_2"]
    assert _tokens(resources.made_within(ended_ns - 1, ended_ns)) == ["tok_1", "tok_2"]


def test_what_is_long_gone_is_forgotten_and_what_lives_never_is(rows: Rows) -> None:
    resources = rows.store.resources
    for token in ("tok_lives", "tok_gone"):
        resources.intend(a.volume(token), MINUTE_NS)
        resources.made(token, f"vol-{token}")
    resources.gone("tok_gone")
    rows.clock.advance(KEPT_NS / NS_PER_SECOND)
    resources.forget()
    now_ns = rows.clock.wall_ns() + 1
    assert _tokens(resources.made_within(0, now_ns)) == ["tok_gone", "tok_lives"]
    rows.clock.advance(1)
    resources.forget()
    assert _tokens(resources.made_within(0, now_ns)) == ["tok_lives"]


def _tokens(found: tuple[Resource, ...]) -> list[str]:
    return [each.token for each in found]
