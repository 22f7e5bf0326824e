"""Why a fork is where it is: from the rows and events of one instant."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.explanation import explanation
from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND
from app.domain.spot import Notice
from app.errors import FailureKind, NotFound
from tests import builders as a
from tests.contract.rows import Rows

OTHER = "host1"


def told(rows: Rows, fork_id: str) -> dict[str, Any]:
    return explanation(rows.store.hosts.case(fork_id), rows.store.hosts.list())


def fork_ids(rows: Rows, count: int, **more: Any) -> list[str]:
    return [fork.fork_id for fork in rows.store.runs.forks(rows.start(count, **more).run_id)]


def test_each_place_is_told_with_what_stood_against_the_others(rows: Rows) -> None:
    rows.host()
    rows.host(OTHER, slots=1)
    rows.store.hosts.heartbeat(a.HOST, ("build_1",))
    (fork_id,) = fork_ids(rows, 1)
    rows.place()
    page = told(rows, fork_id)
    assert (page["state"], page["host"], page["waits"]) == ("queued", a.HOST, None)
    assert page["now"].startswith(f"it has its place on {a.HOST}, and is next")
    (placed,) = page["history"]
    assert (placed["what"], placed["host"]) == ("placed", a.HOST)
    assert placed["reason"] == "warm here; spread: room for 16 such forks before it"
    (against,) = placed["against"]
    assert against == {
        "why": "would have to mount the snapshot first",
        "hosts": [OTHER],
        "more": 0,
    }


def test_a_second_place_is_told_after_the_first_and_why_it_was_lost(rows: Rows) -> None:
    rows.host()
    (fork_id,) = fork_ids(rows, 1)
    rows.place()
    rows.host(OTHER)
    claimed = rows.open()
    rows.close(claimed, 3, then=None, failure=a.failed(FailureKind.HOST_DISK_FULL))
    rows.place()
    page = told(rows, fork_id)
    assert [each["what"] for each in page["history"]] == [
        "placed",
        "attempt_failed",
        "replaced",
        "placed",
    ]
    assert page["needs"]["not_again_on"] == [a.HOST]
    assert page["host"] == OTHER
    (against,) = page["history"][-1]["against"]
    assert (against["why"], against["hosts"]) == ("an earlier attempt failed here", [a.HOST])


def test_a_fork_that_waits_is_told_what_each_host_lacks_and_who_is_before_it(rows: Rows) -> None:
    rows.host(slots=1)
    rows.host(OTHER)
    rows.store.hosts.give_notice(OTHER, Notice("terminate", 120 * NS_PER_SECOND))
    first = fork_ids(rows, 3)
    rows.clock.advance(1)
    second = fork_ids(rows, 2)
    rows.place()
    page = told(rows, second[1])
    assert page["now"] == "1 of 2 hosts could take it, and none has room now"
    assert page["waits"]["ahead"] == 3
    here, there = page["waits"]["hosts"]
    assert here == {"host": a.HOST, "why_not": "no free slot", "if_it_were_empty": True}
    assert there["host"] == OTHER
    assert there["why_not"].startswith("the cloud takes it back at ")
    assert there["if_it_were_empty"] is False
    assert told(rows, first[1])["waits"]["ahead"] == 0
    assert told(rows, first[0])["waits"] is None


def test_a_projects_limit_is_named(rows: Rows) -> None:
    rows.host()
    rows.store.projects.set_limits(a.PROJECT, {"max_forks": 1})
    forks = fork_ids(rows, 2)
    rows.place()
    page = told(rows, forks[1])
    assert page["now"] == "its project's limit of 1 forks at once is reached"
    assert (page["waits"]["project_max_forks"], page["waits"]["project_live_forks"]) == (1, 1)


def test_a_key_that_no_host_has_is_named(rows: Rows) -> None:
    (fork_id,) = fork_ids(rows, 1)
    assert told(rows, fork_id)["now"] == "no host was heard of in the last day"
    rows.host(restore_keys=())
    page = told(rows, fork_id)
    assert page["now"] == "no host could take it, were it empty"
    (host,) = page["waits"]["hosts"]
    assert host["why_not"] == f"cannot restore {a.KEY}"


def test_one_that_runs_or_has_ended_waits_for_nothing(rows: Rows) -> None:
    claimed = rows.started()
    fork_id = claimed.fork.fork_id
    assert told(rows, fork_id)["now"] == f"it is restoring on {a.HOST}"
    rows.store.runs.ask_stop(claimed.run.run_id, EndReason.CANCELLED)
    assert told(rows, fork_id)["now"] == "it is asked to stop: cancelled"
    rows.close(claimed, 3, EndReason.CANCELLED)
    assert told(rows, fork_id)["now"] == "it has ended: cancelled"
    assert told(rows, fork_id)["waits"] is None


def test_a_fork_that_never_was_is_none(rows: Rows) -> None:
    with pytest.raises(NotFound, match="fork_9"):
        rows.store.hosts.case("fork_9")
