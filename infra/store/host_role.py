"""The hosts' group role and its rights, brought to what `host_rights.py` says: a step after each migration.

It is no migration of its own: what it makes follows from the tables as they are, all of it is made anew where anything
differs, and a dump of the database need not hold it. Hosts log in as roles of their own (`infra/access/postgres.py`),
members of the group; the tables' owner, the control plane, is bound by none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import structlog
from sqlalchemy import Connection, text

from app.domain.access import HOST_ROLE
from infra.store.engine import Database
from infra.store.host_guards import BOOKED, GUARDS, Guard
from infra.store.host_rights import DECISIONS, Right
from infra.store.migrate import MIGRATION_LOCK, VERSIONS

POLICY = "promigence_host"
# Policies ask this of every row. What a session logged in as is fixed: SET ROLE does not change it.
HOST_ID = f"""
CREATE OR REPLACE FUNCTION public.promigence_host_id() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN pg_catalog.starts_with(session_user::text, '{HOST_ROLE}_')
THEN pg_catalog.substr(session_user::text, {len(HOST_ROLE) + 2}) END $$
"""

log = structlog.get_logger(__name__)


def give_rights(database: Database) -> bool:
    """Give hosts the rights of this release, on PostgreSQL; on SQLite there are no logins. Twice is safe.

    False where the group is not there and this login may not make it (it needs CREATEROLE): then no host has a login of
    its own, which is well where all parts use one. Raises Unavailable.
    """
    if database.engine.dialect.name != "postgresql":
        return True
    statements = tuple(_statements())
    mark = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    with database.write() as at:
        at.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        if not _group_is_there(at):
            log.warning("no_host_logins", why="the database's login may not create roles")
            return False
        # A change of policies waits for whoever reads the table: nothing is changed that is as it should be.
        if _mark_of(at) != mark:
            take_rights(at)
            for statement in statements:
                # The driver takes a lone % for a place of a parameter.
                at.exec_driver_sql(statement.replace("%", "%%"))
            _close_database(at)
            at.exec_driver_sql(f"COMMENT ON FUNCTION public.promigence_host_id() IS '{mark}'")
    return True


def take_rights(at: Connection) -> None:
    """Take the policies away, for a migration that drops or alters what they name; `give_rights` follows it."""
    if at.dialect.name != "postgresql":
        return
    ours = text(
        "SELECT quote_ident(policyname), quote_ident(tablename) FROM pg_policies "
        "WHERE schemaname = 'public' AND starts_with(policyname, :name)"
    )
    for policy, table in at.execute(ours, {"name": POLICY}).all():
        at.exec_driver_sql(f"DROP POLICY {policy} ON public.{table}")
    if at.execute(text("SELECT to_regprocedure('public.promigence_host_id()')")).scalar_one():
        at.exec_driver_sql("COMMENT ON FUNCTION public.promigence_host_id() IS NULL")


def _group_is_there(at: Connection) -> bool:
    there = text("SELECT count(*) FROM pg_roles WHERE rolname = :name")
    if at.execute(there, {"name": HOST_ROLE}).scalar_one():
        return True
    allowed = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
    if not at.execute(text(allowed)).scalar_one():
        return False
    at.exec_driver_sql(f"CREATE ROLE {HOST_ROLE} NOLOGIN NOINHERIT")
    return True


def _mark_of(at: Connection) -> str | None:
    """Of what was given before; None if there is nothing, or a dump brought the policies without the privileges."""
    found = at.execute(
        text(
            "SELECT obj_description(p.oid, 'pg_proc') FROM pg_proc p "
            "WHERE p.oid = to_regprocedure('public.promigence_host_id()') "
            f"AND has_table_privilege('{HOST_ROLE}', 'public.host', 'SELECT')"
        )
    )
    return found.scalar_one_or_none()


def _close_database(at: Connection) -> None:
    """Nobody connects without a grant of their own: a host of another database of this server is nobody here."""
    name, own = at.execute(
        text(
            "SELECT quote_ident(datname), pg_has_role(datdba, 'USAGE') FROM pg_database "
            "WHERE datname = current_database()"
        )
    ).one()
    if not own:
        log.warning("database_is_open", why="its owner is another role: revoke CONNECT from PUBLIC")
        return
    at.exec_driver_sql(f"REVOKE CONNECT, TEMPORARY ON DATABASE {name} FROM PUBLIC")


def _statements() -> Iterator[str]:
    yield HOST_ID
    yield "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {HOST_ROLE}, PUBLIC"
    yield f"GRANT USAGE ON SCHEMA public TO {HOST_ROLE}"
    # A worker that knows too little of the schema does not start.
    yield f"GRANT SELECT ON public.{VERSIONS} TO {HOST_ROLE}"
    for table, decision in DECISIONS.items():
        yield f'ALTER TABLE public."{table}" ENABLE ROW LEVEL SECURITY'
        for right in decision.rights:
            yield _policy(table, right)
            yield _grant(table, right)
    for guard in GUARDS:
        yield from _guard(guard)
    yield BOOKED
    yield "REVOKE ALL ON FUNCTION public.promigence_booked() FROM PUBLIC"
    yield "DROP TRIGGER IF EXISTS promigence_booked ON public.ledger"
    yield (
        "CREATE CONSTRAINT TRIGGER promigence_booked AFTER INSERT ON public.ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (public.promigence_host_id() IS NOT NULL) EXECUTE FUNCTION public.promigence_booked()"
    )


def _policy(table: str, right: Right) -> str:
    using = "" if right.verb == "INSERT" else f" USING ({right.rows})"
    check = ""
    if right.verb in ("INSERT", "UPDATE"):
        check = f" WITH CHECK ({right.after or right.rows})"
    verb = right.verb
    return f'CREATE POLICY {POLICY}_{verb.lower()} ON public."{table}" FOR {verb}{using}{check}'


def _grant(table: str, right: Right) -> str:
    columns = ", ".join(f'"{each}"' for each in right.columns)
    what = f"{right.verb} ({columns})" if columns else right.verb
    return f'GRANT {what} ON public."{table}" TO {HOST_ROLE}'


def _guard(guard: Guard) -> Iterator[str]:
    name = f"promigence_{guard.verb.lower()}_{guard.table}"
    # The search path is the function's own: no table of a session's is taken for ours.
    yield (
        f"CREATE OR REPLACE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql "
        "SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$\n"
        f"DECLARE me text := public.promigence_host_id(); {guard.declared}\n"
        f"BEGIN\n{guard.body}RETURN NEW;\nEND $$"
    )
    yield f"REVOKE ALL ON FUNCTION public.{name}() FROM PUBLIC"
    yield (
        f'CREATE OR REPLACE TRIGGER {name} BEFORE {guard.verb} ON public."{guard.table}" FOR EACH ROW '
        f"WHEN (public.promigence_host_id() IS NOT NULL) EXECUTE FUNCTION public.{name}()"
    )
