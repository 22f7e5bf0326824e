"""Whether what the product said of an episode can be true: reports, rows and counters against what truly befell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from app.domain.run import GuestFaults, RunSpec
from drills.books import wrong_charges, wrong_report, wrong_sums
from drills.chaos.chronicle import Chronicle
from drills.chaos.oracle import Terms, Verdicts, When, verdicts
from drills.chaos.plan import Life, Own
from drills.chaos.story import story_of
from drills.chaos.trainer import Started
from drills.rows import Account
from promigence.types import Report

OUTCOMES = {
    Own.PASSED: "passed",
    Own.FAILED: "failed",
    Own.TIMED_OUT: "timed_out",
    Own.SHUT_DOWN: "failed",
    Own.REPORTED: "failed",
    Own.ENDLESS: "timed_out",
}
REWARDS = {"passed": 1.0, "failed": 0.0, "timed_out": 0.0}
# Of a replacement a run's worst case holds 30 s to come up, and the limit of its own test.
SPARE_NS = 30 * 10**9
# What another machine of the same snapshot would meet too.
NOT_REPLACED = frozenset({"snapshot_corrupt", "reported_by_command"})


class Law(StrEnum):
    """What can be broken; the summary counts by these."""

    ENV_AS_TASK = "misattributed_env_as_task"
    TASK_AS_ENV = "misattributed_task_as_env"
    MISNAMED = "misnamed"
    OUTCOME = "wrong_outcomes"
    REPLACEMENT = "wrong_replacements"
    UNFINISHED = "unfinished"
    TOTALS = "totals_wrong"
    MONEY = "unaccounted"
    TWICE = "commands_run_twice"
    LOST = "results_lost"
    EVENTS = "events_wrong"
    SURPRISE = "surprises"


@dataclass(frozen=True, slots=True)
class Broken:
    """A law that did not hold, of which fork, and what was seen."""

    law: Law
    fork_id: str
    seen: str

    def __str__(self) -> str:
        return f"{self.law.value}: {self.fork_id} {self.seen}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run at its end: what its caller did and reads, its money, and what truly happened."""

    started: Started
    report: Report
    account: Account
    held_ends: dict[str, Any]
    events: list[dict[str, Any]]
    chronicle: Chronicle


def judge(evidence: Evidence) -> Iterator[Broken]:
    """All laws of one run."""
    account, report = evidence.account, evidence.report
    for line in (*wrong_sums(account), *wrong_charges(account)):
        yield Broken(Law.MONEY, report["run_id"], line)
    for line in wrong_report(report, account):
        yield Broken(Law.TOTALS, report["run_id"], line)
    yield from wrong_events(report, evidence.events)
    failed: dict[str, list[dict[str, Any]]] = {}
    for each in report["environment_failures"]:
        failed.setdefault(each["fork_id"], []).append(cast(dict[str, Any], each))
    for fork in report["forks"]:
        case = _Case(evidence, cast(dict[str, Any], fork), failed.get(fork["fork_id"], []))
        yield from case.judge()


def wrong_events(report: Report, events: list[dict[str, Any]]) -> Iterator[Broken]:
    """A run's events are numbered without a gap, end with its end, and tell of each fork what the report says of it."""
    run_id = report["run_id"]
    if [event["number"] for event in events] != list(range(1, len(events) + 1)):
        yield Broken(Law.EVENTS, run_id, "there is a gap in the numbers of its events")
    if not events or events[-1]["kind"] != "run_ended":
        yield Broken(Law.EVENTS, run_id, "its events do not end with its end")
    told: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        told.setdefault(event["fork_id"], []).append(event)
    for fork in report["forks"]:
        of_fork = told.get(fork["fork_id"], [])
        kinds = [event["kind"] for event in of_fork]
        if kinds.count("fork_ended") != 1 or kinds[-1] != "fork_ended":
            yield Broken(Law.EVENTS, fork["fork_id"], f"does not end by its events: {kinds}")
        elif of_fork[-1]["reason"] != fork["reason"]:
            yield Broken(Law.EVENTS, fork["fork_id"], f"ends for {of_fork[-1]['reason']} by them")
        if kinds.count("restoring") != fork["attempts"]:
            yield Broken(Law.EVENTS, fork["fork_id"], f"had other machines by them: {kinds}")


class _Case:
    """One fork of a run."""

    def __init__(
        self, evidence: Evidence, fork: dict[str, Any], failed: list[dict[str, Any]]
    ) -> None:
        self._run, self._fork, self._failed = evidence.started, fork, failed
        self._spec: RunSpec = evidence.started.plan.spec
        self._chronicle, self._held_ends = evidence.chronicle, evidence.held_ends
        self._id, self._account = fork["fork_id"], evidence.account
        self._totals = evidence.report["totals"]
        self._machines = evidence.chronicle.machines[self._id]
        self._terms = self._terms_of(fork["index"])
        plan = evidence.started.plan
        self._grade = plan.lives[fork["index"]].grade if plan.lives else None
        self._stories = [story_of(evidence.chronicle, name, self._spec) for name in self._machines]
        self._verdicts = [verdicts(story, self._terms) for story in self._stories]

    def judge(self) -> Iterator[Broken]:
        if self._fork["attempts"] != len(self._machines):
            yield self._broken(
                Law.TOTALS, f"counts {self._fork['attempts']} machines, and had {self._machines}"
            )
            return
        yield from self._names()
        yield from self._reward()
        yield from self._outcome()
        yield from self._replacements()
        yield from self._results()

    def _terms_of(self, index: int) -> Terms:
        plan = self._run.plan
        life = plan.lives[index] if plan.lives else Life(Own.HELD, "")
        return Terms(
            own=life.own,
            grade=life.grade.outcome if life.grade else None,
            grade_kind=life.grade.kind if life.grade else None,
            reports=bool(self._spec.exec and self._spec.exec.environment_exit_codes),
            guest_faults_are_tasks=self._spec.guest_faults is GuestFaults.TASK,
            short_of_money=plan.short_of_money or len(self._machines) > 1,
        )

    def _names(self) -> Iterator[Broken]:
        """Every machine that is said to have failed met something, and is named by it."""
        for each in self._failed:
            number, kind = each["attempt"], each["kind"]
            said = self._verdicts[number - 1]
            if said.by_task and self._fork["reason"] == "guest_fault_by_task":
                continue
            if kind in said.kinds:
                continue
            law = Law.MISNAMED if said.kinds else Law.TASK_AS_ENV
            yield self._broken(
                law, f"machine {number} is said to be {kind}; possible: {_told(said)}"
            )

    def _reward(self) -> Iterator[Broken]:
        outcome, released = self._fork["outcome"], self._run.released.get(self._id)
        wanted = REWARDS.get(outcome)
        if self._grade is not None and self._fork["reason"] in ("command_passed", "command_failed"):
            wanted = self._grade.reward
        if released is not None and self._fork["reason"].startswith("released"):
            wanted = wanted if released.reward is None else released.reward
        if (self._fork["reward"], self._fork["reward_valid"]) != (wanted, wanted is not None):
            seen = f"is {outcome} with the reward {self._fork['reward']} instead of {wanted}"
            yield self._broken(Law.OUTCOME, seen)

    def _outcome(self) -> Iterator[Broken]:
        outcome, reason = self._fork["outcome"], self._fork["reason"]
        if reason == "cancelled":
            if not self._run.cancelled:
                yield self._broken(Law.OUTCOME, "is cancelled, and nobody asked")
        elif reason == "stopped_by_rule":
            yield from self._stopped()
        elif outcome == "capped":
            yield from self._capped()
        elif outcome == "env_failed":
            yield from self._env_failed()
        elif self._terms.own is Own.HELD and reason != "guest_fault_by_task":
            yield from self._handed_back()
        else:
            yield from self._scored()

    def _stopped(self) -> Iterator[Broken]:
        rule = self._spec.stop_when
        failed = self._totals["env_failed"]
        if rule is None or failed < rule.env_failed_share * self._totals["requested"]:
            yield self._broken(Law.OUTCOME, f"its run stopped itself after {failed} failures")

    def _capped(self) -> Iterator[Broken]:
        never_ran = self._terms.short_of_money and not self._machines
        if not never_ran and not (self._verdicts and self._verdicts[-1].capped):
            yield self._broken(Law.OUTCOME, "is capped, and its machine did not end with its lease")

    def _env_failed(self) -> Iterator[Broken]:
        kind = self._fork["failure"]["kind"] if self._fork["failure"] else None
        if kind == "no_capacity":
            if self._spec.queue_timeout_ns >= 3600 * 10**9:
                yield self._broken(Law.TASK_AS_ENV, "is said to have waited longer than it did")
        elif kind is None or not self._failed:
            yield self._broken(Law.TASK_AS_ENV, f"failed by {kind}, and no machine of it")
        # its kind is that of its last machine, which `_names` looks at
        elif self._failed[-1]["kind"] != kind:
            yield self._broken(
                Law.MISNAMED, f"is {kind}, its last machine {self._failed[-1]['kind']}"
            )

    def _scored(self) -> Iterator[Broken]:
        outcome, reason = self._fork["outcome"], self._fork["reason"]
        if not self._verdicts:
            yield self._broken(Law.OUTCOME, f"is {outcome} without a machine")
            return
        said = self._verdicts[-1]
        if reason == "guest_fault_by_task":
            if not said.by_task:
                law = Law.ENV_AS_TASK if said.kinds else Law.OUTCOME
                yield self._broken(law, f"is its task's fault; possible: {_told(said)}")
            return
        if not said.own:
            yield self._broken(Law.ENV_AS_TASK, f"is {outcome} ({reason}); possible: {_told(said)}")
            return
        if not self._as_it_was(self._run.plan.lives[self._fork["index"]], outcome):
            seen = f"is {outcome} with exit code {self._fork['exit_code']}"
            yield self._broken(Law.OUTCOME, f"{seen}; its command: {self._terms.own.value}")

    def _as_it_was(self, life: Life, outcome: str) -> bool:
        if outcome == "timed_out" and self._stories[-1].timed_out:
            return True  # a stall that is not to blame, or its own doing: `verdicts` has said which
        decides = (
            life.own if life.grade is None or life.own is Own.SHUT_DOWN else life.grade.outcome
        )
        same_code = life.exit_code is None or self._fork["exit_code"] == life.exit_code
        return OUTCOMES[decides] == outcome and same_code

    def _handed_back(self) -> Iterator[Broken]:
        outcome, reason = self._fork["outcome"], self._fork["reason"]
        released = self._run.released.get(self._id)
        wanted = {
            "released_passed": ("passed", True),
            "released_failed": ("failed", False),
            "released": ("released", None),
        }
        if reason == "hold_expired":
            if outcome != "released":
                yield self._broken(Law.OUTCOME, f"its hold ran out and it is {outcome}")
        elif released is None or wanted.get(reason) != (outcome, released.passed):
            yield self._broken(Law.OUTCOME, f"is {outcome} ({reason}); released: {released}")

    def _replacements(self) -> Iterator[Broken]:
        """A machine follows another only where the rules allow it, and is not denied where they promise it."""
        rerun, retries = self._spec.rerun_started, self._spec.environment_retries
        if len(self._machines) > retries + 1:
            yield self._broken(Law.REPLACEMENT, f"had {len(self._machines)} machines")
        for number, story in enumerate(self._stories[:-1], start=1):
            if story.reached >= When.RUNNING and not rerun:
                yield self._broken(Law.TWICE, f"got another machine after its command, {number}")
        if self._fork["outcome"] != "env_failed" or not self._stories:
            return
        kind = self._fork["failure"]["kind"]
        started = self._stories[-1].reached >= When.RUNNING and not rerun
        lived_ns = sum(
            (each.closed_boot_ns or 0) - each.opened_boot_ns
            for each in self._account.attempts
            if each.fork_id == self._id
        )
        # What lived for longer than it was given to come up has spent what its next machine would need.
        denied = (
            started
            or lived_ns > len(self._machines) * SPARE_NS
            or kind in NOT_REPLACED
            or kind == "no_capacity"
        )
        if not denied and len(self._machines) <= retries and not self._terms.short_of_money:
            yield self._broken(
                Law.REPLACEMENT, f"({kind}) was not replaced after {len(self._machines)}"
            )

    def _results(self) -> Iterator[Broken]:
        """What a caller sent to a held fork: its finished result is kept, or there was a cause to lose it."""
        for exec_id, life in self._run.sent.items():
            if not exec_id.endswith(self._id):
                continue
            row = self._held_ends[exec_id]
            state, result = row.state.value, row.result
            if state == "ended" and result.error is None:
                timed_out = life.own is Own.TIMED_OUT
                if not result.timed_out and (timed_out or result.exit_code != life.exit_code):
                    yield self._broken(Law.LOST, f"{exec_id} ended with {result.exit_code}")
            elif state == "lost":
                said = self._verdicts[self._machines.index(row.attempt_id)]
                if not (
                    said.kinds or said.by_task or said.capped or self._fork["reason"] in _ASKED
                ):
                    yield self._broken(
                        Law.LOST, f"{exec_id} is lost, and nothing befell its machine"
                    )
            elif state != "ended":
                yield self._broken(Law.UNFINISHED, f"{exec_id} is {state}")

    def _broken(self, law: Law, seen: str) -> Broken:
        return Broken(law, self._id, seen)


_ASKED = frozenset(
    {
        "cancelled",
        "stopped_by_rule",
        "hold_expired",
        "released",
        "released_passed",
        "released_failed",
    }
)


def _told(said: Verdicts) -> str:
    possible = [
        *sorted(said.kinds),
        *(["its own"] if said.own else []),
        *(["the task's fault"] if said.by_task else []),
        *(["capped"] if said.capped else []),
    ]
    return ", ".join(possible) or "nothing befell it"
