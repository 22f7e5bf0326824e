"""A run's bookings and its machines' lives, as its ledger shows them."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from app.domain.run_ledger import Life, Move
from infra.store.engine import AnyRow
from infra.store.tables import attempts, forks, ledger


def moves(at: Connection, run_id: str) -> tuple[Move, ...]:
    """In the order of booking. A subject is a run, a fork or an attempt: its own id tells which."""
    rows = at.execute(
        select(
            ledger,
            attempts.c.attempt_id,
            func.coalesce(attempts.c.fork_id, forks.c.fork_id).label("fork_id"),
        )
        .join_from(ledger, attempts, attempts.c.attempt_id == ledger.c.subject_id, isouter=True)
        .join(forks, forks.c.fork_id == ledger.c.subject_id, isouter=True)
        .where(ledger.c.run_id == run_id)
        .order_by(ledger.c.booked_ns, ledger.c.subject_id, ledger.c.kind, ledger.c.sequence)
    )
    return tuple(_move(row) for row in rows)


def lives(at: Connection, run_id: str) -> tuple[Life, ...]:
    """In the order of opening."""
    rows = at.execute(
        select(attempts)
        .where(attempts.c.run_id == run_id)
        .order_by(attempts.c.opened_ns, attempts.c.number, attempts.c.attempt_id)
    )
    return tuple(life_of(row) for row in rows)


def _move(row: AnyRow) -> Move:
    return Move(
        booked_ns=row.booked_ns,
        kind=row.kind.value,
        fork_id=row.fork_id,
        attempt_id=row.attempt_id,
        pool_micros=row.pool_micros,
        granted_micros=row.granted_micros,
        charged_micros=row.charged_micros,
    )


def life_of(row: AnyRow) -> Life:
    """An attempt's row as a machine's life."""
    closed = row.closed_boot_ns
    return Life(
        attempt_id=row.attempt_id,
        fork_id=row.fork_id,
        number=row.number,
        host_id=row.host_id,
        opened_ns=row.opened_ns,
        closed_ns=row.closed_ns,
        lease_ns=row.lease_ns,
        lived_ns=None if closed is None else closed - row.opened_boot_ns,
        late_ns=row.late_ns,
        verification_micros=row.verification_micros,
        tasks_micros=row.tasks_micros,
        environment_micros=row.environment_micros,
    )
