"""The API over a fresh deployment for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.world import Door, open_door
from tests.flow.stage import Stage, definition


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """One host, nothing built."""
    stage = Stage(tmp_path)
    opened = open_door(stage, tmp_path)
    with opened.client:
        yield opened
    stage.stores.close()


@pytest.fixture
def suite(door: Door) -> Door:
    """One host with `task-suite@1` stored."""
    assert door.stage.build(definition())["snapshot"] == "task-suite@1"
    return door


@pytest.fixture(scope="session")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One door for all tests whose requests are refused: behind it are `task-suite@1` and a held fork, and stay so."""
    path = tmp_path_factory.mktemp("still")
    stage = Stage(path)
    opened = open_door(stage, path)
    with opened.client:
        stage.build(definition())
        opened.made = {"fork_id": opened.held_fork()}
        yield opened
        assert opened.get(f"/v1/forks/{opened.made['fork_id']}")["state"] == "ready"
        assert len(opened.get("/v1/runs")["runs"]) == 1
    stage.stores.close()
