"""The queue: doorbells over Celery and Redis, and the wake-ups of API handlers over Redis pub/sub.

A queue belongs to one host's worker process (`worker.<host_id>:<random>`), since one process owns a machine's channels,
or to any process of one host (`host.<host_id>`); placing goes to the queue `control` of the control plane.
"""

from __future__ import annotations

from infra.queue.address import CONNECT_TIMEOUT_S, redis_url
from infra.queue.application import celery, undeclared
from infra.queue.bells import CeleryBells
from infra.queue.commands import take_questions_only
from infra.queue.names import CONTROL, OF_ONE, Task, control_queue, host_queue, worker_queue
from infra.queue.wakes import RedisWakes

__all__ = [
    "CONNECT_TIMEOUT_S",
    "CONTROL",
    "OF_ONE",
    "CeleryBells",
    "RedisWakes",
    "Task",
    "celery",
    "control_queue",
    "host_queue",
    "redis_url",
    "take_questions_only",
    "undeclared",
    "worker_queue",
]
