from __future__ import annotations

from app.api.schemas.base import Answer, Instant


class LedgerMove(Answer):
    """One booking between pool, grants and charges: what each gained; only `budget` adds up to more than nothing."""

    at: Instant
    kind: str
    fork_id: str | None
    attempt_id: str | None
    pool_usd: float
    granted_usd: float
    charged_usd: float


class MachineLife(Answer):
    """One machine's life; `seconds` and `closed_at` are null while it lives, its costs what it accrued so far."""

    attempt_id: str
    fork_id: str
    attempt: int
    host: str
    opened_at: Instant
    closed_at: Instant | None
    lease_seconds: float
    seconds: float | None
    late_kill_seconds: float
    verification_usd: float
    tasks_usd: float
    environment_usd: float


class RunLedger(Answer):
    """Where every micro-dollar of a run went; pool, granted and charged add up to the budget."""

    run_id: str
    budget_usd: float
    pool_usd: float
    granted_usd: float
    charged_usd: float
    rate_usd_per_fork_hour: float
    moves: list[LedgerMove]
    attempts: list[MachineLife]
