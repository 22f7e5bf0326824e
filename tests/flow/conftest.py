"""A fresh deployment for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.elsewhere import give_up_all
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


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Stage]:
    """Two hosts that mount two bundles each; `task-suite@1` is stored, and mounted on neither."""
    made = Stage(tmp_path, hosts=2, elsewhere=True, mounts_max=2)
    assert made.build(definition())["snapshot"] == "task-suite@1"
    give_up_all(made)
    yield made
    made.stores.close()
