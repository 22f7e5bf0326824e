"""Whoever writes past the code is refused by name: every constraint of the schema is tried with SQL that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import (
    CheckConstraint,
    Executable,
    Index,
    UniqueConstraint,
    insert,
    select,
    text,
)

from app.domain.account import Limits
from app.domain.run import Exec, ExecPurpose
from app.errors import PromigenceError
from infra.store.tables import METADATA
from tests import builders as a
from tests.contract.rows import Rows

# Whose keys say that nothing is booked, held, counted or told twice.
MONEY = (
    "attempt",
    "event",
    "event_count",
    "fork",
    "host",
    "ledger",
    "project",
    "project_month",
    "run",
    "sample",
)


@dataclass(frozen=True, slots=True)
class Copy:
    """A row again, with some columns changed; `of` says which row."""

    table: str
    changes: dict[str, Any] = field(default_factory=dict)
    of: str = "1 = 1"


OPEN, CLOSED = "closed_boot_ns IS NULL", "closed_boot_ns IS NOT NULL"

BREAKS: dict[str, str | Copy] = {
    # A database is of one deployment, whose epochs are counted.
    "ck_deployment_just_one": "UPDATE deployment SET one = 2",
    "ck_deployment_epoch_from_1": "UPDATE deployment SET epoch = 0",
    "ck_deployment_beat_not_negative": "UPDATE deployment SET beat = -1",
    "ck_deployment_since_ns_not_negative": "UPDATE deployment SET since_ns = -1",
    # A run's money: pool + granted + charged is its budget, and nothing of it is below nothing.
    "ck_run_budget_adds_up": "UPDATE run SET pool_micros = pool_micros + 1",
    "ck_run_budget_micros_not_negative": (
        "UPDATE run SET budget_micros = -1, pool_micros = -1 - granted_micros - charged_micros"
    ),
    "ck_run_pool_micros_not_negative": (
        "UPDATE run SET pool_micros = -1, granted_micros = granted_micros + pool_micros + 1"
    ),
    "ck_run_granted_micros_not_negative": (
        "UPDATE run SET granted_micros = -1, pool_micros = pool_micros + granted_micros + 1"
    ),
    "ck_run_charged_micros_not_negative": (
        "UPDATE run SET charged_micros = -1, pool_micros = pool_micros + charged_micros + 1"
    ),
    "ck_run_ended_holds_no_grant": "UPDATE run SET state = 'ended'",
    "ck_run_state_known": "UPDATE run SET state = 'paused'",
    "ck_run_kind_known": "UPDATE run SET kind = 'gift'",
    "pk_run": Copy("run"),
    # A fork's grant.
    "ck_fork_grant_micros_not_negative": (
        "UPDATE fork SET grant_micros = -1 WHERE state <> 'ended'"
    ),
    "ck_fork_worst_micros_not_negative": "UPDATE fork SET worst_micros = -1",
    "ck_fork_smallest_micros_not_negative": "UPDATE fork SET smallest_micros = -1",
    "ck_fork_worst_attempt_ns_not_negative": "UPDATE fork SET worst_attempt_ns = -1",
    "ck_fork_ended_holds_no_grant": "UPDATE fork SET grant_micros = 1 WHERE state = 'ended'",
    "ck_fork_an_end_has_its_reason": "UPDATE fork SET outcome = 'passed' WHERE state <> 'ended'",
    "ck_fork_kept_until_some_time": (
        "UPDATE fork SET kept = 'command_failed' WHERE state <> 'ended'"
    ),
    "ck_fork_kept_is_its_verdict": (
        "UPDATE fork SET kept = 'command_timed_out', kept_until_ns = 1 "
        "WHERE state = 'ended' AND reason <> 'command_timed_out'"
    ),
    "ck_fork_state_known": "UPDATE fork SET state = 'paused' WHERE state <> 'ended'",
    "pk_fork": Copy("fork"),
    # An attempt's lease and charge.
    "ck_attempt_lease_ns_not_negative": (
        "UPDATE attempt SET lease_ns = -1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_late_ns_not_negative": (
        "UPDATE attempt SET late_ns = -1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_charged_micros_not_negative": (
        "UPDATE attempt SET charged_micros = -1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_verification_micros_not_negative": (
        "UPDATE attempt SET verification_micros = -1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_tasks_micros_not_negative": (
        "UPDATE attempt SET tasks_micros = -1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_environment_micros_not_negative": (
        "UPDATE attempt SET environment_micros = -1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_parts_add_up": (
        "UPDATE attempt SET tasks_micros = tasks_micros + 1 WHERE closed_boot_ns IS NOT NULL"
    ),
    "ck_attempt_charged_at_its_end": (
        "UPDATE attempt SET charged_micros = 1 WHERE closed_boot_ns IS NULL"
    ),
    "ck_attempt_charged_within_its_lease": (
        "UPDATE attempt SET charged_micros = 100003, tasks_micros = 100003 - verification_micros"
        " WHERE closed_boot_ns IS NOT NULL"
    ),
    "uq_attempt_fork_id_number": Copy("attempt", {"attempt_id": "other"}, CLOSED),
    "ux_attempt_open_of_fork": Copy("attempt", {"attempt_id": "other", "number": 2}, OPEN),
    "pk_attempt": Copy("attempt", {"number": 2}, CLOSED),
    # The ledger: nothing is booked twice, and no move makes money.
    "ck_ledger_moves_and_makes_nothing": Copy(
        "ledger", {"sequence": 9, "pool_micros": 1}, "kind = 'charge'"
    ),
    "ck_ledger_kind_known": "UPDATE ledger SET kind = 'gift' WHERE kind = 'charge'",
    "pk_ledger": Copy("ledger", {}, "kind = 'charge'"),
    # A run's events have one order.
    "ck_event_count_events_not_negative": "UPDATE event_count SET events = -1",
    "pk_event_count": Copy("event_count"),
    "pk_event": Copy("event"),
    # No two machines of a run drew the same sample.
    "pk_sample": Copy("sample"),
    # Room of hosts.
    "ck_host_free_slots_not_negative": "UPDATE host SET free_slots = -1",
    "ck_host_free_memory_mib_not_negative": "UPDATE host SET free_memory_mib = -1",
    "ck_host_free_disk_gib_not_negative": "UPDATE host SET free_disk_gib = -1",
    "ck_host_no_more_free_than_there_is": "UPDATE host SET free_slots = slots + 1",
    "ck_host_self_tests_not_negative": "UPDATE host SET self_tests = -1",
    "pk_host": Copy("host"),
    # Limits of projects.
    "ck_project_live_forks_not_negative": "UPDATE project SET live_forks = -1",
    "ck_project_max_forks_not_negative": "UPDATE project SET max_forks = -1",
    "ck_project_monthly_budget_micros_not_negative": (
        "UPDATE project SET monthly_budget_micros = -1"
    ),
    "ck_project_within_the_limit": "UPDATE project SET live_forks = max_forks + 1",
    "pk_project": Copy("project"),
    "ck_project_month_budget_micros_not_negative": "UPDATE project_month SET budget_micros = -1",
    "ck_project_month_committed_micros_not_negative": (
        "UPDATE project_month SET committed_micros = -1"
    ),
    "ck_project_month_within_the_budget": (
        "UPDATE project_month SET committed_micros = budget_micros + 1"
    ),
    "pk_project_month": Copy("project_month"),
    # What is kept warm.
    "ck_warm_target_some_hosts": "UPDATE warm_target SET hosts = 0",
    "ck_warm_target_version_or_newest": "UPDATE warm_target SET version = -1",
    # What the cloud holds: each has its id, its place and its owner, and nothing waits without an end.
    "uq_resource_cloud_id": Copy("resource", {"token": "other"}, "cloud_id IS NOT NULL"),
    "ck_resource_kind_known": "UPDATE resource SET kind = 'bucket', host_id = NULL, zone = NULL",
    "ck_resource_purpose_known": "UPDATE resource SET purpose = 'play' WHERE kind = 'volume'",
    "ck_resource_purpose_of_its_kind": "UPDATE resource SET purpose = 'keep' WHERE kind = 'volume'",
    "ck_resource_a_volume_has_its_place": "UPDATE resource SET zone = NULL",
    "ck_resource_some_size": "UPDATE resource SET size_gib = 0",
    "ck_resource_made_has_its_id": "UPDATE resource SET cloud_id = NULL",
    "ck_resource_unmade_has_its_deadline": "UPDATE resource SET deadline_ns = NULL",
    "ck_resource_gone_has_no_deadline": "UPDATE resource SET gone_ns = 1",
    # What is no money: versions, keys, builds, commands.
    "ck_snapshot_version_from_1": "UPDATE snapshot SET version = 0",
    "uq_snapshot_project_id_name_version": Copy("snapshot", {"snapshot_id": "other", "ref": "o@1"}),
    "uq_snapshot_project_id_ref": Copy("snapshot", {"snapshot_id": "other", "version": 7}),
    "uq_api_key_digest": Copy("api_key", {"key_id": "other"}),
    "ck_build_state_known": "UPDATE build SET state = 'paused'",
    "uq_build_run_id": Copy("build", {"build_id": "other", "template_fork_id": "other"}),
    "uq_build_template_fork_id": (
        "UPDATE build SET template_fork_id = (SELECT min(template_fork_id) FROM build)"
    ),
    "ck_exec_state_known": "UPDATE exec SET state = 'paused'",
}


@pytest.fixture
def full(rows: Rows) -> Rows:
    """A row in every table that has a constraint: a live machine, one that ended, builds, a key, a snapshot."""
    limits: Limits = {"max_forks": 10, "monthly_budget_micros": 1_000_000_000}
    rows.store.projects.set_limits(a.PROJECT, limits)
    ended = rows.ready(rows.started(2, budget_micros=180_000, hold_ns=10**12))
    live = rows.ready(rows.open())
    rows.close(ended, at_s=5)
    rows.store.execs.request(
        Exec("exec_1", live.fork.fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
    )
    for _ in range(2):
        rows.store.builds.start(*a.build(), None)
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.store.builds.accept(build.build_id, a.snapshot())
    rows.store.warm.set(a.PROJECT, "task-suite", 1)
    rows.store.resources.intend(a.volume("tok_1"), 10**12)
    rows.store.resources.intend(a.volume("tok_2"), 10**12)
    rows.store.resources.made("tok_2", "vol-1")
    rows.store.keys.create(a.PROJECT, "laptop")
    return rows


def test_every_constraint_has_a_way_to_break_it() -> None:
    assert sorted(each.name for each in _constraints()) == sorted(BREAKS)


def test_what_breaks_a_constraint_is_refused_by_it(full: Rows) -> None:
    said = {name: _refusal(full, breaks) for name, breaks in BREAKS.items()}
    assert {name: why for name, why in said.items() if _named(full, name) not in why} == {}


def _refusal(rows: Rows, breaks: str | Copy) -> str:
    """What the database says to it; nothing of it stays."""
    with pytest.raises(PromigenceError) as caught, rows.store.database.write() as at:
        at.execute(_statement(rows, breaks))
    assert caught.value.code == "constraint_refused"
    return caught.value.message


@dataclass(frozen=True, slots=True)
class Named:
    """A constraint; `columns` of one that says that something is there once."""

    name: str
    table: str
    columns: tuple[str, ...] = ()


def _constraints() -> Iterator[Named]:
    """CHECKs and UNIQUEs of all tables, and the keys of those that money is in."""
    for table in METADATA.sorted_tables:
        for each in (*table.constraints, *table.indexes):
            if isinstance(each, CheckConstraint):
                yield Named(str(each.name), table.name)
            elif isinstance(each, UniqueConstraint) or (isinstance(each, Index) and each.unique):
                yield Named(str(each.name), table.name, tuple(each.columns.keys()))
        if table.name in MONEY:
            key = table.primary_key
            yield Named(str(key.name), table.name, tuple(key.columns.keys()))


def _named(rows: Rows, name: str) -> str:
    """What the database says: SQLite has the columns of what is there once for its name."""
    (found,) = (each for each in _constraints() if each.name == name)
    if found.columns and rows.store.database.engine.dialect.name == "sqlite":
        return ", ".join(f"{found.table}.{column}" for column in found.columns)
    return name


def _statement(rows: Rows, breaks: str | Copy) -> Executable:
    if isinstance(breaks, str):
        return text(breaks)
    table = METADATA.tables[breaks.table]
    with rows.store.database.read() as at:
        row = at.execute(select(table).where(text(breaks.of)).limit(1)).mappings().one()
    return insert(table).values({**row, **breaks.changes})
