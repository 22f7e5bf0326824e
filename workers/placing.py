"""Placing, in the billing worker's process: a small Celery worker beside the tick takes the bells of `control`.

A host only rings. What it may write in the database names no other host, so it cannot place; and where forks go is
decided in one place, by whoever has all rows.
"""

from __future__ import annotations

import os
import secrets
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import structlog
from celery import Celery
from celery.app.trace import reset_worker_optimizations, setup_worker_optimizations
from celery.exceptions import SecurityWarning
from celery.worker import WorkController, state

from app.errors import PromigenceError
from app.flow import place
from app.ports import Ports
from infra.queue import (
    CONTROL,
    CeleryBells,
    Task,
    celery,
    control_queue,
    take_questions_only,
    undeclared,
)
from workers.liveness import EXIT_CODE, PERIOD_S, watch
from workers.pace import JOIN_S, Act, Guard, begun, ever

# One after another: two at once would choose the same places, and one of them for nothing.
THREADS = 1

log = structlog.get_logger(__name__)


@contextmanager
def placing(
    ports: Ports, bells: CeleryBells, broker_url: str, host: str, guarded: Guard = ever
) -> Iterator[None]:
    """Inside, forks are placed as it is rung for them, beside whatever else this process does.

    `host` is where this is, for who looks at the queue; `guarded` says when rows are to be believed. One at a time in a
    process. A consumer that ends by itself, or takes nothing any more, ends the process: whoever started it starts it
    again, and rows say what waits.
    """
    own, stop = control_queue(secrets.token_hex(8)), Event()
    app = _app(guarded(lambda: place.place(ports)), bells, broker_url, own)
    worker = _worker(app, f"{own}@{host}")
    begun("alive", lambda: bells.alive(own), stop, period_s=PERIOD_S)
    _thread("liveness", lambda: watch(bells, own, stop))
    consumer = _thread("placing", lambda: _consume(worker, stop))
    try:
        yield
    finally:
        stop.set()
        # How a Celery worker is told from another thread; its tasks that have begun are ended.
        state.should_stop = os.EX_OK  # type: ignore[assignment]  # its stubs know None alone
        consumer.join(timeout=JOIN_S)
        state.should_stop = None
        reset_worker_optimizations(app)


def _app(act: Act, bells: CeleryBells, broker_url: str, own: str) -> Celery:
    app = celery(broker_url)
    app.conf.task_queues = [undeclared(name) for name in (own, CONTROL)]

    @app.task(name=Task.PLACE.value, shared=False)
    def _place() -> None:
        act()

    @app.task(name=Task.ECHO.value, shared=False)
    def _echo(token: str) -> None:
        bells.answer(token)

    for task in (_place, _echo):
        # As in the host's tasks: one line in the log, and the tick rings again.
        task.throws = (PromigenceError,)
    return app


def _worker(app: Celery, name: str) -> WorkController:
    take_questions_only()
    # Without it the pool's threads look for the task in whatever application they find, and say nothing.
    setup_worker_optimizations(app, name)
    warnings.simplefilter("ignore", SecurityWarning)
    return WorkController(
        app=app,
        hostname=name,
        pool="threads",
        concurrency=THREADS,
        without_gossip=True,
        without_mingle=True,
    )


def _consume(worker: WorkController, stop: Event) -> None:
    worker.start()
    if not stop.is_set():
        log.error("placing_ended")
        os._exit(EXIT_CODE)


def _thread(name: str, act: Callable[[], object]) -> threading.Thread:
    """It dies with the process."""
    thread = threading.Thread(target=act, name=name, daemon=True)
    thread.start()
    return thread
