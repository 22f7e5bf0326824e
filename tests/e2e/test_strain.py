"""What a host takes from a machine, measured on real ones: stops, and processors that others have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.domain.attribution import Strain, Vitals
from app.domain.machine import Handle
from tests.e2e.inside import Machine
from tests.e2e.processes import soon

pytestmark = pytest.mark.machines

SPIN = "while :; do :; done"


def handle_of(machine: Machine) -> Handle:
    return next(each for each in machine.inside.machines.live() if each.name == machine.name)


def vitals(machine: Machine) -> Vitals:
    return machine.inside.machines.vitals(machine.name)


@contextmanager
def stopped(machine: Machine) -> Iterator[None]:
    """Its process stands still meanwhile."""
    pid = handle_of(machine).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert soon(lambda: vitals(machine).stopped_since_boot_ns is not None)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
    assert soon(lambda: vitals(machine).stopped_since_boot_ns is None)


def strain_of(machine: Machine, sh: str) -> Strain:
    """What was taken from the machine while this ran for a while; the way to its start is not in it."""
    machines, exec_id = machine.inside.machines, machine.start(sh)
    machines.mark(machine.name, exec_id)
    assert soon(lambda: machines.strain(machine.name, exec_id).over_ns > 1_500_000_000)
    seen = machines.strain(machine.name, exec_id)
    machine.guest.interrupt(machine.name, exec_id)
    machine.end(exec_id)
    return seen


@contextmanager
def one_processor_with_another(machine: Machine) -> Iterator[None]:
    """The machine shares one processor with somebody who wants all of it, and has more weight."""
    cpu = min(os.sched_getaffinity(0))
    for thread in Path(f"/proc/{handle_of(machine).pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cpu})
    hog = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", hog, str(cpu)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_running_machine_shows_its_virtual_cpus(fork: Machine) -> None:
    seen = vitals(fork)
    assert seen.process_state in ("S", "R", "D")
    assert seen.keeper_lives
    assert len(seen.ran_ns) == len(seen.waited_ns) == 1
    assert seen.ran_ns[0] > 0
    assert (seen.stops, seen.stopped_ns, seen.stopped_since_boot_ns) == (0, 0, None)


def test_a_stop_is_told_with_its_length(fork: Machine) -> None:
    machines = fork.inside.machines
    machines.mark(fork.name, "exec_one")
    with stopped(fork):
        seen = vitals(fork)
        assert seen.process_state == "T"
        assert seen.as_evidence()["keeper_lives"] is True
        assert soon(lambda: machines.strain(fork.name, "exec_one").stopped_ns > 300_000_000)
    strain = machines.strain(fork.name, "exec_one")
    assert strain.stops == 1
    assert 300_000_000 < strain.stopped_ns <= strain.over_ns
    machines.mark(fork.name, "exec_two")
    assert machines.strain(fork.name, "exec_two").stopped_ns == 0


def test_a_mark_outlives_the_worker_that_made_it(fork: Machine) -> None:
    machines = fork.inside.machines
    machines.mark(fork.name, "exec_one")
    began_ns = machines.strain(fork.name, "exec_one").began_boot_ns
    other = fork.inside.host.machines()
    try:
        other._root = fork.inside.machine_dir(fork.name).parent
        assert other.strain(fork.name, "exec_one").began_boot_ns == began_ns
        other.mark(fork.name, "exec_one")
        assert other.strain(fork.name, "exec_one").began_boot_ns > began_ns
    finally:
        other.close()


def test_without_a_mark_all_since_its_start_counts(fork: Machine) -> None:
    strain = fork.inside.machines.strain(fork.name, "exec_none")
    assert strain.began_boot_ns == handle_of(fork).started_boot_ns
    assert strain.stolen_ns == 0


def test_a_busy_machine_without_a_processor_is_starved_and_an_idle_one_is_not(
    fork: Machine,
) -> None:
    with one_processor_with_another(fork):
        idle, busy = strain_of(fork, "sleep 100"), strain_of(fork, SPIN)
    assert busy.starved_ns * 10 > busy.over_ns * 3
    assert busy.starved_ns * idle.over_ns > 2 * idle.starved_ns * busy.over_ns


def test_nothing_is_known_of_a_machine_that_never_was(fork: Machine) -> None:
    seen = fork.inside.machines.vitals("never")
    assert (seen.process_state, seen.keeper_lives, seen.ran_ns) == (None, False, ())


def test_what_was_seen_last_outlives_a_machine_that_we_ended(fork: Machine) -> None:
    machines = fork.inside.machines
    os.kill(handle_of(fork).pid, signal.SIGSTOP)
    assert soon(lambda: vitals(fork).is_stopped)
    machines.kill(fork.name)
    assert vitals(fork).is_stopped
    assert vitals(fork).keeper_lives
