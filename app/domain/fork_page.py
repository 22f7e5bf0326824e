"""One fork whole, as whoever looks into it reads it: its entry of the report, its machines, its commands."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND, usd
from app.domain.report import Leaving, fork_entry, fork_line
from app.domain.run import Attempt, Exec, ExecSpec, Fork, Run
from app.domain.run_ledger import Life


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that a fork had. `left_ns` is what is left of its lease, None when it has ended."""

    attempt: Attempt
    life: Life
    ready_ns: int | None
    left_ns: int | None

    @property
    def cost_micros(self) -> int:
        life = self.life
        return life.verification_micros + life.tasks_micros + life.environment_micros


def fork_page(
    run: Run,
    fork: Fork,
    machines: tuple[Machine, ...],
    commands: tuple[Exec, ...],
    leaving: Leaving,
) -> dict[str, object]:
    """The JSON shape; `outcome` is null until the fork has ended."""
    cost_micros = sum(machine.cost_micros for machine in machines)
    return {
        **fork_entry(fork, cost_micros),
        **fork_line(fork, leaving),
        "env": dict(fork.env),
        "egress": list(run.spec.egress),
        "machines": [_machine(machine) for machine in machines],
        "commands": [_command(command) for command in commands],
    }


def _machine(machine: Machine) -> dict[str, object]:
    attempt, life = machine.attempt, machine.life
    return {
        "attempt_id": attempt.attempt_id,
        "attempt": attempt.number,
        "host": attempt.host_id,
        "opened_at": instant(life.opened_ns),
        "ready_at": _instant(machine.ready_ns),
        "ended_at": _instant(life.closed_ns),
        "lease_seconds": _seconds(life.lease_ns),
        "lease_left_seconds": None if machine.left_ns is None else _seconds(machine.left_ns),
        "cost_usd": usd(machine.cost_micros),
        "failure": attempt.failure.as_dict() if attempt.failure else None,
    }


def _command(row: Exec) -> dict[str, object]:
    result = row.result
    ended = result is not None and result.error is None
    return {
        "exec_id": row.name or row.exec_id,
        "attempt_id": row.attempt_id,
        "purpose": row.purpose.value,
        "state": row.state.value,
        "command": None if row.spec is None else command_of(row.spec),
        "path": None if row.file is None else row.file.guest_path,
        "exit_code": result.exit_code if ended and result else None,
        "signal": result.signal if ended and result else None,
        "timed_out": bool(result and result.timed_out),
        "seconds": _seconds(result.duration_ns) if ended and result else None,
        "truncated": bool(result and result.truncated),
    }


def command_of(spec: ExecSpec) -> dict[str, object]:
    """A command in the shape in which it is asked for, so that it can be asked for again."""
    shell = spec.argv[:2] == ("/bin/sh", "-c") and len(spec.argv) == 3
    told: dict[str, object] = {"sh": spec.argv[2]} if shell else {"argv": list(spec.argv)}
    if spec.cwd is not None:
        told["cwd"] = spec.cwd
    if spec.env:
        told["env"] = dict(spec.env)
    if spec.user is not None:
        told["user"] = spec.user
    return {**told, "timeout_seconds": spec.timeout_ns / NS_PER_SECOND}


def _instant(at_ns: int | None) -> str | None:
    return None if at_ns is None else instant(at_ns)


def _seconds(duration_ns: int) -> float:
    return round(duration_ns / NS_PER_SECOND, 3)
