"""The rows counted for those who watch."""

from __future__ import annotations

from typing import Protocol

from app.domain.census import Census
from app.domain.health import Recent


class Censuses(Protocol):
    """Each reads one state of all rows, by indexes: what is live or of late, however many have ended."""

    def take(self) -> Census:
        """What stands now. Raises Unavailable(database_away)."""
        ...

    def recent(self, lately_ns: int) -> Recent:
        """What ended within so long by the database's clock, and what runs now. Raises Unavailable(database_away).

        Of a fork that never had a machine nothing is said: it shows by its age while it waits.
        """
        ...
