"""`make drill-cap`: whether the cap holds while parts of the stack are killed at random times.

    python -m drills.cap [--seeds N | --seed N] [--json]

One line a seed on standard output, a summary, and with `--json` a last line that is one JSON object. Exit status 0 when
every law held in every seed, else 1; then each thing seen is told on standard error, and the stack's logs are kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo.stack import keep_logs, kept_logs
from drills.cap.judge import Law
from drills.cap.plan import plan
from drills.cap.seed import Result, build, drill
from drills.program import completed
from drills.rig import rigged
from drills.watch import watching

DIRECTORY = Path(".promigence/drill")
SEEDS = 20


def main() -> int:
    """The program; its exit status."""
    seeds, as_json = _given()
    console = Console(stderr=True)
    began = time.monotonic()
    results = completed(lambda: _drill_all(seeds, console), DIRECTORY, console)
    summary = summed_up(results, time.monotonic() - began)
    print(in_words(summary))
    if as_json:
        print(json.dumps(summary))
    return 1 if summary["broken"] else 0


def summed_up(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """All seeds in one object. `over_cap`, `unfinished` and the like count what was seen against each law."""
    seen = Counter(each.law for result in results for each in result.broken)
    late = sorted(ms for result in results for ms in result.lateness_ms)
    capped = sum(result.cap_micros for result in results)
    spent = sum(result.spent_micros for result in results)
    return {
        "seeds": len(results),
        **{law.value: seen[law] for law in Law},
        "broken": seen.total(),
        "spent_share": round(spent / capped, 4) if capped else 0.0,
        "faults": sum(len(result.strikes.done) for result in results),
        "machines": sum(result.machines for result in results),
        "kills_at_lease": len(late),
        "lateness_ms": {
            "p50": round(statistics.median(late), 1) if late else None,
            "max": round(late[-1], 1) if late else None,
        },
        "seconds": round(seconds, 1),
    }


def in_words(summary: dict[str, Any]) -> str:
    """The summary as a person reads it."""
    laws = ", ".join(f"{summary[law.value]} {law.value}" for law in Law)
    late = summary["lateness_ms"]
    return (
        f"{summary['seeds']} seeds, {summary['faults']} strikes, {summary['machines']} machines: {laws}; "
        f"{summary['kills_at_lease']} kills at the lease's end, p50 {late['p50']} ms, latest {late['max']} ms; "
        f"{summary['spent_share']:.1%} of the caps spent; {summary['seconds']:.0f} s"
    )


def _given() -> tuple[Sequence[int], bool]:
    """The seeds to drill, and whether to end with JSON."""
    parser = argparse.ArgumentParser(prog="drills.cap", description="the cap under faults")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds 1 to this ({SEEDS})")
    which.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error("at least one seed")
    return range(1, given.seeds + 1) if given.seed is None else (given.seed,), given.json


def _drill_all(seeds: Sequence[int], console: Console) -> list[Result]:
    """Seed after seed on one stack; each result is told as it comes."""
    results = []
    with rigged(DIRECTORY) as rig, watching(rig.machines) as watch:
        with console.status("building the snapshot"):
            build(rig)
        for seed in seeds:
            planned = plan(seed)
            console.print(str(planned), highlight=False)
            with console.status("starting") as status:
                result = drill(rig, watch, planned, status.update)
            print(result, flush=True)
            for each in result.broken:
                console.print(f"  [red]{escape(str(each))}[/red]", highlight=False)
            results.append(result)
        if any(result.broken for result in results):
            keep_logs(DIRECTORY)
            console.print(f"the stack's logs: {kept_logs(DIRECTORY)}", highlight=False)
    return results


if __name__ == "__main__":
    sys.exit(main())
