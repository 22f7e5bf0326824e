"""What the drill reads by plain statements is what the store wrote: on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drills.books import wrong_charges, wrong_sums
from drills.postgres import Postgres
from drills.rows import account_of, unfinished
from infra.fakes.clock import ManualClock
from infra.store import create_store
from tests.contract.conftest import truncate
from tests.contract.rows import Rows


@pytest.fixture
def store(postgres_url: str) -> Iterator[Rows]:
    truncate(postgres_url)
    clock = ManualClock()
    store = create_store(postgres_url, now_ns=clock.wall_ns)
    yield Rows(store, clock)
    store.close()


@pytest.fixture
def postgres(postgres_url: str) -> Postgres:
    return Postgres(postgres_url.replace("+psycopg", ""), Path())


def test_a_run_that_goes_on_is_not_final_and_keeps_its_room(
    store: Rows, postgres: Postgres
) -> None:
    claimed = store.started()
    lines = unfinished(postgres)
    found = {line.split()[0] for line in lines}
    assert found == {"run", "fork", "attempt", "host", "project"}
    account = account_of(postgres, claimed.run.run_id)
    assert list(wrong_sums(account)) == [
        f"{account.granted_micros} micro-dollars are still granted"
    ]
    assert list(wrong_charges(account)) == [
        f"attempt {claimed.attempt.attempt_id} was never closed"
    ]


def test_a_run_that_has_ended_is_in_order(store: Rows, postgres: Postgres) -> None:
    claimed = store.ready(store.started())
    store.close(claimed, 12)
    assert unfinished(postgres) == []
    account = account_of(postgres, claimed.run.run_id)
    assert [attempt.attempt_id for attempt in account.attempts] == [claimed.attempt.attempt_id]
    assert account.charged_micros > 0
    assert [*wrong_sums(account), *wrong_charges(account)] == []
