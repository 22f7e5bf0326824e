"""From a frozen bundle to an acknowledged barrier: the product against the bare mechanism, interleaved in one run.

    python -m bench.barrier [--rounds N]

The bare mechanism is what anyone would write in a page: start QEMU, load the state by its monitor, `cont`, say the
barrier's line, read the answer. The product does the same with a keeper, checks of the bundle, users of their own, and
adapters that serve hundreds of machines. No SSH in either. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.machine import Bundle, Deadline, Identity, Shape
from infra.bundles import LocalBundles
from infra.clock import HostClock
from infra.guest import SshGuest, wire
from infra.guest.hostkey import make_host_key
from infra.image.images import LocalImages
from infra.qemu.argv import Descriptors, fdset, fork_argv
from infra.qemu.fingerprint import survey
from infra.qemu.home import Home, connect, listen
from infra.qemu.launch import Means
from infra.qemu.machines import QemuMachines

PRODUCTS = Path(__file__).resolve().parents[1] / ".promigence"
SHAPE = Shape(vcpus=1, memory_mib=128, disk_gib=1)
ROUNDS = 25
_ANSWER_TIMEOUT_S = 60.0
_LEASE_NS = 600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Subject:
    """One host with one frozen machine."""

    root: Path
    means: Means
    machines: QemuMachines
    guest: SshGuest
    clock: HostClock
    bundle: Bundle


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds from nothing to the barrier's answer, for both, and the ratio of their medians."""
    with ExitStack() as stack:
        subject = _subject(stack)
        product, bare = [], []
        for round_number in range(rounds + 1):
            product_s = _product(subject, f"product-{round_number}")
            bare_s = _bare(subject, f"bare-{round_number}")
            if round_number > 0:  # the first one warms the page cache for both
                product.append(product_s)
                bare.append(bare_s)
        ratio = statistics.median(product) / statistics.median(bare)
        return {
            "rounds": rounds,
            "accelerator": subject.bundle.restore_key.accelerator.value,
            "shape": {"vcpus": SHAPE.vcpus, "memory_mib": SHAPE.memory_mib},
            "product_seconds": _summary(product),
            "bare_seconds": _summary(bare),
            "ratio": round(ratio, 2),
        }


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each (default {ROUNDS})")
    print(json.dumps(measure(parser.parse_args().rounds), indent=2))
    return 0


def _subject(stack: ExitStack) -> Subject:
    folder = Path(tempfile.mkdtemp(prefix="promigence-bench-"))
    stack.callback(shutil.rmtree, folder)
    root, guest_files, clock = folder / "machines", PRODUCTS / "guest", HostClock()
    means, fingerprint = survey(
        "bench",
        root,
        PRODUCTS / "bin" / "keeper",
        guest_files / "vmlinuz",
        guest_files / "initramfs.cpio",
        clock,
    )
    machines = QemuMachines(root, means, fingerprint, clock)
    stack.callback(machines.close)
    guest = SshGuest(lambda name: root / name)
    stack.callback(guest.shut_down)
    stack.callback(_kill_all, machines, guest)
    bundle = _freeze(machines, guest, clock, LocalBundles(folder / "bundles"))
    return Subject(root, means, machines, guest, clock, bundle)


def _kill_all(machines: QemuMachines, guest: SshGuest) -> None:
    for name in machines.known():
        guest.close(name)
        machines.kill(name)
        machines.forget(name)


def _freeze(
    machines: QemuMachines, guest: SshGuest, clock: HostClock, bundles: LocalBundles
) -> Bundle:
    image = LocalImages(PRODUCTS / "images", PRODUCTS / "guest").boot_image("busybox")
    machines.boot("template", image, SHAPE, _deadline(clock))
    guest.attach("template", booted_within_s=_ANSWER_TIMEOUT_S)
    guest.wake("template", _identity("template", clock), _ANSWER_TIMEOUT_S)
    boot_id = guest.quiesce("template")
    guest.close("template")
    return bundles.store(machines.freeze("template", bundles.staging("busybox"), boot_id).bundle_id)


def _product(subject: Subject, name: str) -> float:
    identity = _identity(name, subject.clock)
    started = time.perf_counter()
    subject.machines.restore(name, subject.bundle, _deadline(subject.clock))
    subject.guest.attach(name)
    awake = subject.guest.wake(name, identity, _ANSWER_TIMEOUT_S)
    seconds = time.perf_counter() - started
    assert awake.boot_id == subject.bundle.boot_id
    subject.guest.close(name)
    subject.machines.kill(name)
    subject.machines.forget(name)
    return seconds


def _bare(subject: Subject, name: str) -> float:
    home = Home(subject.root.parent / name)
    home.directory.mkdir()
    key_file, _ = make_host_key()
    told = wire.wake(_identity(name, subject.clock), key_file, subject.clock.wall_ns())
    started = time.perf_counter()
    process, state = _spawn(subject, home)
    try:
        _load_state(home, state)
        answer = _say(home, told)
        seconds = time.perf_counter() - started
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home.directory)
    assert answer.startswith(b"AWAKE ")
    return seconds


def _spawn(subject: Subject, home: Home) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the number by which it knows the state file."""
    bundle = subject.bundle
    shutil.copyfile(bundle.directory / home.overlay.name, home.overlay)
    with ExitStack() as stack:

        def opened(path: Path, flags: int = os.O_RDONLY) -> int:
            fd = os.open(path, flags | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            return fd

        files = Descriptors(
            console=opened(Path("/dev/null"), os.O_WRONLY),
            monitor=stack.enter_context(listen(home.monitor)).fileno(),
            control=stack.enter_context(listen(home.control)).fileno(),
            ssh=stack.enter_context(listen(home.ssh)).fileno(),
            memory=opened(bundle.memory),
            state=opened(bundle.state),
            root=opened(bundle.root_disk),
            tools=opened(bundle.tools_disk),
            overlay=opened(home.overlay, os.O_RDWR),
        )
        argv = fork_argv(subject.means.hypervisor, home.name, bundle.shape, files)
        return subprocess.Popen(argv, pass_fds=files.numbers(), env={}), files.state


def _load_state(home: Home, state: int) -> None:
    ignore_memory = [{"capability": "x-ignore-shared", "state": True}]
    events = [{"capability": "events", "state": True}]
    with connect(home.monitor, _ANSWER_TIMEOUT_S) as monitor, monitor.makefile("rwb") as lines:

        def execute(command: str, **arguments: object) -> None:
            lines.write(json.dumps({"execute": command, "arguments": arguments}).encode())
            lines.flush()
            while "return" not in (message := json.loads(lines.readline())):
                assert "error" not in message, message

        lines.readline()
        execute("qmp_capabilities")
        execute("migrate-set-capabilities", capabilities=[*ignore_memory, *events])
        execute("migrate-incoming", uri=f"file:{fdset(state)}")
        while b"completed" not in lines.readline():
            pass
        execute("cont")


def _say(home: Home, line: bytes) -> bytes:
    with connect(home.control, _ANSWER_TIMEOUT_S) as control, control.makefile("rb") as answers:
        control.sendall(line)
        return answers.readline()


def _identity(name: str, clock: HostClock) -> Identity:
    return Identity(
        fork_id=name,
        hostname=name,
        generation=str(uuid.uuid4()),
        machine_id=secrets.token_hex(16),
        nonce=secrets.token_hex(16),
        entropy=secrets.token_bytes(64),
        wall_ns=clock.wall_ns(),
    )


def _deadline(clock: HostClock) -> Deadline:
    now_ns = clock.boot_ns()
    return Deadline(now_ns + _LEASE_NS, now_ns + _LEASE_NS)


def _summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "median": round(statistics.median(ordered), 4),
        "p90": round(ordered[int(len(ordered) * 0.9)], 4),
        "least": round(ordered[0], 4),
    }


if __name__ == "__main__":
    raise SystemExit(main())
