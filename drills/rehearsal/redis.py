"""The queue of the rehearsal: a Redis on the loopback, behind a password, that dies with who started it."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from drills.steps import free_port
from workers.stack.supervise import redis_binary

_UP_WITHIN_S, _DOWN_WITHIN_S = 20.0, 10.0
_ANSWER_S = 5.0
# As `infra/stack/parts.py` starts one; the configuration comes by standard input, where no list of processes shows it.
_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
daemonize no
"""


@contextmanager
def running() -> Iterator[str]:
    """Its URL, as long as the block lasts."""
    binary, setpriv = redis_binary(), shutil.which("setpriv")
    assert binary is not None
    assert setpriv is not None
    port, password = free_port(), secrets.token_urlsafe(24)
    server = subprocess.Popen(
        (setpriv, "--pdeathsig", "KILL", str(binary), "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # The terminal's Ctrl-C is for the rehearsal.
        start_new_session=True,
    )
    try:
        assert server.stdin is not None
        with server.stdin:
            server.stdin.write(_CONFIGURATION.format(port=port, password=password).encode())
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        _wait_for(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(_DOWN_WITHIN_S)


@contextmanager
def asking(url: str) -> Iterator[redis.Redis]:
    """A client of it."""
    client = redis.Redis.from_url(url, socket_timeout=_ANSWER_S)
    try:
        yield client
    finally:
        client.close()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _UP_WITHIN_S
    with asking(url) as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError:
                if server.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.05)
