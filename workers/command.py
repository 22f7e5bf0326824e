"""What the operator's commands share: their options, and the way to a stack's rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.errors import NotFound
from infra.settings import load

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from app.ports import Ports

HERE = Path(".promigence")

Dir = Annotated[
    Path,
    typer.Option("--dir", envvar="PROMIGENCE_DIR", help="Where the stack keeps what is its own."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def needs_stack(directory: Path) -> None:
    """Raises NotFound(no_stack) where there never was one."""
    settings = load(directory)
    if settings.database_url is None and not settings.database_file.exists():
        raise NotFound(
            "no_stack",
            f"there is no stack in {directory}: `promigence-server up` makes one, --dir names another",
        )


@contextmanager
def ports_of(directory: Path) -> Iterator[Ports]:
    """The rows of a stack, whether it runs or not.

    Raises NotFound(no_stack) where there never was one, Unavailable(database_away).
    """
    from infra import wiring

    needs_stack(directory)
    with wiring.control(load(directory)) as control:
        yield control.ports
