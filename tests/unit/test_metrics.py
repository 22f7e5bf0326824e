"""What a process says of itself: read with Prometheus' own parser, listed in docs/metrics.md, shown to nobody else."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.domain.census import Census, HostStanding
from app.domain.event import Event, EventKind
from app.domain.fork import ForkState
from app.domain.leak import LeakKind
from app.domain.measure import Step
from app.errors import Unavailable
from infra.metrics import Guarded, Metrics, served

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
TOKEN = "t" * 64
CENSUS = Census(
    forks={ForkState.RUNNING: 7},
    runs=2,
    machines=8,
    hosts={HostStanding.ALIVE: 2, HostStanding.LOST: 1},
    slots=40,
    free_slots=25,
    unplaced_age_ns=1_500_000_000,
)


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus has it."""
    return {
        name + "".join(f"{{{key}={value}}}" for key, value in sorted(labels.items())): value
        for family in text_string_to_metric_families(metrics.text().decode())
        for name, labels, value, *_ in family.samples
    }


def test_what_stands_in_the_rows() -> None:
    metrics = Metrics("api")
    metrics.watch_rows(lambda: CENSUS)
    seen = samples(metrics)
    assert seen["promigence_forks{state=running}"] == 7
    assert seen["promigence_forks{state=queued}"] == 0
    assert "promigence_forks{state=ended}" not in seen
    assert seen["promigence_hosts{state=alive}"] == 2
    assert seen["promigence_hosts{state=quarantined}"] == 0
    assert seen["promigence_slots_free"] == 25
    assert seen["promigence_unplaced_fork_age_seconds"] == 1.5
    assert seen["promigence_database_up"] == 1


def test_the_rows_are_read_once_a_second_at_most_and_not_before_somebody_asks() -> None:
    asked: list[int] = []

    def take() -> Census:
        asked.append(1)
        return CENSUS

    metrics = Metrics("api")
    metrics.watch_rows(take)
    assert asked == []
    for _ in range(5):
        metrics.text()
    assert len(asked) == 1


def test_with_the_database_away_only_that_is_said() -> None:
    def away() -> Census:
        raise Unavailable("database_away", "gone")

    metrics = Metrics("api")
    metrics.watch_rows(away)
    seen = samples(metrics)
    assert seen["promigence_database_up"] == 0
    assert not any(name.startswith("promigence_forks{") for name in seen)
    assert any(name.startswith("promigence_build_info") for name in seen)


def test_events_are_counted_by_what_they_say() -> None:
    metrics = Metrics("worker")
    failed: dict[str, object] = {"failure": {"kind": "guest_lost", "phase": "exec"}}
    metrics.heard(
        [
            Event("r", EventKind.ATTEMPT_FAILED, reason="guest_lost", data=failed),
            Event("r", EventKind.REPLACED),
            Event("r", EventKind.FORK_ENDED, reason="command_passed", data={"outcome": "passed"}),
            Event("r", EventKind.READY),
        ]
    )
    metrics.leaked(LeakKind.MOUNT)
    seen = samples(metrics)
    assert seen["promigence_environment_failures_total{kind=guest_lost}{phase=exec}"] == 1
    assert seen["promigence_forks_replaced_total"] == 1
    assert seen["promigence_fork_outcomes_total{outcome=passed}"] == 1
    assert seen["promigence_fork_outcomes_total{outcome=env_failed}"] == 0
    assert seen["promigence_leaks_found_total{kind=mount}"] == 1
    assert seen["promigence_leaks_found_total{kind=process}"] == 0


def test_what_leaks_cost_is_told_by_who_looks_at_the_account_alone() -> None:
    billing, worker = Metrics("billing"), Metrics("worker")
    for metrics in (billing, worker):
        metrics.owed(640_000)
    assert samples(billing)["promigence_leaked_usd_per_month"] == 0.64
    assert "promigence_leaked_usd_per_month" not in samples(worker)
    billing.owed(0)
    assert samples(billing)["promigence_leaked_usd_per_month"] == 0


@pytest.mark.parametrize("step", Step)
def test_each_step_has_a_histogram_in_seconds(step: Step) -> None:
    metrics = Metrics("billing" if step is Step.BILLING_TICK else "worker")
    before = samples(metrics)
    metrics.took(step, 250_000_000)
    metrics.took(step, -1)
    after = samples(metrics)
    grown = [name for name in after if name.endswith("_count") and after[name] != before[name]]
    (name,) = grown
    assert after[name] == 2
    assert after[name.replace("_count", "_sum")] == 0.25
    assert name.endswith("_seconds_count")


def test_the_page_lists_every_metric_and_no_other() -> None:
    said = {name: Metrics(name) for name in ("api", "worker", "billing")}
    said["api"].watch_rows(lambda: CENSUS)
    names = {
        sample.name
        for metrics in said.values()
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name.startswith("promigence_")
    }
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    # A counter with labels is silent until its first; its name is listed all the same.
    ours.add("promigence_environment_failures_total")
    page = PAGE.read_text()
    told = {
        name
        for line in page.splitlines()
        if line.startswith("| `promigence_")
        for name in re.findall(r"`(promigence_\w+)`", line.split("|")[1])
    }
    assert told == ours
    alerts = set(re.findall(r"promigence_\w+", page.partition("## Alerts")[2]))
    assert {re.sub(r"_(bucket|count)$", "", name) for name in alerts} <= ours


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def worker(port: int) -> Iterator[httpx2.Client]:
    """A worker that serves its metrics, and a client of it."""
    metrics = Metrics("worker")
    with (
        served(metrics.text, "127.0.0.1", port, TOKEN),
        httpx2.Client(
            base_url=f"http://127.0.0.1:{port}",
            timeout=10,
            transport=httpx2.HTTPTransport(retries=5),
        ) as client,
    ):
        yield client


@pytest.fixture
def api() -> TestClient:
    return TestClient(Guarded(Starlette(), Metrics("api").text, TOKEN))


@pytest.mark.parametrize("where", ["worker", "api"])
def test_only_the_token_opens_it(where: str, request: pytest.FixtureRequest) -> None:
    client: Any = request.getfixturevalue(where)
    good = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert good.status_code == 200
    assert good.headers["content-type"].startswith("text/plain")
    assert "promigence_build_info" in good.text
    for said in ({}, {"Authorization": TOKEN}, {"Authorization": "Bearer x"}, _bearer(TOKEN[:-1])):
        refused = client.get("/metrics", headers=said)
        assert (refused.status_code, refused.content) == (401, b"")
    assert client.get("/other", headers=_bearer(TOKEN)).status_code == 404
    assert client.post("/metrics", headers=_bearer(TOKEN)).status_code in (405, 501)


def test_an_api_behind_it_is_as_it_was(api: TestClient) -> None:
    assert api.get("/metric").status_code == 404
    assert api.get("/metrics/").status_code == 404


def test_a_port_that_is_taken_is_had_when_it_is_free(port: int) -> None:
    first, second = Metrics("worker"), Metrics("worker")
    second.took(Step.EXEC, 1)
    url = f"http://127.0.0.1:{port}/metrics"
    holder = served(first.text, "127.0.0.1", port, TOKEN)
    with httpx2.Client(transport=httpx2.HTTPTransport(retries=5), timeout=10) as client:
        with holder:
            client.get(url, headers=_bearer(TOKEN))
            waiting = served(second.text, "127.0.0.1", port, TOKEN)
            waiting.__enter__()
        try:
            answer = _until_answered(client, url)
            assert "promigence_exec_seconds_count 1.0" in answer
        finally:
            waiting.__exit__(None, None, None)


def test_without_a_token_nobody_listens(port: int) -> None:
    with served(Metrics("worker").text, "127.0.0.1", port, None), socket.socket() as asking:
        assert asking.connect_ex(("127.0.0.1", port)) != 0


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _until_answered(client: httpx2.Client, url: str) -> str:
    """Bounded by the test's own time limit."""
    while True:
        try:
            return client.get(url, headers=_bearer(TOKEN)).text
        except httpx2.TransportError:
            continue
