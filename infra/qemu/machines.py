"""`Machines` by QEMU on this host."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.domain.attribution import Strain, Vitals, strain_between
from app.domain.machine import (
    BootImage,
    Bundle,
    Deadline,
    Death,
    Fingerprint,
    Handle,
    MonitorEvent,
    RestoreKey,
    Shape,
)
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.ports import Clock
from infra import manifest
from infra.qemu import evidence, keeper, limits, restore, template, vitals
from infra.qemu.argv import fork_argv, template_argv
from infra.qemu.home import Home, home_of, write_atomically
from infra.qemu.launch import (
    ArgvOf,
    Files,
    Launched,
    Means,
    attach,
    launch,
    means_of,
    same_build,
    translated,
)
from infra.qemu.priority import stand_back
from infra.qemu.probe import boots
from infra.qemu.qmp import (
    Monitor,
    MonitorLoop,
    MonitorLostError,
    MonitorRefusedError,
    MonitorSilentError,
)

_ADOPTED_WITHIN_S = 5.0
_HEARD_OUT_WITHIN_S = 5.0
_BOOTS_WITHIN_S = 60.0


class QemuMachines:
    """Each machine has a directory `root/<name>`: `control.sock` and `ssh.sock` in it are the guest's two ports.

    Of `means` there is one for each QEMU build: templates run by the first, a fork by its bundle's. One worker process
    at a time holds a machine's monitor. `close` gives all of them up; the machines live on.
    """

    def __init__(
        self, root: Path, means: tuple[Means, ...], fingerprint: Fingerprint, clock: Clock
    ) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = root
        self._means = means
        self._fingerprint = fingerprint
        self._clock = clock
        self._monitors: dict[str, Monitor] = {}
        self._manifests: dict[Path, manifest.Manifest] = {}
        self._loop = MonitorLoop(clock, self._heard, self._lost)

    def fingerprint(self) -> Fingerprint:
        """What this host can do."""
        return self._fingerprint

    def prove(self, key: RestoreKey | None = None) -> None:
        """Boot the guest's own kernel to its first process, and end it; by each program, or by that of a key."""
        for means in self._means if key is None else (means_of(key, self._means),):
            same_build(means)
            runs = means.hypervisor.key
            seen = boots(means.trial, runs.accelerator, runs.cpu_model, _BOOTS_WITHIN_S)
            if seen is not None:
                raise EnvironmentFault(
                    FailureKind.RESTORE_FAILED,
                    f"no guest boots here by {means.hypervisor.program}: {seen}",
                    restore_key=str(runs),
                )

    def boot(self, name: str, image: BootImage, shape: Shape, deadline: Deadline) -> Handle:
        """Cold-boot a template on its own copy of the image."""

        means = self._means[0]

        def start(home: Home) -> Handle:
            files, disk_id = template.prepare(home, image, shape)
            launched = self._launch(means, home, shape, files, template_argv, deadline)
            key, state = means.hypervisor.key, launched.files.state
            template.note(home, template.Notes(shape, key, disk_id, state))
            stand_back(launched.handle.pid)
            return launched.handle

        return self._in_new_home(name, start)

    def freeze(self, name: str, into: Path, boot_id: str) -> Bundle:
        """Stop a quiet template and keep all of it in `into`."""
        home = home_of(self._root, name)
        notes = template.notes_of(home)
        monitor = self._monitors.get(name)
        if monitor is None:
            raise EnvironmentFault(FailureKind.GUEST_LOST, f"template {name} is gone")
        with translated(home):
            template.write_state(monitor, notes)
            self.kill(name)
            return template.collect(home, notes, into, boot_id, self._clock)

    def restore(self, name: str, bundle: Bundle, deadline: Deadline) -> Handle:
        """Fork a machine from a bundle by the program that it needs; its guest waits in the barrier."""
        known = self._manifest(bundle)
        manifest.check_sizes(bundle.directory, known)
        means = means_of(known.restore_key, self._means)

        def start(home: Home) -> Handle:
            files = restore.prepare(home, bundle)
            launched = self._launch(means, home, bundle.shape, files, fork_argv, deadline)
            restore.resume(launched.monitor, launched.files)
            stand_back(launched.handle.pid)
            return launched.handle

        return self._in_new_home(name, start)

    def extend(self, name: str, deadline_boot_ns: int) -> None:
        """Move a machine's deadline. Where the host's disk is full the old one stands, which is the safe side."""
        home = home_of(self._root, name)
        if not keeper.keeper_lives(home) or keeper.read_deadline(home) == deadline_boot_ns:
            return
        with contextlib.suppress(OSError):
            keeper.write_deadline(home, deadline_boot_ns)
            keeper.tell_deadline(home)

    def kill(self, name: str) -> Death | None:
        """End a machine and wait until it is gone."""
        home = home_of(self._root, name)
        if self.death(name) is None:
            self._look_once_more(home)
            keeper.kill(home)
        self._hear_out(name)
        return self.death(name)

    def death(self, name: str) -> Death | None:
        """How a machine ended."""
        return evidence.death(home_of(self._root, name), self.events(name), self._clock)

    def events(self, name: str) -> tuple[MonitorEvent, ...]:
        """The last monitor events, oldest first."""
        monitor = self._monitors.get(name)
        return monitor.events if monitor else evidence.load_events(home_of(self._root, name))

    def console_tail(self, name: str) -> str:
        """The last 4 KiB of the guest's console."""
        return evidence.console_tail(home_of(self._root, name))

    def vitals(self, name: str) -> Vitals:
        """One look at its process; at one that we ended, the last before that."""
        home = home_of(self._root, name)
        seen = vitals.look(home, self._clock)
        return seen if seen.process_state else vitals.kept(home.last) or seen

    def mark(self, name: str, exec_id: str) -> None:
        """Keep a look at it beside it. Where the disk is full, its birth will have to do."""
        vitals.keep(home_of(self._root, name).mark(exec_id), self.vitals(name))

    def marked(self, name: str, exec_id: str) -> bool:
        """Whether a command was about to start on it."""
        return home_of(self._root, name).mark(exec_id).exists()

    def strain(self, name: str, exec_id: str) -> Strain:
        """What its host took from it since the mark."""
        home, now = home_of(self._root, name), self.vitals(name)
        before = vitals.kept(home.mark(exec_id)) or vitals.at_birth(home, now)
        return strain_between(before, now, self.events(name))

    def recover(self, name: str) -> Handle | None:
        """Take a machine that an earlier worker started. One that it left half restored is ended.

        Raises Unavailable while another process holds the machine's monitor.
        """
        home = home_of(self._root, name)
        handle = self._living(home)
        if handle is None or name in self._monitors:
            return handle
        monitor = self._adopt(home)
        if monitor is not None:
            self._monitors[name] = monitor
            if self._runs(monitor, home):
                return handle
        self.kill(name)
        return None

    def live(self) -> tuple[Handle, ...]:
        """Every machine under `root` that lives now."""
        handles = (self._living(Home(self._root / name)) for name in self.known())
        return tuple(handle for handle in handles if handle is not None)

    def known(self) -> tuple[str, ...]:
        """Names of all machines whose files are here."""
        return tuple(sorted(entry.name for entry in self._root.iterdir() if entry.is_dir()))

    def forget(self, name: str) -> None:
        """Remove all files of a dead machine. Raises Conflict for one that lives."""
        home = home_of(self._root, name)
        with keeper.buried(home):
            self._hear_out(name)
            limits.clear(name)
            shutil.rmtree(home.directory, ignore_errors=True)

    def close(self) -> None:
        """Give up all monitors; the machines live on."""
        self._loop.close()
        self._monitors.clear()

    def _in_new_home(self, name: str, start: Callable[[Home], Handle]) -> Handle:
        """Run `start` in a new directory; whatever goes wrong in it, nothing of the machine is left."""
        home = home_of(self._root, name)
        with translated(home):
            home.directory.mkdir(mode=0o700)
        try:
            with translated(home):
                return start(home)
        except BaseException:
            keeper.kill(home)
            self.forget(name)
            raise

    def _launch(
        self,
        means: Means,
        home: Home,
        shape: Shape,
        files: Files,
        argv_of: ArgvOf,
        deadline: Deadline,
    ) -> Launched:
        if deadline.epoch is not None:
            # Before there is a machine: one of a worker that dies now is told from those of a later epoch all the same.
            write_atomically(home.epoch, f"{deadline.epoch}\n")
        launched = launch(means, self._loop, home, shape, files, argv_of, deadline)
        self._monitors[home.name] = launched.monitor
        return launched

    def _manifest(self, bundle: Bundle) -> manifest.Manifest:
        """Read once: a bundle never changes, it only goes away."""
        known = self._manifests.pop(bundle.directory, None)
        if known is None or not (bundle.directory / manifest.NAME).exists():
            known = manifest.read(bundle.directory)
        self._manifests[bundle.directory] = known
        return known

    def _look_once_more(self, home: Home) -> None:
        """Somebody else may ask a moment later why we are ending it: he shall see what we saw."""
        seen = vitals.look(home, self._clock)
        if seen.process_state and not home.last.exists():
            vitals.keep(home.last, seen)

    def _living(self, home: Home) -> Handle | None:
        handle = keeper.read_born(home) if keeper.keeper_lives(home) else None
        return None if handle is None else replace(handle, epoch=_epoch_of(home))

    def _adopt(self, home: Home) -> Monitor | None:
        try:
            return attach(self._loop, home, _ADOPTED_WITHIN_S)
        except MonitorSilentError as error:
            raise Unavailable(
                "machine_busy", f"another process holds the monitor of machine {home.name}"
            ) from error
        except (MonitorLostError, OSError):  # it ended meanwhile
            return None

    def _runs(self, monitor: Monitor, home: Home) -> bool:
        """Whether the guest goes on. If it ended itself while nobody listened, its status says so; kept as an event."""
        try:
            status = monitor.execute("query-status")["status"]
        except (MonitorLostError, MonitorSilentError, MonitorRefusedError):
            return False
        if name := {"shutdown": "SHUTDOWN", "guest-panicked": "GUEST_PANICKED"}.get(status):
            data: dict[str, object] = {"guest": True, "learnt_from": "query-status"}
            monitor.note(MonitorEvent(name, data, self._clock.boot_ns()))
            evidence.save_events(home, monitor.events)
        return bool(status == "running")

    def _heard(self, monitor: Monitor, event: MonitorEvent) -> None:
        """A guest that ended itself is paused and holds its memory: note why, then end it."""
        if evidence.is_end(event):
            home = home_of(self._root, monitor.name)
            evidence.save_events(home, monitor.events)
            keeper.ask_to_kill(home)

    def _lost(self, monitor: Monitor) -> None:
        evidence.save_events(home_of(self._root, monitor.name), monitor.events)
        if self._monitors.get(monitor.name) is monitor:
            del self._monitors[monitor.name]

    def _hear_out(self, name: str) -> None:
        """Let a dead machine's last events arrive and be kept, before anyone asks for them or removes its files."""
        monitor = self._monitors.get(name)
        if monitor is not None:
            monitor.finished.wait(_HEARD_OUT_WITHIN_S)
            self._loop.detach(monitor)
            self._monitors.pop(name, None)


def _epoch_of(home: Home) -> int | None:
    """None where none was noted: a trial's, or one that an earlier release started."""
    try:
        return int(home.epoch.read_text())
    except FileNotFoundError:
        return None
