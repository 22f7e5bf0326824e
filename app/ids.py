"""Ids: a kind, then 64 random bits in hex. Short enough for a machine's socket path, and never used again."""

from __future__ import annotations

import secrets


def new_id(kind: str) -> str:
    """`new_id("run")` -> `run_` and 16 hex digits."""
    return f"{kind}_{secrets.token_hex(8)}"
