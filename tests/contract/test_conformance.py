"""The fakes keep the contract that the real parts keep (tests/e2e/test_conformance.py runs the same checks
on those).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.domain.machine import Shape
from infra.conformance import CHECKS, Subject
from infra.fakes.clock import ManualClock
from infra.fakes.guest import FakeGuest
from infra.fakes.machines import FakeBundles, FakeImages, FakeMachines
from infra.fakes.world import World


@pytest.fixture(params=["stored here", "stored elsewhere"])
def subject(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Subject]:
    clock = ManualClock()
    world = World(clock)

    def until(condition: Callable[[], bool], seconds: float) -> bool:
        for _ in range(int(seconds)):
            world.pump()
            if condition():
                return True
            clock.advance(1)
        return False

    made = Subject(
        machines=FakeMachines(world, "host0"),
        guest=FakeGuest(world),
        bundles=FakeBundles(
            tmp_path / "here",
            tmp_path / "elsewhere" if request.param == "stored elsewhere" else None,
        ),
        clock=clock,
        image=FakeImages().boot_image("debian-12"),
        shape=Shape(1, 128, 1),
        say=lambda text, code, seconds: ("sim:", f"{seconds}s", "print", text, "exit", str(code)),
        until=until,
    )
    yield made
    made.clean_up()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_fakes(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)
