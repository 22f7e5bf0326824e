"""A host on a spot instance listens for its end, every five seconds: the notice comes two minutes before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from app.domain.spot import Announcement, InstanceIdentity
from app.errors import Unavailable
from app.flow.notice import Heard, listen
from app.ports import Ports
from app.ports.fleet import Metadata
from workers.pace import beside

PERIOD_S = 5.0

# Told of what the cloud announced, once for each.
Count = Callable[[Announcement], None]

log = structlog.get_logger(__name__)


class Listener:
    """Of one process; `turn` is for every few seconds."""

    def __init__(self, ports: Ports, host_id: str, metadata: Metadata, count: Count) -> None:
        self._ports = ports
        self._host_id = host_id
        self._metadata = metadata
        self._count = count
        self._heard = Heard()
        self._advised: str | None = None

    def turn(self) -> None:
        """Ask once. Raises Unavailable where nobody answers."""
        before = self._heard
        self._heard = listen(self._ports, self._host_id, self._metadata, before)
        if self._heard.noticed and not before.noticed:
            log.warning("host_is_taken_back", host_id=self._host_id)
            self._count(Announcement.INTERRUPTION)
        elif before.noticed and self._heard.noticed is False:
            log.info("host_stays", host_id=self._host_id)
        self._hear_advice()

    def _hear_advice(self) -> None:
        """A recommendation to move is no notice: most instances live on for hours. So it is told and nothing more."""
        advised = self._metadata.rebalance()
        if advised is not None and advised != self._advised:
            log.warning("rebalance_recommended", host_id=self._host_id, at=advised)
            self._count(Announcement.REBALANCE)
        self._advised = advised


@contextmanager
def listening(
    ports: Ports, host_id: str, metadata: Metadata | None, count: Count
) -> Iterator[None]:
    """Inside, this process hears when its instance is taken back; nothing is asked where there is no metadata."""
    if metadata is None:
        yield
        return
    with beside("notices", Listener(ports, host_id, metadata, count).turn, period_s=PERIOD_S):
        yield


def zone_of(host_id: str, zone: str | None, metadata: Metadata | None) -> str | None:
    """Where this host is: as the operator says, else as its instance does; None where nobody knows.

    A host whose id is not its instance's cannot be matched with it when the fleet shrinks; that is logged.
    """
    identity = _identity(metadata)
    if identity is None:
        return zone
    if identity.instance_id != host_id:
        log.warning("host_is_not_its_instance", host_id=host_id, instance=identity.instance_id)
    return zone or identity.zone


def _identity(metadata: Metadata | None) -> InstanceIdentity | None:
    if metadata is None:
        return None
    try:
        return metadata.identity()
    except Unavailable as away:
        log.warning("metadata_away", error=away.message)
        return None
