"""The store as a whole: one database, a class for each noun."""

from __future__ import annotations

from dataclasses import dataclass

from infra.store.attempts import Attempts
from infra.store.audit import Audit, Uploads
from infra.store.builds import Builds
from infra.store.census import Censuses
from infra.store.control_processes import ControlProcesses
from infra.store.deployments import Deployments
from infra.store.engine import Database, Heard, NowNs
from infra.store.execs import Execs
from infra.store.host_role import give_rights
from infra.store.hosts import Hosts
from infra.store.keys import Keys
from infra.store.leaks import RowLeaks
from infra.store.meters import Meters
from infra.store.migrate import upgrade
from infra.store.projects import Projects
from infra.store.quotes import Quotes
from infra.store.receipts import Receipts
from infra.store.resources import Resources
from infra.store.runs import Runs
from infra.store.snapshots import Snapshots
from infra.store.usage import Usage
from infra.store.warm import WarmTargets
from infra.store.workers import Workers


@dataclass(frozen=True, slots=True)
class Stores:
    """Every Protocol of `app.ports` whose subject is rows, on one database."""

    database: Database
    keys: Keys
    projects: Projects
    receipts: Receipts
    audit: Audit
    uploads: Uploads
    snapshots: Snapshots
    warm: WarmTargets
    quotes: Quotes
    runs: Runs
    attempts: Attempts
    execs: Execs
    builds: Builds
    hosts: Hosts
    meters: Meters
    usage: Usage
    leaks: RowLeaks
    workers: Workers
    census: Censuses
    resources: Resources
    deployments: Deployments
    processes: ControlProcesses

    def migrate(self) -> None:
        """Bring the schema up to this release's, and what hosts' logins may do with it, unless a newer release was
        here. Twice is safe, also at the same time. Raises Unavailable.
        """
        if not upgrade(self.database).newer:
            give_rights(self.database)

    def close(self) -> None:
        """Give up the connections. Twice is safe."""
        self.database.close()


def create_store(
    url: str,
    *,
    key_secret: bytes | None = None,
    key_secret_previous: bytes | None = None,
    now_ns: NowNs | None = None,
    heard: Heard | None = None,
) -> Stores:
    """A store on `sqlite:///path`, `sqlite:///:memory:` or `postgresql+psycopg://...`; nothing is opened yet.

    `key_secret` is the deployment's secret under which keys are hashed; a process that neither makes nor checks keys
    needs none; a key that is still hashed with `key_secret_previous` opens too, and is hashed anew. `now_ns` stands in
    for the database's clock (ns since the epoch), for tests. `heard` gets the events of each transaction once it is
    committed.
    Raises ValueError for another kind of URL.
    """
    database = Database(url, now_ns, heard)
    return Stores(
        database=database,
        keys=Keys(database, key_secret, key_secret_previous),
        projects=Projects(database),
        receipts=Receipts(database),
        audit=Audit(database),
        uploads=Uploads(database),
        snapshots=Snapshots(database),
        warm=WarmTargets(database),
        quotes=Quotes(database),
        runs=Runs(database),
        attempts=Attempts(database),
        execs=Execs(database),
        builds=Builds(database),
        hosts=Hosts(database),
        meters=Meters(database),
        usage=Usage(database),
        leaks=RowLeaks(database),
        workers=Workers(database),
        census=Censuses(database),
        resources=Resources(database),
        deployments=Deployments(database),
        processes=ControlProcesses(database),
    )
