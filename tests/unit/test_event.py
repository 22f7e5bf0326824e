"""Events as they are told and folded: where a fork stands, and how much one event may say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.domain.event import MAX_DATA_BYTES, Event, EventKind, Standing, bounded, replay
from app.domain.fork import EndReason, ForkState, Outcome
from app.errors import Conflict

JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=60,
)


def of(kind: EventKind, fork_id: str | None = "f", **more: object) -> Event:
    given = {"host_id": "host0", "attempt_id": "att", "reason": None, "data": {}, **more}
    return Event("run", kind, fork_id, 0, **given)  # type: ignore[arg-type]


PLACED = of(EventKind.PLACED)
RESTORING = of(EventKind.RESTORING)
UP = (PLACED, RESTORING, of(EventKind.CHECKING), of(EventKind.READY))


def standing(*events: Event) -> Standing:
    return replay(events)["f"]


def test_a_fork_of_which_nothing_is_told_waits() -> None:
    assert replay([of(EventKind.RUN_STARTED, None)]) == {}
    assert Standing().state is ForkState.QUEUED


def test_a_life_is_folded_to_its_end() -> None:
    task = of(EventKind.COMMAND_INTENDED, data={"state": "running"})
    done = of(EventKind.COMMAND_ENDED, data={"state": "running"})
    end = of(EventKind.FORK_ENDED, reason="command_passed")
    assert standing(*UP, task).state is ForkState.RUNNING
    assert standing(*UP, task, done, end) == Standing(
        ForkState.ENDED,
        EndReason.COMMAND_PASSED,
        Outcome.PASSED,
        None,
        "host0",
        "att",
        1,
    )


def test_a_replaced_fork_begins_again_with_one_machine_more() -> None:
    failed = (of(EventKind.ATTEMPT_FAILED), of(EventKind.REPLACED))
    assert standing(*UP, *failed) == Standing(attempts=1)
    assert standing(*UP, *failed, PLACED, RESTORING).attempts == 2


def test_a_wish_and_a_lost_place_are_seen() -> None:
    assert standing(PLACED, of(EventKind.UNPLACED, host_id=None)) == Standing()
    asked = standing(*UP, of(EventKind.STOP_ASKED, reason="cancelled"))
    assert (asked.state, asked.stop_asked) == (ForkState.READY, EndReason.CANCELLED)


@pytest.mark.parametrize(
    "events",
    [
        [of(EventKind.READY)],
        [PLACED, of(EventKind.CHECKING)],
        [of(EventKind.FORK_ENDED, reason="cancelled"), of(EventKind.RESTORING)],
        [*UP, of(EventKind.RESTORING)],
    ],
)
def test_what_no_fork_can_do_is_refused(events: list[Event]) -> None:
    with pytest.raises(Conflict):
        replay(events)


def test_small_facts_stay_as_they_are() -> None:
    facts: dict[str, object] = {
        "message": "x" * 4000,
        "list": list(range(60)),
        "none": None,
        "deep": {"a": {"b": 1}},
    }
    assert bounded(facts) == facts


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    cut = bounded({"console": "begin" + "x" * 100_000 + "end"})["console"]
    assert isinstance(cut, str)
    assert cut.startswith("begin")
    assert cut.endswith("end")


@given(some.dictionaries(some.text(), JSON), some.integers(1, 400))
def test_no_event_says_more_than_it_may(facts: dict[str, object], times: int) -> None:
    many = {f"{name}{number}": value for name, value in facts.items() for number in range(times)}
    assert len(json.dumps(bounded(many)).encode()) <= MAX_DATA_BYTES


def test_what_cannot_be_cut_to_size_is_only_counted() -> None:
    nested: dict[str, object] = {
        f"{n}": {f"{m}": {f"{k}": "\x01" * 64 for k in range(8)} for m in range(8)}
        for n in range(999)
    }
    cut = bounded(nested)
    assert len(json.dumps(cut).encode()) <= MAX_DATA_BYTES
