"""The Celery worker of a host, on a pool of threads.

Threads, because a task waits for a machine, a guest or the database and holds channels (SSH transports, monitors) that
belong to this one process. The pool is sized to what is in flight: restores, as many bells that wait for a restore to
end, and commands being started or collected.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning

from infra.queue import celery, host_queue, take_questions_only, undeclared, worker_queue
from infra.settings import Settings
from workers.liveness import watch
from workers.presence import Presence
from workers.tasks import Workbench, register


def worker_app(settings: Settings, bench: Workbench) -> Celery:
    """The application with the tasks of this process in it."""
    app = celery(settings.broker_url)
    app.conf.task_queues = [
        undeclared(name) for name in (worker_queue(bench.host.claim), host_queue(settings.host_id))
    ]
    register(app, bench)
    return app


def threads(settings: Settings) -> int:
    """How many tasks may be in flight at once."""
    return 2 * settings.forks_at_once + settings.execs_at_once


def work(app: Celery, settings: Settings, bench: Workbench, presence: Presence) -> None:
    """Serve this process's queue and its host's until SIGTERM; then end the tasks that have begun."""

    # Celery keeps its receivers by weak reference: these three live as long as this call.
    def leave_logging_alone(**_: object) -> None:
        """A receiver is all it takes: structlog's handlers stay."""

    def stop_bringing_up(**_: object) -> None:
        bench.stopping.set()

    def listen_for_drain(sender: Any, **_: object) -> None:
        # A queue is given up by the loop that reads it.
        presence.on_drain(lambda: sender.call_soon(_take_nothing_new, sender, settings.host_id))

    take_questions_only()
    signals.setup_logging.connect(leave_logging_alone)
    signals.worker_shutting_down.connect(stop_bringing_up)
    signals.worker_ready.connect(listen_for_drain)
    # Root is what gives each machine a user of its own; the worker takes nothing but JSON.
    warnings.simplefilter("ignore", SecurityWarning)
    own = worker_queue(bench.host.claim)
    worker = app.Worker(
        # Two processes of one host work side by side while one is replaced: a name each.
        hostname=f"{own}@{settings.host_id}",
        pool="threads",
        concurrency=threads(settings),
        loglevel=settings.log_level.upper(),
        quiet=True,
        # Workers have nothing to tell each other: rows say who holds what.
        without_gossip=True,
        without_mingle=True,
    )
    threading.Thread(
        target=watch,
        args=(bench.bells, own, bench.stopping),
        name="liveness",
        daemon=True,
    ).start()
    worker.start()


def _take_nothing_new(consumer: Any, host_id: str) -> None:
    """Go on with this process's own queue alone."""
    consumer.cancel_task_queue(host_queue(host_id))
