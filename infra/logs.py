"""Logs of every process of the server: one JSON object a line, on standard error, with no secret in any (docs/logs.md).

Secrets are blanked by name, by value (those of the settings), and by their look (our keys, passwords in URLs,
Authorization headers, keys of AWS): in the event, its fields, and the trace of an exception.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

BLANK = "(not logged)"
# Values under these names never reach a log, whoever passes them.
_SECRET_WORDS = ("secret", "password", "token", "api_key", "authorization")
# Shorter ones are words of every line.
_SHORTEST_SECRET = 6
# A string of a guest's, or a trace, is cut in the middle: its ends say most.
_LONGEST_CHARS = 8192
_OF_LOGS = "promigence.logs"
# Each of them reads on for a bounded way: what a guest says must not keep a log busy.
_LOOKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"pmg_[A-Za-z0-9]{8,}"), BLANK),
    (re.compile(r"(://[^\s:/@]{0,256}:)[^\s@]{1,512}@"), rf"\1{BLANK}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s{1,4}[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {BLANK}"),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), BLANK),
    # `password=...`, `"token": "..."`, `X-Amz-Signature=...`, `PASSWORD '...'`, `<SessionToken>...`: what stands behind
    # a name that says what it is; also in quotes that were escaped, however often, and of bytes.
    (
        re.compile(
            r"(?i)((?:secret|password|passwd|token|api_?key|signature|credential)[\w-]{0,32}"
            r"[\\\"']{0,8}(?:\s{0,4}[=:>]\s{0,4}(?:b(?=[\"']))?|\s{1,4}(?='))[\\\"']{0,8})"
            r"(?!\(not logged\))[^\s\"',;&)}\]]{4,}"
        ),
        rf"\1{BLANK}",
    ),
)
# They say one line a request or a task, each with nothing that a row does not say better.
CHATTY = ("celery.worker.strategy", "celery.app.trace", "httpx2", "uvicorn.access", "paramiko")


def configure(level: str, secrets: Iterable[str] = ()) -> None:
    """Send structlog's and the standard library's records, warnings, and what nobody caught, the same way.

    Once a process before anything logs, and again with the `secrets` of its settings when they are read.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = _Writing(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                # After the trace is text, before anything is written.
                WithoutSecrets(secrets),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # What it warns of is what strangers send it, as fast as they like.
    logging.getLogger("uvicorn.error").filters[:] = [Seldom()]
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _uncaught_where_none_may_be


class _Writing(logging.StreamHandler[TextIO]):
    """By itself it writes a record that cannot be made text as it is: on many lines, with all that was to be in it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if record.name == _OF_LOGS or isinstance(sys.exc_info()[1], OSError):
            return  # there is nowhere to tell it
        where = f"{record.pathname}:{record.lineno}"
        logging.getLogger(_OF_LOGS).error("a record of %s is no text: %s", record.name, where)


class Seldom(logging.Filter):
    """Lets a warning of the same words through once a second, and all that is worse than a warning."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING:
            return True
        words = str(record.msg)
        if record.created - self._told_at.get(words, 0.0) < 1.0:
            return False
        self._told_at[words] = record.created
        return True


class WithoutSecrets:
    """Blanks secrets in an event, and makes plain data of it: text without control characters, of bounded length."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one may be a part of another.
        known = sorted({each for each in secrets if len(each) >= _SHORTEST_SECRET}, key=len)[::-1]
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {name: self._field(str(name), value) for name, value in event.items()}

    def _field(self, name: str, value: object) -> object:
        if any(word in name.lower() for word in _SECRET_WORDS):
            return BLANK
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {
                self._text(str(key)): self._field(str(key), each) for key, each in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self._field("", each) for each in value]
        return self._text(value if isinstance(value, str) else repr(value))

    def _text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(BLANK, text)
        for look, blanked in _LOOKS:
            text = look.sub(blanked, text)
        if len(text) > _LONGEST_CHARS:
            half = _LONGEST_CHARS // 2
            text = f"{text[:half]} ... {text[-half:]}"
        # All others that move a cursor are escaped by JSON itself.
        return text.replace("\x7f", "\ufffd")


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("promigence").critical("uncaught", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    error = args.exc_value or args.exc_type()
    name = args.thread.name if args.thread is not None else "?"
    logging.getLogger("promigence").critical(
        "uncaught in thread %s", name, exc_info=(args.exc_type, error, args.exc_traceback)
    )


def _uncaught_where_none_may_be(args: UnraisableHookArgs) -> None:
    """In a finalizer, or while the interpreter ends."""
    error = args.exc_value or args.exc_type()
    logging.getLogger("promigence").critical(
        "uncaught in %s",
        type(args.object).__name__,
        exc_info=(type(error), error, args.exc_traceback),
    )
