"""A worker process of a host, and how long what it claimed stays its own when nothing is heard of it."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.money import NS_PER_SECOND

# Of a process that is silent for longer another one of its host may take over, once it has made sure that it is gone.
CLAIM_NS = 30 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Worker:
    """`claim` names it in every fenced write and in its queue; no two processes ever have the same.

    `pid`, `started_ticks` (the kernel's start time of that number) and `boot_id` tell it from whoever gets the number
    next. `heartbeat_age_ns` is by the database's clock. `revision` is the last change of the schema that
    its code knows; None where its release did not say yet.
    """

    claim: str
    host_id: str
    boot_id: str
    pid: int
    started_ticks: int
    version: str
    draining: bool = False
    heartbeat_age_ns: int = 0
    revision: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether its claims hold no longer."""
        return self.heartbeat_age_ns > CLAIM_NS
