"""The drill's one line a seed, and its summary: what is counted, and what is said."""

from __future__ import annotations

from dataclasses import replace

from drills.cap.__main__ import in_words, summed_up
from drills.cap.faults import Strikes
from drills.cap.judge import Broken, Law
from drills.cap.plan import plan
from drills.cap.seed import Result

HELD = Result(
    plan=plan(1),
    cap_micros=2_000,
    spent_micros=1_900,
    totals={"passed": 4, "failed": 0, "capped": 20},
    failures={"guest_lost": 2},
    strikes=Strikes(done=["api@3", "redis@4"], missed=["keeper@70"]),
    machines=25,
    lateness_ms=(-120.0, -90.0, -60.0),
    broken=(),
    seconds=90.0,
)
BROKEN = replace(
    HELD,
    plan=plan(2),
    spent_micros=2_100,
    broken=(
        Broken(Law.OVER_CAP, "2100 of 2000"),
        Broken(Law.LEAK, "process 7"),
        Broken(Law.LEAK, "process 8"),
    ),
)


def test_a_seed_is_one_line() -> None:
    said = str(HELD)
    assert "\n" not in said
    assert said.startswith("seed 1: spent 1900 of 2000 (95.0%); 4 passed, 20 capped;")
    assert said.endswith("latest kill -60 ms; 2 strikes; 90 s: held")
    assert str(BROKEN).endswith(": 3 BROKEN")


def test_a_summary_counts_what_was_seen_by_law() -> None:
    summary = summed_up([HELD, BROKEN], 200.0)
    counted = {name: summary[name] for name in ("seeds", "over_cap", "late_kills", "leaks")}
    assert counted == {"seeds": 2, "over_cap": 1, "late_kills": 0, "leaks": 2}
    assert summary["broken"] == 3
    assert summary["spent_share"] == 1.0
    assert (summary["faults"], summary["machines"]) == (4, 50)
    assert summary["lateness_ms"] == {"p50": -90.0, "max": -60.0}


def test_a_summary_in_words_names_every_law() -> None:
    said = in_words(summed_up([BROKEN], 90.0))
    assert all(law.value in said for law in Law)
    assert "1 over_cap" in said
    assert "2 leaks" in said


def test_where_nothing_was_killed_at_its_lease_no_lateness_is_made_up() -> None:
    summary = summed_up([replace(HELD, lateness_ms=())], 90.0)
    assert summary["lateness_ms"] == {"p50": None, "max": None}
    assert "latest kill none" in str(replace(HELD, lateness_ms=()))
