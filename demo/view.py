"""What the demo shows while it works: a line for each stage, a live bar for each run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from promigence.types import Build, Cost, ForkReport, Host, Report, Run, Snapshot

ENDED = ("passed", "failed", "timed_out", "env_failed", "capped", "cancelled", "released")
WORKING = ("queued", "restoring", "checking", "ready", "running")


@dataclass(frozen=True, slots=True)
class View:
    """Writes to one console."""

    console: Console

    def say(self, text: str) -> None:
        """A line of its own."""
        self.console.print(text, highlight=False)

    @contextmanager
    def bar(self, title: str, total: int | None = None) -> Iterator[Bar]:
        """A bar while the block runs; without a total it only turns."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TimeElapsedColumn(),
            TextColumn("{task.fields[now]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            yield Bar(progress, progress.add_task(title, total=total, now=""))


@dataclass(frozen=True, slots=True)
class Bar:
    """One live bar."""

    progress: Progress
    task: TaskID

    def build(self, build: Build) -> None:
        """What a build does now."""
        self._update(0, build["step"] or build["state"])

    def run(self, run: Run) -> None:
        """How many forks of a run have ended, and what the others do."""
        totals, at = run["totals"], run["progress"]
        counts = [f"{totals[name]} {name}" for name in ENDED if totals[name]]  # type: ignore[literal-required]
        counts += [f"{at[name]} {name}" for name in WORKING if at[name]]  # type: ignore[literal-required]
        cost = f"{run['cost']['total_usd']:.6f} USD"
        self._update(totals["requested"] - totals["pending"], ", ".join([*counts, cost]))

    def _update(self, completed: int, now: str) -> None:
        self.progress.update(self.task, completed=completed, now=now)


def host_line(host: Host) -> str:
    """What the machines run on, and what the host cannot do."""
    lacks = f"; it lacks {', '.join(host['missing'])}" if host["missing"] else ""
    room = f"{host['vcpus']} processors, {host['memory_mib']} MiB"
    return f"host: {host['accelerator']} ({host['accelerator_reason']}), {room}{lacks}"


def snapshot_line(snapshot: Snapshot, seconds: float) -> str:
    """A stored snapshot in one line."""
    names = ", ".join(check["name"] for check in snapshot["checks"])
    size = snapshot["bytes"] / (1 << 20)
    return f"{snapshot['snapshot']} verified in {seconds:.0f} s ({size:.0f} MiB; {names})"


def report_table(report: Report) -> Table:
    """A report's forks, one row for each kind of end."""
    table = Table("outcome", "forks", "reward", "why")
    for outcome in ENDED:
        forks = [fork for fork in report["forks"] if fork["outcome"] == outcome]
        if forks:
            rewards = sorted({str(fork["reward"]) for fork in forks})
            reasons = sorted({_why(fork) for fork in forks})
            table.add_row(outcome, str(len(forks)), ", ".join(rewards), "\n".join(reasons))
    return table


def cost_line(cost: Cost) -> str:
    """What a run cost, in parts, and its cap."""
    return (
        f"{cost['total_usd']:.6f} USD of at most {cost['spend_cap_usd']:.6f}: "
        f"tasks {cost['tasks_usd']:.6f}, verification {cost['verification_usd']:.6f}, "
        f"environment {cost['environment_usd']:.6f}"
    )


def _why(fork: ForkReport) -> str:
    failure = fork["failure"]
    return f"{failure['kind']}: {failure['message']}" if failure else fork["reason"] or ""
