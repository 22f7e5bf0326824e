"""Machines and bundles that are only rows of a table."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path

from app.domain.attribution import Strain, Vitals, strain_between
from app.domain.machine import (
    Accelerator,
    BootImage,
    Bundle,
    Deadline,
    Death,
    DeathCause,
    Fingerprint,
    Handle,
    MonitorEvent,
    RestoreKey,
    Shape,
    not_served,
)
from app.errors import BadRequest, EnvironmentFault, FailureKind
from infra.fakes.world import Box, World

RESTORE_KEY = RestoreKey("fake-1", "fake", Accelerator.TCG, "fake")


class FakeMachines:
    """`Machines` over a World. `keys` are those of its programs: what is frozen here is frozen under the first."""

    def __init__(
        self,
        world: World,
        host_id: str,
        memory_mib: int = 1 << 20,
        keys: tuple[RestoreKey, ...] = (RESTORE_KEY,),
    ) -> None:
        self._world = world
        self._host_id = host_id
        self._memory_mib = memory_mib
        self._keys = keys

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(
            host_id=self._host_id,
            boot_id=self._world.clock.boot_id(),
            accelerator=Accelerator.TCG,
            accelerator_reason="simulated machines",
            restore_keys=self._keys,
            cpu_model="fake",
            vcpus=64,
            memory_mib=self._memory_mib,
            disk_gib=1 << 16,
            missing=("machines are simulated: they run `sim:` scripts only",),
        )

    def prove(self, key: RestoreKey | None = None) -> None:
        with self._world.step("prove", ""):
            self._need(key or self._keys[0])

    def boot(self, name: str, image: BootImage, shape: Shape, deadline: Deadline) -> Handle:
        with self._world.step("boot", name):
            return self._make(name, shape, str(uuid.uuid4()), str(uuid.uuid4()), deadline)

    def freeze(self, name: str, into: Path, boot_id: str) -> Bundle:
        with self._world.step("freeze", name):
            return self._freeze(name, into, boot_id)

    def _freeze(self, name: str, into: Path, boot_id: str) -> Bundle:
        box = self._world.box(name)
        into.mkdir(parents=True)
        bundle = Bundle(into.name, into, box.shape, self._keys[0], boot_id, box.disk_id)
        _write(bundle)
        self._world.die(name, DeathCause.ASKED)
        return bundle

    def restore(self, name: str, bundle: Bundle, deadline: Deadline) -> Handle:
        with self._world.step("restore", name):
            self._need(bundle.restore_key)
            return self._make(name, bundle.shape, bundle.boot_id, bundle.disk_id, deadline)

    def extend(self, name: str, deadline_boot_ns: int) -> None:
        box = self._world.boxes.get(name)
        if box is not None:
            box.deadline_ns = deadline_boot_ns

    def kill(self, name: str) -> Death | None:
        box = self._world.boxes.get(name)
        if box is not None and box.death is None:
            box.last = self.vitals(name)
        return self._world.die(name, DeathCause.ASKED)

    def death(self, name: str) -> Death | None:
        box = self._world.boxes.get(name)
        return box.death if box else None

    def events(self, name: str) -> tuple[MonitorEvent, ...]:
        box = self._world.boxes.get(name)
        return tuple(box.events) if box else ()

    def console_tail(self, name: str) -> str:
        box = self._world.boxes.get(name)
        return "" if box is None else f"fake console of {name}\n{box.console}"

    def vitals(self, name: str) -> Vitals:
        box, now_ns = self._world.boxes.get(name), self._world.clock.boot_ns()
        if box is None or box.death is not None:
            return (box.last if box is not None else None) or Vitals(now_ns)
        since_ns = box.stopped_since_boot_ns
        return Vitals(
            boot_ns=now_ns,
            process_state="S" if since_ns is None else "T",
            keeper_lives=True,
            stops=box.stops,
            stopped_ns=box.stopped_ns,
            stopped_since_boot_ns=since_ns,
            waited_ns=(box.starved_ns,),
            ran_ns=(now_ns,),
        )

    def mark(self, name: str, exec_id: str) -> None:
        box = self._world.boxes.get(name)
        if box is not None:
            box.marks[exec_id] = self.vitals(name)

    def marked(self, name: str, exec_id: str) -> bool:
        box = self._world.boxes.get(name)
        return box is not None and exec_id in box.marks

    def strain(self, name: str, exec_id: str) -> Strain:
        box, now = self._world.boxes.get(name), self.vitals(name)
        if box is None:
            return Strain(now.boot_ns, 0)
        before = box.marks.get(exec_id) or Vitals(box.handle.started_boot_ns)
        return strain_between(before, now, box.events)

    def recover(self, name: str) -> Handle | None:
        box = self._world.boxes.get(name)
        return box.handle if box is not None and box.death is None else None

    def live(self) -> tuple[Handle, ...]:
        boxes = self._world.boxes.values()
        return tuple(box.handle for box in boxes if box.death is None)

    def known(self) -> tuple[str, ...]:
        return tuple(self._world.boxes)

    def forget(self, name: str) -> None:
        box = self._world.boxes.get(name)
        if box is not None and box.death is not None:
            del self._world.boxes[name]

    def _need(self, key: RestoreKey) -> None:
        if key not in self._keys:
            raise not_served(key, self._keys)

    def _make(
        self, name: str, shape: Shape, boot_id: str, disk_id: str, deadline: Deadline
    ) -> Handle:
        now = self._world.clock.boot_ns()
        if now > deadline.start_by_boot_ns:
            raise EnvironmentFault(
                FailureKind.RESTORE_FAILED, "the window for starting this machine is over"
            )
        # No process stands behind a fake machine: 0 is nobody's pid.
        handle = Handle(name, pid=0, keeper_pid=0, started_boot_ns=now, epoch=deadline.epoch)
        box = Box(handle, shape, boot_id, disk_id, deadline.boot_ns)
        with self._world.lock:
            self._world.boxes[name] = box
        return handle


class FakeBundles:
    """`Bundles` as a folder of manifests, so that they outlive the process like real ones.

    `elsewhere` is a folder that the hosts of a deployment share: what is stored goes there, and each host mounts a copy
    of its own. Without it a stored bundle stays where it was made. `spoil` flips a bit that only `read` finds; `fault`
    is what the next `mount` meets; what is `held` is not evicted.
    """

    def __init__(self, root: Path, elsewhere: Path | None = None) -> None:
        self._root = root
        self._elsewhere = elsewhere
        self._unread: set[str] = set()
        self._spoilt: set[str] = set()
        self._refused: dict[str, EnvironmentFault] = {}
        self._used: dict[str, int] = {}
        self._faults: dict[str, list[EnvironmentFault]] = {}
        self.held: set[str] = set()

    @property
    def stores_elsewhere(self) -> bool:
        return self._elsewhere is not None

    def spoil(self, bundle_id: str) -> None:
        """From now on a bundle is not as it was frozen, and nobody has seen it."""
        self._spoilt.add(bundle_id)
        self._unread.add(bundle_id)

    def fault(self, bundle_id: str, fault: EnvironmentFault) -> None:
        """Let the next `mount` of a bundle that is not here fail so."""
        self._faults.setdefault(bundle_id, []).append(fault)

    def staging(self, bundle_id: str) -> Path:
        path = self._root / "staged" / bundle_id
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def watch(self, bundle_id: str) -> None:
        """There is nothing to be read."""

    def record(self, bundle_id: str) -> int:
        return 0

    def store(self, bundle_id: str) -> Bundle:
        staged = self._root / "staged" / bundle_id
        if staged.exists():
            stored = (self._elsewhere or self._root / "stored") / bundle_id
            stored.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(stored)
        self.mount(bundle_id)
        return self.open(bundle_id)

    def mount(self, bundle_id: str) -> None:
        if bundle_id not in self.known():
            if self._faults.get(bundle_id):
                raise self._faults[bundle_id].pop(0)
            if self._elsewhere is None or not (self._elsewhere / bundle_id).exists():
                raise _unavailable(bundle_id)
            shutil.copytree(self._elsewhere / bundle_id, self._root / "stored" / bundle_id)
        self.open(bundle_id)

    def open(self, bundle_id: str) -> Bundle:
        if bundle_id in self._refused:
            raise self._refused[bundle_id]
        for place in ("stored", "staged"):
            directory = self._root / place / bundle_id
            if directory.exists():
                self._used[bundle_id] = max(self._used.values(), default=0) + 1
                return _read(directory)
        raise _unavailable(bundle_id)

    def unread(self) -> tuple[str, ...]:
        return tuple(sorted(self._unread))

    def read(self, bundle_id: str) -> None:
        self._unread.discard(bundle_id)
        if bundle_id in self._spoilt:
            fault = EnvironmentFault(
                FailureKind.SNAPSHOT_CORRUPT,
                f"bundle {bundle_id}: memory.img: chunk 7 of 2 MiB has changed",
                bundle=bundle_id,
                file="memory.img",
                chunk=7,
            )
            self._refused[bundle_id] = fault
            raise fault
        self.open(bundle_id)

    def refused(self) -> tuple[tuple[str, EnvironmentFault], ...]:
        return tuple(self._refused.items())

    def mounted(self) -> tuple[str, ...]:
        warm = (name for name in self.known() if name not in self._refused)
        return tuple(sorted(warm, key=lambda name: self._used.get(name, 0)))

    def known(self) -> tuple[str, ...]:
        places = (self._root / "stored", self._root / "staged")
        return tuple(path.name for place in places if place.exists() for path in place.iterdir())

    def evict(self, bundle_id: str) -> bool:
        if bundle_id not in self.known():
            return True
        if bundle_id in self.held or not self._is_elsewhere(bundle_id):
            return False
        self._forget(bundle_id)
        shutil.rmtree(self._root / "stored" / bundle_id)
        return True

    def release(self) -> None:
        for bundle_id in self.known():
            self.evict(bundle_id)

    def tidy(self) -> None:
        pass

    def delete(self, bundle_id: str) -> None:
        self._forget(bundle_id)
        here = (self._root / "stored", self._root / "staged")
        for place in (*here, *([self._elsewhere] if self._elsewhere else [])):
            shutil.rmtree(place / bundle_id, ignore_errors=True)

    def _is_elsewhere(self, bundle_id: str) -> bool:
        return self._elsewhere is not None and (self._elsewhere / bundle_id).exists()

    def _forget(self, bundle_id: str) -> None:
        self._unread.discard(bundle_id)
        self._refused.pop(bundle_id, None)
        self._used.pop(bundle_id, None)


class FakeImages:
    """Images by name alone; `release` is what their guest's kernel and tools are of."""

    def __init__(self, *names: str) -> None:
        self._names = names or ("debian-12",)
        self.release = "1"

    def names(self) -> tuple[str, ...]:
        return self._names

    def boot_image(self, name: str) -> BootImage:
        if name not in self._names:
            raise BadRequest("unknown_image", f"there are: {', '.join(self._names)}")
        nothing = Path(name)
        made_of = (("image", name), ("kernel", self.release), ("tools", self.release))
        return BootImage(nothing / "root.img", nothing, nothing, nothing, made_of)


def _unavailable(bundle_id: str) -> EnvironmentFault:
    return EnvironmentFault(
        FailureKind.SNAPSHOT_UNAVAILABLE, f"bundle {bundle_id} is not on this host"
    )


def _write(bundle: Bundle) -> None:
    shape = bundle.shape
    manifest = {
        "shape": [shape.vcpus, shape.memory_mib, shape.disk_gib],
        "boot_id": bundle.boot_id,
        "disk_id": bundle.disk_id,
        "restore_key": asdict(bundle.restore_key),
    }
    (bundle.directory / "manifest.json").write_text(json.dumps(manifest))


def _read(directory: Path) -> Bundle:
    manifest = json.loads((directory / "manifest.json").read_text())
    key = manifest["restore_key"]
    return Bundle(
        directory.name,
        directory,
        Shape(*manifest["shape"]),
        RestoreKey(**{**key, "accelerator": Accelerator(key["accelerator"])}),
        manifest["boot_id"],
        manifest["disk_id"],
    )
