"""Programs: bytes, five of which are an event of the simulated cluster and all its choices."""

from __future__ import annotations

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st

from app.domain.fork import ForkState
from tests.ledger.events import EVENTS, wind_down
from tests.ledger.laws import check
from tests.ledger.world import Chance, World

STEPS = 100
# How often an event comes; the others once. Machines are opened more often than hosts lose power.
OFTEN = {
    "start": 6,
    "place": 8,
    "settle": 6,
    "open_attempt": 18,
    "ready": 8,
    "finish": 6,
    "fail": 4,
    "attend": 10,
    "recover": 6,
    "wake": 4,
    "heal": 4,
    "deliver": 10,
    "bill_reads": 6,
    "bill_writes": 10,
    "wait": 10,
}
DICE = [name for name in EVENTS for _ in range(OFTEN.get(name, 1))]
# Of a fixed length: what does not matter shrinks to 0, which is no event. Integers are drawn with a liking for small
# ones, and eight times as slowly.
WIDTH = 5
PROGRAMS = st.binary(min_size=WIDTH * STEPS, max_size=WIDTH * STEPS)
SETTINGS = settings(
    settings.default,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def play(program: bytes) -> World:
    """Run a program. The laws are checked after each of its events, and when all has come to its end."""
    world = World()
    for at in range(0, len(program), WIDTH):
        chance = Chance(int.from_bytes(program[at : at + WIDTH], "little"))
        name = DICE[chance.below(len(DICE))]
        if name != "nothing":
            note(f"{name} {chance.left}")
        EVENTS[name](world, chance)
        check(world)
    wind_down(world)
    check(world)
    left = [fork for fork in world.books.forks.values() if fork.state is not ForkState.ENDED]
    assert not left, f"never ended: {left}"
    assert all(run.ended for run in world.books.runs.values())
    assert all(run.purse.granted_micros == 0 for run in world.books.runs.values())
    return world
