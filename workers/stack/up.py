"""The start of a stack: its settings, its database and key, its supervisor, and the wait until all of it works."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from app.errors import BadRequest, Conflict, Unavailable
from app.ids import new_id
from infra import wiring
from infra.settings import SETTINGS_FILE, Settings, as_json, inherited, load
from infra.stack.process import Process, find
from infra.stack.records import (
    MARK,
    Identity,
    Places,
    alone,
    log_of,
    make_directories,
    read_identity,
    write_identity,
    write_private,
)
from workers.noted import noted
from workers.probes import wait_until_well
from workers.stack.down import Say, bring_down
from workers.stack.status import asking, status
from workers.stack.supervise import places_of, redis_binary, server_argv
from workers.watch import Deaf

PROJECT = "default"
KEY_NAME = "make up"
READY_WITHIN_S = 90.0
# What runs on one machine may keep its rows in a file and its bells behind a socket of that machine.
TOGETHER = frozenset({"api", "worker", "billing"})
PORTS_OF_OURS = ("api_port", "flower_port", "worker_metrics_port", "billing_metrics_port")
# Below the range from which the kernel gives ports to clients: what was free a moment ago is still free for a listener.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller of `up` decides; None leaves it to the environment or the default."""

    parts: tuple[str, ...] | None = None
    machines: str | None = None
    egress_allow: tuple[str, ...] | None = None
    host_slots: int | None = None

    def overrides(self) -> dict[str, object]:
        asked = {
            "parts": self.parts,
            "machines": self.machines,
            "egress_allow": self.egress_allow,
            "host_slots": self.host_slots,
        }
        return {name: value for name, value in asked.items() if value is not None}


def up(directory: Path, wanted: Wanted, say: Say) -> Settings:
    """Start the stack of this directory, or the parts of one that belong here, and return when all of it does its work.
    Already up: says so.

    Whatever goes wrong, or Ctrl-C, stops what was started. Raises Unavailable(stack_not_ready),
    BadRequest(parts_apart), Conflict(stack_busy, stack_differs).
    """
    places = places_of(directory)
    with alone(places):
        found = status(directory)
        if found and all(part.ready for part in found):
            return _already_up(directory, wanted, say)
        bring_down(places, lambda _line: None)
        try:
            return _bring_up(places, wanted, say)
        except BaseException:
            say("stopping what was started")
            bring_down(places, say)
            raise


def wait(directory: Path) -> None:
    """Return when the supervisor of this directory's stack is gone."""
    identity = read_identity(places_of(directory))
    while identity is not None and identity.supervisor is not None and identity.supervisor.alive():
        time.sleep(0.5)


def _already_up(directory: Path, wanted: Wanted, say: Say) -> Settings:
    settings = load(directory)
    differing = [
        name for name, value in wanted.overrides().items() if getattr(settings, name) != value
    ]
    if differing:
        raise Conflict(
            "stack_differs", f"it is up with other {', '.join(differing)}; `down` it first"
        )
    say("already up")
    return settings


def _bring_up(places: Places, wanted: Wanted, say: Say) -> Settings:
    make_directories(places)
    settings = _settings(places, wanted)
    _need(settings)
    write_private(places.directory / SETTINGS_FILE, as_json(settings))
    api_key = _fresh_key(settings) if "api" in settings.parts else None
    supervisor = _start_supervisor(places)
    with asking(settings, api_key or "") as probes:
        ailing = wait_until_well(
            probes,
            READY_WITHIN_S,
            lambda: not supervisor.alive(),
            lambda name: say(f"{name} is ready"),
        )
    if ailing:
        raise Unavailable("stack_not_ready", _complaint(places, ailing), parts=ailing)
    write_private(places.scrapes, _scrapes(places, settings))
    if api_key is not None:
        write_private(places.environment, _environment(settings, api_key))
    return settings


def _need(settings: Settings) -> None:
    """What no part can do without, asked before any is started.

    Raises Unavailable, saying what to install; BadRequest(parts_apart) where parts that run elsewhere could not meet
    these.
    """
    alone = frozenset(settings.parts) >= TOGETHER
    if not alone and (settings.database_url is None or settings.redis_url is None):
        raise BadRequest(
            "parts_apart",
            f"without {', '.join(sorted(TOGETHER - set(settings.parts)))} here, the database and the queue are another"
            " machine's too: set PROMIGENCE_DATABASE_URL and PROMIGENCE_REDIS_URL",
        )
    if settings.redis_url is None and redis_binary() is None:
        raise Unavailable("no_redis", "no redis-server on the path: run `make setup`")
    if "worker" in settings.parts:
        with wiring.host(settings, new_id("claim"), Deaf()):
            pass


def _settings(places: Places, wanted: Wanted) -> Settings:
    """The environment's settings, the caller's over them, and what is this stack's own."""
    asked = Settings(dir=places.directory, **wanted.overrides())  # type: ignore[arg-type]
    own = {
        "run_dir": places.run_dir,
        # A port that was asked for is one that others were told of.
        **{name: _free_port() for name in PORTS_OF_OURS if name not in asked.model_fields_set},
        "flower_password": asked.flower_password or SecretStr(secrets.token_urlsafe(24)),
        "metrics_token": asked.metrics_token or _kept(places.metrics_token),
    }
    if "api" in asked.parts:
        # Where no keys are checked the secret has no business.
        own["key_secret"] = asked.key_secret or _kept(places.directory / "key.secret")
    return asked.model_copy(update=own)


def _kept(path: Path) -> SecretStr:
    """A secret that outlives a stack: what API keys are hashed with, or what the operator's Prometheus sends."""
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    return SecretStr(path.read_text())


def _free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def _fresh_key(settings: Settings) -> str:
    """Bring the database up to date, and give this stack a key; the one of the stack before it is revoked."""
    if settings.database_url is None:
        # Before SQLite makes it for everybody to read; its other files take the same mode.
        (settings.dir / "promigence.db").touch(mode=0o600)
    wiring.migrate(settings)
    with wiring.control(settings) as control:
        ports = control.ports
        for key in ports.keys.list(PROJECT):
            if key.name == KEY_NAME and key.revoked_ns is None:
                with noted(ports, "keys.revoke", PROJECT, key.key_id):
                    ports.keys.revoke(key.key_id)
        with noted(ports, "keys.create", PROJECT) as change:
            key, secret = ports.keys.create(PROJECT, KEY_NAME)
            change.about(key.key_id, PROJECT)
    return secret


def _start_supervisor(places: Places) -> Process:
    """In a session of its own: the terminal's Ctrl-C reaches `up` alone, which then stops everything in order."""
    stack_id = secrets.token_hex(16)
    write_identity(places, Identity(stack_id, None))
    environment = {**inherited(), MARK: stack_id}
    with log_of(places, "supervisor") as out:
        child = subprocess.Popen(
            (*server_argv(), "supervise", "--dir", str(places.directory)),
            cwd=places.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    supervisor = find(child.pid)
    if supervisor is None:
        raise Unavailable("supervisor_ended", "its log says why")
    write_identity(places, Identity(stack_id, supervisor))
    return supervisor


def _environment(settings: Settings, api_key: str) -> str:
    lines = {
        "PROMIGENCE_BASE_URL": f"http://{settings.api_host}:{settings.api_port}",
        "PROMIGENCE_API_KEY": api_key,
    }
    if "flower" in settings.parts:
        password = settings.flower_password
        assert password is not None
        credentials = f"{settings.flower_user}:{password.get_secret_value()}"
        lines["FLOWER_URL"] = f"http://{credentials}@127.0.0.1:{settings.flower_port}"
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in lines.items())


def _scrapes(places: Places, settings: Settings) -> str:
    """JSON is YAML too, and needs no quoting of ours."""
    targets = {
        "api": f"{settings.api_host}:{settings.api_port}",
        "worker": f"{settings.metrics_host}:{settings.worker_metrics_port}",
        "billing": f"{settings.metrics_host}:{settings.billing_metrics_port}",
    }
    job = {
        "job_name": "promigence",
        "authorization": {"credentials_file": str(places.metrics_token)},
        "static_configs": [
            {"targets": [target], "labels": {"component": name}}
            for name, target in targets.items()
            if name in settings.parts
        ],
    }
    return json.dumps({"scrape_configs": [job]}, indent=2) + "\n"


def _complaint(places: Places, ailing: dict[str, str]) -> str:
    lines = [f"{name}: {complaint}" for name, complaint in sorted(ailing.items())]
    return "; ".join(lines) + (f"; see {places.logs}" if places.log_files else "")
