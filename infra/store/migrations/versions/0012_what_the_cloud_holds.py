"""Volumes and snapshots of the cloud account."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

CHECKS = {
    "kind_known": "kind IN ('volume', 'snapshot')",
    "purpose_known": "purpose IN ('write', 'read', 'keep')",
    "purpose_of_its_kind": "(kind = 'snapshot') = (purpose = 'keep')",
    "a_volume_has_its_place": (
        "(kind = 'volume') = (host_id IS NOT NULL) AND (kind = 'volume') = (zone IS NOT NULL)"
    ),
    "some_size": "size_gib >= 1",
    "made_has_its_id": "(cloud_id IS NULL) = (made_ns IS NULL)",
    "unmade_has_its_deadline": (
        "deadline_ns IS NOT NULL OR made_ns IS NOT NULL OR gone_ns IS NOT NULL"
    ),
    "gone_has_no_deadline": "gone_ns IS NULL OR deadline_ns IS NULL",
}


def upgrade() -> None:
    op.create_table(
        "resource",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("bundle_id", sa.String(), nullable=False),
        sa.Column("size_gib", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=True),
        sa.Column("zone", sa.String(), nullable=True),
        sa.Column("cloud_id", sa.String(), nullable=True),
        sa.Column("intended_ns", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ns", sa.BigInteger(), nullable=True),
        sa.Column("made_ns", sa.BigInteger(), nullable=True),
        sa.Column("gone_ns", sa.BigInteger(), nullable=True),
        *(
            sa.CheckConstraint(check, name=op.f(f"ck_resource_{name}"))
            for name, check in CHECKS.items()
        ),
        sa.PrimaryKeyConstraint("token", name="pk_resource"),
        sa.UniqueConstraint("cloud_id", name="uq_resource_cloud_id"),
    )
    op.create_index("ix_resource_gone_ns", "resource", ["gone_ns"])
    for column in ("bundle_id", "host_id"):
        living = sa.text("gone_ns IS NULL")
        op.create_index(
            f"ix_resource_living_of_{column.removesuffix('_id')}",
            "resource",
            [column],
            sqlite_where=living,
            postgresql_where=living,
        )
