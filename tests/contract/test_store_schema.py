"""The schema: constraints hold for whoever writes, and the migrations make what the tables say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Executable,
    Inspector,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    select,
    update,
)

from app.domain.fork import EndReason
from app.errors import PromigenceError
from infra.store import Stores
from infra.store.host_role import take_rights
from infra.store.migrate import VERSIONS, migrating, upgrade
from infra.store.tables import (
    METADATA,
    attempts,
    forks,
    hosts,
    ledger,
    project_months,
    projects,
    runs,
)
from tests import builders as a
from tests.contract.rows import Rows

TABLES = sorted(METADATA.tables)


def test_money_and_time_have_64_bits() -> None:
    columns = [column for table in METADATA.tables.values() for column in table.columns]
    wide = [column for column in columns if re.search(r"micros|_ns$|_bytes$", column.name)]
    assert len(wide) > 40
    assert [str(column) for column in wide if not isinstance(column.type, BigInteger)] == []


def test_a_run_of_more_than_32_bits_of_money(rows: Rows) -> None:
    claimed = rows.started(budget_micros=10_000_000_000_000, fork_fields={"worst_micros": 1 << 50})
    rows.close(claimed, at_s=5)
    assert rows.run(claimed.run.run_id).pool_micros == 10_000_000_000_000 - 5_000


def test_every_constraint_and_index_has_a_name() -> None:
    tables = METADATA.tables.values()
    named = [each.name for table in tables for each in table.constraints]
    named += [each.name for table in tables for each in table.indexes]
    assert None not in named
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("broken", "constraint"),
    [
        ({"pool_micros": runs.c.pool_micros + 1}, "ck_run_budget_adds_up"),
        (
            {"pool_micros": -1, "granted_micros": runs.c.budget_micros + 1},
            "ck_run_pool_micros_not_negative",
        ),
        (
            {"granted_micros": -1, "charged_micros": runs.c.budget_micros + 1, "pool_micros": 0},
            "ck_run_granted_micros_not_negative",
        ),
        (
            {"charged_micros": -1, "pool_micros": runs.c.pool_micros + 1},
            "ck_run_charged_micros_not_negative",
        ),
        ({"state": "ended"}, "ck_run_ended_holds_no_grant"),
    ],
)
def test_a_run_that_does_not_add_up_is_refused(
    rows: Rows, broken: dict[str, Any], constraint: str
) -> None:
    rows.start(2, budget_micros=50_000)
    _refused(rows, update(runs).values(broken), constraint)


@pytest.mark.parametrize(
    ("broken", "constraint"),
    [
        ({"free_slots": -1}, "ck_host_free_slots_not_negative"),
        ({"free_memory_mib": -1}, "ck_host_free_memory_mib_not_negative"),
        ({"free_disk_gib": -1}, "ck_host_free_disk_gib_not_negative"),
        ({"free_slots": hosts.c.slots + 1}, "ck_host_no_more_free_than_there_is"),
    ],
)
def test_a_host_cannot_have_more_or_less_room_than_it_has(
    rows: Rows, broken: dict[str, Any], constraint: str
) -> None:
    rows.host()
    _refused(rows, update(hosts).values(broken), constraint)


@pytest.mark.parametrize(
    ("broken", "constraint"),
    [
        ({"grant_micros": -1}, "ck_fork_grant_micros_not_negative"),
        ({"outcome": "passed"}, "ck_fork_an_end_has_its_reason"),
        ({"state": "ended"}, "ck_fork_"),
        ({"run_id": "run_none"}, "fk_fork_run_id|FOREIGN KEY"),
    ],
)
def test_a_fork_out_of_its_table_is_refused(
    rows: Rows, broken: dict[str, Any], constraint: str
) -> None:
    rows.start()
    _refused(rows, update(forks).values(broken), constraint)


def test_a_move_of_money_is_booked_once_and_makes_none(rows: Rows) -> None:
    claimed = rows.started()
    rows.close(claimed, at_s=5)
    with rows.store.database.read() as at:
        entry = dict(at.execute(ledger.select().where(ledger.c.kind == "charge")).mappings().one())
    _refused(rows, ledger.insert().values(entry), "pk_ledger|UNIQUE constraint failed: ledger")
    made = entry | {"sequence": 1, "pool_micros": 1}
    _refused(rows, ledger.insert().values(made), "ck_ledger_moves_and_makes_nothing")


def test_the_parts_of_a_charge_add_up(rows: Rows) -> None:
    rows.close(rows.started(), at_s=5)
    broken = update(attempts).values(tasks_micros=attempts.c.tasks_micros + 1)
    _refused(rows, broken, "ck_attempt_parts_add_up")


def test_the_migrations_make_what_the_tables_say(bare: Stores) -> None:
    bare.migrate()
    migrated = _schema(bare)
    with bare.database.write() as at:
        take_rights(at)
        METADATA.drop_all(at)
    assert _schema(bare) == {}
    with bare.database.write() as at:
        METADATA.create_all(at)
    assert migrated == _schema(bare)
    assert sorted(migrated) == TABLES
    assert len(migrated["run"]["checks"]) == 8


def test_two_processes_may_migrate_at_once(bare: Stores) -> None:
    program = (
        "import sys; from infra.store import create_store; create_store(sys.argv[1]).migrate()"
    )
    url = bare.database.engine.url.render_as_string(hide_password=False)
    both = [subprocess.Popen([sys.executable, "-c", program, url]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert sorted(_schema(bare)) == TABLES


def test_migrating_again_changes_and_loses_nothing(rows: Rows) -> None:
    claimed = rows.started(2)
    before = _schema(rows.store)
    rows.store.migrate()
    assert _schema(rows.store) == before
    assert rows.store.attempts.get(claimed.attempt.attempt_id) == claimed


def test_an_upgrade_of_a_populated_database_finds_what_is_held_of_every_limit(
    rows: Rows, bare: Stores
) -> None:
    """From the first release: no project had a row of its own before it had a key, and no month was counted."""
    _live_through_two_months(rows)
    upgrade(bare.database, "0001")
    _copy_without_projects(rows.store, bare)
    bare.migrate()
    Rows(bare, rows.clock).check_laws()
    assert _held(bare) == _held(rows.store)
    assert _schema(bare) == _schema(rows.store)
    with bare.database.read() as at:
        first_run = at.execute(select(func.min(runs.c.created_ns))).scalar_one()
        assert at.execute(select(projects.c.created_ns)).scalars().all() == [first_run]


def test_altering_a_populated_parent_keeps_its_children_and_checks(bare: Stores) -> None:
    """As a later migration will: on SQLite this makes the table anew, with rows that refer to it."""
    bare.migrate()
    before = _schema(bare)
    run, its_forks = a.step(3, labels=(("step", "1"),))
    bare.runs.start(run, its_forks, None)
    with migrating(bare.database) as at:
        operations = Operations(MigrationContext.configure(at))
        with operations.batch_alter_table("run") as batch:
            batch.alter_column("project_id", type_=Text())
    assert len(bare.runs.forks(run.run_id)) == 3
    assert len(bare.runs.list(a.PROJECT, {"step": "1"}, 10, None)) == 1
    before["run"]["columns"]["project_id"] = ("TEXT", False, None)
    assert _schema(bare) == before
    with pytest.raises(PromigenceError), bare.database.write() as at:
        at.execute(update(runs).values(pool_micros=runs.c.pool_micros + 1))


def test_a_migration_that_would_orphan_rows_is_undone(bare: Stores) -> None:
    bare.migrate()
    run, its_forks = a.step(3)
    bare.runs.start(run, its_forks, None)
    with pytest.raises((RuntimeError, PromigenceError)), migrating(bare.database) as at:
        at.execute(runs.delete())
    assert bare.runs.get(a.PROJECT, run.run_id).run_id == run.run_id


def _refused(rows: Rows, statement: Executable, constraint: str) -> None:
    with (
        pytest.raises(PromigenceError, match=constraint) as caught,
        rows.store.database.write() as at,
    ):
        at.execute(statement)
    assert caught.value.code == "constraint_refused"


def _live_through_two_months(rows: Rows) -> None:
    """Runs that live, have ended and never had a machine; forks that run, wait on a host and wait for one."""
    rows.host(slots=3)
    rows.start(1, budget_micros=50_000)
    rows.place()
    rows.close(rows.open(), at_s=5)
    rows.start(5)
    rows.place()
    rows.close(rows.open(), at_s=7)
    rows.open()
    rows.clock.advance(40 * 24 * 3600)
    cancelled = rows.start(2)
    rows.store.runs.ask_stop(cancelled.run_id, EndReason.CANCELLED)
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)


def _copy_without_projects(whole: Stores, old: Stores) -> None:
    """All rows that an older schema has a place for, as they lie there."""
    with whole.database.read() as source, old.database.write() as target:
        there = set(inspect(target).get_table_names())
        for name in (each.name for each in METADATA.sorted_tables if each.name in there):
            table = Table(name, MetaData(), autoload_with=target, resolve_fks=False)
            found = source.execute(table.select()).mappings().all()
            if found and name != "project":
                target.execute(table.insert(), [dict(row) for row in found])


def _held(store: Stores) -> tuple[object, object]:
    """What the runs hold of every month, and what is placed of every project."""
    with store.database.read() as at:
        months = at.execute(project_months.select().order_by(project_months.c.month)).all()
        placed = at.execute(select(projects.c.project_id, projects.c.live_forks)).all()
    assert len(months) == 2
    assert min(row.committed_micros for row in months) > 0
    assert [row.live_forks for row in placed] == [2]
    return months, placed


def _schema(store: Stores) -> dict[str, dict[str, Any]]:
    """All that the database says of its tables, in an order of its own making."""
    with store.database.read() as at:
        looking = inspect(at)
        names = [name for name in looking.get_table_names() if name != VERSIONS]
        return {name: _table(looking, name) for name in names}


def _table(looking: Inspector, name: str) -> dict[str, Any]:
    return {
        "columns": {
            column["name"]: (str(column["type"]), column["nullable"], column["default"])
            for column in looking.get_columns(name)
        },
        "key": looking.get_pk_constraint(name),
        "references": _by_name(looking.get_foreign_keys(name)),
        "uniques": _by_name(looking.get_unique_constraints(name)),
        "checks": _by_name(looking.get_check_constraints(name)),
        "indexes": _by_name(looking.get_indexes(name)),
        "options": _plain(looking.get_table_options(name)),
    }


def _by_name(items: Iterable[Any]) -> dict[str, str]:
    return {
        item["name"]: str(sorted((key, _plain(of)) for key, of in item.items())) for item in items
    }


def _plain(value: Any) -> str:
    """Conditions come back as SQL objects."""
    if isinstance(value, dict):
        return str(sorted((key, str(of)) for key, of in value.items()))
    return str(value)
