"""Where money goes: the ledger of a run."""

from __future__ import annotations

from typing import TypedDict


class LedgerMove(TypedDict):
    """One booking: what pool, grants and charges gained. Only a `budget` adds up to more than nothing."""

    at: str
    kind: str
    fork_id: str | None
    attempt_id: str | None
    pool_usd: float
    granted_usd: float
    charged_usd: float


class MachineLife(TypedDict):
    """One machine's life and cost; `closed_at` and `seconds` are None while it lives, its costs what it accrued."""

    attempt_id: str
    fork_id: str
    attempt: int
    host: str
    opened_at: str
    closed_at: str | None
    lease_seconds: float
    seconds: float | None
    late_kill_seconds: float
    verification_usd: float
    tasks_usd: float
    environment_usd: float


class RunLedger(TypedDict):
    """Where every micro-dollar of a run went; pool, granted and charged add up to the budget."""

    run_id: str
    budget_usd: float
    pool_usd: float
    granted_usd: float
    charged_usd: float
    rate_usd_per_fork_hour: float
    moves: list[LedgerMove]
    attempts: list[MachineLife]
