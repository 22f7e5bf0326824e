"""What the bench makes of an end and of deadlines that move."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.machine import Death, DeathCause
from bench.lateness import Ended
from bench.spent import Deadlines
from infra.qemu.keeper import KILL_MARGIN_NS

MS = 1_000_000
LEASE_END_NS = 10_000 * MS


def ended(at_ns: int, seen_ns: int) -> Ended:
    late_ns = max(0, at_ns - LEASE_END_NS)
    return Ended(LEASE_END_NS, Death(DeathCause.DEADLINE, None, 9, at_ns, late_ns), seen_ns)


def test_an_end_in_time_is_early_and_not_late() -> None:
    one = ended(LEASE_END_NS - 140 * MS, LEASE_END_NS - 138 * MS)

    assert KILL_MARGIN_NS == 150 * MS
    assert one.killed_to_gone_s == pytest.approx(0.010)
    assert one.killed_to_seen_gone_s == pytest.approx(0.012)
    assert one.early_s == pytest.approx(0.140)
    assert one.late_s == 0


def test_an_end_after_the_lease_is_late_and_not_early() -> None:
    one = ended(LEASE_END_NS + 20 * MS, LEASE_END_NS + 21 * MS)

    assert one.killed_to_gone_s == pytest.approx(0.170)
    assert one.early_s == 0
    assert one.late_s == pytest.approx(0.020)


def test_extensions_are_what_a_deadline_moved_by(tmp_path: Path) -> None:
    deadlines, machine = Deadlines(tmp_path), tmp_path / "att_1"
    deadlines.look()
    machine.mkdir()
    deadlines.look()  # its file is not there yet
    for deadline_ns in (100, 100, 105, 112):
        (machine / "deadline").write_text(f"{deadline_ns}\n")
        deadlines.look()

    [(name, extensions)] = deadlines.extensions().items()
    assert name == "att_1"
    assert [by_ns for _, by_ns in extensions] == [5, 7]
    assert extensions[-1][0] == (machine / "deadline").stat().st_mtime_ns
