"""A wall-clock reading as people and JSON write it."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(wall_ns: int) -> str:
    """ns since the epoch -> RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(wall_ns // 1_000_000 / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
