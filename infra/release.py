"""Which release this code is of."""

from __future__ import annotations

from importlib.metadata import version


def release() -> str:
    """As its package says."""
    return version("promigence-server")
