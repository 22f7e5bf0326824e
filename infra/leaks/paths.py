"""Which machine or bundle a path is of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def name_below(roots: Iterable[Path], path: Path) -> str | None:
    """The first part of a path below one of these directories; None for a path that is below none."""
    for root in roots:
        if path != root and path.is_relative_to(root):
            return path.relative_to(root).parts[0]
    return None
