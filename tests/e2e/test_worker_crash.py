"""A worker killed at any moment of its work on machines leaves nothing that the next one cannot account for."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from app.errors import Unavailable
from infra.stack.process import end_at_once, find
from tests.e2e.conftest import Factory, Frozen, Host
from tests.e2e.kept import PRODUCTS
from tests.e2e.processes import gone

pytestmark = pytest.mark.machines

# Fractions of one barrier: before the keeper, during the load of the state, after it, in the middle of the kill.
MOMENTS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.5)


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_next_worker_accounts_for_what_a_killed_one_left(
    factory: Factory, frozen: Frozen, moment: float
) -> None:
    worker = start_worker(factory.host, frozen)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    time.sleep(moment * frozen.barrier_s)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    for name in factory.machines.known():
        handle = factory.machines.recover(name)
        if handle is not None:
            with factory.wire(name) as wire:
                assert wire.wake()["boot_id"] == frozen.bundle.boot_id
        factory.machines.kill(name)
        factory.machines.forget(name)
    assert factory.machines.live() == ()
    assert gone(*processes_in(factory.host.root))


def test_a_frozen_worker_keeps_its_machine_from_everybody_until_it_is_ended(
    factory: Factory, frozen: Frozen
) -> None:
    worker = start_worker(factory.host, frozen, HOLDS_ONE)
    assert worker.stdout is not None
    name = worker.stdout.readline().decode().strip()
    worker.send_signal(signal.SIGSTOP)
    with pytest.raises(Unavailable, match="another process holds the monitor"):
        factory.machines.recover(name)
    process = find(worker.pid)
    assert process is not None
    assert end_at_once(process)
    worker.communicate()
    assert factory.machines.recover(name) is not None
    with factory.wire(name) as wire:
        assert wire.wake()["boot_id"] == frozen.bundle.boot_id
    factory.machines.kill(name)
    factory.machines.forget(name)
    assert gone(*processes_in(factory.host.root))


# One machine after the other, restored and killed.
KEEPS_GOING = """
print("ready", flush=True)
for number in range(1000):
    now_ns = clock.boot_ns()
    machines.restore(f"doomed-{os.getpid()}-{number}", bundle, Deadline(now_ns + 10**11, now_ns + 10**11))
    machines.kill(f"doomed-{os.getpid()}-{number}")
"""
HOLDS_ONE = """
name, now_ns = f"held-{os.getpid()}", clock.boot_ns()
machines.restore(name, bundle, Deadline(now_ns + 10**11, now_ns + 10**11))
print(name, flush=True)
threading.Event().wait()
"""


def start_worker(host: Host, frozen: Frozen, does: str = KEEPS_GOING) -> subprocess.Popen[bytes]:
    """A process with the machines of this host, and what it does with them."""
    program = textwrap.dedent(
        f"""
        import os, threading
        from pathlib import Path
        from infra import manifest
        from infra.clock import HostClock
        from infra.qemu.fingerprint import survey
        from infra.qemu.machines import QemuMachines
        from app.domain.machine import Deadline
        root, guest = Path({str(host.root)!r}), Path({str(PRODUCTS / "guest")!r})
        clock = HostClock()
        means, fingerprint = survey(
            "doomed", root, Path({str(host.means[0].keeper)!r}), guest / "vmlinuz", guest / "initramfs.cpio", clock
        )
        machines = QemuMachines(root, means, fingerprint, clock)
        directory = Path({str(frozen.bundle.directory)!r})
        bundle = manifest.read(directory).bundle(directory)
        """
    )
    return subprocess.Popen(
        [sys.executable, "-c", program + does], cwd=PRODUCTS.parent, stdout=subprocess.PIPE
    )


def processes_in(root: Path) -> list[int]:
    """Keepers and machines that work in a directory of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(root):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
