"""What machines did and cost, read back from the rows."""

from __future__ import annotations

from typing import Protocol

from app.domain.usage import Used, Window


class Usage(Protocol):
    def read(self, window: Window, project_id: str | None, *, snapshots: bool) -> Used:
        """All that was spent in the window, by everybody: an estimate needs the hours of the whole deployment.

        With `snapshots` the cells of `project_id` (None: of every project) name theirs. All is read at one instant of
        the database's clock. The charges of all cells over all time are the charges of all runs, to the micro-dollar.
        Raises BadRequest(too_many_rows), Unavailable(database_away).
        """
        ...
