"""Flower for this deployment: a page of the queue and its workers, for who knows the password."""

from __future__ import annotations

from app.errors import BadRequest
from infra.queue import celery
from infra.settings import Settings


def run(settings: Settings) -> None:
    """Serve until SIGTERM. Raises BadRequest(no_flower_password): Flower without one is open to everybody."""
    if settings.flower_password is None:
        raise BadRequest("no_flower_password", "set PROMIGENCE_FLOWER_PASSWORD")
    credentials = f"{settings.flower_user}:{settings.flower_password.get_secret_value()}"
    celery(settings.broker_url).start(
        argv=[
            "flower",
            f"--address={settings.flower_host}",
            f"--port={settings.flower_port}",
            f"--basic-auth={credentials}",
            # To look at: what runs is ended by its rows and by nothing else.
            "--read-only",
            "--max-tasks=2000",
        ]
    )
