"""What the demo claims of its reports, checked: each function returns the sentences that are not true.

The reports are the SDK's plain dicts; money is compared in whole micro-dollars.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from demo.policy import expected_outcome
from promigence.types import Check, Cost, Failure, ForkReport, Quote, Report

CONTRACT = ("barrier", "warm", "entropy", "clock", "identity", "disk", "channel", "egress")
CLOCK_TOLERANCE_MS = 2000.0
REWARDS = {"passed": 1.0, "failed": 0.0}
OUTCOMES = (
    "passed",
    "failed",
    "timed_out",
    "released",
    "env_failed",
    "capped",
    "cancelled",
    "pending",
)


def wrong_in_step(report: Report, quote: Quote, killed_index: int) -> list[str]:
    """For the step whose machine at `killed_index` was killed from outside."""
    return [
        *_wrong_accounts(report, quote),
        *(line for fork in report["forks"] for line in _wrong_outcome(fork, killed_index)),
        *(line for fork in report["forks"] for line in _wrong_contract(fork)),
        *_shared_samples(report["forks"]),
    ]


def wrong_in_capped_step(report: Report, quote: Quote) -> list[str]:
    """For the step whose cap was too small for its command."""
    lines = _wrong_accounts(report, quote)
    uncapped = [fork["index"] for fork in report["forks"] if fork["outcome"] != "capped"]
    graded = [fork["index"] for fork in report["forks"] if fork["reward_valid"]]
    return [
        *lines,
        *([f"forks {uncapped} did not end capped"] if uncapped else []),
        *([f"capped forks {graded} have a valid reward"] if graded else []),
    ]


def wrong_in_refusal(error: Mapping[str, Any]) -> list[str]:
    """For the environment whose author forgot the test runner: `code`, `message` and `details` of its refusal."""
    details = error["details"]
    lines = []
    if (error["code"], details.get("check")) != ("snapshot_refused", "test"):
        lines.append(f"it was to be refused by its test; it was by {error['code']}: {details}")
    if "No module named pytest" not in str(details.get("output")):
        lines.append(f"the refusal does not show the test's output: {details}")
    return lines


def _wrong_accounts(report: Report, quote: Quote) -> Iterator[str]:
    totals, cost = report["totals"], report["cost"]
    counted = sum(totals[outcome] for outcome in OUTCOMES)  # type: ignore[literal-required]
    if not report["final"]:
        yield "the report is not final"
    if not counted == totals["requested"] == len(report["forks"]):
        yield f"{totals['requested']} forks were asked for, {counted} are accounted for"
    yield from _wrong_cost(cost, quote)


def _wrong_cost(cost: Cost, quote: Quote) -> Iterator[str]:
    parts = (cost["tasks_usd"], cost["environment_usd"], cost["verification_usd"])
    total = _micros(cost["total_usd"])
    if sum(map(_micros, parts)) != total:
        yield f"the parts of the cost, {parts}, do not add up to {cost['total_usd']}"
    if not 0 < total <= _micros(cost["spend_cap_usd"]):
        yield f"the cost, {cost['total_usd']}, is not within the cap, {cost['spend_cap_usd']}"
    if total > _micros(quote["max_cost_usd"]):
        yield f"the cost, {cost['total_usd']}, is above the quote, {quote['max_cost_usd']}"


def _wrong_outcome(fork: ForkReport, killed_index: int) -> Iterator[str]:
    if fork["index"] == killed_index:
        yield from _wrong_loss(fork)
        return
    expected = expected_outcome(fork["index"])
    seen = (fork["outcome"], fork["reward"], fork["reward_valid"])
    if seen != (expected, REWARDS[expected], True):
        yield f"fork {fork['index']} should have {expected}; it has {seen}: {fork['stderr_tail']}"


def _wrong_loss(fork: ForkReport) -> Iterator[str]:
    seen = (fork["outcome"], fork["reward"], fork["reward_valid"], fork["exit_code"])
    if seen != ("env_failed", None, False, None):
        yield f"fork {fork['index']} was killed; it has {seen}"
    failure: Failure | None = fork["failure"]
    if failure is None or failure["kind"] != "guest_lost" or not failure["evidence"]:
        yield f"fork {fork['index']} was killed; its failure is {failure}"


def _wrong_contract(fork: ForkReport) -> Iterator[str]:
    checks = {check["name"]: check for check in fork["checks"]}
    missing = [name for name in CONTRACT if name not in checks]
    unsound = [name for name, check in checks.items() if not check["sound"]]
    if missing or unsound:
        yield f"fork {fork['index']}: probes {missing} are missing, {unsound} are unsound"
    elif abs(clock_error_ms(checks["clock"])) > CLOCK_TOLERANCE_MS:
        yield f"fork {fork['index']}: its clock is {checks['clock']['seen']}"


def _shared_samples(forks: list[ForkReport]) -> Iterator[str]:
    drawn = [sample for fork in forks for sample in entropy_samples(fork)]
    if len(set(drawn)) != len(forks):
        yield f"{len(forks)} forks drew {len(set(drawn))} different entropy samples"


def entropy_samples(fork: ForkReport) -> list[str]:
    """The 16 bytes that this fork drew from its kernel after the barrier, in hex."""
    seen = [str(check["seen"]) for check in fork["checks"] if check["name"] == "entropy"]
    return [sample for text in seen for sample in re.findall(r"\b[0-9a-f]{32}\b", text)]


def clock_error_ms(check: Check) -> float:
    """How far the guest's clock was from the host's. Raises ValueError where the probe does not say."""
    said = re.match(r"(-?[0-9.]+) ms\b", str(check["seen"]))
    if said is None:
        raise ValueError(f"the clock probe says no time: {check['seen']}")
    return float(said[1])


def _micros(usd: float) -> int:
    return round(usd * 1_000_000)
