"""The command line `promigence`."""

from __future__ import annotations

from promigence.cli.main import app, main

__all__ = ["app", "main"]
