"""Cases of a host: what stops, starves, kills or crowds out one of its machines while a command runs there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from drills.matrix.case import Case, Expect, Fact, Terms, breaks, equals, says
from drills.matrix.cgroups import tight
from drills.matrix.scene import LOOK_S, Machine, NotCaused, Scene

BY_TASK = Terms(guest_faults="task")
SHORT = Terms(timeout_s=15.0)
STOPPED_S = 5.0
SPIN = "while :; do :; done"
FILL = "dd if=/dev/zero of=/root/fill bs=1M count=60; sleep 60"
# Past the reach of the guest's own memory, so that its kernel has to write; with no zeros, which take no room.
FILL_DISK = "sleep 10; dd if=/dev/urandom of=/fill bs=1M count=400; sync; sleep 60"
# The kernel's log names the machine; in a process namespace, whose numbers it does not use, its counts tell.
NAMED_OR_COUNTED = Fact(
    "process_said",
    "the kernel's line, or its count of kills",
    lambda seen: "Killed process" in str(seen) or "oom_kill" in str(seen),
)
DISK_MIB = 48
ROOM_MIB = 8
_HOG = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
_HOGS = 3
_MOUNT_S = 30.0


def kill(scene: Scene) -> None:
    """From outside, as an operator would."""
    scene.running().signal(signal.SIGKILL)


def stop(scene: Scene) -> None:
    """It lives, and says nothing more."""
    scene.running().signal(signal.SIGSTOP)


def stop_for_a_while(scene: Scene) -> None:
    """Its clock goes on, and so does its command's limit."""
    machine = scene.running()
    machine.signal(signal.SIGSTOP)
    scene.over.wait(STOPPED_S)
    machine.signal(signal.SIGCONT)


def starve(scene: Scene) -> None:
    """Let it share one processor with others that want all of it."""
    machine, cpu = scene.running(), max(os.sched_getaffinity(0))
    for thread in Path(f"/proc/{machine.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cpu})
    hogs = [subprocess.Popen([sys.executable, "-c", _HOG, str(cpu)]) for _ in range(_HOGS)]
    try:
        scene.over.wait()
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def crowd_out(scene: Scene) -> None:
    """Leave it next to no memory, which its guest then wants."""
    machine = scene.running()
    with tight(machine.pid, ROOM_MIB):
        while not _is_gone(machine):
            if scene.over.wait(LOOK_S) and not _is_gone(machine):
                raise NotCaused("the kernel let it live")


@contextlib.contextmanager
def small_disk(scene: Scene) -> Iterator[None]:
    """The disk that machines write to is a small one of its own for this run."""
    root = scene.rig.machines
    if any(root.iterdir()):
        raise NotCaused("machines of another run are there still")
    options = f"size={DISK_MIB}m,mode=700"
    subprocess.run(
        ("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)), check=True, timeout=_MOUNT_S
    )
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", str(root)), check=True, timeout=_MOUNT_S)


def _is_gone(machine: Machine) -> bool:
    try:
        os.kill(machine.pid, 0)
    except ProcessLookupError:
        return True
    return False


def _strain(figure: str, least: float) -> Fact:
    def holds(seen: object) -> bool:
        return isinstance(seen, dict) and float(seen.get(figure) or 0) >= least

    return Fact("strain", f"`{figure}` is at least {least:g}", holds)


def _silent(**told: object) -> Expect:
    return breaks(
        "guest_hung",
        "exec",
        equals("process_state", "T"),
        equals("keeper_lives", True),
        equals("death_cause", "asked"),
        task_may_have_caused=False,
        **told,
    )


CASES: tuple[Case, ...] = (
    Case(
        name="machine-killed",
        shows="the machine's process is killed from outside while its command runs",
        command="sleep 60",
        cause=kill,
        expect=breaks(
            "guest_lost",
            "exec",
            equals("death_cause", "signal"),
            equals("process_signal", 9),
            task_may_have_caused=True,
        ),
        quick=True,
    ),
    Case(
        name="machine-stopped",
        shows="the machine's process is stopped by a signal: it lives, and is silent",
        command="sleep 60",
        cause=stop,
        expect=_silent(),
    ),
    Case(
        name="machine-stopped-by-task",
        shows="the same where the task answers for its machine: nobody inside could have done it",
        command="sleep 60",
        terms=BY_TASK,
        cause=stop,
        expect=_silent(),
    ),
    Case(
        name="machine-stopped-for-a-while",
        shows=f"the machine's process is stopped for {STOPPED_S:g} s, and its command runs out of time",
        command="sleep 600",
        terms=SHORT,
        cause=stop_for_a_while,
        expect=breaks(
            "host_stalled",
            "exec",
            _strain("stopped_seconds", STOPPED_S - 0.5),
            equals("timed_out", True),
            task_may_have_caused=False,
        ),
    ),
    Case(
        name="host-busy",
        shows="a busy command runs out of time on a processor that others take",
        command=SPIN,
        terms=SHORT,
        cause=starve,
        alone=True,
        expect=breaks(
            "host_stalled",
            "exec",
            _strain("starved_seconds", 1.5),
            equals("timed_out", True),
            task_may_have_caused=False,
        ),
    ),
    Case(
        name="host-busy-task-asleep",
        shows="a command that sleeps runs out of time on a processor that others take",
        command="sleep 600",
        terms=SHORT,
        cause=starve,
        alone=True,
        expect=Expect("timed_out", "command_timed_out", cost="tasks"),
    ),
    Case(
        name="host-out-of-memory",
        shows="the host's kernel kills the machine for want of memory",
        command=f"sleep 2; {FILL}",
        cause=crowd_out,
        expect=breaks(
            "host_out_of_memory",
            "exec",
            equals("death_cause", "out_of_memory"),
            NAMED_OR_COUNTED,
            task_may_have_caused=False,
        ),
    ),
    Case(
        name="host-disk-full",
        shows="the host's disk has no room for what the machine writes",
        command=FILL_DISK,
        around=small_disk,
        alone=True,
        expect=breaks(
            "host_disk_full",
            "exec",
            says("event", "nospace"),
            says("monitor_events", "BLOCK_IO_ERROR"),
            task_may_have_caused=False,
        ),
    ),
)
