"""Law 7 on the real verbs and the real store: what a bell names is committed when it rings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from app.domain.run import ExecState, RunState
from app.errors import FailureKind
from app.flow import hold, stop
from infra.fakes.bells import FakeBells
from infra.store import Stores
from tests.flow import stage as stages
from tests.flow.stage import PROJECT, Stage, definition, sim, spec

KINDS = {"place", "fork", "build", "verify", "exec", "collect", "stop", "woken", "woken for a run"}


class LookingBells(FakeBells):
    """Whoever rings finds somebody at the rows at once: through the store, as another process would.

    The store has one connection: to ring with a transaction still open would be refused after a wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stores: Stores | None = None
        self.seen: Counter[str] = Counter()
        self.runs_there = 0

    def place(self) -> None:
        runs = self._rows.runs.list(PROJECT, {}, 100, None)
        self._look("place", all(run.granted_micros == self._granted(run.run_id) for run in runs))
        self.runs_there = len(runs)
        super().place()

    def fork(self, host_id: str, count: int = 1) -> None:
        self._look("fork", self._known(host_id))
        super().fork(host_id, count)

    def build(self, host_id: str, build_id: str) -> None:
        self._look("build", self._rows.builds.find(build_id) is not None)
        super().build(host_id, build_id)

    def verify(self, host_id: str, build_id: str) -> None:
        unsettled = [build.build_id for build, _ in self._rows.builds.unsettled()]
        self._look("verify", build_id in unsettled)
        super().verify(host_id, build_id)

    def exec(self, host_id: str, exec_id: str) -> None:
        self._look("exec", self._rows.execs.find(exec_id) is not None)
        super().exec(host_id, exec_id)

    def collect(self, host_id: str, attempt_id: str) -> None:
        self._look("collect", self._rows.attempts.get(attempt_id) is not None)
        super().collect(host_id, attempt_id)

    def stop(self, host_id: str, attempt_id: str) -> None:
        claimed = self._rows.attempts.get(attempt_id)
        self._look("stop", claimed is not None and claimed.fork.stop_asked is not None)
        super().stop(host_id, attempt_id)

    def woken(self, exec_id: str) -> None:
        """A run's id is rung, too, when it has ended."""
        found = self._rows.execs.find(exec_id)
        if found is not None:
            self._look("woken", found.state in (ExecState.ENDED, ExecState.LOST))
        else:
            ended = self._rows.runs.get(PROJECT, exec_id).state is RunState.ENDED
            self._look("woken for a run", ended)
        super().woken(exec_id)

    @property
    def _rows(self) -> Stores:
        assert self.stores is not None
        return self.stores

    def _look(self, kind: str, committed: bool) -> None:
        assert committed, f"law 7: {kind} was rung, and what it names is not there"
        self.seen[kind] += 1

    def _known(self, host_id: str) -> bool:
        return any(host.host_id == host_id for host in self._rows.hosts.list())

    def _granted(self, run_id: str) -> int:
        return sum(fork.grant_micros for fork in self._rows.runs.forks(run_id))


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> LookingBells:
    made = LookingBells()
    monkeypatch.setattr(stages, "FakeBells", lambda: made)
    return made


def test_nothing_is_rung_before_its_rows_are_committed(bells: LookingBells, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    bells.stores = stage.stores
    assert stage.build(definition())["snapshot"] == "task-suite@1"
    stage.world.fault("wake", FailureKind.BARRIER_FAILED)
    first = stage.start(spec("2s", count=3))
    assert bells.runs_there == 1
    stage.run_until_final(first)
    held = stage.start(spec(exec=None, hold_ns=600 * 1_000_000_000))
    assert bells.runs_there == 2
    stage.run_for(3)
    fork = stage.ports.runs.forks(held)[0]
    hold.exec(stage.ports, PROJECT, fork.fork_id, sim("1s"), None)
    stage.run_for(3)
    stop.cancel(stage.ports, PROJECT, held)
    stage.run_until_final(held)
    stage.stores.close()
    assert bells.seen.keys() == KINDS, bells.seen
