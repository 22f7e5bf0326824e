"""One database behind two URLs: SQLite for one host, PostgreSQL for several. Transactions, locks, clock, errors.

A write transaction on SQLite begins IMMEDIATE: it holds the one write lock from its first statement, so that what it
reads cannot change before it writes. On PostgreSQL the rows that a transaction decides by are locked (`locked`), always
in the order run, forks, attempts, hosts, project, its month, so that no two wait for each other. Last of all come the
counts of the events that it told (`event_log.py`).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    QueuePool,
    Row,
    Select,
    Table,
    cast,
    create_engine,
    event,
    extract,
    func,
    literal,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import (
    TimeoutError as PoolTimeout,
)

from app.domain.event import Event
from app.errors import BadRequest, Forbidden, PromigenceError, Unavailable
from infra.store.event_log import TOLD, append
from infra.store.steady_clock import SteadyClock

SQLITE_WAIT_S = 20.0
SQLITE_PAUSE_S = 0.001
POSTGRES_CONNECT_S = 5
# A server that is cut off says nothing: without these a statement would wait for its answer for two hours.
POSTGRES_SILENCE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms
}
# A process that is frozen in the middle of a transaction holds rows that others need: no longer than this.
POSTGRES_LIMITS = (
    "-c statement_timeout=30s -c lock_timeout=20s -c idle_in_transaction_session_timeout=15s"
)
# How long whoever has other rows to see to, and comes again in a second, waits for one that is held.
BRIEFLY_MS = 1000
POOL_SIZE = 8
POOL_OVERFLOW = 24
POOL_WAIT_S = 20.0
# Waited too long for a row or for a whole statement, or was chosen to end a deadlock: the server itself is well.
BUSY = frozenset({"55P03", "57014", "40P01", "40001"})
# Class of states: a transaction that was left idle for too long, or that would write where only a primary may.
WRONG_TRANSACTION = "25"
NOT_PERMITTED = "42501"
# Both databases take more parameters in one statement; a page of this size keeps statements in their caches.
PAGE = 500

NowNs = Callable[[], int]
Heard = Callable[[Sequence[Event]], None]
AnyRow = Row[*tuple[Any, ...]]
S = TypeVar("S", bound=Select[*tuple[Any, ...]])
T = TypeVar("T")


class Database:
    """Transactions on one database. `now_ns` replaces its clock, for tests; `heard` gets the events of each that is
    committed, and must not raise.
    """

    def __init__(self, url: str, now_ns: NowNs | None = None, heard: Heard | None = None) -> None:
        self.engine = _engine(make_url(url))
        self._reading = self.engine.execution_options(reading=True, **_snapshots(self.engine))
        self._writer = threading.Lock() if self.engine.dialect.name == "sqlite" else None
        self._now_ns = now_ns
        self._steady = SteadyClock()
        self._heard = heard

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads, from one state of all rows: what is committed meanwhile is not seen.

        It neither waits for writers nor holds them up.
        """
        with _translated(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self, lock_wait_ms: int | None = None) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, undone by any error.

        `lock_wait_ms` bounds the wait for each row that others hold, where that is less than `POSTGRES_LIMITS` allow:
        for those who have other rows to see to, and come again. Raises Unavailable(database_busy) when it is over.
        """
        told: list[Event] = []
        with _translated(), self._turn(), self.engine.begin() as connection:
            # A connection is used again, after transactions that were undone too.
            connection.info[TOLD] = told
            if lock_wait_ms is not None and connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {lock_wait_ms}")
            yield connection
            told = append(connection, told, self.clock_ns(connection))
        if self._heard is not None and told:
            self._heard(told)

    @contextmanager
    def exclusive(self) -> Iterator[Connection]:
        """A write transaction for changes of the schema: on SQLite without foreign keys, until it ends."""
        with (
            _translated(),
            self._turn(),
            self.engine.connect() as connection,
            _without_foreign_keys(connection),
            connection.begin(),
        ):
            yield connection

    def now_ns(self, at: Connection) -> int:
        """The database's clock, ns since the epoch. On SQLite, which serves one host, that is `steady.SteadyClock`."""
        if self._now_ns is not None:
            return self._now_ns()
        if at.dialect.name == "sqlite":
            return self._steady.now_ns(at)
        micros = at.execute(select(extract("epoch", func.clock_timestamp()) * 1_000_000))
        return int(micros.scalar_one()) * 1000

    def clock_ns(self, at: Connection) -> ColumnElement[int]:
        """The same clock within a statement, which reads it when it has the rows that it waited for."""
        if self._now_ns is not None or at.dialect.name == "sqlite":
            return literal(self.now_ns(at), BigInteger())
        micros = extract("epoch", func.clock_timestamp()) * 1_000_000
        return cast(micros, BigInteger) * 1000

    def close(self) -> None:
        """Give up all connections. Twice is safe."""
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Threads take turns for SQLite's one write lock.

        Whoever waits for it looks again after a pause, and has no place in a line. Of 8 threads that write without a
        break the slowest write took 4 s, and 0.4 s by turns.
        """
        if self._writer is None:
            yield
            return
        if not self._writer.acquire(timeout=SQLITE_WAIT_S):
            raise Unavailable("database_away", "too many writers wait for the database")
        try:
            yield
        finally:
            self._writer.release()


def locked(statement: S) -> S:
    """Lock the rows that a statement selects until the end of the transaction.

    NO KEY UPDATE, which is what an update takes too: rows that refer to these may still be inserted meanwhile.
    """
    return statement.with_for_update(key_share=True)


def insert_new(at: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key is there (waiting for whoever is writing that key); whether it was new."""
    make = sqlite.insert if at.dialect.name == "sqlite" else postgresql.insert
    written = make(table).values(row).on_conflict_do_nothing().returning(*table.primary_key.columns)
    return at.execute(written).first() is not None


def pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in pages that fit into one statement."""
    for start in range(0, len(items), PAGE):
        yield items[start : start + PAGE]


def _engine(url: URL) -> Engine:
    match url.get_backend_name():
        case "sqlite":
            return _sqlite(url)
        case "postgresql":
            return _postgres(url.set(drivername="postgresql+psycopg"))
        case other:
            raise ValueError(f"{other}: the store is SQLite or PostgreSQL")


def _sqlite(url: URL) -> Engine:
    # A database in memory is its one connection, so that transactions of several threads take turns for it.
    in_memory = url.database in (None, "", ":memory:")
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=1 if in_memory else POOL_SIZE,
        max_overflow=0 if in_memory else POOL_OVERFLOW,
        pool_timeout=POOL_WAIT_S,
        connect_args={"timeout": SQLITE_WAIT_S, "check_same_thread": False},
    )
    event.listen(engine, "connect", _sqlite_connected)
    event.listen(engine, "begin", _sqlite_begins)
    return engine


def _sqlite_connected(connection: Any, _record: object) -> None:
    # The driver would begin transactions by itself, and only at the first write.
    connection.isolation_level = None
    # Of two that open a new database at once, SQLite makes the one wait for the other's change of its journal no time.
    _in_turn(connection, "PRAGMA journal_mode=WAL")
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite_begins(connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    if connection.get_execution_options().get("reading", False):
        driver.execute("BEGIN")
        return
    driver.execute("PRAGMA busy_timeout=0")
    try:
        _in_turn(driver, "BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout={int(SQLITE_WAIT_S * 1000)}")


def _in_turn(driver: sqlite3.Connection, statement: str) -> None:
    """Do what needs the write lock, looking for it every millisecond.

    SQLite itself looks after pauses that grow to 100 ms: beside a process that writes without a break one write in a
    hundred waited longer than 1.2 s, and 0.07 s in this way.
    """
    until = time.monotonic() + SQLITE_WAIT_S
    while True:
        try:
            driver.execute(statement)
        except sqlite3.OperationalError as busy:
            if busy.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise Unavailable("database_away", f"no turn to write: {busy}") from busy
            time.sleep(SQLITE_PAUSE_S)
        else:
            return


@contextmanager
def _without_foreign_keys(connection: Connection) -> Iterator[None]:
    # Within a transaction SQLite ignores the switch, so it is set on the driver's connection around it.
    if connection.dialect.name != "sqlite":
        yield
        return
    driver: Any = connection.connection.dbapi_connection
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


def _postgres(url: URL) -> Engine:
    return create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_timeout=POOL_WAIT_S,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": POSTGRES_CONNECT_S,
            "options": POSTGRES_LIMITS,
            **POSTGRES_SILENCE,
        },
    )


def _snapshots(engine: Engine) -> dict[str, Any]:
    """What makes PostgreSQL read from one state of the rows, as SQLite does by itself."""
    if engine.dialect.name == "sqlite":
        return {}
    return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as away:
        if _sqlstate(away) in BUSY:
            raise Unavailable(
                "database_busy", f"others hold what this needs: {_what(away)}"
            ) from away
        raise Unavailable(
            "database_away", f"the database cannot be used now: {_what(away)}"
        ) from away
    except ProgrammingError as refused:
        if _sqlstate(refused) != NOT_PERMITTED:
            raise
        # Of a host's login, whose rights are `host_rights.py`.
        raise Forbidden(
            "not_this_login", f"the database's login may not: {_what(refused)}"
        ) from refused
    except InternalError as ended:
        if _sqlstate(ended)[:2] != WRONG_TRANSACTION:
            raise
        raise Unavailable(
            "database_away", f"the database ended the transaction: {_what(ended)}"
        ) from ended
    except IntegrityError as refused:
        # Not the caller's doing: a constraint stopped what would have broken a law.
        raise PromigenceError("constraint_refused", _what(refused)) from refused
    except DataError as unfit:
        raise BadRequest("unfit_value", f"the database cannot hold this: {_what(unfit)}") from unfit


def _sqlstate(error: Exception) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def _what(error: Exception) -> str:
    # The driver's own words, without the statement and its parameters.
    return str(getattr(error, "orig", None) or error).partition("\n")[0]
