"""What a caller may read of a run, a fork or a build at any time."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain import report as pages
from app.domain.account import Project
from app.domain.fork_page import fork_page
from app.domain.placement import Host, could_take, serves, slots_for, unfit
from app.domain.run_ledger import run_ledger
from app.ports import Ports

Answer = dict[str, object]

# A held fork may have run any number of commands.
MAX_COMMANDS = 200


def report(ports: Ports, project_id: str, run_id: str, *, forks: bool) -> Answer:
    """The report of a run now; `final` says whether it will change. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    return pages.report(
        run,
        ports.runs.forks(run_id),
        ports.runs.attempts(run_id),
        ports.hosts.leaving(),
        with_forks=forks,
    )


def ledger(ports: Ports, project_id: str, run_id: str) -> Answer:
    """Where every micro-dollar of a run went. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    return run_ledger(run, *ports.runs.ledger(run_id))


def summary(ports: Ports, project_id: str, run_id: str) -> Answer:
    """A run without its forks. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    counted = ports.runs.tallies((run_id,))[run_id]
    return pages.summary(run, counted, _Room.of(ports, project_id).waited_for(counted))


def list_runs(
    ports: Ports, project_id: str, labels: dict[str, str], limit: int, cursor: str | None
) -> Answer:
    """A page of runs, newest first."""
    runs = ports.runs.list(project_id, labels, limit + 1, cursor)
    room = _Room.of(ports, project_id)
    page = runs[:limit]
    more = len(runs) > limit
    counted = ports.runs.tallies(tuple(run.run_id for run in page))
    return {
        "runs": [
            pages.summary(run, counted[run.run_id], room.waited_for(counted[run.run_id]))
            for run in page
        ],
        "next_cursor": page[-1].run_id if more else None,
    }


def forks(ports: Ports, project_id: str, run_id: str) -> list[Answer]:
    """The forks of a run with their states, by index. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    leaving = ports.hosts.leaving()
    return [pages.fork_line(fork, leaving) for fork in ports.runs.forks(run.run_id)]


def fork(ports: Ports, project_id: str, fork_id: str) -> Answer:
    """One fork whole, with its machines and its newest commands. Raises NotFound."""
    found = ports.runs.fork(project_id, fork_id)
    return fork_page(
        ports.runs.get(project_id, found.run_id),
        found,
        ports.runs.machines(fork_id),
        ports.execs.of_fork(fork_id, MAX_COMMANDS),
        ports.hosts.leaving(),
    )


def build(ports: Ports, project_id: str, build_id: str) -> Answer:
    """A build with its log. Raises NotFound."""
    row = ports.builds.get(project_id, build_id)
    spent = ports.runs.tallies((row.run_id,))[row.run_id].total_micros
    return pages.build_page(row, spent)


@dataclass(frozen=True, slots=True)
class _Room:
    """What forks of a project can wait for."""

    hosts: tuple[Host, ...]
    project: Project

    @classmethod
    def of(cls, ports: Ports, project_id: str) -> _Room:
        return cls(ports.hosts.list(), ports.projects.get(project_id))

    def waited_for(self, counted: pages.Tally) -> str | None:
        first, count = counted.first_unplaced, counted.unplaced
        if first is None:
            return None
        who = "1 fork waits" if count == 1 else f"{count} forks wait"
        if self.project.free_forks == 0:
            return f"{who}: the project's limit of {self.project.max_forks} at once is reached"
        able = [host for host in self.hosts if host.takes_forks]
        if not able:
            return self._none_takes()
        if first.restore_key is not None:
            able = [host for host in able if serves(host, first.restore_key)]
        if not able:
            return f"no host that is up restores {first.restore_key}; a rebuild of the snapshot is one way out"
        if not any(could_take(first, host) for host in able):
            return f"{who}: no host can take it ({able[0].host_id}: {unfit(first, able[0])})"
        slots = sum(slots_for(first.shape, host, free=False) for host in able)
        if self.project.max_forks is not None:
            slots = min(slots, self.project.max_forks)
        return f"{who} for one of {slots} slots to become free"

    def _none_takes(self) -> str:
        """Why no host gets any fork; each that is up says what keeps it, for that may be mended."""
        shut = [host for host in self.hosts if host.alive]
        if not shut:
            return "no host is up"
        # Those that somebody has to look at come first.
        shut.sort(key=lambda host: host.quarantine is None)
        named = "; ".join(f"{host.host_id}: {host.unready}" for host in shut[:3])
        return f"no host takes forks: {named}"
