"""The job itself, by the SDK alone: an environment built, a broken one refused, a step, a capped step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import claims
from demo.policy import SLOW_INDEX, Policy
from demo.stack import Stack
from demo.view import View, cost_line, host_line, report_table, snapshot_line
from promigence import BadRequest, NotFound, Promigence, SnapshotRefused
from promigence.definition import load
from promigence.types import Definition, Host, Quote, QuoteTerms, Report, Run

HERE = Path(__file__).parent
COUNT, SPEND_CAP = 20, 1.0
CAPPED_COUNT = 8
# A cap that funds nothing: its refusal names the smallest one that works.
TOO_SMALL_CAP = 0.000001
# The rollout's exit code for a fault that is not the task's.
ENVIRONMENT_FAULT = 75
BUILD_TIMEOUT_SECONDS = 900
RUN_TIMEOUT_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Story:
    """What happened; `wrong` has a sentence for each claim that did not hold."""

    quote: Quote
    report: Report
    capped_quote: Quote
    capped_report: Report
    refused_snapshot: dict[str, Any]
    host: Host
    wrong: list[str]


@dataclass(frozen=True, slots=True)
class Job:
    """The job and its surroundings. `timings` gets the seconds of each stage."""

    stack: Stack
    policy: Policy
    view: View
    timings: dict[str, float]

    def run(self) -> Story:
        """All stages in order. Raises PromigenceError when one cannot be done at all."""
        client = self.stack.client
        host = client.hosts.list()[0]
        self.view.say(host_line(host))
        with self._stage("build"):
            # Both at once; the wait for the second one is short.
            broken = client.snapshots.build(HERE / "broken.toml", wait=False)
            self._build()
        with self._stage("refuse"):
            refused, wrong_refusal = self._refuse(broken)
        with self._stage("step"):
            quote, report = self._step()
        with self._stage("capped_step"):
            capped_quote, capped_report = self._capped_step(report)
        wrong = [
            *wrong_refusal,
            *claims.wrong_in_step(report, quote, SLOW_INDEX),
            *claims.wrong_in_capped_step(capped_report, capped_quote),
        ]
        return Story(quote, report, capped_quote, capped_report, refused, host, wrong)

    def _build(self) -> None:
        started = time.monotonic()
        with self.view.bar("build task-suite") as bar:
            snapshot = self.stack.client.snapshots.build(
                definition("task.toml", egress=self.policy.address),
                timeout=BUILD_TIMEOUT_SECONDS,
                on_progress=bar.build,
            )
        self.view.say(snapshot_line(snapshot, time.monotonic() - started))

    def _refuse(self, build_id: str) -> tuple[dict[str, Any], list[str]]:
        snapshots = self.stack.client.snapshots
        try:
            with self.view.bar("build broken-suite") as bar:
                snapshots.wait(build_id, BUILD_TIMEOUT_SECONDS, on_progress=bar.build)
        except SnapshotRefused as error:
            refused = {"code": error.code, "message": error.message, "details": error.details}
        else:
            return {}, ["broken-suite was stored"]
        self.view.say(f"broken-suite refused: {refused['message']}")
        wrong = claims.wrong_in_refusal(refused)
        try:
            snapshots.get("broken-suite")
        except NotFound:
            return refused, wrong
        return refused, [*wrong, "broken-suite was refused, and something of it is stored"]

    def _step(self) -> tuple[Quote, Report]:
        client = self.stack.client
        quote = client.runs.quote("task-suite", count=COUNT, spend_cap=SPEND_CAP)
        self.view.say(
            f"quote: at most {quote['max_cost_usd']} USD for {COUNT} forks on {quote['accelerator']}"
        )
        run = client.runs.start(
            "task-suite",
            count=COUNT,
            spend_cap=SPEND_CAP,
            verify_each=True,
            exec={
                "sh": f"python -m rollout --policy http://{self.policy.address}",
                "environment_exit_codes": [ENVIRONMENT_FAULT],
            },
        )
        return quote, self._follow(run["run_id"], COUNT, kill_slow=True)

    def _capped_step(self, first: Report) -> tuple[Quote, Report]:
        runs = self.stack.client.runs
        # Half of what as many forks of the first step cost: a command of an hour cannot end.
        half = first["cost"]["total_usd"] / COUNT * CAPPED_COUNT / 2
        terms = capped_terms(round(max(half, smallest_cap(self.stack.client)), 6))
        quote = runs.quote("task-suite", **terms)
        run = runs.start("task-suite", quote_id=quote["quote_id"], **terms)
        return quote, self._follow(run["run_id"], CAPPED_COUNT)

    def _follow(self, run_id: str, count: int, *, kill_slow: bool = False) -> Report:
        """Wait for the end with a live bar; `kill_slow`: kill the machine whose rollout the policy keeps waiting."""
        killed = not kill_slow

        with self.view.bar(f"{count} forks", total=count) as bar:

            def look(run: Run) -> None:
                nonlocal killed
                bar.run(run)
                if not killed and self.policy.slow_asked.is_set():
                    killed = True
                    self._kill(run_id, SLOW_INDEX)

            report = self.stack.client.runs.wait(run_id, RUN_TIMEOUT_SECONDS, on_progress=look)
        self.view.console.print(report_table(report))
        self.view.say(cost_line(report["cost"]))
        return report

    def _kill(self, run_id: str, index: int) -> None:
        forks = self.stack.client.runs.forks(run_id)
        fork_id = next(fork["fork_id"] for fork in forks if fork["index"] == index)
        pid = self.stack.kill_machine_of(fork_id)
        self.view.say(f"killed process {pid}, the machine of fork {index}, in mid-command")

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.timings[name] = time.monotonic() - started


def definition(name: str, egress: str) -> Definition:
    """A definition of this folder, allowed to reach `egress` (host:port)."""
    loaded = load(HERE / name)
    loaded["egress"] = [egress]
    loaded["files"] = {str(HERE / local): guest for local, guest in loaded["files"].items()}
    return loaded


def capped_terms(spend_cap: float) -> QuoteTerms:
    """A step whose command takes longer than any small cap pays for."""
    return {
        "count": CAPPED_COUNT,
        "spend_cap": spend_cap,
        "verify_each": False,
        "exec": {"sh": "sleep 3600"},
    }


def smallest_cap(client: Promigence) -> float:
    """The smallest cap in USD that the capped step may have: the server names it when it refuses less."""
    try:
        client.runs.quote("task-suite", **capped_terms(TOO_SMALL_CAP))
    except BadRequest as refused:
        if refused.code == "cap_too_small":
            return float(refused.details["smallest_cap_usd"])
        raise
    return TOO_SMALL_CAP
