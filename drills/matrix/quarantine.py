"""The drill as its own operator: a host that breaks forks in a row is taken out of placement, and here let back at
once.

All hosts of the matrix are one, and what breaks on it was broken on purpose. How a quarantine begins and ends by
itself is a case of its own (`placement.py`), in which nobody does this.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from app.errors import Unavailable
from drills.rig import Rig
from workers.command import ports_of

_LOOK_S = 0.5
_QUARANTINED = "SELECT host_id FROM host WHERE quarantine IS NOT NULL"


@contextlib.contextmanager
def no_quarantine(rig: Rig) -> Iterator[None]:
    """End every quarantine for as long as the block runs. The database may be away meanwhile."""
    over = threading.Event()
    thread = threading.Thread(target=_release, args=(rig, over), name="quarantine")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _release(rig: Rig, over: threading.Event) -> None:
    while not over.wait(_LOOK_S):
        quarantined = rig.postgres.rows(_QUARANTINED)
        if not quarantined:
            continue
        with contextlib.suppress(Unavailable), ports_of(rig.places.directory) as ports:
            for row in quarantined:
                ports.hosts.release(row["host_id"])
