"""The usage statement of a random history: of any time and in any grouping it says what the runs were charged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.cloud import ResourceKind
from app.domain.estimate import Share
from app.domain.fork import EndReason
from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND
from app.domain.rates import Commitment, Price, RateCard, StoragePrice
from app.domain.run import Claimed
from app.domain.usage import By, Spent, Used, Window, window
from app.domain.usage_statement import NOTE, estimate, usage_statement
from infra.store.tables import attempts, forks, runs
from tests import builders as a
from tests.contract.rows import Rows

PROJECTS = ("default", "other", "third")
SHAPES = {"small@1": Shape(1, 512, 4), "wide@2": Shape(4, 512, 4), "small@2": Shape(1, 512, 4)}
HOURS = 16


@dataclass
class History:
    """What happened, on a store: runs of several projects whose machines lived from moments to many hours."""

    rows: Rows
    begin_ns: int
    card: RateCard

    @property
    def window(self) -> Window:
        return window(self.begin_ns, None, self.rows.clock.wall_ns())

    def read(
        self, hours: Window | None = None, project: str | None = None, *, snapshots: bool = True
    ) -> Used:
        return self.rows.store.usage.read(hours or self.window, project, snapshots=snapshots)

    def charged(self, *columns: Any) -> Counter[tuple[str, ...]]:
        """What attempts were charged by run, by project, by snapshot, as the rows say it."""
        summed: Counter[tuple[str, ...]] = Counter()
        with self.rows.store.database.read() as at:
            for *key, charged in at.execute(
                select(*columns, attempts.c.charged_micros)
                .join_from(attempts, forks, forks.c.fork_id == attempts.c.fork_id)
                .where(attempts.c.closed_ns.is_not(None))
            ):
                summed[tuple(key)] += charged
        return summed

    def run_charges(self) -> int:
        with self.rows.store.database.read() as at:
            return sum(at.execute(select(runs.c.charged_micros)).scalars())


def history_of(rows: Rows, seed: int) -> History:
    """Many hours of three projects; some machines live on at the end."""
    chance = random.Random(seed)
    began_ns = rows.clock.wall_ns()
    rows.host(slots=12, memory_mib=100 * 512, disk_gib=400)
    for project in PROJECTS:
        rows.store.keys.create(project, "test")
    held: list[Claimed] = []
    for _ in range(HOURS * 6):
        rows.clock.advance(chance.choice((1, 60, 600, 1140)))
        _one_thing(rows, chance, held)
    assert held
    _keep(rows, chance)
    # A commitment over a part of it, smaller than what is used at times and larger at others.
    begin = began_ns + 3 * NS_PER_HOUR
    commitment = Commitment(14, 1_000_003, begin, begin + 40 * NS_PER_HOUR)
    prices = (Price(Shape(1, 512, 4), 36_000, 72_000), Price(Shape(4, 512, 4), 144_001, 290_003))
    storage = StoragePrice(80_000, 50_000)
    card = RateCard("card-7", prices, commitment=commitment, storage=storage)
    return History(rows, began_ns, card)


def _keep(rows: Rows, chance: random.Random) -> None:
    """Volumes and snapshots of two projects' builds, and of one that nobody knows; some are gone by the end."""
    bundles = ["build_unknown"]
    for project in PROJECTS[:2]:
        made, run, template = a.build(f"suite-{project}")
        build = replace(made, project_id=project)
        rows.store.builds.start(build, replace(run, project_id=project), template, None)
        bundles.append(build.build_id)
    for number in range(12):
        bundle_id, token = bundles[number % 3], f"tok_{number}"
        asked = (a.volume if number % 2 else a.stored)(
            token, bundle_id=bundle_id, size_gib=number + 1
        )
        rows.store.resources.intend(asked, NS_PER_HOUR)
        if number < 10:
            rows.store.resources.made(token, f"id-{number}")
        rows.clock.advance(chance.choice((7, 700, 4000)))
        if number % 4 == 0:
            rows.store.resources.gone(token)


def _one_thing(rows: Rows, chance: random.Random, held: list[Claimed]) -> None:
    now_s = (rows.clock.boot_ns()) / NS_PER_SECOND
    match chance.randrange(5):
        case 0:
            _start(rows, chance)
        case 1 | 2:
            rows.store.hosts.heartbeat(a.HOST, ())
            rows.place()
            claimed = rows.try_open(at_s=now_s)
            if claimed is not None:
                late = chance.choice((0, 1, 30))
                held.append(rows.ready(claimed, now_s + late) if late else claimed)
        case 3 | 4:
            if len(held) > 3:
                claimed = held.pop(chance.randrange(len(held)))
                then = chance.choice((EndReason.COMMAND_PASSED, EndReason.ENVIRONMENT_FAILED, None))
                failure = None if then is EndReason.COMMAND_PASSED else a.failed()
                rows.close(claimed, now_s + chance.choice((-0.5, 0.25)), then, failure)


def _start(rows: Rows, chance: random.Random) -> None:
    project, snapshot = chance.choice(PROJECTS), chance.choice(sorted(SHAPES))
    fields = {
        "snapshot": snapshot,
        "project_id": project,
        "shape": SHAPES[snapshot],
        "worst_attempt_ns": 20 * NS_PER_HOUR,
        "worst_micros": 20 * 3600 * a.MICROS_PER_SECOND,
    }
    run, its_forks = a.step(chance.randrange(1, 4), fork_fields=fields)
    rows.store.runs.start(replace(run, project_id=project), its_forks, None)


@pytest.mark.parametrize("seed", range(2))
def test_charged_is_the_sum_of_all_runs_in_every_grouping(rows: Rows, seed: int) -> None:
    history = history_of(rows, seed)
    used = history.read()
    assert charged(used) == history.run_charges() > 0
    assert by(used, "project_id") == history.charged(forks.c.project_id)
    assert by(used, "snapshot") == history.charged(forks.c.snapshot)
    both = history.charged(forks.c.project_id, forks.c.snapshot)
    assert by(used, "project_id", "snapshot") == both
    _check_counts(history, used)
    _check_windows(history, used, random.Random(seed))
    _check_what_a_project_sees(history, used)


def _check_counts(history: History, used: Used) -> None:
    """Every machine is counted once, where it began; what lives is apart."""
    total = Spent.total(cell.spent for cell in used.cells)
    with history.rows.store.database.read() as at:
        rows = at.execute(select(attempts.c.number, attempts.c.opened_ns, attempts.c.closed_ns))
        machines = rows.all()
    assert total.attempts == len(machines)
    assert total.forks == len([machine for machine in machines if machine.number == 1])
    assert total.accruing_micros > 0
    assert used.now_ns == history.rows.clock.wall_ns()
    assert used.live_since_ns == min(each.opened_ns for each in machines if each.closed_ns is None)


def _check_windows(history: History, used: Used, chance: random.Random) -> None:
    """Windows that are cut at an hour have the cells of the whole, each in one of them."""
    whole = history.window
    for middle_ns in chance.sample(whole.hours()[1:], 4):
        parts = (Window(whole.begin_ns, middle_ns), Window(middle_ns, whole.end_ns))
        cells = [cell for part in parts for cell in history.read(part).cells]
        assert Counter(cells) == Counter(used.cells)


def _check_what_a_project_sees(history: History, used: Used) -> None:
    seen = history.read(project="other")
    assert by(seen, "hour_ns", "project_id") == by(used, "hour_ns", "project_id")
    assert {cell.snapshot for cell in seen.cells if cell.project_id != "other"} == {""}
    own = [{c for c in each.cells if c.project_id == "other"} for each in (seen, used)]
    assert own[0] == own[1] != set()


def test_the_estimate_and_the_rows_of_a_statement_add_up(rows: Rows) -> None:
    history = history_of(rows, 7)
    _check_estimate(history)
    for asked in ("hour", "day", "project", "snapshot", "day,project,snapshot"):
        _check_statement(history, tuple(By(word) for word in asked.split(",")))


def _check_estimate(history: History) -> None:
    """An hour is the sum of its shares, and a project's part does not depend on what the rows stand for."""
    named = estimate(history.read(), history.window, history.card)
    plain = estimate(history.read(snapshots=False), history.window, history.card)
    assert named.hours == plain.hours
    for begin_ns, hour in named.hours.items():
        share = Share.total(line.share for line in named.lines if line.hour_ns == begin_ns)
        assert share.used_micros == hour.used_micros <= hour.committed_micros
    for project in PROJECTS:
        own = [[line for line in it.lines if line.project_id == project] for it in (named, plain)]
        shares = [Share.total(line.share for line in lines) for lines in own]
        assert shares[0] == shares[1] != Share()
    idle = [hour for hour in named.hours.values() if hour.used_micros < hour.committed_micros]
    assert idle
    assert any(line.share.overflow_micros and line.share.used_micros for line in named.lines)


def _check_statement(history: History, asked: tuple[By, ...]) -> None:
    page: Any = usage_statement(history.read(), history.window, asked, history.card, None)
    total, rows = page["total"], page["rows"]
    assert micros(total["charged_usd"]) == history.run_charges()
    for name in ("forks", "attempts", "charged_usd", "tasks_usd", "accruing_usd"):
        assert summed(row[name] for row in rows) == micros(total[name])
    for name in ("used_usd", "overflow_usd", "on_demand_equivalent_usd"):
        assert summed(row["estimate"][name] for row in rows) == micros(total["estimate"][name])
    for row in [total, *rows] if asked in ((By.HOUR,), (By.DAY,)) else [total]:
        told = row["estimate"]
        assert told["used_by_others_usd"] == 0
        assert micros(told["committed_usd"]) == micros(told["used_usd"]) + micros(told["idle_usd"])
    for name in ("storage_usd", "volumes_usd", "snapshots_usd"):
        assert summed(row["estimate"][name] for row in rows) == micros(total["estimate"][name]) > 0
    for row in [total, *rows]:
        told = row["estimate"]
        parts = micros(told["volumes_usd"]) + micros(told["snapshots_usd"])
        assert micros(told["storage_usd"]) == parts
    keys = [tuple(row[each.value] or "" for each in asked) for row in rows]
    assert keys == sorted(set(keys))


def test_storage_is_its_projects_or_nobodys_in_every_grouping(rows: Rows) -> None:
    history = history_of(rows, 11)
    expected = _kept_by_rows(history)
    for asked in ("project", "hour,project", "day,project,snapshot"):
        by = tuple(By(word) for word in asked.split(","))
        page: Any = usage_statement(history.read(), history.window, by, history.card, None)
        seen: Counter[str | None] = Counter()
        for row in page["rows"]:
            seen[row["project"]] += micros(row["estimate"]["storage_usd"])
        assert +seen == expected
    assert set(expected) == {None, "default", "other"}
    for project in ("default", "other", "third"):
        own: Any = usage_statement(
            history.read(project=project), history.window, (By.SNAPSHOT,), history.card, project
        )
        told = own["total"]["estimate"]
        assert told["volumes_usd"] == told["volume_gib_hours"] == 0
        assert micros(told["storage_usd"]) == expected[project]
        named = {row["snapshot"] for row in own["rows"] if row["estimate"]["storage_usd"]}
        assert named == ({f"suite-{project}"} if project != "third" else set())
    _check_without_prices(history)


def _check_without_prices(history: History) -> None:
    """A card may have none: then it is told how much there was, and no amount."""
    card = replace(history.card, storage=None)
    page: Any = usage_statement(history.read(), history.window, (By.DAY,), card, None)
    for row in [page["total"], *page["rows"]]:
        told = row["estimate"]
        assert told["storage_usd"] is told["volumes_usd"] is told["snapshots_usd"] is None
    assert page["total"]["estimate"]["volume_gib_hours"] > 0


def _kept_by_rows(history: History) -> Counter[str | None]:
    """What each volume and snapshot cost, by hand: size x time x price, rounded down once."""
    now_ns, price = history.rows.clock.wall_ns(), history.card.storage
    assert price is not None
    cost: Counter[str | None] = Counter()
    for row in history.rows.store.resources.made_within(0, now_ns):
        assert row.made_ns is not None
        there_ns = (row.gone_ns or now_ns) - row.made_ns
        build = history.rows.store.builds.find(row.bundle_id)
        of_project = row.kind is ResourceKind.SNAPSHOT and build is not None
        whose = build.project_id if build is not None and of_project else None
        month_ns = 730 * NS_PER_HOUR
        cost[whose] += price.micros_per_month(row.kind, row.size_gib) * there_ns // month_ns
    return cost


def test_what_nobody_used_is_shown_in_hours_in_which_nothing_ran(rows: Rows) -> None:
    began_ns = rows.clock.wall_ns()
    commitment = Commitment(2, 500_000, began_ns - 5 * NS_PER_HOUR, began_ns + 90 * NS_PER_HOUR)
    prices = (Price(Shape(1, 512, 4), 36_000, 72_000),)
    quiet = History(rows, began_ns, RateCard("1", prices, commitment=commitment))
    rows.clock.advance(3 * 3600)
    page: Any = usage_statement(quiet.read(), quiet.window, (By.HOUR,), quiet.card, "default")
    assert [row["estimate"]["idle_usd"] for row in page["rows"]][:-1] == [0.5, 0.5, 0.5]
    assert page["total"]["charged_usd"] == 0
    assert page["note"] == NOTE
    assert page["total"]["estimate"]["storage_usd"] is None


def test_a_life_is_as_long_as_its_host_measured_and_no_longer(rows: Rows) -> None:
    claimed = rows.started(budget_micros=40 * a.MICROS_PER_SECOND)
    rows.clock.advance(7200)  # the database was away: the end is reported two hours late
    rows.close(claimed, at_s=10)
    begin_ns = rows.clock.wall_ns() - 7200 * NS_PER_SECOND
    hours = window(begin_ns, None, rows.clock.wall_ns())
    (cell,) = rows.store.usage.read(hours, None, snapshots=False).cells
    assert cell.hour_ns == begin_ns - begin_ns % NS_PER_HOUR
    assert cell.spent.lived_ns == 10 * NS_PER_SECOND
    assert cell.spent.charged_micros == 10 * a.MICROS_PER_SECOND
    later = Window(hours.begin_ns + NS_PER_HOUR, hours.end_ns)
    assert rows.store.usage.read(later, None, snapshots=False).cells == ()


def test_a_clock_that_was_set_back_loses_no_charge(rows: Rows) -> None:
    claimed = rows.started()
    rows.clock.advance(-3700)
    rows.close(claimed, at_s=10)
    now_ns = rows.clock.wall_ns()
    used = rows.store.usage.read(window(now_ns - 1, None, now_ns), None, snapshots=False)
    assert charged(used) == rows.run(claimed.run.run_id).charged_micros > 0


def test_a_template_is_a_machine_and_no_fork(rows: Rows) -> None:
    rows.host()
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.place()
    claimed = rows.store.attempts.open(a.HOST, "worker1", "boot", 0, template.fork_id)
    assert claimed is not None
    rows.clock.advance(5)
    rows.close(claimed, at_s=5)
    now_ns = rows.clock.wall_ns()
    (cell,) = rows.store.usage.read(window(None, None, now_ns), None, snapshots=True).cells
    assert (cell.snapshot, cell.spent.forks, cell.spent.attempts) == ("task-suite", 0, 1)
    assert cell.spent.charged_micros == 5 * a.MICROS_PER_SECOND


def charged(used: Used) -> int:
    return Spent.total(cell.spent for cell in used.cells).charged_micros


def by(used: Used, *names: str) -> Counter[tuple[str, ...]]:
    summed: Counter[tuple[str, ...]] = Counter()
    for cell in used.cells:
        summed[tuple(getattr(cell, name) for name in names)] += cell.spent.charged_micros
    return summed


def micros(amount: float) -> int:
    return round(amount * 1_000_000)


def summed(amounts: Iterable[float]) -> int:
    return sum(micros(amount) for amount in amounts)
