"""On the host: boot a template, set it up, warm it, freeze it."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.build_price import divide
from app.domain.failure import Phase
from app.domain.fork import EndReason
from app.domain.ledger import START_WINDOW_NS
from app.domain.machine import Bundle, CommandEnd, Deadline, DeathCause, tail
from app.domain.run import Claimed, ExecSpec, Fork
from app.domain.snapshot import Build, BuildError, BuildState, Candidate
from app.domain.spec import command
from app.domain.verdict import shown
from app.errors import EnvironmentFault, Unavailable
from app.flow._claimed import (
    close,
    fail,
    generation_of,
    identity_of,
    late_results_dropped,
    patiently,
    still_held,
    unsaved,
)
from app.ids import new_id
from app.ports import HostPorts, Ports

BOOT_TIMEOUT_S = 150.0
BARRIER_TIMEOUT_S = 60.0
CHANNEL_TIMEOUT_S = 60.0
# The guest ends a command at its limit; beyond this it does not answer any more.
ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Unbuildable(Exception):
    """A step of the definition did not do what it must; the caller's to mend."""

    error: BuildError


def advance(ports: Ports, host: HostPorts, build_id: str) -> None:
    """Make the candidate of a build whose template is placed on this host. Twice is safe: the template is
    claimed once.
    """
    build = ports.builds.find(build_id)
    if build is None or build.state.final:
        return
    opened = ports.clock.boot_ns()
    claimed = ports.attempts.open(
        host.host_id, host.claim, ports.clock.boot_id(), opened, build.template_fork_id
    )
    if claimed is None:
        return
    with late_results_dropped():
        _build(ports, host, claimed, build)


def _build(ports: Ports, host: HostPorts, claimed: Claimed, build: Build) -> None:
    try:
        bundle, made_of = _make(ports, host, claimed, build)
    except Unbuildable as unbuildable:
        _give_up(ports, host, claimed, build, unbuildable.error)
    except EnvironmentFault as fault:
        _broken(ports, host, claimed, build, fault)
    except Unavailable as away:
        # Nobody could go on from the middle of a build, and its machine would live to the end of its lease.
        _broken(ports, host, claimed, build, unsaved(away))
    else:
        _frozen(ports, host, claimed, build, bundle, made_of)


def _make(
    ports: Ports, host: HostPorts, claimed: Claimed, build: Build
) -> tuple[Bundle, dict[str, str]]:
    name, attempt = claimed.attempt.attempt_id, claimed.attempt
    _advance(ports, build, BuildState.BUILDING)
    _say(ports, build, "boot", f"booting {build.definition.image}")
    start_by_ns = attempt.opened_boot_ns + START_WINDOW_NS
    deadline = Deadline(attempt.deadline_boot_ns, start_by_ns, attempt.epoch)
    image = ports.images.boot_image(build.definition.image)
    host.machines.boot(name, image, build.definition.shape, deadline)
    host.guest.attach(name, booted_within_s=BOOT_TIMEOUT_S)
    host.guest.wake(name, identity_of(ports, claimed, "template"), BARRIER_TIMEOUT_S)
    host.guest.open(name, CHANNEL_TIMEOUT_S)
    host.guest.allow(name, build.definition.build_egress)
    _unpack(ports, host, name, build)
    for step, specs in (("setup", build.definition.setup), ("warm", build.definition.warm)):
        for number, spec in enumerate(specs):
            _run_step(ports, host, claimed, build, step, number, spec)
    _say(ports, build, "freeze", "freezing memory, device state and disk")
    boot_id = host.guest.quiesce(name)
    host.guest.close(name)
    bundle = host.machines.freeze(name, host.bundles.staging(build.build_id), boot_id)
    host.bundles.watch(build.build_id)
    return bundle, dict(image.made_of)


def _unpack(ports: Ports, host: HostPorts, name: str, build: Build) -> None:
    for file in build.definition.files:
        _say(ports, build, "files", f"unpacking into {file.guest_path}")
        with ports.blobs.open(file.sha256) as tar:
            host.guest.unpack(name, tar, file.guest_path)


def _run_step(
    ports: Ports,
    host: HostPorts,
    claimed: Claimed,
    build: Build,
    step: str,
    number: int,
    spec: ExecSpec,
) -> None:
    name = claimed.attempt.attempt_id
    exec_id = f"{step}{number}_{name}"
    _say(ports, build, step, f"$ {shown(spec)}")
    allowed = build.definition.build_egress
    try:
        host.guest.start(name, exec_id, command(claimed, spec, generation_of(claimed), allowed))
        end = host.guest.end(name, exec_id, wait_s=spec.timeout_ns / 1e9 + ANSWER_S)
    except EnvironmentFault as fault:
        if fault.kind.value != "exec_not_started":
            raise
        raise Unbuildable(_step_error(step, spec, None, fault.message)) from fault
    output = tail(end.stdout) + tail(end.stderr) if end else ""
    if output.strip():
        _say(ports, build, step, output)
    if end is None or end.timed_out or end.exit_code != 0:
        raise Unbuildable(_step_error(step, spec, end, output))


def _step_error(step: str, spec: ExecSpec, end: CommandEnd | None, output: str) -> BuildError:
    if end is None:
        how = "did not start" if output else "did not answer"
    elif end.timed_out:
        how = f"ran past its limit of {spec.timeout_ns / 1e9:g} s"
    else:
        how = f"ended with exit code {end.exit_code}"
    return BuildError(
        f"{step}_failed",
        f"a {step} command {how}: {shown(spec)}",
        check=step,
        output=output,
        reproduce=f"in a machine of this image, after the steps before it: {shown(spec)}",
    )


def _give_up(
    ports: Ports, host: HostPorts, claimed: Claimed, build: Build, error: BuildError
) -> None:
    still_held(ports, claimed)
    _refuse(ports, build, error)
    close(ports, host, claimed, EndReason.COMMAND_FAILED)


def _broken(
    ports: Ports, host: HostPorts, claimed: Claimed, build: Build, fault: EnvironmentFault
) -> None:
    """The machine failed under the build: for want of money, or by a fault of the environment, or its image."""
    name = claimed.attempt.attempt_id
    still_held(ports, claimed)
    console = host.machines.console_tail(name)
    death = host.machines.kill(name)
    host.bundles.delete(build.build_id)
    if death is not None and death.cause is DeathCause.DEADLINE:
        error = BuildError("build_capped", "the build's time or spend_cap ran out", check="cap")
        _refuse(ports, build, error)
        close(ports, host, claimed, EndReason.RUN_EXHAUSTED)
        return
    error = BuildError(
        "template_failed",
        f"the template failed ({fault.kind.value}): {fault.message}",
        check=fault.kind.value,
        output=console,
    )
    _refuse(ports, build, error)
    fail(ports, host, claimed, fault, Phase.RESTORE)


def _frozen(
    ports: Ports,
    host: HostPorts,
    claimed: Claimed,
    build: Build,
    bundle: Bundle,
    made_of: dict[str, str],
) -> None:
    still_held(ports, claimed)
    candidate = Candidate(
        bundle_id=bundle.bundle_id,
        restore_key=bundle.restore_key,
        boot_id=bundle.boot_id,
        disk_id=bundle.disk_id,
        size_bytes=_size(bundle),
        host_id=host.host_id,
        made_of=made_of,
    )
    patiently(ports, lambda: ports.builds.frozen(build.build_id, candidate))
    _advance(ports, build, BuildState.VERIFYING)
    forks = _verification_forks(ports, claimed, build, bundle)
    _say(ports, build, "verify", f"its test must pass in {len(forks)} fresh forks")
    close(ports, host, claimed, EndReason.COMMAND_PASSED, more_forks=forks)


def _say(ports: Ports, build: Build, step: str, text: str) -> None:
    patiently(ports, lambda: ports.builds.say(build.build_id, step, text))


def _advance(ports: Ports, build: Build, state: BuildState) -> None:
    patiently(ports, lambda: ports.builds.advance(build.build_id, state))


def _refuse(ports: Ports, build: Build, error: BuildError) -> None:
    patiently(ports, lambda: ports.builds.refuse(build.build_id, BuildState.FAILED, error))


def _verification_forks(
    ports: Ports, claimed: Claimed, build: Build, bundle: Bundle
) -> tuple[Fork, ...]:
    rate = claimed.run.quote.rate
    priced = divide(build.definition, rate, claimed.run.budget_micros)
    return tuple(
        Fork(
            fork_id=new_id("fork"),
            run_id=claimed.run.run_id,
            project_id=claimed.run.project_id,
            index=index,
            snapshot=build.definition.name,
            bundle_id=bundle.bundle_id,
            restore_key=bundle.restore_key,
            shape=build.definition.shape,
            grant_micros=priced.fork_grant_micros,
            worst_micros=priced.fork_worst_micros,
            worst_attempt_ns=priced.timing.attempt_ns,
            smallest_micros=priced.fork_smallest_micros,
            queued_ns=ports.clock.wall_ns(),
        )
        for index in range(build.definition.repeat)
    )


def _size(bundle: Bundle) -> int:
    files = (bundle.memory, bundle.state, bundle.root_disk, bundle.tools_disk)
    return sum(path.stat().st_blocks * 512 for path in files if path.exists())
