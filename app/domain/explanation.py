"""Why a fork is where it is, or why it waits: what its events tell of each choice, and what stands against it now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.account import Project
from app.domain.event import Event
from app.domain.fork import ForkState
from app.domain.instant import instant
from app.domain.placement import Host, Waiting, could_take, only_avoided, unfit
from app.domain.run import Fork


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of one fork's placement: `ahead` forks wait for a place before it, `events` are those of its places."""

    fork: Fork
    needs: Waiting
    project: Project
    ahead: int
    events: tuple[Event, ...]

    @property
    def waits(self) -> bool:
        """Whether it has no place yet, and is to get one."""
        fork = self.fork
        return fork.state is ForkState.QUEUED and fork.host_id is None and fork.stop_asked is None


def explanation(case: Case, hosts: Iterable[Host]) -> dict[str, object]:
    """The JSON shape; `waits` is null unless the fork waits for a place now."""
    there = tuple(hosts)
    fork, needs = case.fork, case.needs
    return {
        "fork_id": fork.fork_id,
        "run_id": fork.run_id,
        "project": fork.project_id,
        "state": fork.state.value,
        "host": fork.host_id,
        "now": _now(case, there),
        "needs": {
            "snapshot": fork.snapshot,
            "bundle_id": needs.bundle_id,
            "restore_key": needs.restore_key,
            "vcpus": needs.shape.vcpus,
            "memory_mib": needs.shape.memory_mib,
            "disk_gib": needs.shape.disk_gib,
            "only_on": needs.held_by,
            "not_again_on": list(needs.avoid_hosts),
        },
        "waits": _waits(case, there) if case.waits else None,
        "history": [_told(event) for event in case.events],
    }


def _waits(case: Case, hosts: tuple[Host, ...]) -> dict[str, object]:
    again = only_avoided(case.needs, hosts)
    return {
        "since": instant(case.fork.queued_ns),
        "ahead": case.ahead,
        "project_max_forks": case.project.max_forks,
        "project_live_forks": case.project.live_forks,
        "hosts": [
            {
                "host": host.host_id,
                "why_not": unfit(case.needs, host, again=again),
                "if_it_were_empty": could_take(case.needs, host),
            }
            for host in hosts
        ],
    }


def _now(case: Case, hosts: tuple[Host, ...]) -> str:
    """One sentence."""
    fork = case.fork
    if fork.state is ForkState.ENDED:
        return f"it has ended: {fork.reason.value if fork.reason else ''}"
    if fork.stop_asked is not None:
        return f"it is asked to stop: {fork.stop_asked.value}"
    if fork.state is not ForkState.QUEUED:
        return f"it is {fork.state.value} on {fork.host_id}"
    if fork.host_id is not None:
        return _placed(case, hosts)
    return _why_waiting(case, hosts)


def _placed(case: Case, hosts: tuple[Host, ...]) -> str:
    named = case.fork.host_id
    there = next((host for host in hosts if host.host_id == named), None)
    if there is None or not there.alive:
        return f"it has its place on {named}, which is silent: it is about to be placed elsewhere"
    warm = case.needs.restore_key is None or case.needs.bundle_id in there.mounted
    if warm:
        return f"it has its place on {named}, and is next when fewer others come up there"
    return f"it has its place on {named}, which mounts its snapshot first"


def _why_waiting(case: Case, hosts: tuple[Host, ...]) -> str:
    if case.project.free_forks is not None and case.project.free_forks <= 0:
        return f"its project's limit of {case.project.max_forks} forks at once is reached"
    if not hosts:
        return "no host was heard of in the last day"
    again = only_avoided(case.needs, hosts)
    if any(unfit(case.needs, host, again=again) is None for host in hosts):
        return f"a host has room: it is placed in its turn, {case.ahead} forks before it"
    able = [host for host in hosts if could_take(case.needs, host)]
    if able:
        return f"{len(able)} of {len(hosts)} hosts could take it, and none has room now"
    return "no host could take it, were it empty"


def _told(event: Event) -> dict[str, object]:
    return {
        "at": instant(event.at_ns),
        "what": event.kind.value,
        "host": event.host_id,
        "reason": event.reason,
        "against": event.data.get("against", []),
    }
