"""What happened, as rows: appended under their run's lock, never changed."""

from __future__ import annotations

from sqlmodel import Field

from app.domain.event import EventKind
from infra.store.base import IN_PLACE, Row, not_negative, refers
from infra.store.columns import as_json, as_text, as_word, big

Facts = dict[str, object]


class EventCountRow(Row, table=True):
    """How many events a run has: the number of its last one."""

    __tablename__ = "event_count"
    __table_args__ = (refers("run_id", "run"), *not_negative("events"), IN_PLACE)

    run_id: str = Field(primary_key=True)
    events: int


class EventRow(Row, table=True):
    """The numbers of a run's events are 1, 2, 3 and so on.

    Kinds are not listed in a constraint: in an upgrade newer workers tell what older ones do not know.
    """

    __tablename__ = "event"
    __table_args__ = (refers("run_id", "run"),)

    run_id: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    at_ns: int = big()
    kind: EventKind = as_word(EventKind)
    fork_id: str | None = None
    index: int | None = None
    attempt_id: str | None = None
    host_id: str | None = None
    reason: str | None = as_text(default=None)
    data: Facts = as_json(Facts)
