"""The usage statement: what was charged and, apart from it, what the cloud is estimated to have cost."""

from __future__ import annotations

from typing import Literal, TypedDict

By = Literal["hour", "day", "project", "snapshot"]


class UsageEstimate(TypedDict):
    """Arithmetic on the rate card, never a charge. `committed = used + used_by_others + idle`.

    The commitment, its use by others and what was idle are None in a row of a project or a snapshot: what nobody used
    is nobody's. `storage_usd` = volumes + snapshots of the cloud account by their GiB and time, None where the card has
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


class UsageAmounts(TypedDict):
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
    """One row; of the four, those that were asked for tell what it stands for, and the others are None, as are the
    project or the snapshot of what is no project's, or of none that is known.
    """

    hour: str | None
    day: str | None
    project: str | None
    snapshot: str | None


# `from` is a word of the language, so that this shape is not written as a class.
_Whole = TypedDict("_Whole", {"from": str})


class Usage(_Whole):
    """A statement of whole hours of UTC; rows add up to the total. Hours from `complete_until` on may still gain."""

    until: str
    as_of: str
    complete_until: str
    project: str | None
    by: list[By]
    rows: list[UsageRow]
    total: UsageAmounts
    card_version: str
    note: str
