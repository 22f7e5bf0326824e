"""A table of a TOML file read key by key; what is wrong is gathered, so that a person sees all of it at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from app.domain.money import exact_micros_of_usd
from app.errors import BadRequest
from app.nearest import not_known

T = TypeVar("T")

SHOWN_CHARS = 40
# Prices of instances that can be rented, and of what is rented by plan, are in the years between.
YEARS = range(2006, 2101)


@dataclass(slots=True)
class Table:
    """`path` is how a person finds it in the file: `host`, `price[3]`; empty for the whole file.

    A value that is wrong is stood in for by one that is not, so that reading goes on: whoever reads looks at
    `problems` before the values are used.
    """

    values: Mapping[str, Any]
    path: str = ""
    faults: list[str] = field(default_factory=list)
    inner: list[Table] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def text(self, key: str, rule: re.Pattern[str], meant: str) -> str:
        """A text that matches; `meant` says what is expected, in words."""
        value = self._take(key)
        if isinstance(value, str) and rule.fullmatch(value):
            return value
        return self._wrong(key, value, meant, "")

    def choice(self, key: str, choices: Sequence[str]) -> str:
        value = self._take(key)
        if isinstance(value, str) and value in choices:
            return value
        return self._wrong(key, value, " or ".join(f'"{each}"' for each in choices), choices[0])

    def whole(self, key: str, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self._take(key)
        if _is_whole(value, low, high):
            return int(value)
        return self._wrong(key, value, f"a whole number from {low} to {high}", low)

    def wholes(self, key: str, low: int, high: int, most: int = 32) -> tuple[int, ...]:
        """A list of 1 to `most` whole numbers, each larger than the one before."""
        value = self._take(key)
        if isinstance(value, list) and 0 < len(value) <= most:
            fine = all(_is_whole(each, low, high) for each in value)
            if fine and value == sorted(set(value)):
                return tuple(value)
        meant = f"a list of rising whole numbers from {low} to {high}, at most {most}"
        return self._wrong(key, value, meant, (low,))

    def usd(self, key: str, most: int) -> int:
        """A price above 0 and up to `most` USD, as micro-dollars, exactly."""
        value = self._take(key)
        try:
            if isinstance(value, int | Decimal):
                return exact_micros_of_usd("it", value, Decimal(most))
        except BadRequest:
            pass
        meant = f"a number of USD above 0, at most {most}, with at most six decimals"
        return self._wrong(key, value, meant, 1)

    def day(self, key: str) -> date:
        value = self._take(key)
        if isinstance(value, date) and not isinstance(value, datetime) and value.year in YEARS:
            return value
        meant = f"a date of the years {YEARS[0]} to {YEARS[-1]}, like 2026-07-01, without quotes"
        return self._wrong(key, value, meant, date(YEARS[0], 1, 1))

    def table(self, key: str) -> Table:
        """A table that must be there."""
        value = self._take(key)
        if not isinstance(value, dict):
            # Not within: that the table is missing is said once, not for each of its keys.
            return Table(self._wrong(key, value, "a table", {}), self._at(key))
        return self._within(Table(value, self._at(key)))

    def has(self, key: str) -> bool:
        """Whether it has a key that it may lack."""
        self.known.add(key)
        return key in self.values

    def tables(self, key: str, most: int) -> tuple[Table, ...]:
        """An array of 1 to `most` tables."""
        value = self._take(key)
        if not isinstance(value, list) or not 0 < len(value) <= most or not _all_tables(value):
            return self._wrong(key, value, f"1 to {most} tables", ())
        paths = (f"{self._at(key)}[{number}]" for number in range(1, len(value) + 1))
        return tuple(self._within(Table(row, path)) for row, path in zip(value, paths, strict=True))

    def fault(self, key: str, problem: str) -> None:
        """Add a problem of a key."""
        self.faults.append(f"{self._at(key)}: {problem}")

    @property
    def sound(self) -> bool:
        """Whether nothing of it, and of the tables in it, is wrong so far."""
        return not self.faults and all(table.sound for table in self.inner)

    def problems(self) -> Iterator[str]:
        """All that is wrong, keys that nobody asked for included. Call it when everything has been read."""
        yield from self.faults
        for key in sorted(self.values.keys() - self.known):
            yield f"{self._at(_named(key))}: {not_known(key, self.known)}"
        for table in self.inner:
            yield from table.problems()

    def _take(self, key: str) -> Any:
        self.known.add(key)
        return self.values.get(key)

    def _wrong(self, key: str, value: Any, meant: str, instead: T) -> T:
        problem = "is missing" if value is None else f"{_shown(value)} will not do"
        self.fault(key, f"{problem}: write {meant}")
        return instead

    def _within(self, table: Table) -> Table:
        self.inner.append(table)
        return table

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _all_tables(values: list[Any]) -> bool:
    return all(isinstance(each, dict) for each in values)


def _shown(value: Any) -> str:
    """A value of the file as an error names it: short, on one line, without what a terminal obeys."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    # Python refuses to write down a whole number of thousands of digits.
    text = "such a number" if isinstance(value, int) and abs(value) >= 10**30 else str(value)
    short = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
    return json.dumps(short) if isinstance(value, str) else short


def _named(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", key) else _shown(key)
