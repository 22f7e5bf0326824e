"""What to tell of a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def not_known(key: str, known: Iterable[str]) -> str:
    """What is wrong with an unknown key, in words, with the known one that is nearest if one is near."""
    near = get_close_matches(key[:100], list(known), n=1)
    return "is not known" + (f"; did you mean {near[0]}?" if near else "")
