"""The end of a deployment: what the product has made in the account, which whoever made the rest does not know of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.errors import Conflict
from app.ports import Cloud
from app.ports.access import Logins, Secrets

Kind = Literal["volume", "snapshot", "secret", "login"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that goes; `detail` is for people."""

    kind: Kind
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Made:
    """Where a deployment makes things of its own accord: volumes and snapshots, and its hosts' logins and secrets."""

    cloud: Cloud
    secrets: Secrets
    logins: Logins


def left(made: Made) -> tuple[Leftover, ...]:
    """All of it, found by tag and by name. Raises CloudRefused, Unavailable."""
    return (*_volumes(made), *_snapshots(made), *_access(made))


def remove(made: Made, leftovers: tuple[Leftover, ...]) -> None:
    """Remove these, in this order; twice is safe, and what a failure leaves the same call removes.

    Raises Conflict(hosts_run) while a volume is attached: then nothing is removed, for somebody uses it. CloudRefused,
    Unavailable.
    """
    attached = [each.volume_id for each in made.cloud.volumes() if each.attachment is not None]
    if attached:
        raise Conflict(
            "hosts_run",
            f"{len(attached)} volumes are attached ({attached[0]}, ...): end the hosts first",
        )
    ends = {
        "volume": made.cloud.delete_volume,
        "snapshot": made.cloud.delete_snapshot,
        "secret": made.secrets.delete,
        "login": made.logins.remove,
    }
    for each in leftovers:
        ends[each.kind](each.name)


def _volumes(made: Made) -> tuple[Leftover, ...]:
    return tuple(
        Leftover("volume", each.volume_id, f"{each.size_gib} GiB, {each.state}")
        for each in made.cloud.volumes()
    )


def _snapshots(made: Made) -> tuple[Leftover, ...]:
    return tuple(
        Leftover("snapshot", each.snapshot_id, f"{each.size_gib} GiB, {each.state}")
        for each in made.cloud.snapshots()
    )


def _access(made: Made) -> tuple[Leftover, ...]:
    secrets = (Leftover("secret", host, "of a host") for host in made.secrets.list())
    logins = (Leftover("login", host, "of a host, at Redis") for host in made.logins.list())
    return (*secrets, *logins)
