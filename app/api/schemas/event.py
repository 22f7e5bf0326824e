"""What happened in a run, as it is read."""

from __future__ import annotations

from typing import Any

from app.api.schemas.base import Answer, Instant


class Event(Answer):
    """One transition. More kinds, and more in `data`, may come with a later release."""

    run_id: str
    number: int
    at: Instant
    kind: str
    fork_id: str | None
    index: int | None
    attempt_id: str | None
    host: str | None
    reason: str | None
    data: dict[str, Any]


class Events(Answer):
    """A page of events: `next` is what `after` is the next time, and after a `final` page there is nothing more."""

    events: list[Event]
    next: int
    final: bool
