"""What a host worker does when a bell rings: an id in, one call, nothing out. Whatever decides is in `app/flow`.

No task lasts as long as a command or a build. On Celery's thread pool a task cannot be ended from outside (`time_limit`
is ignored, `revoke(terminate=True)` is not implemented) and a stopping worker waits for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from celery import Celery

from app.errors import PromigenceError
from app.flow import collect, fork, stop, template, verify
from app.flow import exec as held_exec
from app.ports import HostPorts, Ports
from infra.queue import CeleryBells, Task
from workers.apart import Apart
from workers.gate import Gate
from workers.turns import Turns
from workers.watch import Ringer

# A fork task goes on to the next fork for this long, then rings for the rest: one bell serves a batch, and a worker
# that is to stop waits for one fork at most.
FORK_TASK_S = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Workbench:
    """Where the tasks of one worker process work: its ports, its limits, and whether it is to stop.

    `mounts_wanted` is set when forks may wait for a bundle that is not mounted here.
    `astray`: the database went back behind what this host remembers, and nothing is done by it.
    `draining`: it takes nothing new, and goes on with what it holds. `stopping`: it ends, whatever it holds.
    """

    ports: Ports
    host: HostPorts
    bells: CeleryBells
    ringer: Ringer
    forks: Gate
    builds: Gate
    turns: Turns = field(default_factory=Turns)
    settling: Apart = field(default_factory=Apart)
    mounts_wanted: threading.Event = field(default_factory=threading.Event)
    draining: threading.Event = field(default_factory=threading.Event)
    astray: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def takes_new(self) -> bool:
        """Whether it may claim another fork or template. Asked inside of a gate: see `brings_up_nothing`."""
        leaves = self.draining.is_set() or self.stopping.is_set()
        return not (leaves or self.astray.is_set())

    def unless_astray(self, act: Callable[[], object]) -> Callable[[], None]:
        """The same, done only while the rows are to be believed; recovery rings again for what was left out."""

        def guarded() -> None:
            if not self.astray.is_set():
                act()

        return guarded

    @property
    def brings_up_nothing(self) -> bool:
        """Once it drains and this is so, it claims nothing any more: whoever was let in before has gone."""
        return self.forks.is_idle and self.builds.is_idle


def register(app: Celery, bench: Workbench) -> None:
    """Say what each bell means in this process."""
    ports, host = bench.ports, bench.host

    @app.task(name=Task.FORK.value)
    def _fork() -> None:
        bench.forks.run(lambda: bring_up(bench))

    @app.task(name=Task.BUILD.value)
    def _build(build_id: str) -> None:
        threading.Thread(
            target=build_apart, args=(bench, build_id), name=f"build {build_id}", daemon=True
        ).start()

    @app.task(name=Task.VERIFY.value)
    def _verify(build_id: str) -> None:
        bench.settling.begin(build_id, bench.unless_astray(lambda: settle_apart(bench, build_id)))

    @app.task(name=Task.EXEC.value)
    def _exec(exec_id: str) -> None:
        def start() -> bool:
            return not bench.astray.is_set() and held_exec.start(ports, host, exec_id)

        bench.ringer.starting(exec_id, start)

    @app.task(name=Task.COLLECT.value)
    def _collect(attempt_id: str) -> None:
        act = bench.unless_astray(lambda: collect.collect(ports, host, attempt_id))
        bench.turns.take(attempt_id, "collect", act)

    @app.task(name=Task.STOP.value)
    def _stop(attempt_id: str) -> None:
        act = bench.unless_astray(lambda: stop.stop(ports, host, attempt_id))
        bench.turns.take(attempt_id, "stop", act)

    @app.task(name=Task.ECHO.value)
    def _echo(token: str) -> None:
        bench.bells.answer(token)

    for task in (_fork, _build, _verify, _exec, _collect, _stop, _echo):
        # An error that we raise on purpose is one line in the log; its rows are as they were, and recovery rings again.
        task.throws = (PromigenceError,)


def bring_up(bench: Workbench) -> None:
    """Bring up placed forks one after another, then ring again if the time was over before they were."""
    until = time.monotonic() + FORK_TASK_S
    while bench.takes_new and fork.advance(bench.ports, bench.host):
        if time.monotonic() >= until:
            bench.ports.bells.fork(bench.host.host_id)
            return
    bench.mounts_wanted.set()


def _build_unless_leaving(bench: Workbench, build_id: str) -> None:
    if bench.takes_new:
        template.advance(bench.ports, bench.host, build_id)


def build_apart(bench: Workbench, build_id: str) -> None:
    """A build lasts as long as its set-up does, so it has a thread of its own and its own limit.

    The thread dies with the process: the template's keeper ends its machine, and recovery takes the rows from there.
    """
    try:
        bench.builds.run(lambda: _build_unless_leaving(bench, build_id))
    except PromigenceError as error:
        log.warning("build_interrupted", build_id=build_id, code=error.code, error=error.message)


def settle_apart(bench: Workbench, build_id: str) -> None:
    """Storing a candidate may take minutes; what a crash interrupts, the next bell goes on with."""
    try:
        verify.verify(bench.ports, bench.host, build_id)
    except PromigenceError as error:
        log.warning("settling_interrupted", build_id=build_id, code=error.code, error=error.message)
