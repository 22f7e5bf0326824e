"""The callers of an episode: they start runs, send commands to forks that they hold, release, stall, and cancel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.domain.fork import ForkState
from app.domain.run import ExecState, Fork
from app.errors import Conflict, Unavailable
from app.flow import hold, start, stop
from drills.chaos.chronicle import What
from drills.chaos.cluster import PROJECT, Cluster
from drills.chaos.plan import Hold, Life, RunPlan, sim

HELD_TIMEOUT_S = 6.0


@dataclass(slots=True)
class Started:
    """A run that a caller follows. `sent` are commands of held forks by exec id, with what they do by themselves."""

    run_id: str
    plan: RunPlan
    began_s: float
    forks: tuple[Fork, ...]
    cancelled: bool = False
    released: dict[str, Hold] = field(default_factory=dict)
    sent: dict[str, Life] = field(default_factory=dict)
    waits_for: dict[str, str] = field(default_factory=dict)
    turn: dict[str, int] = field(default_factory=dict)
    over: bool = False


class Trainer:
    """Starts each run at its time, and does what its plan says."""

    def __init__(
        self, cluster: Cluster, chance: random.Random, plans: list[tuple[float, RunPlan]]
    ) -> None:
        self._cluster, self._chance = cluster, chance
        now_s = cluster.now_s
        self._plans = sorted(
            ((now_s + at_s, plan) for at_s, plan in plans), key=lambda plan: plan[0]
        )
        self.last_s = self._plans[-1][0]
        self.started: list[Started] = []

    @property
    def has_started_all(self) -> bool:
        return not self._plans

    def act(self) -> None:
        """One look at everything. While the database is away there is nothing that a caller could do."""
        if self._cluster.now_s < self._cluster.database_back_s:
            return
        while self._plans and self._plans[0][0] <= self._cluster.now_s:
            self._start(self._plans.pop(0)[1])
        for run in self.started:
            if run.over:
                continue
            self._cancel(run)
            if run.plan.holds:
                self._hold(run)

    def _start(self, plan: RunPlan) -> None:
        ports = self._cluster.ports
        answer = start.start(ports, PROJECT, plan.spec, None, None)
        run_id = str(answer["run_id"])
        forks = ports.runs.forks(run_id)
        self.started.append(Started(run_id, plan, self._cluster.now_s, forks))
        for fork in forks:
            asked = plan.lives[fork.index].script if plan.lives else "to be held"
            self._cluster.note(fork.fork_id, What.ASKED, run_id, asked)

    def _cancel(self, run: Started) -> None:
        after_s = run.plan.cancel_after_s
        if run.cancelled or after_s is None or self._cluster.now_s < run.began_s + after_s:
            return
        run.cancelled = True
        for fork in run.forks:
            self._cluster.note(fork.fork_id, What.ASKED, "cancel")
        stop.cancel(self._cluster.ports, PROJECT, run.run_id)

    def _hold(self, run: Started) -> None:
        for fork in self._cluster.ports.runs.forks(run.run_id):
            handed_over = fork.state in (ForkState.READY, ForkState.RUNNING)
            if handed_over and fork.stop_asked is None and fork.fork_id not in run.released:
                try:
                    self._turn(run, fork, run.plan.holds[fork.index])
                except (Conflict, Unavailable):
                    continue  # it ended meanwhile, or is about to; the next look shows it

    def _turn(self, run: Started, fork: Fork, held: Hold) -> None:
        waits_for = run.waits_for.get(fork.fork_id)
        if waits_for is not None:
            row = self._cluster.ports.execs.get(PROJECT, fork.fork_id, waits_for)
            if row.state in (ExecState.QUEUED, ExecState.RUNNING):
                return
            del run.waits_for[fork.fork_id]
        number = run.turn.get(fork.fork_id, 0)
        if number < len(held.commands):
            self._send(run, fork, number, held.commands[number])
        elif held.releases:
            self._release(run, fork, held)

    def _send(self, run: Started, fork: Fork, number: int, life: Life) -> None:
        exec_id = f"held{number}_{fork.fork_id}"
        spec = sim(life.script, HELD_TIMEOUT_S)
        hold.exec(self._cluster.ports, PROJECT, fork.fork_id, spec, exec_id)
        run.sent[exec_id] = life
        run.turn[fork.fork_id] = number + 1
        run.waits_for[fork.fork_id] = exec_id

    def _release(self, run: Started, fork: Fork, held: Hold) -> None:
        self._cluster.note(fork.fork_id, What.ASKED, "release", str(held.passed))
        run.released[fork.fork_id] = held
        hold.release(self._cluster.ports, PROJECT, fork.fork_id, held.passed, held.reward)

    def unfinished(self) -> Iterator[Started]:
        """Runs that have not ended yet."""
        for run in self.started:
            if not run.over:
                run.over = self._cluster.ports.runs.get(PROJECT, run.run_id).state.value == "ended"
            if not run.over:
                yield run
