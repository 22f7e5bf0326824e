"""`make drill-once`: no command runs twice and no result is lost, though the worker is killed at the worst moments.

    python -m drills.once [--commands N] [--kills N] [--seed N] [--json]

Exit status 0 when every command was counted once at most outside of its guest, and every one has its own exit code and
output in the rows; else 1, and the stack's logs are kept.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo.stack import keep_logs, kept_logs
from drills.leavings import left, settled
from drills.once.counter import UNCOUNTED, Counts, counting
from drills.once.judge import Planned, Verdict, judge
from drills.once.kills import Kills, killing
from drills.program import completed
from drills.rig import Rig, rigged, smallest
from drills.watch import Watch, watching
from promigence.types import Group, Report

DIRECTORY = Path(".promigence/once")
SNAPSHOT = "once"
# While its worker is away a command has no way out: it waits for one, by a question that is not counted. Then it asks
# once: what the proxy lost on the way is not asked again, or the drill itself would count twice.
COMMAND = (
    "for n in $(seq 60); do "
    f'wget -q -O /dev/null "http://$COUNTER/{UNCOUNTED}" && break; sleep 0.5; done; '
    'wget -q -O /dev/null "http://$COUNTER/$NAME"; sleep "$SLEEP"; echo "$NAME"; exit "$CODE"'
)
BUILD_WITHIN_S = 240.0
FINAL_WITHIN_S = 300.0
SETTLED_WITHIN_S = 90.0
# So many machines may fail a fork before its command begins: each kill costs those that come up just then.
RETRIES = 10


def main() -> int:
    """The program; its exit status."""
    given = _given()
    console = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    told, verdict = completed(
        lambda: _drill(given.commands, given.kills, given.seed, console), DIRECTORY, console
    )
    told["seconds"] = round(time.monotonic() - began, 1)
    for said in (*verdict.twice, *verdict.lost, *verdict.wrong, *told["leaks"]):
        console.print(f"[red]{escape(str(said))}[/red]", highlight=False)
    print(_in_words(told))
    if given.json:
        print(json.dumps({**told, "leaks": len(told["leaks"])}))
    return 0 if verdict.held and not told["leaks"] else 1


def planned(count: int, seed: int) -> list[Planned]:
    """The commands: short, of different lengths, one in four with an exit code of its own."""
    chance = random.Random(seed)
    return [
        Planned(f"command-{n}", round(chance.uniform(1, 5), 1), n + 1 if n % 4 == 3 else 0)
        for n in range(count)
    ]


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills.once", description="at most once, never lost")
    parser.add_argument("--commands", type=int, default=50)
    parser.add_argument("--kills", type=int, default=6, help="at most so many (6)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    given = parser.parse_args()
    if given.commands < 1 or given.kills < 0:
        parser.error("at least one command, and no less than no kill")
    return given


def _drill(
    commands: int, kills: int, seed: int, console: Console
) -> tuple[dict[str, Any], Verdict]:
    asked = planned(commands, seed)
    with (
        counting() as (address, counts),
        rigged(DIRECTORY, "127.0.0.1:*") as rig,
        watching(rig.machines) as watch,
    ):
        here = frozenset(left(rig, frozenset(), frozenset()))
        with console.status("building the snapshot"):
            rig.client.snapshots.build(smallest(SNAPSHOT), timeout=BUILD_WITHIN_S)
        with console.status("running, and killing"):
            report, done = _run(rig, asked, address, counts, kills, seed)
        with console.status("looking for what was left behind"):
            leaks = _leaks(rig, watch, here)
        verdict = judge(asked, counts.counts(), report["forks"])
        if leaks or not verdict.held:
            keep_logs(DIRECTORY)
            console.print(f"the stack's logs: {kept_logs(DIRECTORY)}", highlight=False)
    return _summary(asked, counts, done, verdict, leaks), verdict


def _run(
    rig: Rig, asked: list[Planned], address: str, counts: Counts, kills: int, seed: int
) -> tuple[Report, Kills]:
    groups = [
        Group(
            snapshot=SNAPSHOT,
            count=1,
            key=each.name,
            env={
                "COUNTER": address,
                "NAME": each.name,
                "SLEEP": str(each.sleep_s),
                "CODE": str(each.exit_code),
            },
        )
        for each in asked
    ]
    run_id = rig.client.runs.start(
        groups,
        spend_cap=2.0,
        exec={"sh": COMMAND, "timeout_seconds": 120},
        egress=[address],
        verify_each=False,
        environment_retries=RETRIES,
    )["run_id"]
    ends_s = {each.name: each.sleep_s for each in asked}
    with killing(rig, run_id, counts, ends_s, kills, seed) as done:
        rig.client.runs.wait(run_id, FINAL_WITHIN_S)
    return rig.client.runs.report(run_id), done


def _leaks(rig: Rig, watch: Watch, here: frozenset[str]) -> list[str]:
    names = frozenset(watch.seen())
    return settled(lambda: left(rig, names, here), SETTLED_WITHIN_S)


def _summary(
    asked: list[Planned], counts: Counts, kills: Kills, verdict: Verdict, leaks: list[str]
) -> dict[str, Any]:
    counted = counts.counts()
    return {
        "commands": len(asked),
        "counted": sum(name in counted for name in (each.name for each in asked)),
        "twice": len(verdict.twice),
        "lost": len(verdict.lost),
        "wrong": len(verdict.wrong),
        "replaced": verdict.replaced,
        "gaps": verdict.gaps,
        "kills": kills.total,
        "killed_in": dict(kills.by_moment),
        "leaks": leaks,
    }


def _in_words(told: dict[str, Any]) -> str:
    moments = ", ".join(f"{count} in {moment}" for moment, count in told["killed_in"].items())
    return (
        f"{told['commands']} commands, {told['kills']} workers killed ({moments}): "
        f"{told['counted']} counted, {told['twice']} twice, {told['lost']} lost, {told['wrong']} wrong; "
        f"{told['replaced']} forks replaced before their command, {told['gaps']} that met a gap in egress; "
        f"{len(told['leaks'])} leaks; {told['seconds']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
