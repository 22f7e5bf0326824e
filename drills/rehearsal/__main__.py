"""`make rehearsal`: the whole path on AWS, on this machine, with one host lost in the middle of a step.

    python -m drills.rehearsal [--quick] [--json]

Exit status 0 when every fork is accounted for, the money is right, and nothing is left behind; else 1, each thing that
is wrong is told on standard error, and the logs of all stacks are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo.stack import keep_logs, kept_logs
from drills.leavings import settled
from drills.program import completed
from drills.rehearsal import story
from drills.rehearsal.deployment import CONTROL, HOSTS, Deployment, deployed
from drills.rehearsal.judge import outcomes_by_host, wrong_notice, wrong_step
from drills.rehearsal.leavings import Seen, look
from drills.rehearsal.story import Step
from drills.rows import account_of
from drills.steps import until

DIRECTORY = Path(".promigence/rehearsal")
WHOLE, QUICK = Step(forks=24, busy_s=8.0), Step(forks=9, busy_s=4.0, hurried=True)
# The account's reaper comes by once a minute, and mends what it has seen twice.
GONE_WITHIN_S = 150.0


def main() -> int:
    """The program; its exit status."""
    given = _given()
    console = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    step = QUICK if given.quick else WHOLE
    told = completed(lambda: _rehearse(step, console), DIRECTORY / CONTROL, console)
    told["seconds"] = round(time.monotonic() - began, 1)
    for said in (*told["wrong"], *told["leftovers"]):
        console.print(f"[red]{escape(said)}[/red]", highlight=False)
    console.print(_in_words(told), highlight=False)
    if given.json:
        print(json.dumps(told))
    return 1 if told["wrong"] or told["leftovers"] else 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills.rehearsal", description="the path on AWS")
    parser.add_argument("--quick", action="store_true", help="a small step (what CI runs)")
    parser.add_argument("--json", action="store_true", help="standard output is one JSON line")
    return parser.parse_args()


def _rehearse(step: Step, console: Console) -> dict[str, Any]:
    try:
        return _played(step, console)
    except TimeoutError as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False)
        console.print(f"logs: {kept_logs(DIRECTORY / CONTROL).parent}", highlight=False)
        raise SystemExit(1) from error


def _played(step: Step, console: Console) -> dict[str, Any]:
    def act(what: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {what}", highlight=False)

    act("the account, PostgreSQL, Redis and the control plane come up")
    with deployed(DIRECTORY) as here:
        first, second, third = here.hosts
        act("one host builds a snapshot, and stores it")
        first.up()
        built = story.build(here, first)
        act("two more hosts restore it")
        restores = story.spread(here, (second, third))
        act(f"a step of {step.forks} over {HOSTS} hosts, one of which is lost")
        run_id = story.begin(here, step)
        lost = story.lose(here, run_id, third)
        act("another host is told that it is taken back")
        noticed = story.give_notice(here, run_id, third, second)
        act("what was lost and may be replaced is")
        report = story.finish(here, run_id)
        account = account_of(here.database, run_id)
        wrong = [
            *wrong_step(report, step.forks, lost, account, story.CAP_USD),
            *wrong_notice(noticed),
        ]
        act("the snapshot is deleted, the hosts are taken down")
        seen = _cleared(here, hurried=step.hurried)
        if wrong or seen.leftovers:
            _keep(here, console)
    return {
        "report": {
            **{name: report[name] for name in ("run_id", "final", "totals", "cost")},
            "environment_failures": [
                {name: failed[name] for name in ("kind", "phase", "host", "replaced")}
                for failed in report["environment_failures"]
            ],
        },
        "outcomes_by_host": outcomes_by_host(report),
        "build": built,
        "restores": restores,
        "lost": {**lost, "replaced": _replaced(report)},
        "notice": noticed,
        "wrong": wrong,
        "leftovers": list(seen.leftovers),
        "belongs": seen.belongs,
    }


def _cleared(here: Deployment, *, hurried: bool) -> Seen:
    up = here.hosts[:2]
    machines = frozenset(
        row["attempt_id"] for row in here.database.rows("SELECT attempt_id FROM attempt")
    )
    here.client.snapshots.delete(story.SNAPSHOT)
    if hurried:
        here.mend(*(host.directory for host in up))
    until(lambda: not story.kept(here), GONE_WITHIN_S, "the snapshot is gone")
    for host in up:
        host.down()

    def left() -> list[str]:
        if hurried:
            here.mend(here.control)
        return list(look(here, machines).leftovers)

    settled(left, GONE_WITHIN_S)
    return look(here, machines)


def _replaced(report: Any) -> int:
    return sum(failed["replaced"] for failed in report["environment_failures"])


def _keep(here: Deployment, console: Console) -> None:
    for directory in (here.control, *(host.directory for host in here.hosts)):
        keep_logs(directory)
    console.print(f"logs: {kept_logs(here.control).parent}", highlight=False)


def _in_words(told: dict[str, Any]) -> str:
    totals, lost = told["report"]["totals"], told["lost"]
    restores = ", ".join(f"{each['seconds']:.1f} s" for each in told["restores"])
    return (
        f"{totals['requested']} forks on {HOSTS} hosts: {totals['passed']} passed, {totals['env_failed']} env_failed; "
        f"{len(lost['forks'])} were on the lost host, {lost['replaced']} of them replaced; "
        f"built and stored in {told['build']['seconds']:.0f} s, restored elsewhere in {restores}; "
        f"{len(told['wrong'])} wrong, {len(told['leftovers'])} left over; {told['seconds']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
