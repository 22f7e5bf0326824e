"""Scopes and ends of keys, the secret that each is hashed with; who changed what, and who uploaded which bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
kind = "expand"

ALL_SCOPES = '["read","run","build","admin"]'


def upgrade() -> None:
    with op.batch_alter_table("api_key") as key:
        # A key that is older, or that an older release makes meanwhile, opens what it opened: everything.
        key.add_column(sa.Column("scopes", sa.Text(), nullable=False, server_default=ALL_SCOPES))
        key.add_column(sa.Column("secret_id", sa.String(), nullable=True))
        key.add_column(sa.Column("expires_ns", sa.BigInteger(), nullable=True))
        key.add_column(sa.Column("used_ns", sa.BigInteger(), nullable=True))
    op.create_table(
        "upload",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("sent_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.project_id"], name="fk_upload_project_id"
        ),
        sa.PrimaryKeyConstraint("project_id", "sha256", name="pk_upload"),
    )
    op.create_index("ix_upload_sent_ns", "upload", ["sent_ns"])
    op.create_table(
        "audit",
        sa.Column("entry_id", sa.String(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("client", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("entry_id", name="pk_audit"),
    )
    op.create_index("ix_audit_at_ns", "audit", ["at_ns"])
    op.create_index("ix_audit_project_id", "audit", ["project_id", "at_ns"])
