"""`make drill-faults`: every kind of failure caused for real, and whether it was called what it is.

    python -m drills.matrix [--only PATTERN] [--quick] [--json] [--list | --table]

A line a case on standard error, a summary on standard output, and with `--json` a last line that is one JSON object.
Exit status 0 when every case was caused and called what it is, its siblings were unharmed, every account adds up and
nothing was left behind; else 1, and the stack's logs are kept.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo.stack import keep_logs, kept_logs
from drills.leavings import left, settled
from drills.matrix import output, policy
from drills.matrix.batch import Batch, Played, Track, Verdict, play, waves
from drills.matrix.case import Case
from drills.matrix.collect import cases
from drills.matrix.quarantine import no_quarantine
from drills.matrix.scene import NotCaused
from drills.matrix.templates import build
from drills.program import completed
from drills.rig import Rig, rigged
from drills.watch import Watch, watching
from promigence import PromigenceError

DIRECTORY = Path(".promigence/matrix")
# Cases that wait for a limit hold no one else up.
ENVIRONMENT = {"PROMIGENCE_FORKS_AT_ONCE": "8"}
SETTLED_WITHIN_S = 90


def main() -> int:
    """The program; its exit status."""
    given = _given()
    chosen = [case for case in cases() if _chosen(case, given)]
    if given.list:
        print("\n".join(f"{case.name:<34} {output.named(case)}" for case in chosen))
        return 0
    if given.table:
        print("\n".join(output.rows_of(chosen)))
        return 0
    console = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    played, leaks = completed(lambda: play_all(chosen, console), DIRECTORY, console)
    summary = output.summed_up(played, leaks, time.monotonic() - began)
    _tell(summary, console)
    print(output.in_words(summary))
    if given.json:
        print(json.dumps(summary))
    return 0 if output.held(summary) else 1


def play_all(
    chosen: Sequence[Case], console: Console, settled_within_s: float = SETTLED_WITHIN_S
) -> tuple[list[tuple[Batch, Played]], list[str]]:
    """Wave after wave on one stack; then what is left behind, which has so long to go.

    Raises as `drills.rig.rigged` does, PromigenceError when the stack takes no snapshot.
    """
    results: list[tuple[Batch, Played]] = []
    with (
        policy.serving() as servers,
        rigged(DIRECTORY, "127.0.0.1:*", environment=ENVIRONMENT) as rig,
        watching(rig.machines) as watch,
    ):
        here = frozenset(left(rig, frozenset(), frozenset()))
        with console.status("building the snapshots"):
            build(rig, (case.template for case in chosen))
        for wave in waves(chosen):
            results += _play_wave(rig, watch, servers, wave, console)
        with console.status("looking for what was left behind"):
            names = frozenset(watch.seen())
            leaks = settled(lambda: left(rig, names, here), settled_within_s)
        if leaks or not all(_went_well(each) for _, each in results):
            keep_logs(DIRECTORY)
            console.print(f"the stack's logs: {kept_logs(DIRECTORY)}", highlight=False)
    return results, leaks


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills.matrix", description="the fault matrix")
    parser.add_argument("--only", default="*", help="cases by name; * and ? as in file names")
    parser.add_argument("--quick", action="store_true", help="only those that CI runs")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--list", action="store_true", help="say which cases there are, run none")
    parser.add_argument("--table", action="store_true", help="the same, as docs/drills.md has it")
    given = parser.parse_args()
    if not any(_chosen(case, given) for case in cases()):
        parser.error("no case has such a name")
    return given


def _chosen(case: Case, given: argparse.Namespace) -> bool:
    patterns = str(given.only).split(",")
    named = any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)
    return named and (case.quick or not given.quick)


def _play_wave(
    rig: Rig, watch: Watch, servers: Mapping[str, str], wave: Sequence[Track], console: Console
) -> list[tuple[Batch, Played]]:
    """Its tracks side by side; each case is told as soon as its run is over."""
    over = threading.Event()
    cases = [case for track in wave for batch in track for case in batch.cases]

    def play_track(track: Track) -> list[tuple[Batch, Played]]:
        results = []
        for batch in track:
            if not over.is_set():
                results.append((batch, _played(rig, watch, servers, batch, over)))
                _tell_played(results[-1][1], console)
        return results

    with (
        no_quarantine(rig) if all(case.released for case in cases) else nullcontext(),
        console.status(escape(", ".join(case.name for case in cases)[:100])),
        ThreadPoolExecutor(len(wave)) as pool,
    ):
        try:
            playing = [pool.submit(play_track, track) for track in wave]
            return [each for future in as_completed(playing) for each in future.result()]
        except BaseException:
            # Whatever it is, no run is waited for any longer.
            over.set()
            raise


def _played(
    rig: Rig, watch: Watch, servers: Mapping[str, str], batch: Batch, over: threading.Event
) -> Played:
    """Its run, or that there was none: the stack took no request, or what was to be broken could not be."""
    try:
        return play(rig, watch, servers, batch, over)
    except (PromigenceError, NotCaused, OSError, subprocess.SubprocessError) as error:
        told_so = f"{type(error).__name__}: {error}"
        return Played(tuple(Verdict(case, uncaused=told_so) for case in batch.cases))


def _tell_played(played: Played, console: Console) -> None:
    for verdict in played.verdicts:
        style = "green" if verdict.held else "red"
        console.print(f"[{style}]{escape(output.line(verdict))}[/{style}]", highlight=False)
    for said in (*played.harmed, *played.accounts):
        console.print(f"[red]  the rest of the run: {escape(said)}[/red]", highlight=False)


def _tell(summary: dict[str, object], console: Console) -> None:
    """Everything that was wrong, once more, at the end."""
    wrong = summary["wrong"]
    assert isinstance(wrong, dict)
    for name, lines in wrong.items():
        for said in lines:
            console.print(f"[red]{escape(f'{name}: {said}')}[/red]", highlight=False)


def _went_well(played: Played) -> bool:
    told_wrong = played.harmed or played.accounts
    return not told_wrong and all(verdict.held for verdict in played.verdicts)


if __name__ == "__main__":
    sys.exit(main())
