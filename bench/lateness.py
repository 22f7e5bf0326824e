"""How late kills are: machines and plain programs whose leases end all at one instant, or within some seconds.

Each is told its end while it runs, as an extension is; then nobody else helps, no worker kills here. What its keeper
recorded is held against what this process saw for itself, by a descriptor of each process and the same clock. Both
compete with the kills for the processors, so either may note an end some time after it.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.domain.machine import Death, DeathCause, Handle
from bench.figures import Claim, Figure, Result
from bench.rig import PRODUCTS, SECOND_NS, SMALL, Rig
from infra.qemu import keeper
from infra.qemu.home import Home

MACHINES, PROGRAMS, ORPHANS = 100, 2000, 20
SPREAD_S = 10.0
RESTORED_AT_ONCE = 4
# From the first word of an end to the first end: long enough to tell all of them.
NOTICE_S, NOTICE_EACH_S = 3.0, 0.002
GONE_WITHIN_S = 120.0
RECORD_LOOK_S = 0.01
# The part of leases whose machine must be gone when they end, where they do not all end at once.
IN_TIME = 0.99
# Two thousand programs, or a hundred machines, that end at one instant on two processors: what nobody is charged for.
LATE_AT_ONE_INSTANT_S = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One lease and its end: by the keeper's record, and as it was seen from outside."""

    lease_end_ns: int
    death: Death
    seen_ns: int

    @property
    def killed_to_gone_s(self) -> float:
        """From the moment at which its keeper's timer fires."""
        return self._after_firing_s(self.death.ended_boot_ns)

    @property
    def killed_to_seen_gone_s(self) -> float:
        return self._after_firing_s(self.seen_ns)

    @property
    def late_s(self) -> float:
        """By how much it outlived its lease."""
        return self.death.late_ns / SECOND_NS

    @property
    def early_s(self) -> float:
        """What was left of its lease."""
        return max(0, self.lease_end_ns - self.death.ended_boot_ns) / SECOND_NS

    def _after_firing_s(self, at_ns: int) -> float:
        return (at_ns - self.lease_end_ns + keeper.KILL_MARGIN_NS) / SECOND_NS


def measure(rig: Rig) -> Result:
    """Four fleets and their ends, and machines whose keeper is killed."""
    _allow_descriptors(2 * PROGRAMS)
    machines_at_once = _machines_end(rig, "once", 0.0)
    machines_spread = _machines_end(rig, "spread", SPREAD_S)
    programs_at_once = _programs_end(rig, 0.0)
    programs_spread = _programs_end(rig, SPREAD_S)
    orphaned = Figure("keeper killed to machine gone", _orphaned_s(rig))
    return Result(
        about={
            "machines": f"busybox, {SMALL.memory_mib} MiB, past their barrier",
            "programs": "sleep",
            "margin_ms": keeper.KILL_MARGIN_NS // 1_000_000,
            "spread_s": SPREAD_S,
        },
        figures=(
            *_figures(f"{MACHINES} machines at one instant", machines_at_once),
            *_figures(f"{MACHINES} machines spread", machines_spread),
            *_figures(f"{PROGRAMS} programs at one instant", programs_at_once),
            *_figures(f"{PROGRAMS} programs spread", programs_spread),
            orphaned,
        ),
        claims=(
            _in_time("machines spread: share gone in time", machines_spread, IN_TIME),
            _in_time("programs spread: share gone in time", programs_spread, IN_TIME),
            _latest("machines at one instant: latest, s", machines_at_once),
            _latest("programs at one instant: latest, s", programs_at_once),
            _first_gone(machines_at_once, machines_spread, programs_at_once, programs_spread),
            Claim("a killed keeper's machine: latest gone, s", max(orphaned.values), at_most=1.0),
        ),
    )


def _figures(what: str, ends: list[Ended]) -> tuple[Figure, ...]:
    return (
        Figure(f"{what}: kill to gone", tuple(one.killed_to_gone_s for one in ends)),
        Figure(f"{what}: kill to gone, as seen", tuple(one.killed_to_seen_gone_s for one in ends)),
        Figure(f"{what}: early by", tuple(one.early_s for one in ends)),
        Figure(f"{what}: late by", tuple(one.late_s for one in ends)),
    )


def _in_time(what: str, ends: list[Ended], at_least: float) -> Claim:
    return Claim(what, sum(one.late_s == 0 for one in ends) / len(ends), at_least=at_least)


def _latest(what: str, ends: list[Ended]) -> Claim:
    return Claim(what, max(one.late_s for one in ends), at_most=LATE_AT_ONE_INSTANT_S)


def _first_gone(*fleets: list[Ended]) -> Claim:
    """None was killed before its time."""
    first_s = min(one.killed_to_gone_s for ends in fleets for one in ends)
    return Claim("any: first gone after its timer fired, s", first_s, at_least=0.0)


def _machines_end(rig: Rig, prefix: str, spread_s: float) -> list[Ended]:
    with _machines(rig, prefix, MACHINES) as (homes, handles):
        return _end(rig, homes, handles, spread_s)


def _programs_end(rig: Rig, spread_s: float) -> list[Ended]:
    with _programs(rig) as (homes, handles):
        return _end(rig, homes, handles, spread_s)


def _orphaned_s(rig: Rig) -> tuple[float, ...]:
    """Machines of users of their own, where we are root; one keeper after the other is killed."""
    with _machines(rig, "orphan", ORPHANS) as (_, handles):
        return tuple(_orphaned_one_s(handle) for handle in handles)


def _orphaned_one_s(handle: Handle) -> float:
    with _watching([handle]) as seen_gone:
        began = time.perf_counter()
        os.kill(handle.keeper_pid, signal.SIGKILL)
        next(seen_gone(time.perf_counter))
        return time.perf_counter() - began


Fleet = tuple[list[Home], list[Handle]]


@contextmanager
def _machines(rig: Rig, prefix: str, count: int) -> Iterator[Fleet]:
    """Forks that have passed their barrier."""
    bundle = rig.small()
    names = [f"{prefix}-{number}" for number in range(count)]
    try:
        with ThreadPoolExecutor(RESTORED_AT_ONCE) as pool:
            list(pool.map(lambda name: rig.fork(name, bundle), names))
        homes = [Home(rig.root / name) for name in names]
        yield homes, [_born(home) for home in homes]
    finally:
        for name in set(rig.machines.known()) & set(names):
            rig.end(name)


@contextmanager
def _programs(rig: Rig) -> Iterator[Fleet]:
    """Programs that sleep, under keepers like those of machines."""
    sleep = shutil.which("sleep")
    assert sleep is not None, "every Linux has it"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ends = os.pipe()
        for end in ends:
            stack.callback(os.close, end)
        program = keeper.Program((sleep, "infinity"), (ends[1],), ends[0])
        homes = [Home(folder / str(number)) for number in range(PROGRAMS)]
        for home in homes:
            home.directory.mkdir()
            stack.callback(keeper.kill, home)
            keeper.start(PRODUCTS / "bin" / "keeper", home, program, rig.deadline())
        yield homes, [_born(home) for home in homes]


def _born(home: Home) -> Handle:
    handle = keeper.read_born(home)
    assert handle is not None, f"{home.name} has started"
    return handle


def _end(rig: Rig, homes: list[Home], handles: list[Handle], spread_s: float) -> list[Ended]:
    """Tell all of them their ends, and see them go."""
    count = len(homes)
    first_ns = rig.clock.boot_ns() + int((NOTICE_S + NOTICE_EACH_S * count) * SECOND_NS)
    lease_ends_ns = [first_ns + int(spread_s * SECOND_NS * n / count) for n in range(count)]
    with _watching(handles) as seen_gone:
        for home, lease_end_ns in zip(homes, lease_ends_ns, strict=True):
            keeper.write_deadline(home, lease_end_ns)
            keeper.tell_deadline(home)
        if rig.clock.boot_ns() > first_ns - keeper.KILL_MARGIN_NS:
            raise RuntimeError("the first lease ended before the last machine was told its own")
        seen_ns = dict(seen_gone(rig.clock.boot_ns))
    deaths = [_death(home) for home in homes]
    return [Ended(lease_ends_ns[n], deaths[n], int(seen_ns[handles[n].pid])) for n in range(count)]


def _death(home: Home) -> Death:
    """The record, once its keeper is done with it."""
    until = time.monotonic() + GONE_WITHIN_S
    while keeper.keeper_lives(home) and time.monotonic() < until:
        time.sleep(RECORD_LOOK_S)
    death = keeper.read_exit(home)
    if death is None or death.cause is not DeathCause.DEADLINE:
        raise RuntimeError(f"{home.name} did not end by its deadline: {death}")
    return death


Clock = Callable[[], float]


@contextmanager
def _watching(handles: list[Handle]) -> Iterator[Callable[[Clock], Iterator[tuple[int, float]]]]:
    """The process ids of those that are gone, each with the time at which that was seen, until all are."""
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        pids: dict[int, int] = {}
        for handle in handles:
            pidfd = os.pidfd_open(handle.pid)
            stack.callback(os.close, pidfd)
            poll.register(pidfd, select.EPOLLIN)
            pids[pidfd] = handle.pid

        def seen_gone(clock: Clock) -> Iterator[tuple[int, float]]:
            while pids:
                ready = poll.poll(GONE_WITHIN_S)
                now = clock()
                if not ready:
                    raise TimeoutError(f"{len(pids)} still live after {GONE_WITHIN_S:g} s")
                for pidfd, _ in ready:
                    poll.unregister(pidfd)
                    yield pids.pop(pidfd), now

        yield seen_gone


def _allow_descriptors(count: int) -> None:
    """One for each process that is watched, beside our own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
