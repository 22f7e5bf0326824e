"""A client whose server and clock are the test's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from promigence import Promigence
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
