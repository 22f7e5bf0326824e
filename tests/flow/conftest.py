"""A fresh deployment for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.stage import Stage, definition


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """One host, nothing built."""
    made = Stage(tmp_path)
    yield made
    made.stores.close()


@pytest.fixture
def suite(stage: Stage) -> Stage:
    """One host with `task-suite@1` stored."""
    assert stage.build(definition())["snapshot"] == "task-suite@1"
    return stage
