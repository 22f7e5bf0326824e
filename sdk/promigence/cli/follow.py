"""A run as it is followed: a bar over outcomes, the cost against the quote, and what waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from promigence.cli.session import plain, usd
from promigence.types import Run, Totals

BAR_CELLS = 40

# In the order of the bar: what a trainer can use first, then what it cannot.
STYLES = {
    "passed": "green",
    "failed": "red",
    "timed_out": "yellow",
    "released": "cyan",
    "env_failed": "magenta",
    "capped": "bright_black",
    "cancelled": "bright_black",
}


@contextmanager
def following(console: Console) -> Iterator[Callable[[Run], None]]:
    """What to call with each look at a run: a live picture on a terminal, a line at each change elsewhere."""
    if console.is_terminal:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            begun = time.monotonic()

            def draw(run: Run) -> None:
                live.update(picture(run, time.monotonic() - begun), refresh=True)

            yield draw
    else:
        yield Lines(console)


@dataclass(slots=True)
class Lines:
    """One line on the console whenever a count has changed."""

    console: Console
    last: str = field(default="")

    def __call__(self, run: Run) -> None:
        line = f"{counted(run['totals'])}{_alive(run)}"
        if line != self.last:
            self.last = line
            self.console.print(f"{run['run_id']}: {line}; {spent(run)}", *_waiting(run), sep="\n")


def picture(run: Run, seconds: float) -> RenderableType:
    """Three or four lines: which run, the bar with its counts, the money, and what waits for what."""
    minutes, rest = divmod(int(seconds), 60)
    head = Text.assemble(
        (run["run_id"], "bold"), "  ", plain(", ".join(run["snapshots"])), f"  {minutes}:{rest:02d}"
    )
    return Group(head, bar(run["totals"]), Text(f"{spent(run)}{_alive(run)}"), *_waiting(run))


def bar(totals: Totals, cells: int = BAR_CELLS) -> Text:
    """A bar with a colour for each outcome, and the counts behind it."""
    drawn = Text()
    for name, width in share_cells(totals, cells).items():
        drawn.append(("━" if name in STYLES else "─") * width, style=STYLES.get(name, "dim"))
    return drawn.append("  ").append(counted(totals))


def share_cells(totals: Totals, cells: int) -> dict[str, int]:
    """Cells for each outcome and `pending`, adding up to `cells`; an outcome that occurred is never without one."""
    counts = outcome_counts(totals)
    whole = max(1, sum(counts.values()))
    shares = {
        name: max(1, count * cells // whole) if count else 0 for name, count in counts.items()
    }
    largest = max(shares, key=lambda name: counts[name])
    shares[largest] = max(0, shares[largest] + cells - sum(shares.values()))
    return shares


def outcome_counts(totals: Totals) -> dict[str, int]:
    """Without `requested`, which is their sum."""
    return {name: count for name, count in totals.items() if name in STYLES or name == "pending"}  # type: ignore[misc]


def counted(totals: Totals) -> str:
    """`12/20: 9 passed, 2 failed, 1 env_failed`."""
    ended = totals["requested"] - totals["pending"]
    counts = outcome_counts(totals)
    by_outcome = [f"{counts[name]} {name}" for name in STYLES if counts[name]]
    return f"{ended}/{totals['requested']}" + (f": {', '.join(by_outcome)}" if by_outcome else "")


def spent(run: Run) -> str:
    cost, quote = run["cost"], run["quote"]
    return f"cost {usd(cost['total_usd'])} of at most {usd(quote['max_cost_usd'])}"


def _alive(run: Run) -> str:
    progress = run["progress"]
    states = [
        f"{progress[name]} {name}"
        for name in ("queued", "restoring", "checking", "ready", "running")
        if progress[name]
    ]
    return f" | {', '.join(states)}" if states else ""


def _waiting(run: Run) -> list[Text]:
    told = [run["progress"]["waiting_for"], kept(run["progress"]["kept"], run["run_id"])]
    return [Text(style="yellow").append_text(plain(line)) for line in told if line is not None]


def kept(count: int, run_id: str) -> str | None:
    """What a run waits for that keeps failed forks; None where it keeps none."""
    if not count:
        return None
    who = "1 fork is kept until its" if count == 1 else f"{count} forks are kept until their"
    return (
        f"{who} lease ends, or: promigence forks release ID   "
        f"which: promigence runs forks {run_id}   look: promigence forks exec ID --sh ..."
    )
