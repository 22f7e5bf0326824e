"""The consumer of `control`, in this process: it places when it is rung, tells that it lives, and ends when told."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import pytest

from app.flow import place
from app.ports import Ports
from infra.queue import CONTROL, CeleryBells, Task, celery
from infra.queue.transport import is_bell
from tests.integration.guarded_redis import GuardedRedis, guarded
from tests.integration.stacks import until
from tests.integration.test_queue import bells, running, socket
from workers.placing import placing

LIMIT_S = 20.0
NO_MESSAGES = ("", "no JSON", b"\xff", "1", "[]", "null", "{}", '{"body": "", "properties": null}')
NEXT = [{"task": Task.FORK.value, "args": [], "options": {"queue": "host.other"}}]
ALTERED: tuple[dict[str, object], ...] = (
    {"content-type": "application/x-python-serialize"},
    {"body": "%"},
    {"body": None},
    {"body": [[], {}, {"callbacks": NEXT}]},
    {"body": [[], {}, {"chain": NEXT}]},
    {"headers": {"task": "another"}},
    {"headers": {"eta": "2099-01-01T00:00:00+00:00"}},
    {"headers": {"retries": "many"}},
    {"headers": {"timelimit": "none"}},
)
__all__ = ["bells", "socket"]  # fixtures


class Placer:
    """In the place of who chooses hosts: `asked` is set when he is asked. With `torn` he fails."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.threads: set[str] = set()
        self.torn = False

    def place(self, _ports: Ports) -> None:
        self.threads.add(threading.current_thread().name)
        self.asked.set()
        if self.torn:
            raise RuntimeError("the rows are torn")


@pytest.fixture
def placer(monkeypatch: pytest.MonkeyPatch) -> Placer:
    made = Placer()
    monkeypatch.setattr(place, "place", made.place)
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedRedis]:
    with guarded(tmp_path_factory.mktemp("redis")) as running:
        yield running


@contextmanager
def placing_at(socket: Path, bells: CeleryBells) -> Iterator[None]:
    with placing(cast(Ports, None), bells, f"redis+socket://{socket}", "here"):
        yield


def test_who_rings_is_heard_apart_from_whoever_ticks(
    bells: CeleryBells, socket: Path, placer: Placer
) -> None:
    with running(socket) as broker, placing_at(socket, bells):
        bells.place()
        assert placer.asked.wait(LIMIT_S)
        bells.echo(CONTROL, "token")
        assert bells.echoed(CONTROL, "token", LIMIT_S)
        until(lambda: any(broker.scan_iter(match="promigence:alive:control.*")), "a sign of life")

        # What was taken is in no key: not in a list, and not among what waits to be acknowledged.
        keys = {bytes(key).decode() for key in broker.scan_iter()}
        assert not {key for key in keys if "unacked" in key or key.startswith(CONTROL)}
    assert threading.main_thread().name not in placer.threads


def test_one_after_another_in_a_process(bells: CeleryBells, socket: Path, placer: Placer) -> None:
    """Ended and begun again, it hears what was rung in between."""
    with running(socket) as broker:
        for _ in range(2):
            placer.asked.clear()
            bells.place()
            with placing_at(socket, bells):
                assert placer.asked.wait(LIMIT_S)
            assert not [each for each in threading.enumerate() if each.name == "placing"]
        bells.sweep(frozenset)
        assert broker.llen(CONTROL) == 0


def test_it_answers_questions_and_takes_no_orders(
    bells: CeleryBells, socket: Path, placer: Placer
) -> None:
    with running(socket), placing_at(socket, bells), celery(f"redis+socket://{socket}") as anybody:
        until(lambda: bool(anybody.control.ping(timeout=1, limit=1)), "an answer")
        told = anybody.control.broadcast(
            "cancel_consumer", arguments={"queue": CONTROL}, reply=True, timeout=5, limit=1
        )
        anybody.control.broadcast("shutdown")
        # Heard after those, on the same channel.
        assert anybody.control.ping(timeout=5, limit=1)
        bells.place()
        assert placer.asked.wait(LIMIT_S)
    assert [each for answer in told or [] for each in answer.values()] == [
        {"error": "KeyError('cancel_consumer')"}
    ]


# Celery says of each lost connection what will be the default some day.
@pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")
def test_it_hears_again_when_the_queue_is_back(
    bells: CeleryBells, socket: Path, placer: Placer
) -> None:
    with running(socket):
        pass
    with placing_at(socket, bells):
        with running(socket):
            _rung_until_heard(bells, placer)
        placer.asked.clear()
        with running(socket):
            _rung_until_heard(bells, placer)


def test_a_fault_of_the_rows_ends_neither_the_consumer_nor_the_process(
    bells: CeleryBells, socket: Path, placer: Placer
) -> None:
    with running(socket), placing_at(socket, bells):
        placer.torn = True
        bells.place()
        assert placer.asked.wait(LIMIT_S)
        placer.asked.clear()
        bells.place()
        assert placer.asked.wait(LIMIT_S)


def test_what_is_no_bell_ends_nothing_and_is_not_obeyed(
    server: GuardedRedis, placer: Placer
) -> None:
    """Any host may put anything into `control`."""
    assert is_bell(json.loads(_bell({})))
    with (
        closing(CeleryBells(server.control(), at_once=1)) as bells,
        placing(cast(Ports, None), bells, server.control(), "here"),
    ):
        put: tuple[str | bytes, ...] = (*NO_MESSAGES, "[" * 100_000, *map(_bell, ALTERED))
        for each in put:
            server.admin.lpush(CONTROL, each)
            bells.echo(CONTROL, "token")
            assert bells.echoed(CONTROL, "token", LIMIT_S), each[:100]
        assert not placer.asked.is_set()
        assert server.admin.llen("host.other") == 0
        server.admin.lpush(CONTROL, _bell({}))
        assert placer.asked.wait(LIMIT_S)


def _bell(altered: dict[str, object]) -> str:
    """A bell that Celery would take, with other words in it."""
    body = altered.get("body", [[], {}, {}])
    headers = {"task": Task.PLACE.value, "id": "one", "root_id": "one", "lang": "py"}
    properties = {"delivery_tag": "one", "reply_to": "one", "correlation_id": "one"}
    message = {
        "body": body if isinstance(body, str) else b64encode(json.dumps(body).encode()).decode(),
        "content-type": altered.get("content-type", "application/json"),
        "content-encoding": "utf-8",
        "headers": headers | cast(dict[str, object], altered.get("headers", {})),
        "properties": properties | {"body_encoding": "base64", "delivery_info": {}},
    }
    return json.dumps(message)


def _rung_until_heard(bells: CeleryBells, placer: Placer) -> None:
    """As the tick rings, which does not know who heard it."""

    def heard() -> bool:
        bells.place()
        return placer.asked.wait(0.5)

    until(heard, "somebody who hears")
