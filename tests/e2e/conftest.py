"""Real machines for tests: one host, one frozen busybox for the whole session, forks of it for each test.

All waiting is bounded by `patience_s`, which comes from one barrier measured here: what is slow is waited for.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.domain.machine import Bundle, Deadline, Fingerprint, Handle, Shape
from infra.bundles import LocalBundles
from infra.clock import HostClock
from infra.egress import EgressProxy
from infra.egress.dialling import Dialler
from infra.image.images import LocalImages
from infra.qemu.fingerprint import survey
from infra.qemu.home import Home
from infra.qemu.launch import Means
from infra.qemu.machines import QemuMachines
from infra.settings import Settings
from tests.e2e.inside import Inside, Machine
from tests.e2e.kept import PRODUCTS, SECOND_NS, Kept
from tests.e2e.wire import Wire

SHAPE = Shape(vcpus=1, memory_mib=128, disk_gib=1)
_BOOTED_WITHIN_S = 120.0
_BARRIERS_OF_PATIENCE = 100
# The host may be quiet while the barrier is measured, and busy afterwards.
_LEAST_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Host:
    """What this machine runs machines with; all tests share it."""

    root: Path
    means: tuple[Means, ...]
    fingerprint: Fingerprint
    clock: HostClock

    def machines(self) -> QemuMachines:
        """A worker's view of the host; whoever makes one closes it."""
        return QemuMachines(self.root, self.means, self.fingerprint, self.clock)

    def deadline(self, lease_s: float = 300.0, start_window_s: float = 60.0) -> Deadline:
        """From now on."""
        now_ns = self.clock.boot_ns()
        return Deadline(
            boot_ns=now_ns + int(lease_s * SECOND_NS),
            start_by_boot_ns=now_ns + int(start_window_s * SECOND_NS),
        )


@dataclass(frozen=True, slots=True)
class Frozen:
    """The session's bundle, and how long one barrier took when it was made."""

    bundle: Bundle
    barrier_s: float

    @property
    def patience_s(self) -> float:
        """How long a test waits for what should happen soon."""
        return max(_LEAST_PATIENCE_S, self.barrier_s * _BARRIERS_OF_PATIENCE)


class Factory:
    """Makes machines for one test. Whatever it made is killed at the end, and then nothing of it may be left."""

    def __init__(self, host: Host, machines: QemuMachines, frozen: Frozen) -> None:
        self.host = host
        self.machines = machines
        self._frozen = frozen
        self._pids: list[int] = []
        self._names = (f"{os.getpid()}-{number}" for number in _NUMBERS)

    def name(self) -> str:
        """A name that no machine has had."""
        return next(self._names)

    def fork(self, lease_s: float = 300.0) -> Handle:
        """A fork of the session's bundle; its guest waits in the barrier."""
        return self.keep(
            self.machines.restore(
                self.name(), self._frozen.bundle, self.host.deadline(lease_s=lease_s)
            )
        )

    def keep(self, handle: Handle) -> Handle:
        """Let the end of the test look after this machine too."""
        self._pids += [handle.pid, handle.keeper_pid]
        return handle

    def wire(self, name: str) -> Wire:
        """The machine's control port."""
        return Wire(self.host.root, name, self._frozen.patience_s)

    def end(self) -> None:
        """Kill all, forget all, and look for survivors."""
        for name in self.machines.known():
            self.machines.kill(name)
            self.machines.forget(name)
        assert self.machines.known() == ()
        survivors = [pid for pid in self._pids if _runs(pid, self.host.root)]
        assert survivors == []


_NUMBERS = itertools.count()


def _runs(pid: int, root: Path) -> bool:
    """Whether this process still is one of ours: both keeper and QEMU work in a machine's directory."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(root)
    except OSError:
        return False


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """This machine as a host."""
    root = tmp_path_factory.mktemp("host") / "machines"
    keeper, guest = PRODUCTS / "bin" / "keeper", PRODUCTS / "guest"
    assert keeper.exists(), "run `make setup` first"
    clock = HostClock()
    means, fingerprint = survey(
        "test-host", root, keeper, guest / "vmlinuz", guest / "initramfs.cpio", clock
    )
    return Host(root, means, fingerprint, clock)


@pytest.fixture(scope="session")
def images() -> LocalImages:
    """What set-up built."""
    return LocalImages(PRODUCTS / "images", PRODUCTS / "guest")


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> LocalBundles:
    """Bundles of this session."""
    return LocalBundles(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="session")
def frozen(host: Host, images: LocalImages, bundles: LocalBundles) -> Frozen:
    """A busybox machine, booted and frozen once."""
    machines = host.machines()
    try:
        machines.boot("template", images.boot_image("busybox"), SHAPE, host.deadline())
        with Wire(host.root, "template", _BOOTED_WITHIN_S) as wire:
            assert wire.hear()["verb"] == "HELLO"
            wire.wake("template")
            boot_id = wire.ask("QUIESCE")["boot_id"]
        staged = machines.freeze("template", bundles.staging("busybox"), boot_id)
        bundle = bundles.store(staged.bundle_id)
        return Frozen(bundle, _one_barrier_s(host, machines, bundle))
    finally:
        for name in machines.known():
            machines.kill(name)
            machines.forget(name)
        machines.close()


@pytest.fixture
def factory(host: Host, frozen: Frozen) -> Iterator[Factory]:
    """Machines for one test."""
    machines = host.machines()
    made = Factory(host, machines, frozen)
    try:
        yield made
        made.end()
    finally:
        for name in machines.known():
            machines.kill(name)
        machines.close()


@pytest.fixture(scope="session")
def inside(
    host: Host, frozen: Frozen, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Inside]:
    """The guest's adapter, over machines of its own; the operator lists what is on this host's loopback."""
    root = tmp_path_factory.mktemp("inside") / "machines"
    dialler = Dialler(("127.0.0.1:*",), uid=Settings().egress_uid)
    made = Inside.of(host, root, frozen.patience_s, EgressProxy(dialler.dial))
    try:
        yield made
    finally:
        made.close()
        dialler.close()


@pytest.fixture(scope="session", params=["booted", "restored"])
def machine(
    request: pytest.FixtureRequest, inside: Inside, images: LocalImages, frozen: Frozen
) -> Machine:
    """What a guest promises, it promises booted and restored. Shared: a test that breaks its machine takes `fork`."""
    if request.param == "restored":
        return inside.fork(frozen.bundle)
    return inside.boot(images.boot_image("busybox"), SHAPE)


@pytest.fixture
def fork(inside: Inside, frozen: Frozen) -> Iterator[Machine]:
    """A fork of the test's own."""
    made = inside.fork(frozen.bundle)
    yield made
    inside.machines.kill(made.name)
    inside.guest.close(made.name)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A home for plain programs under a keeper."""
    home = Home(tmp_path / "m")
    home.directory.mkdir()
    made = Kept(home)
    yield made
    made.close()


def _one_barrier_s(host: Host, machines: QemuMachines, bundle: Bundle) -> float:
    started = time.monotonic()
    machines.restore("barrier", bundle, host.deadline())
    with Wire(host.root, "barrier", _BOOTED_WITHIN_S) as wire:
        wire.wake()
    return time.monotonic() - started
