"""What the database says of one run, and of what is not finished: plain rows, read by no code of the product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

_NOT_FINAL = {
    "run": "SELECT run_id AS id FROM run WHERE state <> 'ended'",
    "fork": "SELECT fork_id AS id FROM fork WHERE state <> 'ended' OR grant_micros <> 0",
    "attempt": "SELECT attempt_id AS id FROM attempt WHERE closed_boot_ns IS NULL",
    "exec": "SELECT exec_id AS id FROM exec WHERE state IN ('queued', 'running')",
}
_HOSTS = "SELECT host_id, slots, free_slots, memory_mib, free_memory_mib, disk_gib, free_disk_gib FROM host"
_PROJECTS = "SELECT project_id, live_forks FROM project WHERE live_forks <> 0"
_MONTHS = (
    "SELECT project_id, committed, charged FROM"
    " (SELECT project_id, sum(committed_micros) AS committed FROM project_month GROUP BY project_id) AS months"
    " JOIN (SELECT project_id, sum(charged_micros) AS charged FROM run GROUP BY project_id) AS runs"
    " USING (project_id) WHERE committed <> charged"
)
_RUN = (
    "SELECT budget_micros, pool_micros, granted_micros, charged_micros, micros_per_hour"
    " FROM run WHERE run_id = %s"
)
_LEDGER = (
    "SELECT sum(pool_micros) AS pool, sum(granted_micros) AS granted, sum(charged_micros) AS charged"
    " FROM ledger WHERE run_id = %s"
)
_ATTEMPTS = (
    "SELECT attempt_id, fork_id, number, opened_boot_ns, closed_boot_ns, lease_ns, charged_micros,"
    " verification_micros, tasks_micros, environment_micros FROM attempt WHERE run_id = %s"
)


class Rows(Protocol):
    """A database that answers a SELECT with `%s` in it."""

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """What it finds."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """One machine's life as it was charged. Times are the host's CLOCK_BOOTTIME in ns."""

    attempt_id: str
    fork_id: str
    number: int
    opened_boot_ns: int
    closed_boot_ns: int | None
    lease_ns: int
    charged_micros: int
    verification_micros: int
    tasks_micros: int
    environment_micros: int


@dataclass(frozen=True, slots=True)
class Account:
    """A run's money: what its row says, and the sums of its ledger (pool, granted, charged)."""

    budget_micros: int
    pool_micros: int
    granted_micros: int
    charged_micros: int
    micros_per_hour: int
    booked: tuple[int, int, int]
    attempts: tuple[Attempt, ...]


def account_of(database: Rows, run_id: str) -> Account:
    """Everything that was booked for a run."""
    (run,) = database.rows(_RUN, run_id)
    (booked,) = database.rows(_LEDGER, run_id)
    return Account(
        **run,
        booked=(int(booked["pool"]), int(booked["granted"]), int(booked["charged"])),
        attempts=tuple(Attempt(**row) for row in database.rows(_ATTEMPTS, run_id)),
    )


def unfinished(database: Rows) -> list[str]:
    """Rows that are not final; room of hosts, places and money of projects that were not given back."""
    waiting = [
        f"{table} {row['id']} is not final"
        for table, statement in _NOT_FINAL.items()
        for row in database.rows(statement)
    ]
    return [
        *waiting,
        *(line for row in database.rows(_HOSTS) for line in _kept_room(row)),
        *(
            f"project {row['project_id']} counts {row['live_forks']} live forks"
            for row in database.rows(_PROJECTS)
        ),
        *(
            f"project {row['project_id']} has {row['committed']} committed, its runs {row['charged']}"
            for row in database.rows(_MONTHS)
        ),
    ]


def _kept_room(row: dict[str, Any]) -> Iterator[str]:
    for whole in ("slots", "memory_mib", "disk_gib"):
        if row[f"free_{whole}"] != row[whole]:
            yield f"host {row['host_id']} has {row[f'free_{whole}']} of {row[whole]} {whole} free"
