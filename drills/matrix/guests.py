"""Cases inside of a guest: what a task that is root does to its own machine, and what a machine fails to do for it."""

from __future__ import annotations

from collections.abc import Iterator

from drills.matrix.case import (
    SERVICED,
    Case,
    Expect,
    Terms,
    breaks,
    equals,
    fails,
    passes,
    says,
    there,
)
from drills.matrix.scene import Scene

BY_TASK = Terms(guest_faults="task")
EAT = "dd if=/dev/zero of=/dev/null bs=60M count=30 2>/dev/null &"
EAT_ALL = f"{EAT} {EAT} {EAT} wait"
# Eats when it is told to, as a process of the machine and not of the command.
BYSTANDER = f"(until test -e /go; do sleep 0.1; done; {EAT_ALL}; touch /eaten) >/dev/null 2>&1 &"
WAKE_BYSTANDER = "touch /go; until test -e /eaten; do sleep 0.1; done; exit 3"
PANIC = "echo c > /proc/sysrq-trigger; sleep 60"
# PID 1 in a frozen control group runs no more: nobody answers the host, and no end of a command is told.
FREEZE_PID_1 = "g=/sys/fs/cgroup/frozen; mkdir $g; echo 1 > $g/cgroup.procs; echo 1 > $g/cgroup.freeze; sleep 600"
# The command's shell is spared when memory runs out, so that the bomb ends at the command's limit and not before.
FORK_BOMB = (
    "b() { b | b & }; (echo 1000 > /proc/self/oom_score_adj; b) 2>/dev/null & exec sleep 600"
)
FLOOD_PORTS = "for p in /dev/vport*; do (yes garbage | head -c 4194304 > $p) 2>&1; done; exit 4"
# Each is a connection to the way out, and there are no more than 64 of them at a time.
MANY_CHANNELS = "channels 1000 3; echo survived; exit 4"
PROMPT_S = 20.0


def _task_fault(kind: str) -> Expect:
    """A guest's fault that its run calls the task's: a failure with reward 0, which still says what was seen."""
    return Expect(
        "failed",
        "guest_fault_by_task",
        kind=kind,
        phase="exec",
        task_may_have_caused=True,
        evidence=(there("monitor_events"),),
        cost="tasks",
        failed=(kind,),
    )


def _prompt(scene: Scene) -> Iterator[str]:
    """The command's end was its first process's, and not that of what it left running."""
    (fork,) = (
        fork
        for fork in scene.rig.client.runs.report(scene.run_id)["forks"]
        if fork["key"] == scene.case_name
    )
    if fork["seconds"] > PROMPT_S:
        yield f"its command took {fork['seconds']} s"


CASES = (
    Case(
        name="kernel-panic",
        shows="the command panics the kernel",
        command=PANIC,
        expect=breaks(
            "guest_panicked",
            "exec",
            says("monitor_events", "GUEST_PANICKED"),
            says("console_tail", "sysrq triggered crash"),
            equals("death_cause", "panicked"),
            task_may_have_caused=True,
        ),
        quick=True,
    ),
    Case(
        name="kernel-panic-by-task",
        shows="the same, in a run that calls guest faults the task's",
        command=PANIC,
        terms=BY_TASK,
        expect=_task_fault("guest_panicked"),
        quick=True,
    ),
    Case(
        name="memory-of-the-command",
        shows="the command's own processes use up the guest's memory and are killed for it",
        command=f"{EAT_ALL}; exit 9",
        expect=fails(9),
        loud=True,
    ),
    Case(
        name="memory-of-others",
        shows="processes outside of the command use up the guest's memory while it runs",
        hook=BYSTANDER,
        command=WAKE_BYSTANDER,
        expect=breaks(
            "guest_out_of_memory", "exec", equals("exit_code", 3), task_may_have_caused=True
        ),
        loud=True,
    ),
    Case(
        name="memory-of-others-by-task",
        shows="the same, in a run that calls guest faults the task's: a victim outside of the command is not",
        hook=BYSTANDER,
        command=WAKE_BYSTANDER,
        terms=BY_TASK,
        expect=breaks(
            "guest_out_of_memory", "exec", equals("exit_code", 3), task_may_have_caused=True
        ),
        loud=True,
    ),
    Case(
        name="guest-disk-full",
        shows="the command fills its own disk",
        command=(
            "fallocate -l $(df -k / | awk 'NR==2 {print $4 - 4096}')k /fill;"
            " dd if=/dev/zero of=/rest bs=4k 2>/dev/null; seq 20000; echo more > /more || exit 28"
        ),
        expect=fails(28, truncated=True),
        quick=True,
    ),
    Case(
        name="powers-off",
        shows="the command powers its machine off",
        command="poweroff -f",
        expect=Expect("failed", "command_shut_down", cost="tasks"),
        quick=True,
    ),
    Case(
        name="reboots",
        shows="the command reboots its machine",
        command="reboot -f",
        expect=Expect("failed", "command_shut_down", cost="tasks"),
    ),
    Case(
        name="kills-pid-1",
        shows="the command kills PID 1, which survives",
        command="kill -9 1; kill -TERM 1; kill -SEGV 1; sleep 0.2; echo survived",
        expect=passes(output="survived"),
        quick=True,
    ),
    Case(
        name="freezes-pid-1",
        shows="the command freezes PID 1: its machine lives and answers nothing",
        command=FREEZE_PID_1,
        terms=Terms(timeout_s=8),
        expect=breaks("guest_hung", "exec", task_may_have_caused=True),
        timed=True,
    ),
    Case(
        name="kills-all-but-itself",
        shows="the command kills every process that it can, the SSH server too",
        command="kill -9 -1; echo alone; exit 6",
        expect=fails(6, output="alone"),
        quick=True,
    ),
    Case(
        name="kills-itself",
        shows="the command ends by a signal of its own making",
        command="kill -9 $$",
        expect=fails(),
        quick=True,
    ),
    Case(
        name="fork-bomb",
        shows="the command multiplies until its limit",
        command=FORK_BOMB,
        terms=Terms(timeout_s=8),
        expect=Expect("timed_out", "command_timed_out", cost="tasks"),
        alone=True,
    ),
    Case(
        name="times-out",
        shows="the command runs past its limit; what it had printed is kept",
        command="echo before; sleep 600",
        terms=Terms(timeout_s=8),
        expect=Expect("timed_out", "command_timed_out", output="before", cost="tasks"),
        timed=True,
        quick=True,
    ),
    Case(
        name="floods-the-ports",
        shows="the command writes garbage to every port of the machine that it can open",
        command=FLOOD_PORTS,
        expect=fails(4),
        quick=True,
    ),
    Case(
        name="thousand-channels",
        shows="the command opens a thousand channels",
        command=MANY_CHANNELS,
        terms=SERVICED,
        expect=fails(4, output="survived"),
        loud=True,
    ),
    Case(
        name="prints-a-gibibyte",
        shows="the command prints 1 GiB; head and tail of it are kept",
        command="dd if=/dev/zero bs=1M count=1024 2>/dev/null; echo last; exit 4",
        terms=Terms(timeout_s=120),
        expect=fails(4, output="last", truncated=True),
        loud=True,
    ),
    Case(
        name="leaves-daemons",
        shows="the command leaves daemons that hold its output open",
        command="sleep 600 & (sleep 600 &); echo said; exit 4",
        expect=fails(4, output="said"),
        also=_prompt,
        quick=True,
    ),
    Case(
        name="own-test-fails",
        shows="the snapshot's own test fails in one fork",
        test="echo broken >&2; exit 7",
        terms=Terms(verify_each=True),
        expect=breaks(
            "own_test_failed", "test", equals("exit_code", 7), says("stderr_tail", "broken"),
            task_may_have_caused=False,
        ),
        quick=True,
    ),
    Case(
        name="own-test-hangs",
        shows="the snapshot's own test does not end in one fork",
        test="echo began; sleep 600",
        terms=Terms(verify_each=True),
        expect=breaks(
            "own_test_failed", "test", equals("timed_out", True), says("stdout_tail", "began")
        ),
        quick=True,
    ),
    Case(
        name="no-such-directory",
        shows="the command's directory is not there in one fork",
        hook="rmdir /workspace",
        terms=SERVICED,
        expect=breaks("exec_not_started", "exec", task_may_have_caused=False),
        quick=True,
    ),
    Case(
        name="no-such-user",
        shows="the command's user is not there in one fork",
        hook="sed -i /^eve:/d /etc/passwd",
        terms=Terms(user="eve"),
        expect=breaks("exec_not_started", "exec", task_may_have_caused=False),
    ),
    Case(
        name="reported-by-command",
        shows="the command says by its exit code that its own infrastructure failed",
        command="echo no policy; exit 75",
        terms=SERVICED,
        expect=breaks(
            "reported_by_command",
            "exec",
            equals("exit_code", 75),
            says("stdout_tail", "no policy"),
            retryable=False,
        ),
        quick=True,
    ),
)  # fmt: skip
