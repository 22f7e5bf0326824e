"""Who changed what, and who has sent which bytes. Rows like those of `store.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from app.domain.audit import Entry, Place, Sought


class Audit(Protocol):
    """The log of changes. An entry is written before what it tells of is done, or in the same transaction
    (`Execs.request`); so nothing that was done is missing from it, whoever dies when.
    """

    def begin(self, entry: Entry) -> None:
        """Write it, at the database's time. Twice is safe: the first stays."""
        ...

    def end(self, entry: Entry) -> None:
        """Note its `status`, what came of it, and its `target` and `project_id` as they are known now."""
        ...

    def list(
        self, project_id: str | None, sought: Sought, limit: int, after: Place | None
    ) -> tuple[Entry, ...]:
        """Newest first, of a project, or of all and the deployment itself; those after `after`."""
        ...

    def forget(self, older_than_ns: int, most: int) -> int:
        """Remove entries as old as this, at most so many; how many it were."""
        ...


class Uploads(Protocol):
    """Which bytes a project has sent. Blobs are one store for all, named by their content: whether bytes are in it
    would tell a project what others have.
    """

    def note(self, project_id: str, sha256: str) -> None:
        """This project has sent these bytes just now. Twice is safe."""
        ...

    def known(self, project_id: str, sha256s: Iterable[str]) -> frozenset[str]:
        """Those of them that it has sent, and that were not forgotten since."""
        ...

    def forget(self, older_than_ns: int) -> int:
        """Forget what was sent so long ago and not again; the bytes are not touched, and may be sent again."""
        ...
