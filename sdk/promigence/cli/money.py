"""Money as a person reads it."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from promigence.cli.session import exact_usd, moment, table
from promigence.types import LedgerMove, MachineLife, RunLedger


def ledger(told: RunLedger) -> list[RenderableType]:
    """The budget as it is split now, its moves, and the machines that it paid for; in USD."""
    split = (
        f"charged {exact_usd(told['charged_usd'])}, granted {exact_usd(told['granted_usd'])}, "
        f"pool {exact_usd(told['pool_usd'])}"
    )
    return [
        Text.assemble(
            (told["run_id"], "bold"), f"  budget {exact_usd(told['budget_usd'])}: {split}"
        ),
        table(
            "at",
            "move",
            "of",
            "pool",
            "granted",
            "charged",
            rows=[_move(move) for move in told["moves"]],
        ),
        table(
            "machine",
            "fork",
            "#",
            "host",
            "lease s",
            "lived s",
            "late s",
            "verification",
            "tasks",
            "environment",
            rows=[_life(life) for life in told["attempts"]],
        ),
    ]


def _move(move: LedgerMove) -> tuple[object, ...]:
    of = move["attempt_id"] or move["fork_id"] or "run"
    gained = (move["pool_usd"], move["granted_usd"], move["charged_usd"])
    return (
        moment(move["at"]),
        move["kind"],
        of,
        *(f"{each:+.6f}" if each else "" for each in gained),
    )


def _life(life: MachineLife) -> tuple[object, ...]:
    parts = (life["verification_usd"], life["tasks_usd"], life["environment_usd"])
    return (
        life["attempt_id"],
        life["fork_id"],
        life["attempt"],
        life["host"],
        life["lease_seconds"],
        life["seconds"],
        life["late_kill_seconds"] or "",
        *(f"{each:.6f}" for each in parts),
    )
