"""The API as a process, under uvicorn."""

from __future__ import annotations

import uvicorn

from infra import wiring
from infra.settings import Settings

# A long poll lasts 25 s at most; a client that is cut off asks again.
DRAIN_S = 3


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises Unavailable(database_away) when the database is away at the start."""
    with wiring.api(settings) as api:
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
