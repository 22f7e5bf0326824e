"""Old and new releases on one database: what is expanded serves both, what is contracted waits for who needs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import inspect, text, update

from app.domain.process import ControlProcess
from app.domain.worker import Worker
from app.errors import Conflict, PromigenceError
from infra.store import Stores
from infra.store.migrate import (
    VERSIONS,
    contract,
    known_revision,
    refuse_contracted,
    schema,
    upgrade,
)
from infra.store.tables import control_processes, workers
from tests import builders as a
from tests.contract.rows import Rows

HERE = str(Path(upgrade.__code__.co_filename).parent / "migrations" / "versions")
LATER = """
revision = "9001"
down_revision = "{before}"
kind = "expand"

def upgrade():
    import sqlalchemy as sa
    from alembic import op
    op.add_column("project", sa.Column("colour", sa.String(), nullable=True))
"""
LESS = """
revision = "c0001"
down_revision = None
depends_on = "{needs}"
kind = "contract"
needs = "{needs}"

def upgrade():
    from alembic import op
    with op.batch_alter_table("host") as host:
        host.drop_column("zone")
"""


@pytest.fixture
def planted(tmp_path: Path) -> str:
    """The migrations of a later release: one that adds a column, and one that takes another away."""
    folder = tmp_path / "versions"
    folder.mkdir()
    (folder / "later.py").write_text(LATER.format(before=known_revision()))
    (folder / "less.py").write_text(LESS.format(needs="9001"))
    return os.pathsep.join((HERE, str(folder)))


def columns(store: Stores, table: str) -> set[str]:
    with store.database.read() as at:
        return {column["name"] for column in inspect(at).get_columns(table)}


def test_an_empty_database_gets_all_there_is(bare: Stores, planted: str) -> None:
    now = upgrade(bare.database, versions=planted)
    assert (now.expand, now.contract, now.at) == ((), (), ("c0001",))
    assert "colour" in columns(bare, "project")
    assert "zone" not in columns(bare, "host")


def test_an_older_release_starts_on_what_a_newer_one_has_expanded(
    bare: Stores, planted: str
) -> None:
    bare.migrate()
    now = upgrade(bare.database, versions=planted)
    assert (now.at, now.contract) == (("9001",), ("c0001",))
    bare.migrate()
    seen = schema(bare.database)
    assert (seen.newer, seen.usable, seen.at) == (True, True, ("9001",))
    assert {"colour"} <= columns(bare, "project")
    assert "zone" in columns(bare, "host")


def test_nothing_is_taken_away_while_somebody_needs_it(bare: Stores, planted: str) -> None:
    bare.migrate()
    bare.hosts.register(a.fingerprint(), 4)
    bare.workers.begin(Worker("w1", a.HOST, "boot", 1, 1, "1.0"))
    old = ControlProcess("p1", "api", "here", 7, "1.0", known_revision())
    bare.processes.begin(old)
    upgrade(bare.database, versions=planted)
    with pytest.raises(
        Conflict, match=r"worker of host0 \(release 1.0.*api \(release 1.0"
    ) as caught:
        contract(bare.database, planted)
    assert caught.value.code == "schema_needed"
    bare.workers.end("w1")
    bare.processes.end("p1")
    bare.processes.begin(ControlProcess("p2", "api", "here", 8, "2.0", "9001"))
    assert contract(bare.database, planted) == ("c0001",)
    assert "zone" not in columns(bare, "host")
    assert contract(bare.database, planted) == ()


def test_who_was_silent_for_an_hour_needs_nothing_any_more(bare: Stores, planted: str) -> None:
    bare.migrate()
    bare.hosts.register(a.fingerprint(), 4)
    bare.workers.begin(Worker("w1", a.HOST, "boot", 1, 1, "1.0"))
    bare.processes.begin(ControlProcess("p1", "api", "here", 7, "1.0", "0001"))
    upgrade(bare.database, versions=planted)
    hour_ns = 3600 * 10**9
    with bare.database.write() as at:
        for table in (workers, control_processes):
            at.execute(update(table).values(heartbeat_ns=table.c.heartbeat_ns - hour_ns))
    assert contract(bare.database, planted) == ("c0001",)


def test_a_release_that_needs_what_was_taken_away_does_not_start(
    bare: Stores, planted: str
) -> None:
    refuse_contracted(bare.database)
    bare.migrate()
    upgrade(bare.database, versions=planted)
    refuse_contracted(bare.database)
    contract(bare.database, planted)
    # API and commands by the first, a worker and billing by the second.
    for starts in (bare.migrate, lambda: refuse_contracted(bare.database)):
        with pytest.raises(PromigenceError, match="for releases that know 9001") as caught:
            starts()
        assert caught.value.code == "unknown_schema"
    assert not schema(bare.database).usable


def test_what_releases_before_this_one_look_at_says_what_they_know(
    bare: Stores, planted: str
) -> None:
    """They kept the revision elsewhere, and start only on one that they know."""
    upgrade(bare.database, "0012")
    _as_older_releases_kept_it(bare)
    bare.migrate()
    assert _told(bare) == "0015"
    assert schema(bare.database).at == (known_revision(),)
    upgrade(bare.database, versions=planted)
    assert _told(bare) == "0015"
    contract(bare.database, planted)
    assert _told(bare) == "contracted"


def test_looking_changes_nothing(bare: Stores) -> None:
    seen = schema(bare.database)
    assert (seen.at, seen.expand[0], seen.usable) == ((), "0001", False)
    with bare.database.read() as at:
        assert inspect(at).get_table_names() == []


def test_expanding_lets_rows_of_an_older_release_be(rows: Rows) -> None:
    """What it inserts says nothing of the columns that it does not know."""
    claimed = rows.started()
    with rows.store.database.write() as at:
        copied = (
            "INSERT INTO worker (claim, host_id, boot_id, pid, started_ticks, version, draining, started_ns, "
            "heartbeat_ns) VALUES ('w9', 'host0', 'b', 1, 1, '0', false, 1, 1)"
        )
        at.execute(text(copied))
    assert [each.revision for each in rows.store.workers.on(a.HOST)] == [None]
    assert claimed.attempt.epoch == 1


def _as_older_releases_kept_it(store: Stores) -> None:
    with store.database.write() as at:
        at.execute(text(f"CREATE TABLE alembic_version AS SELECT * FROM {VERSIONS}"))  # noqa: S608
        at.execute(text(f"DROP TABLE {VERSIONS}"))


def _told(store: Stores) -> str:
    with store.database.read() as at:
        return str(at.execute(text("SELECT version_num FROM alembic_version")).scalar_one())
