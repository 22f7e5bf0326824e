"""The hosts' logins at a Redis whose users we may make: `ACL SETUSER`, as an administrator of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from app.domain.access import HOST_ROLE, host_named
from app.errors import BadRequest, Forbidden, Unavailable

PREFIX = f"{HOST_ROLE}_"
PASSWORD_BYTES = 32
TIMEOUT_S = 5.0


class RedisLogins:
    """`app.ports.access.Logins` on Redis 7. `rules` are the words of `ACL SETUSER` for a host.

    `admin_url` (as redis-py writes it) is of who may manage users; `url` is where hosts find Redis, of which its user
    and password are replaced. Users outlast the server where it has an ACL file, into which every change is saved.
    """

    def __init__(self, admin_url: str, url: str, rules: Callable[[str], tuple[str, ...]]) -> None:
        self._url = url
        self._rules = rules
        self._redis = redis.Redis.from_url(
            admin_url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            decode_responses=True,
        )

    def create(self, host_id: str) -> str:
        rules, password = self._rules(host_named(host_id)), secrets.token_urlsafe(PASSWORD_BYTES)
        url = with_login(self._url, PREFIX + host_id, password)
        with _translated():
            # One command: there is no moment at which this user may do more than is right, or has no password.
            self._admin("ACL SETUSER", PREFIX + host_id, "reset", f">{password}", *rules)
            self._save()
        return url

    def remove(self, host_id: str) -> None:
        with _translated():
            # Redis ends the connections of a user that it deletes.
            self._redis.acl_deluser(PREFIX + host_named(host_id))
            self._save()

    def list(self) -> tuple[str, ...]:
        with _translated():
            users = [str(name) for name in self._redis.acl_users()]
        return tuple(sorted(name.removeprefix(PREFIX) for name in users if name.startswith(PREFIX)))

    def close(self) -> None:
        """Give the connections back."""
        self._redis.close()

    def _admin(self, *words: str) -> None:
        self._redis.execute_command(*words)  # type: ignore[no-untyped-call]

    def _save(self) -> None:
        try:
            self._redis.acl_save()
        except NoPermissionError:
            raise
        except ResponseError:
            # It has no such file: who starts it anew lets hosts in anew.
            return


def with_login(url: str, user: str, password: str) -> str:
    """The URL with another user and password. Raises BadRequest(bad_redis_url) for a socket's: no host reaches it."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise BadRequest(
            "bad_redis_url", "hosts need a Redis that is reached as redis:// or rediss://"
        )
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{place}"))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (AuthenticationError, NoPermissionError) as error:
        raise Forbidden("not_admin", f"Redis lets us manage no users: {error}") from error
    except RedisError as error:
        raise Unavailable("queue_away", f"no answer from Redis: {error}") from error
