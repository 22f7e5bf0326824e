"""The API as a process, under uvicorn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from app.api.main import create_api
from app.ports import Ports
from infra import wiring
from infra.metrics import Guarded
from infra.settings import Settings

# A long poll lasts 25 s at most; a client that is cut off asks again.
DRAIN_S = 3


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    with application(settings) as api:
        uvicorn.run(
            api,
            host=settings.api_host,
            port=settings.api_port,
            # structlog has the handlers; one line a request says nothing that a row does not say better.
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )


@contextmanager
def application(settings: Settings) -> Iterator[FastAPI]:
    """The API over its ports. The subscription for wake-ups lives as long as the event loop that serves it."""
    spool = settings.dir / "spool"
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    with wiring.control(settings, "api") as control:
        wakes = wiring.wakes(settings)

        @asynccontextmanager
        async def serving(_api: FastAPI) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await wakes.aclose()

        probes = {"database": lambda: _ask(control.ports), "queue": control.bells.ping}
        api = create_api(control.ports, wakes, spool=spool, probes=probes)
        api.router.lifespan_context = serving
        control.metrics.watch_rows(control.census)
        if settings.scrape_token is not None:
            # Outermost: neither keys nor envelope are for a scraper.
            api.add_middleware(Guarded, text=control.metrics.text, token=settings.scrape_token)
        yield api


def _ask(ports: Ports) -> None:
    ports.hosts.list()
