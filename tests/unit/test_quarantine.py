"""Which failures are laid at a host's door, and when they are enough."""

from __future__ import annotations

import pytest

from app.domain.failure import HOST_FAULTS, Phase
from app.domain.quarantine import (
    BREAKS_IN_A_ROW,
    FIRST_PAUSE_NS,
    LONGEST_PAUSE_NS,
    SAYS_NOTHING,
    Strike,
    judge,
    pause_ns,
    strike_of,
    struck,
)
from app.errors import FailureKind
from tests.builders import failed

NOBODY: frozenset[str] = frozenset()


def strikes(*named: tuple[str, str]) -> tuple[Strike, ...]:
    """Of (fork, bundle)."""
    return tuple(
        Strike(fork, bundle, FailureKind.RESTORE_FAILED, Phase.RESTORE) for fork, bundle in named
    )


THREE = strikes(("f1", "a"), ("f2", "b"), ("f3", "a"))
OF_ONE_BUNDLE = strikes(("f1", "a"), ("f2", "a"), ("f3", "a"))


@pytest.mark.parametrize("kind", FailureKind)
def test_a_kind_speaks_against_a_host_while_a_machine_comes_up_unless_it_says_nothing(
    kind: FailureKind,
) -> None:
    for phase in (Phase.RESTORE, Phase.BARRIER, Phase.CONTRACT):
        found = strike_of(failed(kind, phase=phase), "f", "b")
        assert (found is None) == (kind in SAYS_NOTHING)


@pytest.mark.parametrize("kind", FailureKind)
def test_later_only_a_fault_of_the_host_itself_speaks_against_it(kind: FailureKind) -> None:
    for phase in (Phase.TEST, Phase.EXEC, Phase.GRADE, Phase.COLLECT):
        found = strike_of(failed(kind, phase=phase), "f", "b")
        assert (found is not None) == (kind in HOST_FAULTS and kind not in SAYS_NOTHING)


def test_what_a_task_may_have_caused_says_nothing() -> None:
    failure = failed(FailureKind.HOST_STALLED, phase=Phase.EXEC, task_may_have_caused=True)
    assert strike_of(failure, "f", "b") is None
    assert strike_of(None, "f", "b") is None


def test_a_hook_of_the_snapshots_own_says_nothing_of_the_host() -> None:
    hook = failed(FailureKind.BARRIER_FAILED, phase=Phase.BARRIER, evidence={"command": "reseed"})
    assert strike_of(hook, "f", "b") is None


def test_a_bundle_that_could_not_be_mounted_says_nothing_of_what_is() -> None:
    for kind in (FailureKind.SNAPSHOT_UNAVAILABLE, FailureKind.HOST_DISK_FULL):
        mount = failed(kind, phase=Phase.RESTORE, evidence={"mount_tries": 1})
        assert strike_of(mount, "f", "b") is None


def test_a_fork_counts_once_however_often_it_fails_here() -> None:
    seen: tuple[Strike, ...] = ()
    for _ in range(10):
        seen = struck(seen, THREE[0])
    assert seen == THREE[:1]
    assert judge(seen, NOBODY, 0, 0) is None


def test_no_more_is_remembered_than_is_needed() -> None:
    seen: tuple[Strike, ...] = ()
    for number in range(10):
        seen = struck(seen, strikes((f"f{number}", "a"))[0])
    assert [each.fork_id for each in seen] == ["f7", "f8", "f9"]
    assert len(seen) == BREAKS_IN_A_ROW


def test_several_forks_in_a_row_are_enough_and_fewer_are_not() -> None:
    assert judge(THREE[:2], NOBODY, 0, 7) is None
    found = judge(THREE, NOBODY, 0, 7)
    assert found is not None
    assert found.reason == "it broke 3 forks in a row: restore_failed"
    assert found.kinds == (FailureKind.RESTORE_FAILED,)
    assert found.bundles == ("a", "b")
    assert (found.since_ns, found.due_ns) == (7, 7 + FIRST_PAUSE_NS)
    assert not found.by_operator


def test_a_snapshot_that_fails_elsewhere_too_is_the_snapshot() -> None:
    assert judge(OF_ONE_BUNDLE, frozenset({"a"}), 0, 0) is None
    assert judge(OF_ONE_BUNDLE, frozenset({"b"}), 0, 0) is not None
    assert judge(THREE, frozenset({"a"}), 0, 0) is not None  # another broke here as well


def test_pauses_grow_and_are_bounded() -> None:
    pauses = [pause_ns(tests) for tests in range(100)]
    assert pauses[0] == FIRST_PAUSE_NS
    assert pauses == sorted(pauses)
    assert pauses[1] == 2 * pauses[0]
    assert set(pauses[6:]) == {LONGEST_PAUSE_NS}
