"""What was charged when and for what, and what the cloud is estimated to have cost."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.instant import read_instant
from app.domain.usage import By, window
from app.domain.usage_statement import usage_statement
from app.errors import BadRequest
from app.ports import Ports


@dataclass(frozen=True, slots=True)
class Asked:
    """Which statement: its time (None: from the month's beginning, until now) and what its rows stand for."""

    begin_ns: int | None
    end_ns: int | None
    by: tuple[By, ...]


def read_asked(begin: str | None, until: str | None, by: str) -> Asked:
    """As people write it: instants or dates, and `day,snapshot`. Raises BadRequest(bad_request)."""
    return Asked(
        None if begin is None else read_instant("from", begin),
        None if until is None else read_instant("until", until),
        _read_by(by),
    )


def usage(ports: Ports, project_id: str | None, asked: Asked) -> dict[str, object]:
    """The statement of a project, or of all (None), for the operator.

    Raises BadRequest(bad_window, too_many_rows), Unavailable(database_away).
    """
    hours = window(asked.begin_ns, asked.end_ns, ports.clock.wall_ns())
    used = ports.usage.read(hours, project_id, snapshots=By.SNAPSHOT in asked.by)
    return usage_statement(used, hours, asked.by, ports.rates, project_id)


def _read_by(text: str) -> tuple[By, ...]:
    try:
        return tuple(dict.fromkeys(By(word.strip()) for word in text.split(",")))
    except ValueError:
        known = ", ".join(each.value for each in By)
        raise BadRequest("bad_request", f"by: is one or more of {known}, with commas") from None
