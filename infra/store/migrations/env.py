"""Alembic's entry: migrate on the connection that `infra/store/migrate.py` hands over."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlmodel.sql.sqltypes import AutoString

from infra.store.columns import AsJson, AsText, AsWord
from infra.store.tables import METADATA


def plain_type(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """A migration names the database's types, so that it stays true when our own classes change."""
    if kind != "type":
        return False
    if isinstance(item, AsJson | AsText):
        return "sa.Text()"
    return "sa.String()" if isinstance(item, AsWord | AutoString) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    render_item=plain_type,
    compare_server_default=True,
    version_table=context.config.attributes["versions"],
)
context.run_migrations()
