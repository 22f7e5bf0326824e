"""A client that is told to wait waits as long as it was told, and loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from starlette.testclient import TestClient

from app.api.limits import Allowances, Pace, Throttle
from app.api.main import create_api
from promigence._engine import Pace as ClientsPace
from tests.api.test_limits import Clock
from tests.api.world import Door
from tests.sdk.door import client_of


def test_a_client_that_is_too_fast_is_slowed_down_to_its_keys_pace(
    door: Door, tmp_path: Path
) -> None:
    clock, pauses = Clock(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.now_s += seconds

    allowances = replace(Allowances(), requests=Pace(0.5, 3))
    api = create_api(door.stage.ports, door.wakes, spool=tmp_path, allowances=allowances)
    for middleware in api.user_middleware:
        if getattr(middleware.cls, "__name__", "") == Throttle.__name__:
            middleware.kwargs["clock"] = clock
    with TestClient(api) as http:
        slow = replace(door, api=api, client=http)
        client = client_of(slow, door.key, ClientsPace(clock, sleep, lambda: 0.0))
        began = clock.now_s
        assert [client.runs.list() for _ in range(9)] == [[]] * 9
    assert clock.now_s - began >= (9 - 3) / 0.5 - 0.1
    assert len(pauses) == 6
    assert 2.0 <= pauses[0] < 2.5
