"""The line of numbers on how a deployment stands: put together, listened for, said once a minute and explained."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from pathlib import Path

import structlog.testing

from app.domain.census import Census, HostStanding
from app.domain.estimate import idle_micros_per_hour
from app.domain.health import LATELY_NS, Health, Recent, Watched, health
from app.domain.leak import LeakKind
from app.domain.money import NS_PER_SECOND
from app.domain.rates import Commitment
from app.domain.scaling import Plan
from infra.fakes.clock import ManualClock
from tests.flow.stage import Stage
from workers import health as worker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
COMMITMENT = Commitment(vcpus=64, micros_per_hour=2_000_000, begins_ns=1000, ends_ns=2000)


def test_nothing_to_have_a_share_of_is_no_failure() -> None:
    quiet = health(Census(), Recent(), Watched(tick_age_ns=0), None, 0)
    assert (quiet.env_failed_share, quiet.idle_commitment_usd_per_hour) == (0, 0)


def test_shares_ages_and_money() -> None:
    census = Census(
        hosts={HostStanding.QUARANTINED: 2},
        slots=32,
        free_slots=20,
        unplaced_age_ns=90 * NS_PER_SECOND,
        queued_exec_age_ns=1_500_000_000,
    )
    recent = Recent(ended_forks=40, env_failed=10, late_kills=1, vcpus=16)
    plan = Plan(wanted_slots=12, wanted_hosts=2, present_hosts=1, hopeless=(("too large", 3),))
    watched = Watched(2 * NS_PER_SECOND, leaks=4, leaked_micros_per_month=640_000, plan=plan)
    told = health(census, recent, watched, COMMITMENT, 1500)
    assert (told.queue_age_seconds, told.exec_age_seconds, told.tick_age_seconds) == (90, 1.5, 2)
    assert (told.env_failed_share, told.late_kills, told.leaks) == (0.25, 1, 4)
    assert (told.leaks_usd_per_month, told.idle_commitment_usd_per_hour) == (0.64, 1.5)
    assert (told.quarantined_hosts, told.hopeless_forks, told.wanted_slots) == (2, 3, 12)


def test_a_commitment_is_idle_only_while_it_is_owed_and_never_less_than_nothing() -> None:
    assert (
        idle_micros_per_hour(COMMITMENT, 999, 0) == idle_micros_per_hour(COMMITMENT, 2000, 0) == 0
    )
    assert idle_micros_per_hour(COMMITMENT, 1000, 0) == 2_000_000
    assert idle_micros_per_hour(COMMITMENT, 1000, 48) == 500_000
    assert idle_micros_per_hour(COMMITMENT, 1000, 100) == 0
    assert idle_micros_per_hour(None, 1000, 0) == 0


def test_what_the_other_loops_find_is_heard_and_passed_on(tmp_path: Path) -> None:
    clock, passed = ManualClock(), list[object]()
    watch = worker.Watch(clock, tmp_path / "tick")
    plan = Plan(wanted_slots=1, wanted_hosts=1, present_hosts=1)
    watch.planned(passed.append)(plan)
    watch.leaked(passed.append)(LeakKind.REDIS_KEY)
    watch.owed(passed.append)(70)
    assert passed == [plan, LeakKind.REDIS_KEY, 70]
    assert watch.watched() == Watched(0, 1, 70, plan)
    clock.advance(LATELY_NS / NS_PER_SECOND + 1)
    later = watch.watched()
    assert (later.leaks, later.leaked_micros_per_month) == (0, 70)


def test_a_tick_that_stands_grows_old_from_the_process_begin_or_its_last_stamp(
    tmp_path: Path,
) -> None:
    clock, tick = ManualClock(), tmp_path / "tick"
    watch = worker.Watch(clock, tick)
    clock.advance(30)
    assert watch.watched().tick_age_ns == 30 * NS_PER_SECOND
    tick.write_text(json.dumps({"pid": 1, "boot_ns": clock.boot_ns() - NS_PER_SECOND}))
    assert watch.watched().tick_age_ns == NS_PER_SECOND


def test_one_line_of_numbers(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    watch = worker.Watch(stage.clock, tmp_path / "tick")
    with structlog.testing.capture_logs() as logs:
        worker.tell(stage.ports, stage.stores.census, watch)
    (line,) = logs
    assert line["event"] == "health"
    numbers = {name: line[name] for name in line.keys() - {"event", "log_level"}}
    assert {type(value) for value in numbers.values()} <= {int, float}
    unknown = {field for field, value in asdict(_told()).items() if value is None}
    assert numbers.keys() == {field.name for field in fields(Health)} - unknown


def test_every_field_is_explained() -> None:
    section = PAGE.read_text().split("## The line `health`")[1].split("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    for row in re.findall(r"^\| (.*?) \|", section, re.MULTILINE):
        explained |= set(re.findall(r"`(\w+)`", row))
    assert explained == {field.name for field in fields(Health)}


def _told() -> Health:
    return health(Census(), Recent(), Watched(0), None, 0)
