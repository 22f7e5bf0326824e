"""A compromised host writes into its own rows what nobody can read or add to: the control plane goes on with others.

It writes by its own login on a real PostgreSQL; then the control plane has a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from app.domain.fork import EndReason, ForkState
from app.domain.run import Claimed, Closing
from app.flow import bill, place, recover
from app.ports import Ports
from infra.fakes.bells import FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.machines import FakeImages
from infra.store import create_store
from tests import builders as a
from tests.contract.conftest import SECRET, truncate
from tests.contract.host_logins import HostLogins
from tests.contract.rows import Rows
from tests.flow.stage import ports_of

MINE, OTHERS = "host0", "host1"
MOST, INT = 2**63 - 1, 2**31 - 1
NOT_PERMITTED = "42501"
ENDED = Closing(10**9, EndReason.COMMAND_PASSED)
JSON_OF_HOST = ("fingerprint", "mounted", "strikes", "quarantine", "unmountable", "holds")

Poison = tuple[LiteralString, LiteralString]

# Rows that are its own to write; what they do is bounded to them.
WRITTEN: tuple[Poison, ...] = (
    *(("host", f"{column} = 'x'") for column in JSON_OF_HOST),
    ("host", "quarantine = 'x', heartbeat_ns = 0"),
    ("host", f"heartbeat_ns = {MOST}, ahead_epoch = {MOST}, gone_ns = {MOST}"),
    ("host", f"disk_free_bytes = {-MOST}, zone = E'\\x1b[2J'"),
    ("fork", "result = 'x'"),
    ("fork", "failure = '[1]', checks = '{}'"),
    ("project", "live_forks = 0"),
)
# What would end a statement about everybody's rows.
REFUSED: tuple[Poison, ...] = (
    ("host", f"memory_mib = {INT}, free_memory_mib = {INT}"),
    ("fork", "avoid_hosts = 'x'"),
    ("fork", "avoid_hosts = '[1]'"),
    ("fork", f"queued_ns = {MOST}"),
    ("fork", f"attempts = {INT}"),
    ("fork", f"kept = 'nonsense', kept_until_ns = {MOST}"),
    ("fork", "state = 'ended', reason = 'nonsense', outcome = 'passed', grant_micros = 0"),
    ("fork", "state = 'ended', reason = 'cancelled', outcome = 'nonsense', grant_micros = 0"),
    ("attempt", f"verification_micros = {MOST}, tasks_micros = {MOST}"),
    ("attempt", f"ready_ns = {MOST}"),
    ("attempt", "failure = 'x'"),
    ("event_count", f"events = {INT}"),
    ("event_count", "events = 0"),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """Two hosts with a machine each of one run, and a fork that waits on each."""

    rows: Rows
    ports: Ports
    host: psycopg.Connection
    logins: HostLogins
    theirs: Claimed

    def writes(self, table: LiteralString, values: LiteralString) -> None:
        """Wherever the attacker may."""
        self.host.execute(sql.SQL("UPDATE {} SET ").format(sql.Identifier(table)) + sql.SQL(values))


@pytest.fixture
def scene(postgres_url: str, tmp_path: Path) -> Iterator[Scene]:
    truncate(postgres_url)
    clock = ManualClock()
    own = create_store(postgres_url, key_secret=SECRET, now_ns=clock.wall_ns)
    rows, logins = Rows(own, clock), HostLogins(postgres_url, clock)
    for host_id in (MINE, OTHERS):
        own.hosts.register(a.fingerprint(host_id), 2)
    rows.start(4, budget_micros=400 * a.MICROS_PER_SECOND)
    rows.place()
    machines = {
        host_id: logins.store(host_id).attempts.open(host_id, "w", "boot", 0, None)
        for host_id in (MINE, OTHERS)
    }
    theirs = machines[OTHERS]
    assert theirs is not None
    own.hosts.register(a.fingerprint(OTHERS), 8)
    images = FakeImages("debian-12")
    ports = ports_of(own, FakeBells(), clock, images, tmp_path)
    mine = logins.url(MINE).replace("+psycopg", "")
    with psycopg.connect(mine, autocommit=True) as host:
        yield Scene(rows, ports, host, logins, theirs)
    logins.close()
    own.close()


@pytest.mark.parametrize(("table", "values"), WRITTEN)
def test_what_it_spoils_is_its_own(
    scene: Scene, table: LiteralString, values: LiteralString
) -> None:
    scene.writes(table, values)
    assert OTHERS in [host.host_id for host in scene.ports.hosts.list()]
    new = scene.rows.start(2)
    place.place(scene.ports)
    bill.tick(scene.ports)
    recover.tick(scene.ports)
    assert [fork.host_id for fork in scene.rows.store.runs.forks(new.run_id)] == [OTHERS] * 2
    closed = scene.logins.store(OTHERS).attempts.close(scene.theirs, ENDED)
    assert closed.fork_state is ForkState.ENDED


def test_what_would_stop_everybody_is_refused(scene: Scene) -> None:
    told = {}
    for table, values in REFUSED:
        with pytest.raises(psycopg.Error) as refused:
            scene.writes(table, values)
        told[table, values] = refused.value.sqlstate
    assert set(told.values()) == {NOT_PERMITTED}, told


def test_a_heartbeat_of_a_time_to_come_keeps_no_host_alive(scene: Scene) -> None:
    scene.writes("host", f"heartbeat_ns = {MOST}")
    (mine,) = (host for host in scene.ports.hosts.list() if host.host_id == MINE)
    assert not mine.alive
    assert scene.ports.hosts.unassign_dead() == 1


def test_commands_are_of_its_own_forks(scene: Scene) -> None:
    """No other fork's page shows what it says was run there."""
    asked = (
        "INSERT INTO exec (exec_id, fork_id, attempt_id, project_id, purpose, state, asked_ns) "
        "SELECT 'forged', {}, attempt_id, {}, 'task', 'ended', 1 FROM attempt"
    )
    mine = "(SELECT fork_id FROM attempt)"
    for fork_id, project_id in (
        (f"'{scene.theirs.fork.fork_id}'", "'default'"),
        (mine, "'another'"),
    ):
        with pytest.raises(psycopg.Error) as refused:
            scene.host.execute(asked.format(fork_id, project_id).encode())
        assert refused.value.sqlstate == NOT_PERMITTED
    assert scene.host.execute(asked.format(mine, "'default'").encode()).rowcount == 1


def test_no_entry_is_of_an_end_that_was_none(scene: Scene) -> None:
    """It would keep the control plane from ever closing this machine."""
    booked = (
        "INSERT INTO ledger SELECT attempt_id, 'charge', 0, run_id, 0, -1000, 1000, 1 FROM attempt"
    )
    returned = "INSERT INTO ledger SELECT fork_id, 'return', 0, run_id, 1, -1, 0, 1 FROM attempt"
    ended = (
        "UPDATE attempt SET closed_boot_ns = 10000000000, closed_ns = 1, charged_micros = 1000, "
        "tasks_micros = 1000"
    )
    for statements in (booked, returned, f"BEGIN; {booked}; {ended}; COMMIT"):
        with pytest.raises(psycopg.Error) as refused:
            scene.host.execute(statements.encode())
        assert refused.value.sqlstate == NOT_PERMITTED, statements
        scene.host.rollback()
