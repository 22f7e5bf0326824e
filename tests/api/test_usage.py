"""The usage statement over the API: a project's own, in money that its runs were charged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.instant import instant
from app.domain.money import NS_PER_HOUR
from app.domain.rates import Commitment
from app.flow.usage import read_asked, usage
from tests.api.world import STEP, Door


def ran(door: Door) -> float:
    """Two steps to their end; what the builds and runs of the project were charged."""
    for _ in range(2):
        run_id = door.post("/v1/runs", STEP, 201)["run_id"]
        door.stage.run_until_final(run_id)
        door.stage.clock.advance(3600)
    door.stage.ports.hosts.heartbeat("host0", ())
    with door.stage.stores.database.read() as at:
        (charged,) = at.exec_driver_sql("SELECT sum(charged_micros) FROM run").one()
    return float(charged) / 1_000_000


def test_a_statement_says_what_was_charged_and_for_what(suite: Door) -> None:
    charged = ran(suite)
    page = suite.get("/v1/usage")
    assert page["total"]["charged_usd"] == charged > 0
    assert page["total"]["accruing_usd"] == 0
    assert (page["project"], page["by"], page["card_version"]) == ("default", ["day"], "test-1")
    assert page["from"] == "2027-01-01T00:00:00.000Z"
    assert page["complete_until"] < page["as_of"] <= page["until"]
    (day,) = page["rows"]
    assert (day["day"], day["hour"], day["snapshot"]) == ("2027-01-15", None, None)
    by_snapshot = suite.get("/v1/usage", by="hour,snapshot")
    assert {row["snapshot"] for row in by_snapshot["rows"]} == {"task-suite", "task-suite@1"}
    assert by_snapshot["total"] == page["total"]
    assert len({row["hour"] for row in by_snapshot["rows"]}) == 2


def test_without_a_commitment_all_use_is_overflow(suite: Door) -> None:
    ran(suite)
    told = suite.get("/v1/usage")["total"]["estimate"]
    assert told["overflow_usd"] == told["on_demand_equivalent_usd"] > 0
    assert told["committed_usd"] == told["used_usd"] == told["idle_usd"] == 0


def test_a_stranger_sees_nothing_of_it_but_what_the_commitment_is_used_for(suite: Door) -> None:
    charged = ran(suite)
    _commit(suite)
    page: Any = suite.client.get("/v1/usage", headers=suite.as_stranger()).json()
    told = page["total"]["estimate"]
    assert (page["project"], page["total"]["forks"], page["total"]["charged_usd"]) == (
        "stranger", 0, 0,
    )  # fmt: skip
    assert told["used_usd"] == told["overflow_usd"] == 0
    assert told["used_by_others_usd"] > 0
    committed = told["used_by_others_usd"] + told["idle_usd"]
    assert told["committed_usd"] == pytest.approx(committed, abs=5e-7)
    everybody: Any = usage(suite.stage.ports, None, read_asked(None, None, "project"))
    assert [row["project"] for row in everybody["rows"]] == ["default"]
    assert everybody["total"]["charged_usd"] == charged
    assert everybody["total"]["estimate"]["used_usd"] == told["used_by_others_usd"]


def test_hours_in_which_nothing_ran_show_what_was_idle(door: Door) -> None:
    _commit(door)
    began = instant(door.stage.clock.wall_ns())
    door.stage.clock.advance(2 * 3600)
    page = door.get("/v1/usage", by="hour", **{"from": began})
    assert [row["estimate"]["idle_usd"] for row in page["rows"]][:-1] == [2.5, 2.5]
    assert all(row["charged_usd"] == 0 for row in page["rows"])


def test_machines_that_live_are_shown_apart_from_what_was_charged(suite: Door) -> None:
    suite.held_fork()
    before = suite.get("/v1/usage")
    suite.stage.clock.advance(10)
    page = suite.get("/v1/usage")
    assert page["total"]["charged_usd"] == before["total"]["charged_usd"]
    assert page["total"]["accruing_usd"] > before["total"]["accruing_usd"] > 0
    assert page["complete_until"] < page["as_of"]


def test_a_window_is_rounded_outwards_and_said(suite: Door) -> None:
    ran(suite)
    now_ns = suite.stage.clock.wall_ns()
    page = suite.get("/v1/usage", **{"from": instant(now_ns - 1), "until": instant(now_ns)})
    hour_ns = now_ns - now_ns % NS_PER_HOUR
    assert page["from"] == instant(hour_ns)
    assert page["until"] == instant(hour_ns + NS_PER_HOUR)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"by": "week"}, "bad_request"),
        ({"by": ""}, "bad_request"),
        ({"by": "day,,project"}, "bad_request"),
        ({"by": "x" * 65}, "bad_request"),
        ({"from": "yesterday"}, "bad_request"),
        ({"from": "2026-11-01T00:00:00"}, "bad_request"),
        ({"until": "1969-01-01"}, "bad_request"),
        ({"until": "x" * 65}, "bad_request"),
        ({"from": "2027-01-02", "until": "2027-01-01"}, "bad_window"),
        ({"from": "2099-01-01", "until": "2099-01-02"}, "bad_window"),
        ({"from": "2020-01-01"}, "bad_window"),
        ({"until": "0001-01-01T00:00:00Z"}, "bad_request"),
        ({"from": "9999-12-31T23:59:59-12:00"}, "bad_window"),
        ({"since": "2027-01-01"}, "unknown_field"),
    ],
)
def test_what_is_no_window_or_no_row_is_refused(
    still: Door, query: dict[str, str], code: str
) -> None:
    still.refused("GET", "/v1/usage", 400, code, params=query)


def _commit(door: Door) -> None:
    """A commitment of 2 vCPUs for 2.50 USD an hour, in all the hours of these tests."""
    now_ns = door.stage.clock.wall_ns()
    hour_ns = now_ns - now_ns % NS_PER_HOUR
    bought = Commitment(2, 2_500_000, hour_ns - 10 * NS_PER_HOUR, hour_ns + 100 * NS_PER_HOUR)
    stage, state = door.stage, door.api.state
    stage.ports = replace(stage.ports, rates=replace(stage.ports.rates, commitment=bought))
    state.context = replace(state.context, ports=stage.ports)
