"""Logs of every process of the server: one JSON object a line, on standard error."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Values under these names never reach a log, whoever passes them.
_SECRET_WORDS = ("secret", "password", "token", "api_key", "authorization")
# They say one line a request or a task, each with nothing that a row does not say better.
CHATTY = ("celery.worker.strategy", "celery.app.trace", "httpx2", "uvicorn.access", "paramiko")


def configure(level: str) -> None:
    """Send structlog's and the standard library's records the same way. Once a process, before anything logs."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Blank what is named like a secret."""
    for name in event:
        if any(word in name.lower() for word in _SECRET_WORDS):
            event[name] = "(not logged)"
    return event
