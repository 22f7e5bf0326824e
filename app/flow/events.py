"""What happened in a run, from any number on."""

from __future__ import annotations

from app.ports import Ports

Answer = dict[str, object]


def events(ports: Ports, project_id: str, run_id: str, after: int, limit: int) -> Answer:
    """A page of a run's events: `next` is the number to go on after, `final` says that no more will come.

    Raises NotFound.
    """
    found, final = ports.runs.events(project_id, run_id, after, limit)
    return {
        "events": [event.as_dict() for event in found],
        "next": found[-1].number if found else after,
        "final": final,
    }
