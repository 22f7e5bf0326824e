"""What a host's login reads it finds by an index, policies included, however much history there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from app.domain.fork import EndReason
from app.domain.run import Closing, Exec, ExecPurpose, Verdict
from infra.fakes.clock import ManualClock
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract.conftest import SECRET, truncate
from tests.contract.host_logins import HostLogins
from tests.contract.rows import Rows

# Small for ever: hosts, their processes and trials, projects; or the list of all that a reaper must keep.
GROWS = re.compile(
    r"Seq Scan on (attempt|fork|run|exec|event|event_count|ledger|sample|build|build_line|resource)\b"
)


@pytest.fixture
def planned(postgres_url: str) -> Iterator[tuple[Rows, Stores, dict[str, str]]]:
    """The owner's rows, a host's store, and how the database goes about each of that one's statements.

    Tables are small in a test, where to read all of one is always the best: so that is what the planner may not do
    unless there is no other way.
    """
    truncate(postgres_url)
    clock = ManualClock()
    own = create_store(postgres_url, key_secret=SECRET, now_ns=clock.wall_ns)
    logins = HostLogins(postgres_url, clock)
    seen: dict[str, str] = {}
    store = logins.store(a.HOST)

    def connected(connection: Any, _record: object) -> None:
        connection.execute("SET enable_seqscan = off")
        connection.commit()

    def explain(_c: Any, cursor: Any, statement: str, values: Any, _x: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT")) and not many:
            plan = cursor.connection.execute(f"EXPLAIN {statement}", values).fetchall()
            seen[statement] = "\n".join(row[0] for row in plan)

    event.listen(store.database.engine, "connect", connected)
    event.listen(store.database.engine, "before_cursor_execute", explain)
    yield Rows(own, clock), store, seen
    logins.close()
    own.close()


def test_no_policy_reads_all_that_ever_was(planned: tuple[Rows, Stores, dict[str, str]]) -> None:
    rows, store, seen = planned
    _live(rows, store)
    assert len(seen) > 30
    assert {each: plan for each, plan in seen.items() if GROWS.search(plan)} == {}
    # For one row: all that this host ever had, read and remembered.
    assert {each: plan for each, plan in seen.items() if "hashed" in plan} == {}


def _live(rows: Rows, store: Stores) -> None:
    rows.host()
    run_id = rows.start(4, keep_failed=1).run_id
    rows.place()
    ends = ((EndReason.COMMAND_PASSED, None), (None, a.failed()))
    for number, (then, failure) in enumerate(ends):
        opened = store.attempts.open(a.HOST, "w", "boot", 0, None, 4)
        assert opened is not None
        checking = store.attempts.checking(opened, (), str(number).ljust(32, "0"))
        ready = store.attempts.ready(store.attempts.checked(checking, ()), 10**9, ())
        ids = (ready.fork.fork_id, ready.attempt.attempt_id, a.PROJECT)
        task = Exec(f"task_{number}", *ids, ExecPurpose.TASK, a.COMMAND)
        assert store.execs.intend(ready, task) is not None
        store.execs.unfinished(ready.attempt.attempt_id)
        store.execs.note(ready, task)
        store.execs.finish(ready, task)
        store.execs.find(task.exec_id)
        store.attempts.keep(ready, Verdict(EndReason.COMMAND_FAILED))
        store.attempts.held_by(a.HOST)
        store.attempts.adopt(ready.attempt.attempt_id, a.HOST, "w", of="w")
        store.attempts.close(ready, Closing(3 * 10**9, then, failure=failure))
    store.execs.queued_for(a.HOST, "w")
    store.warm.needs(a.HOST)
    store.builds.of_run(run_id)
    store.builds.find("build_1")
    store.runs.get(a.PROJECT, run_id)
    store.runs.forks(run_id)
    store.hosts.register(a.fingerprint(), 16)
    store.hosts.heartbeat(a.HOST, ())
    store.hosts.begin_test(a.HOST)
    store.resources.of_host(a.HOST)
    store.resources.of_bundle("build_1")
