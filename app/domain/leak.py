"""What may be left behind, on a host and in the rows, by anything that died at the wrong moment: the whole list.

A leak has no owner any more: no open attempt, no stored snapshot or unfinished build, no unfinished run. What is in
use, what is young and what is another's is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.money import NS_PER_SECOND


class LeakKind(StrEnum):
    # On a host, in the order of their removal. A machine is all of it: processes, sockets, overlay, control group.
    MOUNT = "mount"
    LOOP_DEVICE = "loop_device"
    PROCESS = "process"
    MACHINE = "machine"
    CONTROL_GROUP = "control_group"
    DELETED_FILE = "deleted_file"
    BUNDLE = "bundle"
    BUNDLE_REMAINS = "bundle_remains"
    # Of the deployment.
    BLOB = "blob"
    BLOB_REMAINS = "blob_remains"
    REDIS_KEY = "redis_key"
    HOST_ACCESS = "host_access"
    # Of the cloud account: what is paid for by the month, and rows whose resource is gone.
    CLOUD_VOLUME = "cloud_volume"
    CLOUD_SNAPSHOT = "cloud_snapshot"
    CLOUD_ROW = "cloud_row"
    # Rows that are not final, or sums that do not add up.
    OVERDUE_ATTEMPT = "overdue_attempt"
    FORK_WITHOUT_MACHINE = "fork_without_machine"
    RUN_WITHOUT_FORKS = "run_without_forks"
    EXEC_OF_CLOSED_ATTEMPT = "exec_of_closed_attempt"
    UNSETTLED_BUILD = "unsettled_build"
    HOST_ROOM = "host_room"
    PROJECT_FORKS = "project_forks"


# What becomes of each, in words that finish "it would be ...".
REMEDIES: dict[LeakKind, str] = {
    LeakKind.MACHINE: "ended, and its files removed",
    LeakKind.PROCESS: "ended",
    LeakKind.CONTROL_GROUP: "removed",
    LeakKind.MOUNT: "unmounted",
    LeakKind.LOOP_DEVICE: "detached",
    LeakKind.DELETED_FILE: "closed by a restart of the process that holds it; nothing else can",
    LeakKind.BUNDLE: "deleted",
    LeakKind.BUNDLE_REMAINS: "deleted",
    LeakKind.BLOB: "deleted",
    LeakKind.BLOB_REMAINS: "deleted",
    LeakKind.REDIS_KEY: "given an expiry of a minute",
    LeakKind.HOST_ACCESS: "shut out of the database and the queue, and its secret deleted",
    LeakKind.CLOUD_VOLUME: "detached and deleted, and its row marked as gone",
    LeakKind.CLOUD_SNAPSHOT: "deleted, and its row marked as gone",
    LeakKind.CLOUD_ROW: "marked as gone",
    LeakKind.OVERDUE_ATTEMPT: "closed and charged its whole lease, as host_lost",
    LeakKind.FORK_WITHOUT_MACHINE: "left as it is: it cannot be, so report it with its rows",
    LeakKind.RUN_WITHOUT_FORKS: "ended, and its budget settled",
    LeakKind.EXEC_OF_CLOSED_ATTEMPT: "marked as lost",
    LeakKind.UNSETTLED_BUILD: "refused: its host is asked once a second, and has not settled it",
    LeakKind.HOST_ROOM: "counted again from the forks that hold it",
    LeakKind.PROJECT_FORKS: "counted again from the forks that are placed",
}

HOUR_NS = 3600 * NS_PER_SECOND

# How old a thing must be before it can be a leak at all: whoever makes it needs its time to give it an owner. What is
# not listed has its owner before it is made.
GRACE_NS: dict[LeakKind, int] = {
    # An upload waits for the definition that names it; a client may take its time between the two.
    LeakKind.BLOB: 24 * HOUR_NS,
    LeakKind.BLOB_REMAINS: HOUR_NS,
    LeakKind.BUNDLE_REMAINS: HOUR_NS,
    # An instance boots, and a host that is away for a while comes back.
    LeakKind.HOST_ACCESS: HOUR_NS,
    # The billing worker and the hosts come to these every second; they are leaks only where that does not help.
    LeakKind.OVERDUE_ATTEMPT: 60 * NS_PER_SECOND,
    LeakKind.UNSETTLED_BUILD: 2 * HOUR_NS,
}

# What is told apart from something in use by the order in which rows and things are read. All others have to be seen in
# two looks: between a look at a host and one at the rows, a thing may have found its owner, or its end.
SURE = frozenset({LeakKind.MACHINE, LeakKind.BUNDLE})


@dataclass(frozen=True, slots=True)
class Leak:
    """One thing that nobody owns. Two looks at the same thing give equal leaks, whatever its age has become.

    `age_ns` None: it does not show its age. `micros_per_month`: what it costs the account as long as it is there; None
    where nothing is paid for it alone, or no price is known.
    """

    kind: LeakKind
    name: str
    detail: str = ""
    age_ns: int | None = field(default=None, compare=False)
    micros_per_month: int | None = field(default=None, compare=False)

    @property
    def remedy(self) -> str:
        return REMEDIES[self.kind]

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Trace:
    """Something of this stack that lies on a host, as it was seen.

    `owner` is the machine or bundle that it is of, by name; None where nothing but its age says whether it is in use.
    """

    leak: Leak
    owner: str | None

    @property
    def age_ns(self) -> int | None:
        return self.leak.age_ns


def is_old_enough(kind: LeakKind, age_ns: int | None) -> bool:
    """Whether a thing has had its time to find an owner."""
    return age_ns is None or age_ns >= GRACE_NS.get(kind, 0)


def confirmed(before: frozenset[Leak], now: frozenset[Leak]) -> tuple[Leak, ...]:
    """Those seen now that are sure, by their kind or because the look before saw them too; in the order to remove."""
    sure = (leak for leak in now if leak.kind in SURE or leak in before)
    return tuple(sorted(sure, key=lambda leak: (_ORDER[leak.kind], leak.name)))


_ORDER = {kind: number for number, kind in enumerate(LeakKind)}
