"""Which of the commands that are sent to all workers a worker of ours takes: questions, and nothing that acts.

Whoever may publish on that channel could otherwise end every worker of the deployment, or make it drop its tasks.
"""

from __future__ import annotations

from celery.worker.control import Panel

# What Flower asks, and what it does to hear events.
TAKEN = frozenset(
    {
        *("ping", "stats", "active_queues", "registered", "scheduled", "active", "reserved"),
        *("revoked", "conf", "clock", "heartbeat", "enable_events"),
    }
)


def take_questions_only() -> None:
    """Of this process from now on: any other command is answered as one that does not exist."""
    for name in set(Panel.data) - TAKEN:
        del Panel.data[name]
