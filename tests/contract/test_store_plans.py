"""What is polled reads what is live, however much history there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.domain.account import Receipt
from app.domain.audit import Entry, Place, Sought
from app.domain.cloud import ResourceKind
from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND
from app.domain.run import Exec, ExecPurpose
from app.domain.usage import Window
from infra.fakes.clock import ManualClock
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract.rows import Rows

# Small for ever (hosts, projects, keys, trials, a page of runs, the one row of a deployment), or of what is live alone
# (partial indexes), or the list of all that a reaper must keep; or what another step of the same plan has made.
MAY_BE_SCANNED = re.compile(
    r"SCAN (api_key|deployment|host|project|snapshot|trial|anon_\d|\(subquery-\d+\))(?!\w)"
    r"|SCAN \w+ USING (COVERING )?INDEX "
    r"(ix_attempt_open|ix_attempt_open_of_host|ux_attempt_open_of_fork|ix_build_unsettled|ix_fork_queued|"
    r"ix_run_active|ix_fork_live_of_(run|host|snapshot)|ix_exec_unfinished)$"
)


@pytest.fixture
def plans(tmp_path: Path, sqlite_template: Path) -> Iterator[tuple[Rows, dict[str, list[str]]]]:
    """A store on SQLite, and how it went about each statement since."""
    clock = ManualClock()
    store = create_store(f"sqlite:///{tmp_path}/store.db", key_secret=b"k", now_ns=clock.wall_ns)
    store.migrate()
    seen: dict[str, list[str]] = {}

    def explain(_c: Any, cursor: Any, statement: str, values: Any, _x: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            plan = f"EXPLAIN QUERY PLAN {statement}"
            rows = cursor.connection.execute(plan, values[0] if many else values)
            seen[statement] = [row[3] for row in rows]

    event.listen(store.database.engine, "before_cursor_execute", explain)
    yield Rows(store, clock), seen
    store.close()


def test_no_statement_reads_all_that_ever_was(
    plans: tuple[Rows, dict[str, list[str]]],
) -> None:
    rows, seen = plans
    _live_through_everything(rows)
    assert len(seen) > 50
    scans = {
        (step, statement)
        for statement, steps in seen.items()
        for step in steps
        if step.startswith("SCAN") and not MAY_BE_SCANNED.match(step)
    }
    assert scans == set()


def _live_through_everything(rows: Rows) -> None:
    store = rows.store
    other = rows.started(4, budget_micros=90_000, hold_ns=600 * NS_PER_SECOND)
    next_one = store.attempts.open(a.HOST, "worker1", "boot", 0, None, 4)
    assert next_one is not None
    held = rows.ready(next_one)
    asked = Exec("e1", held.fork.fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
    store.execs.request(asked)
    store.execs.queued_for(a.HOST, "worker1")
    store.execs.intend(held, asked)
    store.execs.unfinished(held.attempt.attempt_id)
    store.execs.get(a.PROJECT, held.fork.fork_id, "e1")
    store.execs.finish(held, asked)
    store.attempts.held_by(a.HOST)
    store.attempts.get(held.attempt.attempt_id)
    store.attempts.adopt(held.attempt.attempt_id, a.HOST, "worker1")
    store.attempts.overdue()
    _bill(rows, held.run.run_id)
    store.hosts.waiting(10)
    store.hosts.placed()
    store.hosts.list()
    store.census.take()
    store.census.recent(900 * NS_PER_SECOND)
    store.hosts.unassign_dead()
    store.hosts.begin_test(a.HOST)
    store.leaks.found()
    _hold(rows)
    store.runs.list(a.PROJECT, {"step": "1"}, 10, held.run.run_id)
    store.runs.tallies((held.run.run_id,))
    store.runs.attempts(held.run.run_id)
    store.runs.forks(held.run.run_id)
    store.usage.read(Window(0, rows.clock.wall_ns()), a.PROJECT, snapshots=True)
    store.runs.release(a.PROJECT, held.fork.fork_id, EndReason.RELEASED, None)
    rows.close(held, 5)
    rows.close(other, 5, None, a.failed())
    last = rows.ready(rows.open())
    rows.clock.advance(601)
    assert len(store.meters.expire_holds()) == 1
    rows.close(last, 6)
    store.runs.ask_stop(held.run.run_id, EndReason.CANCELLED)
    _build(rows)


def _bill(rows: Rows, run_id: str) -> None:
    meters = rows.store.meters
    meters.accrue()
    meters.sharable()
    meters.share(run_id)
    meters.overqueued()
    meters.expire_queued(run_id)


def _hold(rows: Rows) -> None:
    resources = rows.store.resources
    resources.intend(a.volume("tok_1"), NS_PER_SECOND)
    resources.made("tok_1", "vol-1")
    resources.settle("tok_1")
    resources.of_bundle("build_1")
    resources.of_host(a.HOST)
    resources.living()
    resources.living(ResourceKind.VOLUME)
    resources.made_within(0, rows.clock.wall_ns())
    resources.gone("tok_1")


def _build(rows: Rows) -> None:
    store = rows.store
    build, run, template = a.build()
    store.builds.start(build, run, template, Receipt("key", "sha", {}))
    store.receipts.find(a.PROJECT, "key")
    store.builds.say(build.build_id, "setup", "line")
    store.builds.of_run(run.run_id)
    store.builds.unsettled()
    store.builds.accept(build.build_id, a.snapshot())
    store.snapshots.get(a.PROJECT, "task-suite")
    store.snapshots.bundle_ids()
    store.snapshots.delete(a.PROJECT, "task-suite")
    _who_did_what(store)


def _who_did_what(store: Stores) -> None:
    key, secret = store.keys.create(a.PROJECT, "laptop")
    store.keys.caller_of(secret)
    store.keys.list(a.PROJECT)
    store.keys.revoke(key.key_id, None)
    entry = Entry("audit_1", key.key_id, "start_run", a.PROJECT)
    store.audit.begin(entry)
    store.audit.end(entry)
    for project_id in (a.PROJECT, None):
        store.audit.list(project_id, Sought(actor=key.key_id), 100, Place(1, "audit_1"))
    store.audit.forget(0, 1000)
    store.uploads.note(a.PROJECT, "0" * 64)
    store.uploads.note(a.PROJECT, "0" * 64)
    store.uploads.known(a.PROJECT, ("0" * 64,))
    store.uploads.forget(0)
