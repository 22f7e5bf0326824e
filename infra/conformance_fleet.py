"""The contract of `app.ports.fleet.Fleet` as runnable checks, for every adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.domain.fleet import FleetState, Lifecycle
from app.errors import CloudRefused
from app.ports.fleet import Fleet

# The group that a subject begins with.
LEAST, MOST, DESIRED = 1, 4, 2


@dataclass(frozen=True, slots=True)
class Subject:
    """A fleet of `DESIRED` instances between `LEAST` and `MOST`; `settle` lets launches and ends come about."""

    fleet: Fleet
    settle: Callable[[], None]


Check = Callable[[Subject], None]


def check_its_state_is_what_was_asked_for(subject: Subject) -> None:
    state = _settled(subject)
    assert (state.desired, state.least, state.most) == (DESIRED, LEAST, MOST)
    assert len(state.living) == DESIRED
    assert all(each.lifecycle is Lifecycle.IN_SERVICE for each in state.living)
    assert all(each.zone for each in state.living)
    assert len({each.instance_id for each in state.living}) == DESIRED


def check_more_come_when_they_are_asked_for(subject: Subject) -> None:
    before = _ids(_settled(subject))
    subject.fleet.desire(DESIRED + 1)
    subject.fleet.desire(DESIRED + 1)
    after = _settled(subject)
    assert after.desired == DESIRED + 1
    assert len(after.living) == DESIRED + 1
    assert before < _ids(after)


def check_nobody_goes_beyond_the_groups_own_bounds(subject: Subject) -> None:
    for count in (LEAST - 1, MOST + 1):
        assert _refusal(lambda count=count: subject.fleet.desire(count)) == "limit_exceeded"  # type: ignore[misc]
    assert subject.fleet.state().desired == DESIRED


def check_what_is_protected_says_so_and_is_not_picked(subject: Subject) -> None:
    names = tuple(_ids(_settled(subject)))
    subject.fleet.protect((*names, "i-00000000000000000"))
    subject.fleet.protect(names)
    assert all(each.protected for each in subject.fleet.state().living)
    subject.fleet.desire(LEAST)
    assert _ids(_settled(subject)) == set(names)


def check_one_is_ended_and_none_comes_in_its_place(subject: Subject) -> None:
    names = sorted(_ids(_settled(subject)))
    subject.fleet.protect(tuple(names))
    subject.fleet.retire(names[0])
    state = _settled(subject)
    assert state.desired == DESIRED - 1
    assert _ids(state) == set(names[1:])
    subject.fleet.retire(names[0])
    subject.fleet.retire("i-00000000000000000")
    assert subject.fleet.state().desired == DESIRED - 1


def check_the_least_stay(subject: Subject) -> None:
    names = sorted(_ids(_settled(subject)))
    subject.fleet.retire(names[0])
    subject.settle()
    assert _refusal(lambda: subject.fleet.retire(names[1])) == "limit_exceeded"
    assert _ids(_settled(subject)) == {names[1]}


def check_who_has_ended_is_known_for_sure(subject: Subject) -> None:
    names = sorted(_ids(_settled(subject)))
    asked = (*names, "i-00000000000000000", "a host of another kind")
    assert subject.fleet.ended(asked) == frozenset()
    subject.fleet.retire(names[0])
    subject.settle()
    assert subject.fleet.ended(asked) == {names[0]}
    assert subject.fleet.ended(()) == frozenset()


CHECKS: tuple[Check, ...] = (
    check_its_state_is_what_was_asked_for,
    check_more_come_when_they_are_asked_for,
    check_nobody_goes_beyond_the_groups_own_bounds,
    check_what_is_protected_says_so_and_is_not_picked,
    check_one_is_ended_and_none_comes_in_its_place,
    check_the_least_stay,
    check_who_has_ended_is_known_for_sure,
)


def _settled(subject: Subject) -> FleetState:
    subject.fleet.state()
    subject.settle()
    return subject.fleet.state()


def _ids(state: FleetState) -> set[str]:
    return {each.instance_id for each in state.living}


def _refusal(act: Callable[[], None]) -> str:
    try:
        act()
    except CloudRefused as refused:
        return refused.code
    return "nothing"
