"""Runs counted by the database: what is polled while thousands of forks run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import Connection, func, select

from app.domain.report import Tally
from app.domain.run import Role
from infra.store.rows import NEEDS, waiting_of
from infra.store.tables import attempts, forks, is_queued


def tallies(at: Connection, run_ids: tuple[str, ...]) -> dict[str, Tally]:
    """A tally for each of the runs."""
    counts, charges = _counts(at, run_ids), _charges(at, run_ids)
    unplaced = _unplaced(at, run_ids)
    return {
        run_id: Tally(**counts[run_id], **charges.get(run_id, {}), **unplaced.get(run_id, {}))
        for run_id in run_ids
    }


def _counts(at: Connection, run_ids: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    kinds = (forks.c.run_id, forks.c.state, forks.c.outcome)
    rows = at.execute(
        select(*kinds, func.count().label("forks"), func.count(forks.c.kept).label("kept"))
        .where(forks.c.run_id.in_(run_ids), forks.c.role == Role.FORK)
        .group_by(*kinds)
    )
    counts: dict[str, dict[str, Any]] = {
        run_id: {"states": Counter(), "outcomes": Counter(), "kept": 0} for run_id in run_ids
    }
    for row in rows:
        counts[row.run_id]["states"][row.state] += row.forks
        if row.outcome is not None:
            counts[row.run_id]["outcomes"][row.outcome] += row.forks
        else:
            counts[row.run_id]["kept"] += row.kept
    return counts


def _charges(at: Connection, run_ids: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    names = ("verification_micros", "tasks_micros", "environment_micros")
    sums = [func.sum(attempts.c[name]).label(name) for name in names]
    rows = at.execute(
        select(attempts.c.run_id, func.count().label("attempts"), *sums)
        .where(attempts.c.run_id.in_(run_ids))
        .group_by(attempts.c.run_id)
    )
    return {
        row.run_id: {
            "attempts": row.attempts,
            # PostgreSQL adds up 64-bit integers as decimals.
            **{name: int(getattr(row, name)) for name in names},
        }
        for row in rows
    }


def _unplaced(at: Connection, run_ids: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    waits = (forks.c.run_id.in_(run_ids), is_queued, forks.c.host_id.is_(None))
    of_run = (
        select(forks.c.run_id, func.count().label("forks"), func.min(forks.c.index).label("first"))
        .where(*waits, forks.c.role == Role.FORK)
        .group_by(forks.c.run_id)
        .subquery()
    )
    rows = at.execute(
        select(*NEEDS, of_run.c.forks)
        .join(of_run, of_run.c.run_id == forks.c.run_id)
        .where(*waits, forks.c.index == of_run.c.first)
    )
    return {row.run_id: {"unplaced": row.forks, "first_unplaced": waiting_of(row)} for row in rows}
