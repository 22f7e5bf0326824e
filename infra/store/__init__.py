"""The rows of `app/ports/store.py`, on SQLite and PostgreSQL."""

from __future__ import annotations

from infra.store.stores import Stores, create_store

__all__ = ["Stores", "create_store"]
