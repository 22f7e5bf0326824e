"""What is kept for a time and then forgotten."""

from __future__ import annotations

from app.domain.money import NS_PER_HOUR
from app.ports import Ports

DAY_NS = 24 * NS_PER_HOUR
# A build that wants bytes again after so long has them sent again.
UPLOADS_KEPT_NS = 30 * DAY_NS
# Each page is a transaction of its own: nobody waits long for the database's one writer.
PAGE = 1000


def forget(ports: Ports, audit_kept_ns: int) -> int:
    """Remove entries of the audit log that are older, and what is no more known of uploads; how many entries.

    Twice at once is safe. Raises Unavailable(database_away).
    """
    ports.uploads.forget(UPLOADS_KEPT_NS)
    gone = 0
    while (page := ports.audit.forget(audit_kept_ns, PAGE)) > 0:
        gone += page
    return gone
