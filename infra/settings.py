"""The environment, read once, frozen and typed. Nothing else of the server reads it.

Every setting is `PROMIGENCE_<NAME>`; tuples are written as JSON. A secret may be a file instead, `promigence_<name>` in
`secrets_dir`: the environment wins over it. What `promigence-server up` starts reads a file of its own directory too,
which wins over both: a stack goes on as it was started.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, Self, get_args
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from app.errors import BadRequest

__all__ = [
    "SETTINGS_FILE",
    "PartName",
    "Settings",
    "as_json",
    "complaint",
    "inherited",
    "load",
    "runtime_dir",
    "secret_file",
]

SETTINGS_FILE = "settings.json"
# Where Docker and its kin show a container the secrets that it was given.
SECRETS_DIR = Path("/run/secrets")
# Of a file of one secret; what is longer is some other file.
_SECRET_BYTES = 64 * 1024
# A socket's path has 107 bytes at most; the longest name below the runtime directory takes about 60 of them.
_RUNTIME_DIR_BYTES = 46
_INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "SSL_CERT_FILE"),
    # Where credentials are, never the credentials.
    *("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED"),
)

Count = Annotated[int, Field(ge=1)]
Network = Annotated[str, AfterValidator(lambda said: str(ip_network(said)))]
PartName = Literal["api", "worker", "billing", "flower"]
Port = Annotated[int, Field(ge=1, le=65535)]


class Settings(BaseSettings):
    """What a deployment decides; the defaults are the embedded stack of one checkout."""

    model_config = SettingsConfigDict(env_prefix="PROMIGENCE_", frozen=True, extra="forbid")

    dir: Path = Path(".promigence")
    # What `make setup` built: the keeper, the guest's kernel and tools, base images.
    products: Path = Field(default_factory=lambda: _products())
    run_dir: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    # Where the parts of a stack log to: a file each in its directory, or where `up` itself does, for whom a container
    # or a service's journal collects that.
    log_to: Literal["files", "stderr"] = "files"

    # What `up` starts here. The control plane goes without `worker`, a host of it with nothing else.
    parts: tuple[PartName, ...] = Field(default=get_args(PartName), min_length=1)
    # A folder of secrets by file; none there is nothing.
    secrets_dir: Path = SECRETS_DIR
    database_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    # Flower's own user of Redis, where it has one; without it Flower is who the control plane is.
    flower_redis_url: SecretStr | None = None
    # Who may manage the users of Redis, where hosts have logins of their own; on ElastiCache, its user group instead.
    redis_admin_url: SecretStr | None = None
    redis_user_group: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9-]{0,39}$")
    # What API keys are hashed with (HMAC-SHA256): a stolen database alone lets nobody test a guess.
    key_secret: SecretStr | None = None
    # The one before it, while keys that were made under it are still to open; see docs/access.md.
    key_secret_previous: SecretStr | None = None

    machines: Literal["real", "fake"] = "real"
    # QEMU builds side by side, names or paths: templates are frozen with the first, each fork runs by its bundle's.
    qemu: tuple[str, ...] = Field(default=("qemu-system-x86_64",), min_length=1)
    # Queues, database roles and Redis users are named after it.
    host_id: str = Field(default_factory=socket.gethostname, pattern=r"^[A-Za-z0-9._-]{1,64}\z")
    # None: as many as memory and disk hold, at the smallest shape.
    host_slots: Count | None = None
    # Restores are processor work: two a core overlap the waiting that is left in them.
    forks_at_once: Count = Field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    # Commands started or collected at once; each waits a few milliseconds for its guest or the database.
    execs_at_once: Count = 16
    builds_at_once: Count = 2
    # Bundles mounted here at once: an instance takes about 28 volumes, of which its network cards take some.
    mounts_max: Count = 16
    # With less than this left on its disk a host takes no forks, until there is a quarter more.
    disk_reserve_gib: Annotated[int, Field(ge=0)] = 2

    # Where stored bundles are: this host's disk, or EBS snapshots of the account.
    bundles: Literal["local", "ebs"] = "local"
    aws_region: str | None = Field(default=None, min_length=1)
    # None: AWS itself.
    aws_endpoint: str | None = Field(default=None, min_length=1)
    # The tag of all that we make in the account: two deployments of one account never touch each other's. No default:
    # two that shared it would take each other's snapshots for leaks.
    deployment: str | None = Field(default=None, min_length=1, max_length=64)
    # Where attached volumes show up, named after their ids.
    devices: Path = Path("/dev/disk/by-id")
    # How fast AWS fetches a fresh volume's blocks (MiB/s, billed by the GiB); None: at its own pace, for nothing.
    volume_rate_mib: Annotated[int, Field(ge=100, le=300)] | None = None
    # What volumes and snapshots are encrypted with; None: the account's default key for EBS.
    kms_key: str | None = Field(default=None, min_length=1)

    # What the hosts' logins are encrypted with in Secrets Manager; None: the account's default key for secrets.
    secrets_kms_key: str | None = Field(default=None, min_length=1)

    # Where uploaded files and outputs are kept: this directory, or s3://bucket/prefix for an API and hosts apart.
    blobs: str | None = Field(
        default=None, pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]{0,200})?$"
    )

    # The instance metadata service, which announces the end of a spot instance: on EC2 http://169.254.169.254.
    metadata_url: str | None = Field(default=None, pattern=r"^http://[^\s/]+(/\S*)?$")
    # Where this host is, for volumes that attach to it; without it the metadata service is asked.
    zone: str | None = Field(default=None, min_length=1, max_length=64)

    # The Auto Scaling group that hosts run in, and how many there may be; without it hosts come and go by other hands.
    fleet: str | None = Field(default=None, min_length=1, max_length=255)
    fleet_min: Annotated[int, Field(ge=0)] = 0
    fleet_max: Count = 10
    # How many days the audit log is kept.
    audit_days: Count = 90
    # Which of equally warm hosts a fork goes to: the one with most room, or the one with least.
    placement: Literal["spread", "pack"] = "spread"
    # So long what a database that was restored from a backup does not know is told, and not taken for a leak.
    restored_grace_days: Annotated[int, Field(ge=0)] = 7
    egress_allow: tuple[str, ...] = ()
    # The user that connects for machines, by which a firewall keeps them from metadata, database and Redis; a number
    # that no distribution hands out, below those of the machines.
    egress_uid: Annotated[int, Field(ge=1, lt=2_000_000_000)] = 1_999_999_999
    max_forks_per_run: Count = 5000
    # The word of a card that ships with the product (m8i, c8i, r8i), or the path of one of the operator's own; see
    # `promigence-server rates`. Without it, m8i.
    rate_card: str | None = Field(default=None, min_length=1)

    api_host: str = "127.0.0.1"
    api_port: Port = 8000
    # Of each key, in each process of the API: requests a second in the long run, and at once after a pause.
    api_requests_per_second: Count = 500
    api_requests_burst: Count = 5000
    # Of each key, open at once: requests (a waiting command is one), and streams of events.
    api_requests_open: Count = 10_000
    api_streams_open: Count = 200
    # Of each client address: then even the lookup is refused, except of keys that opened here before.
    api_wrong_keys_per_minute: Count = 300
    # Of all clients together; fewer where the process may not have so many files open.
    api_connections: Count = 16_384
    # Load balancers, as addresses or networks, whose X-Forwarded-For says who calls.
    trusted_proxies: tuple[Network, ...] = ()
    flower_host: str = "127.0.0.1"
    flower_port: Port = 5555
    flower_user: str = "promigence"
    flower_password: SecretStr | None = None
    # Who has it may read `/metrics` of the API, and of the workers on ports of their own; without it nobody may.
    metrics_token: SecretStr | None = None
    metrics_host: str = "127.0.0.1"
    worker_metrics_port: Port = 9464
    billing_metrics_port: Port = 9465

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - there is no such file
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - it reads every setting
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The first that has a value wins."""
        named = {**env_settings(), **init_settings()}
        found = _secrets_in(Path(named.get("secrets_dir", SECRETS_DIR)), _secret_names(cls))
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=found)

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        directory = self.dir.absolute()
        object.__setattr__(self, "dir", directory)
        object.__setattr__(self, "products", self.products.absolute())
        object.__setattr__(self, "secrets_dir", self.secrets_dir.absolute())
        if self.rate_card is not None and not self.rate_card.isalnum():
            # The processes of a stack do not all run where it was started.
            object.__setattr__(self, "rate_card", str(Path(self.rate_card).absolute()))
        object.__setattr__(self, "qemu", tuple(_program(each) for each in self.qemu))
        object.__setattr__(self, "run_dir", self.run_dir or runtime_dir(directory))
        if self.bundles == "ebs" and self.aws_region is None:
            raise ValueError("bundles=ebs needs aws_region: snapshots live in one region")
        if self.bundles == "ebs" and self.deployment is None:
            raise ValueError(
                "bundles=ebs needs deployment: a name that no other of the account has"
            )
        if self.fleet is not None and self.aws_region is None:
            raise ValueError("fleet needs aws_region: a group is in one region")
        if self.redis_user_group is not None and None in (self.aws_region, self.deployment):
            raise ValueError("redis_user_group needs aws_region and deployment")
        if self.fleet_min > self.fleet_max:
            raise ValueError("fleet_min is above fleet_max")
        if urlsplit(self.database).scheme not in {"postgresql", "postgresql+psycopg", "sqlite"}:
            raise ValueError("database_url is postgresql+psycopg://USER:PASSWORD@HOST/DATABASE")
        if self.blobs is not None and self.aws_region is None:
            raise ValueError("blobs=s3://... needs aws_region: a bucket is in one region")
        return self

    @property
    def sockets(self) -> Path:
        """Where this stack's sockets are: a short path, unlike its directory's."""
        assert self.run_dir is not None
        return self.run_dir

    @property
    def redis_socket(self) -> Path:
        return self.sockets / "redis.sock"

    @property
    def broker_url(self) -> str:
        """As Celery reads it: `redis://...`, or `redis+socket:///...` for the embedded one."""
        if self.redis_url is not None:
            return self.redis_url.get_secret_value()
        return f"redis+socket://{self.redis_socket}"

    @property
    def flower_broker_url(self) -> str:
        """Where Flower finds the queue."""
        if self.flower_redis_url is not None:
            return self.flower_redis_url.get_secret_value()
        return self.broker_url

    @property
    def database(self) -> str:
        """As SQLAlchemy reads it."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.database_file}"

    @property
    def database_file(self) -> Path:
        """Where the embedded database is, unless `database_url` names another."""
        return self.dir / "promigence.db"

    @property
    def scrape_token(self) -> str | None:
        """What `/metrics` is opened with; an empty one opens nothing."""
        token = self.metrics_token
        return (token.get_secret_value() or None) if token is not None else None

    def secret_values(self) -> frozenset[str]:
        """Every secret here, and every password in a URL, in the spellings that a library might tell it in."""
        found = set()
        for _, value in self:
            if isinstance(value, SecretStr):
                plain = value.get_secret_value()
                password = _password_of(plain)
                found |= {plain, password, unquote(password)}
        return frozenset(found - {""})

    @property
    def tick_file(self) -> Path:
        """When the billing worker last ticked; see `workers/billing.py`."""
        return self.sockets / "billing.tick"


def load(directory: Path) -> Settings:
    """The settings of the stack in this directory: what it wrote down, over the environment.

    Raises pydantic's ValidationError or SettingsError, of which `complaint` makes a line; BadRequest(bad_settings) if
    the file is no JSON, or a secret's file holds no secret or may not be read.
    """
    path = directory / SETTINGS_FILE
    try:
        written = json.loads(path.read_text()) if path.exists() else {}
    except json.JSONDecodeError as error:
        raise BadRequest("bad_settings", f"{path} is no JSON: {error}") from error
    return Settings(**{**written, "dir": directory})


def complaint(error: ValidationError | SettingsError) -> str:
    """Which settings are wrong, and what each should be."""
    if isinstance(error, SettingsError):
        name = re.search(r'field "(\w+)"', str(error))
        return f'{name[1] if name else error}: a list is written as JSON, such as ["one", "two"]'
    found = error.errors()
    # Of a list in which one entry is wrong, pydantic says that it is too short as well.
    parents = {wrong["loc"][:-1] for wrong in found}
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, wrong["loc"])), wrong["msg"])))
        for wrong in found
        if not wrong["loc"] or wrong["loc"] not in parents
    ).replace("Value error, ", "")


def as_json(settings: Settings) -> str:
    """All of the settings, secrets too: what `load` reads as the same settings."""
    plain = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in settings
    }
    return json.dumps(plain, default=str, indent=2)


def secret_file(directory: Path, name: str) -> Path:
    """Where a secret of this name is a file."""
    return directory / f"promigence_{name}"


def _password_of(text: str) -> str:
    """Of a URL; nothing of what is none."""
    try:
        return urlsplit(text).password or ""
    except ValueError:
        return ""


def runtime_dir(directory: Path) -> Path:
    """A short path of this directory's own, so that the stacks of two checkouts never meet.

    Under `/run` for root, else under the user's runtime directory, else under the one for temporary files.
    """
    name = hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:12]
    return _runtime_root() / name


def inherited() -> dict[str, str]:
    """What a process that we start keeps of our environment: no secrets, no proxies, no Python switches.

    Of AWS, only where its credentials are: a process reads them where they lie, or has its instance's role.
    """
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def _secret_names(of: type[BaseSettings]) -> tuple[str, ...]:
    return tuple(
        name for name, field in of.model_fields.items() if SecretStr in get_args(field.annotation)
    )


def _secrets_in(directory: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The secrets that have a file here. Raises BadRequest(bad_settings) for one that is there and holds none: a stack
    without its database's address would begin another database.
    """
    files = {name: secret_file(directory, name) for name in names}
    return {name: _secret(file) for name, file in files.items() if os.path.lexists(file)}


def _secret(file: Path) -> str:
    """What a file of one secret holds, without the newline that editors and `echo` put after it."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_SECRET_BYTES + 1).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest("bad_settings", f"the secret {file} cannot be read: {error}") from error
    if not text or len(text) > _SECRET_BYTES or "\n" in text:
        raise BadRequest("bad_settings", f"the secret {file} is not one line of text")
    return text


def _program(named: str) -> str:
    """A path from the root, for the processes of a stack do not all run where it was started; or a name, looked for on
    the path.
    """
    return str(Path(named).absolute()) if "/" in named else named


def _products() -> Path:
    """Set-up builds beside the virtual environment that we run in; without one, here."""
    beside = Path(sys.prefix).parent / ".promigence"
    return beside if beside.is_dir() else Path(".promigence")


def _runtime_root() -> Path:
    if os.geteuid() == 0:
        return Path("/run/promigence")
    of_user = os.environ.get("XDG_RUNTIME_DIR", "")
    if of_user and len(os.fsencode(of_user)) <= _RUNTIME_DIR_BYTES - 24 and Path(of_user).is_dir():
        return Path(of_user) / "promigence"
    return Path(f"/tmp/promigence-{os.geteuid()}")  # noqa: S108 - its owner is checked where it is made
