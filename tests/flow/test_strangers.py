"""Who may log in and is not there any more is shut out, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.leak import GRACE_NS, LeakKind
from app.domain.money import NS_PER_SECOND
from app.errors import Unavailable
from app.flow import admit
from app.ports.access import Access
from infra.fakes.access import FakeLogins, FakeSecrets
from infra.fakes.fleet import FakeFleet
from tests.flow.stage import Stage
from workers.reaping import Reaper

HOUR_S = GRACE_NS[LeakKind.HOST_ACCESS] / NS_PER_SECOND
STRANGER = "i-gone"


class Door:
    """A stage's one host, let in, and a reaper that comes by."""

    def __init__(self, stage: Stage, fleet: FakeFleet | None = None) -> None:
        self.stage = stage
        self.fleet = fleet
        self.access = Access(FakeLogins("database"), FakeLogins("queue"), FakeSecrets())
        self.memory = admit.Memory()
        self.counted: list[LeakKind] = []
        asked = (stage.ports, self.access, fleet, self.memory)
        self.reaper = Reaper(
            lambda: admit.strangers(*asked),
            lambda leak: admit.mend(*asked, leak),
            self.counted.append,
        )
        self.here = stage.host.host_id
        admit.admit(self.access, self.here)

    def comes_by(self, looks: int = 2) -> frozenset[str]:
        """Who may still log in afterwards."""
        for _ in range(looks):
            self.reaper.turn()
        return admit.known(self.access)


@pytest.fixture
def door(stage: Stage) -> Door:
    return Door(stage)


def test_a_host_that_is_there_stays(door: Door) -> None:
    door.comes_by()
    for _ in range(3):
        door.stage.clock.advance(HOUR_S)
        door.stage.tick()
        assert door.comes_by() == {door.here}
    assert door.counted == []


def test_a_host_that_is_silent_for_an_hour_is_shut_out(door: Door) -> None:
    door.stage.clock.advance(HOUR_S - 60)
    assert door.comes_by() == {door.here}
    door.stage.clock.advance(120)
    assert door.comes_by(1) == {door.here}
    assert door.comes_by(1) == frozenset()
    assert door.counted == [LeakKind.HOST_ACCESS]


def test_one_that_never_said_anything_has_its_hour_from_the_first_look(door: Door) -> None:
    door.stage.clock.advance(5 * HOUR_S)
    door.stage.tick()
    admit.admit(door.access, STRANGER)
    assert STRANGER in door.comes_by()
    door.stage.clock.advance(HOUR_S + 1)
    door.stage.tick()
    assert door.comes_by() == {door.here}


def test_who_comes_between_two_looks_is_no_stranger(door: Door, tmp_path: Path) -> None:
    admit.admit(door.access, STRANGER)
    door.comes_by()
    door.stage.clock.advance(HOUR_S + 1)
    door.stage.tick()
    assert STRANGER in door.comes_by(1)
    door.stage.add_host(STRANGER, tmp_path, 1)
    door.stage.tick()
    assert STRANGER in door.comes_by(3)
    assert door.counted == []


def test_an_instance_of_the_fleet_is_none_however_silent(stage: Stage) -> None:
    fleet = FakeFleet(stage.clock, most=1, desired=1)
    (instance,) = fleet.state().instances
    door = Door(stage, fleet)
    admit.admit(door.access, instance.instance_id)
    door.comes_by()
    stage.clock.advance(3 * HOUR_S)
    stage.tick()
    assert instance.instance_id in door.comes_by()


def test_half_of_an_access_is_one_too(door: Door) -> None:
    door.access.queue.create(STRANGER)
    door.comes_by()
    door.stage.clock.advance(HOUR_S + 1)
    door.stage.tick()
    assert door.comes_by() == {door.here}


def test_while_the_fleet_cannot_be_asked_nobody_is_shut_out(stage: Stage) -> None:
    door = Door(stage, FakeFleet(stage.clock))
    stage.clock.advance(2 * HOUR_S)
    assert door.fleet is not None
    door.fleet.away = True
    with pytest.raises(Unavailable):
        door.comes_by()
    assert admit.known(door.access) == {door.here}
