"""What follows for a run from what happened to its forks."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.run import Attempt


@dataclass(frozen=True, slots=True)
class Sequel:
    """What settling a run brought about, for the bells that follow it.

    `build_id` is set where a build's run has ended, with the host that holds its candidate, if its template was ever
    placed. `stopping` are machines that the run's own rule stops.
    """

    run_id: str
    run_ended: bool
    build_id: str | None = None
    host_id: str | None = None
    stopping: tuple[Attempt, ...] = ()
