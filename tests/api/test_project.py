"""A project's limits: what its members read, and what quotes and starts say of them."""

from __future__ import annotations

from app.api.schemas.run import Quote
from app.domain.account import Limits
from tests.api.world import DEFINITION, HOLD, STEP, Door
from tests.flow.stage import PROJECT

# A fork of STEP costs 30 s + 60 s, and 30 s for each of two replacements, at 10 micro-dollars a second; it starts with
# no less than a minute.
WORST, SMALLEST = 2 * 1500, 2 * 600


def limit(door: Door, **changes: int | None) -> None:
    door.stage.stores.projects.set_limits(PROJECT, Limits(**changes))  # type: ignore[typeddict-item]


def test_a_project_without_limits(door: Door) -> None:
    page = door.get("/v1/project")
    assert page["project"] == PROJECT
    assert (page["monthly_budget_usd"], page["left_usd"], page["max_forks"]) == (None, None, None)
    assert page["month"] == "2027-01"
    assert page["resets_at"] == "2027-02-01T00:00:00.000Z"


def test_charged_reserved_and_left_add_up_while_a_run_goes_on(suite: Door) -> None:
    before = suite.get("/v1/project")["charged_usd"]
    limit(suite, monthly_budget_micros=1_000_000, max_forks=10)
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    suite.stage.run_for(2)
    page = suite.get("/v1/project")
    held = suite.get(f"/v1/runs/{run_id}")["quote"]["max_cost_usd"]
    assert (page["charged_usd"], page["reserved_usd"]) == (before, held)
    assert page["left_usd"] == round(1.0 - before - held, 6)
    assert (page["max_forks"], page["live_forks"]) == (10, 2)
    suite.post(f"/v1/runs/{run_id}/cancel", None)
    suite.stage.run_for(2)
    page = suite.get("/v1/project")
    spent = suite.get(f"/v1/runs/{run_id}")["cost"]["total_usd"]
    assert spent > 0
    assert (page["charged_usd"], page["reserved_usd"]) == (round(before + spent, 6), 0)
    assert page["left_usd"] == round(1.0 - before - spent, 6)
    assert page["live_forks"] == 0


def test_a_stranger_sees_the_strangers_project(door: Door) -> None:
    limit(door, max_forks=10)
    page = door.client.get("/v1/project", headers=door.as_stranger()).json()
    assert (page["project"], page["max_forks"], page["charged_usd"]) == ("stranger", None, 0)


def test_a_quote_says_which_limit_binds(suite: Door) -> None:
    quote = suite.post("/v1/quotes", STEP)
    assert quote["limits"] == {
        "binding": "worst_case",
        "project_left_usd": None,
        "project_max_forks": None,
        "project_live_forks": 0,
    }
    assert quote["concurrency"] == {
        "requested": 2,
        "slots": 100,
        "free_now": 100,
        "binding": "request",
    }
    limit(suite, monthly_budget_micros=committed(suite) + SMALLEST + 1, max_forks=1)
    quote = suite.post("/v1/quotes", STEP)
    assert quote["max_cost_usd"] == quote["limits"]["project_left_usd"] == (SMALLEST + 1) / 1e6
    assert quote["limits"]["binding"] == "project_budget"
    assert quote["limits"]["project_max_forks"] == 1
    assert quote["concurrency"] == {
        "requested": 2,
        "slots": 1,
        "free_now": 1,
        "binding": "project",
    }
    assert quote["funded_seconds_per_fork"] == 60.0


def test_too_little_left_is_refused_with_what_is_needed(suite: Door) -> None:
    limit(suite, monthly_budget_micros=committed(suite) + SMALLEST - 1)
    for path in ("/v1/quotes", "/v1/runs"):
        error = suite.refused("POST", path, 409, "project_budget_exhausted", json=STEP)
        assert not error["retryable"]
        assert error["details"]["needed_usd"] == SMALLEST / 1e6
        assert error["details"]["project_left_usd"] == (SMALLEST - 1) / 1e6
        assert error["details"]["resets_at"] == "2027-02-01T00:00:00.000Z"
    assert suite.get("/v1/runs")["runs"] == []


def test_a_quote_is_no_reservation(suite: Door) -> None:
    """What was quoted is refused when others have taken it meanwhile, and nothing is left behind."""
    limit(suite, monthly_budget_micros=committed(suite) + WORST + SMALLEST - 1)
    held = suite.post("/v1/quotes", STEP)
    other = suite.post("/v1/runs", STEP, 201, key="other")
    late = {**STEP, "quote_id": held["quote_id"]}
    headers = {"Idempotency-Key": "late"}
    error = suite.refused(
        "POST", "/v1/runs", 409, "project_budget_exhausted", json=late, headers=headers
    )
    assert error["details"]["project_left_usd"] == (SMALLEST - 1) / 1e6
    assert [run["run_id"] for run in suite.get("/v1/runs")["runs"]] == [other["run_id"]]
    # What the other did not spend is back when it ends, and the same call with the same key does what it says.
    suite.stage.run_until_final(other["run_id"])
    assert suite.post("/v1/runs", late, 201, key="late")["quote"] == held


def test_a_build_counts_for_the_budget(door: Door) -> None:
    limit(door, monthly_budget_micros=committed(door) + 1)
    body = {"definition": {**DEFINITION, "name": "other"}, "files": []}
    error = door.refused("POST", "/v1/snapshots", 409, "project_budget_exhausted", json=body)
    assert error["details"]["project_left_usd"] == 0.000001
    limit(door, monthly_budget_micros=None)
    before = committed(door)
    door.post("/v1/snapshots", body, 202)
    assert committed(door) > before


def test_what_a_run_waits_for_is_its_projects_limit(suite: Door) -> None:
    limit(suite, max_forks=1)
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    suite.stage.run_for(2)
    progress = suite.get(f"/v1/runs/{run_id}")["progress"]
    assert (progress["ready"], progress["queued"]) == (1, 1)
    expected = "1 fork waits: the project's limit of 1 at once is reached"
    assert progress["waiting_for"] == expected
    assert suite.get("/v1/runs")["runs"][0]["progress"]["waiting_for"] == expected
    limit(suite, max_forks=2)
    suite.stage.run_for(2)
    assert suite.get(f"/v1/runs/{run_id}")["progress"]["ready"] == 2


def test_an_answer_of_a_release_without_limits_is_given_again(suite: Door) -> None:
    """It was kept for its idempotency key before the upgrade."""
    quote = suite.post("/v1/quotes", STEP)
    del quote["limits"], quote["concurrency"]["binding"]
    again = Quote.model_validate(quote)
    assert (again.limits.binding, again.limits.project_left_usd) == ("worst_case", None)
    capped = Quote.model_validate(quote | {"max_cost_usd": quote["worst_case_usd"] / 2})
    assert capped.limits.binding == "spend_cap"


def committed(door: Door) -> int:
    return door.stage.stores.projects.get(PROJECT).committed_micros
