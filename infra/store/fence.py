"""The fence: a write that follows a machine's work names its claim, and is dropped if another holds it by now."""

from __future__ import annotations

from sqlalchemy import Connection

from app.domain.run import Attempt, Claimed, Fork
from app.errors import StaleClaim
from infra.store.rows import find_attempt, lock_forks
from infra.store.tables import forks


def held(at: Connection, claimed: Claimed) -> tuple[Fork, Attempt]:
    """Fork and open attempt of a claim, locked, as they are now.

    Raises StaleClaim when another process holds the attempt, or it is closed.
    """
    attempt_id = claimed.attempt.attempt_id
    found = lock_forks(at, forks.c.fork_id == claimed.fork.fork_id)
    attempt = find_attempt(at, attempt_id, lock=True)
    if not found or attempt is None or attempt.closed_boot_ns is not None:
        raise StaleClaim(attempt_id)
    if attempt.claim != claimed.attempt.claim:
        raise StaleClaim(attempt_id)
    return found[0], attempt
