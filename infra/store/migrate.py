"""The schema's history, run by Alembic over the store's own connection: no file of settings, no URL of its own.

`python -m infra.store.migrations what it changes` writes the next migration after the tables were changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text

from app.errors import PromigenceError
from infra.store.engine import Database

# Any number will do as long as nothing else in the database locks it.
MIGRATION_LOCK = 7_046_902


def upgrade(database: Database, revision: str = "head") -> None:
    """Run the migrations that are missing, all or none. Of two at once the second waits, then finds nothing to do.

    Raises PromigenceError(unknown_schema) for a database that a newer release has migrated, Unavailable.
    """
    try:
        with migrating(database) as connection:
            command.upgrade(config(connection), revision)
    except CommandError as unknown:
        raise PromigenceError(
            "unknown_schema", f"the database was migrated by another release: {unknown}"
        ) from unknown


def config(connection: Connection | None = None) -> Config:
    """Alembic's settings; `env.py` takes the connection from them."""
    made = Config()
    made.set_main_option("script_location", str(files("infra.store") / "migrations"))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


@contextmanager
def migrating(database: Database) -> Iterator[Connection]:
    """One transaction in which the schema may be changed.

    SQLite recreates a table to alter it, and with foreign keys on would delete the rows that refer to it: so they are
    off meanwhile, and checked before the commit.
    """
    with database.exclusive() as connection:
        if connection.dialect.name == "sqlite":
            yield connection
            _check_references(connection)
        else:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            yield connection


def _check_references(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        raise RuntimeError(
            f"the migration would leave rows without what they refer to: {broken[:5]}"
        )
