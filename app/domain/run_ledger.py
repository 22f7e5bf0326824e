"""Where every micro-dollar of a run went: each move of its money, and each machine's life with what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND, usd
from app.domain.run import Run


@dataclass(frozen=True, slots=True)
class Move:
    """One booking between pool, grants and charges; only `budget` makes money, all others add up to nothing.

    `fork_id` is whose grant it is, None where a move is of many forks or of the run itself.
    """

    booked_ns: int
    kind: str
    fork_id: str | None
    attempt_id: str | None
    pool_micros: int
    granted_micros: int
    charged_micros: int


@dataclass(frozen=True, slots=True)
class Life:
    """One machine's life by the database's clock; `lived_ns`, which is charged, by its host's. None while it lives."""

    attempt_id: str
    fork_id: str
    number: int
    host_id: str
    opened_ns: int
    closed_ns: int | None
    lease_ns: int
    lived_ns: int | None
    late_ns: int
    verification_micros: int
    tasks_micros: int
    environment_micros: int


def run_ledger(run: Run, moves: tuple[Move, ...], lives: tuple[Life, ...]) -> dict[str, object]:
    """The JSON shape. The run's figures are the sums over `moves`; the charge is that of its closed `attempts`."""
    pool = sum(move.pool_micros for move in moves)
    granted = sum(move.granted_micros for move in moves)
    charged = sum(move.charged_micros for move in moves)
    return {
        "run_id": run.run_id,
        "budget_usd": usd(pool + granted + charged),
        "pool_usd": usd(pool),
        "granted_usd": usd(granted),
        "charged_usd": usd(charged),
        "rate_usd_per_fork_hour": usd(run.quote.rate.micros_per_hour),
        "moves": [_move(move) for move in moves],
        "attempts": [_life(life) for life in lives],
    }


def _move(move: Move) -> dict[str, object]:
    return {
        "at": instant(move.booked_ns),
        "kind": move.kind,
        "fork_id": move.fork_id,
        "attempt_id": move.attempt_id,
        "pool_usd": usd(move.pool_micros),
        "granted_usd": usd(move.granted_micros),
        "charged_usd": usd(move.charged_micros),
    }


def _life(life: Life) -> dict[str, object]:
    return {
        "attempt_id": life.attempt_id,
        "fork_id": life.fork_id,
        "attempt": life.number,
        "host": life.host_id,
        "opened_at": instant(life.opened_ns),
        "closed_at": None if life.closed_ns is None else instant(life.closed_ns),
        "lease_seconds": _seconds(life.lease_ns),
        "seconds": None if life.lived_ns is None else _seconds(life.lived_ns),
        "late_kill_seconds": _seconds(life.late_ns),
        "verification_usd": usd(life.verification_micros),
        "tasks_usd": usd(life.tasks_micros),
        "environment_usd": usd(life.environment_micros),
    }


def _seconds(duration_ns: int) -> float:
    return round(duration_ns / NS_PER_SECOND, 3)
