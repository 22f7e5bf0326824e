"""How a domain value lies in a column: JSON for a compound one, its word for an enum, 64 bits for money and time."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import BigInteger, Dialect, String, Text
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field

REPLACEMENT = "\ufffd"


class AsJson(TypeDecorator[Any]):
    """A frozen dataclass, or a tuple or dict of plain values, as JSON text.

    Text and not the database's own JSON: a guest may send NUL, which PostgreSQL's JSONB refuses even escaped.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any | None, _dialect: Dialect) -> str | None:
        return None if value is None else encode(self.kind, value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> Any | None:
        return None if value is None else decode(self.kind, value)


class AsWord(TypeDecorator[Any]):
    """A StrEnum by its value; a database's own enum type would want a migration for each new word."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any | None, _dialect: Dialect) -> str | None:
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, _dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.kind(value)


class AsText(TypeDecorator[str]):
    """Text from outside: NUL and lone surrogates, which PostgreSQL cannot hold, become U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else storable(value)


def as_json(kind: Any, **field: Any) -> Any:
    """A column of `kind` as JSON; nullable if its annotation is."""
    return Field(sa_type=_instance(AsJson(kind)), **field)


def as_word(kind: type[StrEnum], **field: Any) -> Any:
    """A column of an enum."""
    return Field(sa_type=_instance(AsWord(kind)), **field)


def as_text(**field: Any) -> Any:
    """A column of text that came from outside."""
    return Field(sa_type=_instance(AsText()), **field)


def big(**field: Any) -> Any:
    """A column of 64 bits; a plain `int` has 32 on PostgreSQL, which as micro-dollars is 2,147 USD."""
    return Field(sa_type=BigInteger, **field)


def encode(kind: Any, value: Any) -> str:
    """JSON of a value; what a guest sent may hold anything, so nothing in it can make a row unwritable."""
    plain = _adapter(kind).dump_python(value)
    text = json.dumps(plain, default=str, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


def decode(kind: Any, text: str) -> Any:
    """The inverse of `encode`."""
    return _adapter(kind).validate_json(text)


def storable(text: str) -> str:
    """Text as both databases can hold it."""
    return text.replace("\0", REPLACEMENT).encode("utf-8", "replace").decode()


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _instance(of: TypeDecorator[Any]) -> Any:
    # SQLModel's annotation asks for a class; it hands what it gets to Column, which takes both.
    return of
