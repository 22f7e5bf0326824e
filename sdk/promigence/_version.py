"""The version of this distribution; its pyproject says the same, and a test holds the two together."""

from __future__ import annotations

__version__ = "0.1.0"
