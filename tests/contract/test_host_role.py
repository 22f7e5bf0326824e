"""A compromised host at a real PostgreSQL: two hosts' logins, and what somebody with one of them would write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

from app.domain.fork import EndReason
from app.domain.run import Claimed, Exec, ExecPurpose
from app.errors import Conflict, Forbidden
from infra.access.postgres import PostgresLogins
from infra.conformance_access import LOGIN_CHECKS, LoginSubject
from infra.fakes.clock import ManualClock
from infra.store import create_store
from infra.store.host_rights import DECISIONS
from infra.store.host_role import give_rights
from infra.store.tables import METADATA
from tests import builders as a
from tests.contract.conftest import SECRET, migrate, truncate
from tests.contract.host_attacks import UNSEEN, UNTOUCHED
from tests.contract.host_logins import HostLogins
from tests.contract.rows import Rows

MINE, OTHERS = "host0", "host1"
NOT_PERMITTED = "42501"


@dataclass(frozen=True, slots=True)
class Scene:
    """A run of four forks: a machine and a fork that waits on each of two hosts; `mine` is the attacker's machine."""

    rows: Rows
    logins: HostLogins
    mine: Claimed
    others: Claimed
    names: dict[str, str]

    def tries(self, statements: str) -> int | str:
        """What comes of an attacker's connection that says this: rows of the last statement, or the refusal's state."""
        url = self.logins.url(MINE).replace("+psycopg", "")
        with psycopg.connect(url) as at, at.cursor() as cursor:
            try:
                cursor.execute(statements.format(**self.names).encode())
                while cursor.nextset():
                    pass
            except psycopg.Error as refused:
                at.rollback()
                return str(refused.sqlstate)
            return max(0, cursor.rowcount)


@pytest.fixture(scope="module")
def scene(postgres_url: str) -> Iterator[Scene]:
    """No test of this file changes any of it: that is what they are about."""
    truncate(postgres_url)
    clock = ManualClock()
    own = create_store(postgres_url, key_secret=SECRET, now_ns=clock.wall_ns)
    rows, logins = Rows(own, clock), HostLogins(postgres_url, clock)
    for host_id in (MINE, OTHERS):
        own.hosts.register(a.fingerprint(host_id), 2)
    own.keys.create(a.PROJECT, "key")
    run = rows.start(4, budget_micros=400 * a.MICROS_PER_SECOND)
    rows.start(1, budget_micros=100 * a.MICROS_PER_SECOND)
    rows.place()
    machines = {host_id: _machine(logins, host_id) for host_id in (MINE, OTHERS)}
    names = _names(rows, run.run_id, machines)
    yield Scene(rows, logins, machines[MINE], machines[OTHERS], names)
    rows.check_laws()
    logins.close()
    own.close()


@pytest.fixture(scope="module")
def apart_url(postgres_url: str) -> Iterator[str]:
    """Another database of the same server, whose owner may make roles and is no superuser, as with RDS."""
    with _opened(postgres_url) as engine:
        as_owner = engine.execution_options(isolation_level="AUTOCOMMIT")
        with as_owner.connect() as at:
            at.exec_driver_sql("CREATE ROLE keeper LOGIN CREATEROLE PASSWORD 'kept'")
            at.exec_driver_sql("GRANT promigence_host TO keeper WITH ADMIN OPTION, INHERIT FALSE")
            at.exec_driver_sql("CREATE DATABASE apart OWNER keeper")
            url = make_url(postgres_url).set(username="keeper", password="kept", database="apart")
            migrate(url.render_as_string(hide_password=False))
            yield url.render_as_string(hide_password=False)
            at.exec_driver_sql("DROP DATABASE apart WITH (FORCE)")
            at.exec_driver_sql("DROP ROLE keeper")


def test_every_table_has_a_decision() -> None:
    assert sorted(DECISIONS) == sorted(METADATA.tables)
    for table, decision in DECISIONS.items():
        assert bool(decision.rights) != bool(decision.why), table
        for right in decision.rights:
            assert right.why
            assert set(right.columns) <= set(METADATA.tables[table].columns.keys())


def test_what_is_not_its_own_is_not_seen(scene: Scene) -> None:
    assert _failing(scene, UNSEEN) == {}


def test_what_is_not_its_own_is_not_touched(scene: Scene) -> None:
    before = _everything(scene.rows)
    assert _failing(scene, UNTOUCHED) == {}
    assert _everything(scene.rows) == before


def test_a_setting_of_its_session_makes_it_no_other_host(scene: Scene) -> None:
    """Nor does a table of its own in front of ours: there is no place where it could make one."""
    for setting in (
        "search_path = 'evil', 'public'",
        "role = 'none'",
        "application_name = 'host1'",
    ):
        seen = f"SET {setting}; SELECT 1 FROM attempt WHERE host_id = 'host1'"  # noqa: S608
        assert scene.tries(seen) == 0
    assert scene.tries("SELECT 1 WHERE public.promigence_host_id() = 'host0'") == 1


def test_a_charge_is_booked_once_and_within_the_lease(scene: Scene) -> None:
    """The whole of what a host can take: the lease of a machine that it has."""
    entry = "INSERT INTO ledger VALUES ('{mine}', 'charge', 0, '{run}', 0, -1000, 1000, 1)"
    move = "UPDATE run SET charged_micros = charged_micros + 1000, granted_micros = granted_micros - 1000"
    of = " WHERE run_id = '{run}'"
    assert scene.tries(f"{entry}; {move}{of}; {move}{of}") == NOT_PERMITTED
    assert scene.tries(f"{entry}; {entry}; {move}{of}") == "23505"
    assert scene.tries(f"{move}{of}") == NOT_PERMITTED


def test_volumes_are_its_own(scene: Scene) -> None:
    """A snapshot is of what was built here, and nothing was."""
    resources = scene.logins.store(OTHERS).resources
    theirs = a.volume("tok_theirs", host_id=OTHERS)
    resources.intend(theirs, 60 * 10**9)
    resources.made("tok_theirs", "vol-theirs")
    resources.settle("tok_theirs")
    assert [each.token for each in resources.of_host(OTHERS)] == ["tok_theirs"]
    mine = scene.logins.store(MINE).resources
    with pytest.raises(Forbidden):
        mine.intend(a.volume("tok_forged", host_id=OTHERS), 60 * 10**9)
    with pytest.raises(Forbidden):
        mine.intend(a.stored("tok_stored"), 60 * 10**9)
    mine.gone("tok_theirs")
    assert [each.token for each in mine.of_host(OTHERS)] == ["tok_theirs"]
    resources.gone("tok_theirs")
    assert resources.of_host(OTHERS) == ()


def test_a_refusal_names_the_login(scene: Scene) -> None:
    with pytest.raises(Forbidden) as refused:
        scene.logins.store(MINE).runs.ask_stop(scene.names["run"], EndReason.CANCELLED)
    assert refused.value.code == "not_this_login"


def test_its_rights_are_given_again_only_where_something_differs(scene: Scene) -> None:
    database = scene.rows.store.database
    written: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        written.extend([statement] if statement.startswith(("CREATE", "GRANT", "ALTER")) else [])

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        assert give_rights(database)
        assert written == []
        with database.write() as at:
            at.exec_driver_sql("REVOKE ALL ON public.host FROM promigence_host")
        assert give_rights(database)
        assert written
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
    assert scene.tries("SELECT 1 FROM host") == 2


def test_a_host_of_another_database_is_nobody_here(scene: Scene, apart_url: str) -> None:
    """Roles are the whole server's. A name that is taken elsewhere is not given a new password."""
    with pytest.raises(Conflict) as taken:
        PostgresLogins(apart_url).create(MINE)
    assert taken.value.code == "login_elsewhere"
    assert not _opens(make_url(scene.logins.url(MINE)).set(database="apart"))
    assert PostgresLogins(apart_url).list() == ()


@pytest.mark.parametrize("check", LOGIN_CHECKS, ids=lambda check: check.__name__)
def test_logins_keep_their_contract(apart_url: str, check: Callable[[LoginSubject], None]) -> None:
    logins = PostgresLogins(apart_url)
    try:
        check(LoginSubject(logins, _opens, lambda: _roles(apart_url)))
    finally:
        for host_id in logins.list():
            logins.remove(host_id)


@pytest.mark.parametrize(
    "held",
    [
        "SELECT lo_create(0)",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "SELECT pg_advisory_lock(n) FROM generate_series(7046900, 7046910) n",
        "BEGIN; ALTER ROLE current_user PASSWORD 'mine'",
        "BEGIN; ALTER ROLE current_user SET lock_timeout = 0",
    ],
)
def test_nothing_that_a_login_holds_keeps_it_in(apart_url: str, held: str) -> None:
    logins = PostgresLogins(apart_url)
    url = logins.create("holder").replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as at:
        at.execute(held.encode())
        logins.remove("holder")
        with pytest.raises(psycopg.OperationalError):
            at.execute("SELECT 1")
    assert logins.list() == ()
    assert "promigence_host_holder" not in _roles(apart_url)


def test_what_it_has_in_another_database_keeps_its_name_and_not_itself(
    scene: Scene, apart_url: str
) -> None:
    logins = PostgresLogins(apart_url)
    url = make_url(logins.create("holder"))
    own = create_engine(make_url(scene.rows.store.database.engine.url).set(database="template1"))
    with psycopg.connect(_plain(url.set(database="template1")), autocommit=True) as at:
        (made,) = at.execute("SELECT lo_create(0)").fetchone() or ()
    with pytest.raises(Conflict) as kept:
        logins.remove("holder")
    assert kept.value.code == "login_owns_something"
    assert not _opens(url)
    assert logins.list() == ("holder",)
    with own.begin() as at_once:
        at_once.execute(text("SELECT lo_unlink(:made)"), {"made": made})
    own.dispose()
    logins.remove("holder")
    assert logins.list() == ()


def test_who_may_manage_no_logins_is_told_so(scene: Scene) -> None:
    with pytest.raises(Forbidden) as refused:
        PostgresLogins(scene.logins.url(MINE)).create("host7")
    assert refused.value.code == "not_admin"


def _failing(scene: Scene, statements: tuple[str, ...]) -> dict[str, int | str]:
    """Those that were neither refused nor found no row, with what came of them; what inserts a row must be refused."""
    told = {statement: scene.tries(statement) for statement in statements}
    return {
        each: seen
        for each, seen in told.items()
        if seen != NOT_PERMITTED and (seen != 0 or each.startswith("INSERT"))
    }


def _machine(logins: HostLogins, host_id: str) -> Claimed:
    store = logins.store(host_id)
    claimed = store.attempts.open(host_id, f"worker of {host_id}", "boot", 0, None)
    assert claimed is not None
    checking = store.attempts.checking(claimed, (), host_id.ljust(32, "0"))
    ready = store.attempts.ready(checking, 10**9, ())
    ids = (claimed.fork.fork_id, claimed.attempt.attempt_id, a.PROJECT)
    task = Exec(f"task_{host_id}", *ids, ExecPurpose.TASK, a.COMMAND)
    assert store.execs.intend(ready, task) is not None
    return ready


def _names(rows: Rows, run_id: str, machines: dict[str, Claimed]) -> dict[str, str]:
    waiting = {
        str(fork.host_id): fork.fork_id
        for fork in rows.store.runs.forks(run_id)
        if fork.attempt_id is None
    }
    other_run = next(each for each in _column(rows, "run", "run_id") if each != run_id)
    return {
        "run": run_id,
        "other_run": other_run,
        "mine": machines[MINE].attempt.attempt_id,
        "others": machines[OTHERS].attempt.attempt_id,
        "fork": machines[MINE].fork.fork_id,
        "others_fork": machines[OTHERS].fork.fork_id,
        "waiting": waiting[MINE],
        "others_waiting": waiting[OTHERS],
    }


def _column(rows: Rows, table: str, column: str) -> list[str]:
    with rows.store.database.read() as at:
        return list(at.execute(text(f"SELECT {column} FROM {table}")).scalars())  # noqa: S608


def _everything(rows: Rows) -> dict[str, list[str]]:
    with rows.store.database.read() as at:
        return {
            table.name: sorted(map(str, at.execute(table.select())))
            for table in METADATA.sorted_tables
        }


@contextmanager
def _opened(url: str | URL) -> Iterator[Engine]:
    engine = create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _plain(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _opens(url: str | URL) -> bool:
    with _opened(url) as engine:
        try:
            engine.connect().close()
        except DBAPIError:
            return False
        return True


def _roles(url: str) -> list[str]:
    with _opened(url) as engine, engine.connect() as at:
        return list(at.execute(text("SELECT rolname FROM pg_roles ORDER BY 1")).scalars())
