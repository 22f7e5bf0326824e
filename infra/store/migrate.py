"""The schema's history, run by Alembic over the store's own connection: no file of settings, no URL of its own.

Old and new releases work on one database while an upgrade goes on, so a migration says what it is, by its `kind`:

- `expand` only adds, and never what an older release could not write past. Releases that know less go on.
- `contract` takes away or tightens what no release since `needs` (a revision of the expanding chain) uses any more. It
  is run when nobody older is there, and the database remembers that: who knows less than `needs` does not start.

Contracting migrations are a chain of their own (its first has no `down_revision`, and `depends_on` the revision that it
needs), so that one which waits holds up no expanding one.

`python -m infra.store.migrations what it changes` writes the next migration after the tables were changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    inspect,
    select,
    text,
    update,
)

from app.errors import Conflict, PromigenceError
from infra.store.engine import Database
from infra.store.needing import needing
from infra.store.tables import deployments

# Any number will do as long as nothing else in the database locks it.
MIGRATION_LOCK = 7_046_902
VERSIONS = "schema_revision"
# Where releases up to revision 0015 look. They start only if they know what stands there, so it stays at the last that
# they know for as long as they can work on what there is, however far that has been expanded.
OLD_VERSIONS, OLD_LAST, OLD_OUT = "alembic_version", "0015", "contracted"


def _versions(name: str) -> Table:
    number = Column("version_num", String(32), nullable=False)
    return Table(name, MetaData(), number, PrimaryKeyConstraint(number, name=f"{name}_pkc"))


_NOW, _OLD = _versions(VERSIONS), _versions(OLD_VERSIONS)


@dataclass(frozen=True, slots=True)
class Schema:
    """How a database stands to this release. `known` is the last expanding revision of this release's code.

    `expand` and `contract` are what it would still do. `newer`: a later release has migrated it; `least` is
    the revision that whoever uses it must know.
    """

    known: str
    at: tuple[str, ...]
    expand: tuple[str, ...]
    contract: tuple[str, ...]
    least: str
    newer: bool

    @property
    def usable(self) -> bool:
        """Whether this release may work on it as it is."""
        return not self.expand and self.known >= self.least


def known_revision(versions: str | None = None) -> str:
    """The last expanding revision that this release's code knows."""
    return _expanding_head(_scripts(versions))


def schema(database: Database, versions: str | None = None) -> Schema:
    """Look, and change nothing."""
    with database.read() as connection:
        return _schema(connection, _scripts(versions))


def upgrade(database: Database, revision: str | None = None, versions: str | None = None) -> Schema:
    """Run the expanding migrations that are missing, all or none, up to `revision`; in an empty database all there are.
    Of two at once the second waits, then finds nothing to do. One that a newer release has expanded stays as it is.

    Raises PromigenceError(unknown_schema) for a database that is contracted beyond what this release needs,
    Unavailable.
    """
    scripts = _scripts(versions)
    with migrating(database) as connection:
        _take_over(connection)
        before = _schema(connection, scripts)
        refuse_unknown(before)
        if not before.newer:
            to = revision or ("heads" if not before.at else before.known)
            command.upgrade(config(connection, versions), to)
        _tell_older(connection)
        return _schema(connection, scripts)


def contract(database: Database, versions: str | None = None) -> tuple[str, ...]:
    """Run the contracting migrations that are missing; which those were.

    Raises Conflict(schema_needed) while a process is there that needs the old shape, and
    PromigenceError(unknown_schema).
    """
    scripts = _scripts(versions)
    with migrating(database) as connection:
        now = _schema(connection, scripts)
        if now.expand or now.newer:
            raise _unknown(now)
        if not now.contract:
            return ()
        needs = max(str(scripts.get_revision(each).module.needs) for each in now.contract)
        older = needing(connection, needs, database.now_ns(connection))
        if older:
            raise Conflict(
                "schema_needed",
                f"{', '.join(now.contract)} would take away what {'; '.join(older)} may still need",
            )
        command.upgrade(config(connection, versions), "heads")
        _shut_out(connection, needs)
        return now.contract


def refuse_unknown(found: Schema) -> None:
    """Raises PromigenceError(unknown_schema) for a database that a newer release has taken something away from."""
    if found.known < found.least:
        raise _unknown(found)


def refuse_contracted(database: Database) -> None:
    """The same for a process that migrates nothing, as it starts: by what a host's login may read too."""
    with database.read() as connection:
        tables = frozenset(inspect(connection).get_table_names())
        least = _least(connection, tables)
    known = known_revision()
    if known < least:
        raise _beyond("a later revision", least, known)


def config(connection: Connection | None = None, versions: str | None = None) -> Config:
    """Alembic's settings; `env.py` takes the connection from them. `versions` is where migrations lie
    instead of here.
    """
    made = Config()
    made.set_main_option("script_location", str(files("infra.store") / "migrations"))
    made.set_main_option("path_separator", "os")
    if versions is not None:
        made.set_main_option("version_locations", versions)
    made.attributes["connection"] = connection
    made.attributes["versions"] = VERSIONS
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


def _schema(connection: Connection, scripts: ScriptDirectory) -> Schema:
    tables = frozenset(inspect(connection).get_table_names())
    there = VERSIONS if VERSIONS in tables else OLD_VERSIONS
    told = MigrationContext.configure(connection, opts={"version_table": there})
    at = told.get_current_heads() if there in tables else ()
    revisions = {each.revision: each for each in scripts.walk_revisions()}
    done = {one.revision for each in at if each in revisions for one in _up_to(scripts, each)}
    newer = any(each not in revisions for each in at)
    left = [each for each in revisions.values() if each.revision not in done and not newer]
    return Schema(
        known=_expanding_head(scripts),
        at=at,
        expand=tuple(sorted(each.revision for each in left if not _contracts(each))),
        contract=tuple(sorted(each.revision for each in left if _contracts(each))),
        least=_least(connection, tables),
        newer=newer,
    )


def _least(connection: Connection, tables: frozenset[str]) -> str:
    if "deployment" not in tables:
        return "0001"
    return str(connection.execute(select(deployments.c.least_revision)).scalar_one())


def _up_to(scripts: ScriptDirectory, revision: str) -> Iterator[Script]:
    yield from scripts.iterate_revisions(revision, "base", implicit_base=True)


def _contracts(script: Script) -> bool:
    return getattr(script.module, "kind", "expand") == "contract"


def _expanding_head(scripts: ScriptDirectory) -> str:
    heads = [each for each in scripts.walk_revisions() if each.is_head]
    (head,) = (each.revision for each in heads if not _contracts(each))
    return head


def _scripts(versions: str | None) -> ScriptDirectory:
    return ScriptDirectory.from_config(config(versions=versions))


def _take_over(connection: Connection) -> None:
    """From where older releases kept the revision to where it is kept now."""
    tables = frozenset(inspect(connection).get_table_names())
    if OLD_VERSIONS not in tables or VERSIONS in tables:
        return
    _NOW.create(connection)
    connection.execute(_NOW.insert().from_select(["version_num"], select(_OLD)))


def _tell_older(connection: Connection) -> None:
    """All that an older release knows is there; what stands there of a contraction stays."""
    if OLD_VERSIONS in inspect(connection).get_table_names():
        less = _OLD.c.version_num < OLD_LAST
        connection.execute(update(_OLD).where(less).values(version_num=OLD_LAST))


def _shut_out(connection: Connection, needs: str) -> None:
    connection.execute(update(deployments).values(least_revision=needs))
    if OLD_VERSIONS in inspect(connection).get_table_names():
        connection.execute(update(_OLD).values(version_num=OLD_OUT))


def _unknown(found: Schema) -> PromigenceError:
    return _beyond(", ".join(found.at) or "no revision", found.least, found.known)


def _beyond(at: str, least: str, known: str) -> PromigenceError:
    told = f"the database is at {at} and for releases that know {least}; this one knows {known}"
    return PromigenceError("unknown_schema", told)


def _check_references(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        raise RuntimeError(
            f"the migration would leave rows without what they refer to: {broken[:5]}"
        )
