"""What the events of a store's runs must say, whoever wrote them at once: no gap, and every fork as its row has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from app.domain.event import Event, EventKind, Standing, replay
from app.domain.run import Fork, Run, RunState
from infra.store import Stores
from infra.store.rows import fork_of, noun_of
from infra.store.tables import event_counts, events, forks, runs

PAGE = 100


def check_events(at: Connection) -> None:
    """The events of every run, and its rows at the same instant."""
    told: dict[str, list[Event]] = {}
    for row in at.execute(select(events).order_by(events.c.run_id, events.c.number)):
        told.setdefault(row.run_id, []).append(noun_of(Event, row))
    of_run: dict[str, list[Fork]] = {}
    for row in at.execute(select(forks)):
        of_run.setdefault(row.run_id, []).append(fork_of(row))
    counts = {row.run_id: row.events for row in at.execute(select(event_counts))}
    for row in at.execute(select(runs)):
        run_events = told.get(row.run_id, [])
        if not counts[row.run_id] and not run_events:
            continue  # it began before there were events
        assert [event.number for event in run_events] == list(range(1, counts[row.run_id] + 1))
        _check_run(noun_of(Run, row), run_events)
        _check_forks(of_run.get(row.run_id, []), run_events)


@dataclass(slots=True)
class Follower:
    """Reads a run as a caller does, from where it stopped: all that it gets must be the next."""

    store: Stores
    project_id: str
    run_id: str
    heard: list[Event] = field(default_factory=list)
    final: bool = False

    def read(self) -> None:
        """All that there is by now."""
        more = True
        while more and not self.final:
            after = self.heard[-1].number if self.heard else 0
            found, self.final = self.store.runs.events(self.project_id, self.run_id, after, PAGE)
            numbers = [event.number for event in found]
            assert numbers == list(range(after + 1, after + 1 + len(found)))
            self.heard += found
            more = len(found) == PAGE


def _check_run(run: Run, told: list[Event]) -> None:
    kinds = [event.kind for event in told]
    assert kinds[:1] == [EventKind.RUN_STARTED]
    assert kinds.count(EventKind.RUN_ENDED) == (run.state is RunState.ENDED)
    if run.state is RunState.ENDED:
        assert kinds[-1] is EventKind.RUN_ENDED
    assert kinds.count(EventKind.RUN_STOPPED) == (run.stopped is not None)


def _check_forks(its_forks: Iterable[Fork], told: list[Event]) -> None:
    standings = replay(told)
    for fork in its_forks:
        assert standings.pop(fork.fork_id, Standing()) == _standing(fork)
    assert standings == {}


def _standing(fork: Fork) -> Standing:
    return Standing(
        state=fork.state,
        reason=fork.reason,
        outcome=fork.outcome,
        stop_asked=fork.stop_asked,
        host_id=fork.host_id,
        attempt_id=fork.attempt_id,
        attempts=fork.attempts,
    )
