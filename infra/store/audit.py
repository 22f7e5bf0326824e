"""Who changed what, and who has sent which bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update

from app.domain.audit import Entry, Place, Sought
from infra.store.budgets import make_project
from infra.store.engine import Database, insert_new, pages
from infra.store.rows import columns_of, noun_of
from infra.store.tables import audit, uploads


class Audit:
    """`app.ports.audit.Audit`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, entry: Entry) -> None:
        with self._database.write() as at:
            write_entry(at, entry, self._database.now_ns(at))

    def end(self, entry: Entry) -> None:
        with self._database.write() as at:
            at.execute(
                update(audit)
                .where(audit.c.entry_id == entry.entry_id)
                .values(status=entry.status, target=entry.target, project_id=entry.project_id)
            )

    def list(
        self, project_id: str | None, sought: Sought, limit: int, after: Place | None
    ) -> tuple[Entry, ...]:
        newest = select(audit).order_by(audit.c.at_ns.desc(), audit.c.entry_id.desc()).limit(limit)
        if project_id is not None:
            newest = newest.where(audit.c.project_id == project_id)
        with self._database.read() as at:
            rows = at.execute(newest.where(*_conditions(sought, after)))
            return tuple(noun_of(Entry, row) for row in rows)

    def forget(self, older_than_ns: int, most: int) -> int:
        with self._database.write() as at:
            over = audit.c.at_ns <= self._database.now_ns(at) - older_than_ns
            oldest = select(audit.c.entry_id).where(over).order_by(audit.c.at_ns).limit(most)
            gone = at.execute(delete(audit).where(audit.c.entry_id.in_(oldest)))
            return gone.rowcount


class Uploads:
    """`app.ports.audit.Uploads`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, project_id: str, sha256: str) -> None:
        row = {"project_id": project_id, "sha256": sha256}
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            make_project(at, project_id, now_ns)
            if not insert_new(at, uploads, row | {"sent_ns": now_ns}):
                at.execute(update(uploads).filter_by(**row).values(sent_ns=now_ns))

    def known(self, project_id: str, sha256s: Iterable[str]) -> frozenset[str]:
        found: set[str] = set()
        of_project = select(uploads.c.sha256).where(uploads.c.project_id == project_id)
        with self._database.read() as at:
            for page in pages(sorted(set(sha256s))):
                found.update(at.execute(of_project.where(uploads.c.sha256.in_(page))).scalars())
        return frozenset(found)

    def forget(self, older_than_ns: int) -> int:
        with self._database.write() as at:
            over = uploads.c.sent_ns <= self._database.now_ns(at) - older_than_ns
            return at.execute(delete(uploads).where(over)).rowcount


def write_entry(at: Connection, entry: Entry | None, now_ns: int) -> None:
    """Write an entry with what it tells of."""
    if entry is not None:
        insert_new(at, audit, columns_of(replace(entry, at_ns=now_ns)))


def _conditions(sought: Sought, after: Place | None) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if sought.actor is not None:
        found.append(audit.c.actor == sought.actor)
    if sought.action is not None:
        found.append(audit.c.action == sought.action)
    if sought.begin_ns is not None:
        found.append(audit.c.at_ns >= sought.begin_ns)
    if sought.until_ns is not None:
        found.append(audit.c.at_ns < sought.until_ns)
    if after is not None:
        # The first condition follows from the other, and is what an index is entered by.
        found.append(audit.c.at_ns <= after.at_ns)
        found.append(or_(audit.c.at_ns < after.at_ns, audit.c.entry_id < after.entry_id))
    return found
