"""What has to be true of any ended run's money: by its rows alone, and its report against them. Pure.

Each function returns what is not true, as sentences that name what was seen. Money is in whole micro-dollars.
"""

from __future__ import annotations

from collections.abc import Iterator

from drills.rows import Account
from promigence.types import Report

NS_PER_HOUR = 3_600_000_000_000
OUTCOMES = ("passed", "failed", "timed_out", "released", "env_failed", "capped", "cancelled")


def over_cap(account: Account, cap_micros: int) -> list[str]:
    """Spent, or bound to be spent, above the cap; by the rows."""
    bound = account.charged_micros + account.granted_micros
    lines = []
    if account.budget_micros > cap_micros:
        lines.append(f"the budget of {account.budget_micros} is above the cap of {cap_micros}")
    if bound > cap_micros:
        lines.append(f"{bound} micro-dollars are charged or granted under a cap of {cap_micros}")
    return lines


def wrong_sums(account: Account) -> Iterator[str]:
    """Law 1 at the end of a run: nothing is granted, the three parts are the budget, and the ledger adds up to them."""
    parts = (account.pool_micros, account.granted_micros, account.charged_micros)
    if sum(parts) != account.budget_micros or min(parts) < 0:
        yield f"pool, granted and charged, {parts}, are not the budget of {account.budget_micros}"
    if account.granted_micros:
        yield f"{account.granted_micros} micro-dollars are still granted"
    if account.booked != parts:
        yield f"the ledger adds up to {account.booked}, the run has {parts}"
    charged = sum(attempt.charged_micros for attempt in account.attempts)
    if charged != account.charged_micros:
        yield f"attempts were charged {charged}, the run {account.charged_micros}"


def wrong_charges(account: Account) -> Iterator[str]:
    """Each attempt costs its measured life, at most its lease, rounded up once; in parts that add up to it."""
    for attempt in account.attempts:
        if attempt.closed_boot_ns is None:
            yield f"attempt {attempt.attempt_id} was never closed"
            continue
        lived_ns = max(0, attempt.closed_boot_ns - attempt.opened_boot_ns)
        due = -(-min(lived_ns, attempt.lease_ns) * account.micros_per_hour // NS_PER_HOUR)
        if attempt.charged_micros != due:
            yield f"attempt {attempt.attempt_id} was charged {attempt.charged_micros} instead of {due}"
        parts = (
            attempt.verification_micros,
            attempt.tasks_micros,
            attempt.environment_micros,
        )
        if sum(parts) != attempt.charged_micros or min(parts) < 0:
            yield f"attempt {attempt.attempt_id}: {parts} are not {attempt.charged_micros}"


def wrong_report(report: Report, account: Account) -> Iterator[str]:
    """Totals and costs of the report add up, and are those of the rows."""
    totals, cost, forks = report["totals"], report["cost"], report["forks"]
    counted = sum(totals[outcome] for outcome in OUTCOMES)  # type: ignore[literal-required]
    if not counted == totals["requested"] == len(forks):
        yield f"{totals['requested']} forks were asked for, {counted} have ended, {len(forks)} are listed"
    for outcome in OUTCOMES:
        listed = sum(fork["outcome"] == outcome for fork in forks)
        if listed != totals[outcome]:  # type: ignore[literal-required]
            yield f"{listed} forks are listed as {outcome}, the totals say otherwise: {totals}"
    parts = [cost["tasks_usd"], cost["environment_usd"], cost["verification_usd"]]
    total = micros(cost["total_usd"])
    if sum(map(micros, parts)) != total:
        yield f"the parts of the cost, {parts}, do not add up to {cost['total_usd']}"
    if total != account.charged_micros:
        yield f"the report says {total} micro-dollars, the run was charged {account.charged_micros}"
    if sum(micros(fork["cost_usd"]) for fork in forks) != total:
        yield f"the costs of the forks do not add up to {total} micro-dollars"


def micros(usd: float) -> int:
    """Whole micro-dollars."""
    return round(usd * 1_000_000)
