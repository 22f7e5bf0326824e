"""What the kernel and the keeper say of a machine's process: whether it stands, and what it was denied."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from app.domain.attribution import Vitals
from app.ports import Clock
from infra.qemu import keeper
from infra.qemu.home import Home, write_atomically

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# The name that QEMU gives to the thread of a virtual CPU: `CPU 0/KVM`, `CPU 0/TCG`.
_VIRTUAL_CPU = "CPU "
_STEAL_COLUMN = 8
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def look(home: Home, clock: Clock) -> Vitals:
    """One look at a machine; of one that is gone, what its keeper noted."""
    born, stops = keeper.read_born(home), keeper.read_stops(home)
    process = _PROC / str(born.pid) if born and keeper.program_lives(home) else None
    threads = tuple(_virtual_cpus(process)) if process else ()
    return Vitals(
        boot_ns=clock.boot_ns(),
        process_state=_state(process) if process else None,
        keeper_lives=keeper.keeper_lives(home),
        stops=stops.count,
        stopped_ns=stops.stopped_ns,
        stopped_since_boot_ns=stops.since_boot_ns,
        waited_ns=tuple(waited for _, waited in threads),
        ran_ns=tuple(ran for ran, _ in threads),
        stolen_ns=_stolen_ns(),
        pressure_ns=_pressure_ns(process),
    )


def keep(file: Path, seen: Vitals) -> None:
    """Keep a look beside the machine, for whoever judges later; not where the disk is full."""
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps(asdict(seen)))


def kept(file: Path) -> Vitals | None:
    """What `keep` wrote; None if it did not."""
    try:
        raw = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    cpus = {name: tuple(raw[name]) for name in ("waited_ns", "ran_ns")}
    return Vitals(**{**raw, **cpus})


def at_birth(home: Home, now: Vitals) -> Vitals:
    """All of the machine's own totals at zero; what is the host's, which is older, as it is now."""
    born = keeper.read_born(home)
    began_ns = born.started_boot_ns if born else now.boot_ns
    return Vitals(began_ns, stolen_ns=now.stolen_ns)


def _state(process: Path) -> str | None:
    """The letter of proc_pid_stat(5), after the name, which may hold anything."""
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    return None


def _virtual_cpus(process: Path) -> Iterator[tuple[int, int]]:
    """(ran, waited) of each virtual CPU's thread in ns, by its number."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            name = (thread / "comm").read_text()
            if name.startswith(_VIRTUAL_CPU):
                ran, waited, _ = (thread / "schedstat").read_text().split()
                found[name] = (int(ran), int(waited))
    yield from (found[name] for name in sorted(found))


def _stolen_ns() -> int:
    """What this host's own hypervisor kept from it, on average of its processors."""
    columns = (_PROC / "stat").read_text().partition("\n")[0].split()
    return int(columns[_STEAL_COLUMN]) * _NS_PER_TICK // (os.cpu_count() or 1)


def _pressure_ns(process: Path | None) -> int | None:
    """Time in which something waited for a processor: of the machine's control group, else of the host."""
    for file in (*_pressure_files(process), _PROC / "pressure" / "cpu"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            some = file.read_text().partition("\n")[0]
            return int(some.rpartition("total=")[2]) * 1000
    return None


def _pressure_files(process: Path | None) -> Iterator[Path]:
    if process is None:
        return
    with contextlib.suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            number, _, group = line.split(":", 2)
            if number == "0" and group != "/":
                yield _CGROUPS / group.lstrip("/") / "cpu.pressure"
