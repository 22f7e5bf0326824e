"""What is said of the cases: a line for each as it is known, a table at the end, one JSON object, the table of the
docs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from drills.matrix.batch import Batch, Played, Verdict
from drills.matrix.case import Case, Expect
from drills.matrix.judge import REWARDS

_WORDS = 34


def summed_up(
    played: Sequence[tuple[Batch, Played]], leaks: Sequence[str], seconds: float
) -> dict[str, Any]:
    """All cases in one object.

    `misnamed` counts cases that were seen as something else than they are; `uncaused` those whose fault never came
    about; `harmed` runs in which a healthy sibling did not end as it should; `accounts` laws of money that did not
    hold.
    """
    verdicts = [verdict for _, each in played for verdict in each.verdicts]
    return {
        "cases": len(verdicts),
        "misnamed": sum(bool(verdict.wrong) for verdict in verdicts),
        "uncaused": sum(verdict.uncaused is not None for verdict in verdicts),
        "harmed": sum(bool(each.harmed) for _, each in played),
        "accounts": sum(len(each.accounts) for _, each in played),
        "leaks": len(leaks),
        "runs": len(played),
        "seconds": round(seconds, 1),
        "wrong": dict(_wrong(played)) | ({"leaks": list(leaks)} if leaks else {}),
        "names": {verdict.case.name: named(verdict.case) for verdict in verdicts},
    }


def held(summary: dict[str, Any]) -> bool:
    """Whether nothing was wrong, and something was looked at."""
    counted = ("misnamed", "uncaused", "harmed", "accounts", "leaks")
    return summary["cases"] > 0 and not any(summary[what] for what in counted)


def in_words(summary: dict[str, Any]) -> str:
    """The summary as a person reads it."""
    counted = ("misnamed", "uncaused", "harmed", "accounts", "leaks")
    seen = ", ".join(f"{summary[what]} {what}" for what in counted)
    return f"{summary['cases']} cases in {summary['runs']} runs: {seen}; {summary['seconds']:.0f} s"


def line(verdict: Verdict) -> str:
    """One case: its name, what it is to be called, how long it took, and what was wrong."""
    called = "; ".join((*verdict.wrong, *([verdict.uncaused] if verdict.uncaused else ())))
    mark = "held" if verdict.held else ("NOT CAUSED" if not verdict.wrong else "MISNAMED")
    named_so = f"{verdict.case.name:<{_WORDS}} {named(verdict.case):<44} {verdict.seconds:5.1f} s"
    return f"{named_so}  {mark}{': ' + called if called else ''}"


def named(case: Case) -> str:
    """What has to come of a case, in short: `env_failed guest_panicked exec`."""
    each = dict.fromkeys(_named(expect) for expect in case.expected)
    return ", ".join(each)


def rows_of(cases: Iterable[Case]) -> Iterator[str]:
    """The matrix as a table in Markdown, which `docs/drills.md` has and a test compares with it."""
    yield "| case | what is done | what has to come of it | evidence | reward | cost | CI |"
    yield "|---|---|---|---|---|---|---|"
    for case in cases:
        for number, expect in enumerate(case.expected):
            first = number == 0
            yield (
                f"| {f'`{case.name}`' if first else ''} | {case.shows if first else ''} "
                f"| {_named(expect)}{_machines(expect)} | {_evidence(expect)} "
                f"| {_reward(expect)} | {expect.cost or ''} | {'yes' if first and case.quick else ''} |"
            )


def _wrong(played: Sequence[tuple[Batch, Played]]) -> Iterator[tuple[str, list[str]]]:
    for batch, each in played:
        for verdict in each.verdicts:
            if not verdict.held:
                told = [f"not caused: {verdict.uncaused}"] if verdict.uncaused else []
                yield verdict.case.name, [*told, *verdict.wrong]
        if each.harmed or each.accounts:
            cases = ", ".join(case.name for case in batch.cases)
            yield f"the run of {cases}", [*each.harmed, *each.accounts]


def _named(expect: Expect) -> str:
    kind = " ".join(word for word in (expect.kind, expect.phase) if word)
    return " ".join(word for word in (expect.outcome, kind) if word)


def _machines(expect: Expect) -> str:
    return f", {expect.attempts} machines" if expect.attempts > 1 else ""


def _evidence(expect: Expect) -> str:
    said = ["`task_may_have_caused`"] if expect.task_may_have_caused else []
    said += [f"`{fact.key}` {fact.want}" for fact in expect.evidence]
    if expect.exit_code is not None:
        said.append(f"exit code {expect.exit_code}")
    if expect.output is not None:
        said.append(f"its output says `{expect.output}`")
    if expect.truncated:
        said.append("output cut")
    return "; ".join(said).replace("|", "\\|")


def _reward(expect: Expect) -> str:
    meant = REWARDS.get(expect.outcome) if expect.reward is None else expect.reward
    return "null" if meant is None else str(meant)
