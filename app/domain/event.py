"""What happened in a run: one event for every transition, numbered from 1 within its run, never changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.domain.fork import OUTCOMES, EndReason, ForkState, Outcome, move
from app.domain.instant import instant

# What one event may say, as JSON; a report has all of it.
MAX_DATA_BYTES = 16 * 1024
# Characters of a text, items of a list or an object, and depth: tried in turn until the data fit.
_LIMITS = ((4096, 64, 6), (512, 16, 4), (64, 8, 2))


class EventKind(StrEnum):
    """What may happen. The fields of each kind's `data` stand in docs/events.md."""

    RUN_STARTED = "run_started"
    FORKS_JOINED = "forks_joined"
    PLACED = "placed"
    UNPLACED = "unplaced"
    HOST_LEAVING = "host_leaving"
    HOST_STAYING = "host_staying"
    RESTORING = "restoring"
    CHECKING = "checking"
    READY = "ready"
    COMMAND_INTENDED = "command_intended"
    COMMAND_ENDED = "command_ended"
    ADOPTED = "adopted"
    ATTEMPT_FAILED = "attempt_failed"
    KEPT = "kept"
    REPLACED = "replaced"
    STOP_ASKED = "stop_asked"
    FORK_ENDED = "fork_ended"
    RUN_STOPPED = "run_stopped"
    RUN_ENDED = "run_ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One transition. `number` and `at_ns` (the database's clock) are the store's: 0 until it is told.

    `fork_id` and `index` are None for what happened to the run as a whole; `index` -1 is a build's template.
    `reason` is a word or a sentence (an end's reason, why this host); `data` the facts, `MAX_DATA_BYTES` at most.
    """

    run_id: str
    kind: EventKind
    fork_id: str | None = None
    index: int | None = None
    attempt_id: str | None = None
    host_id: str | None = None
    reason: str | None = None
    data: dict[str, object] = field(default_factory=dict)
    number: int = 0
    at_ns: int = 0

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "run_id": self.run_id,
            "number": self.number,
            "at": instant(self.at_ns),
            "kind": self.kind.value,
            "fork_id": self.fork_id,
            "index": self.index,
            "attempt_id": self.attempt_id,
            "host": self.host_id,
            "reason": self.reason,
            "data": self.data,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a fork stands, as its events tell it."""

    state: ForkState = ForkState.QUEUED
    reason: EndReason | None = None
    outcome: Outcome | None = None
    stop_asked: EndReason | None = None
    host_id: str | None = None
    attempt_id: str | None = None
    attempts: int = 0


def replay(events: Iterable[Event]) -> dict[str, Standing]:
    """Where each fork stands after these events of one run, from its first on; a fork of which none tells is queued.

    Raises Conflict(bad_move) for what no fork can do.
    """
    standings: dict[str, Standing] = {}
    for event in events:
        if event.fork_id is not None:
            before = standings.get(event.fork_id, Standing())
            standings[event.fork_id] = _after(before, event)
    return standings


def bounded(facts: dict[str, object]) -> dict[str, object]:
    """Facts cut to what an event may say: long texts lose their middle, long lists their end."""
    cut: object = facts
    for chars, items, depth in _LIMITS:
        if _size(cut) <= MAX_DATA_BYTES:
            break
        cut = _cut(facts, chars, items, depth)
    if isinstance(cut, dict) and _size(cut) <= MAX_DATA_BYTES:
        return cut
    return {"omitted_bytes": _size(facts)}


def _after(before: Standing, event: Event) -> Standing:
    match event.kind:
        case EventKind.PLACED | EventKind.UNPLACED:
            return replace(before, host_id=event.host_id)
        case EventKind.RESTORING:
            return replace(
                _moved(before, ForkState.RESTORING),
                attempt_id=event.attempt_id,
                attempts=before.attempts + 1,
            )
        case EventKind.CHECKING:
            return _moved(before, ForkState.CHECKING)
        case EventKind.READY | EventKind.KEPT:
            return _moved(before, ForkState.READY)
        case EventKind.COMMAND_INTENDED | EventKind.COMMAND_ENDED:
            return _moved(before, ForkState(str(event.data["state"])))
        case EventKind.REPLACED:
            return replace(_moved(before, ForkState.QUEUED), host_id=None, attempt_id=None)
        case EventKind.STOP_ASKED:
            return replace(before, stop_asked=EndReason(str(event.reason)))
        case EventKind.FORK_ENDED:
            reason = EndReason(str(event.reason))
            ended = _moved(before, ForkState.ENDED)
            return replace(ended, reason=reason, outcome=OUTCOMES[reason])
        case _:
            return before


def _moved(before: Standing, state: ForkState) -> Standing:
    if before.state is state:
        return before
    return replace(before, state=move(before.state, state))


def _size(facts: object) -> int:
    return len(json.dumps(facts, default=str).encode())


def _cut(value: object, chars: int, items: int, depth: int) -> object:
    if isinstance(value, dict):
        if depth == 0:
            return "..."
        kept = list(value.items())[:items]
        return {str(key)[:chars]: _cut(each, chars, items, depth - 1) for key, each in kept}
    if isinstance(value, list | tuple):
        if depth == 0:
            return "..."
        return [_cut(each, chars, items, depth - 1) for each in value[:items]]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return _short(str(value), chars)


def _short(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]} ... {text[-half:]}"
