"""The contract's probe, as its lines are read."""

from __future__ import annotations

import pytest

from app.domain.machine import Probe
from infra.guest.probe import parse

TEXT = "disk_id=0123\nforeign_marker=f1\nforeign_marker=f2\nmarker=m\ninterface=lo\nreached=0\n"


def test_all_that_it_saw() -> None:
    assert parse(TEXT, 9) == Probe(9, "0123", "m", ("f1", "f2"), ("lo",), False)


@pytest.mark.parametrize("reached", ["1", "", "yes"])
def test_anything_but_a_plain_no_counts_as_reached(reached: str) -> None:
    probe = parse(TEXT.replace("reached=0", f"reached={reached}"), 0)
    assert probe is not None
    assert probe.refused_target_reached


@pytest.mark.parametrize("missing", ["disk_id", "marker", "reached"])
def test_what_is_not_told_is_not_made_up(missing: str) -> None:
    lines = [line for line in TEXT.splitlines() if not line.startswith(f"{missing}=")]
    assert parse("\n".join(lines), 0) is None
    assert parse(f"{TEXT}{missing}=again\n", 0) is None


def test_noise_is_nothing() -> None:
    assert parse("", 0) is None
    assert parse("\0\xff no equals sign\n" * 50, 0) is None
