"""How likely what is. One frozen noun, so that an episode without faults is the same driver with nothing in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chances:
    """Probabilities: of each port call, of each bell, of each machine and second, of each host and second."""

    # of a port call of a worker
    crash: float = 0.0
    freeze: float = 0.0
    pause: float = 0.0
    away: float = 0.0
    untold: float = 0.0
    # of a bell
    bell_lost: float = 0.0
    bell_doubled: float = 0.0
    bell_late: float = 0.0
    # of a second
    outage: float = 0.0
    billing_asleep: float = 0.0
    host_down: float = 0.0
    host_cut_off: float = 0.0
    upgrade: float = 0.0
    planted: float = 0.0
    # of a machine and second
    machine: float = 0.0


NO_FAULTS = Chances()
ALL_FAULTS = Chances(
    crash=0.0006,
    freeze=0.00015,
    pause=0.01,
    away=0.002,
    untold=0.001,
    bell_lost=0.05,
    bell_doubled=0.05,
    bell_late=0.15,
    outage=0.004,
    billing_asleep=0.01,
    host_down=0.0015,
    host_cut_off=0.002,
    upgrade=0.002,
    planted=0.5,
    machine=0.006,
)
# Nothing but workers that are killed at their port calls, and bells: what is left must be as if nothing had been.
KILLS = Chances(
    crash=0.01,
    pause=0.01,
    bell_lost=0.05,
    bell_doubled=0.3,
    bell_late=0.15,
)
