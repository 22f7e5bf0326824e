"""A wall-clock reading as people and JSON write it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from app.errors import BadRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(wall_ns: int) -> str:
    """ns since the epoch -> RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(wall_ns // 1_000_000 / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_instant(name: str, text: str) -> int:
    """RFC 3339, or a date (its midnight in UTC) -> ns since the epoch.

    Raises BadRequest(bad_request) for anything else, for a time without its offset, and for one before 1970.
    """
    try:
        moment = _moment(text)
    except ValueError:
        raise BadRequest(
            "bad_request",
            f"{name}: is neither a date (2026-11-30) nor an instant (2026-11-30T17:00:00Z)",
        ) from None
    if moment.tzinfo is None:
        raise BadRequest("bad_request", f"{name}: has no offset, such as the Z at its end for UTC")
    since = moment - EPOCH
    if since < timedelta():
        raise BadRequest("bad_request", f"{name}: is before 1970")
    return since // timedelta(microseconds=1) * 1000


def _moment(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), tzinfo=UTC)
    except ValueError:
        return datetime.fromisoformat(text)
