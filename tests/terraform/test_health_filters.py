"""Alarms are set on what the billing worker says: the filters' names are those of its log line, and find it there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from app.domain.health import Health
from app.domain.scaling import Plan
from tests.flow.stage import Stage
from tests.terraform.whole import Whole
from workers import health

TERM = re.compile(r"\(\$\.(\w+) = (?:\"(\w+)\"|\*)\)")


@pytest.fixture
def filters(whole: Whole) -> dict[str, dict[str, Any]]:
    """The filters over the line, by the metric that each makes, as they are in a deployment."""
    return {
        each["index"]: each["values"]
        for each in whole.resources
        if (each["type"], each["name"]) == ("aws_cloudwatch_log_metric_filter", "health")
    }


@pytest.fixture
def line(tmp_path: Path) -> dict[str, Any]:
    """One line, of a billing worker that has looked at its fleet."""
    stage = Stage(tmp_path)
    watch = health.Watch(stage.clock, tmp_path / "tick")
    watch.planned(lambda _: None)(Plan(wanted_slots=1, wanted_hosts=1, present_hosts=1))
    with structlog.testing.capture_logs() as said:
        health.tell(stage.ports, stage.stores.census, watch)
    return dict(said[-1])


def test_every_field_has_its_metric_and_every_metric_its_field(
    filters: dict[str, dict[str, Any]],
) -> None:
    assert filters.keys() == {field.name for field in fields(Health)}
    for name, each in filters.items():
        (made,) = each["metric_transformation"]
        assert (made["name"], made["value"]) == (name, f"$.{name}")


def test_every_filter_finds_its_number_in_the_line(
    filters: dict[str, dict[str, Any]], line: dict[str, Any]
) -> None:
    for name, each in filters.items():
        terms = TERM.findall(each["pattern"])
        assert [field for field, _ in terms] == ["event", name], each["pattern"]
        assert all(line[field] == wanted for field, wanted in terms if wanted)
        assert type(line[name]) in (int, float)


def test_they_read_the_log_of_the_billing_worker(filters: dict[str, dict[str, Any]]) -> None:
    assert {each["log_group_name"] for each in filters.values()} == {"/promigence/trial/billing"}
