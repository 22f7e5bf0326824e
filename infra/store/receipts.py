"""Answers already given, by idempotency key."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from app.domain.account import Receipt
from app.domain.money import NS_PER_HOUR
from app.errors import Conflict
from infra.store.engine import Database, insert_new
from infra.store.rows import columns_of, noun_of
from infra.store.tables import receipts

KEPT_NS = 24 * NS_PER_HOUR


class Receipts:
    """`app.ports.callers.Receipts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str, key: str) -> Receipt | None:
        with self._database.read() as at:
            row = at.execute(
                select(receipts).where(
                    receipts.c.project_id == project_id,
                    receipts.c.key == key,
                    receipts.c.created_ns > self._database.now_ns(at) - KEPT_NS,
                )
            ).one_or_none()
        return None if row is None else noun_of(Receipt, row)

    def keep(self, project_id: str, receipt: Receipt) -> None:
        with self._database.write() as at:
            keep_receipt(at, project_id, receipt, self._database.now_ns(at))


def keep_receipt(at: Connection, project_id: str, receipt: Receipt | None, now_ns: int) -> None:
    """Write a receipt with its effect. Raises Conflict(idempotency_race) if another call wrote it first."""
    if receipt is None:
        return
    at.execute(delete(receipts).where(receipts.c.created_ns <= now_ns - KEPT_NS))
    row = {"project_id": project_id, "created_ns": now_ns, **columns_of(receipt)}
    if not insert_new(at, receipts, row):
        raise Conflict("idempotency_race", f"idempotency key {receipt.key!r} has been used")
