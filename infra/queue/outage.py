"""What it means when Redis does not do what it is asked."""

from __future__ import annotations

import ssl
import threading

import structlog
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from app.errors import Unavailable

log = structlog.get_logger("infra.queue")


def away(error: RedisError) -> Unavailable:
    """In our words: `queue_away`, `queue_untrusted` where its certificate is not to be trusted, `queue_denied` where
    our user is not known any more, or may not do this.
    """
    if isinstance(error, AuthenticationError | NoPermissionError):
        return Unavailable("queue_denied", f"Redis does not let us in, or not do this: {error}")
    if isinstance(_cause(error), ssl.SSLCertVerificationError):
        return Unavailable(
            "queue_untrusted",
            f"Redis shows a certificate that is not to be trusted; `?ssl_ca_certs=` names who signed it: {error}",
        )
    return Unavailable("queue_away", f"no answer from Redis: {error}")


class Outage:
    """Says once that Redis is away, and once that it is back."""

    def __init__(self) -> None:
        self._away = threading.Event()

    def began(self, why: BaseException) -> None:
        if not self._away.is_set():
            self._away.set()
            log.warning("queue_away", why=type(_cause(why)).__name__)

    def ended(self) -> None:
        if self._away.is_set():
            self._away.clear()
            log.info("queue_back")


def _cause(error: BaseException) -> BaseException:
    """What it began with: clients of Redis wrap what the socket said."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error
