"""What the control plane makes of a run after its hosts closed attempts: its rule, what cannot go on, its end.

Hosts write what is their own: a machine's end, its charge, its fork. What ends or stops forks of other hosts, and what
gives a project its money back, happens here, under the run's lock, right after them.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    func,
    literal_column,
    or_,
    select,
    type_coerce,
)

from app.domain import ledger
from app.domain.ledger import Move
from app.domain.run import Fork, Run, RunState
from app.domain.sequel import Sequel
from infra.store.ending import end_rows, end_run_if_done, returned, stop_by_rule
from infra.store.money import Entry, book
from infra.store.room import give_back
from infra.store.rows import lock_forks, lock_run, open_of, save
from infra.store.schema import LedgerKind
from infra.store.tables import builds, forks, is_active, is_live, is_queued, runs

# Placed, and nobody may open a machine for it as it is.
CANNOT_START = (
    is_queued,
    forks.c.host_id.is_not(None),
    or_(forks.c.stop_asked.is_not(None), forks.c.grant_micros < forks.c.smallest_micros),
)
_ENV_FAILED: ColumnElement[str] = literal_column("'env_failed'")
# In a column of JSON, text that came from outside has its quotes escaped: this names the field and nothing else.
_HAS_A_RULE = type_coerce(runs.c.spec, Text).like('%"stop_when":{%')


def unsettled(at: Connection) -> tuple[str, ...]:
    """Live runs without a live fork, with one that cannot start, or whose rule is broken; the oldest first."""
    live = select(forks.c.fork_id).where(forks.c.run_id == runs.c.run_id, is_live)
    unable = select(forks.c.fork_id).where(forks.c.run_id == runs.c.run_id, *CANNOT_START)
    found = at.execute(
        select(runs.c.run_id, runs.c.created_ns).where(
            is_active, or_(~live.exists(), unable.exists())
        )
    )
    ordered = {(row.created_ns, row.run_id) for row in found} | _broken(at)
    return tuple(run_id for _, run_id in sorted(ordered))


def settle(at: Connection, run_id: str, now_ns: int) -> Sequel | None:
    """`Meters.settle`, in the caller's transaction."""
    before = run = lock_run(at, run_id)
    if run.state is RunState.ENDED:
        return None
    waited = []
    for fork in _unable(at, run):
        run, goes = _fund_or_end(at, run, fork, now_ns)
        waited += [fork] if goes else []
    run, stopped = stop_by_rule(at, run, now_ns)
    run = book(at, run, [returned(fork) for fork in stopped], now_ns)
    # All hosts in one go, in the order of their ids, and their projects after them.
    give_back(at, [*waited, *stopped])
    run = end_run_if_done(at, run, now_ns)
    return None if run == before else sequel_of(at, before, run)


def sequel_of(at: Connection, before: Run, run: Run) -> Sequel:
    """What became of a run, locked, since it was as it was before."""
    ended = run.state is RunState.ENDED
    stopped = before.stopped is None and run.stopped is not None and not ended
    build = _build_of(at, run.run_id) if ended else None
    return Sequel(
        run.run_id,
        ended,
        None if build is None else build[0],
        None if build is None else build[1],
        open_of(at, run.run_id) if stopped else (),
    )


def _broken(at: Connection) -> set[tuple[int, str]]:
    """Runs that have failed forks and a rule that this breaks."""
    failed = (
        select(func.count())
        .where(forks.c.run_id == runs.c.run_id, forks.c.outcome == _ENV_FAILED)
        .scalar_subquery()
    )
    ruled = (is_active, runs.c.stopped.is_(None), _HAS_A_RULE)
    rows = at.execute(
        select(runs.c.run_id, runs.c.created_ns, runs.c.spec, failed.label("failed")).where(
            *ruled, failed > 0
        )
    )
    return {
        (row.created_ns, row.run_id)
        for row in rows
        if row.spec.stop_when.reached(row.failed, row.spec.count)
    }


def _unable(at: Connection, run: Run) -> list[Fork]:
    """Locked, in the order in which they wait."""
    if not at.execute(_of(run.run_id).limit(1)).first():
        return []
    if run.spec.stop_when is not None:
        # Their ends may stop all others: whoever locks several forks does so in the order of their ids.
        lock_forks(at, forks.c.run_id == run.run_id, is_live)
    found = lock_forks(at, forks.c.run_id == run.run_id, *CANNOT_START)
    return sorted(found, key=lambda fork: (fork.queued_ns, fork.index))


def _of(run_id: str) -> Select[tuple[str]]:
    return select(forks.c.fork_id).where(forks.c.run_id == run_id, *CANNOT_START)


def _fund_or_end(at: Connection, run: Run, fork: Fork, now_ns: int) -> tuple[Run, bool]:
    """A queued fork that may not start: fund its smallest lease from the pool, or end it; whether it ends."""
    move = ledger.top_up(fork.grant_micros, fork.smallest_micros, run.pool_micros)
    if fork.stop_asked is None and move is not None:
        return _top_up(at, run, fork, move, now_ns), False
    unfunded = ledger.unfunded(failed_before=fork.failure is not None)
    end_rows(at, [fork], fork.stop_asked or unfunded, now_ns)
    return book(at, run, [returned(fork)], now_ns), True


def _top_up(at: Connection, run: Run, fork: Fork, move: Move, now_ns: int) -> Run:
    # Once for each machine that it may get, so the machines so far are the number of the entry.
    entry = Entry(fork.fork_id, LedgerKind.TOP_UP, move, sequence=fork.attempts)
    topped_up = replace(fork, grant_micros=fork.grant_micros + move.granted_micros)
    save(at, forks, "fork_id", fork, topped_up)
    return book(at, run, [entry], now_ns)


def _build_of(at: Connection, run_id: str) -> tuple[str, str | None] | None:
    row = at.execute(
        select(builds.c.build_id, forks.c.host_id)
        .join(forks, forks.c.fork_id == builds.c.template_fork_id)
        .where(builds.c.run_id == run_id)
    ).one_or_none()
    return None if row is None else (row.build_id, row.host_id)
