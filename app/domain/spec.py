"""From a spec to what it stands for: its digest, its limits, the environment of its commands."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from app.domain.machine import Command
from app.domain.quote import Timing
from app.domain.run import Claimed, ExecSpec, RunSpec
from app.domain.snapshot import Definition

GUEST_PROXY = "http://127.0.0.1:3128"


def digest(spec: RunSpec) -> str:
    """sha256 of everything that was asked for, snapshot versions pinned: a quote holds for exactly this."""
    return hashlib.sha256(repr(spec).encode()).hexdigest()


def with_open_command(spec: RunSpec) -> RunSpec:
    """The same step with its command not said, only its limit: what a quote may be asked for before it is known."""
    if spec.exec is None:
        return spec
    return replace(spec, exec=ExecSpec(argv=(), timeout_ns=spec.exec.timeout_ns))


def timing(spec: RunSpec, definition: Definition) -> Timing:
    """The limits that bound one fork of this spec on this snapshot."""
    test_ns = definition.test.timeout_ns if spec.verify_each else 0
    command_ns = spec.exec.timeout_ns if spec.exec else spec.hold_ns or 0
    return Timing(
        command_ns=command_ns,
        grade_ns=spec.grade.timeout_ns if spec.grade else 0,
        test_ns=test_ns + sum(hook.timeout_ns for hook in definition.on_fork),
        environment_retries=spec.environment_retries,
        rerun_started=spec.rerun_started,
    )


def targets(spec: RunSpec, definition: Definition) -> tuple[str, ...]:
    """What a fork may reach: the snapshot's egress and the run's."""
    return tuple(dict.fromkeys((*definition.egress, *spec.egress)))


def command(claimed: Claimed, spec: ExecSpec, generation: str, allowed: tuple[str, ...]) -> Command:
    """A command with the environment that every command in a fork sees; ours cannot be overridden."""
    ours = {
        "PROMIGENCE_RUN_ID": claimed.run.run_id,
        "PROMIGENCE_FORK_ID": claimed.fork.fork_id,
        "PROMIGENCE_FORK_INDEX": str(claimed.fork.index),
        "PROMIGENCE_FORK_COUNT": str(claimed.run.spec.count),
        "PROMIGENCE_KEY": claimed.fork.key or "",
        "PROMIGENCE_GENERATION": generation,
    }
    return _command(spec, allowed, {**dict(claimed.fork.env), **dict(spec.env)}, ours)


def trial_command(spec: ExecSpec, name: str, generation: str, allowed: tuple[str, ...]) -> Command:
    """The same in a machine of our own, which is of no run: it is its only fork."""
    ours = {
        "PROMIGENCE_RUN_ID": "",
        "PROMIGENCE_FORK_ID": name,
        "PROMIGENCE_FORK_INDEX": "0",
        "PROMIGENCE_FORK_COUNT": "1",
        "PROMIGENCE_KEY": "",
        "PROMIGENCE_GENERATION": generation,
    }
    return _command(spec, allowed, dict(spec.env), ours)


def _command(
    spec: ExecSpec, allowed: tuple[str, ...], theirs: dict[str, str], ours: dict[str, str]
) -> Command:
    env = {**theirs, **_proxies(allowed), **ours}
    return Command(
        argv=spec.argv,
        timeout_ns=spec.timeout_ns,
        cwd=spec.cwd,
        env=tuple(sorted(env.items())),
        user=spec.user,
    )


def _proxies(allowed: tuple[str, ...]) -> dict[str, str]:
    if not allowed:
        return {}
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return dict.fromkeys(names, GUEST_PROXY)
