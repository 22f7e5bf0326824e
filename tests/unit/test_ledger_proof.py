"""The proof of the cap's laws at length: 10,000 programs, in which everything that may happen has happened."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from tests.ledger.events import TRANSITIONS
from tests.ledger.programs import PROGRAMS, SETTINGS, play

EXAMPLES = 10_000


@pytest.mark.timeout(900)
def test_the_laws_hold_whatever_happens() -> None:
    reached: Counter[str] = Counter()

    @settings(SETTINGS, max_examples=EXAMPLES)
    @given(PROGRAMS)
    def proof(program: bytes) -> None:
        reached.update(play(program).reached)
        reached["programs"] += 1

    proof()
    assert reached["programs"] >= EXAMPLES
    unseen = sorted(name for name in TRANSITIONS if not reached[name])
    assert not unseen, f"a proof that never saw {unseen} proves nothing of it"
