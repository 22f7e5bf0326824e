"""`make drill-restore`: PostgreSQL is restored from a backup while machines run that were started before and after it.

    python -m drills.restore [--json]

A control plane and a host, each a stack of its own. Exit status 0 when both noticed by themselves and nothing was ended
before it was said; when `promigence-server restored` was refused while the control plane ran; when every machine of the
older epoch was gone afterwards, no run cost more than its rows say, and new steps ran; else 1, and the logs are kept.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.stack import SERVER
from drills import postgres
from drills.books import wrong_charges, wrong_sums
from drills.postgres import Postgres
from drills.rehearsal import redis
from drills.restore import backup
from drills.rig import smallest
from drills.rows import account_of, unfinished
from drills.steps import STEP_S, Found, ready, states, step, until, written_env
from infra.qemu import keeper
from infra.qemu.home import Home
from promigence import Promigence, PromigenceError

PLACE = Path("/var/tmp")  # noqa: S108 - a directory of its own is made there; a socket's path must be short
SNAPSHOT, LATER = "restored", "later"
COMMAND_S = 240


@dataclass(frozen=True, slots=True)
class Side:
    """A stack in a directory of its own: the control plane, or the host."""

    directory: Path
    parts: str
    environment: dict[str, str]

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (str(SERVER), *words, "--dir", str(self.directory)),
            env=self.environment,
            capture_output=True,
            text=True,
            check=check,
            timeout=COMMAND_S,
        )

    def up(self) -> None:
        self.run("up", "--parts", self.parts)

    def log(self, part: str) -> str:
        return (self.directory / "logs" / f"{part}.log").read_text()


@dataclass(frozen=True, slots=True)
class Deployment:
    control: Side
    host: Side
    database: Postgres

    def client(self) -> Promigence:
        """Of the control plane as it is up now."""
        env = written_env(self.control.directory)
        return Promigence(api_key=env["PROMIGENCE_API_KEY"], base_url=env["PROMIGENCE_BASE_URL"])

    def machines(self) -> frozenset[str]:
        """Those that live, known to a row or not: by the records of their keepers."""
        homes = self.host.directory / "machines"
        return frozenset(home.name for home in homes.iterdir() if _lives(home))


def main() -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="drills.restore", description="a restore under work")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    given = parser.parse_args()
    began_s, seen = time.monotonic(), Found()
    place = Path(tempfile.mkdtemp(prefix="promigence-restore-", dir=PLACE))
    place.chmod(0o711)
    try:
        with _deployed(place) as deployment:
            _drill(deployment, place / "backup", seen)
    except subprocess.CalledProcessError as failed:
        seen.wrong.append(f"{shlex.join(failed.cmd)}: {failed.stderr}")
    except (PromigenceError, TimeoutError) as failed:
        seen.wrong.append(f"{type(failed).__name__}: {failed}")
    seen.figures["seconds"] = round(time.monotonic() - began_s, 1)
    seen.tell(place, as_json=given.json)
    if seen.wrong:
        return 1
    shutil.rmtree(place)
    return 0


@contextmanager
def _deployed(place: Path) -> Iterator[Deployment]:
    with ExitStack() as opened:
        database = opened.enter_context(postgres.running())
        queue = opened.enter_context(redis.running())
        url = database.uri.replace("postgresql:", "postgresql+psycopg:", 1)
        told = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PROMIGENCE_DATABASE_URL": url,
            "PROMIGENCE_REDIS_URL": queue,
            "PROMIGENCE_PRODUCTS": str(Path(".promigence").absolute()),
            "PROMIGENCE_HOST_SLOTS": "8",
        }
        control = Side(place / "control", "api,billing", told)
        host = Side(place / "host", "worker", told)
        for side in (control, host):
            side.up()
            opened.callback(side.run, "down", check=False)
        yield Deployment(control, host, database)


def _drill(deployment: Deployment, taken: Path, seen: Found) -> None:
    with deployment.client() as client:
        client.snapshots.build(smallest(SNAPSHOT), timeout=STEP_S)
        before = _running(client, {"sh": "sleep 900"})
        held = _held(client)
        backup.take(deployment.database, taken)
        after = _running(client, {"sh": "sleep 900"})
        seen.expect("a step after the backup", step(client, SNAPSHOT)[0], 2)
        client.snapshots.build(smallest(LATER), timeout=STEP_S)
        live = deployment.machines()
        seen.expect("machines before", len(live), 3)
    began_s = time.monotonic()
    backup.put_back(deployment.database, taken)
    until(
        lambda: "database_went_back" in deployment.host.log("worker"), STEP_S, "the host's notice"
    )
    until(
        lambda: "database_went_back" in deployment.control.log("billing"),
        STEP_S,
        "billing's notice",
    )
    seen.figures["noticed_s"] = round(time.monotonic() - began_s, 1)
    seen.expect("machines while nobody has said so", deployment.machines() == live, True)
    hosts = json.loads(deployment.control.run("hosts", "--json").stdout)
    seen.expect("the host says so", "database_went_back" in str(hosts[0]["unready"]), True)
    doctor = deployment.control.run("doctor", "--json", check=False)
    found = {each["kind"] for each in json.loads(doctor.stdout)["findings"]}
    seen.expect("doctor says so", "database_went_back" in found, True)
    _say_so(deployment, seen)
    until(
        lambda: not deployment.machines() & live,
        STEP_S,
        "the machines of the older epoch to be gone",
    )
    seen.figures["ended_s"] = round(time.monotonic() - began_s, 1)
    with deployment.client() as client:
        _judge(deployment, client, before, held, after, seen)


def _say_so(deployment: Deployment, seen: Found) -> None:
    """By the runbook; and first too early."""
    early = deployment.control.run("restored", check=False)
    seen.expect("refused while it runs", "control_plane_runs" in early.stderr, True)
    deployment.control.run("down")
    begun = json.loads(deployment.control.run("restored", "--json").stdout)
    seen.figures["epoch"] = begun["epoch"]
    again = deployment.control.run("restored", check=False)
    seen.expect("refused a second time", "nothing_restored" in again.stderr, True)
    deployment.control.up()


def _judge(
    deployment: Deployment, client: Promigence, before: str, held: str, after: str, seen: Found
) -> None:
    report = client.runs.wait(before, timeout=STEP_S)
    (fork,) = report["forks"]
    failure: dict[str, Any] = dict(fork["failure"] or {})
    seen.expect("the command from before", fork["outcome"], "env_failed")
    evidence = failure.get("evidence", {})
    seen.expect("its evidence", evidence.get("epoch"), seen.figures["epoch"])
    again = until(lambda: ready(client, held), STEP_S, "the held fork on another machine")
    said = client.forks.exec(again, {"sh": "echo here"})["stdout"]
    seen.expect("the held fork on another machine", said, "here\n")
    seen.expect("its machines", len(_attempts(deployment, held)), 2)
    client.forks.release(again, passed=True)
    client.runs.wait(held, timeout=STEP_S)
    seen.expect("a run from after the backup is lost", _is_known(client, after), False)
    seen.expect("a step of the new epoch", step(client, SNAPSHOT)[0], 2)
    for run_id in (before, held):
        books = account_of(deployment.database, run_id)
        seen.wrong += [*wrong_sums(books), *wrong_charges(books)]
    until(lambda: not unfinished(deployment.database), STEP_S, "rows that are final")
    stored = {
        row["bundle_id"] for row in deployment.database.rows("SELECT bundle_id FROM snapshot")
    }
    here = {path.name for path in (deployment.host.directory / "bundles" / "stored").iterdir()}
    seen.expect("bundles from after the backup that are left", len(here - stored), 1)


def _running(client: Promigence, command: Any) -> str:
    run = client.runs.start(SNAPSHOT, count=1, spend_cap=5.0, exec=command, verify_each=False)
    until(lambda: states(client, run["run_id"]) == ["running"], STEP_S, "a command that runs")
    return str(run["run_id"])


def _held(client: Promigence) -> str:
    run = client.runs.start(SNAPSHOT, count=1, spend_cap=5.0, hold_seconds=900, verify_each=False)
    until(lambda: ready(client, run["run_id"]), STEP_S, "a held fork")
    return str(run["run_id"])


def _attempts(deployment: Deployment, run_id: str) -> list[dict[str, Any]]:
    return deployment.database.rows("SELECT attempt_id FROM attempt WHERE run_id = %s", run_id)


def _is_known(client: Promigence, run_id: str) -> bool:
    try:
        client.runs.report(run_id)
    except PromigenceError as unknown:
        return unknown.code != "unknown_run"
    return True


def _lives(home: Path) -> bool:
    return keeper.keeper_lives(Home(home))


if __name__ == "__main__":
    sys.exit(main())
