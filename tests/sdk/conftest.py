"""A client whose server and clock are the test's, and the real API for those that want it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from promigence import Promigence
from tests.api.world import Door, open_door
from tests.flow.stage import Stage
from tests.sdk.wire import FakeTime, Wire, client_of


@pytest.fixture
def wire() -> Iterator[Wire]:
    """The server's answers; a test that leaves some unasked for fails."""
    wire = Wire()
    yield wire
    assert not wire.replies, f"never asked for: {list(wire.replies)}"


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def client(wire: Wire, time: FakeTime) -> Iterator[Promigence]:
    with client_of(wire, time) as client:
        yield client


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """The real API over a fresh deployment of fake machines."""
    stage = Stage(tmp_path)
    opened = open_door(stage, tmp_path)
    with opened.client:
        yield opened
    stage.stores.close()
