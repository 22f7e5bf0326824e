"""Why a fork is where it is, or why it waits."""

from __future__ import annotations

from app.domain.explanation import explanation
from app.ports import Ports


def explain(ports: Ports, fork_id: str) -> dict[str, object]:
    """For operators, whatever project it is of. Raises NotFound(unknown_fork)."""
    return explanation(ports.hosts.case(fork_id), ports.hosts.list())
