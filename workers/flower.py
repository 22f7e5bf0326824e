"""Flower for this deployment: a page of the queue and its workers, for who knows the password and for nobody else.

Flower asks for it where a page thinks of it, and not at its metrics, which name every worker and every task. So it is
asked for in front of all routes, those of later releases too.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from flower import urls  # type: ignore[import-untyped]
from flower.views.auth import LoginHandler  # type: ignore[import-untyped]
from flower.views.monitor import Healthcheck  # type: ignore[import-untyped]
from tornado.routing import URLSpec
from tornado.web import HTTPError, RequestHandler, StaticFileHandler

from app.errors import BadRequest
from infra.queue import celery
from infra.settings import Settings

# Files of the package, the same everywhere, and the word "OK" for a load balancer, which knows no password.
OPEN = (StaticFileHandler, Healthcheck)


def run(settings: Settings) -> None:
    """Serve until SIGTERM. Raises BadRequest(no_flower_password): Flower without one is open to everybody."""
    if settings.flower_password is None:
        raise BadRequest("no_flower_password", "set PROMIGENCE_FLOWER_PASSWORD")
    credentials = f"{settings.flower_user}:{settings.flower_password.get_secret_value()}"
    urls.handlers[:] = locked(urls.handlers)
    app = celery(settings.flower_broker_url)
    # Its page of queues knows Redis by the name that kombu has for it, and it takes no bells.
    app.conf.broker_transport = None
    app.start(
        argv=[
            "flower",
            f"--address={settings.flower_host}",
            f"--port={settings.flower_port}",
            f"--basic-auth={credentials}",
            # To look at: what runs is ended by its rows and by nothing else.
            "--read-only",
            "--max-tasks=2000",
            # What a bell is about, beside its name.
            "--tasks-columns=name,args,state,received,runtime,worker,uuid",
        ]
    )


def locked(routes: list[URLSpec | tuple[Any, ...]]) -> list[URLSpec]:
    """The same routes behind the password, but for the open ones. There is no page to log in at: a browser asks."""
    specs = [each if isinstance(each, URLSpec) else URLSpec(*each) for each in routes]
    return [
        each
        if issubclass(each.handler_class, OPEN)
        else URLSpec(each.regex, _asking(each.handler_class), each.kwargs, each.name)
        for each in specs
        if each.handler_class is not LoginHandler
    ]


def _asking(handler: type[RequestHandler]) -> type[RequestHandler]:
    class Asking(handler):  # type: ignore[misc, valid-type]
        def prepare(self) -> Awaitable[None] | None:
            # Before the method is looked at: strangers do not learn which ones there are.
            if not self.current_user:
                raise HTTPError(401)
            prepared: Awaitable[None] | None = super().prepare()
            return prepared

    return Asking
