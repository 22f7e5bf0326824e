"""Where a stored snapshot can come to life: on hosts that are up, have its key, and have its bundle or can fetch it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.domain.placement import Host, serves
from app.domain.snapshot import Snapshot


class Reachable(StrEnum):
    """STALE: no host that is up restores its key. UNREACHABLE: some do, but none of them can get at its bundle."""

    VERIFIED = "verified"
    STALE = "stale"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Reach:
    """`keys` are those of all hosts that are up; `serving` the hosts of them that have the needed one; `able` those of
    these that have the bundle or can fetch it; `staying` those of these that do not leave.
    """

    needed: str
    keys: tuple[str, ...]
    serving: tuple[str, ...]
    able: tuple[str, ...]
    staying: tuple[str, ...]

    @property
    def state(self) -> Reachable:
        if self.able:
            return Reachable.VERIFIED
        return Reachable.UNREACHABLE if self.serving else Reachable.STALE

    @property
    def why(self) -> str | None:
        """What is wrong, or soon will be; None when nothing is."""
        if not self.keys:
            return "no host is up"
        if not self.serving:
            return f"no host that is up restores {self.needed}; there are: {', '.join(self.keys)}"
        if not self.able:
            return f"its bundle is on none of the hosts that restore it: {', '.join(self.serving)}"
        if not self.staying:
            return f"every host that can restore it is leaving: {', '.join(self.able)}"
        return None

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "needs": self.needed,
            "keys": list(self.keys),
            "serving": list(self.serving),
            "able": list(self.able),
            "why": self.why,
        }


def reach(snapshot: Snapshot, hosts: Iterable[Host]) -> Reach:
    """Where it can be restored now, by the rows of all hosts."""
    up = sorted((host for host in hosts if host.alive), key=lambda host: host.host_id)
    needed = str(snapshot.restore_key)
    serving = [host for host in up if serves(host, needed)]
    able = [host for host in serving if restores(host, snapshot)]
    return Reach(
        needed=needed,
        keys=tuple(sorted({str(key) for host in up for key in host.fingerprint.restore_keys})),
        serving=tuple(host.host_id for host in serving),
        able=tuple(host.host_id for host in able),
        staying=tuple(host.host_id for host in able if not host.leaves),
    )


def restores(host: Host, snapshot: Snapshot) -> bool:
    """Whether a snapshot can come to life on a host, room apart: it has the key, and has or can fetch the bundle."""
    bundle_id = snapshot.bundle_id
    gets = host.fetches or bundle_id in host.mounted or bundle_id in host.holds
    return gets and serves(host, str(snapshot.restore_key))
