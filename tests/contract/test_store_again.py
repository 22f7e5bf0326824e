"""A step of an attempt that was saved and not told is saved again: nothing moves twice, and nothing is refused."""

from __future__ import annotations

from app.domain.checks import Check
from tests.contract.rows import Rows

SAMPLE = "5" * 32
SOUND = (Check("barrier", sound=True, seen="a nonce", seconds=0.1),)


def test_the_barrier_of_a_machine_is_passed_once(rows: Rows) -> None:
    claimed = rows.started()
    first = rows.store.attempts.checking(claimed, SOUND, SAMPLE)
    assert rows.store.attempts.checking(claimed, SOUND, SAMPLE) == first


def test_a_fork_is_ready_once_and_from_the_first_time_on(rows: Rows) -> None:
    claimed = rows.store.attempts.checking(rows.started(), SOUND, SAMPLE)
    first = rows.store.attempts.ready(claimed, 2_000, SOUND)
    again = rows.store.attempts.ready(claimed, 3_000, SOUND)
    assert again == first
    assert again.attempt.ready_boot_ns == 2_000
