"""A step with its snapshots pinned, and its price; shared by `quote` and `start`, which must agree."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.domain import egress
from app.domain.account import Project
from app.domain.machine import Shape
from app.domain.placement import Host, slots_for
from app.domain.quote import Concurrency, Priced, Quote, Timing, concurrency, price
from app.domain.reach import restores
from app.domain.run import RunSpec
from app.domain.snapshot import Snapshot
from app.domain.spec import targets, timing
from app.errors import BadRequest
from app.ids import new_id
from app.ports import Ports


@dataclass(frozen=True, slots=True)
class Step:
    """A spec whose snapshots have versions; `snapshots` and `timings` stand in the order of its groups."""

    spec: RunSpec
    snapshots: tuple[Snapshot, ...]
    timings: tuple[Timing, ...]


def pinned(ports: Ports, project_id: str, spec: RunSpec) -> Step:
    """Check a spec, and pin its snapshots.

    Raises NotFound(unknown_snapshot), BadRequest(count_out_of_range), Forbidden(egress_not_allowed).
    """
    _check_count(ports, spec)
    snapshots = tuple(ports.snapshots.get(project_id, group.snapshot) for group in spec.groups)
    for snapshot in snapshots:
        egress.check(targets(spec, snapshot.definition), ports.limits.egress)
    versioned = replace(
        spec,
        groups=tuple(
            replace(group, snapshot=snapshot.ref)
            for group, snapshot in zip(spec.groups, snapshots, strict=True)
        ),
    )
    timings = tuple(timing(spec, snapshot.definition) for snapshot in snapshots)
    return Step(versioned, snapshots, timings)


def priced(ports: Ports, project_id: str, step: Step) -> Quote:
    """Price a step by the card in force.

    Raises BadRequest(shape_not_priced, cap_too_small), Conflict(project_budget_exhausted).
    """
    shapes = tuple(snapshot.definition.shape for snapshot in step.snapshots)
    # A run is priced wholly at one rate: that of its dearest shape.
    rate = max(map(ports.rates.rate, shapes), key=lambda rate: rate.micros_per_hour)
    groups = tuple(
        Priced(group.snapshot, group.count, shape, limits)
        for group, shape, limits in zip(step.spec.groups, shapes, step.timings, strict=True)
    )
    project = ports.projects.get(project_id)
    return price(
        quote_id=new_id("quote"),
        groups=groups,
        cap_micros=step.spec.cap_micros,
        rate=rate,
        concurrency=_concurrency(ports.hosts.list(), step.spec.count, step.snapshots, project),
        accelerator=step.snapshots[0].restore_key.accelerator,
        expires_ns=ports.clock.wall_ns() + ports.limits.quote_life_ns,
        project=project,
    )


def _check_count(ports: Ports, spec: RunSpec) -> None:
    limit = ports.limits.max_forks_per_run
    few = not spec.groups or any(group.count < 1 for group in spec.groups)
    if few or spec.count > limit:
        raise BadRequest(
            "count_out_of_range",
            f"a run has 1 to {limit} forks (max_forks_per_run), and each group at least 1; count asks for "
            f"{'fewer' if few else 'more'}",
            field="count",
            limit=limit,
        )


def _concurrency(
    hosts: tuple[Host, ...], requested: int, snapshots: tuple[Snapshot, ...], project: Project
) -> Concurrency:
    able = [
        host
        for host in hosts
        if host.takes_forks and all(restores(host, snapshot) for snapshot in snapshots)
    ]
    # Of a step of several shapes the one that needs most room counts: a promise that holds for every mix.
    largest = Shape(
        max(snapshot.definition.shape.vcpus for snapshot in snapshots),
        max(snapshot.definition.shape.memory_mib for snapshot in snapshots),
        max(snapshot.definition.shape.disk_gib for snapshot in snapshots),
    )
    return concurrency(
        requested,
        sum(slots_for(largest, host, free=False) for host in able),
        sum(slots_for(largest, host, free=True) for host in able),
        project,
    )
