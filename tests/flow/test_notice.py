"""A spot instance's notice: its host drains, its forks say so, and nothing is replaced that still runs."""

from __future__ import annotations

import pytest

from app.domain.money import NS_PER_SECOND
from app.domain.spot import Announcement, Notice
from app.errors import Unavailable
from app.flow import report
from infra.fakes.metadata import FakeMetadata
from tests.flow.stage import PROJECT, Stage, spec
from workers.spot import Listener, zone_of

NOTICE = Notice("terminate", 120 * NS_PER_SECOND)


class Ear:
    """A listener of the stage's first host, and what it counted."""

    def __init__(self, stage: Stage) -> None:
        self.metadata = FakeMetadata("host0")
        self.counted: list[Announcement] = []
        self.stage = stage
        self.again()

    def again(self) -> None:
        """As after a restart of the worker."""
        self.listener = Listener(self.stage.ports, "host0", self.metadata, self.counted.append)

    def listen_for(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.stage.run_for(5, step=5)
            self.listener.turn()

    def gone_at_ns(self) -> int | None:
        (host,) = [host for host in self.stage.ports.hosts.list() if host.host_id == "host0"]
        return host.gone_at_ns


def test_a_host_drains_on_its_notice_and_its_forks_say_when_it_is_gone(suite: Stage) -> None:
    ear = Ear(suite)
    run_id = suite.start(spec("60s exit 0", count=2))
    suite.run_for(5)
    ear.listener.turn()
    assert {line["draining"] for line in report.forks(suite.ports, PROJECT, run_id)} == {False}
    ear.metadata.told = NOTICE
    ear.listener.turn()
    ear.listener.turn()
    assert ear.counted == [Announcement.INTERRUPTION]
    lines = report.forks(suite.ports, PROJECT, run_id)
    page = report.fork(suite.ports, PROJECT, str(lines[0]["fork_id"]))
    for told in (*lines, page, *suite.report(run_id)["forks"]):
        assert told["draining"] is True
        assert str(told["gone_at"]).endswith("Z")
    later = suite.start(spec(count=1))
    suite.run_for(20)
    assert suite.report(later)["totals"]["pending"] == 1
    waits = report.summary(suite.ports, PROJECT, later)["progress"]
    assert "no host takes forks: host0: the cloud takes it back at " in str(waits)
    assert suite.run_until_final(run_id)["totals"]["passed"] == 2
    assert {fork["draining"] for fork in suite.report(run_id)["forks"]} == {False}


def test_a_notice_is_withdrawn_only_when_it_was_away_for_a_minute(suite: Stage) -> None:
    ear = Ear(suite)
    ear.metadata.told = NOTICE
    ear.listener.turn()
    ear.metadata.told = None
    ear.listen_for(60)
    assert ear.gone_at_ns() is not None
    ear.listen_for(5)
    assert ear.gone_at_ns() is None
    waiting = suite.start(spec(count=1))
    assert suite.run_until_final(waiting)["totals"]["passed"] == 1


def test_a_notice_outlives_the_worker_that_heard_it_and_is_undone_by_the_next(
    suite: Stage,
) -> None:
    ear = Ear(suite)
    ear.metadata.told = NOTICE
    ear.listener.turn()
    ear.again()
    ear.listener.turn()
    assert ear.gone_at_ns() is not None
    ear.metadata.told = None
    ear.again()
    ear.listen_for(65)
    assert ear.gone_at_ns() is None


def test_a_silent_service_is_neither_a_notice_nor_its_end(suite: Stage) -> None:
    ear = Ear(suite)
    ear.metadata.told = NOTICE
    ear.listener.turn()
    ear.metadata.away = True
    for _ in range(20):
        suite.run_for(5, step=5)
        with pytest.raises(Unavailable):
            ear.listener.turn()
    assert ear.gone_at_ns() is not None


def test_a_recommendation_is_told_once_and_drains_nobody(suite: Stage) -> None:
    ear = Ear(suite)
    ear.metadata.advised = "2026-12-01T10:02:00Z"
    ear.listen_for(15)
    assert ear.counted == [Announcement.REBALANCE]
    assert ear.gone_at_ns() is None


def test_where_a_host_is_its_operator_says_or_its_instance() -> None:
    metadata = FakeMetadata("host0", zone="us-east-1c")
    assert zone_of("host0", None, metadata) == "us-east-1c"
    assert zone_of("host0", "us-east-1a", metadata) == "us-east-1a"
    assert zone_of("host0", "us-east-1a", None) == "us-east-1a"
    metadata.away = True
    assert zone_of("host0", None, metadata) is None
