"""What happens in a run."""

from __future__ import annotations

from typing import Any, TypedDict


class Event(TypedDict):
    """One transition of a run or of one of its forks; the numbers of a run are 1, 2, 3 and so on.

    `kind` says what happened and what is in `data` (docs/events.md); a later release may have more kinds. `fork_id`
    and `index` are None for what happened to the run as a whole.
    """

    run_id: str
    number: int
    at: str
    kind: str
    fork_id: str | None
    index: int | None
    attempt_id: str | None
    host: str | None
    reason: str | None
    data: dict[str, Any]
