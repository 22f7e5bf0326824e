"""The Celery application as both ends configure it: publishers ring by name, a worker registers what the names mean."""

from __future__ import annotations

from celery import Celery
from kombu import Queue

from infra.queue.address import CONNECT_TIMEOUT_S, tls, without_tls


def celery(broker_url: str) -> Celery:
    """The application as both ends configure it. Nothing connects before the first use."""
    app = Celery("promigence", broker=without_tls(broker_url), set_as_current=False)
    app.conf.update(
        broker_transport="infra.queue.transport:Transport",
        # A worker on a compromised host must not be sent code: data only.
        task_serializer="json",
        accept_content=["json"],
        # An exec's result is a row. The Redis result backend also calls a deprecated client method: under
        # warnings-as-errors results were never stored, and waiting for one timed out in silence.
        result_backend=None,
        task_ignore_result=True,
        # A bell is acknowledged as its task starts. Late acknowledgement would tie the work's fate to a message's:
        # with a visibility timeout shorter than the task it ran twice in parallel, with a longer one a killed worker's
        # message hung for minutes. Rows remember the work; recovery rings again within seconds.
        task_acks_late=False,
        broker_use_ssl=tls(broker_url),
        broker_transport_options={
            # A bell that a worker took is in no list of Redis any more: what dies with it is rung again from the rows
            # within seconds, long before a timeout of Redis's would. So no host's bells lie where another could read
            # them, a dead worker leaves none, and nobody here needs the right to run a script.
            "ack_emulation": False,
            # Without these a worker that lost Redis may never consume again (a long history of reports).
            "socket_timeout": 10,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 5,
            # A ring tries one new connection in place of a dead one, at once; then it is given up.
            "max_retries": 1,
            "interval_start": 0,
            # One list a queue instead of four: we have no priorities, and BRPOP looks at every list.
            "priority_steps": [0],
        },
        # Start in any order: a worker waits for its broker, and goes on waiting after it was lost.
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=CONNECT_TIMEOUT_S,
        # As many pooled connections as threads that ring at once; a ring never builds a connection of its own.
        broker_pool_limit=16,
        # A ring either reaches Redis or is given up at once: the caller has an answer to give.
        task_publish_retry=False,
        # No event of ours for each publish: Flower learns of tasks from the workers.
        task_send_sent_event=False,
        # An expiry of the lists for commands takes scripts, too; what is left in them is found and reaped.
        control_queue_expires=None,
        event_queue_expires=None,
        # UTC and intervals; local time skips and doubles hours.
        enable_utc=True,
        timezone="UTC",
        # A thread that is busy takes no bell from one that is free.
        worker_prefetch_multiplier=1,
        # The rate-limit machinery costs a step a task and we limit by rows.
        worker_disable_rate_limits=True,
        # Flower shows what the worker does. The events of a host worker are buffered and sent in groups.
        worker_send_task_events=True,
        # After Redis came back, running tasks go on: they hold machines, and their claims are fenced.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # structlog writes the logs; Celery would replace its handlers.
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


def undeclared(name: str) -> Queue:
    """A queue that exists in Redis as long as bells wait in it, and in no other way.

    Declared, it would leave a binding in the set of its exchange, which nothing removes when its worker is gone.
    """
    return Queue(name, no_declare=True)
