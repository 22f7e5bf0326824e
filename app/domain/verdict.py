"""Whether a candidate may be stored: its own test must pass in every one of its fresh forks."""

from __future__ import annotations

import shlex

from app.domain.fork import Outcome
from app.domain.machine import CommandEnd, tail
from app.domain.run import ExecSpec, Fork
from app.domain.snapshot import BuildError, Definition
from app.errors import EnvironmentFault


def verdict(definition: Definition, forks: tuple[Fork, ...]) -> BuildError | None:
    """None when all forks that it is to pass in are there and passed; else the check that refuses the candidate, with
    what it printed.
    """
    if len(forks) < definition.repeat:
        return BuildError(
            "template_failed",
            "the template ended before the forks that verify it had joined; nothing was stored, so build it again",
            check="template",
        )
    bad = next((fork for fork in forks if fork.outcome is not Outcome.PASSED), None)
    if bad is None:
        return None
    passed = sum(fork.outcome is Outcome.PASSED for fork in forks)
    test = shown(definition.test)
    if bad.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        return _refused_by_test(bad, passed, len(forks), test)
    if bad.outcome is Outcome.ENV_FAILED and bad.failure is not None:
        return BuildError(
            "snapshot_refused",
            f"a fork of the candidate failed in its {bad.failure.phase.value}: {bad.failure.message}",
            check=bad.failure.kind.value,
            output=str(bad.failure.evidence)[:8192],
            reproduce=test,
        )
    code = "build_capped" if bad.outcome is Outcome.CAPPED else "build_cancelled"
    return BuildError(code, f"a verification fork ended {bad.outcome}", check="verification")


def failed_proof(definition: Definition, end: CommandEnd) -> BuildError | None:
    """What the own test in a fork of the stored bundle says; None when it passed."""
    if end.exit_code == 0 and not end.timed_out:
        return None
    how = "ran past its time limit" if end.timed_out else f"ended with exit code {end.exit_code}"
    return BuildError(
        "snapshot_refused",
        f"in a fork of what was stored the snapshot's own test {how}, though it passed before that",
        check="proof",
        output=(tail(end.stdout) + tail(end.stderr))[-8192:],
        reproduce=f"in a machine of this image, after its set-up: {shown(definition.test)}",
    )


def not_proved(definition: Definition, fault: EnvironmentFault) -> BuildError:
    """No fork of the stored bundle came as far as its test."""
    return BuildError(
        "snapshot_refused",
        f"no fork of what was stored could be proved ({fault.kind.value}): {fault.message}",
        check="proof",
        output=str(fault.evidence)[:8192],
        reproduce=shown(definition.test),
    )


def _refused_by_test(bad: Fork, passed: int, count: int, test: str) -> BuildError:
    how = (
        "ran past its time limit"
        if bad.outcome is Outcome.TIMED_OUT
        else f"ended with exit code {bad.result.exit_code}"
    )
    flaky = f"; it passed in {passed} of {count} forks, so it is flaky" if passed else ""
    return BuildError(
        "snapshot_refused",
        f"the snapshot's own test {how}{flaky}",
        check="flaky" if passed else "test",
        output=(bad.result.stdout_tail + bad.result.stderr_tail)[-8192:],
        reproduce=f"in a machine of this image, after its set-up: {test}",
    )


def shown(spec: ExecSpec) -> str:
    """A command as one may type it."""
    if spec.argv[:2] == ("/bin/sh", "-c") and len(spec.argv) == 3:
        return spec.argv[2]
    return shlex.join(spec.argv)
