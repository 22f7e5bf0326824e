"""Quotes, as they were given."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from app.domain.money import NS_PER_HOUR
from app.domain.quote import Quote
from app.errors import NotFound
from infra.store.engine import Database
from infra.store.tables import quotes

# A quote that is long over still tells that it is over, and not that it never was.
KEPT_NS = 24 * NS_PER_HOUR


class Quotes:
    """`app.ports.store.Quotes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, project_id: str, quote: Quote, spec_sha256: str) -> None:
        with self._database.write() as at:
            over_ns = self._database.now_ns(at) - KEPT_NS
            at.execute(delete(quotes).where(quotes.c.expires_ns <= over_ns))
            at.execute(
                insert(quotes).values(
                    quote_id=quote.quote_id,
                    project_id=project_id,
                    quote=quote,
                    spec_sha256=spec_sha256,
                    expires_ns=quote.expires_ns,
                )
            )

    def get(self, project_id: str, quote_id: str) -> tuple[Quote, str]:
        with self._database.read() as at:
            row = at.execute(
                select(quotes).where(
                    quotes.c.quote_id == quote_id, quotes.c.project_id == project_id
                )
            ).one_or_none()
        if row is None:
            raise NotFound("unknown_quote", f"there is no quote {quote_id}; ask for a new one")
        return row.quote, row.spec_sha256
