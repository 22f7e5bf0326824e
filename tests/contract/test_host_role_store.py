"""The store's own tests, their hosts' verbs by the hosts' logins: none needs a right that is not given.

The tests are those of other files; only what opens their rows is another. On PostgreSQL alone: SQLite has no logins.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.fakes.clock import ManualClock
from infra.store import create_store
from tests.contract.as_hosts import as_hosts
from tests.contract.conftest import SECRET, truncate
from tests.contract.host_logins import HostLogins
from tests.contract.rows import Rows
from tests.contract.test_store_claims import *  # noqa: F403
from tests.contract.test_store_execs import *  # noqa: F403
from tests.contract.test_store_keep import *  # noqa: F403


@pytest.fixture(scope="module")
def logins(postgres_url: str) -> Iterator[HostLogins]:
    made = HostLogins(postgres_url, ManualClock())
    yield made
    made.close()


@pytest.fixture
def rows(postgres_url: str, logins: HostLogins) -> Iterator[Rows]:
    truncate(postgres_url)
    own = create_store(postgres_url, key_secret=SECRET, now_ns=logins.clock.wall_ns)
    made = Rows(as_hosts(own, logins.store), logins.clock)
    yield made
    made.settle()
    made.check_laws()
    made.check_events()
    own.close()
