"""The API as a process, under uvicorn, with an end to every wait for a client."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from app.api.limits import SLOWEST_READ_S, Allowances, Pace
from app.api.main import create_api
from app.ports import Ports
from infra import wiring
from infra.metrics import Guarded
from infra.settings import Settings

# A long poll lasts 25 s at most; a client that is cut off asks again.
DRAIN_S = 3
# From a connection to a whole head on it; between two requests, KEEP_ALIVE_S.
HEAD_S = 15.0
# Longer than balancers keep theirs to us (60 s), so that none sends a request into a connection that we just closed.
KEEP_ALIVE_S = 75
HEAD_BYTES = 32 * 1024
# Of this process's open files, what is not for connections: the database, Redis, files on their way.
_OTHER_FILES = 512


# What goes on beside the serving, over the same ports.
Beside = Callable[[Ports], AbstractContextManager[object]]


def run(settings: Settings, beside: Beside = nullcontext) -> None:
    """Serve until SIGTERM or SIGINT."""
    with application(settings, beside) as api:
        uvicorn.run(
            api,
            host=settings.api_host,
            port=settings.api_port,
            # structlog has the handlers; one line a request says nothing that a row does not say better.
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
            timeout_keep_alive=KEEP_ALIVE_S,
            http=Patient,
            ws="none",
            h11_max_incomplete_event_size=HEAD_BYTES,
            limit_concurrency=connections(settings.api_connections),
            # Who calls is what such a balancer says; anybody else's word for it counts for nothing.
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
        )


class Patient(H11Protocol):
    """uvicorn's protocol with an end to its patience: by itself it waits forever for a head that never ends, for the
    rest of a body whose answer it has given, and for the reader of an answer to take any of it.
    """

    _waiting: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Whatever the system does not take at once is waited for, and so has an end.
        transport.set_write_buffer_limits(high=0)
        self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch_no_more()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            self._wait_no_more()
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        self._watch_no_more()
        super().connection_lost(exc)

    def _watch_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(SLOWEST_READ_S, self._need_progress, unread)

    def _need_progress(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._watch_reader()
        else:
            self.transport.abort()

    def _watch_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_S, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


@contextmanager
def application(settings: Settings, beside: Beside = nullcontext) -> Iterator[FastAPI]:
    """The API over its ports. The subscription for wake-ups lives as long as the event loop that serves it."""
    spool = settings.dir / "spool"
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    with wiring.control(settings, "api") as control, beside(control.ports):
        wakes = wiring.wakes(settings)

        @asynccontextmanager
        async def serving(_api: FastAPI) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await wakes.aclose()

        probes = {"database": lambda: _ask(control.ports), "queue": control.bells.ping}
        api = create_api(
            control.ports, wakes, spool=spool, probes=probes, allowances=allowances(settings)
        )
        api.router.lifespan_context = serving
        control.metrics.watch_rows(control.census.take)
        if settings.scrape_token is not None:
            # Outermost: neither keys nor envelope are for a scraper.
            api.add_middleware(Guarded, text=control.metrics.text, token=settings.scrape_token)
        yield api


def allowances(settings: Settings) -> Allowances:
    """What the operator grants a key, in each process of the API."""
    wrong_keys = settings.api_wrong_keys_per_minute
    return Allowances(
        requests=Pace(settings.api_requests_per_second, settings.api_requests_burst),
        wrong_keys=Pace(wrong_keys / 60, wrong_keys),
        in_flight=settings.api_requests_open,
        streams=settings.api_streams_open,
    )


def connections(most: int) -> int:
    """As many as wanted, or as this process may have files open: without a number left it could accept nobody, nor
    say so.
    """
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where a sandbox forbids that, what there is has to do.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        files = hard
    if files == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, files - _OTHER_FILES))


def _ask(ports: Ports) -> None:
    ports.hosts.list()
