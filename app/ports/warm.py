"""Which bundles are to be warm where: what is asked for, and what the forks that are placed on a host need."""

from __future__ import annotations

from typing import Protocol

from app.domain.mounts import Needs
from app.domain.warm import WarmTarget


class WarmTargets(Protocol):
    """Snapshots that are to stay mounted on several hosts; `app/domain/warm.py` says on which."""

    def set(self, project_id: str, ref: str, hosts: int) -> WarmTarget | None:
        """Keep what a ref names mounted on at least so many hosts: `name` follows its newest version, `name@3` stays.

        0 ends that, and gives None. Twice is safe. A target goes with its snapshot.
        Raises NotFound(unknown_snapshot).
        """
        ...

    def list(self, project_id: str | None = None) -> tuple[WarmTarget, ...]:
        """A project's or all, by project, name and version; a bare name's first."""
        ...

    def needs(self, host_id: str) -> Needs:
        """What the forks that are placed on a host need of it, and the builds whose candidates it holds."""
        ...
