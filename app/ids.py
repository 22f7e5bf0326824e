"""Ids: a kind, then 64 random bits in hex. Short enough for a machine's socket path, and never used again."""

from __future__ import annotations

import secrets


def new_id(kind: str) -> str:
    """`new_id("run")` -> `run_` and 16 hex digits."""
    return f"{kind}_{secrets.token_hex(8)}"


def claim_of(host_id: str) -> str:
    """A new worker process's claim: its host's id, so that what is its own can be told from another host's."""
    return f"{host_id}:{secrets.token_hex(8)}"
