"""What one worker process remembers of the bundles that it mounts and gives up. Nothing of it outlives the process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.domain.mounts import Claimable, MountTry
from app.errors import EnvironmentFault, FailureKind

AT_ONCE = 2


class Mounts:
    """For the threads of one process; times are its host's boot-time clock, in ns.

    What is on its way out is not claimed from; who gives it up waits for claims that had begun before, and then the
    rows say who has it. Another process of the same host only drains, or is about to: it gives up nothing, and to mount
    twice is safe.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        # Giving bundles up has made no room on the disk: that is filled by something else.
        self.fruitless = False
        self._at_once = at_once
        self._lock = threading.Lock()
        self._claim_ended = threading.Condition(self._lock)
        self._claims: set[object] = set()
        self._tries: dict[str, MountTry] = {}
        self._under_way: set[str] = set()
        self._leaving: set[str] = set()
        self._used: Counter[str] = Counter()

    def may_begin(self, bundle_id: str, now_ns: int) -> bool:
        """Whether a mount may begin: there is a turn for it, and its last failure is long enough ago."""
        with self._lock:
            return self._may_begin(bundle_id, now_ns)

    def begin(self, bundle_id: str, now_ns: int) -> bool:
        """Take a turn, to be given back by `done` or `failed`; False if there is none. Without a word of its end the
        next try waits as after a failure.
        """
        with self._lock:
            if not self._may_begin(bundle_id, now_ns):
                return False
            before = self._tries.get(bundle_id, MountTry(0, now_ns, now_ns))
            again = replace(before, tries=before.tries + 1, began_ns=now_ns, ended_ns=now_ns)
            self._tries[bundle_id] = again
            self._under_way.add(bundle_id)
            return True

    def end(self, bundle_id: str) -> None:
        """Give the turn back, whatever came of it. Twice is safe."""
        with self._lock:
            self._under_way.discard(bundle_id)

    def done(self, bundle_id: str) -> None:
        """It is mounted: what failed before is forgotten."""
        with self._lock:
            self._tries.pop(bundle_id, None)

    def failed(
        self, bundle_id: str, fault: EnvironmentFault, now_ns: int, *, waits: bool = False
    ) -> None:
        """It is not. `waits`: for want of room, which no fork fails for."""
        with self._lock:
            begun = self._tries.get(bundle_id, MountTry(1, now_ns, now_ns))
            self._tries[bundle_id] = replace(begun, ended_ns=now_ns, fault=fault, waits=waits)
            self._tries = {
                name: last
                for name, last in self._tries.items()
                if last.is_young(now_ns) or name in self._under_way
            }

    def claimable(self, mounted: tuple[str, ...], now_ns: int) -> Claimable:
        """What may be forked from now, of what is mounted; to be asked inside of `claiming`."""
        with self._lock:
            failed = {
                bundle_id: max(0, now_ns - last.began_ns)
                for bundle_id, last in self._tries.items()
                if last.fails_forks(now_ns) and bundle_id not in self._under_way
            }
            return Claimable(frozenset(mounted) - self._leaving, failed)

    def fault_of(self, bundle_id: str) -> EnvironmentFault | None:
        """Why a bundle could not be mounted the last time; None if that worked, or was never tried."""
        with self._lock:
            last = self._tries.get(bundle_id)
        if last is None or last.fault is None:
            return None
        # One for each that meets it: an exception keeps the place where it was raised.
        fault = last.fault
        evidence = {**fault.evidence, "mount_tries": last.tries}
        return EnvironmentFault(fault.kind, fault.message, **evidence)

    def told(self, now_ns: int) -> tuple[tuple[str, str], ...]:
        """Bundles that could not be mounted a while ago, each with the reason, for other hosts."""
        with self._lock:
            return tuple(
                (bundle_id, f"could not be mounted: {last.fault.message}")
                for bundle_id, last in sorted(self._tries.items())
                if last.fault is not None and last.is_young(now_ns)
            )

    def busy(self) -> frozenset[str]:
        """What is being mounted, or used by a machine that no row knows."""
        with self._lock:
            return frozenset({*self._under_way, *self._used})

    def coming(self) -> frozenset[str]:
        """What is being mounted."""
        with self._lock:
            return frozenset(self._under_way)

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Around a claim, from what may be claimed to the row that says so."""
        claim = object()
        with self._lock:
            self._claims.add(claim)
        try:
            yield
        finally:
            with self._lock:
                self._claims.discard(claim)
                self._claim_ended.notify_all()

    def claims_ended(self, within_s: float) -> bool:
        """Whether every claim that had begun before this call has ended; waits for them so long at most."""
        with self._lock:
            before = frozenset(self._claims)
            return self._claim_ended.wait_for(lambda: not before & self._claims, within_s)

    @contextmanager
    def leaving(self, bundle_id: str) -> Iterator[None]:
        """Inside, nobody forks from it any more."""
        with self._lock:
            self._leaving.add(bundle_id)
        try:
            yield
        finally:
            with self._lock:
                self._leaving.discard(bundle_id)

    @contextmanager
    def using(self, bundle_id: str) -> Iterator[None]:
        """Inside, it is not given up. Raises EnvironmentFault(snapshot_unavailable) if that has begun."""
        with self._lock:
            if bundle_id in self._leaving:
                raise EnvironmentFault(
                    FailureKind.SNAPSHOT_UNAVAILABLE,
                    f"bundle {bundle_id} is being given up by this host",
                )
            self._used[bundle_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._used[bundle_id] -= 1
                if not self._used[bundle_id]:
                    del self._used[bundle_id]

    def _may_begin(self, bundle_id: str, now_ns: int) -> bool:
        last = self._tries.get(bundle_id)
        again = last is None or last.may_be_repeated(now_ns)
        free = bundle_id not in self._under_way and len(self._under_way) < self._at_once
        return free and again and bundle_id not in self._leaving
