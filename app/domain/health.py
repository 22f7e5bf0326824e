"""How a deployment stands, in numbers: what the billing worker says once a minute, and alarms are set on."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.census import Census, HostStanding
from app.domain.estimate import idle_micros_per_hour
from app.domain.money import NS_PER_SECOND, usd
from app.domain.rates import Commitment
from app.domain.scaling import Plan

# Long enough to hold the failures of a step together, short enough for an alarm to end with its cause.
LATELY_NS = 15 * 60 * NS_PER_SECOND
# A keeper kills a margin before the lease ends, so one that is later than this did not keep it.
LATE_NS = NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Recent:
    """What ended lately, and what runs now: forks that had a machine, those of them that ended `env_failed`, machines
    that were gone more than `LATE_NS` after their lease; and the vCPUs of machines whose end is not booked.
    """

    ended_forks: int = 0
    env_failed: int = 0
    late_kills: int = 0
    vcpus: int = 0


@dataclass(frozen=True, slots=True)
class Watched:
    """What the other loops of the billing worker found last. `leaks` were found lately, the price is of all that stay;
    `tick_age_ns`: since the last turn of billing that was done. Without a plan nothing is known of the fleet yet.
    """

    tick_age_ns: int
    leaks: int = 0
    leaked_micros_per_month: int = 0
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The fields of the log line `health`, which `docs/metrics.md` explains and Terraform's metric filters read.

    Numbers only. Shares are 0 where there is nothing to have a share of; what is not known is left out of the line.
    """

    tick_age_seconds: float
    queue_age_seconds: float
    exec_age_seconds: float
    ended_forks: int
    env_failed_share: float
    late_kills: int
    leaks: int
    leaks_usd_per_month: float
    idle_commitment_usd_per_hour: float
    machines: int
    slots: int
    free_slots: int
    quarantined_hosts: int
    wanted_slots: int | None
    wanted_hosts: int | None
    present_hosts: int | None
    hopeless_forks: int | None
    silent_instances: int | None


def health(
    census: Census, recent: Recent, watched: Watched, commitment: Commitment | None, wall_ns: int
) -> Health:
    """Put together what was counted at this moment."""
    plan = watched.plan
    idle = idle_micros_per_hour(commitment, wall_ns, recent.vcpus)
    return Health(
        tick_age_seconds=_seconds(watched.tick_age_ns),
        queue_age_seconds=_seconds(census.unplaced_age_ns),
        exec_age_seconds=_seconds(census.queued_exec_age_ns),
        ended_forks=recent.ended_forks,
        env_failed_share=round(recent.env_failed / max(1, recent.ended_forks), 4),
        late_kills=recent.late_kills,
        leaks=watched.leaks,
        leaks_usd_per_month=usd(watched.leaked_micros_per_month),
        idle_commitment_usd_per_hour=usd(idle),
        machines=census.machines,
        slots=census.slots,
        free_slots=census.free_slots,
        quarantined_hosts=census.hosts.get(HostStanding.QUARANTINED, 0),
        wanted_slots=plan.wanted_slots if plan else None,
        wanted_hosts=plan.wanted_hosts if plan else None,
        present_hosts=plan.present_hosts if plan else None,
        hopeless_forks=sum(count for _, count in plan.hopeless) if plan else None,
        silent_instances=len(plan.silent) if plan else None,
    )


def _seconds(duration_ns: int) -> float:
    return round(duration_ns / NS_PER_SECOND, 3)
