"""Whether the database of a stack went back behind what this machine remembers of it."""

from __future__ import annotations

from app.domain.deployment import Course, course, told
from app.errors import Conflict
from infra import wiring
from infra.epochs import CONTROL, HOST, EpochMemory
from infra.settings import Settings
from infra.store.migrate import Schema

# The migration by which a database knows of its epoch.
SINCE = "0017"
SAY_SO = "if it was restored from a backup, say so by `promigence-server restored`"


def gone_back(settings: Settings, schema: Schema | None = None) -> str | None:
    """What shows it, in words; None if nothing does. A database from before there were epochs, by its `schema`, shows
    nothing.
    """
    if schema is not None and SINCE in schema.expand:
        return None
    memories = [EpochMemory(settings.dir, whose).read() for whose in (CONTROL, HOST)]
    with wiring.control(settings) as control:
        now = control.ports.deployments.now()
        ahead, heard_of = control.ports.deployments.ahead()
    for seen in memories:
        if seen is None or course(seen, now) is not Course.WENT_BACK:
            continue
        return f"{told((seen.epoch, seen.beat))} is remembered here, the database is at {told((now.epoch, now.beat))}"
    if ahead:
        return (
            f"{ahead} of {heard_of} hosts that are heard of remember more than the database knows"
        )
    return None


def refuse_gone_back(settings: Settings, schema: Schema) -> None:
    """Raises Conflict(database_went_back)."""
    shown = gone_back(settings, schema)
    if shown is not None:
        raise Conflict("database_went_back", f"{shown}; {SAY_SO}")
