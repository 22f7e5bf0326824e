"""Runs and their forks, as the control plane sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, exists, insert, select, tuple_, update

from app.domain.account import Receipt
from app.domain.event import Event, EventKind
from app.domain.fork import EndReason, ForkState
from app.domain.fork_page import Machine
from app.domain.report import AttemptLine, Tally
from app.domain.run import Attempt, Fork, Role, Run, RunKind
from app.domain.run_ledger import Life, Move
from app.errors import Conflict, NotFound
from infra.store import bookings
from infra.store.budgets import commit_budget
from infra.store.ending import ask_all, end_waiting, let_go, over
from infra.store.engine import AnyRow, Database
from infra.store.events import begin_events, events_after, of_fork, of_run, tell
from infra.store.looking import console_of, machines_of
from infra.store.money import book_budget
from infra.store.receipts import keep_receipt
from infra.store.rows import (
    columns_of,
    find_attempt,
    fork_of,
    insert_all,
    insert_forks,
    lock_forks,
    lock_run,
    noun_of,
    open_of,
)
from infra.store.snapshots import pin
from infra.store.tables import attempts, forks, is_live, labels, runs
from infra.store.tallies import tallies

RELEASES = frozenset({EndReason.RELEASED, EndReason.RELEASED_PASSED, EndReason.RELEASED_FAILED})


class Runs:
    """`app.ports.store.Runs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, run: Run, forks: tuple[Fork, ...], receipt: Receipt | None) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            keep_receipt(at, run.project_id, receipt, now_ns)
            pin(at, run.project_id, {fork.snapshot for fork in forks})
            insert_run(at, run, forks, now_ns)

    def get(self, project_id: str, run_id: str) -> Run:
        with self._database.read() as at:
            return _run_of(at, project_id, run_id)

    def list(
        self, project_id: str, labels: dict[str, str], limit: int, before: str | None
    ) -> tuple[Run, ...]:
        page = select(runs).where(runs.c.project_id == project_id, runs.c.kind == RunKind.USER)
        for name, value in labels.items():
            page = page.where(_labelled(name, value))
        order = (runs.c.created_ns.desc(), runs.c.run_id.desc())
        with self._database.read() as at:
            if before is not None:
                last = _run_of(at, project_id, before)
                page = page.where(
                    tuple_(runs.c.created_ns, runs.c.run_id) < tuple_(last.created_ns, last.run_id)
                )
            rows = at.execute(page.order_by(*order).limit(limit))
            return tuple(noun_of(Run, row) for row in rows)

    def forks(self, run_id: str) -> tuple[Fork, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(forks)
                .where(forks.c.run_id == run_id, forks.c.role == Role.FORK)
                .order_by(forks.c.index)
            )
            return tuple(fork_of(row) for row in rows)

    def fork(self, project_id: str, fork_id: str) -> Fork:
        with self._database.read() as at:
            row = at.execute(
                select(forks).where(forks.c.fork_id == fork_id, forks.c.project_id == project_id)
            ).one_or_none()
        if row is None:
            raise NotFound("unknown_fork", f"there is no fork {fork_id}")
        return fork_of(row)

    def machines(self, fork_id: str) -> tuple[Machine, ...]:
        with self._database.read() as at:
            return machines_of(at, fork_id, self._database.now_ns(at))

    def console(self, fork_id: str) -> tuple[str, str] | None:
        with self._database.read() as at:
            return console_of(at, fork_id)

    def attempts(self, run_id: str) -> tuple[AttemptLine, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(attempts)
                .where(attempts.c.run_id == run_id)
                .order_by(attempts.c.opened_ns, attempts.c.number, attempts.c.attempt_id)
            )
            return tuple(_line(row) for row in rows)

    def tallies(self, run_ids: tuple[str, ...]) -> dict[str, Tally]:
        with self._database.read() as at:
            return tallies(at, run_ids)

    def ledger(self, run_id: str) -> tuple[tuple[Move, ...], tuple[Life, ...]]:
        with self._database.read() as at:
            return bookings.moves(at, run_id), bookings.lives(at, run_id)

    def events(
        self, project_id: str, run_id: str, after: int, limit: int
    ) -> tuple[tuple[Event, ...], bool]:
        with self._database.read() as at:
            return events_after(at, project_id, run_id, after, limit)

    def ask_stop(self, run_id: str, reason: EndReason) -> tuple[Attempt, ...]:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            run = lock_run(at, run_id)
            live = lock_forks(at, forks.c.run_id == run_id, is_live)
            waiting = ask_all(at, live, reason, now_ns)
            let_go(at, run, waiting, now_ns)
            return open_of(at, run_id)

    def release(
        self, project_id: str, fork_id: str, reason: EndReason, reward: float | None
    ) -> Attempt | None:
        run_id = self.fork(project_id, fork_id).run_id
        with self._database.write() as at:
            run = lock_run(at, run_id)
            (fork,) = lock_forks(at, forks.c.fork_id == fork_id)
            if _already(run, fork, reason, reward):
                return _machine_of(at, fork)
            # The verdict on a fork that was kept stands, its grade included.
            result = replace(fork.result, reward=reward) if fork.kept is None else fork.result
            at.execute(
                update(forks)
                .where(forks.c.fork_id == fork_id)
                .values(stop_asked=reason, result=result)
            )
            now_ns = self._database.now_ns(at)
            asked = replace(fork, stop_asked=reason, result=result)
            tell(at, [of_fork(EventKind.STOP_ASKED, asked, reason=reason)])
            if fork.state is ForkState.QUEUED:
                end_waiting(at, run, [asked], reason, now_ns)
                return None
            return _machine_of(at, fork)


def insert_run(at: Connection, run: Run, its_forks: tuple[Fork, ...], now_ns: int) -> None:
    """A run with its labels, its forks and the money that they begin with.

    Raises Conflict(project_budget_exhausted).
    """
    if sum(fork.grant_micros for fork in its_forks) != run.granted_micros:
        raise ValueError(f"the grants of {run.run_id}'s forks do not add up to what is granted")
    spec = run.spec
    at.execute(
        insert(runs).values(
            columns_of(replace(run, created_ns=now_ns))
            | {
                "micros_per_hour": run.quote.rate.micros_per_hour,
                "hold_ns": spec.hold_ns,
                "queue_timeout_ns": spec.queue_timeout_ns,
            }
        )
    )
    insert_all(
        at,
        labels,
        [{"run_id": run.run_id, "name": name, "value": value} for name, value in spec.labels],
    )
    insert_forks(at, its_forks, now_ns)
    book_budget(at, run, now_ns)
    commit_budget(at, run, now_ns)
    begin_events(at, run.run_id)
    tell(at, [of_run(EventKind.RUN_STARTED, run, **_asked(run, its_forks))])


def _asked(run: Run, its_forks: tuple[Fork, ...]) -> dict[str, object]:
    rule = run.spec.stop_when
    return {
        "kind": run.kind.value,
        "forks": len(its_forks),
        "snapshots": sorted({fork.snapshot for fork in its_forks}),
        "held": run.spec.hold_ns is not None,
        "stop_when": None if rule is None else {"env_failed_share": rule.env_failed_share},
    }


def _run_of(at: Connection, project_id: str, run_id: str) -> Run:
    row = at.execute(
        select(runs).where(runs.c.run_id == run_id, runs.c.project_id == project_id)
    ).one_or_none()
    if row is None:
        raise NotFound("unknown_run", f"there is no run {run_id}")
    return noun_of(Run, row)


def _labelled(name: str, value: str) -> Any:
    return exists().where(
        labels.c.run_id == runs.c.run_id, labels.c.name == name, labels.c.value == value
    )


def _line(row: AnyRow) -> AttemptLine:
    return AttemptLine(
        noun_of(Attempt, row), row.verification_micros, row.tasks_micros, row.environment_micros
    )


def _already(run: Run, fork: Fork, reason: EndReason, reward: float | None) -> bool:
    """Whether this very release was made before. Raises Conflict if the fork ends, or ended, in another way."""
    if fork.kept is not None:
        return _kept_already(fork, reason, reward)
    if run.spec.hold_ns is None or fork.role is Role.TEMPLATE:
        raise Conflict("fork_not_held", f"fork {fork.fork_id} is not a held fork")
    wish = fork.reason or fork.stop_asked
    if wish is None:
        return False
    if wish not in RELEASES:
        raise over(fork)
    if (wish, fork.result.reward) != (reason, reward):
        raise Conflict("already_released", f"fork {fork.fork_id} was released with another grade")
    return True


def _kept_already(fork: Fork, reason: EndReason, reward: float | None) -> bool:
    """Whether a kept fork has ended, or is asked to. Raises Conflict(verdict_stands) for a grade."""
    assert fork.kept is not None
    if reason is not EndReason.RELEASED or reward is not None:
        raise Conflict(
            "verdict_stands",
            f"fork {fork.fork_id} was kept after its verdict ({fork.kept.value}); release it without a grade",
            fork_id=fork.fork_id,
            kept=fork.kept.value,
        )
    return fork.reason is not None or fork.stop_asked is not None


def _machine_of(at: Connection, fork: Fork) -> Attempt | None:
    if fork.attempt_id is None:
        return None
    attempt = find_attempt(at, fork.attempt_id)
    return None if attempt is None or attempt.closed_boot_ns is not None else attempt
