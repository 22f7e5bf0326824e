"""Every process of a running stack says what it did, to whoever has the token; the operator finds both."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from infra.settings import load
from promigence import Promigence
from tests.integration.stacks import Stack

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def test_all_processes_are_scraped_as_the_written_configuration_says(
    stack: Stack, client: Promigence
) -> None:
    before = _scraped(stack)
    run = client.runs.start(
        "task-suite",
        count=3,
        spend_cap=1.0,
        exec={"sh": "sim: 0.2s exit 1"},
        grade={"sh": """sim: 0.1s result '{"reward": NaN}'"""},
    )
    client.runs.wait(run["run_id"], timeout=30)
    after = _scraped(stack)

    assert set(after) == {"api", "worker", "billing"}
    for component, samples in after.items():
        builds = [labels for name, labels in samples if name == "promigence_build_info"]
        assert [dict(labels)["component"] for labels in builds] == [component]
    api, worker = after["api"], after["worker"]
    assert api["promigence_database_up", ()] == 1
    assert api["promigence_hosts", (("state", "alive"),)] == 1
    assert api["promigence_slots", ()] > 0
    assert ("promigence_forks", (("state", "running"),)) in api
    failed = ("promigence_environment_failures_total", _of(kind="own_test_failed", phase="grade"))
    assert _grown(before, after, *failed) == 3
    assert _grown(before, after, "promigence_fork_outcomes_total", _of(outcome="env_failed")) == 3
    for name in ("restore", "ready", "exec_start", "exec"):
        assert worker[f"promigence_{name}_seconds_count", ()] >= 3
    assert after["billing"]["promigence_billing_tick_seconds_count", ()] > 0


def test_no_key_opens_them_and_the_token_opens_nothing_else(stack: Stack) -> None:
    settings = load(stack.directory)
    key, api = stack.environment()["PROMIGENCE_API_KEY"], stack.environment()["PROMIGENCE_BASE_URL"]
    token = (stack.directory / "metrics.token").read_text()
    for url in (api, f"http://127.0.0.1:{settings.worker_metrics_port}"):
        for headers in ({}, {"Authorization": f"Bearer {key}"}):
            assert httpx2.get(f"{url}/metrics", headers=headers, timeout=10).status_code == 401
    asked = {"Authorization": f"Bearer {token}"}
    assert httpx2.get(f"{api}/v1/runs", headers=asked, timeout=10).status_code == 401


def test_what_is_written_is_the_operators_alone(stack: Stack) -> None:
    for name in ("metrics.token", "prometheus.yml"):
        assert stat.S_IMODE((stack.directory / name).stat().st_mode) == 0o600


def _scraped(stack: Stack) -> dict[str, Samples]:
    """The samples of each process, asked as a Prometheus with the written configuration asks."""
    (job,) = json.loads((stack.directory / "prometheus.yml").read_text())["scrape_configs"]
    token = Path(job["authorization"]["credentials_file"]).read_text()
    asked = {"Authorization": f"Bearer {token}"}
    return {each["labels"]["component"]: _samples(each, asked) for each in job["static_configs"]}


def _samples(static: dict[str, Any], asked: dict[str, str]) -> Samples:
    (target,) = static["targets"]
    answer = httpx2.get(f"http://{target}/metrics", headers=asked, timeout=10)
    assert answer.status_code == 200
    return {
        (name, tuple(sorted(labels.items()))): value
        for family in text_string_to_metric_families(answer.text)
        for name, labels, value, *_ in family.samples
    }


def _of(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _grown(
    before: dict[str, Samples],
    after: dict[str, Samples],
    name: str,
    labels: tuple[tuple[str, str], ...],
) -> float:
    """By how much a counter grew in all processes together."""
    was, now = (
        sum(each.get((name, labels), 0.0) for each in seen.values()) for seen in (before, after)
    )
    return now - was
