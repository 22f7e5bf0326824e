"""Small nouns for tests: valid as they are, and every field can be said otherwise."""

from __future__ import annotations

from typing import Any

from app.domain.cloud import Purpose, Resource, ResourceKind
from app.domain.failure import Failure, Phase
from app.domain.ledger import equal_grants
from app.domain.machine import Accelerator, Fingerprint, RestoreKey, Shape
from app.domain.money import NS_PER_SECOND
from app.domain.quote import Concurrency, Quote
from app.domain.rates import Basis, Rate
from app.domain.run import ExecSpec, Fork, Group, Role, Run, RunKind, RunSpec, RunState
from app.domain.snapshot import Build, BuildState, Candidate, Definition, Snapshot
from app.errors import FailureKind
from app.ids import new_id

PROJECT = "default"
HOST = "host0"
SHAPE = Shape(1, 512, 4)
KEY = RestoreKey("qemu-10.0.2", "pc-q35-10.0", Accelerator.TCG, "max")
# One micro-dollar a millisecond: what a machine costs can be read off its life.
RATE = Rate(3_600_000, Basis.COMMITTED, "test-1")
MICROS_PER_SECOND = 1000
COMMAND = ExecSpec(("/bin/sh", "-c", "true"), timeout_ns=60 * NS_PER_SECOND)


def fingerprint(host_id: str = HOST, **more: Any) -> Fingerprint:
    """A host with room for 16 forks of `SHAPE`."""
    given: dict[str, Any] = {
        "host_id": host_id,
        "boot_id": f"boot-of-{host_id}",
        "accelerator": Accelerator.TCG,
        "accelerator_reason": "no /dev/kvm",
        "restore_keys": (KEY,),
        "cpu_model": "max",
        "vcpus": 8,
        "memory_mib": 16 * SHAPE.memory_mib,
        "disk_gib": 16 * SHAPE.disk_gib,
        **more,
    }
    return Fingerprint(**given)


def definition(name: str = "task-suite", **more: Any) -> Definition:
    given: dict[str, Any] = {
        "name": name,
        "image": "debian-12",
        "shape": SHAPE,
        "test": COMMAND,
        **more,
    }
    return Definition(**given)


def snapshot(name: str = "task-suite", **more: Any) -> Snapshot:
    """A version that a build has just proved; the store gives it its number."""
    given: dict[str, Any] = {
        "snapshot_id": new_id("snap"),
        "project_id": PROJECT,
        "name": name,
        "version": 0,
        "definition": definition(name),
        "bundle_id": new_id("build"),
        "restore_key": KEY,
        "boot_id": "boot-of-the-guest",
        "disk_id": "disk-of-the-guest",
        "size_bytes": 5_000_000_000,
        **more,
    }
    return Snapshot(**given)


def candidate(bundle_id: str = "build_1", **more: Any) -> Candidate:
    given: dict[str, Any] = {
        "bundle_id": bundle_id,
        "restore_key": KEY,
        "boot_id": "boot-of-the-guest",
        "disk_id": "disk-of-the-guest",
        "size_bytes": 5_000_000_000,
        "host_id": HOST,
        **more,
    }
    return Candidate(**given)


def quote(budget_micros: int = 1_000_000, **more: Any) -> Quote:
    given: dict[str, Any] = {
        "quote_id": new_id("quote"),
        "cap_micros": budget_micros,
        "worst_micros": budget_micros,
        "rate": RATE,
        "funded_ns": 60 * NS_PER_SECOND,
        "concurrency": Concurrency(requested=1, slots=16, free_now=16),
        "accelerator": Accelerator.TCG,
        "expires_ns": 0,
        **more,
    }
    return Quote(**given)


def spec(count: int = 1, **more: Any) -> RunSpec:
    given: dict[str, Any] = {
        "groups": (Group("task-suite@1", count),),
        "cap_micros": 1_000_000,
        "exec": None if "hold_ns" in more else COMMAND,
        **more,
    }
    return RunSpec(**given)


def fork(run_id: str, index: int = 0, **more: Any) -> Fork:
    given: dict[str, Any] = {
        "fork_id": new_id("fork"),
        "run_id": run_id,
        "project_id": PROJECT,
        "index": index,
        "snapshot": "task-suite@1",
        "bundle_id": "build_1",
        "restore_key": KEY,
        "shape": SHAPE,
        "grant_micros": 0,
        "worst_micros": 100 * MICROS_PER_SECOND,
        "worst_attempt_ns": 100 * NS_PER_SECOND,
        "smallest_micros": 10 * MICROS_PER_SECOND,
        **more,
    }
    return Fork(**given)


def step(
    count: int = 1,
    budget_micros: int | None = None,
    *,
    fork_fields: dict[str, Any] | None = None,
    **spec_fields: Any,
) -> tuple[Run, tuple[Fork, ...]]:
    """A run and its forks with equal grants; by default every fork's worst case (100 s) is funded."""
    run_id = new_id("run")
    forks = [fork(run_id, index, **(fork_fields or {})) for index in range(count)]
    worsts = tuple(each.worst_micros for each in forks)
    budget = sum(worsts) if budget_micros is None else budget_micros
    grants = equal_grants(budget, worsts)
    run = _run(run_id, RunKind.USER, spec(count, **spec_fields), budget, sum(grants))
    return run, tuple(
        fork(run_id, each.index, fork_id=each.fork_id, grant_micros=grant, **(fork_fields or {}))
        for each, grant in zip(forks, grants, strict=True)
    )


def build(name: str = "task-suite", budget_micros: int = 1_000_000) -> tuple[Build, Run, Fork]:
    """A build that waits, its internal run, and its template, which holds half of the budget."""
    run_id, grant = new_id("run"), budget_micros // 2
    template = fork(
        run_id,
        -1,
        role=Role.TEMPLATE,
        restore_key=None,
        snapshot=name,
        grant_micros=grant,
        worst_micros=budget_micros,
    )
    run = _run(run_id, RunKind.BUILD, spec(environment_retries=0), budget_micros, grant)
    made = Build(
        build_id=new_id("build"),
        project_id=PROJECT,
        run_id=run_id,
        definition=definition(name),
        state=BuildState.QUEUED,
        template_fork_id=template.fork_id,
    )
    return made, run, template


def volume(token: str, **more: Any) -> Resource:
    """A volume that is about to be asked for, to read a bundle from."""
    plain: dict[str, Any] = {
        "token": token,
        "kind": ResourceKind.VOLUME,
        "purpose": Purpose.READ,
        "bundle_id": "build_1",
        "size_gib": 2,
        "host_id": HOST,
        "zone": "zone-a",
    }
    return Resource(**plain | more)


def stored(token: str, **more: Any) -> Resource:
    """A snapshot that is about to be asked for, to keep a bundle in."""
    kept = {"kind": ResourceKind.SNAPSHOT, "purpose": Purpose.KEEP, "host_id": None, "zone": None}
    return volume(token, **kept | more)


def failed(kind: FailureKind = FailureKind.GUEST_LOST, **more: Any) -> Failure:
    given: dict[str, Any] = {
        "kind": kind,
        "phase": Phase.EXEC,
        "message": "its process died",
        "retryable": True,
        "task_may_have_caused": False,
        "evidence": {"signal": 9},
        **more,
    }
    return Failure(**given)


def _run(run_id: str, kind: RunKind, spec: RunSpec, budget_micros: int, granted: int) -> Run:
    return Run(
        run_id=run_id,
        project_id=PROJECT,
        kind=kind,
        state=RunState.ACTIVE,
        spec=spec,
        quote=quote(budget_micros),
        budget_micros=budget_micros,
        pool_micros=budget_micros - granted,
        granted_micros=granted,
        charged_micros=0,
        created_ns=0,
    )
