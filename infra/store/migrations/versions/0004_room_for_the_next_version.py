"""Pages of forks and attempts have room for the next version of each row (PostgreSQL only; pages made from now on)."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    for table in ("fork", "attempt"):
        op.execute(f"ALTER TABLE {table} SET (fillfactor = 50)")
