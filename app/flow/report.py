"""What a caller may read of a run, a fork or a build at any time."""

from __future__ import annotations

from app.domain import report as pages
from app.domain.fork import ForkState
from app.domain.placement import Host, serves, slots_for
from app.domain.run import Fork, Run
from app.ports import Ports

Answer = dict[str, object]


def report(ports: Ports, project_id: str, run_id: str, *, forks: bool) -> Answer:
    """The report of a run now; `final` says whether it will change. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    return pages.report(
        run, ports.runs.forks(run_id), ports.runs.attempts(run_id), with_forks=forks
    )


def summary(ports: Ports, project_id: str, run_id: str) -> Answer:
    """A run without its forks. Raises NotFound."""
    return _summary(ports, ports.runs.get(project_id, run_id), ports.hosts.list())


def list_runs(
    ports: Ports, project_id: str, labels: dict[str, str], limit: int, cursor: str | None
) -> Answer:
    """A page of runs, newest first."""
    runs = ports.runs.list(project_id, labels, limit + 1, cursor)
    hosts = ports.hosts.list()
    page = runs[:limit]
    more = len(runs) > limit
    return {
        "runs": [_summary(ports, run, hosts) for run in page],
        "next_cursor": page[-1].run_id if more else None,
    }


def forks(ports: Ports, project_id: str, run_id: str) -> list[Answer]:
    """The forks of a run with their states, by index. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    return [pages.fork_line(fork) for fork in ports.runs.forks(run.run_id)]


def fork(ports: Ports, project_id: str, fork_id: str) -> Answer:
    """One fork. Raises NotFound."""
    return pages.fork_line(ports.runs.fork(project_id, fork_id))


def build(ports: Ports, project_id: str, build_id: str) -> Answer:
    """A build with its log. Raises NotFound."""
    row = ports.builds.get(project_id, build_id)
    spent = sum(line.total_micros for line in ports.runs.attempts(row.run_id))
    return pages.build_page(row, spent)


def _summary(ports: Ports, run: Run, hosts: tuple[Host, ...]) -> Answer:
    rows = ports.runs.forks(run.run_id)
    attempts = ports.runs.attempts(run.run_id)
    return pages.summary(run, rows, attempts, _waiting_for(rows, hosts))


def _waiting_for(rows: tuple[Fork, ...], hosts: tuple[Host, ...]) -> str | None:
    queued = [row for row in rows if row.state is ForkState.QUEUED and row.host_id is None]
    if not queued:
        return None
    able = [host for host in hosts if host.alive and not host.draining]
    if not able:
        return "no host is up"
    first = queued[0]
    if first.restore_key is not None:
        able = [host for host in able if serves(host, str(first.restore_key))]
    if not able:
        return f"no host that is up restores {first.restore_key}"
    slots = sum(slots_for(first.shape, host, free=False) for host in able)
    return f"{len(queued)} forks wait for one of {slots} slots to become free"
