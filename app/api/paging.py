"""Pages of a list that is at hand: `limit` things after a cursor, and where the next page begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query
from pydantic import StringConstraints

from app.errors import BadRequest

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str | None, Query(), StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,100}$")]


def page(things: Sequence[T], limit: int, cursor: str | None) -> tuple[Sequence[T], str | None]:
    """Raises BadRequest for a cursor that no page gave."""
    begin = _position(cursor)
    end = begin + limit
    return things[begin:end], str(end) if end < len(things) else None


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 9):
        raise BadRequest("bad_request", "cursor: is not one that a page gave")
    return int(cursor)
