"""Rows of who calls: projects with their limits, their keys, and the answers that they got."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, UniqueConstraint
from sqlmodel import Field

from app.domain.account import Scope
from infra.store.base import Row, not_negative, refers
from infra.store.columns import as_json, as_text, big, encode

Facts = dict[str, object]
ALL_SCOPES = encode(tuple[Scope, ...], tuple(Scope))


class ProjectRow(Row, table=True):
    """`live_forks` have room reserved on a host. A limit that is NULL is none: a CHECK of NULL holds."""

    __tablename__ = "project"
    __table_args__ = (
        *not_negative("monthly_budget_micros", "max_forks", "live_forks"),
        CheckConstraint("live_forks <= max_forks", name="within_the_limit"),
    )

    project_id: str = Field(primary_key=True)
    created_ns: int = big()
    monthly_budget_micros: int | None = big(default=None)
    max_forks: int | None = None
    live_forks: int = 0


class ProjectMonthRow(Row, table=True):
    """A project's money in a month of UTC, by the database's clock; a run is wholly of the month it began in.

    `committed_micros` is the budgets of the live runs and the charges of the ended ones. A charge moves nothing here:
    so the row is written when a run starts and when it ends, and not at every end of a machine.
    """

    __tablename__ = "project_month"
    __table_args__ = (
        refers("project_id", "project"),
        *not_negative("budget_micros", "committed_micros"),
        CheckConstraint("committed_micros <= budget_micros", name="within_the_budget"),
    )

    project_id: str = Field(primary_key=True)
    month: str = Field(primary_key=True)
    budget_micros: int | None = big(default=None)
    committed_micros: int = big()


class KeyRow(Row, table=True):
    """What a release without scopes makes while it runs beside this one has all of them."""

    __tablename__ = "api_key"
    __table_args__ = (refers("project_id", "project"), UniqueConstraint("digest"))

    key_id: str = Field(primary_key=True)
    project_id: str
    name: str = as_text()
    prefix: str
    digest: str
    # Which secret of the deployment the digest was made with; see `keys.py`.
    secret_id: str | None = None
    scopes: tuple[Scope, ...] = as_json(
        tuple[Scope, ...], sa_column_kwargs={"server_default": ALL_SCOPES}
    )
    created_ns: int = big()
    expires_ns: int | None = big(default=None)
    used_ns: int | None = big(default=None)
    revoked_ns: int | None = big(default=None)


class ReceiptRow(Row, table=True):
    __tablename__ = "receipt"
    __table_args__ = (Index("ix_receipt_created_ns", "created_ns"),)

    project_id: str = Field(primary_key=True)
    key: str = as_text(primary_key=True)
    body_sha256: str
    answer: Facts = as_json(Facts)
    created_ns: int = big()


class UploadRow(Row, table=True):
    """That a project has sent these bytes itself. Blobs are shared by content; who has which is nobody
    else's to know.
    """

    __tablename__ = "upload"
    __table_args__ = (refers("project_id", "project"), Index("ix_upload_sent_ns", "sent_ns"))

    project_id: str = Field(primary_key=True)
    sha256: str = Field(primary_key=True)
    sent_ns: int = big()


class AuditRow(Row, table=True):
    """Who changed what. Nothing refers to it and it refers to nothing: it outlives what it tells of."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_at_ns", "at_ns"),
        Index("ix_audit_project_id", "project_id", "at_ns"),
    )

    entry_id: str = Field(primary_key=True)
    at_ns: int = big()
    project_id: str | None = None
    actor: str = as_text()
    action: str
    target: str | None = as_text(default=None)
    status: int | None = None
    request_id: str | None = None
    client: str | None = as_text(default=None)
