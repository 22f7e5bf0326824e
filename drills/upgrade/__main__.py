"""`make drill-upgrade`: the release before, with a command that runs for minutes, becomes this one under it.

    python -m drills.upgrade [--minutes N] [--quick] [--old COMMIT] [--json]

Exit status 0 when the command ended once and passed with all that it printed, a held fork was served throughout, the
old release worked on the new schema (also started anew), steps ran before and after, and the API was away no longer
than `AWAY_S`; else 1, and the stack's logs are kept.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drills import postgres
from drills.books import wrong_charges, wrong_report, wrong_sums
from drills.postgres import Postgres
from drills.rig import smallest
from drills.rows import account_of
from drills.steps import STEP_S, Found, ready, states, step, until, written_env
from drills.upgrade.installation import Installation, NoReleaseError, before, made
from drills.upgrade.watch import polling, serving
from infra.stack.process import Process
from infra.stack.records import Places, read_processes
from promigence import Promigence, PromigenceError

PLACE = Path("/var/tmp")  # noqa: S108 - a directory of its own is made there; a socket's path must be short
SNAPSHOT = "upgraded"
QUICK_MINUTES = 0.75
AWAY_S = 30.0


@dataclass(frozen=True, slots=True)
class Stage:
    """The stack that is upgraded."""

    installation: Installation
    directory: Path
    database: Postgres
    client: Promigence
    base_url: str
    key: str

    def part(self, name: str) -> Process | None:
        return read_processes(Places(self.directory, self.directory)).get(name)

    def claims(self, run_id: str) -> list[str]:
        found = self.database.rows("SELECT claim FROM attempt WHERE run_id = %s", run_id)
        return [row["claim"] for row in found]


def main() -> int:
    """The program; its exit status."""
    given = _given()
    began_s = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="promigence-upgrade-", dir=PLACE))
    # Processes of other users, such as a machine's, pass through to the code that is installed there.
    place.chmod(0o711)
    seen = Found()
    try:
        installation = made(place / "installed", given.old or before())
        with _old_stack(installation, place / "stack") as stage:
            _drill(stage, given.minutes, seen)
    except NoReleaseError as none:
        seen.wrong.append(f"the release before is not in this history: {none}; name one by --old")
    except (PromigenceError, TimeoutError) as failed:
        seen.wrong.append(f"{type(failed).__name__}: {failed}")
    except subprocess.CalledProcessError as failed:
        seen.wrong.append(f"{shlex.join(failed.cmd)}: {failed.stderr}")
    seen.figures["seconds"] = round(time.monotonic() - began_s, 1)
    seen.tell(place, as_json=given.json)
    if seen.wrong:
        return 1
    shutil.rmtree(place)
    return 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills.upgrade", description="an upgrade under work")
    parser.add_argument("--minutes", type=float, default=10.0, help="the command's (10)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MINUTES} minutes")
    parser.add_argument("--old", help="commit or tag (the release before this one)")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    given = parser.parse_args()
    if given.quick:
        given.minutes = QUICK_MINUTES
    return given


@contextmanager
def _old_stack(installation: Installation, directory: Path) -> Iterator[Stage]:
    """By the older release, on a PostgreSQL; taken down by the newer one, which is installed by then."""
    products = Path(".promigence").absolute()
    with postgres.running() as database:
        told = {
            "PROMIGENCE_DATABASE_URL": database.uri.replace(
                "postgresql:", "postgresql+psycopg:", 1
            ),
            "PROMIGENCE_PRODUCTS": str(products),
            "PROMIGENCE_HOST_SLOTS": "8",
        }
        try:
            installation.run("up", "--dir", str(directory), environment=told)
            env = written_env(directory)
            url, key = env["PROMIGENCE_BASE_URL"], env["PROMIGENCE_API_KEY"]
            with Promigence(api_key=key, base_url=url) as client:
                yield Stage(installation, directory, database, client, url, key)
        finally:
            installation.run("down", "--dir", str(directory))


def _drill(stage: Stage, minutes: float, seen: Found) -> None:
    client, count = stage.client, int(minutes * 60)
    client.snapshots.build(smallest(SNAPSHOT), timeout=STEP_S)
    lines = f"n=0; while [ $n -lt {count} ]; do printf '%03d\\n' $n; n=$((n+1)); sleep 1; done"
    long = client.runs.start(
        SNAPSHOT, count=1, spend_cap=5.0, exec={"sh": lines, "timeout_seconds": count * 3 + 60}
    )
    held = client.runs.start(SNAPSHOT, count=1, spend_cap=5.0, hold_seconds=count * 3 + 600)
    fork_id = until(lambda: ready(client, held["run_id"]), STEP_S, "a held fork")
    until(lambda: states(client, long["run_id"]) == ["running"], STEP_S, "the long command")
    with polling(stage.base_url, stage.key) as away, serving(client, fork_id) as told:
        _old_on_new_schema(stage, seen)
        quiet_s = away.longest_s
        upgrading = _begin_upgrade(stage)
        until(lambda: _drains(stage), STEP_S, "a worker that drains")
        after = step(client, SNAPSHOT)
        seen.expect("a step while the old worker drains", after[0], 2)
        seen.figures["new_worker_took_it"] = not set(stage.claims(after[1])) & set(
            stage.claims(long["run_id"])
        )
        report = client.runs.wait(long["run_id"], timeout=count * 3 + 300)
        _judge_long(report["forks"][0], count, seen)
        seen.expect("machines of the long command", len(stage.claims(long["run_id"])), 1)
    client.forks.release(fork_id, passed=True)
    steps = _end_upgrade(upgrading, seen)
    seen.figures |= {
        "minutes": minutes,
        "api_away_s": round(away.longest_s, 1),
        "api_away_before_upgrade_s": round(quiet_s, 1),
        "api_asked": away.asked,
        "api_gaps_s": away.gaps,
        "held_commands": told.right,
        "held_slowest_s": round(told.slowest_s, 1),
        "steps": steps,
    }
    seen.wrong += told.wrong
    if away.longest_s > AWAY_S:
        seen.wrong.append(f"the API was away for {away.longest_s:.1f} s")
    last = step(client, SNAPSHOT)
    seen.expect("a step on the new release alone", last[0], 2)
    runs = (long["run_id"], held["run_id"], after[1], last[1])
    seen.wrong += [broken for run_id in runs for broken in _broken_laws(stage, run_id)]
    left = stage.installation.run("upgrade", "--check", "--dir", str(stage.directory))
    seen.expect("whether nothing is left to do", "nothing is left to do" in left, True)


def _old_on_new_schema(stage: Stage, seen: Found) -> None:
    """The newer release migrates; the older one works on, and its API starts anew."""
    began_s = time.monotonic()
    stage.installation.run("migrate", "--dir", str(stage.directory), release="new")
    seen.figures["migrate_s"] = round(time.monotonic() - began_s, 1)
    seen.expect("a step of the old release on the new schema", step(stage.client, SNAPSHOT)[0], 2)
    api = stage.part("api")
    assert api is not None
    api.signal(signal.SIGKILL)
    until(lambda: stage.part("api") not in (None, api), STEP_S, "the old API started anew")
    seen.expect("a step by an old API that was started on it", step(stage.client, SNAPSHOT)[0], 2)


def _begin_upgrade(stage: Stage) -> subprocess.Popen[str]:
    stage.installation.install("new")
    words = ("upgrade", "--json", "--dir", str(stage.directory))
    return stage.installation.begin(*words)


def _end_upgrade(upgrading: subprocess.Popen[str], seen: Found) -> list[dict[str, Any]]:
    out, err = upgrading.communicate(timeout=STEP_S)
    seen.expect("the upgrade's exit status", (upgrading.returncode, err), (0, ""))
    told = [json.loads(line) for line in out.splitlines()]
    return [each for each in told if "step" in each]


def _drains(stage: Stage) -> bool:
    found = stage.database.rows("SELECT draining FROM worker ORDER BY started_ns")
    return [row["draining"] for row in found] == [True, False]


def _broken_laws(stage: Stage, run_id: str) -> Iterator[str]:
    books = account_of(stage.database, run_id)
    yield from wrong_sums(books)
    yield from wrong_charges(books)
    yield from wrong_report(stage.client.runs.report(run_id), books)


def _judge_long(fork: Any, count: int, seen: Found) -> None:
    whole = "".join(f"{n:03d}\n" for n in range(count))
    seen.expect("the long command's outcome", fork["outcome"], "passed")
    seen.expect("its attempts", fork["attempts"], 1)
    seen.expect("whether all that it printed is there", fork["stdout_tail"] == whole, True)
    seen.figures["command_s"] = round(fork["seconds"], 1)


if __name__ == "__main__":
    sys.exit(main())
