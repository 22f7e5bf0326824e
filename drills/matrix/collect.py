"""All cases there are: those of every module of this package that has `CASES`."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from functools import cache

import drills.matrix
from drills.matrix.case import Case


@cache
def cases() -> tuple[Case, ...]:
    """By module, each in its own order. Raises ValueError when two have one name: a name finds a case's forks."""
    names = sorted(each.name for each in pkgutil.iter_modules(drills.matrix.__path__))
    modules = (
        importlib.import_module(f"drills.matrix.{name}")
        for name in names
        if not name.startswith("__")
    )
    found = tuple(case for module in modules for case in getattr(module, "CASES", ()))
    twice = [name for name, count in Counter(case.name for case in found).items() if count > 1]
    if twice:
        raise ValueError(f"several cases are called {', '.join(twice)}")
    return found
