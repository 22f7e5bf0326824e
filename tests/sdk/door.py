"""What the tests of the client against the real API have in common."""

from __future__ import annotations

import httpx2

from promigence import Promigence
from promigence._engine import Pace
from promigence.types import Definition
from tests.api.world import Door

SUITE: Definition = {
    "name": "task-suite",
    "image": "debian-12",
    "test": {"sh": "sim: 1s exit 0", "timeout_seconds": 60},
}


def client_of(door: Door, key: str, pace: Pace | None = None) -> Promigence:
    """A client whose transport is the API's test client's, which is an httpx2 client; so it is not to be closed."""
    transport: httpx2.BaseTransport = door.client._transport
    return Promigence(key, "http://testserver", transport=transport, pace=pace)
