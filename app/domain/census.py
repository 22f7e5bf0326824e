"""What stands in the rows at one moment: counted for those who watch a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.fork import ForkState


class HostStanding(StrEnum):
    """One word a host, the first that holds: silent, out by its quarantine, taking nothing new, short of
    disk, or at work.
    """

    LOST = "lost"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    DISK_LOW = "disk_low"
    ALIVE = "alive"


@dataclass(frozen=True, slots=True)
class Census:
    """Live forks by state, machines, runs, hosts and their slots; and how long the oldest that waits has waited.

    An age is 0 where none waits. Forks of builds count too.
    """

    forks: Mapping[ForkState, int] = field(default_factory=dict)
    runs: int = 0
    machines: int = 0
    hosts: Mapping[HostStanding, int] = field(default_factory=dict)
    slots: int = 0
    free_slots: int = 0
    unplaced_age_ns: int = 0
    queued_exec_age_ns: int = 0
