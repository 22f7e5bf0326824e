"""Cases of our own processes and what they stand on: a worker killed or frozen, Redis, the database, API, billing.

The siblings' commands run on while that happens: it may cost nobody anything but who came up just then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drills.forwarder import Outage
from drills.matrix.case import Case, Expect, Terms, breaks, fails, passes, says
from drills.matrix.judge import SIBLINGS
from drills.matrix.scene import Machine, NotCaused, Scene
from promigence import PromigenceError

RETRIED = Terms(environment_retries=2)
HELD = Terms(hold_s=90)
WITH_EGRESS = Terms(egress=True)

OUTAGE_S = 10.0
# Shorter than a claim holds, and longer than anything waits for a heartbeat.
NAP_S = 8.0
# A supervisor looks 15 times, 2 s apart; see infra/stack/supervisor.py.
FROZEN_WITHIN_S = 60.0
_WORKING = "SELECT claim FROM worker WHERE pid = %s"
_ADOPTED = "SELECT number FROM event WHERE run_id = %s AND kind = 'adopted'"
_SIBLINGS = "SELECT state FROM fork WHERE run_id = %s AND key = 'sibling'"
_HELD_EXEC = "SELECT state FROM exec WHERE fork_id = %s AND purpose = 'held'"


def kill_worker_in_restore(scene: Scene) -> None:
    """The fork's first machine is killed, so that its second comes up while the siblings' commands run already.

    That one is stopped before it can pass its barrier; then the worker is killed.
    """
    first = scene.machine()
    until_siblings(scene, "running")
    first.signal(signal.SIGKILL)
    second = scene.until(lambda: _another(scene, first), "a second machine")
    second.signal(signal.SIGSTOP)
    if scene.fork()["state"] != "restoring":
        raise NotCaused("the second machine had passed its barrier")
    _kill(scene, "worker")


def kill_worker_before_start(scene: Scene) -> None:
    """The machine is stopped, a command is sent: its intent is committed, and its start is not answered."""
    machine = scene.until(lambda: _ready(scene), "a held fork")
    # Their trainer sends one its command after the other: never are both at work.
    until_siblings(scene, "ready", "running", "ended")
    fork_id, done = str(scene.fork()["fork_id"]), threading.Event()
    machine.signal(signal.SIGSTOP)
    asking = threading.Thread(target=_ask, args=(scene, fork_id, done), name="held command")
    asking.start()
    try:
        scene.until(lambda: _intended(scene, fork_id), "the intent of its command")
        _kill(scene, "worker")
        _until_up(scene)
    finally:
        machine.signal(signal.SIGCONT)
    scene.until(done.is_set, "the answer to its command")
    asking.join()
    scene.rig.client.forks.release(fork_id, passed=scene.notes.get("stdout") == "1\n")


def ran_once(scene: Scene) -> Iterable[str]:
    """What the held command said of itself: how often it ran."""
    if scene.notes.get("stdout") != "1\n":
        yield f"the command ran {scene.notes.get('stdout')!r} times"


def kill_worker_at_work(scene: Scene) -> None:
    """While the fork's command runs, and those of the siblings."""
    scene.running()
    until_siblings(scene, "running")
    _kill(scene, "worker")
    _until_up(scene)


def kill_worker_when_siblings_ended(scene: Scene) -> None:
    """While only the fork's own command runs: its siblings have the same way out, and would miss it too."""
    scene.running()
    until_siblings(scene, "ended")
    _kill(scene, "worker")


def kill_worker_storing_the_result(scene: Scene) -> None:
    """The database falls silent before the command ends; the worker is killed while it waits to store how."""
    scene.running()
    until_siblings(scene, "running")
    with _without_database(scene, Outage.SILENT):
        _wait(scene, 8)
        _kill(scene, "worker")


def kill_keeper(scene: Scene) -> None:
    """Of the fork's machine, while its command runs."""
    os.kill(scene.running().keeper_pid, signal.SIGKILL)


def kill_redis(scene: Scene) -> None:
    """What waits in it is lost with it."""
    scene.running()
    until_siblings(scene, "running")
    _kill(scene, "redis")


def empty_redis(scene: Scene) -> None:
    """Again and again, until the run is over: no bell is ever sure to be heard."""
    scene.running()
    with contextlib.closing(scene.redis()) as client:
        while not scene.over.wait(0.2):
            client.flushall()


def cut_database(scene: Scene) -> None:
    """For 10 s, in which the fork's command ends."""
    scene.running()
    until_siblings(scene, "running")
    with _without_database(scene, Outage.REFUSED):
        _wait(scene, OUTAGE_S)


def freeze_worker(scene: Scene) -> None:
    """Until it is taken for dead: its supervisor ends it, and another adopts its machines."""
    until_siblings(scene, "running")
    scene.running()
    frozen = scene.part("worker")
    os.kill(frozen, signal.SIGSTOP)
    scene.note("frozen", frozen)
    scene.until(lambda: scene.part("worker") != frozen, "another worker", FROZEN_WITHIN_S)


def was_adopted(scene: Scene) -> Iterable[str]:
    """Another worker has them now, and the frozen one is no more."""
    if not scene.rows(_ADOPTED, scene.run_id):
        yield "no machine of the run was adopted"
    frozen = scene.notes.get("frozen")
    if frozen is not None and Path(f"/proc/{frozen}").exists():
        yield "the frozen worker is still there"


def let_worker_nap(scene: Scene) -> None:
    """For less than its claims hold: it wakes, and goes on."""
    scene.running()
    until_siblings(scene, "running")
    worker = scene.part("worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        _wait(scene, NAP_S)
    finally:
        os.kill(worker, signal.SIGCONT)


def was_not_adopted(scene: Scene) -> Iterable[str]:
    """The machines stayed with the process that had them."""
    if scene.rows(_ADOPTED, scene.run_id):
        yield "a machine of the run was adopted"


def kill_api_and_billing(scene: Scene) -> None:
    """Both at once, while the commands run."""
    scene.running()
    until_siblings(scene, "running")
    _kill(scene, "api")
    _kill(scene, "billing")


def until_siblings(scene: Scene, *states: str) -> None:
    """Both of them are in one of these."""

    def they_are() -> bool:
        found = [row["state"] for row in scene.rows(_SIBLINGS, scene.run_id)]
        return len(found) == len(SIBLINGS) and set(found) <= set(states)

    scene.until(they_are, f"two siblings that are {' or '.join(states)}")


def _another(scene: Scene, first: Machine) -> Machine | None:
    attempt = scene.attempt()
    if attempt is None or attempt["attempt_id"] == first.name:
        return None
    seen = scene.watch.seen().get(attempt["attempt_id"])
    if seen is None or seen.gone_ns is not None:
        return None
    return Machine(seen.name, seen.pid, seen.keeper_pid, scene.rig.machines / seen.name)


def _ready(scene: Scene) -> Machine | None:
    return scene.machine() if scene.fork()["state"] == "ready" else None


def _intended(scene: Scene, fork_id: str) -> bool:
    return [row["state"] for row in scene.rows(_HELD_EXEC, fork_id)] == ["running"]


def _ask(scene: Scene, fork_id: str, done: threading.Event) -> None:
    """A command that counts its own runs in the guest."""
    count = "echo >> /workspace/runs; wc -l < /workspace/runs"
    try:
        scene.note("stdout", scene.rig.client.forks.exec(fork_id, {"sh": count})["stdout"])
    except PromigenceError as error:
        scene.note("stdout", str(error))
    finally:
        done.set()


def _kill(scene: Scene, part: str) -> None:
    pid = scene.part(part)
    if not scene.rig.kill_part(part):
        raise NotCaused(f"the {part} was gone")
    scene.until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of the {part}")


def _until_up(scene: Scene) -> None:
    """Another worker, with a row: it adopts now."""
    scene.until(lambda: bool(scene.rows(_WORKING, scene.part("worker"))), "another worker")


def _wait(scene: Scene, seconds: float) -> None:
    """As long as that, unless the run is over before."""
    until = time.monotonic() + seconds
    with contextlib.suppress(NotCaused):
        scene.until(lambda: time.monotonic() > until, "the time", seconds)


@contextmanager
def _without_database(scene: Scene, how: Outage) -> Iterator[None]:
    scene.rig.forwarder.cut(how)
    try:
        yield
    finally:
        scene.rig.forwarder.mend()


def _alone(
    name: str,
    shows: str,
    cause: Callable[[Scene], None],
    expect: Expect,
    command: str,
    siblings_s: float,
    **more: object,
) -> Case:
    told = {"alone": True, "siblings_s": siblings_s, "within_s": 150.0, **more}
    return Case(name, shows, expect, command, cause=cause, **told)  # type: ignore[arg-type]


CASES = (
    _alone(
        "worker-killed-in-restore",
        "the worker is killed while a machine comes up; another takes its place, nobody else notices",
        kill_worker_in_restore,
        passes(attempts=3, failed=("guest_lost", "worker_lost")),
        "sleep 2",
        20,
        hook="sleep 3",
        terms=RETRIED,
        quick=True,
    ),
    _alone(
        "worker-killed-before-start",
        "the worker is killed between a command's intent and its start; the next one starts it, once",
        kill_worker_before_start,
        Expect("passed", "released_passed", cost="tasks"),
        "",
        12,
        terms=HELD,
        also=ran_once,
    ),
    _alone(
        "worker-killed-at-work",
        "the worker is killed while commands run; another adopts them, and reads how they ended",
        kill_worker_at_work,
        fails(4, output="still here"),
        "sleep 12; echo still here; exit 4",
        14,
        also=was_adopted,
        quick=True,
    ),
    _alone(
        "worker-killed-with-egress",
        "the same, and a command that does not pass had no way out for a while",
        kill_worker_when_siblings_ended,
        breaks("egress_lost", "exec", says("egress", "proxy_away")),
        "sleep 15; exit 4",
        1,
        terms=WITH_EGRESS,
    ),
    _alone(
        "worker-killed-storing-the-result",
        "a command ends, the database is silent, and the worker is killed while it stores the result",
        kill_worker_storing_the_result,
        fails(4, output="stored"),
        "sleep 6; echo stored; exit 4",
        18,
    ),
    Case(
        "keeper-killed",
        "a machine's keeper is killed while its command runs; the machine dies with it",
        breaks("guest_lost", "exec"),
        "sleep 30",
        cause=kill_keeper,
        quick=True,
    ),
    _alone(
        "redis-killed",
        "Redis is killed while commands run",
        kill_redis,
        fails(4),
        "sleep 8; exit 4",
        12,
        quick=True,
    ),
    _alone(
        "redis-emptied",
        "Redis is emptied five times a second from the command's start to the run's end",
        empty_redis,
        fails(4),
        "sleep 3; exit 4",
        4,
    ),
    _alone(
        "database-away",
        "the database refuses everybody for 10 s, in which a command ends",
        cut_database,
        fails(4, output="ended"),
        "sleep 4; echo ended; exit 4",
        16,
    ),
    _alone(
        "worker-frozen",
        "the worker stands still for longer than its claims hold; it is ended, and another adopts",
        freeze_worker,
        fails(4, output="still here"),
        "sleep 50; echo still here; exit 4",
        55,
        also=was_adopted,
        terms=Terms(timeout_s=120),
    ),
    _alone(
        "worker-naps",
        "the worker stands still for 8 s, in which a command ends; then it goes on",
        let_worker_nap,
        fails(4),
        "sleep 5; exit 4",
        12,
        also=was_not_adopted,
    ),
    _alone(
        "api-and-billing-killed",
        "API and billing are killed at once while commands run",
        kill_api_and_billing,
        fails(4),
        "sleep 8; exit 4",
        10,
    ),
)
