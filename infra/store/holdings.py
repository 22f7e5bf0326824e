"""Rows of what the cloud account holds for us."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, UniqueConstraint
from sqlmodel import Field

from app.domain.cloud import Purpose, ResourceKind
from infra.store.base import Row, known, partial_index
from infra.store.columns import as_word, big


class ResourceRow(Row, table=True):
    """A volume or snapshot, written before it is asked for. It refers to no host: it may outlive its host's row."""

    __tablename__ = "resource"
    __table_args__ = (
        UniqueConstraint("cloud_id"),
        known("kind", ResourceKind),
        known("purpose", Purpose),
        CheckConstraint("(kind = 'snapshot') = (purpose = 'keep')", name="purpose_of_its_kind"),
        CheckConstraint(
            "(kind = 'volume') = (host_id IS NOT NULL) AND (kind = 'volume') = (zone IS NOT NULL)",
            name="a_volume_has_its_place",
        ),
        CheckConstraint("size_gib >= 1", name="some_size"),
        CheckConstraint("(cloud_id IS NULL) = (made_ns IS NULL)", name="made_has_its_id"),
        CheckConstraint(
            "deadline_ns IS NOT NULL OR made_ns IS NOT NULL OR gone_ns IS NOT NULL",
            name="unmade_has_its_deadline",
        ),
        CheckConstraint("gone_ns IS NULL OR deadline_ns IS NULL", name="gone_has_no_deadline"),
        # NULL is what lives: the same index finds it, and what has been gone since some time.
        Index("ix_resource_gone_ns", "gone_ns"),
        partial_index("ix_resource_living_of_bundle", "gone_ns IS NULL", "bundle_id"),
        partial_index("ix_resource_living_of_host", "gone_ns IS NULL", "host_id"),
    )

    token: str = Field(primary_key=True)
    kind: ResourceKind = as_word(ResourceKind)
    purpose: Purpose = as_word(Purpose)
    bundle_id: str
    size_gib: int
    host_id: str | None = None
    zone: str | None = None
    cloud_id: str | None = None
    intended_ns: int = big()
    deadline_ns: int | None = big(default=None)
    made_ns: int | None = big(default=None)
    gone_ns: int | None = big(default=None)
