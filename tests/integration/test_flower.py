"""Flower as a stack runs it: what it shows to who knows the password, and that it shows nothing to anybody else."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import flower.urls  # type: ignore[import-untyped]
import httpx2
import pytest

from drills.rehearsal import redis as broker
from infra.queue import Task
from promigence import Promigence
from tests.integration.stacks import DEFINITION, Stack, until

# Files of the package itself, the same everywhere, and the one word that a load balancer asks for.
OPEN = {"/static/(.*)", "/healthcheck"}
# It asks Celery for a result, and this deployment keeps none.
NO_RESULTS = "/api/task/result/(.+)"
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS")


@pytest.fixture(scope="module")
def run_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose Redis has a password, in which a run has ended."""
    made = Stack(tmp_path_factory.mktemp("flower") / ".promigence")
    with broker.running() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMIGENCE_REDIS_URL", url)
        try:
            made.up()
            with made.client() as client:
                _run(client)
            yield made
        finally:
            made.down()


@pytest.fixture(scope="module")
def known(run_stack: Stack) -> Iterator[httpx2.Client]:
    """Who knows the password."""
    url = urlsplit(run_stack.environment()["FLOWER_URL"])
    assert url.username is not None
    assert url.password is not None
    address = f"http://{url.hostname}:{url.port}"
    with httpx2.Client(
        base_url=address, auth=(url.username, url.password), timeout=10, trust_env=False
    ) as client:
        yield client


def test_every_route_is_shut_to_strangers(known: httpx2.Client) -> None:
    paths = _paths(known)
    assert len(paths) >= 30
    answered = {}
    for credentials in (None, ("promigence", "wrong"), ("promigence", "")):
        with httpx2.Client(
            base_url=known.base_url, auth=credentials, timeout=10, trust_env=False
        ) as stranger:
            for path, method in itertools.product(paths.values(), METHODS):
                answer = stranger.request(method, path)
                answered[path, method] = (answer.status_code, len(answer.content))
            assert stranger.get("/healthcheck").text == "OK"
        # What it says to a stranger is that it says nothing.
        assert {asked: a for asked, a in answered.items() if a[0] != 401 or a[1] > 20} == {}


def test_nothing_can_be_done_there(known: httpx2.Client) -> None:
    """Who knows the password looks; what runs is ended by its rows and by nothing else."""
    paths = _paths(known)
    acts = {route for route in paths if known.get(paths[route]).status_code == 405}
    assert len(acts) >= 13
    done = {route: known.post(paths[route], json={}).status_code for route in acts}
    assert {route: status for route, status in done.items() if status != 403} == {}


def test_tasks_are_told_by_name_and_by_what_they_are_about(known: httpx2.Client) -> None:
    told = known.get("/api/tasks").json().values()
    assert {each["name"] for each in told} <= {task.value for task in Task}
    assert {Task.FORK.value, Task.BUILD.value, Task.COLLECT.value} <= {e["name"] for e in told}
    # A bell carries an id, or nothing; a probe says whom it asked.
    bell = re.compile(
        r"\(\)|\('(build|att|exec)_[0-9a-f]{16}',\)|\('(control|host|worker)[\w.:-]*',\)"
    )
    assert [each["args"] for each in told if not bell.fullmatch(each["args"])] == []
    assert {each["kwargs"] for each in told} == {"{}"}
    page = known.get(f"/task/{_a_task(known)}").text
    assert Task.FORK.value in page


def test_no_page_holds_a_secret_of_the_deployment(run_stack: Stack, known: httpx2.Client) -> None:
    secrets = _secrets(run_stack)
    assert secrets.keys() == {"redis", "flower", "key", "metrics", "api_key"}
    pages = {path: known.get(path) for path in _paths(known).values()}
    shown = [path for path, page in pages.items() if page.status_code == 200]
    assert {"/", "/broker", "/tasks", "/workers", "/metrics", "/api/workers", "/api/tasks"} <= set(
        shown
    )
    assert any(path.startswith("/worker/") for path in shown)
    # Its broker's address stands there, without the password.
    assert "redis://:**@127.0.0.1" in pages["/broker"].text
    held = {
        (path, name)
        for path, page in pages.items()
        for name in secrets
        if secrets[name] in page.text
    }
    assert held == set()


def test_no_argument_of_a_process_is_a_secret(run_stack: Stack) -> None:
    argv = b"".join(
        Path(f"/proc/{pid}/cmdline").read_bytes() for pid in run_stack.pids().values()
    ).decode()
    assert "flower" in argv
    assert {name for name, secret in _secrets(run_stack).items() if secret in argv} == set()


def _run(client: Promigence) -> None:
    assert client.snapshots.build(DEFINITION)["snapshot"] == "task-suite@1"
    run = client.runs.start("task-suite", count=3, spend_cap=0.5, exec={"sh": "sim: exit 0"})
    assert client.runs.wait(run["run_id"], timeout=60)["totals"]["passed"] == 3


def _paths(known: httpx2.Client) -> dict[str, str]:
    """Every route of Flower's own table but the open ones, with something of this stack in it."""
    names = {"worker": _worker(known), "task": _a_task(known)}
    found = {}
    for each in flower.urls.handlers:
        route = each.regex.pattern if hasattr(each, "regex") else each[0]
        route = route.removesuffix("$")
        if route not in OPEN | {NO_RESULTS}:
            named = names["worker" if "worker" in route else "task"]
            path = re.sub(r"\(\.[+*]\)", named, route).removesuffix("/?")
            found[route] = path.replace(".*", "/nowhere")
    return found


def _worker(known: httpx2.Client) -> str:
    """The host's worker, once it has answered Flower."""

    def answered() -> list[str]:
        told = known.get("/api/workers", params={"refresh": 1}).json()
        return [name for name in told if name.startswith("worker.") and "stats" in told[name]]

    until(lambda: bool(answered()), "a worker that has answered Flower")
    return answered()[0]


def _a_task(known: httpx2.Client) -> str:
    def tasks() -> list[str]:
        told: dict[str, object] = known.get("/api/tasks", params={"taskname": Task.FORK}).json()
        return list(told)

    until(lambda: bool(tasks()), "a task that Flower has heard of")
    return tasks()[0]


def _secrets(stack: Stack) -> dict[str, str]:
    written = json.loads((stack.directory / "settings.json").read_text())
    return {
        "redis": str(urlsplit(written["redis_url"]).password),
        "flower": written["flower_password"],
        "key": written["key_secret"],
        "metrics": written["metrics_token"],
        "api_key": stack.environment()["PROMIGENCE_API_KEY"],
    }
