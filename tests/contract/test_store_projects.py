"""Projects: a month's budget and a limit of forks, held by the database whoever comes at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, update

from app.domain.account import month_end_ns, month_of
from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Placement
from app.domain.run import Run
from app.errors import BadRequest, Conflict, FailureKind, NotFound, PromigenceError
from infra.fakes.clock import START_WALL_NS
from infra.store import Stores, budgets, create_store
from infra.store.tables import forks, project_months, projects
from tests import builders as a
from tests.contract import spender
from tests.contract.rows import Rows

MONTH = month_of(START_WALL_NS)


def test_a_project_that_nobody_made_has_no_limits(rows: Rows) -> None:
    project = rows.store.projects.get("nobody")
    assert (project.month, project.left_micros, project.free_forks) == (MONTH, None, None)
    assert rows.store.projects.list() == ()
    with pytest.raises(NotFound, match="there is no project nobody"):
        rows.store.projects.account("nobody")


def test_limits_change_one_by_one_and_none_takes_one_away(rows: Rows) -> None:
    store = rows.store.projects
    store.set_limits("lab", {"monthly_budget_micros": 5_000_000})
    store.set_limits("lab", {"max_forks": 8})
    store.set_limits("lab", {})
    project = store.get("lab")
    assert (project.monthly_budget_micros, project.max_forks) == (5_000_000, 8)
    store.set_limits("lab", {"monthly_budget_micros": None})
    project = store.get("lab")
    assert (project.monthly_budget_micros, project.max_forks) == (None, 8)
    with pytest.raises(BadRequest):
        store.set_limits("no name", {})
    assert [account.project.project_id for account in store.list()] == ["lab"]


def test_a_budget_goes_from_reserved_to_charged_to_given_back(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 1_000_000})
    claimed = rows.started(2)
    assert _account(rows) == (200_000, 0, 800_000)
    rows.close(claimed, at_s=5)
    assert _account(rows) == (195_000, 5_000, 800_000)
    rows.close(rows.open(), at_s=7)
    assert _account(rows) == (0, 12_000, 988_000)


def test_a_run_that_never_had_a_machine_gives_all_of_it_back(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 200_000})
    run = rows.start(2)
    assert _account(rows) == (200_000, 0, 0)
    rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    assert _account(rows) == (0, 0, 200_000)


def test_a_month_that_another_start_begins_between_two_looks_refuses_nobody(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = budgets._has_begun

    def begun_meanwhile(at: Connection, project_id: str, month: str) -> bool:
        budgets.open_month(at, project_id, month, rows.clock.wall_ns())
        return looks(at, project_id, month)

    monkeypatch.setattr(budgets, "_has_begun", begun_meanwhile)
    rows.start(2)
    assert _account(rows) == (200_000, 0, None)


def test_what_does_not_fit_is_refused_and_leaves_nothing(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 299_999})
    rows.start(2)
    run, its_forks = a.step(1)
    with pytest.raises(Conflict) as refused:
        rows.store.runs.start(run, its_forks, None)
    assert refused.value.code == "project_budget_exhausted"
    assert refused.value.details["project_left_usd"] == 0.099999
    with pytest.raises(NotFound):
        rows.run(run.run_id)
    rows.start(1, budget_micros=99_999)
    assert _account(rows)[2] == 0


def test_a_builds_run_is_counted_too(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 1_000_000})
    build, run, template = a.build(budget_micros=1_000_000)
    rows.store.builds.start(build, run, template, None)
    assert _account(rows) == (1_000_000, 0, 0)
    again, run, template = a.build(budget_micros=1)
    with pytest.raises(Conflict, match=r"has 0\.0 USD left"):
        rows.store.builds.start(again, run, template, None)
    with pytest.raises(NotFound):
        rows.store.builds.get(a.PROJECT, again.build_id)


def test_a_run_is_of_the_month_that_it_began_in(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 200_000})
    rows.host()
    old = rows.start(2)
    rows.place()
    claimed = rows.open()
    until_next_s = (month_end_ns(MONTH) - rows.clock.wall_ns()) / NS_PER_SECOND
    rows.clock.advance(until_next_s - 1)
    assert rows.store.projects.get(a.PROJECT).left_micros == 0
    rows.clock.advance(2)
    assert _account(rows) == (0, 0, 200_000)
    rows.start(2)
    rows.check_laws()
    rows.close(claimed, at_s=5)
    rows.store.runs.ask_stop(old.run_id, EndReason.CANCELLED)
    assert _account(rows) == (200_000, 0, 0)
    assert _committed(rows) == {MONTH: 5_000, month_of(month_end_ns(MONTH)): 200_000}


def test_a_month_of_utc_ends_at_its_last_instant(rows: Rows) -> None:
    last = datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    rows.clock.advance(last - rows.clock.wall_ns() / NS_PER_SECOND)
    assert rows.store.projects.get("lab").month == "2027-01"
    rows.clock.advance(2)
    assert rows.store.projects.get("lab").month == "2027-02"


def test_a_budget_is_changed_for_this_month_and_those_to_come(rows: Rows) -> None:
    store = rows.store.projects
    rows.start(2)
    with pytest.raises(Conflict, match=r"hold or were charged 0\.2 USD") as refused:
        store.set_limits(a.PROJECT, {"monthly_budget_micros": 199_999, "max_forks": 3})
    assert refused.value.code == "budget_committed"
    assert store.get(a.PROJECT).max_forks is None
    store.set_limits(a.PROJECT, {"monthly_budget_micros": 200_000})
    rows.clock.advance((month_end_ns(MONTH) - rows.clock.wall_ns()) / NS_PER_SECOND)
    rows.start(2)
    with pytest.raises(Conflict):
        rows.start(1)
    store.set_limits(a.PROJECT, {"monthly_budget_micros": 300_000})
    rows.start(1)


def test_a_month_that_others_have_begun_gets_a_new_budget_too(rows: Rows, url: str) -> None:
    """Who changes a budget just before midnight may come after a run that has started just after it."""
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 100_000})
    rows.clock.advance((month_end_ns(MONTH) - rows.clock.wall_ns()) / NS_PER_SECOND)
    rows.start(1)
    late = create_store(url, now_ns=lambda: month_end_ns(MONTH) - 1)
    late.projects.set_limits(a.PROJECT, {"monthly_budget_micros": 300_000})
    late.close()
    rows.start(2)
    assert _account(rows) == (300_000, 0, 0)


def test_no_more_forks_are_placed_than_the_limit_allows(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 3})
    rows.host()
    run = rows.start(5)
    assert rows.place() == 3
    assert rows.place() == 0
    rows.check_laws()
    first = rows.open()
    rows.close(first, at_s=5, then=None, failure=a.failed())
    assert rows.fork(first.fork.fork_id).host_id is None
    assert (rows.store.projects.get(a.PROJECT).live_forks, rows.place()) == (2, 1)
    rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    assert rows.store.projects.get(a.PROJECT).live_forks == 0


def test_a_choice_beyond_the_limit_is_left_out(rows: Rows) -> None:
    rows.host()
    rows.start(4)
    choices = tuple(
        Placement(each.fork_id, a.HOST, each.shape, "") for each in rows.store.hosts.waiting(10)
    )
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 3})
    assert rows.store.hosts.assign(choices) == choices[:3]


def test_a_limit_is_not_below_what_is_placed(rows: Rows) -> None:
    rows.started(3)
    with pytest.raises(Conflict, match="3 forks of default are live"):
        rows.store.projects.set_limits(a.PROJECT, {"max_forks": 2})
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 3})


def test_a_template_counts_as_a_fork(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 1})
    rows.host()
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.start()
    assert rows.place() == 1
    assert rows.store.projects.get(a.PROJECT).free_forks == 0


def test_what_waits_on_a_host_that_died_is_no_longer_placed(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 2})
    rows.host()
    rows.start(2)
    rows.place()
    rows.clock.advance(16)
    rows.store.hosts.unassign_dead()
    assert rows.store.projects.get(a.PROJECT).free_forks == 2


def test_nobody_waits_behind_a_project_at_its_limit(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 2})
    rows.host()
    _started_by(rows.store, a.PROJECT, 5)
    rows.clock.advance(1)
    _started_by(rows.store, "other", 3)
    assert _waiting(rows, 4) == [a.PROJECT] * 2 + ["other"] * 2
    rows.place()
    assert _waiting(rows, 4) == []
    assert rows.store.projects.get("other").live_forks == 3


def test_oldest_first_within_a_limit(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 3})
    older = rows.start(2)
    rows.clock.advance(1)
    newer = rows.start(2)
    waiting = [each.run_id for each in rows.store.hosts.waiting(10)]
    assert waiting == [older.run_id, older.run_id, newer.run_id]


def test_waiting_too_long_for_the_limit_says_so(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 1})
    rows.host()
    run = rows.start(2, queue_timeout_ns=60 * NS_PER_SECOND)
    rows.place()
    rows.open()
    rows.clock.advance(61)
    rows.expire_queued()
    failure = rows.store.runs.forks(run.run_id)[1].failure
    assert failure is not None
    assert failure.kind is FailureKind.NO_CAPACITY
    assert failure.message == "the project's limit had no room within 60 s"
    assert failure.evidence["project_max_forks"] == failure.evidence["project_live_forks"] == 1


def test_placers_at_once_share_the_limit(rows: Rows) -> None:
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 7})
    rows.host(slots=10)
    rows.host("host1", slots=10)
    rows.start(24)
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": None})
    waiting = rows.store.hosts.waiting(24)
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 7})
    start = threading.Barrier(6)

    def place(number: int) -> int:
        mine = waiting[4 * number : 4 * number + 4]
        host_id = f"host{number % 2}"
        start.wait(timeout=20)
        chosen = tuple(Placement(each.fork_id, host_id, each.shape, "") for each in mine)
        return len(rows.store.hosts.assign(chosen))

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(place, range(6))) == 7


@pytest.mark.parametrize(
    ("row", "broken", "constraint"),
    [
        (projects, {"live_forks": 4}, "ck_project_within_the_limit"),
        (projects, {"max_forks": 1}, "ck_project_within_the_limit"),
        (projects, {"live_forks": -1}, "ck_project_live_forks_not_negative"),
        (project_months, {"committed_micros": 300_001}, "ck_project_month_within_the_budget"),
        (project_months, {"budget_micros": 199_999}, "ck_project_month_within_the_budget"),
        (project_months, {"committed_micros": -1}, "ck_project_month_committed_micros_not_neg"),
    ],
)
def test_the_database_refuses_what_would_break_a_limit(
    rows: Rows, row: type, broken: dict[str, int], constraint: str
) -> None:
    limits = {"monthly_budget_micros": 300_000, "max_forks": 3}
    rows.store.projects.set_limits(a.PROJECT, limits)  # type: ignore[arg-type]
    rows.started(2)
    with (
        pytest.raises(PromigenceError, match=constraint) as caught,
        rows.store.database.write() as at,
    ):
        at.execute(update(row).values(broken))
    assert caught.value.code == "constraint_refused"


def test_processes_at_once_never_start_more_than_the_budget(rows: Rows, url: str) -> None:
    """Each starts runs as long as it can, and ends some of them so that others fit again."""
    budget = 5 * spender.BUDGET + spender.BUDGET // 2
    rows.store.projects.set_limits(a.PROJECT, {"monthly_budget_micros": budget})
    command = [sys.executable, "-m", spender.__name__, url]
    spenders = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(3)
    ]
    told = [json.loads(each.communicate(timeout=100)[0]) for each in spenders]
    assert [each.returncode for each in spenders] == [0] * 3
    assert all(each["project_budget_exhausted"] > 0 for each in told)
    assert sum(each["started"] for each in told) > 6
    rows.check_laws()
    live = sum(each["started"] - each["ended"] for each in told)
    held = live * spender.BUDGET
    assert _account(rows) == (held, 0, budget - held)


def _account(rows: Rows) -> tuple[int, int, int | None]:
    """What is reserved, charged and left this month."""
    account = rows.store.projects.account(a.PROJECT)
    return account.reserved_micros, account.charged_micros, account.project.left_micros


def _committed(rows: Rows) -> dict[str, int]:
    with rows.store.database.read() as at:
        months = at.execute(project_months.select())
        return {row.month: row.committed_micros for row in months}


def _started_by(store: Stores, project_id: str, count: int) -> Run:
    run, its_forks = a.step(count, fork_fields={"project_id": project_id})
    run = replace(run, project_id=project_id)
    store.runs.start(run, its_forks, None)
    return run


def _waiting(rows: Rows, limit: int) -> list[str]:
    """Whose forks wait, in their order."""
    waiting = rows.store.hosts.waiting(limit)
    with rows.store.database.read() as at:
        owners = {row.fork_id: row.project_id for row in at.execute(forks.select())}
    return [owners[each.fork_id] for each in waiting]
