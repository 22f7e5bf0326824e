"""A deployment of docker-compose.yml under a project of its own, and Docker's and Compose's words to it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.stack import uninterrupted
from drills.steps import free_port
from promigence import Promigence

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = Path(sys.executable).with_name("docker-compose")
PROJECT = "promigence-smoke"
BUILD_WITHIN_S, UP_WITHIN_S, DOWN_WITHIN_S, SAID_WITHIN_S = 3600.0, 300.0, 180.0, 60.0
# Networks and volumes are the project's too, under its label.
_LABEL = f"label=com.docker.compose.project={PROJECT}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """`environment` is what Compose is run with: ports, the folder of secrets, what runs may reach."""

    environment: dict[str, str]
    secrets: Path

    def compose(self, *words: str, within_s: float = SAID_WITHIN_S) -> str:
        """Raises subprocess.CalledProcessError with what it said, TimeoutExpired."""
        fixed = ("--project-name", PROJECT, "--project-directory", str(ROOT), "--progress", "quiet")
        return _said((str(COMPOSE), *fixed, *words), self.environment, within_s)

    def docker(self, *words: str) -> str:
        """The same of Docker's own client."""
        return _said(("docker", *words), self.environment, SAID_WITHIN_S)

    def inside(self, service: str, *words: str) -> str:
        """What a program printed that was run in this service's container."""
        return self.compose("exec", "--no-TTY", service, *words)

    def server(self, service: str, *words: str) -> Any:
        """What `promigence-server ... --json` said there."""
        return json.loads(self.inside(service, "promigence-server", *words, "--json"))

    def container(self, service: str) -> str:
        """Its id, running or not."""
        return self.compose("ps", "--all", "--quiet", service).strip()

    def gateway(self, network: str) -> str:
        """The address under which a network's containers reach this machine."""
        found = json.loads(self.docker("network", "inspect", f"{PROJECT}_{network}"))
        return str(found[0]["IPAM"]["Config"][0]["Gateway"])

    def addresses(self, service: str) -> list[str]:
        """On every network that it is in."""
        (found,) = json.loads(self.docker("inspect", self.container(service)))
        networks = found["NetworkSettings"]["Networks"].values()
        return [network["IPAddress"] for network in networks]

    def client(self) -> Promigence:
        """With a key made now."""
        key = self.inside("api", "promigence-server", "keys", "create", "smoke").strip()
        return Promigence(key, f"http://127.0.0.1:{self.environment['PROMIGENCE_API_PORT']}")

    def secret_texts(self) -> dict[str, str]:
        """By the name of its file."""
        return {path.name: path.read_text().strip() for path in self.secrets.iterdir()}


@contextmanager
def prepared(*, build: bool) -> Iterator[Deployment]:
    """A deployment that is created and not started, so that its networks have addresses; taken down in any case, with
    all that it kept.
    """
    folder = Path(tempfile.mkdtemp(prefix="promigence-smoke-"))
    environment = {
        **os.environ,
        "PROMIGENCE_SECRETS": str(folder / "secrets"),
        "PROMIGENCE_API_PORT": str(free_port()),
        "PROMIGENCE_FLOWER_PORT": str(free_port()),
        "PROMIGENCE_HOST_ID": f"smoke-{secrets.token_hex(3)}",
    }
    here = Deployment(environment, folder / "secrets")
    try:
        _said((str(ROOT / "deploy/compose/secrets"), str(here.secrets)), environment, SAID_WITHIN_S)
        _clear(here)
        if build:
            here.compose("build", within_s=BUILD_WITHIN_S)
        here.compose("create", within_s=BUILD_WITHIN_S)
        yield here
    finally:
        with uninterrupted():
            _clear(here)
            shutil.rmtree(folder)


def left(here: Deployment, containers: list[str]) -> list[str]:
    """What is there of the project after its end: Docker's objects, and processes of its containers, if the engine is
    this machine's.
    """
    found = [
        f"{kind} {name}"
        for kind, words in (
            ("container", ("ps", "--all", "--format", "{{.Names}}")),
            ("volume", ("volume", "ls", "--quiet")),
            ("network", ("network", "ls", "--format", "{{.Name}}")),
        )
        for name in here.docker(*words, "--filter", _LABEL).split()
    ]
    return [*found, *(f"process {pid} of a container" for pid in _processes_of(containers))]


def _clear(here: Deployment) -> None:
    here.compose(
        "--profile", "moto", "down", "--volumes", "--timeout", "60", within_s=DOWN_WITHIN_S
    )


def _processes_of(containers: list[str]) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                groups = (entry / "cgroup").read_text()
            except OSError:
                continue  # gone meanwhile
            if any(container in groups for container in containers):
                yield entry.name


def _said(argv: tuple[str, ...], environment: dict[str, str], within_s: float) -> str:
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip()[-2000:]
        raise subprocess.CalledProcessError(done.returncode, f"{' '.join(argv[:8])}: {tail}")
    return done.stdout
