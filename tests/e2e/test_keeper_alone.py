"""The keeper and a real machine with nobody else there: no worker, no wall clock to trust, the keeper itself frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from app.domain.machine import Death, DeathCause
from app.domain.money import NS_PER_SECOND
from infra.qemu import keeper
from infra.qemu.fingerprint import FIRST_UID
from infra.qemu.home import Home
from tests.e2e.conftest import Factory, Frozen, Host
from tests.e2e.inside import Machine
from tests.e2e.kept import KEEPER, PRODUCTS, Kept, record_of
from tests.e2e.processes import gone, soon, status_of

pytestmark = pytest.mark.machines

LEASE_S = 6.0
A_DAY_S = 86_400


def test_a_machine_whose_worker_is_dead_for_good_ends_with_its_lease(
    factory: Factory, frozen: Frozen
) -> None:
    worker = start_doomed_worker(factory.host, frozen, "orphan")
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"started\n"
    os.killpg(worker.pid, signal.SIGKILL)
    worker.communicate()
    home = Home(factory.host.root / "orphan")
    born = keeper.read_born(home)
    assert born is not None, "its keeper noted it before the worker could say so"
    lease_end_ns = keeper.read_deadline(home)
    assert lease_end_ns is not None
    if factory.host.clock.boot_ns() < lease_end_ns - NS_PER_SECOND:
        assert keeper.program_lives(home), "it did not die with its worker"
    factory.keep(born)
    assert gone(born.pid, born.keeper_pid)
    assert_killed_at(home, lease_end_ns)
    assert not processes_in(home.directory)
    death = factory.machines.death("orphan")  # a worker that comes later learns all of it
    assert death is not None
    assert death.cause is DeathCause.DEADLINE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a program a user of its own")
def test_a_machine_of_another_user_dies_with_its_keeper(factory: Factory) -> None:
    """The change of user clears the parent-death signal, and so would QEMU if it changed its own."""
    fork = factory.fork()
    uid = str(FIRST_UID + fork.keeper_pid)
    assert status_of(fork.pid)["Uid"].split() == [uid] * 4
    os.kill(fork.keeper_pid, signal.SIGKILL)
    assert gone(fork.keeper_pid, fork.pid)
    assert not keeper.program_lives(Home(factory.host.root / fork.name))


@pytest.mark.parametrize("step_s", [A_DAY_S, -A_DAY_S], ids=["forward", "backward"])
def test_a_wall_clock_that_is_stepped_moves_no_deadline(fork: Machine, step_s: int) -> None:
    """A keeper runs inside a guest, whose clock may be stepped: this host's belongs to everybody."""
    with KEEPER.open("rb") as program:
        fork.guest.upload(fork.name, program, "/tmp/keeper", 0o755)
    said = fork.says(in_guest(step_s))
    before_s, after_s, wall_before_s, wall_after_s, deadline_ns = map(float, said.split())
    assert after_s * NS_PER_SECOND < deadline_ns - keeper.KILL_MARGIN_NS, "stepped in good time"
    assert abs(wall_after_s - wall_before_s - step_s) <= 1 + after_s - before_s
    fork.says("while ! [ -e /tmp/kept/exit ]; do sleep 0.1; done")
    record = dict(word.split("=", 1) for word in fork.says("cat /tmp/kept/exit").split())
    assert record["cause"] == "deadline"
    died_ns = int(record["ended_boot_ns"])
    assert died_ns >= deadline_ns - keeper.KILL_MARGIN_NS
    assert died_ns - deadline_ns < fork.inside.patience_s * NS_PER_SECOND
    assert int(record["late_ns"]) == max(0, died_ns - int(deadline_ns))


def test_a_keeper_frozen_past_the_deadline_kills_when_it_wakes(kept: Kept) -> None:
    """As after a host was suspended: what ran too long is told, and is not charged above the lease."""
    handle = kept.start("/bin/sleep", "1000", lease_ns=2 * NS_PER_SECOND)
    os.kill(handle.keeper_pid, signal.SIGSTOP)
    lease_end_ns = keeper.read_deadline(kept.home)
    assert lease_end_ns is not None
    assert soon(lambda: kept.clock.boot_ns() > lease_end_ns + NS_PER_SECOND // 2)
    assert keeper.program_lives(kept.home)
    woken_ns = kept.clock.boot_ns()
    os.kill(handle.keeper_pid, signal.SIGCONT)
    assert gone(handle.pid, handle.keeper_pid)
    death = assert_killed_at(kept.home, lease_end_ns)
    assert death.ended_boot_ns >= woken_ns
    assert death.late_ns >= NS_PER_SECOND // 2


def test_who_asks_after_the_deadline_is_not_its_killer(kept: Kept) -> None:
    """The worker of a host that wakes up may be quicker than its keepers: the lease was over all the same."""
    handle = kept.start("/bin/sleep", "1000", lease_ns=2 * NS_PER_SECOND)
    os.kill(handle.keeper_pid, signal.SIGSTOP)
    lease_end_ns = keeper.read_deadline(kept.home)
    assert lease_end_ns is not None
    assert soon(lambda: kept.clock.boot_ns() > lease_end_ns)
    keeper.ask_to_kill(kept.home)
    os.kill(handle.keeper_pid, signal.SIGCONT)
    assert gone(handle.pid, handle.keeper_pid)
    assert_killed_at(kept.home, lease_end_ns)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can raise a process's weight")
def test_what_is_killed_dies_with_its_keeper_s_weight(kept: Kept) -> None:
    """Or its memory would be given back at the pace of a machine, behind all that compute. A second process of its
    group shows it, as it outlives the kill.
    """
    handle = kept.start("/bin/sh", "-c", "sleep 1000 & wait", first_uid=FIRST_UID)
    assert soon(lambda: children_of(handle.pid) != [])
    [second] = children_of(handle.pid)
    os.setpriority(os.PRIO_PROCESS, second, 10)
    try:
        keeper.kill(kept.home)
        assert os.getpriority(os.PRIO_PROCESS, second) == os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        os.kill(second, signal.SIGKILL)


def assert_killed_at(home: Home, lease_end_ns: int) -> Death:
    """The record says that its deadline ended it, not before its margin, and by how much it was late."""
    death = keeper.read_exit(home)
    assert death is not None
    assert (death.cause, death.signal) == (DeathCause.DEADLINE, signal.SIGKILL)
    assert int(record_of(home)["deadline_boot_ns"]) == lease_end_ns
    assert death.ended_boot_ns >= lease_end_ns - keeper.KILL_MARGIN_NS
    assert death.late_ns == max(0, death.ended_boot_ns - lease_end_ns)
    return death


def start_doomed_worker(host: Host, frozen: Frozen, name: str) -> subprocess.Popen[bytes]:
    """A process of a session of its own that restores one machine and says `started`."""
    program = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from infra import manifest
        from infra.clock import HostClock
        from infra.qemu.fingerprint import survey
        from infra.qemu.machines import QemuMachines
        from app.domain.machine import Deadline
        root, guest = Path({str(host.root)!r}), Path({str(PRODUCTS / "guest")!r})
        clock = HostClock()
        means, fingerprint = survey(
            "doomed", root, Path({str(KEEPER)!r}), guest / "vmlinuz", guest / "initramfs.cpio", clock
        )
        machines = QemuMachines(root, means, fingerprint, clock)
        directory = Path({str(frozen.bundle.directory)!r})
        bundle = manifest.read(directory).bundle(directory)
        now_ns = clock.boot_ns()
        machines.restore({name!r}, bundle, Deadline(now_ns + {int(LEASE_S * 1e9)}, now_ns + 10**11))
        print("started", flush=True)
        time.sleep(1000)
        """
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=PRODUCTS.parent,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def in_guest(step_s: int) -> str:
    """Start a keeper with a lease of a few seconds by boot time, then step the wall clock.

    Prints boot time before and after the step, the wall clock before and after it, in seconds; and the deadline in ns.
    """
    return textwrap.dedent(
        f"""
        set -e
        mkdir /tmp/kept
        cd /tmp/kept
        boot_s() {{ cut -d' ' -f1 /proc/uptime; }}
        now_s=$(boot_s)
        echo "$(( ${{now_s%.*}} + {int(LEASE_S)} ))000000000" >deadline
        /tmp/keeper -s 9000000000000000000 -m {keeper.KILL_MARGIN_NS} -- /bin/sleep 1000 </dev/null 1</dev/null 2>said
        before_s=$(boot_s)
        wall_before_s=$(date +%s)
        date -s @$(( wall_before_s + ({step_s}) )) >/dev/null
        wall_after_s=$(date +%s)
        echo $before_s $(boot_s) $wall_before_s $wall_after_s $(cat deadline)
        """
    )


def children_of(pid: int) -> list[int]:
    """Processes that it started and that live."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes_in(directory: Path) -> list[int]:
    """Whoever works in it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == directory:
                found.append(int(entry.name))
        except OSError:
            continue
    return found
