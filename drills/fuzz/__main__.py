"""`make fuzz MINUTES=10`: every parser of what a guest says, each for its share of that time, one after the other.

    python -m drills.fuzz [--minutes N] [--only TARGET] [--json]

What a target learned lies under `.promigence/fuzz/` and is where the next run begins; so does an input that broke a
promise, which `python -m drills.fuzz.one TARGET FILE` runs again. Exit status 0 when nothing broke; 2 where the fuzzer
is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from drills.fuzz.targets import TARGETS, Target

FOLDER = Path(".promigence/fuzz")
LONGEST_BYTES = 16384
# A single input that takes longer is a hang.
HANG_S = 20
_GRACE_S = 120.0
_EXECS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_RATE = re.compile(r"stat::average_exec_per_sec:\s+(\d+)")
_COVER = re.compile(r"cov: (\d+) ft: (\d+)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one target. `edges`: branches of our code that were reached; `broken`: what broke a promise."""

    target: str
    seconds: int
    execs: int
    execs_per_second: int
    edges: int
    inputs: int
    broken: str | None


def main() -> None:
    """Fuzz, tell, and exit by what was seen."""
    asked = _arguments()
    if importlib.util.find_spec("atheris") is None:
        print(
            "the fuzzer is not installed here: pip install atheris (Python 3.11 to 3.13)",
            file=sys.stderr,
        )
        raise SystemExit(2)
    names = [asked.only] if asked.only else list(TARGETS)
    seconds = max(1, int(asked.minutes * 60 / len(names)))
    seen = []
    for name in names:
        seen.append(_fuzz(name, TARGETS[name], seconds))
        if not asked.json:
            print(_line(seen[-1]), flush=True)
    if asked.json:
        print(json.dumps([asdict(each) for each in seen]))
    raise SystemExit(1 if any(each.broken for each in seen) else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=sorted(TARGETS))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _fuzz(name: str, target: Target, seconds: int) -> Seen:
    corpus, broken = FOLDER / name / "corpus", FOLDER / name / "broken"
    for folder in (corpus, broken):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    before = set(broken.iterdir())
    options = (
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_BYTES}",
        f"-timeout={HANG_S}",
        f"-artifact_prefix={broken}/",
        "-print_final_stats=1",
        "-rss_limit_mb=1024",
    )
    done = subprocess.run(
        ("nice", sys.executable, "-m", "drills.fuzz.one", name, *options, str(corpus)),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + _GRACE_S,
        check=False,
    )
    new = sorted(set(broken.iterdir()) - before)
    if done.returncode != 0 and not new:
        raise SystemExit(f"{name} did not run:\n{done.stderr[-2000:]}")
    if new:
        print(done.stderr[-3000:], file=sys.stderr)
    return _seen(name, seconds, done.stderr, len(list(corpus.iterdir())), new)


def _seen(name: str, seconds: int, said: str, inputs: int, broken: list[Path]) -> Seen:
    execs, rate, cover = (list(each.finditer(said)) for each in (_EXECS, _RATE, _COVER))
    return Seen(
        target=name,
        seconds=seconds,
        execs=int(execs[-1][1]) if execs else 0,
        execs_per_second=int(rate[-1][1]) if rate else 0,
        edges=int(cover[-1][1]) if cover else 0,
        inputs=inputs,
        broken=str(broken[0]) if broken else None,
    )


def _line(seen: Seen) -> str:
    end = f"BROKEN by {seen.broken}" if seen.broken else "clean"
    return (
        f"{seen.target:9} {seen.seconds:4} s {seen.execs:9} execs {seen.execs_per_second:6}/s "
        f"{seen.edges:5} edges {seen.inputs:5} inputs  {end}"
    )


if __name__ == "__main__":
    main()
