"""What a host took from one of its machines while a command ran there, and whether that is why its time ran out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from app.domain.machine import MonitorEvent

# A command whose machine had less than nine tenths of the command's own limit was not given that limit.
STALLED_SHARE = 10
# A machine that had less than half of the time may well have been silent for want of it.
SILENCED_SHARE = 2
# The monitor's words for a machine that stands still (a write that found no room says STOP too), and that goes on.
_STANDS, _GOES_ON = "STOP", "RESUME"
# A guest that ended itself stands still afterwards too, until somebody has read its end: nobody took that from it.
_ENDED_ITSELF = frozenset({"GUEST_PANICKED", "SHUTDOWN"})


@dataclass(frozen=True, slots=True)
class Vitals:
    """One look at a machine's process; all but the states are totals since its start, in ns.

    `process_state` is the kernel's letter (`T`: stopped by a signal), None where the process is gone. `waited_ns` and
    `ran_ns` are of each virtual CPU: how long it was ready to run and had no processor, and how long it had one.
    `stolen_ns` is what a host that is itself a machine was denied, on average of its processors; `pressure_ns` is the
    time in which anything on the host (or in the machine's control group) waited for a processor.
    """

    boot_ns: int
    process_state: str | None = None
    keeper_lives: bool = False
    stops: int = 0
    stopped_ns: int = 0
    stopped_since_boot_ns: int | None = None
    waited_ns: tuple[int, ...] = ()
    ran_ns: tuple[int, ...] = ()
    stolen_ns: int = 0
    pressure_ns: int | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped its process."""
        return self.process_state == "T" and self.stopped_since_boot_ns is not None

    def as_evidence(self) -> dict[str, object]:
        """Whether the machine's process lives and stands, in seconds and words."""
        since_ns = self.stopped_since_boot_ns
        return {
            "process_state": self.process_state,
            "keeper_lives": self.keeper_lives,
            "stopped_for_seconds": _seconds(self.boot_ns - since_ns) if since_ns else 0.0,
            "stops": self.stops,
        }


@dataclass(frozen=True, slots=True)
class Strain:
    """What was taken from a machine between two looks, in ns; `over_ns` lies between them."""

    began_boot_ns: int
    over_ns: int
    stops: int = 0
    stopped_ns: int = 0
    paused_ns: int = 0
    starved_ns: int = 0
    stolen_ns: int = 0
    pressure_ns: int | None = None

    @property
    def lost_ns(self) -> int:
        """All in which the machine could not go on though it would have."""
        return self.stopped_ns + self.paused_ns + self.starved_ns + self.stolen_ns

    @property
    def silenced(self) -> bool:
        """Whether so much was lost that a machine which did not answer may have had no time to."""
        return self.lost_ns * SILENCED_SHARE > self.over_ns > 0

    def stalled(self, limit_ns: int) -> bool:
        """Whether so much was lost that a command with this limit did not have it."""
        return self.lost_ns * STALLED_SHARE > limit_ns

    def as_evidence(self) -> dict[str, object]:
        """Each figure in seconds."""
        figures = {name: each for name, each in asdict(self).items() if name.endswith("_ns")}
        del figures["began_boot_ns"]
        seconds = {
            f"{name.removesuffix('_ns')}_seconds": None if each is None else _seconds(each)
            for name, each in figures.items()
        }
        return {**seconds, "lost_seconds": _seconds(self.lost_ns), "stops": self.stops}


def strain_between(before: Vitals, now: Vitals, events: Iterable[MonitorEvent] = ()) -> Strain:
    """What was taken between two looks. Where nobody looked before, `before` is the machine's birth: all zeros.

    Of several virtual CPUs the one that waited longest counts: a program's one thread may have been on it. Time that
    was stolen from the host counts as far as the machine wanted to run in it.
    """
    over_ns = max(0, now.boot_ns - before.boot_ns)
    waited_ns = max(_grown(before.waited_ns, now.waited_ns), default=0)
    ran_ns = max(_grown(before.ran_ns, now.ran_ns), default=0)
    stolen_ns = max(0, now.stolen_ns - before.stolen_ns)
    pressed = now.pressure_ns is not None and before.pressure_ns is not None
    return Strain(
        began_boot_ns=before.boot_ns,
        over_ns=over_ns,
        stops=now.stops - before.stops,
        stopped_ns=max(0, _stopped_by(now) - _stopped_by(before)),
        paused_ns=_paused_ns(events, before.boot_ns, now.boot_ns),
        starved_ns=min(waited_ns, over_ns),
        stolen_ns=stolen_ns * min(ran_ns, over_ns) // over_ns if over_ns else 0,
        pressure_ns=(now.pressure_ns or 0) - (before.pressure_ns or 0) if pressed else None,
    )


def _stopped_by(look: Vitals) -> int:
    """Time in stops up to this look, the one under way included."""
    since_ns = look.stopped_since_boot_ns
    return look.stopped_ns + (look.boot_ns - since_ns if since_ns else 0)


def _grown(before: tuple[int, ...], now: tuple[int, ...]) -> list[int]:
    """By how much each counter grew; one that was not seen before, from zero."""
    old = (*before, *(0 for _ in range(len(now) - len(before))))
    return [max(0, new - was) for new, was in zip(now, old, strict=False)]


def _paused_ns(events: Iterable[MonitorEvent], began_ns: int, ended_ns: int) -> int:
    """How long the monitor said that the machine stood still, within the window."""
    total_ns, since_ns = 0, None
    for event in events:
        if event.name in _ENDED_ITSELF:
            break
        if event.name == _STANDS:
            since_ns = event.boot_ns if since_ns is None else since_ns
        elif event.name == _GOES_ON and since_ns is not None:
            total_ns += _within(since_ns, event.boot_ns, began_ns, ended_ns)
            since_ns = None
    if since_ns is not None:
        total_ns += _within(since_ns, ended_ns, began_ns, ended_ns)
    return total_ns


def _within(since_ns: int, until_ns: int, began_ns: int, ended_ns: int) -> int:
    return max(0, min(until_ns, ended_ns) - max(since_ns, began_ns))


def _seconds(duration_ns: int) -> float:
    return round(duration_ns / 1e9, 3)
