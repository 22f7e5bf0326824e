"""One seed: a step of 24 forks under a binding cap, struck as planned, then judged by what is true afterwards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from drills.books import OUTCOMES, micros
from drills.cap.faults import Strikes, striking
from drills.cap.judge import Broken, Evidence, Law, judge, lateness_ms
from drills.cap.plan import Plan
from drills.leavings import left, settled
from drills.rig import Rig, smallest
from drills.rows import account_of
from drills.watch import Watch, boot_ns
from promigence import BadRequest, WaitTimeout
from promigence.types import Group, QuoteTerms, Report, Run

SNAPSHOT = "drill"
COMMAND = 'sleep "$LIFE_SECONDS"; exit "$EXIT_CODE"'
# Far above what any seed pays for: no command is ended by its own limit.
COMMAND_LIMIT_S = 1800
# Priced, never started: the refusal names the smallest cap.
TOO_SMALL_CAP = 0.000001
BUILD_TIMEOUT_S = 300
# The longest way to an end: an outage in the last lease, and a host that reports nothing until law 8 closes for it.
FINAL_WITHIN_S = 300
# A host looks for what no row owns every 30 s, and a worker that was killed comes back first.
SETTLED_WITHIN_S = 90
PARTS_WITHIN_S = 60

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """One seed as it was. `lateness_ms` is of every machine that a keeper ended at its lease; below zero is in time."""

    plan: Plan
    cap_micros: int
    spent_micros: int
    totals: dict[str, int]
    failures: dict[str, int]
    strikes: Strikes
    machines: int
    lateness_ms: tuple[float, ...]
    broken: tuple[Broken, ...]
    seconds: float

    @property
    def spent_share(self) -> float:
        return self.spent_micros / self.cap_micros

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {outcome}" for outcome, count in self.totals.items() if count)
        why = ", ".join(f"{count} {kind}" for kind, count in sorted(self.failures.items()))
        latest = f"{max(self.lateness_ms):+.0f} ms" if self.lateness_ms else "none"
        verdict = f"{len(self.broken)} BROKEN" if self.broken else "held"
        return (
            f"seed {self.plan.seed}: spent {self.spent_micros} of {self.cap_micros} ({self.spent_share:.1%}); "
            f"{ends}; failed machines: {why or 'none'}; {self.machines} machines, latest kill {latest}; "
            f"{len(self.strikes.done)} strikes; {self.seconds:.0f} s: {verdict}"
        )


def build(rig: Rig) -> None:
    """The snapshot of all seeds. Raises PromigenceError."""
    rig.client.snapshots.build(smallest(SNAPSHOT), timeout=BUILD_TIMEOUT_S)


def drill(rig: Rig, watch: Watch, plan: Plan, progress: Progress) -> Result:
    """Run one seed to its end and judge it. Raises PromigenceError when the stack answers nothing at all any more."""
    began, before = time.monotonic(), watch.seen().keys()
    here = frozenset(left(rig, frozenset(), frozenset()))
    cap_micros = round(smallest_cap_micros(rig, plan) * plan.cap_share)
    run_id = rig.client.runs.start(groups(plan), **terms(cap_micros))["run_id"]
    with striking(rig, watch, plan) as strikes:
        unfinished = _until_final(rig, run_id, progress)
    report, account = rig.client.runs.report(run_id), account_of(rig.postgres, run_id)
    if unfinished:
        rig.client.runs.cancel(run_id)
    progress("looking for what was left behind")
    away = parts_away(rig)
    names = watch.seen().keys() - before
    leavings = settled(lambda: left(rig, frozenset(names), here), SETTLED_WITHIN_S)
    seen = {name: each for name, each in watch.seen().items() if name in names}
    evidence = Evidence(report, account, plan.lives, seen, frozenset(strikes.keepers), boot_ns())
    return Result(
        plan=plan,
        cap_micros=cap_micros,
        spent_micros=account.charged_micros,
        totals=_ends(report),
        failures=Counter(each["kind"] for each in report["environment_failures"]),
        strikes=strikes,
        machines=len(seen),
        lateness_ms=tuple(lateness_ms(seen.values(), boot_ns())),
        broken=(
            *(Broken(Law.UNFINISHED, line) for line in [*unfinished, *away]),
            *judge(evidence),
            *(Broken(Law.LEAK, line) for line in leavings),
        ),
        seconds=time.monotonic() - began,
    )


def groups(plan: Plan) -> list[Group]:
    """One fork a group, each told in its environment what its command is to do."""
    return [
        Group(
            snapshot=SNAPSHOT,
            count=1,
            env={"LIFE_SECONDS": str(life.seconds), "EXIT_CODE": str(life.exit_code)},
        )
        for life in plan.lives
    ]


def terms(cap_micros: int) -> QuoteTerms:
    """What is the same for every seed. A fork whose machine is lost before its command gets others."""
    return {
        "spend_cap": cap_micros / 1_000_000,
        "verify_each": False,
        "exec": {"sh": COMMAND, "timeout_seconds": COMMAND_LIMIT_S},
        "environment_retries": 2,
    }


def smallest_cap_micros(rig: Rig, plan: Plan) -> int:
    """The least cap that this step may have: the server names it when it refuses less."""
    given = terms(0)
    given["spend_cap"] = TOO_SMALL_CAP
    try:
        rig.client.runs.quote(groups(plan), **given)
    except BadRequest as refused:
        if refused.code == "cap_too_small":
            return micros(float(refused.details["smallest_cap_usd"]))
        raise
    raise AssertionError(f"a cap of {TOO_SMALL_CAP} USD was not refused")


def parts_away(rig: Rig) -> list[str]:
    """Parts that were not started again in time."""
    wanted = {"redis", "api", "worker", "billing"}
    away = settled(lambda: sorted(wanted - rig.parts().keys()), PARTS_WITHIN_S)
    return [f"{name} was not started again" for name in away]


def _until_final(rig: Rig, run_id: str, progress: Progress) -> list[str]:
    """Wait for the run's end; what is not final when time is up."""

    def look(run: Run) -> None:
        at = {state: count for state, count in run["progress"].items() if isinstance(count, int)}
        now = ", ".join(f"{count} {state}" for state, count in at.items() if count)
        progress(f"{now}; {micros(run['cost']['total_usd'])} micro-dollars")

    try:
        rig.client.runs.wait(run_id, FINAL_WITHIN_S, on_progress=look)
    except WaitTimeout:
        run = rig.client.runs.get(run_id)
        return [f"{run_id} is not final after {FINAL_WITHIN_S} s: {run['progress']}"]
    return []


def _ends(report: Report) -> dict[str, int]:
    return {outcome: int(report["totals"][outcome]) for outcome in OUTCOMES}  # type: ignore[literal-required]
