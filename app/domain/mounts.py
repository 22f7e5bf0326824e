"""Which bundles a host needs, and when it tries again to mount one that it could not."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.domain.money import NS_PER_SECOND
from app.errors import EnvironmentFault

# Pauses between two tries double from the first to the longest.
FIRST_PAUSE_NS = 2 * NS_PER_SECOND
LONGEST_PAUSE_NS = 60 * NS_PER_SECOND
# A failed mount is the failure of the forks that waited when it began; one that came later waits for the next try.
A_MOMENT_NS = 10 * NS_PER_SECOND
# For so long other hosts are told of it, who keep the bundle warm in this one's place.
TOLD_NS = 120 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Needs:
    """What the rows say that a host needs: how many forks placed there wait for which bundle, the oldest fork's first;
    the bundles of all forks that are placed there; and the candidates that it holds of builds that are not settled.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    in_use: frozenset[str] = frozenset()
    candidates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Claimable:
    """Whose forks may be claimed: their bundle is mounted, or they waited already when a mount of it began that failed.

    `failed` says how long ago it began, in ns.
    """

    mounted: frozenset[str]
    failed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MountTry:
    """The last try to mount a bundle that was not mounted since. `fault` None: it goes on, or ended without a word.

    `began_ns` and `ended_ns` (the latter the beginning of one that goes on) are the host's boot-time clock. `waits`:
    nothing is wrong with the bundle, there is no room for it or nobody could look, so that nobody fails for it.
    """

    tries: int
    began_ns: int
    ended_ns: int
    fault: EnvironmentFault | None = None
    waits: bool = False

    def may_be_repeated(self, now_ns: int) -> bool:
        pause_ns = min(FIRST_PAUSE_NS << min(self.tries - 1, 16), LONGEST_PAUSE_NS)
        return now_ns >= self.ended_ns + pause_ns

    def fails_forks(self, now_ns: int) -> bool:
        failed = self.fault is not None and not self.waits
        return failed and now_ns <= self.ended_ns + A_MOMENT_NS

    def is_young(self, now_ns: int) -> bool:
        """Whether others are told of it still; then it is forgotten, and the pauses begin anew."""
        return now_ns <= self.ended_ns + TOLD_NS
