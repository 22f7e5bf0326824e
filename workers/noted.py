"""Changes that an operator makes on the server, each in the audit log before it is made."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.domain.audit import Entry, named
from app.errors import PromigenceError
from app.ids import new_id
from workers.command import ports_of

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from app.ports import Ports

DONE, BROKE_OFF = 200, 500
_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1


@dataclass(slots=True)
class Change:
    """One that is being made, with what becomes known of it meanwhile."""

    ports: Ports
    entry: Entry

    def about(self, target: str, project_id: str | None) -> None:
        """What it is a change of, where that was not known before."""
        self.entry = replace(self.entry, target=named(target), project_id=project_id)


@contextmanager
def changing(
    directory: Path, action: str, project_id: str | None = None, target: str | None = None
) -> Iterator[Change]:
    """A stack's rows for one change of them. Raises like `ports_of`."""
    with ports_of(directory) as ports, noted(ports, action, project_id, target) as change:
        yield change


@contextmanager
def noted(
    ports: Ports, action: str, project_id: str | None = None, target: str | None = None
) -> Iterator[Change]:
    """The entry is there before the block begins, and says in the end what came of it: without that the block broke
    off, and what it did is not known.
    """
    entry = Entry(
        entry_id=new_id("audit"),
        actor=f"operator:{operator()}",
        action=action,
        project_id=project_id,
        target=None if target is None else named(target),
    )
    ports.audit.begin(entry)
    change, status = Change(ports, entry), BROKE_OFF
    try:
        yield change
        status = DONE
    except PromigenceError as refused:
        status = refused.status
        raise
    finally:
        ports.audit.end(replace(change.entry, status=status))


def operator() -> str:
    """Who logged in, whatever user he has become since; without a login, the user that this process runs as."""
    uid = os.getuid()
    if _LOGIN_UID.exists():
        told = int(_LOGIN_UID.read_text() or _NO_LOGIN)
        uid = uid if told == _NO_LOGIN else told
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
