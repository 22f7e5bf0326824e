"""A build's verification forks have ended: store the candidate and prove what was stored, or keep nothing of it."""

from __future__ import annotations

from app.domain.instant import instant
from app.domain.machine import Bundle, tail
from app.domain.run import Fork, RunState
from app.domain.snapshot import Build, BuildError, BuildState, Candidate, Snapshot
from app.domain.verdict import failed_proof, not_proved, shown, verdict
from app.errors import EnvironmentFault, FailureKind
from app.flow._heartbeat import beat
from app.flow._trial import brought_up, run
from app.ids import new_id
from app.ports import HostPorts, Ports

PROOF_TRIES = 2
# The step of a build that waits: what came before it is done and was said.
WAITS = "wait"
# Why storing came to nothing that says nothing of the candidate: tried again, as long as a build may be unsettled.
PASSES = frozenset({"cloud_away"})


class Refused(Exception):
    """The candidate could not be stored, or what was stored is not what it was."""

    def __init__(self, error: BuildError) -> None:
        super().__init__(error.message)
        self.error = error


class Unsettled(Exception):
    """No room on this host for the proof, or the cloud is away; the bell rings again."""


def verify(ports: Ports, host: HostPorts, build_id: str) -> None:
    """Settle a build whose run has ended. Twice is safe, and after a crash the next call goes on. Runs on the host that
    holds the candidate.

    Where bundles are stored elsewhere this takes minutes: storing, restoring from there, and the proof that one more
    fork, of what was stored, passes the snapshot's own test. A call that finds no room for that one, or no cloud to
    store in, settles nothing.
    """
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
    proof: dict[str, object] = {}
    try:
        bundle = _stored(ports, host, build, candidate)
        if _is_settled(ports, build):
            return
        if host.bundles.stores_elsewhere:
            proof = {"proof": _proved(ports, host, build, bundle)}
    except Unsettled:
        return
    except Refused as refused:
        _refuse(ports, host, build, refused.error)
        return
    definition = build.definition
    # Before there is a version: whoever asks for it in the same moment is told that this host has it.
    beat(ports, host)
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
            evidence={**_evidence(forks), **proof},
            provenance={
                **_provenance(ports, build, candidate),
                "working_set_bytes": working_set_bytes,
            },
            created_ns=ports.clock.wall_ns(),
        ),
    )
    ports.builds.say(build.build_id, "verified", f"stored as {snapshot.ref}")


def _is_settled(ports: Ports, build: Build) -> bool:
    """Whether another process of this host, which drains, has come to the end of it meanwhile."""
    now = ports.builds.find(build.build_id)
    return now is None or now.state.final


def _stored(ports: Ports, host: HostPorts, build: Build, candidate: Candidate) -> Bundle:
    if not host.bundles.stores_elsewhere or build.step == WAITS:
        return _store(ports, host, build)
    ports.builds.say(build.build_id, "store", f"storing {candidate.size_bytes >> 20} MiB")
    began_ns = ports.clock.boot_ns()
    bundle = _store(ports, host, build)
    took = _seconds(ports, began_ns)
    done = f"stored, and restored from there with every chunk checked, in {took} s"
    ports.builds.say(build.build_id, "store", done)
    return bundle


def _store(ports: Ports, host: HostPorts, build: Build) -> Bundle:
    try:
        return host.bundles.store(build.build_id)
    except EnvironmentFault as fault:
        if fault.evidence.get("reason") in PASSES:
            _wait(ports, build, f"it could not be stored yet: {fault.message}")
            raise Unsettled from fault
        message = f"storing failed: {fault.message}"
        raise Refused(BuildError(fault.kind.value, message, check="store")) from fault


def _proved(ports: Ports, host: HostPorts, build: Build, bundle: Bundle) -> dict[str, object]:
    """What was stored gives forks that pass the snapshot's own test; what one more of them showed.

    A fault of the environment is tried once more: it may be this host's at that moment. Raises Refused, Unsettled.
    """
    for left in reversed(range(PROOF_TRIES)):
        try:
            return _proof(ports, host, build, bundle)
        except EnvironmentFault as fault:
            if fault.kind is FailureKind.NO_CAPACITY:
                _wait(ports, build, f"the proof waits: {fault.message}")
                raise Unsettled from fault
            ports.builds.say(build.build_id, "prove", f"{fault.kind.value}: {fault.message}")
            if not left:
                raise Refused(not_proved(build.definition, fault)) from fault
    raise AssertionError("one try returned or raised")


def _proof(ports: Ports, host: HostPorts, build: Build, bundle: Bundle) -> dict[str, object]:
    definition = build.definition
    began_ns = ports.clock.boot_ns()
    with brought_up(
        ports,
        host,
        bundle,
        hooks=definition.on_fork,
        allowed=definition.egress,
        runs_ns=definition.test.timeout_ns,
    ) as trial:
        up_s = _seconds(ports, began_ns)
        ports.builds.say(build.build_id, "prove", f"a fork of what was stored came up in {up_s} s")
        end = run(host, trial, "test", definition.test)
    error = failed_proof(definition, end)
    if error is not None:
        raise Refused(error)
    test_s = round(end.duration_ns / 1e9, 3)
    ports.builds.say(build.build_id, "prove", f"its test passed in {test_s} s")
    return {"came_up_seconds": up_s, "test_seconds": test_s, "stdout_tail": tail(end.stdout)}


def _wait(ports: Ports, build: Build, why: str) -> None:
    """Its bell rings again in a second; that it waits is said once."""
    if build.step != WAITS:
        ports.builds.say(build.build_id, WAITS, why)


def _seconds(ports: Ports, began_ns: int) -> float:
    return round((ports.clock.boot_ns() - began_ns) / 1e9, 3)


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
