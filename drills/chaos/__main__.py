"""`make drill-chaos`: thousands of forks on the shipped fakes, with faults at random points, judged against the truth.

    python -m drills.chaos [--forks 10000] [--seed 1] [--processes 2] [--postgres] [--json]

One line an episode on standard output, a summary, and with `--json` a last line that is one JSON object. Exit status 0
when no law was broken, else 1; then each break is told on standard error with its seed and the trace of its fork.
`--seed N --episodes 1` is that episode again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pool
from types import FrameType
from typing import Any

import psycopg

from drills.chaos.episode import IN_MEMORY, Result, play
from drills.chaos.judge import Law
from drills.postgres import running

FORKS_AN_EPISODE = 250
TOLD_AT_MOST = 20
# Counted by their own names in the summary; every other thing that was met is a fault.
MESSAGES = {"bell lost": "dropped", "bell doubled": "duplicated", "bell reordered": "reordered"}


def main() -> int:
    """The program; its exit status."""
    given = _given()
    _with_one_order_of_sets()
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    count = given.episodes or max(1, round(given.forks / FORKS_AN_EPISODE))
    forks = FORKS_AN_EPISODE if given.episodes else -(-given.forks // count)
    seeds = range(given.seed, given.seed + count)
    results = []
    try:
        for result in _played(seeds, forks, given):
            print(in_a_line(result), flush=True)
            results.append(result)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    _tell_breaks(results)
    summary = summed_up(results, time.monotonic() - began)
    print(in_words(summary))
    if given.json:
        print(json.dumps(summary))
    return 1 if summary["broken"] else 0


def summed_up(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """All episodes in one object. The names of laws count what was seen against each."""
    met: Counter[str] = sum((result.met for result in results), Counter())
    broken = Counter(each.law.value for result in results for each in result.broken)
    outcomes: Counter[str] = sum((result.outcomes for result in results), Counter())
    kinds: Counter[str] = sum((result.kinds for result in results), Counter())
    faults = {name: count for name, count in sorted(met.items()) if name not in MESSAGES}
    return {
        "seeds": [results[0].seed, results[-1].seed] if results else [],
        "forks": sum(result.forks for result in results),
        "runs": sum(result.runs for result in results),
        "machines": sum(result.machines for result in results),
        "commands": sum(result.commands for result in results),
        **{law.value: broken[law.value] for law in Law},
        "unaccounted_micros": sum(result.unaccounted_micros for result in results),
        "broken": broken.total(),
        "outcomes": dict(sorted(outcomes.items())),
        "environment_failures": dict(sorted(kinds.items())),
        "faults": sum(faults.values()),
        "faults_by_kind": faults,
        "messages": {word: met[name] for name, word in MESSAGES.items()},
        "workers_killed": met["crash"],
        "zombies": met["zombies"],
        "seconds": round(seconds, 1),
    }


def in_words(summary: dict[str, Any]) -> str:
    """The summary as a person reads it."""
    laws = ", ".join(f"{summary[law.value]} {law.value}" for law in Law)
    return (
        f"{summary['forks']} forks in {summary['runs']} runs, {summary['machines']} machines, "
        f"{summary['faults']} faults, {summary['workers_killed']} workers killed, "
        f"{summary['zombies']} zombies: {laws}; {summary['seconds']:.0f} s"
    )


def in_a_line(result: Result) -> str:
    """An episode as a person reads it."""
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(result.outcomes.items()))
    verdict = f"{len(result.broken)} BROKEN" if result.broken else "sound"
    return f"seed {result.seed:4}  {result.forks} forks: {outcomes}; {verdict}"


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills.chaos", description="random faults on fakes")
    parser.add_argument("--forks", type=int, default=10_000, help="in all (10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode (1)")
    parser.add_argument("--episodes", type=int, help="so many, instead of so many forks")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, not in memory")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    given = parser.parse_args()
    if given.forks < 1 or given.processes < 1 or (given.episodes or 1) < 1:
        parser.error("at least one")
    return given


def _with_one_order_of_sets() -> None:
    """Python orders sets of strings anew in each process, and a seed is to be the same episode in all."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "drills.chaos", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606 - itself


def _played(seeds: Sequence[int], forks: int, given: argparse.Namespace) -> Iterator[Result]:
    if given.postgres:
        with _databases() as url_of:
            for seed in seeds:
                yield play(seed, forks, url=url_of(seed))
    elif given.processes == 1:
        yield from (play(seed, forks) for seed in seeds)
    else:
        # At the end of the block, however that comes, its processes are ended.
        with Pool(given.processes, _as_it_was) as pool:
            yield from pool.imap(partial(play, forks=forks, url=IN_MEMORY), seeds)


def _as_it_was() -> None:
    """In a process of the pool: whoever began it ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite end is an interruption: the processes are ended on the way out."""
    raise KeyboardInterrupt


@contextmanager
def _databases() -> Iterator[Any]:
    """A PostgreSQL with an empty database for each episode."""
    with running() as postgres:

        def url_of(seed: int) -> str:
            with psycopg.connect(postgres.uri, autocommit=True) as opened:
                opened.execute(f"CREATE DATABASE chaos_{seed}".encode())
            uri = postgres.uri.replace("postgresql://", "postgresql+psycopg://")
            return uri.replace("/postgres?", f"/chaos_{seed}?")

        yield url_of


def _tell_breaks(results: Iterable[Result]) -> None:
    """Each break with its seed, and the trace of its fork once."""
    told = 0
    for result in results:
        for broken in result.broken:
            told += 1
            if told > TOLD_AT_MOST:
                print(f"and more; `--seed {result.seed} --episodes 1`", file=sys.stderr)
                return
            print(f"seed {result.seed}: {broken}", file=sys.stderr)
            for line in result.traces[broken.fork_id]:
                print(f"    {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
