"""Answers of the wire, whole and typed, with what a test cares about changed."""

from __future__ import annotations

from typing import Literal

from promigence.types import (
    Cost,
    ExecResult,
    FailedAttempt,
    Failure,
    Fork,
    ForkReport,
    ForkState,
    Host,
    LedgerMove,
    Outcome,
    Progress,
    Project,
    Quote,
    Report,
    Run,
    RunLedger,
    Started,
    Totals,
    Usage,
    UsageAmounts,
    UsageRow,
)
from promigence.types.usage import By
from tests.sdk.snapshot_shapes import INSTANT as INSTANT
from tests.sdk.snapshot_shapes import build as build
from tests.sdk.snapshot_shapes import snapshot as snapshot


def quote(requested: int = 2, **cap: float) -> Quote:
    return {
        "quote_id": "q-1",
        "max_cost_usd": 0.2,
        "worst_case_usd": 0.2,
        "spend_cap_usd": cap.get("spend_cap_usd", 1.0),
        "funded_seconds_per_fork": 720.0,
        "rate": {"usd_per_fork_hour": 0.05, "basis": "on_demand", "card_version": "1"},
        "concurrency": {"requested": requested, "slots": 8, "free_now": 8, "binding": "request"},
        "limits": {
            "binding": "worst_case",
            "project_left_usd": None,
            "project_max_forks": None,
            "project_live_forks": 0,
        },
        "accelerator": "tcg",
        "expires_at": INSTANT,
    }


def project() -> Project:
    return {
        "project": "lab",
        "month": "2026-11",
        "resets_at": "2026-12-01T00:00:00.000Z",
        "monthly_budget_usd": 5.0,
        "charged_usd": 1.5,
        "reserved_usd": 2.5,
        "left_usd": 1.0,
        "max_forks": 8,
        "live_forks": 3,
    }


def started(run_id: str = "r-1") -> Started:
    return {"run_id": run_id, "state": "queued", "quote": quote()}


def totals(**counts: int) -> Totals:
    """Counts by outcome; `requested` is their sum."""
    return {
        "requested": sum(counts.values()),
        "passed": counts.get("passed", 0),
        "failed": counts.get("failed", 0),
        "timed_out": counts.get("timed_out", 0),
        "released": counts.get("released", 0),
        "env_failed": counts.get("env_failed", 0),
        "capped": counts.get("capped", 0),
        "cancelled": counts.get("cancelled", 0),
        "pending": counts.get("pending", 0),
    }


def cost(total_usd: float = 0.012) -> Cost:
    return {
        "total_usd": total_usd,
        "spend_cap_usd": 1.0,
        "tasks_usd": total_usd,
        "environment_usd": 0.0,
        "verification_usd": 0.0,
        "rate_usd_per_fork_hour": 0.05,
    }


def progress(waiting_for: str | None = None, **states: int) -> Progress:
    return {
        "queued": states.get("queued", 0),
        "restoring": states.get("restoring", 0),
        "checking": states.get("checking", 0),
        "ready": states.get("ready", 0),
        "running": states.get("running", 0),
        "kept": states.get("kept", 0),
        "waiting_for": waiting_for,
    }


def run(run_id: str = "r-1", **counts: int) -> Run:
    """A run, its pending forks all running; it is final when no fork is pending."""
    pending = counts.get("pending", 0)
    return {
        "run_id": run_id,
        "state": "running" if pending else "ended",
        "final": not pending,
        "snapshots": ["task-suite@1"],
        "labels": {"step": "17"},
        "created_at": INSTANT,
        "ended_at": None if pending else INSTANT,
        "quote": quote(),
        "totals": totals(**counts),
        "cost": cost(),
        "stopped": None,
        "progress": progress(running=pending),
    }


def waiting_run(queued: int, running: int, waiting_for: str | None = None) -> Run:
    """A run larger than what is free."""
    waiting = run(pending=queued + running)
    waiting["progress"] = progress(waiting_for, queued=queued, running=running)
    return waiting


def failure(kind: str = "guest_lost") -> Failure:
    return {
        "kind": kind,
        "phase": "exec",
        "code": kind,
        "message": "the machine's process died",
        "retryable": True,
        "task_may_have_caused": False,
        "evidence": {"exit_signal": 9},
    }


def fork_report(
    index: int,
    outcome: Outcome | Literal["pending"],
    reward: float | None = None,
    *,
    key: str | None = None,
) -> ForkReport:
    return {
        "fork_id": f"f-{index}",
        "index": index,
        "key": key,
        "snapshot": "task-suite@1",
        "outcome": outcome,
        "reward": reward,
        "reason": None,
        "reward_valid": reward is not None,
        "exit_code": {"passed": 0, "failed": 1}.get(outcome),
        "stdout_tail": "",
        "stderr_tail": "",
        "truncated": False,
        "seconds": 1.5,
        "cost_usd": 0.006,
        "host": "h-1",
        "checks": [{"name": "barrier", "sound": True, "seen": "nonce", "seconds": 0.1}],
        "attempts": 1,
        "grade": None,
        "failure": failure() if outcome == "env_failed" else None,
        "kept": None,
        "draining": False,
        "gone_at": None,
    }


def failed_attempt(index: int = 0) -> FailedAttempt:
    return {
        **failure(),
        "fork_id": f"f-{index}",
        "index": index,
        "key": None,
        "snapshot": "task-suite@1",
        "attempt": 1,
        "host": "h-1",
        "cost_usd": 0.001,
        "replaced": False,
    }


def report(*forks: ForkReport, run_id: str = "r-1") -> Report:
    """A report of these forks; final when none is pending."""
    counts: dict[str, int] = {}
    for fork in forks:
        counts[fork["outcome"]] = counts.get(fork["outcome"], 0) + 1
    return {
        "run_id": run_id,
        "state": "running" if counts.get("pending") else "ended",
        "final": not counts.get("pending"),
        "totals": totals(**counts),
        "cost": cost(),
        "stopped": None,
        "environment_failures": [
            failed_attempt(fork["index"]) for fork in forks if fork["outcome"] == "env_failed"
        ],
        "forks": list(forks),
    }


def ledger() -> RunLedger:
    """One machine, charged, its fork's rest returned."""
    return {
        "run_id": "r-1",
        "budget_usd": 0.2,
        "pool_usd": 0.199,
        "granted_usd": 0.0,
        "charged_usd": 0.001,
        "rate_usd_per_fork_hour": 0.05,
        "moves": [
            _move("budget", 0.0, 0.2, 0.0),
            _move("charge", 0.0, -0.001, 0.001, "a-1"),
            _move("return", 0.199, -0.199, 0.0),
        ],
        "attempts": [
            {
                "attempt_id": "a-1",
                "fork_id": "f-0",
                "attempt": 1,
                "host": "h-1",
                "opened_at": INSTANT,
                "closed_at": INSTANT,
                "lease_seconds": 120.0,
                "seconds": 72.0,
                "late_kill_seconds": 0.0,
                "verification_usd": 0.0002,
                "tasks_usd": 0.0008,
                "environment_usd": 0.0,
            }
        ],
    }


def _move(
    kind: str, pool: float, granted: float, charged: float, attempt_id: str | None = None
) -> LedgerMove:
    return {
        "at": INSTANT,
        "kind": kind,
        "fork_id": None if kind == "budget" else "f-0",
        "attempt_id": attempt_id,
        "pool_usd": pool,
        "granted_usd": granted,
        "charged_usd": charged,
    }


def fork(index: int = 0, state: ForkState = "ready") -> Fork:
    return {
        "fork_id": f"f-{index}",
        "run_id": "r-1",
        "index": index,
        "key": None,
        "snapshot": "task-suite@1",
        "state": state,
        "outcome": None,
        "reason": None,
        "host": "h-1",
        "attempts": 1,
        "failure": None,
        "kept": None,
        "draining": False,
        "gone_at": None,
    }


def exec_result(exit_code: int | None = 0, *, stdout: str = "") -> ExecResult:
    return {
        "exec_id": "x-1",
        "exit_code": exit_code,
        "timed_out": exit_code is None,
        "signal": None,
        "stdout": stdout,
        "stderr": "",
        "truncated": False,
        "seconds": 0.02,
    }


def host() -> Host:
    return {
        "host_id": "h-1",
        "quarantine": None,
        "state": "up",
        "accelerator": "tcg",
        "accelerator_reason": "no /dev/kvm",
        "cpu_model": "qemu64",
        "vcpus": 2,
        "memory_mib": 8192,
        "disk_gib": 60,
        "slots": 8,
        "slots_free": 7,
        "zone": "us-east-1a",
        "gone_at": None,
        "fetches": True,
        "unready": None,
        "disk_left_bytes": 40 << 30,
        "restore_keys": ["10.0.8/pc-q35-10.0/tcg/qemu64"],
        "mounted": ["task-suite@1"],
        "unmountable": {},
        "missing": ["kvm"],
        "heartbeat_age_seconds": 1.0,
    }


def usage_amounts(charged_usd: float = 1.25, idle_usd: float | None = None) -> UsageAmounts:
    return {
        "forks": 3,
        "attempts": 4,
        "fork_seconds": 5400.0,
        "charged_usd": charged_usd,
        "verification_usd": 0.25,
        "tasks_usd": charged_usd - 0.25,
        "environment_usd": 0.0,
        "accruing_usd": 0.000001,
        "estimate": {
            "committed_usd": None if idle_usd is None else idle_usd + 0.5,
            "used_usd": 0.5,
            "used_by_others_usd": None if idle_usd is None else 0.0,
            "idle_usd": idle_usd,
            "overflow_usd": 0.125,
            "on_demand_equivalent_usd": 2.5,
            "unpriced_fork_seconds": 0.0,
            "storage_usd": 0.375,
            "volumes_usd": 0.25,
            "snapshots_usd": 0.125,
            "volume_gib_hours": 2281.25,
            "snapshot_gib_hours": 1825.0,
        },
    }


def usage(by: By = "day", named: str = "2026-11-30") -> Usage:
    """One row and its total."""
    row: UsageRow = {
        "hour": named if by == "hour" else None,
        "day": named if by == "day" else None,
        "project": named if by == "project" else None,
        "snapshot": named if by == "snapshot" else None,
        **usage_amounts(),
    }
    return {
        "from": "2026-11-01T00:00:00.000Z",
        "until": "2026-11-30T18:00:00.000Z",
        "as_of": INSTANT,
        "complete_until": "2026-11-30T17:19:04.000Z",
        "project": "default",
        "by": [by],
        "rows": [row],
        "total": usage_amounts(idle_usd=0.75),
        "card_version": "1",
        "note": "The estimate is no bill.",
    }
