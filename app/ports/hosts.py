"""The rows of hosts: what they say they are, what is placed on them, and who is out of placement.

As for all rows (`app/ports/store.py`), times are the database's, and one that is away raises
Unavailable(database_away).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from app.domain.disk import DiskRoom
from app.domain.explanation import Case
from app.domain.machine import Fingerprint, Shape
from app.domain.placement import Host, Placement, Waiting
from app.domain.quarantine import Quarantine
from app.domain.spot import Notice


class Hosts(Protocol):
    def register(
        self, fingerprint: Fingerprint, slots: int, *, zone: str | None = None, fetches: bool = True
    ) -> None:
        """A host says what it is; again after a restart. Room reserved by open and placed forks stays reserved.

        `fetches`: it can mount any stored bundle; one that cannot forks only from what `heartbeat` says that it holds.
        A notice that an earlier boot of it was given is over.
        """
        ...

    def heartbeat(
        self,
        host_id: str,
        mounted: tuple[str, ...],
        holds: tuple[str, ...] = (),
        *,
        disk: DiskRoom | None = None,
        unmountable: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """A host lives, and these bundles are warm on it; `holds` are those in its own folder, warm or not, and
        `unmountable` those that it could not mount a moment ago, each with the reason.

        Raises NotFound(unknown_host) before it has registered.
        """
        ...

    def list(self) -> tuple[Host, ...]:
        """All hosts heard of in the last day; `alive` if the last heartbeat is at most 15 s old."""
        ...

    def leaving(self) -> Mapping[str, int | None]:
        """Those of `list` that take nothing new because they are to go, each with when it is gone (ns of the database's
        clock) where that is known.
        """
        ...

    def waiting(self, limit: int) -> tuple[Waiting, ...]:
        """Queued forks that are placed nowhere and not asked to stop, oldest run first, by index.

        Of a project with a limit no more than may be placed now.
        """
        ...

    def case(self, fork_id: str) -> Case:
        """All that is known of one fork's places, at one instant; of any project. Raises NotFound(unknown_fork)."""
        ...

    def assign(self, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
        """Reserve room and place; those whose room, or whose project's, is gone meanwhile, or that were placed
        already, are left out.
        """
        ...

    def unassign_dead(self) -> int:
        """Take queued forks off hosts that take none now, whatever the reason but room; how many."""
        ...

    def give_notice(self, host_id: str, told: Notice) -> bool:
        """The cloud takes a host back: from this transaction on it gets no forks and starts none; those that wait on it
        are sent elsewhere by `unassign_dead`. What runs there goes on. False if that is known. Raises
        NotFound(unknown_host).
        """
        ...

    def withdraw_notice(self, host_id: str) -> bool:
        """The cloud does not take it back after all; False if it was not to. Raises NotFound(unknown_host)."""
        ...

    def retire(self, host_id: str) -> bool:
        """Take an empty host out of placement for good, so that the fleet may end it; twice is safe.

        False if it is not empty any more: a fork has its place there, it holds a build's candidate, or it has the only
        copy of a bundle. Raises NotFound(unknown_host).
        """
        ...

    def quarantine(self, host_id: str, reason: str) -> None:
        """Take a host out of placement until an operator releases it. Raises NotFound(unknown_host)."""
        ...

    def release(self, host_id: str) -> bool:
        """End a host's quarantine, whoever's, and its retirement; False if it was in no quarantine.

        Raises NotFound(unknown_host).
        """
        ...

    def begin_test(self, host_id: str) -> Quarantine | None:
        """The quarantine that a self-test is due for, None otherwise. The next is due after a longer pause, so that
        one process tests and none begins anew at once after a crash.
        """
        ...

    def end_test(self, host_id: str, begun: Quarantine, seen: str, *, passed: bool) -> bool:
        """Note what a self-test saw; True if it passed and thereby ended this very quarantine."""
        ...

    def hold(self, host_id: str, name: str, shape: Shape, within_ns: int) -> bool:
        """Keep room on a host free of forks for a machine of our own, for so long at most; False if it has none."""
        ...

    def let_go(self, name: str) -> None:
        """Give that room back. Twice is safe."""
        ...

    def placed(self) -> tuple[tuple[str, str, int], ...]:
        """(host_id, build_id or "", queued forks placed there): what a lost bell left behind."""
        ...
