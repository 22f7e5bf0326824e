"""Which version a build makes anew, and what that was made of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("build", sa.Column("origin", sa.Text()))
