"""What the deployment shows to whom: addresses that a host must not reach, and secrets in what Docker tells."""

from __future__ import annotations

from collections.abc import Iterator

from drills.compose.engine import Deployment

# In the host's container, as a hostile one would: exit status 0 if somebody answered.
_KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"
_PYTHON = "/srv/promigence/.venv/bin/python"


def reachable(here: Deployment) -> list[str]:
    """Addresses of the control plane that the host's container reaches; its own stores it must reach."""
    names = {"api": 8000, "flower": 5555, "billing": 9465}
    targets = [
        (address, port) for name, port in names.items() for address in (name, *here.addresses(name))
    ]
    wrong = [f"the host reaches {at}:{port}" for at, port in targets if _answers(here, at, port)]
    for name, port in (("postgres", 5432), ("redis", 6379)):
        if not _answers(here, name, port):
            wrong.append(f"the host does not reach {name}:{port}, so the knocking proves nothing")
    return wrong


def secrets_shown(here: Deployment) -> list[str]:
    """Secrets in what Docker says of containers and images, in the logs, and in the arguments of processes."""
    shown = dict(_shown(here))
    # Redis is given a hash, which is none.
    texts = {name: text for name, text in here.secret_texts().items() if name != "redis_acl"}
    return [
        f"the secret {name} is in {where}"
        for where, said in shown.items()
        for name, text in texts.items()
        if text in said
    ]


def _shown(here: Deployment) -> Iterator[tuple[str, str]]:
    containers = here.compose("ps", "--all", "--quiet").split()
    yield "docker inspect", here.docker("inspect", *containers)
    yield "logs", here.compose("logs", "--no-color")
    yield "arguments of processes", here.compose("top")
    for image in ("promigence-control:0.1.0", "promigence-host:0.1.0"):
        yield f"the history of {image}", here.docker("history", "--no-trunc", image)


def _answers(here: Deployment, address: str, port: int) -> bool:
    knock = f"{_PYTHON} -c '{_KNOCK}' {address} {port} 2>/dev/null && echo answered || echo silent"
    return here.inside("host", "sh", "-c", knock).strip() == "answered"
