"""What the cloud announces of the instance that a host runs on: heard on the host, told in its row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.domain.spot import WITHDRAWN_NS
from app.ports import Ports
from app.ports.fleet import Metadata


@dataclass(frozen=True, slots=True)
class Heard:
    """What one process has heard so far.

    `noticed` None: nothing yet, so that its row may hold a notice which a process before it was given.
    `silent_since_boot_ns` is since when nothing has been announced.
    """

    noticed: bool | None = None
    silent_since_boot_ns: int | None = None


def listen(ports: Ports, host_id: str, metadata: Metadata, heard: Heard) -> Heard:
    """Ask once: a notice drains the host, and one that has not been there for a minute is undone. Twice is safe.

    Raises Unavailable(metadata_away), which says nothing of a notice: the row stays as it is.
    """
    told = metadata.notice()
    if told is not None:
        if ports.hosts.give_notice(host_id, told):
            ports.bells.place()
        return Heard(noticed=True)
    now_ns = ports.clock.boot_ns()
    since_ns = now_ns if heard.silent_since_boot_ns is None else heard.silent_since_boot_ns
    if heard.noticed is not False and now_ns - since_ns >= WITHDRAWN_NS:
        if ports.hosts.withdraw_notice(host_id):
            ports.bells.place()
        return Heard(noticed=False, silent_since_boot_ns=since_ns)
    return replace(heard, silent_since_boot_ns=since_ns)
