"""Since when the fleet shrinks by a host."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    with op.batch_alter_table("host") as host:
        host.add_column(sa.Column("retired_ns", sa.BigInteger(), nullable=True))
