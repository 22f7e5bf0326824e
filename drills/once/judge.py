"""What has to be true of commands whose worker was killed: each ran once at most, and what ended is in the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# How long a worker is away is the proxy's gap, too: a command that did not pass in one is the environment's failure.
GAP = "egress_lost"


@dataclass(frozen=True, slots=True)
class Planned:
    """A command: it asks the counter for its name, sleeps, prints its name, and ends with its code."""

    name: str
    sleep_s: float
    exit_code: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was wrong, by kind; each a sentence. `replaced`: forks that got another machine."""

    twice: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    replaced: int = 0
    gaps: int = 0

    @property
    def held(self) -> bool:
        return not (self.twice or self.lost or self.wrong)


@dataclass(slots=True)
class _Found:
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    gaps: int = 0


def judge(
    planned: Sequence[Planned], counts: Mapping[str, int], forks: Sequence[Mapping[str, Any]]
) -> Verdict:
    """`forks` are the report's; a fork's `key` is its command's name."""
    by_name = {each.name: each for each in planned}
    twice = [f"{name} was counted {n} times" for name, n in counts.items() if n > 1]
    strangers = [
        f"{name} was counted and never asked for" for name in counts if name not in by_name
    ]
    found = _Found(wrong=strangers)
    if len(counts) < len(planned) / 2:
        # Without a way out nothing could be counted twice.
        found.wrong.append(f"the counter heard of {len(counts)} commands only")
    ends = {str(fork["key"]): fork for fork in forks}
    for name, each in by_name.items():
        _judge_one(each, ends.get(name), counts.get(name, 0), found)
    replaced = sum(int(fork["attempts"]) > 1 for fork in forks)
    return Verdict(tuple(twice), tuple(found.lost), tuple(found.wrong), replaced, found.gaps)


def _judge_one(
    planned: Planned, fork: Mapping[str, Any] | None, counted: int, found: _Found
) -> None:
    if fork is None:
        found.lost.append(f"{planned.name} has no fork in the report")
        return
    seen = _end_of(fork)
    if seen is None:
        found.lost.append(f"{planned.name}: {_told(fork)}; counted {counted}")
        return
    exit_code, printed = seen
    if exit_code != planned.exit_code or planned.name not in printed:
        found.wrong.append(f"{planned.name}: exit code {exit_code}, printed {printed!r}")
    if fork["outcome"] == "env_failed":
        found.gaps += 1
        if planned.exit_code == 0:
            found.wrong.append(f"{planned.name} passed and is called {_told(fork)}")


def _end_of(fork: Mapping[str, Any]) -> tuple[int | None, str] | None:
    """Exit code and output of a command that ended; None where the command was lost."""
    failure = fork["failure"]
    if fork["outcome"] in ("passed", "failed"):
        return fork["exit_code"], fork["stdout_tail"]
    if fork["outcome"] == "env_failed" and failure is not None and failure["kind"] == GAP:
        evidence = failure["evidence"]
        return evidence.get("exit_code"), str(evidence.get("stdout_tail", ""))
    return None


def _told(fork: Mapping[str, Any]) -> str:
    failure = fork["failure"]
    why = "" if failure is None else f" ({failure['kind']}: {failure['message']})"
    return f"{fork['outcome']}{why}"
