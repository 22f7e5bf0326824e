"""Measure on this machine, print a table, and keep the results.

    python -m bench [NAME ...]

Run it in the checkout. Without a name, all. Each measure writes `bench/results/<name>.json`: its figures (n, min,
median, p90, p99, max), its claims and whether they hold, the commit, the host's fingerprint and the load average when
it began. Exit status 0 when every claim held, else 1.
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
from functools import partial
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from bench import barrier, execs, lateness, logins, pause, quotes, read_ahead, spent, tick, warm
from bench.figures import Claim, Result
from bench.rig import Rig, rigged

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "bench" / "results"
# Of a fingerprint, what says which boot of which machine it was, and nothing of what it can do.
PASSING = frozenset({"host_id", "boot_id"})
ON_MACHINES: dict[str, Callable[[Rig], Result]] = {
    "barrier": barrier.measure,
    "pause": pause.measure,
    "exec": execs.measure,
    "warm": warm.measure,
    "lateness": lateness.measure,
    "spent": spent.measure,
    "read-ahead": read_ahead.measure,
}
# What needs no machines is also measured where none can run.
WITHOUT: dict[str, Callable[[], Result]] = {
    "quotes": quotes.measure,
    "tick": tick.measure,
    "logins": logins.measure,
}
NAMES = (*ON_MACHINES, *WITHOUT)


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
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    names: list[str] = parser.parse_args().names or list(NAMES)
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"no such measure: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=True)
    try:
        held = _take_all(names, console)
    except KeyboardInterrupt:
        console.print("interrupted; its machines and its stack are gone")
        return 130
    return 0 if all(held) else 1


def _take_all(names: list[str], console: Console) -> list[bool]:
    """Whether the claims of each hold; those that need machines first, and only they are given any."""
    held: list[bool] = []
    on_machines = [name for name in names if name in ON_MACHINES]
    if on_machines:
        with rigged() as rig:
            host = {k: v for k, v in asdict(rig.fingerprint).items() if k not in PASSING}
            held = [_take(n, partial(ON_MACHINES[n], rig), host, console) for n in on_machines]
    held.extend(_take(n, WITHOUT[n], _processors(), console) for n in names if n in WITHOUT)
    return held


def _take(
    name: str, measure: Callable[[], Result], host: dict[str, object], console: Console
) -> bool:
    """Measure, show and keep one; whether its claims hold."""
    conditions = _conditions()
    with console.status(f"measuring {name}"):
        result = measure()
    _keep(name, result, conditions, host)
    out = Console()
    out.print(_table(name, result))
    for claim in result.claims:
        out.print(_verdict(claim))
    return all(claim.holds for claim in result.claims)


def _verdict(claim: Claim) -> str:
    bound = (
        f"at least {claim.at_least:g}" if claim.at_most is None else f"at most {claim.at_most:g}"
    )
    verdict = "[green]holds[/green]" if claim.holds else "[red]does not hold[/red]"
    return f"{claim.what}: {claim.value:.4g}, {bound}: {verdict}"


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


def _processors() -> dict[str, object]:
    """What there is to say of a host that no machine runs on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"cpu_model": next(models, "unknown"), "vcpus": len(os.sched_getaffinity(0))}


def _keep(name: str, result: Result, conditions: Conditions, host: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "name": name,
        **asdict(conditions),
        "host": host,
        "about": result.about,
        "figures": {figure.name: figure.as_dict() for figure in result.figures},
        "claims": [claim.as_dict() for claim in result.claims],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=2) + "\n")


def _table(name: str, result: Result) -> Table:
    about = ", ".join(f"{key} {value}" for key, value in result.about.items())
    table = Table(title=f"{name}: {about}", title_justify="left")
    table.add_column()
    for column in ("n", "min", "median", "p90", "p99", "max"):
        table.add_column(column, justify="right")
    for figure in result.figures:
        table.add_row(*figure.as_row())
    return table


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite end is an interruption: machines and stack are gone on the way out."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
