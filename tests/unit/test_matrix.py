"""The fault matrix around its judge: which cases go together, what is said of them, and what its documents say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from app.domain.failure import Phase
from app.domain.fork import EndReason, Outcome
from app.errors import FailureKind
from drills.matrix import output
from drills.matrix.batch import Batch, Played, Verdict, waves
from drills.matrix.case import Case, Terms, breaks, passes
from drills.matrix.collect import cases

DOCUMENT = Path(__file__).parents[2] / "docs" / "drills.md"
# What CI has for it, less the stack's start and the builds.
QUICK_ALONE = 4
HELD = Case(name="held", shows="all is well", expect=passes(), quick=True)
BROKEN = Case(name="broken", shows="it breaks", expect=breaks("guest_lost", "exec"))


def test_cases_with_equal_terms_share_a_run_and_others_play_after_them() -> None:
    other = dataclasses.replace(HELD, name="other", terms=Terms(timeout_s=5))
    loud = dataclasses.replace(HELD, name="loud", loud=True)
    alone = dataclasses.replace(HELD, name="alone", alone=True, loud=True)
    again = dataclasses.replace(HELD, name="again", alone=True)
    timed = dataclasses.replace(HELD, name="timed", timed=True)
    later = dataclasses.replace(other, name="later", timed=True)
    spoilt = [dataclasses.replace(HELD, name=name, lane="files") for name in ("cut", "flipped")]
    played = waves([alone, timed, spoilt[0], HELD, other, again, loud, BROKEN, spoilt[1], later])
    names = [[[names_of(batch) for batch in track] for track in wave] for wave in played]
    assert names == [
        [["held broken"], ["other"]],
        [["loud"], ["cut", "flipped"]],
        [["timed"]],
        [["later"]],
        [["alone"]],
        [["again"]],
    ]


def names_of(batch: Batch) -> str:
    return " ".join(case.name for case in batch.cases)


def test_a_summary_counts_what_was_wrong() -> None:
    sound = summed(Verdict(HELD), Verdict(BROKEN))
    assert output.held(sound)
    assert (sound["cases"], sound["runs"], sound["wrong"]) == (2, 1, {})
    wrong = summed(Verdict(HELD, ("it is failed",)), Verdict(BROKEN, uncaused="no machine"))
    assert (wrong["misnamed"], wrong["uncaused"]) == (1, 1)
    assert wrong["wrong"] == {"held": ["it is failed"], "broken": ["not caused: no machine"]}


@pytest.mark.parametrize(
    "summary",
    [
        lambda: summed(Verdict(HELD, ("it is failed",))),
        lambda: summed(Verdict(HELD, uncaused="no machine")),
        lambda: summed(Verdict(HELD), harmed=("fork 0: it is failed",)),
        lambda: summed(Verdict(HELD), accounts=("1 micro-dollar is granted",)),
        lambda: summed(Verdict(HELD), leaks=("process 7",)),
        lambda: summed(),
    ],
    ids=["misnamed", "uncaused", "harmed", "account", "leak", "nothing"],
)
def test_a_matrix_with_any_of_it_does_not_hold(summary: object) -> None:
    assert callable(summary)
    assert not output.held(summary())


def test_a_line_says_what_was_wrong_of_a_case() -> None:
    assert output.line(Verdict(HELD)).endswith("held")
    assert output.line(Verdict(HELD, ("it is failed",))).endswith("MISNAMED: it is failed")
    assert output.line(Verdict(HELD, uncaused="no fork")).endswith("NOT CAUSED: no fork")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_speaks_the_contracts_language(case: Case) -> None:
    """A word that the contract does not have could never be seen, and would be called misnamed for ever."""
    for expect in case.expected:
        assert Outcome(expect.outcome)
        assert expect.reason is None or EndReason(expect.reason)
        assert expect.phase is None or Phase(expect.phase)
        assert all(FailureKind(kind) for kind in expect.failures)
        assert not (expect.kind and expect.failures) or expect.kind == expect.failures[-1]
        assert (expect.outcome == "env_failed") <= (expect.kind is not None)
    assert (case.released and case.siblings) or case.alone
    assert case.shows
    assert not case.shows.endswith(".")


def test_every_kind_of_the_contract_is_caused_somewhere() -> None:
    expected = [expect for case in cases() for expect in case.expected]
    caused = {kind for expect in expected for kind in (*expect.failures, expect.kind) if kind}
    assert {kind.value for kind in FailureKind} == caused


def test_the_quick_ones_fit_ci() -> None:
    quick = [case for case in cases() if case.quick]
    assert len(quick) >= 20
    assert sum(case.alone for case in quick) <= QUICK_ALONE


def test_the_document_has_the_matrix_as_it_is() -> None:
    """`python -m drills.matrix --table` says what should stand there."""
    assert "\n".join(output.rows_of(cases())) in DOCUMENT.read_text()


def summed(
    *verdicts: Verdict,
    harmed: tuple[str, ...] = (),
    accounts: tuple[str, ...] = (),
    leaks: tuple[str, ...] = (),
) -> dict[str, object]:
    if not verdicts:
        return output.summed_up([], leaks, 1.0)
    batch = Batch(tuple(verdict.case for verdict in verdicts))
    return output.summed_up([(batch, Played(verdicts, harmed, accounts))], leaks, 1.0)
