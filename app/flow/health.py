"""How the deployment stands: the rows counted, and what the billing worker saw by the way."""

from __future__ import annotations

from app.domain.health import LATELY_NS, Health, Watched
from app.domain.health import health as put_together
from app.ports import Ports
from app.ports.census import Censuses


def health(ports: Ports, censuses: Censuses, watched: Watched) -> Health:
    """Count once. Raises Unavailable(database_away)."""
    census, recent = censuses.take(), censuses.recent(LATELY_NS)
    return put_together(census, recent, watched, ports.rates.commitment, ports.clock.wall_ns())
