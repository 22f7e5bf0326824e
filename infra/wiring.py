"""Settings become ports: the only place where adapters meet."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.domain.money import NS_PER_HOUR
from app.domain.placement import Policy
from app.errors import Unavailable
from app.ports import Bundles, Cloud, GuestEvents, HostPorts, Images, Ports
from app.ports.bundle import Limits
from app.ports.census import Censuses
from app.ports.leaks import RowLeaks, Traces
from infra.aws.blobs import S3Blobs
from infra.aws.ec2 import Ec2Cloud
from infra.aws.fleet import AutoScalingFleet
from infra.aws.metadata import InstanceMetadata
from infra.aws.session import Account
from infra.blobs import FolderBlobs
from infra.bundles import LocalBundles
from infra.clock import HostClock
from infra.disk import FolderDisk
from infra.ebs import EbsBundles, Ext4Disks
from infra.egress import EgressProxy
from infra.egress.dialling import Dialler
from infra.fakes.guest import FakeGuest
from infra.fakes.machines import FakeBundles, FakeImages, FakeMachines
from infra.fakes.world import TICK_S, World
from infra.guest import SshGuest
from infra.image.images import LocalImages, ReleaseImages
from infra.leaks.host import HostTraces
from infra.leaks.queue import QueueTraces
from infra.metrics import Metrics, served
from infra.qemu.fingerprint import survey
from infra.qemu.machines import QemuMachines
from infra.queue import OF_ONE, CeleryBells, RedisWakes, redis_url
from infra.rates import card_of
from infra.settings import Settings
from infra.store import Stores, create_store
from infra.store import migrate as migrations
from infra.store.migrate import Schema


@dataclass(frozen=True, slots=True)
class Control:
    """What every process of the deployment has; `bells` again as itself, for the liveness of workers.

    `rows` and `queue` show what leaked there, `uploads` what is left of files that were on their way into a bucket (in
    a folder the host that has it sees that). `metrics` are this process's own; `census` counts the rows.
    """

    ports: Ports
    bells: CeleryBells
    rows: RowLeaks
    queue: QueueTraces
    metrics: Metrics
    census: Censuses
    uploads: Traces | None = None


def migrate(settings: Settings) -> None:
    """Bring the database up to this release. Twice is safe. Raises Unavailable(database_away)."""
    store = _store(settings)
    try:
        store.migrate()
    finally:
        store.close()


def schema(settings: Settings) -> Schema:
    """How the database stands to this release. Raises Unavailable(database_away)."""
    store = _store(settings)
    try:
        return migrations.schema(store.database)
    finally:
        store.close()


def refuse_contracted(settings: Settings) -> None:
    """For who migrates nothing, as it starts. Raises PromigenceError(unknown_schema) where a newer release has taken
    away what this one needs, Unavailable(database_away).
    """
    store = _store(settings)
    try:
        migrations.refuse_contracted(store.database)
    finally:
        store.close()


def contract(settings: Settings) -> tuple[str, ...]:
    """Take away of the schema what no release uses any more; which migrations that were.

    Raises Conflict(schema_needed) while a process is there that may need it, Unavailable.
    """
    store = _store(settings)
    try:
        return migrations.contract(store.database)
    finally:
        store.close()


@contextmanager
def control(settings: Settings, component: str = "command") -> Iterator[Control]:
    """The control plane's ports, open until the end of the block; `component` is what its metrics call it.

    Raises Unavailable(database_away).
    """
    metrics = Metrics(component)
    with ExitStack() as opened:
        store = _store(settings, metrics)
        opened.callback(store.close)
        blobs = _blobs(settings)
        bells = CeleryBells(settings.broker_url, at_once=settings.forks_at_once)
        opened.callback(bells.close)
        ports = Ports(
            keys=store.keys,
            projects=store.projects,
            receipts=store.receipts,
            audit=store.audit,
            uploads=store.uploads,
            snapshots=store.snapshots,
            warm=store.warm,
            quotes=store.quotes,
            runs=store.runs,
            attempts=store.attempts,
            execs=store.execs,
            builds=store.builds,
            hosts=store.hosts,
            meters=store.meters,
            usage=store.usage,
            workers=store.workers,
            resources=store.resources,
            deployments=store.deployments,
            processes=store.processes,
            bells=bells,
            blobs=blobs,
            clock=HostClock(),
            rates=card_of(settings.rate_card).rates(),
            images=_images(settings),
            limits=Limits(
                max_forks_per_run=settings.max_forks_per_run,
                egress=settings.egress_allow,
                placement=Policy(settings.placement),
                restored_grace_ns=settings.restored_grace_days * 24 * NS_PER_HOUR,
            ),
            measures=metrics,
            cloud=_cloud(settings),
            region=settings.aws_region,
        )
        queue = QueueTraces(redis_url(settings.broker_url), OF_ONE)
        opened.callback(queue.close)
        uploads = blobs if isinstance(blobs, S3Blobs) else None
        yield Control(ports, bells, store.leaks, queue, metrics, store.census, uploads)


@contextmanager
def scraped(settings: Settings, metrics: Metrics, port: int) -> Iterator[None]:
    """Inside, whoever has the token may read these metrics on a port of their own."""
    with served(metrics.text, settings.metrics_host, port, settings.scrape_token):
        yield


def traces(settings: Settings, pids: Iterable[int] | None = None) -> HostTraces:
    """What lies about on this host of the stack with these settings; `pids` are its processes, this one if None."""
    keeper = settings.products / "bin" / "keeper"
    return HostTraces(settings.dir, keeper, pids, blobs=settings.blobs is None)


def fleet(settings: Settings) -> AutoScalingFleet | None:
    """The group that the hosts run in; None where hosts come and go by other hands."""
    return None if settings.fleet is None else AutoScalingFleet(_account(settings), settings.fleet)


@contextmanager
def metadata(settings: Settings) -> Iterator[InstanceMetadata | None]:
    """What the instance of this host is told about itself; None where no service is named."""
    if settings.metadata_url is None:
        yield None
        return
    asked = InstanceMetadata(settings.metadata_url)
    try:
        yield asked
    finally:
        asked.close()


def wakes(settings: Settings) -> RedisWakes:
    """The other end of the bells' `woken`, for the one event loop that it will be used in."""
    return RedisWakes(settings.broker_url)


@contextmanager
def host(settings: Settings, claim: str, events: GuestEvents) -> Iterator[HostPorts]:
    """This host's ports for the process that `claim` names in the rows; machines live on when the block ends.

    Raises Unavailable where no machine can run.
    """
    make = _fake_host if settings.machines == "fake" else _real_host
    with make(settings, claim, events) as made:
        yield made


@contextmanager
def _real_host(settings: Settings, claim: str, events: GuestEvents) -> Iterator[HostPorts]:
    clock, products, root = HostClock(), settings.products, settings.dir / "machines"
    guest_dir = products / "guest"
    means, fingerprint = survey(
        settings.host_id,
        root,
        _built(products / "bin" / "keeper"),
        _built(guest_dir / "vmlinuz"),
        _built(guest_dir / "initramfs.cpio"),
        clock,
        settings.qemu,
    )
    with ExitStack() as opened:
        machines = QemuMachines(root, means, fingerprint, clock)
        opened.callback(machines.close)
        dialler = Dialler(settings.egress_allow, _control_plane(settings), settings.egress_uid)
        opened.callback(dialler.close)
        guest = SshGuest(lambda name: root / name, events, EgressProxy(dialler.dial))
        opened.callback(guest.shut_down)
        bundles = _bundles(settings, clock, opened)
        yield HostPorts(
            settings.host_id,
            claim,
            machines,
            guest,
            bundles,
            forks_at_once=settings.forks_at_once,
            mounts_max=settings.mounts_max,
            disk=FolderDisk(settings.dir),
            disk_reserve_bytes=settings.disk_reserve_gib << 30,
        )


def _bundles(settings: Settings, clock: HostClock, opened: ExitStack) -> Bundles:
    root = settings.dir / "bundles"
    folders = LocalBundles(root, clock.boot_id())
    cloud = _cloud(settings)
    if cloud is None:
        return folders
    if settings.zone is None and settings.metadata_url is None:
        raise Unavailable("no_zone", "bundles=ebs needs `zone`, or `metadata_url` to ask for it")
    store = _store(settings)
    opened.callback(store.close)
    return EbsBundles(
        root,
        folders,
        cloud,
        store.resources,
        Ext4Disks(settings.devices),
        clock,
        host_id=settings.host_id,
        zone=lambda: _zone(settings),
    )


def _zone(settings: Settings) -> str:
    """Where this host's volumes have to be. Raises Unavailable while the metadata service is away."""
    if settings.zone is not None:
        return settings.zone
    with metadata(settings) as asked:
        assert asked is not None, "who has neither zone nor metadata does not come this far"
        return asked.identity().zone


def _control_plane(settings: Settings) -> tuple[str, ...]:
    """The `host:port` of our own parts: no machine reaches them, whatever the operator's patterns say."""
    urls = (urlsplit(settings.broker_url), urlsplit(settings.database))
    return (
        f"{settings.api_host}:{settings.api_port}",
        f"{settings.flower_host}:{settings.flower_port}",
        f"{settings.metrics_host}:{settings.worker_metrics_port}",
        f"{settings.metrics_host}:{settings.billing_metrics_port}",
        *(f"{url.hostname}:{url.port or _port_of(url.scheme)}" for url in urls if url.hostname),
    )


def _port_of(scheme: str) -> int:
    """Where a URL that names no port leads."""
    return 5432 if scheme.startswith("postgresql") else 6379


@contextmanager
def _fake_host(settings: Settings, claim: str, events: GuestEvents) -> Iterator[HostPorts]:
    world = World(HostClock(), events)
    machines = FakeMachines(world, settings.host_id)
    bundles = FakeBundles(settings.dir / "bundles")
    with _time_passing(world):
        # Simulated forks use no processor, so that any number may come up at once.
        yield HostPorts(
            settings.host_id,
            claim,
            machines,
            FakeGuest(world),
            bundles,
            forks_at_once=settings.max_forks_per_run,
            disk=FolderDisk(settings.dir),
            disk_reserve_bytes=settings.disk_reserve_gib << 30,
        )


@contextmanager
def _time_passing(world: World) -> Iterator[None]:
    """Let simulated commands end and simulated machines die as their time comes."""
    over = threading.Event()

    def pump() -> None:
        while not over.wait(TICK_S):
            world.pump()

    thread = threading.Thread(target=pump, name="simulated time", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)


def _store(settings: Settings, metrics: Metrics | None = None) -> Stores:
    return create_store(
        settings.database,
        key_secret=_bytes(settings.key_secret),
        key_secret_previous=_bytes(settings.key_secret_previous),
        heard=metrics.heard if metrics else None,
    )


def _bytes(secret: SecretStr | None) -> bytes | None:
    return secret.get_secret_value().encode() if secret else None


def _blobs(settings: Settings) -> FolderBlobs | S3Blobs:
    if settings.blobs is None:
        return FolderBlobs(settings.dir / "blobs")
    bucket, _, prefix = settings.blobs.removeprefix("s3://").partition("/")
    return S3Blobs(_account(settings).s3(), bucket, prefix, settings.kms_key)


def _cloud(settings: Settings) -> Cloud | None:
    """The account that snapshots are stored in, where they are."""
    if settings.bundles == "local":
        return None
    assert settings.deployment is not None
    return Ec2Cloud(
        _account(settings),
        settings.deployment,
        HostClock().pause,
        kms_key=settings.kms_key,
        volume_rate_mib=settings.volume_rate_mib,
    )


def _account(settings: Settings) -> Account:
    assert settings.aws_region is not None
    return Account(settings.aws_region, settings.aws_endpoint)


def _images(settings: Settings) -> Images:
    if settings.machines == "fake":
        return FakeImages("debian-12")
    if "worker" not in settings.parts:
        return ReleaseImages()
    return LocalImages(settings.products / "images", settings.products / "guest")


def _built(path: Path) -> Path:
    if not path.exists():
        raise Unavailable("not_set_up", f"{path} is not there: run `make setup`")
    return path
