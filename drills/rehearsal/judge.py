"""What has to be true of the rehearsed step: every fork accounted for, whoever was lost, and the money right. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from drills.books import over_cap, wrong_charges, wrong_report, wrong_sums
from drills.rows import Account
from promigence.types import ForkReport, Report

_MICROS = 1_000_000
_STARTED = ("running", "ready")


def wrong_step(
    report: Report, forks: int, lost: Mapping[str, Any], account: Account, cap_usd: float
) -> list[str]:
    """What is not as it should be, as sentences. `lost` is the host that went, and its forks' states as it did."""
    return [
        *_forks(report, forks, lost),
        *_failures(report, lost),
        *over_cap(account, round(cap_usd * _MICROS)),
        *wrong_sums(account),
        *wrong_charges(account),
        *wrong_report(report, account),
    ]


def wrong_notice(noticed: Mapping[str, Any]) -> list[str]:
    """What is not as it should be of the held forks, as they were after one host was told that it is taken back."""
    lines = []
    for fork in noticed["held"]:
        leaves = fork["host"] == noticed["host"]
        if fork["draining"] != leaves or (fork["gone_at"] is not None) != leaves:
            lines.append(f"{noticed['host']} is taken back, and of a fork it is said: {dict(fork)}")
    if len({fork["host"] for fork in noticed["held"]}) < 2:
        lines.append("the forks were held on one host: nothing was told apart")
    return lines


def outcomes_by_host(report: Report) -> dict[str, dict[str, int]]:
    """How the forks ended on each host."""
    counts: dict[str, Counter[str]] = {}
    for fork in report["forks"]:
        counts.setdefault(fork["host"] or "", Counter())[fork["outcome"]] += 1
    return {host: dict(counted) for host, counted in sorted(counts.items())}


def _forks(report: Report, forks: int, lost: Mapping[str, Any]) -> Iterator[str]:
    if report["totals"]["requested"] != forks or not report["final"]:
        yield f"{forks} forks were to end, the report says {report['totals']}"
    if not lost["forks"]:
        yield "the host that was lost had no forks: nothing was tried"
    for fork in report["forks"]:
        state = lost["forks"].get(fork["fork_id"])
        yield from _lost(fork, state, lost["host"]) if state else _untouched(fork)


def _untouched(fork: ForkReport) -> Iterator[str]:
    if fork["outcome"] != "passed" or fork["stdout_tail"] != "42\n":
        yield f"{fork['fork_id']} lost no host, and {_end_of(fork)}"


def _lost(fork: ForkReport, state: str, host: str) -> Iterator[str]:
    """Whose command may have begun is not run again; who had none begun goes on elsewhere."""
    if fork["outcome"] == "env_failed":
        if fork["reward"] is not None or fork["reward_valid"]:
            yield f"{fork['fork_id']} failed by its environment, and is scored: {fork['reward']}"
        failure = fork["failure"]
        if failure is None or failure["kind"] != "host_lost":
            yield f"{fork['fork_id']} was on {host}, and failed by {failure}"
        if state not in _STARTED and fork["attempts"] == 1 and not _may_have_begun(fork):
            yield f"{fork['fork_id']} had nothing begun on {host}, and was not replaced"
    elif fork["outcome"] != "passed" or fork["host"] == host or fork["attempts"] < 2:
        yield f"{fork['fork_id']} was on {host} ({state}), and {_end_of(fork)}"
    elif state == "running":
        yield f"{fork['fork_id']} ran a command on {host}, and ran it again on {fork['host']}"


def _may_have_begun(fork: ForkReport) -> bool:
    """Between the look and the end of its host its command may have begun."""
    failure = fork["failure"]
    return failure is not None and failure["phase"] == "exec"


def _failures(report: Report, lost: Mapping[str, Any]) -> Iterator[str]:
    """Every machine that failed was the lost host's, and says so; whoever was replaced has passed."""
    ended = {fork["fork_id"]: fork["outcome"] for fork in report["forks"]}
    for failed in report["environment_failures"]:
        who = f"attempt {failed['attempt']} of {failed['fork_id']}"
        if failed["kind"] != "host_lost" or failed["host"] != lost["host"]:
            yield f"{who} on {failed['host']} failed by {failed['kind']}: {failed['message']}"
        if failed["replaced"] and ended.get(failed["fork_id"]) != "passed":
            yield f"{who} was replaced, and its fork ended {ended.get(failed['fork_id'])}"
    counted = {failed["fork_id"] for failed in report["environment_failures"]}
    for fork_id in lost["forks"].keys() - counted:
        yield f"{fork_id} lost its host, and no failure says so"


def _end_of(fork: ForkReport) -> str:
    failure = fork["failure"]
    why = "" if failure is None else f" by {failure['kind']}: {failure['message']}"
    told = repr(fork["stdout_tail"][-80:])
    return f"ended {fork['outcome']}{why} on {fork['host']} after {fork['attempts']} attempts, saying {told}"
