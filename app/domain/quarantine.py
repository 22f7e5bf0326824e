"""When a host is taken out of placement for what breaks on it, and how it comes back.

Failures of attempts are laid at their host's door where their kind or phase speaks against it, and nothing that a task,
a snapshot or a lost worker may have caused does. A fork that is handed over wipes them out: the host works. What breaks
several forks in a row without one is a host to be looked at, not fed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.failure import HOST_FAULTS, Failure, Phase
from app.domain.money import NS_PER_SECOND
from app.errors import FailureKind

BREAKS_IN_A_ROW = 3
# Pauses between self-tests double from the first to the longest, and begin anew once a fork was handed over again.
FIRST_PAUSE_NS = 10 * NS_PER_SECOND
LONGEST_PAUSE_NS = 600 * NS_PER_SECOND

# Until its fork is handed over, a machine is in nobody's hands but the host's.
COMING_UP = frozenset({Phase.RESTORE, Phase.BARRIER, Phase.CONTRACT})

# Met while a machine comes up, or counted among the host's faults, and yet no sign that the next machine would fail
# here too: the snapshot's own bytes or test; a process of ours that died, a database that was away; and a host that is
# silent is out of placement by its heartbeat already.
SAYS_NOTHING = frozenset(
    {
        FailureKind.SNAPSHOT_CORRUPT,
        FailureKind.OWN_TEST_FAILED,
        FailureKind.REPORTED_BY_COMMAND,
        FailureKind.WORKER_LOST,
        FailureKind.HOST_LOST,
        FailureKind.NO_CAPACITY,
    }
)

# The evidence of an `on_fork` hook that did not pass names it: a command of the snapshot's own, run by its author.
HOOK = "command"
# The evidence of a bundle that could not be mounted counts the tries. A host tells the placer of that itself
# (`Host.unmountable`), goes on forking from what it has mounted, and no self-test would mount anything.
MOUNT = "mount_tries"


@dataclass(frozen=True, slots=True)
class Strike:
    """One attempt's failure that speaks against its host."""

    fork_id: str
    bundle_id: str
    kind: FailureKind
    phase: Phase


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a host gets no forks, since when (the database's clock), and what its self-tests saw.

    `due_ns` is when the next self-test may begin; None for an operator's quarantine, which only an operator ends.
    `bundles` are what it broke on: a self-test tries those first.
    """

    reason: str
    kinds: tuple[FailureKind, ...]
    bundles: tuple[str, ...]
    since_ns: int
    due_ns: int | None
    last_test: str | None = None

    @property
    def by_operator(self) -> bool:
        return self.due_ns is None


def strike_of(failure: Failure | None, fork_id: str, bundle_id: str) -> Strike | None:
    """What an attempt's failure says against its host; None if nothing."""
    if failure is None or failure.task_may_have_caused or failure.kind in SAYS_NOTHING:
        return None
    if failure.kind not in HOST_FAULTS and failure.phase not in COMING_UP:
        return None
    if HOOK in failure.evidence or MOUNT in failure.evidence:
        return None
    return Strike(fork_id, bundle_id, failure.kind, failure.phase)


def struck(strikes: Iterable[Strike], new: Strike) -> tuple[Strike, ...]:
    """The last strikes, one for each fork: a fork that fails here again and again says no more than once."""
    others = [each for each in strikes if each.fork_id != new.fork_id]
    return (*others, new)[-BREAKS_IN_A_ROW:]


def judge(
    strikes: tuple[Strike, ...], elsewhere: frozenset[str], tests: int, now_ns: int
) -> Quarantine | None:
    """A quarantine if the strikes in a row are enough.

    Where all of them are of one bundle and other hosts have broken on it too (`elsewhere` are the bundles of their
    strikes), it is the snapshot: a host is not blamed. With no other witness it is the host until its self-test says
    otherwise, because the bundle once passed its verification.
    """
    if len(strikes) < BREAKS_IN_A_ROW:
        return None
    bundles = tuple(dict.fromkeys(each.bundle_id for each in strikes))
    if len(bundles) == 1 and bundles[0] in elsewhere:
        return None
    kinds = tuple(dict.fromkeys(each.kind for each in strikes))
    named = ", ".join(kind.value for kind in kinds)
    return Quarantine(
        reason=f"it broke {len(strikes)} forks in a row: {named}",
        kinds=kinds,
        bundles=bundles,
        since_ns=now_ns,
        due_ns=now_ns + pause_ns(tests),
    )


def pause_ns(tests: int) -> int:
    """How long to wait for the next self-test after so many since a fork was handed over."""
    return int(min(FIRST_PAUSE_NS << min(tests, 16), LONGEST_PAUSE_NS))
