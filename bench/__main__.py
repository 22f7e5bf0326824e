"""Measure on this machine, print a table, and keep the results.

    python -m bench [NAME ...]

Run it in the checkout. Without a name, all. Each measure writes `bench/results/<name>.json`: its figures (n, min,
median, p90, max), its claims and whether they hold, the commit, the host's fingerprint and the load average when it
began. Exit status 0 when every claim held, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from app.domain.machine import Fingerprint
from bench import barrier, execs, pause, warm
from bench.figures import Figure, Result
from bench.rig import Rig, rigged

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "bench" / "results"
# Of a fingerprint, what says which boot of which machine it was, and nothing of what it can do.
PASSING = frozenset({"host_id", "boot_id"})
MEASURES: dict[str, Callable[[Rig], Result]] = {
    "barrier": barrier.measure,
    "pause": pause.measure,
    "exec": execs.measure,
    "warm": warm.measure,
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a result was taken on. `commit` is None outside a git checkout; `changed`: files differed from it."""

    taken_at: str
    commit: str | None
    changed: bool
    load_average: tuple[float, float, float]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASURES)}")
    names: list[str] = parser.parse_args().names or list(MEASURES)
    if unknown := sorted(set(names) - MEASURES.keys()):
        parser.error(f"no such measure: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=True)
    try:
        with rigged() as rig:
            held = [_take(rig, name, console) for name in names]
    except KeyboardInterrupt:
        console.print("interrupted; its machines and its stack are gone")
        return 130
    return 0 if all(held) else 1


def _take(rig: Rig, name: str, console: Console) -> bool:
    """Measure, show and keep one; whether its claims hold."""
    conditions = _conditions()
    with console.status(f"measuring {name}"):
        result = MEASURES[name](rig)
    _keep(name, result, conditions, rig.fingerprint)
    out = Console()
    out.print(_table(name, result))
    for claim in result.claims:
        bound = f"at most {claim.at_most:g}" if claim.at_most else f"at least {claim.at_least:g}"
        verdict = "[green]holds[/green]" if claim.holds else "[red]does not hold[/red]"
        out.print(f"{claim.what}: {claim.value:.2f}, {bound}: {verdict}")
    return all(claim.holds for claim in result.claims)


def _conditions() -> Conditions:
    changes = _git("status", "--porcelain", "--", ".", ":!bench/results")
    return Conditions(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_git("rev-parse", "HEAD"),
        changed=bool(changes),
        load_average=os.getloadavg(),
    )


def _git(*words: str) -> str | None:
    done = subprocess.run(("git", *words), capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _keep(name: str, result: Result, conditions: Conditions, host: Fingerprint) -> None:
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "name": name,
        **asdict(conditions),
        "host": {key: value for key, value in asdict(host).items() if key not in PASSING},
        "about": result.about,
        "figures": {figure.name: figure.as_dict() for figure in result.figures},
        "claims": [claim.as_dict() for claim in result.claims],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=2) + "\n")


def _table(name: str, result: Result) -> Table:
    about = ", ".join(f"{key} {value}" for key, value in result.about.items())
    table = Table(title=f"{name}: {about}", title_justify="left")
    table.add_column("ms")
    for column in ("n", "min", "median", "p90", "max"):
        table.add_column(column, justify="right")
    for figure in result.figures:
        table.add_row(figure.name, str(len(figure.seconds)), *_milliseconds(figure))
    return table


def _milliseconds(figure: Figure) -> tuple[str, ...]:
    shown = (min(figure.seconds), figure.median, figure.p90, max(figure.seconds))
    return tuple(f"{seconds * 1000:,.1f}" for seconds in shown)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite end is an interruption: machines and stack are gone on the way out."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
