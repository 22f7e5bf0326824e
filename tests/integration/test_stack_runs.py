"""Work done through SDK, API, Redis, Celery and back, while parts of the stack are lost."""

from __future__ import annotations

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx2
import pytest
import redis

from infra.queue import CONTROL, CeleryBells, host_queue
from promigence import Promigence
from promigence.errors import Unauthorized
from promigence.types import HeldExec
from tests.integration.stacks import Stack, kill, until


def test_a_step_of_twenty_forks_passes(client: Promigence) -> None:
    run = client.runs.start(
        "task-suite",
        count=20,
        spend_cap=1.0,
        verify_each=True,
        exec={"sh": "sim: 0.1s print done exit 0"},
    )

    report = client.runs.wait(run["run_id"], timeout=30)

    assert report["totals"]["passed"] == 20
    assert len({fork["fork_id"] for fork in report["forks"]}) == 20
    assert all(fork["stdout_tail"] == "done\n" for fork in report["forks"])
    assert 0 < report["cost"]["total_usd"] <= 1.0


def test_eight_commands_of_a_held_fork_at_once(client: Promigence) -> None:
    run = client.runs.start("task-suite", count=1, spend_cap=1.0, hold_seconds=60)
    fork_id = _held(client, run["run_id"])

    with ThreadPoolExecutor(8) as pool:
        ended = list(
            pool.map(
                lambda n: client.forks.exec(fork_id, {"sh": f"sim: 0.1s print {n} exit {n}"}),
                range(8),
            )
        )

    assert [each["exit_code"] for each in ended] == list(range(8))
    assert [each["stdout"] for each in ended] == [f"{n}\n" for n in range(8)]
    released = client.forks.release(fork_id, passed=True)
    assert released["outcome"] == "passed"


def test_a_fork_that_failed_is_kept_and_looked_into(client: Promigence) -> None:
    run = client.runs.start(
        "task-suite",
        count=1,
        spend_cap=1.0,
        keep_failed=1,
        exec={"sh": "sim: print why exit 7", "timeout_seconds": 300},
    )
    until(lambda: client.runs.get(run["run_id"])["progress"]["kept"] == 1, "the fork is kept")
    (fork,) = client.runs.forks(run["run_id"])
    fork_id = fork["fork_id"]
    assert client.forks.console(fork_id)["live"] is True
    slow: HeldExec = {"sh": "sim: print working 2s exit 5"}
    heard: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.forks.exec, fork_id, slow, "slow")
        until(lambda: len(client.forks.get(fork_id)["commands"]) == 3, "the command is there")
        client.forks.logs(fork_id, "slow", on_text=heard.append)
        assert running.result(timeout=20)["exit_code"] == 5
    assert "".join(heard) == "working\n"
    assert client.forks.release(fork_id)["outcome"] == "failed"
    assert client.runs.wait(run["run_id"], timeout=20)["totals"]["failed"] == 1
    assert client.forks.logs(fork_id)["text"] == "why\n"
    assert client.forks.console(fork_id)["live"] is False


def test_lost_bells_are_rung_again_from_the_rows(stack: Stack, client: Promigence) -> None:
    still = (stack.pid("worker"), stack.pid("billing"))
    for pid in still:
        os.kill(pid, signal.SIGSTOP)
    try:
        with _redis(stack) as broker, closing(_bells(stack)) as bells:
            # One goes to whoever waited as it fell still, and says nothing of runs; the next stays in its queue.
            bells.echo(CONTROL, "nobody")
            run = client.runs.start(
                "task-suite", count=3, spend_cap=1.0, exec={"sh": "sim: exit 0"}
            )
            until(lambda: broker.llen(CONTROL) > 0, "a bell in the queue")
            broker.delete(CONTROL, host_queue(_host(client)))
    finally:
        for pid in still:
            os.kill(pid, signal.SIGCONT)

    report = client.runs.wait(run["run_id"], timeout=30)

    assert report["totals"]["passed"] == 3


def test_the_queue_is_lost_and_comes_back_under_a_run(stack: Stack, client: Promigence) -> None:
    run = client.runs.start("task-suite", count=6, spend_cap=1.0, exec={"sh": "sim: 1s exit 0"})

    kill(stack.pid("redis"))
    report = client.runs.wait(run["run_id"], timeout=40)

    assert report["totals"]["passed"] == 6


def test_a_killed_worker_leaves_no_fork_undecided(stack: Stack, client: Promigence) -> None:
    """Simulated machines die with their worker: what had begun is an environment failure, the rest is replaced."""
    run = client.runs.start("task-suite", count=4, spend_cap=1.0, exec={"sh": "sim: 300s exit 0"})
    until(lambda: client.runs.get(run["run_id"])["progress"]["running"] == 4, "four running forks")
    before = stack.pid("worker")

    kill(before)
    report = client.runs.wait(run["run_id"], timeout=40)

    assert report["totals"]["env_failed"] == 4
    assert all(fork["reward"] is None and fork["failure"] for fork in report["forks"])
    assert stack.pid("worker") != before


def test_a_watcher_misses_nothing_while_the_api_is_killed_and_comes_back(
    stack: Stack, client: Promigence
) -> None:
    run = client.runs.start("task-suite", count=4, spend_cap=1.0, exec={"sh": "sim: 1s exit 0"})
    before, heard = stack.pid("api"), []

    for event in client.runs.events(run["run_id"]):
        heard.append(event)
        if event["kind"] == "command_intended" and stack.pid("api") == before:
            kill(before)
            until(lambda: stack.pid("api") != before, "another API")

    assert [event["number"] for event in heard] == list(range(1, len(heard) + 1))
    assert heard[-1]["kind"] == "run_ended"
    assert heard[-1]["data"] == {"outcomes": {"passed": 4}}
    assert list(client.runs.events(run["run_id"], after=0)) == heard


def test_a_key_opens_the_api_until_it_is_revoked(stack: Stack) -> None:
    made = json.loads(stack.server("keys", "create", "trainer", "--json").stdout)
    base_url = stack.environment()["PROMIGENCE_BASE_URL"]
    with Promigence(api_key=made["secret"], base_url=base_url) as trainer:
        assert trainer.snapshots.list() != []
        listed = stack.server("keys", "list").stdout
        stack.server("keys", "revoke", made["key_id"])

        with pytest.raises(Unauthorized):
            trainer.snapshots.list()

    assert made["key_id"] in listed
    assert made["secret"] not in listed


def test_live_machines_are_listed_with_what_is_left_of_their_leases(
    stack: Stack, client: Promigence
) -> None:
    run = client.runs.start("task-suite", count=1, spend_cap=1.0, hold_seconds=60)
    fork_id = _held(client, run["run_id"])

    machines = json.loads(stack.server("machines", "--json").stdout)

    (machine,) = (each for each in machines if each["fork_id"] == fork_id)
    assert machine["run_id"] == run["run_id"]
    assert machine["pid"] == stack.pid("worker")
    assert 0 < machine["lease_left_seconds"] < 3600
    client.forks.release(fork_id)
    until(
        lambda: fork_id not in stack.server("machines", "--json").stdout, "no machine of that fork"
    )


def test_flower_is_shut_to_strangers(stack: Stack) -> None:
    url = httpx2.URL(stack.environment()["FLOWER_URL"])
    bare = url.copy_with(username=None, password=None)
    with httpx2.Client(timeout=10) as visitor:
        assert visitor.get(bare).status_code == 401
        assert visitor.get(bare, auth=("promigence", "wrong")).status_code == 401
        assert visitor.get(bare.join("/api/workers")).status_code == 401
        known = visitor.get(url, follow_redirects=True)
    assert known.status_code == 200
    assert f"worker.{socket.gethostname()}:" in known.text


def test_every_part_answers_its_probe(stack: Stack) -> None:
    def all_ready() -> bool:
        return all(part["ready"] for part in stack.status().values())

    until(all_ready, "every part ready after what was done to them")
    assert {"redis", "api", "worker", "billing", "flower"} <= set(stack.status())


def _held(client: Promigence, run_id: str) -> str:
    until(lambda: client.runs.forks(run_id)[0]["state"] == "ready", "a fork that is ready")
    return client.runs.forks(run_id)[0]["fork_id"]


def _host(client: Promigence) -> str:
    return client.hosts.list()[0]["host_id"]


def _bells(stack: Stack) -> CeleryBells:
    return CeleryBells(f"redis+socket://{stack.run_dir / 'redis.sock'}", at_once=1)


def _redis(stack: Stack) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(stack.run_dir / "redis.sock"))
