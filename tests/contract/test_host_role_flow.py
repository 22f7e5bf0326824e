"""Whole runs and builds on a real PostgreSQL, each host's worker with its own host's login: nothing it does is refused.

The control plane (placing, billing, the API's verbs) has the owner's login, as in a deployment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.machine import DeathCause
from app.domain.run import Exec, ExecPurpose, StopWhen
from app.domain.spot import Notice
from app.domain.worker import Worker
from app.errors import FailureKind
from app.flow import hold, inspect, leaks, recover, selftest
from app.ports import Ports
from infra.fakes.machines import FakeImages
from infra.fakes.traces import FakeTraces
from infra.store import Stores, create_store
from tests.contract.conftest import truncate
from tests.contract.host_logins import HostLogins
from tests.contract.rows import Rows
from tests.flow.stage import PROJECT, Stage, definition, ports_of, sim, spec


class HostedStage(Stage):
    """A deployment whose hosts log in as themselves."""

    def __init__(self, tmp_path: Path, url: str, **more: Any) -> None:
        self._url, self._folder = url, tmp_path
        self._ports: dict[str, Ports] = {}
        super().__init__(tmp_path, **more)

    def opened(self) -> Stores:
        truncate(self._url)
        self.logins = HostLogins(self._url, self.clock)
        return create_store(self._url, key_secret=b"k" * 32, now_ns=self.clock.wall_ns)

    def ports_at(self, host_id: str) -> Ports:
        if host_id not in self._ports:
            images = FakeImages("debian-12")
            store = self.logins.store(host_id)
            self._ports[host_id] = ports_of(store, self.bells, self.clock, images, self._folder)
        return self._ports[host_id]

    def close(self) -> None:
        rows = Rows(self.stores, self.clock)
        rows.check_laws()
        rows.check_events()
        self.logins.close()
        self.stores.close()


@pytest.fixture
def hosted(tmp_path: Path, postgres_url: str) -> Iterator[HostedStage]:
    """Two hosts that fetch what is stored, `task-suite@1` among it."""
    made = HostedStage(tmp_path, postgres_url, hosts=2, slots=10, elsewhere=True)
    assert made.build(definition())["snapshot"] == "task-suite@1"
    yield made
    made.close()


def test_runs_with_all_that_befalls_them(hosted: HostedStage) -> None:
    for world in hosted.worlds.values():
        world.fault("wake", FailureKind.BARRIER_FAILED)
    asked = spec("2s exit 0", count=6, verify_each=True, keep_failed=1, grade=sim("1s exit 1"))
    page = hosted.run_until_final(hosted.start(asked))
    assert page["totals"]["failed"] == 6
    strict = spec(
        "60s exit 0", count=20, environment_retries=0, stop_when=StopWhen(0.1), verify_each=True
    )
    for world in hosted.worlds.values():
        world.clear()
        world.fault("wake", FailureKind.BARRIER_FAILED)
    page = hosted.run_until_final(hosted.start(strict))
    assert Counter(fork["reason"] for fork in page["forks"])["stopped_by_rule"] == 18
    assert page["stopped"]["env_failed"] == 2
    assert {fork["host"] for fork in page["forks"]} == {"host0", "host1"}


def test_held_forks_and_their_commands(hosted: HostedStage) -> None:
    run_id = hosted.start(spec(count=2, exec=None, hold_ns=600 * 10**9))
    hosted.tick()
    first, second = hosted.ports.runs.forks(run_id)
    asked = Exec("exec_1", first.fork_id, "", PROJECT, ExecPurpose.HELD, sim("1s exit 3"))
    _, claim = hosted.ports.execs.request(asked)
    hosted.bells.exec(claim, "exec_1")
    hosted.run_for(3)
    done = hosted.ports.execs.get(PROJECT, first.fork_id, "exec_1")
    assert done.result is not None
    assert done.result.exit_code == 3
    hold.release(hosted.ports, PROJECT, first.fork_id, True, None)
    assert second.attempt_id is not None
    hosted.worlds[str(second.host_id)].die(second.attempt_id, DeathCause.SIGNAL, 9)
    hosted.run_for(700, step=50)
    assert hosted.report(run_id)["final"]


def test_what_a_worker_does_beside_its_tasks(hosted: HostedStage) -> None:
    run_id = hosted.start(spec("30s exit 0", count=4))
    hosted.tick()
    host = hosted.hosts["host0"]
    ports = hosted.ports_at("host0")
    ports.workers.begin(Worker("host0/2", "host0", "boot", 1, 1, "1.0"))
    assert not ports.workers.beat("host0/2")
    ports.workers.drain("host0")
    ports.workers.end("host0/2")
    inspect.inspect(ports, host)
    assert leaks.on_host(ports, host, FakeTraces()) == frozenset()
    assert ports.hosts.give_notice("host0", Notice("terminate", 120 * 10**9))
    hosted.tick()
    assert ports.hosts.withdraw_notice("host0")
    hosted.ports.hosts.quarantine("host1", "by hand")
    assert selftest.run(hosted.ports_at("host1"), hosted.hosts["host1"]) is None
    hosted.ports.hosts.release("host1")
    recover.adopt(ports, host)
    recover.leave(hosted.ports_at("host1"), hosted.hosts["host1"])
    page = hosted.run_until_final(run_id)
    assert page["totals"]["passed"] + page["totals"]["env_failed"] == 4


def test_a_host_that_breaks_forks_goes_into_quarantine_and_tests_itself(
    hosted: HostedStage,
) -> None:
    """Its failures are counted by itself, in its own row, beside what others' rows say."""
    hosted.worlds["host1"].fault("restore", FailureKind.RESTORE_FAILED, 20)
    run_id = hosted.start(spec("1s exit 0", count=20))
    assert hosted.run_until_final(run_id)["final"]
    (host,) = (each for each in hosted.ports.hosts.list() if each.host_id == "host1")
    assert host.quarantine is not None
    hosted.clock.advance(3600)
    hosted.worlds["host1"].clear()
    hosted.tick()
    tested = selftest.run(hosted.ports_at("host1"), hosted.hosts["host1"])
    assert tested is not None
    assert tested.released


def test_a_build_that_is_refused(hosted: HostedStage) -> None:
    page = hosted.build(definition(name="broken", test=sim("1s exit 1")))
    assert page["state"] == "refused"
    page = hosted.build(definition(name="unbuildable", setup=(sim("1s exit 9"),)))
    assert page["state"] == "failed"
