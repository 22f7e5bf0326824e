"""A Redis 7 as a deployment has it that hosts share: by TLS alone, and with a user for everyone."""

from __future__ import annotations

import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from infra.access.redis import RedisLogins, with_login
from infra.queue import redis_url
from infra.queue.rules import of_control, of_flower, of_host
from tests.integration.certificates import Authority
from tests.integration.stacks import until
from workers.stack.supervise import redis_binary

LIMIT_S = 20
ADMIN_PASSWORD = secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class GuardedRedis:
    """`url` is where it is, without a user; `admin` may do everything."""

    url: str
    admin: redis.Redis

    @property
    def admin_url(self) -> str:
        return with_login(self.url, "default", ADMIN_PASSWORD)

    def logins(self) -> RedisLogins:
        return RedisLogins(redis_url(self.admin_url), self.url, of_host)

    def of(self, user: str, rules: tuple[str, ...]) -> str:
        """The URL of a user that may do this."""
        self.admin.execute_command("ACL SETUSER", user, "reset", f">{user}", *rules)  # type: ignore[no-untyped-call]
        return with_login(self.url, user, user)

    def control(self) -> str:
        return self.of("control", of_control())

    def flower(self) -> str:
        return self.of("flower", of_flower())

    def refusals(self) -> list[str]:
        """What anybody was refused so far, in Redis's own words."""
        log: list[dict[str, object]] = self.admin.acl_log()  # type: ignore[assignment]
        return [f"{each['username']}: {each['reason']} {each['object']}" for each in log]


@contextmanager
def guarded(folder: Path, name: str = "localhost") -> Iterator[GuardedRedis]:
    """Running; what signed its certificate for `name` is `ca.pem` in the folder."""
    authority = Authority(folder, "ca")
    certificate, key = authority.sign(name)
    port = _free_port()
    options = {
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": "no",
        "bind": "127.0.0.1",
        "save": "",
        "dir": str(folder),
        "requirepass": ADMIN_PASSWORD,
    }
    binary = redis_binary()
    assert binary is not None
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    server = subprocess.Popen((str(binary), *words), stdout=subprocess.DEVNULL)
    url = f"rediss://localhost:{port}/0?ssl_ca_certs={authority.ca}"
    admin = redis.Redis(
        host="localhost",
        port=port,
        password=ADMIN_PASSWORD,
        ssl=True,
        ssl_ca_certs=str(authority.ca),
        ssl_check_hostname=False,
        decode_responses=True,
    )
    try:
        until(lambda: _answers(admin), "a Redis that answers")
        yield GuardedRedis(url, admin)
    finally:
        admin.close()
        server.terminate()
        server.wait(LIMIT_S)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
