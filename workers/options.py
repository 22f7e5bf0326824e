"""Options that the commands of `promigence-server` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HERE = Path(".promigence")

Dir = Annotated[Path, typer.Option("--dir", help="Where the stack keeps what is its own.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
