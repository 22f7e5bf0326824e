"""One stack for the tests that share it; those that break a stack for good make their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from promigence import Promigence
from tests.integration.stacks import DEFINITION, Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that is up, with simulated machines and `task-suite@1` stored."""
    made = Stack(tmp_path_factory.mktemp("shared") / ".promigence")
    try:
        made.up()
        with made.client() as client:
            assert client.snapshots.build(DEFINITION)["snapshot"] == "task-suite@1"
        yield made
    finally:
        made.down()


@pytest.fixture
def client(stack: Stack) -> Iterator[Promigence]:
    with stack.client() as made:
        yield made


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack that is not up yet; whatever a test does to it, nothing of it stays."""
    made = Stack(tmp_path / ".promigence")
    try:
        yield made
    finally:
        made.down()
