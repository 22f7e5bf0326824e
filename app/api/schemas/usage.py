"""The usage statement."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schemas.base import Answer, Instant


class UsageEstimate(Answer):
    """Arithmetic on the rate card, never a charge. `committed = used + used_by_others + idle`.

    The commitment, its use by others and what was idle are null in a row of a project or a snapshot: what nobody used
    is nobody's. `storage_usd` = volumes + snapshots of the cloud account by their GiB and time, null where the card has
    no prices of storage; snapshots are their projects', and volumes on hosts nobody's, so that the operator alone sees
    them.
    """

    committed_usd: float | None
    used_usd: float
    used_by_others_usd: float | None
    idle_usd: float | None
    overflow_usd: float
    on_demand_equivalent_usd: float
    unpriced_fork_seconds: float
    storage_usd: float | None
    volumes_usd: float | None
    snapshots_usd: float | None
    volume_gib_hours: float
    snapshot_gib_hours: float


class UsageAmounts(Answer):
    """`charged_usd` is verification, tasks and environment; `accruing_usd` is of machines that still live."""

    forks: int
    attempts: int
    fork_seconds: float
    charged_usd: float
    verification_usd: float
    tasks_usd: float
    environment_usd: float
    accruing_usd: float
    estimate: UsageEstimate


class UsageRow(UsageAmounts):
    """What it stands for is told by those of the four that were asked for; the others are null, and so is the project
    or the snapshot of what is no project's, or of none that is known.
    """

    hour: Instant | None
    day: str | None
    project: str | None
    snapshot: str | None


class Usage(Answer):
    """A statement of whole hours of UTC; rows add up to the total. Hours from `complete_until` on may still gain."""

    begin: Instant = Field(alias="from")
    until: Instant
    as_of: Instant
    complete_until: Instant
    project: str | None
    by: list[Literal["hour", "day", "project", "snapshot"]]
    rows: list[UsageRow]
    total: UsageAmounts
    card_version: str
    note: str
