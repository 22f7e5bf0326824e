"""Rows that a host wrote, read one by one where one of them cannot be read.

A host that was broken into may write what no type of ours reads into its columns. What is asked of all hosts at once
must not fail for all because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import structlog
from sqlalchemy import Column, Connection, Select

from infra.store.engine import AnyRow

N = TypeVar("N")

# What is said of a row is said once by a process, as far as it remembers.
REMEMBERED = 1000

log = structlog.get_logger(__name__)


def readable(
    at: Connection, rows: Select[Any], key: Column[str], noun: Callable[[AnyRow], N]
) -> tuple[N, ...]:
    """The rows as nouns, without those that cannot be read; `key` tells them apart. The log names what was left out."""
    try:
        return tuple(noun(row) for row in at.execute(rows))
    except ValueError:
        keys = at.execute(rows.with_only_columns(key, maintain_column_froms=True)).scalars().all()
    return tuple(found for each in keys for found in _one(at, rows, key, each, noun))


def _one(
    at: Connection, rows: Select[Any], key: Column[str], name: str, noun: Callable[[AnyRow], N]
) -> tuple[N, ...]:
    try:
        return tuple(noun(row) for row in at.execute(rows.where(key == name)))
    except ValueError as unreadable:
        _tell(key.table.name, name, type(unreadable).__name__)
        return ()


@lru_cache(maxsize=REMEMBERED)
def _tell(table: str, key: str, why: str) -> None:
    log.warning("row_unreadable", table=table, key=key, why=why)
