"""The API as a process, under uvicorn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext

import uvicorn
from fastapi import FastAPI

from app.api.main import create_api
from app.ports import Ports
from infra import wiring
from infra.metrics import Guarded
from infra.settings import Settings

# A long poll lasts 25 s at most; a client that is cut off asks again.
DRAIN_S = 3


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
        )


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
        api = create_api(control.ports, wakes, spool=spool, probes=probes)
        api.router.lifespan_context = serving
        control.metrics.watch_rows(control.census)
        if settings.scrape_token is not None:
            # Outermost: neither keys nor envelope are for a scraper.
            api.add_middleware(Guarded, text=control.metrics.text, token=settings.scrape_token)
        yield api


def _ask(ports: Ports) -> None:
    ports.hosts.list()
