"""The store's tests run on SQLite and on a real PostgreSQL; one that cannot start fails them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text, update

from infra.aws.session import Account
from infra.fakes.clock import ManualClock
from infra.store import Stores, create_store
from infra.store.tables import METADATA, deployments
from tests.contract import postgres
from tests.contract.blob_rig import Bucket, bucket_of
from tests.contract.ebs_rig import Rig
from tests.contract.moto_server import REGION, moto_server
from tests.contract.rows import Rows

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

SECRET = b"a deployment's own secret"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A server of this session's own, its one database migrated."""
    with postgres.server() as url:
        migrate(url)
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database that each test gets a copy of."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty, migrated database of each kind."""
    if request.param == "postgresql":
        empty: str = request.getfixturevalue("postgres_url")
        truncate(empty)
        return empty
    template: Path = request.getfixturevalue("sqlite_template")
    shutil.copy(template, tmp_path / "store.db")
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def rows(url: str) -> Iterator[Rows]:
    """A store on it with a manual clock; whatever a test did, the laws hold at its end."""
    clock = ManualClock()
    store = create_store(url, key_secret=SECRET, now_ns=clock.wall_ns)
    made = Rows(store, clock)
    yield made
    made.settle()
    made.check_laws()
    made.check_events()
    store.close()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Client]:
    """S3 with an empty account."""
    with moto_server(tmp_path_factory.mktemp("aws")) as endpoint:
        yield Account(REGION, endpoint).s3(attempts=1)


@pytest.fixture
def bucket(s3: S3Client, request: pytest.FixtureRequest) -> Bucket:
    """A bucket of this test's own, and the blobs in it."""
    return bucket_of(s3, request.node.nodeid)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For tests that write thousands of small files: in memory where there is such a place."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def migrate(url: str) -> None:
    store = create_store(url)
    store.migrate()
    store.close()


def truncate(url: str) -> None:
    store = create_store(url)
    with store.database.write() as at:
        emptied = [table.name for table in METADATA.sorted_tables if table is not deployments]
        at.execute(text("TRUNCATE " + ", ".join(f'"{name}"' for name in emptied)))
        # Its one row was made with the table.
        at.execute(update(deployments).values(epoch=1, since_ns=0, beat=0))
    store.close()


@pytest.fixture
def bare(url: str, tmp_path: Path) -> Iterator[Stores]:
    """A database of the same kind without a schema."""
    if url.startswith("sqlite"):
        store = create_store(f"sqlite:///{tmp_path}/bare.db")
        yield store
        store.close()
        return
    main = create_store(url)
    _outside_transactions(main, "CREATE DATABASE bare")
    store = create_store(url.replace("/postgres?", "/bare?"))
    yield store
    store.close()
    _outside_transactions(main, "DROP DATABASE bare")
    main.close()


def _outside_transactions(store: Stores, statement: str) -> None:
    with store.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as at:
        at.execute(text(statement))


@pytest.fixture
def rig(sqlite_template: Path, tmp_path: Path) -> Iterator[Rig]:
    """Hosts of a zone that is all in memory but for its bytes."""
    shutil.copy(sqlite_template, tmp_path / "store.db")
    clock = ManualClock()
    store = create_store(f"sqlite:///{tmp_path}/store.db", now_ns=clock.wall_ns)
    yield Rig(tmp_path, clock, store.resources)
    store.close()
