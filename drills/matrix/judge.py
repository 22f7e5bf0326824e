"""What has to be true of a case: pure functions that say what is not, as sentences that name what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drills.books import micros, over_cap, wrong_charges, wrong_report, wrong_sums
from drills.matrix.case import Expect
from drills.rows import Account, Attempt
from promigence.types import FailedAttempt, Failure, ForkReport, Report

REWARDS = {"passed": 1.0, "failed": 0.0, "timed_out": 0.0}
# A command that was killed, or that ended with its machine, has none; one whose grade failed had ended by then.
NO_EXIT_CODE = frozenset({"timed_out", "env_failed", "capped", "cancelled"})
# The healthy ones in each run: one that passes and one that fails, by commands or by a trainer that holds them.
SIBLINGS = (
    Expect("passed", "command_passed", exit_code=0, cost="tasks"),
    Expect("failed", "command_failed", exit_code=3, cost="tasks"),
)
HELD_SIBLINGS = (
    Expect("passed", "released_passed", cost="tasks"),
    Expect("failed", "released_failed", cost="tasks"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One fork as its report and its rows have it: its entries of `environment_failures` and its attempts, in order."""

    fork: ForkReport
    failed: tuple[FailedAttempt, ...]
    attempts: tuple[Attempt, ...]


def seen_of(report: Report, account: Account, key: str) -> tuple[Seen, ...]:
    """The forks of this key, by index."""
    forks = sorted(
        (fork for fork in report["forks"] if fork["key"] == key), key=lambda fork: fork["index"]
    )
    return tuple(_seen(report, account, fork) for fork in forks)


def wrong_forks(expected: Sequence[Expect], seen: Sequence[Seen]) -> list[str]:
    """Everything that is not as expected, of all forks of a case."""
    if len(expected) != len(seen):
        return [f"{len(seen)} forks are reported, {len(expected)} were asked for"]
    many = len(expected) > 1
    return [
        f"fork {number}: {line}" if many else line
        for number, (expect, each) in enumerate(zip(expected, seen, strict=True))
        for line in wrong(expect, each)
    ]


def wrong(expect: Expect, seen: Seen) -> Iterator[str]:
    """Everything that is not as expected, of one fork."""
    yield from _wrong_end(expect, seen.fork)
    yield from _wrong_reward(expect, seen.fork)
    yield from _wrong_failure(expect, seen.fork["failure"])
    yield from _wrong_attempts(expect, seen)
    yield from _wrong_cost(expect, seen)


def wrong_run(report: Report, account: Account) -> list[str]:
    """The laws of money and of sums, which hold for every run whatever was done to it."""
    return [
        *over_cap(account, micros(report["cost"]["spend_cap_usd"])),
        *wrong_sums(account),
        *wrong_charges(account),
        *wrong_report(report, account),
    ]


def _seen(report: Report, account: Account, fork: ForkReport) -> Seen:
    fork_id = fork["fork_id"]
    failed = (each for each in report["environment_failures"] if each["fork_id"] == fork_id)
    attempts = (each for each in account.attempts if each.fork_id == fork_id)
    return Seen(
        fork,
        tuple(sorted(failed, key=lambda each: each["attempt"])),
        tuple(sorted(attempts, key=lambda each: each.number)),
    )


def _wrong_end(expect: Expect, fork: ForkReport) -> Iterator[str]:
    if fork["outcome"] != expect.outcome:
        yield f"it is {fork['outcome']} instead of {expect.outcome}{_why(fork)}"
    if expect.reason is not None and fork["reason"] != expect.reason:
        yield f"its reason is {fork['reason']} instead of {expect.reason}"
    if expect.exit_code is not None and fork["exit_code"] != expect.exit_code:
        yield f"its exit code is {fork['exit_code']} instead of {expect.exit_code}"
    ended_itself = fork["failure"] is not None and fork["failure"]["phase"] == "grade"
    if fork["outcome"] in NO_EXIT_CODE and fork["exit_code"] is not None and not ended_itself:
        yield f"it is {fork['outcome']} and has the exit code {fork['exit_code']}"
    said = fork["stdout_tail"] + fork["stderr_tail"]
    if expect.output is not None and expect.output not in said:
        yield f"its output says {said[-200:]!r}, and not {expect.output!r}"
    if expect.truncated is not None and fork["truncated"] is not expect.truncated:
        yield f"its output is {'' if fork['truncated'] else 'not '}truncated"


def _wrong_reward(expect: Expect, fork: ForkReport) -> Iterator[str]:
    wanted = REWARDS.get(expect.outcome) if expect.reward is None else expect.reward
    if fork["reward"] != wanted:
        yield f"its reward is {fork['reward']} instead of {wanted}"
    if fork["reward_valid"] is not (fork["reward"] is not None):
        yield f"its reward {fork['reward']} is called {'' if fork['reward_valid'] else 'not '}valid"


def _wrong_failure(expect: Expect, failure: Failure | None) -> Iterator[str]:
    if failure is None:
        if expect.kind is not None:
            yield f"it has no failure; {expect.kind} was caused"
        return
    if expect.kind is None:
        if expect.outcome != "env_failed":
            yield f"it has the failure {failure['kind']}: {failure['message']}"
        return
    named = {
        "kind": expect.kind,
        "phase": expect.phase,
        "task_may_have_caused": expect.task_may_have_caused,
        "retryable": expect.retryable,
    }
    for what, wanted in named.items():
        if wanted is not None and failure[what] != wanted:  # type: ignore[literal-required]
            said = failure[what]  # type: ignore[literal-required]
            yield f"its failure's {what} is {said} instead of {wanted}: {failure['message']}"
    if not failure["evidence"]:
        yield "its failure has no evidence"
    for fact in expect.evidence:
        value = failure["evidence"].get(fact.key)
        if not fact.holds(value):
            yield f"its evidence is to show that {fact.key} {fact.want}; it is {str(value)[-200:]!r}"


def _wrong_attempts(expect: Expect, seen: Seen) -> Iterator[str]:
    if not seen.fork["attempts"] == len(seen.attempts) == expect.attempts:
        yield (
            f"{expect.attempts} machines were expected, {seen.fork['attempts']} are reported, "
            f"{len(seen.attempts)} have rows"
        )
    kinds = tuple(each["kind"] for each in seen.failed)
    if kinds != expect.failures:
        yield f"its failed machines are listed as {kinds} instead of {expect.failures}"
    charged = {each.number: each.charged_micros for each in seen.attempts}
    for each in seen.failed:
        if micros(each["cost_usd"]) != charged.get(each["attempt"], 0):
            yield f"machine {each['attempt']} is listed with another cost than its row's"
        if each["replaced"] is not (each["attempt"] < expect.attempts):
            yield f"machine {each['attempt']} is listed as {'' if each['replaced'] else 'not '}replaced"


def _wrong_cost(expect: Expect, seen: Seen) -> Iterator[str]:
    charged = sum(each.charged_micros for each in seen.attempts)
    if micros(seen.fork["cost_usd"]) != charged:
        yield f"it is said to cost {seen.fork['cost_usd']} USD; its machines were charged {charged}"
    for each in seen.attempts[:-1]:
        if each.environment_micros != each.charged_micros:
            yield f"machine {each.number} was replaced, and not all of its cost is the environment's"
    if expect.cost is None or not seen.attempts:
        return
    last = seen.attempts[-1]
    parts = (last.verification_micros, last.tasks_micros, last.environment_micros)
    if not _is_in(expect.cost, parts):
        yield f"its cost is to be in {expect.cost}; verification, tasks, environment are {parts}"


def _is_in(part: str, parts: tuple[int, int, int]) -> bool:
    verification, tasks, environment = parts
    if part == "environment":
        return environment > 0 and verification == tasks == 0
    if part == "verification":
        return verification > 0 and tasks == environment == 0
    return tasks > 0 and environment == 0


def _why(fork: ForkReport) -> str:
    failure = fork["failure"]
    return f" ({failure['kind']} in {failure['phase']}: {failure['message']})" if failure else ""
