"""The page about rewards: its code runs on the report of the step that it tells of, and its figures are that step's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import grpo
from promigence import rewards
from promigence.types import Report
from tests.api.world import open_door
from tests.flow.stage import Stage
from tests.sdk.door import client_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rewards.md").read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """The step of the page, run once."""
    folder = tmp_path_factory.mktemp("grpo")
    stage = Stage(folder, slots=200)
    door = open_door(stage, folder)
    with door.client:
        yield grpo.run(client_of(door, door.key))
    stage.stores.close()


def test_the_pages_figures_are_those_of_the_step(report: Report) -> None:
    step = rewards(report)
    assert grpo.table(grpo.compared(step)) in PAGE
    assert grpo.totals(step) in PAGE


def test_the_pages_code_runs_and_leaves_out_what_says_nothing(report: Report) -> None:
    names: dict[str, Any] = {"report": report}
    exec(compile(CODE, "docs/rewards.md", "exec"), names)  # noqa: S102 - our own page
    step, update = names["step"], names["update"]
    assert update == grpo.advantages(rewards(report))
    assert len(update) == len(step["mask"]) == 128
    assert all(each is None for each, ok in zip(update, step["mask"], strict=True) if not ok)
    (broken,) = [group for group in step["groups"] if group["key"] == "broken"]
    assert broken["valid"] < 2
    assert [update[i] for i in broken["indices"]] == [None] * 16
    (solved,) = [group for group in step["groups"] if group["key"] == "solved"]
    assert {update[i] for i in solved["indices"]} == {0.0, None}


def test_every_failure_of_the_step_is_an_environments(report: Report) -> None:
    """What the tables rest on: broken samples have no reward, and each broke in a way that was planted."""
    kinds = {failed["kind"] for failed in report["environment_failures"]}
    assert kinds == {"guest_lost", "own_test_failed", "reported_by_command"}
    for fork in report["forks"]:
        assert (fork["outcome"] == "env_failed") is (fork["reward"] is None)
