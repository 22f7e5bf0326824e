"""Kombu's Redis, for which what is no bell of ours is no reason to stop, and nothing to act on.

What lies in a list was put there by whoever may: into `control` every host may. Kombu and Celery let most of what is
not a message of theirs end the worker that took it, and do with one that is whatever it asks: wait, call back, go on
with tasks in other queues, in this worker's name.
"""

from __future__ import annotations

import base64
import json
import time
from queue import Empty
from typing import Any

import structlog
from kombu.transport import redis

from infra.queue.names import CONTROL, Task

# Whoever floods a queue does not flood the log.
TELL_EVERY_S = 60.0
LISTS = (CONTROL, "host.", "worker.")
# What is asked of a worker by its name is no list: a channel, on which the control plane and Flower alone may speak.
ASKED = ".celery.pidbox"
_TASKS = frozenset(task.value for task in Task)

log = structlog.get_logger("infra.queue")


class Channel(redis.Channel):
    """Takes what is no JSON for a bell that was lost: rows ring again."""

    connection: Transport

    def _brpop_read(self, **options: Any) -> bool:
        try:
            return bool(super()._brpop_read(**options))  # type: ignore[misc]  # not in its stubs
        except Empty:
            raise
        except (ValueError, RecursionError):
            self.connection.dropped()
            return True


class Transport(redis.Transport):
    """Of every application of ours."""

    Channel = Channel
    _told_at_s = float("-inf")

    def _deliver(self, message: object, queue: str | None) -> None:
        if queue is not None and _is_list(queue) and not is_bell(message):
            self.dropped()
            return
        super()._deliver(message, queue)

    def dropped(self) -> None:
        """Say so, now and then."""
        now_s = time.monotonic()
        if now_s - self._told_at_s >= TELL_EVERY_S:
            self._told_at_s = now_s
            log.warning("no_bell_of_ours")


def _is_list(queue: str) -> bool:
    return queue.startswith(LISTS) and not queue.endswith(ASKED)


def is_bell(message: Any) -> bool:
    """Whether this is a task of ours, with ids and nothing else, to be done now."""
    try:
        headers, properties = message["headers"], message["properties"]
        args, kwargs, then = json.loads(base64.b64decode(message["body"], validate=True))
        return (
            headers["task"] in _TASKS
            and all(isinstance(headers.get(name), str) for name in ("id", "root_id"))
            and not any(headers.get(name) for name in ("eta", "expires", "retries", "compression"))
            and headers.get("timelimit") in (None, [None, None])
            and not any(headers.get(name) for name in ("group", "chord", "stamps"))
            and message["content-type"] == "application/json"
            and message["content-encoding"] == "utf-8"
            and properties["body_encoding"] == "base64"
            and all(isinstance(properties[name], str) for name in ("delivery_tag", "reply_to"))
            and isinstance(properties["delivery_info"], dict)
            and all(isinstance(each, str) for each in args)
            and not kwargs
            and not any(then.values())
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
