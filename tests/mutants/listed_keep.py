"""The list, goes on: what holds of forks that are kept."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

KEEP = ("tests/contract/test_store_keep.py", "-k", "sqlite and not at_once")

KEEPING = "infra/store/keeping.py"
METERS = "infra/store/meters.py"
CLOSING = "infra/store/closing.py"

KEEP_MUTANTS = (
    Mutant(
        KEEPING,
        ">= run.spec.keep_failed",
        "> run.spec.keep_failed",
        "no more are kept than asked for",
        KEEP,
    ),
    Mutant(
        KEEPING,
        "is_live, forks.c.kept.is_not(None)",
        "forks.c.kept.is_not(None)",
        "one that ended makes room for another",
        KEEP,
    ),
    Mutant(
        KEEPING,
        "wanted = fork.role is Role.FORK and fork.stop_asked is None",
        "wanted = fork.role is Role.FORK",
        "what is to stop is not kept",
        KEEP,
    ),
    Mutant(
        METERS,
        "    forks.c.kept.is_(None),\n    forks.c.worst_micros",
        "    forks.c.worst_micros",
        "the pool is not shared with what is kept",
        KEEP,
    ),
    Mutant(
        CLOSING,
        "standing(ending.fork, closing)",
        "closing",
        "whatever ends a kept fork, its verdict stands",
        KEEP,
    ),
)
