"""The hosts' logins at PostgreSQL: a role of each host's own, a member of the group that the migration step makes.

The group has the privileges (`infra/store/host_rights.py`), the role is who logs in: policies compare rows with the
session's login, which no statement of the host can change.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, NullPool, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError

from app.domain.access import HOST_ROLE, host_named
from app.errors import BadRequest, Conflict, Forbidden, Unavailable

# PostgreSQL cuts longer names off without a word, and two hosts would be one.
NAME_BYTES = 63
PASSWORD_BYTES = 32
CONNECT_S = 5
LIMITS = "-c statement_timeout=30s -c lock_timeout=20s -c idle_in_transaction_session_timeout=15s"
# Two worker processes beside each other in an upgrade, each with two pools of 32 connections at most.
CONNECTIONS = 128
# Not an advisory lock, which every login may take and keep: of this table hosts may lock nothing.
TURNS = "LOCK TABLE public.control_process IN SHARE UPDATE EXCLUSIVE MODE"
NOT_PERMITTED, UNKNOWN_ROLE, UNKNOWN_TABLE, OWNS_SOMETHING = "42501", "42704", "42P01", "2BP01"
# How often a login that holds its own role is thrown out before another try is a later turn's, and how long each waits.
THROWN_OUT_TIMES = 20
BRIEFLY = "SET LOCAL lock_timeout = '500ms'"


class PostgresLogins:
    """`app.ports.access.Logins` on PostgreSQL 16 or newer, as its tables' owner, who may create roles.

    A host's id may have 47 characters at most here. A role of that name that may not connect to this database belongs
    to another deployment: Conflict(login_elsewhere). Before the first migration: Unavailable(no_host_role).
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")

    def create(self, host_id: str) -> str:
        role, password = _role(host_id), secrets.token_urlsafe(PASSWORD_BYTES)
        with self._connected() as at, at.begin():
            _take_turns(at)
            found = _is_there(at, role)
            if found and host_id not in _listed(at):
                raise Conflict("login_elsewhere", f"role {role} is of another database's host")
            # A new role may nothing else; to say so of one that is there takes a superuser.
            at.exec_driver_sql(
                f'{"ALTER" if found else "CREATE"} ROLE "{role}" LOGIN CONNECTION LIMIT {CONNECTIONS} '
                f"PASSWORD '{_verifier(at, role, password)}'"
            )
            # Whoever became the group would be no host at all; and who resolves a name finds what is ours.
            at.exec_driver_sql(f'GRANT {HOST_ROLE} TO "{role}" WITH INHERIT TRUE, SET FALSE')
            at.exec_driver_sql(f"ALTER ROLE \"{role}\" SET search_path = 'pg_catalog', 'public'")
            at.exec_driver_sql(f'GRANT CONNECT ON DATABASE {_database(at)} TO "{role}"')
        return self._url.set(username=role, password=password).render_as_string(hide_password=False)

    def remove(self, host_id: str) -> None:
        role = _role(host_id)
        with self._connected() as at:
            with at.begin():
                if host_id not in _listed(at):
                    return
                # Only who has a role's privileges may end its connections; whoever made it may give them to itself.
                at.exec_driver_sql(f'GRANT "{role}" TO CURRENT_USER WITH INHERIT TRUE, SET FALSE')
            _shut(at, role)
            with at.begin():
                _take_turns(at)
                if host_id not in _listed(at):
                    return
                _end_connections(at, role)
                at.exec_driver_sql(f'REVOKE CONNECT ON DATABASE {_database(at)} FROM "{role}"')
                # Large objects, privileges of what it would make: any login may have them, and would keep its role.
                at.exec_driver_sql(f'DROP OWNED BY "{role}"')
                at.exec_driver_sql(f'DROP ROLE "{role}"')

    def list(self) -> tuple[str, ...]:
        with self._connected() as at:
            return _listed(at)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        engine = create_engine(
            self._url,
            poolclass=NullPool,
            connect_args={"connect_timeout": CONNECT_S, "options": LIMITS},
        )
        with _translated(self._url), engine.connect() as at:
            yield at


def _role(host_id: str) -> str:
    role = f"{HOST_ROLE}_{host_named(host_id)}"
    if len(role) > NAME_BYTES:
        raise BadRequest(
            "bad_host_id",
            f"with PostgreSQL a host's id has at most {NAME_BYTES - len(HOST_ROLE) - 1} characters",
            host_id=host_id,
        )
    return role


def _take_turns(at: Connection) -> None:
    at.exec_driver_sql(TURNS)


def _is_there(at: Connection, role: str) -> bool:
    return (
        at.execute(text("SELECT FROM pg_roles WHERE rolname = :role"), {"role": role}).first()
        is not None
    )


def _listed(at: Connection) -> tuple[str, ...]:
    """Hosts whose roles may connect to this database by a grant of their own: roles are the whole server's."""
    found = at.execute(
        text(
            "SELECT r.rolname FROM pg_database d, aclexplode(d.datacl) a JOIN pg_roles r ON r.oid = a.grantee "
            "WHERE d.datname = current_database() AND a.privilege_type = 'CONNECT' "
            "AND starts_with(r.rolname, :prefix)"
        ),
        {"prefix": f"{HOST_ROLE}_"},
    )
    return tuple(sorted(name.removeprefix(f"{HOST_ROLE}_") for name in found.scalars()))


def _verifier(at: Connection, role: str, password: str) -> str:
    """What the server keeps of a password: the statement may be logged, and the password is not in it."""
    driver: Any = at.connection.dbapi_connection
    made: bytes = driver.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
    return made.decode()


def _database(at: Connection) -> str:
    return str(at.execute(text("SELECT quote_ident(current_database())")).scalar_one())


def _shut(at: Connection, role: str) -> None:
    """Nobody logs in as this role any more.

    A role may change its own password, and its change, not committed, keeps ours waiting for as long as it likes. So
    its sessions end first, all at once, and again where one that began meanwhile was faster.
    """
    for left in reversed(range(THROWN_OUT_TIMES)):
        try:
            with at.begin():
                at.exec_driver_sql(BRIEFLY)
                _end_connections(at, role)
                at.exec_driver_sql(f'ALTER ROLE "{role}" NOLOGIN')
            return
        except (OperationalError, InternalError) as held:
            if held.connection_invalidated or not left:
                raise


def _end_connections(at: Connection, role: str) -> None:
    ended = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :role")
    at.execute(ended, {"role": role}).all()


@contextmanager
def _translated(url: URL) -> Iterator[None]:
    try:
        yield
    except DBAPIError as refused:
        state = getattr(refused.orig, "sqlstate", None)
        said = str(refused.orig).partition("\n")[0]
        if state == NOT_PERMITTED:
            raise Forbidden(
                "not_admin", f"{url.username} may not manage the hosts' logins: {said}"
            ) from refused
        if state in (UNKNOWN_ROLE, UNKNOWN_TABLE):
            raise Unavailable(
                "no_host_role", f"run `promigence-server migrate` first: {said}"
            ) from refused
        if state == OWNS_SOMETHING:
            raise Conflict(
                "login_owns_something",
                f"it may not log in any more; its role stays for what it has in another database: {said}",
            ) from refused
        if isinstance(refused, OperationalError | InterfaceError | InternalError):
            raise Unavailable(
                "database_away", f"the database cannot be used now: {said}"
            ) from refused
        raise
