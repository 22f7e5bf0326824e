"""Secrets planted wherever somebody gives us one, in real processes: none is in a log, an argument, an environment."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from promigence import Promigence
from promigence.errors import Unauthorized
from tests.integration.stacks import DEFINITION, SERVER, Stack, kill, until

# Files that hold secrets because that is what they are for; nobody else may read them.
KEEPERS = {
    *("settings.json", "env", "key.secret", "metrics.token", "prometheus.yml"),
    # What a caller gives a command is a row: it has to be run, also by the next worker.
    *("promigence.db", "promigence.db-wal", "promigence.db-shm"),
}
SETTINGS = ("KEY_SECRET", "KEY_SECRET_PREVIOUS", "FLOWER_PASSWORD", "METRICS_TOKEN")


def planted(what: str) -> str:
    return f"planted.{what}.{secrets.token_hex(8)}"


@pytest.fixture
def plants(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A secret in each setting that is one, and logs that tell as much as they can."""
    made = {name: planted(name) for name in SETTINGS}
    for name, value in made.items():
        monkeypatch.setenv(f"PROMIGENCE_{name}", value)
    monkeypatch.setenv("PROMIGENCE_LOG_LEVEL", "debug")
    return made


def test_no_secret_is_told_by_a_stack_at_work_and_in_trouble(
    own_stack: Stack, plants: dict[str, str]
) -> None:
    own_stack.up()
    environment = own_stack.environment()
    plants["API_KEY"] = environment["PROMIGENCE_API_KEY"]
    use(own_stack, plants)
    knock(environment, plants)
    kill(own_stack.pid("redis"))
    until(lambda: b"queue_away" in logged(own_stack), "somebody misses it")
    values = {name: value.encode() for name, value in plants.items()}
    said = logged(own_stack)
    assert said.count(b"\n") > 50
    assert [name for name, value in values.items() if value in said] == []
    assert [name for name, value in values.items() if value in shown(own_stack)] == []
    assert keepers(own_stack.directory, values) <= KEEPERS
    for line in logged(own_stack, but="redis").splitlines():
        assert {"event", "level", "logger", "timestamp"} <= json.loads(line).keys()


def use(stack: Stack, plants: dict[str, str]) -> None:
    """A run whose command has a secret in its environment and another in itself, and a held fork's as well."""
    plants["ENV"], plants["WORD"] = planted("env"), planted("word")
    command = {"sh": f"sim: print {plants['WORD']} exit 1", "env": {"TOKEN": plants["ENV"]}}
    with stack.client() as client:
        assert client.snapshots.build(DEFINITION)["snapshot"] == "task-suite@1"
        step = client.runs.start("task-suite", count=1, spend_cap=1.0, exec=command)  # type: ignore[arg-type]
        held = client.runs.start("task-suite", count=1, spend_cap=1.0, hold_seconds=60)
        client.runs.wait(step["run_id"], timeout=30)
        until(lambda: client.runs.forks(held["run_id"])[0]["state"] == "ready", "it is held")
        fork_id = client.runs.forks(held["run_id"])[0]["fork_id"]
        assert client.forks.exec(fork_id, command)["exit_code"] == 1  # type: ignore[arg-type]


def knock(environment: dict[str, str], plants: dict[str, str]) -> None:
    """Those who guess keys and passwords: what they guess may be right elsewhere."""
    plants["GUESS"], plants["QUERY"] = f"pmg_{secrets.token_hex(32)}", planted("query")
    url, flower = environment["PROMIGENCE_BASE_URL"], environment["FLOWER_URL"]
    with pytest.raises(Unauthorized), Promigence(api_key=plants["GUESS"], base_url=url) as client:
        client.runs.list()
    bearer = {"Authorization": f"Bearer {plants['API_KEY']}"}
    with httpx2.Client(trust_env=False) as http:
        asked = {"params": {"api_key": plants["QUERY"]}, "headers": bearer}
        assert http.get(f"{url}/v1/runs", **asked).status_code == 400  # type: ignore[arg-type]
        wrong = ("promigence", plants["QUERY"])
        assert http.get(f"{flower}/api/workers", auth=wrong).status_code == 401
        right = ("promigence", plants["FLOWER_PASSWORD"])
        tasks = http.get(f"{flower}/api/tasks", auth=right)
        assert tasks.status_code == 200
        assert [name for name in ("ENV", "WORD") if plants[name] in tasks.text] == []


def logged(stack: Stack, but: str = "nothing") -> bytes:
    logs = (stack.directory / "logs").iterdir()
    return b"".join(log.read_bytes() for log in logs if not log.name.startswith(but))


def shown(stack: Stack) -> bytes:
    """What `ps` and whoever may read `/proc` sees of this stack's processes."""
    found = stack.processes()
    assert len(found) >= 5
    places = (Path(f"/proc/{pid}/{name}") for pid in found for name in ("cmdline", "environ"))
    return b"\n".join(place.read_bytes() for place in places if place.exists())


def keepers(directory: Path, values: dict[str, bytes]) -> set[str]:
    """Files with a secret in them, by name; each is its owner's alone."""
    found = set()
    for path in directory.rglob("*"):
        if path.is_file() and any(value in path.read_bytes() for value in values.values()):
            is_open = path.stat().st_mode & 0o077 and directory.stat().st_mode & 0o077
            assert not is_open, f"{path} may be read by others"
            found.add(path.name)
    return found


@pytest.mark.parametrize("part", ["serve", "billing", "flower"])
def test_a_password_in_a_url_that_leads_nowhere_is_not_told(tmp_path: Path, part: str) -> None:
    word = planted("url")
    away = {
        "PROMIGENCE_DATABASE_URL": f"postgresql+psycopg://user:{word}@127.0.0.1:1/promigence",
        "PROMIGENCE_REDIS_URL": f"redis://:{word}@127.0.0.1:1/0",
        "PROMIGENCE_LOG_LEVEL": "debug",
        "PROMIGENCE_FLOWER_PASSWORD": word,
    }
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    started = subprocess.Popen(
        (*SERVER, part, "--dir", str(tmp_path)),
        env={**environment, **away},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert started.stdout is not None
    with started, closing(started.stdout):
        first = started.stdout.readline()
        started.kill()
        said = first + started.stdout.read()
    assert first.strip()
    assert "No such command" not in said
    assert word not in said
