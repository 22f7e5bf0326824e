"""What has to be true after a seed. Pure: each function returns what is not, as sentences that name what was seen.

Money is compared in whole micro-dollars, times on the host's CLOCK_BOOTTIME.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from drills.books import micros, over_cap, wrong_charges, wrong_report, wrong_sums
from drills.cap.plan import Life
from drills.rows import Account, Attempt
from drills.watch import Seen
from promigence.types import ForkReport, Report

NS_PER_MS = 1_000_000
# A keeper fires this long before the deadline, for the process to be gone when the lease ends. A host that takes twice
# as long to kill (for a pause of its own, say) kills late; how near each kill came is told beside the count.
LATE_NS = 150 * NS_PER_MS
# A machine goes with its keeper: the kernel kills it; on a busy host it takes its turn to die.
ORPHAN_NS = 1_000 * NS_PER_MS
# Clocks of the guest and of the host, and the time between them.
CLOCK_S = 1.0
MONEY = frozenset({"run_exhausted", "not_renewed"})
REWARDS = {"passed": 1.0, "failed": 0.0}
# What a strike at a part may cost a machine that is just coming up, or whose host was silent for too long.
LOST_WITH_A_PART = frozenset({"worker_lost", "host_lost"})


class Law(StrEnum):
    """What can be broken; the summary counts by these."""

    OVER_CAP = "over_cap"
    LATE_KILL = "late_kills"
    ORPHAN = "orphans"
    ACCOUNT = "accounts"
    OUTCOME = "outcomes"
    LEAK = "leaks"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Broken:
    """One law that did not hold, and what was seen."""

    law: Law
    seen: str

    def __str__(self) -> str:
        return f"{self.law.value}: {self.seen}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of a step that has ended. `seen` is by machine; a machine's name is its attempt's id."""

    report: Report
    account: Account
    lives: tuple[Life, ...]
    seen: Mapping[str, Seen]
    keepers_killed: frozenset[str]
    now_ns: int


def judge(evidence: Evidence) -> list[Broken]:
    """All laws but those of what is left behind."""
    report, account = evidence.report, evidence.account
    found = {
        Law.OVER_CAP: over_cap(account, micros(report["cost"]["spend_cap_usd"])),
        Law.LATE_KILL: late_kills(evidence.seen.values(), evidence.now_ns),
        Law.ORPHAN: orphans(evidence.seen.values(), evidence.now_ns),
        Law.ACCOUNT: [
            *wrong_sums(account),
            *wrong_charges(account),
            *wrong_report(report, account),
        ],
        Law.OUTCOME: [
            *(line for fork in report["forks"] for line in wrong_end(fork, evidence.lives)),
            *wrong_deaths(evidence),
            *lost_to_nothing(evidence),
        ],
    }
    return [Broken(law, line) for law, lines in found.items() for line in lines]


def late_kills(seen: Iterable[Seen], now_ns: int) -> list[str]:
    """Machines whose process outlived the last deadline that their file held, by more than the keeper's margin."""
    return [
        f"machine {each.name} lived {each.late_ns(now_ns) / NS_PER_MS:.0f} ms past its lease"
        for each in seen
        if each.late_ns(now_ns) > LATE_NS
    ]


def orphans(seen: Iterable[Seen], now_ns: int) -> list[str]:
    """Machines that outlived their keeper."""
    alone = ((each, _alone_ns(each, now_ns)) for each in seen)
    return [
        f"machine {each.name} lived {alone_ns / NS_PER_MS:.0f} ms without its keeper"
        for each, alone_ns in alone
        if alone_ns > ORPHAN_NS
    ]


def wrong_end(fork: ForkReport, lives: tuple[Life, ...]) -> Iterator[str]:
    """A fork's outcome, reason and reward go together, and with what its command was to do."""
    life, outcome = lives[fork["index"]], fork["outcome"]
    name = f"fork {fork['index']} ({outcome}, {fork['reason']})"
    wanted = REWARDS.get(outcome)
    if (fork["reward"], fork["reward_valid"]) != (wanted, wanted is not None):
        yield f"{name} has the reward {fork['reward']}, valid: {fork['reward_valid']}"
    if outcome in REWARDS:
        yield from _wrong_command(name, fork, life)
    elif outcome == "capped" and fork["reason"] not in MONEY:
        yield f"{name} was capped for no want of money"
    elif outcome == "env_failed" and not (fork["failure"] and fork["failure"]["evidence"]):
        yield f"{name} failed without evidence: {fork['failure']}"
    elif outcome not in ("capped", "env_failed"):
        yield f"{name} had no cause to end like that"


def wrong_deaths(evidence: Evidence) -> Iterator[str]:
    """What a keeper saw of a fork's last machine is what its fork says."""
    forks = {fork["fork_id"]: fork for fork in evidence.report["forks"]}
    for attempt in _last_attempts(evidence.account.attempts):
        seen, fork = evidence.seen.get(attempt.attempt_id), forks[attempt.fork_id]
        cause = None if seen is None else seen.cause
        if cause == "deadline" and fork["outcome"] in ("env_failed", "timed_out"):
            yield f"fork {fork['index']} was killed for want of money and is {fork['outcome']}"
        if fork["outcome"] == "capped" and cause not in (None, "deadline"):
            yield f"fork {fork['index']} is capped; its machine ended by {cause}"
        if fork["outcome"] == "capped" and attempt.attempt_id in evidence.keepers_killed:
            yield f"fork {fork['index']} is capped; its keeper was killed"


def lost_to_nothing(evidence: Evidence) -> Iterator[str]:
    """A machine fails of a strike at its keeper or at a part, and of nothing else: the environment itself is sound."""
    names = {(each.fork_id, each.number): each.attempt_id for each in evidence.account.attempts}
    for failed in evidence.report["environment_failures"]:
        struck = names.get((failed["fork_id"], failed["attempt"])) in evidence.keepers_killed
        if failed["kind"] not in LOST_WITH_A_PART | ({"guest_lost"} if struck else set()):
            why = "its keeper was killed" if struck else "its keeper was left alone"
            yield f"a machine of fork {failed['index']} failed by {failed['kind']}, {why}: {failed['message']}"


def lateness_ms(seen: Iterable[Seen], now_ns: int) -> list[float]:
    """Of machines that their keeper killed at the end of their lease: by how much it was late; below zero: in time."""
    return sorted(each.late_ns(now_ns) / NS_PER_MS for each in seen if each.cause == "deadline")


def _alone_ns(each: Seen, now_ns: int) -> int:
    if each.keeper_gone_ns is None:
        return 0
    return (now_ns if each.gone_ns is None else each.gone_ns) - each.keeper_gone_ns


def _wrong_command(name: str, fork: ForkReport, life: Life) -> Iterator[str]:
    if life.endless:
        yield f"{name} ended a command that has no end"
    elif fork["exit_code"] != life.exit_code:
        yield f"{name} has the exit code {fork['exit_code']} instead of {life.exit_code}"
    elif fork["seconds"] < life.seconds - CLOCK_S:
        yield f"{name} ended after {fork['seconds']} s of {life.seconds}"
    if (fork["outcome"] == "passed") != (fork["exit_code"] == 0):
        yield f"{name} ended with the exit code {fork['exit_code']}"


def _last_attempts(attempts: Iterable[Attempt]) -> Iterable[Attempt]:
    last: dict[str, Attempt] = {}
    for attempt in attempts:
        known = last.get(attempt.fork_id)
        if known is None or known.number < attempt.number:
            last[attempt.fork_id] = attempt
    return last.values()
