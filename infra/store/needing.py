"""Who is there that may need the schema as it was before a contracting migration."""

from __future__ import annotations

from sqlalchemy import Connection, text

from app.domain.money import NS_PER_HOUR, NS_PER_SECOND

# Who is silent for longer has lost its machines to their leases, and its claims; if it comes back it finds a database
# that does not let it start.
GONE_NS = NS_PER_HOUR
# Of releases that did not tell what they know.
UNTOLD = "0015"


def needing(at: Connection, revision: str, now_ns: int) -> tuple[str, ...]:
    """Processes heard of in the last hour whose release does not know `revision`, in words."""
    found = [
        *at.execute(
            text("SELECT 'worker of ' || host_id, version, revision, heartbeat_ns FROM worker")
        ),
        *at.execute(text("SELECT component, release, revision, heartbeat_ns FROM control_process")),
    ]
    return tuple(
        f"{who} (release {release}, silent for {(now_ns - heard_ns) // NS_PER_SECOND} s)"
        for who, release, knows, heard_ns in found
        if (knows or UNTOLD) < revision and now_ns - heard_ns < GONE_NS
    )
