"""The client: where the server is, who asks, and the calls by what they are about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

import httpx2

from promigence._engine import Engine, Pace
from promigence._steps import project, usage
from promigence._version import __version__
from promigence.access import Audit, Keys
from promigence.errors import ConfigError
from promigence.resources import Forks, Hosts, Runs
from promigence.snapshots import Snapshots
from promigence.types import Project, Usage
from promigence.types.usage import By

__all__ = ["Promigence"]

HOW_TO = (
    "`make up` starts a server on this machine and writes both to .promigence/env: "
    "`set -a; . .promigence/env; set +a`"
)


class Promigence:
    """A client of one Promigence server. Close it, or use it as a context manager.

    Safe to share between threads; a process that forks makes one of its own in each child.

    `api_key` and `base_url` are read from PROMIGENCE_API_KEY and PROMIGENCE_BASE_URL unless given. `timeout` is
    the total deadline of a call in seconds, its retries included; calls that wait on purpose have a `timeout` of
    their own.
    `transport` (httpx2) and `pace` (clock, pause, dice) are for tests.

    Raises ConfigError when a setting is missing or the address is none.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.BaseTransport | None = None,
        pace: Pace | None = None,
    ) -> None:
        if timeout <= 0:
            raise ConfigError(f"timeout is {timeout}; a call needs some seconds")
        self._engine = Engine(
            _address(base_url or _setting("PROMIGENCE_BASE_URL", "base_url")),
            _key(api_key or _setting("PROMIGENCE_API_KEY", "api_key")),
            patience_seconds=timeout,
            agent=f"promigence-python/{__version__}",
            transport=transport,
            pace=pace,
        )
        self.runs = Runs(self._engine)
        self.forks = Forks(self._engine)
        self.snapshots = Snapshots(self._engine)
        self.hosts = Hosts(self._engine)
        self.keys = Keys(self._engine)
        self.audit = Audit(self._engine)

    def project(self) -> Project:
        """The key's project: its limits, and what this month's runs hold of them."""
        return self._engine.run(project.read(self._engine.terms()))

    def usage(
        self,
        from_: str | None = None,
        until: str | None = None,
        *,
        by: By | Sequence[By] = "day",
    ) -> Usage:
        """What was charged and, apart from it, what the cloud is estimated to have cost.

        `from_` and `until` are dates (`2026-11-01`) or instants (`2026-11-01T17:00:00Z`), rounded outwards to whole
        hours of UTC; left out they are the beginning of this month and now. `by` is what the rows stand for, one or
        several. Raises BadRequest (`bad_window`, `too_many_rows`).
        """
        asked = (by,) if isinstance(by, str) else by
        return self._engine.run(usage.read(from_, until, asked, self._engine.terms()))

    def close(self) -> None:
        """End the connections. Twice is safe."""
        self._engine.close()

    def __enter__(self) -> Promigence:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Promigence(base_url={self._engine.base_url!r})"


def _setting(variable: str, argument: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(
            f"{variable} is not set and no {argument} was given. {HOW_TO}",
            code=f"missing_{argument}",
        )
    return value


def _address(told: str) -> str:
    try:
        url = httpx2.URL(told.strip())
    except httpx2.InvalidURL as error:
        raise ConfigError(f"{told!r} is not an address: {error}", code="bad_base_url") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError(
            f"{told!r} is not an address such as https://promigence.internal", code="bad_base_url"
        )
    return told.strip().rstrip("/")


def _key(told: str) -> str:
    if not told.isascii() or not told.isprintable() or " " in told:
        raise ConfigError("the API key has characters that no key has", code="bad_api_key")
    return told
