"""One mutant, and how it is applied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in the file; `law` is what breaks with `new`; `tests` are arguments of pytest."""

    path: str
    old: str
    new: str
    law: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.path}: {self.old.strip()!r} -> {self.new.strip()!r}"


def applied(mutant: Mutant, source: str) -> str:
    """The mutated source. Raises ValueError for a list that is out of date."""
    found = source.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.name}: found {found} times, so this list is out of date")
    return source.replace(mutant.old, mutant.new)
