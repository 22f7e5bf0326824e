"""A build's verification forks have ended: store the candidate, or refuse it and keep nothing of it."""

from __future__ import annotations

from app.domain.instant import instant
from app.domain.run import Fork, RunState
from app.domain.snapshot import Build, BuildError, BuildState, Candidate, Snapshot
from app.domain.verdict import shown, verdict
from app.errors import EnvironmentFault
from app.ids import new_id
from app.ports import HostPorts, Ports


def verify(ports: Ports, host: HostPorts, build_id: str) -> None:
    """Settle a build whose run has ended. Twice is safe. Runs on the host that holds the candidate."""
    build = ports.builds.find(build_id)
    if build is None or build.state.final:
        return
    run = ports.runs.get(build.project_id, build.run_id)
    if run.state is not RunState.ENDED:
        return
    error = _without_candidate(build) or verdict(build.definition, ports.runs.forks(run.run_id))
    if error is not None:
        _refuse(ports, host, build, error)
        return
    _accept(ports, host, build, ports.runs.forks(run.run_id))


def _without_candidate(build: Build) -> BuildError | None:
    if build.candidate is not None:
        return None
    return BuildError(
        "template_failed", "the template ended before it could be frozen", check="template"
    )


def _refuse(ports: Ports, host: HostPorts, build: Build, error: BuildError) -> None:
    refused = error.code == "snapshot_refused"
    state = BuildState.REFUSED if refused else BuildState.FAILED
    if ports.builds.refuse(build.build_id, state, error):
        ports.builds.say(build.build_id, "refused", error.message)
    host.bundles.delete(build.build_id)


def _accept(ports: Ports, host: HostPorts, build: Build, forks: tuple[Fork, ...]) -> None:
    candidate = build.candidate
    if candidate is None:
        return
    working_set_bytes = host.bundles.record(build.build_id)
    try:
        bundle = host.bundles.store(build.build_id)
    except EnvironmentFault as fault:
        error = BuildError(fault.kind.value, f"storing failed: {fault.message}", check="store")
        _refuse(ports, host, build, error)
        return
    definition = build.definition
    snapshot = ports.builds.accept(
        build.build_id,
        Snapshot(
            snapshot_id=new_id("snap"),
            project_id=build.project_id,
            name=definition.name,
            version=0,  # the store gives the next one
            definition=definition,
            bundle_id=bundle.bundle_id,
            restore_key=candidate.restore_key,
            boot_id=candidate.boot_id,
            disk_id=candidate.disk_id,
            size_bytes=candidate.size_bytes,
            evidence=_evidence(forks),
            provenance={
                **_provenance(ports, build, candidate),
                "working_set_bytes": working_set_bytes,
            },
            created_ns=ports.clock.wall_ns(),
        ),
    )
    ports.builds.say(build.build_id, "verified", f"stored as {snapshot.ref}")


def _evidence(forks: tuple[Fork, ...]) -> dict[str, object]:
    return {
        "test": [
            {
                "fork_id": fork.fork_id,
                "exit_code": fork.result.exit_code,
                "seconds": fork.result.duration_ns / 1e9,
                "stdout_tail": fork.result.stdout_tail,
            }
            for fork in forks
        ],
        "checks": [check.as_dict() for check in forks[0].checks],
    }


def _provenance(ports: Ports, build: Build, candidate: Candidate) -> dict[str, object]:
    definition, key = build.definition, str(candidate.restore_key)
    origin = build.origin
    return {
        "build_id": build.build_id,
        "image": definition.image,
        "made_of": candidate.made_of,
        "setup": [shown(spec) for spec in definition.setup],
        "warm": [shown(spec) for spec in definition.warm],
        "files": {file.guest_path: file.sha256 for file in definition.files},
        "build_egress": list(definition.build_egress),
        "restore_key": key,
        "rebuilt_from": None if origin is None else origin.compared(key, candidate.made_of),
        "verified_at": instant(ports.clock.wall_ns()),
    }
