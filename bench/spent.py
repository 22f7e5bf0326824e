"""How much of a binding cap is spent: a step of held forks, some handed back early, whose money keeps the others alive.

A stack of the bench's own, real machines. The cap funds each fork for two minutes, the hold is five times that, so the
forks that nobody hands back live until there is no more money. What is not spent then: the kill margin of each killed
machine, and less than one extension, which is not worth a write.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import mean

from app.domain.ledger import smallest_extension_micros
from app.domain.money import MICROS_PER_USD, NS_PER_SECOND, cost_micros
from bench.figures import Claim, Figure, Result
from bench.rig import PRODUCTS, Rig
from demo.stack import running
from infra.qemu.keeper import KILL_MARGIN_NS
from promigence import Promigence
from promigence.types import Definition, RunLedger

STACK_DIRECTORY = PRODUCTS / "bench"
FORKS, EARLY = 24, 8
LEASE_S, HOLD_S = 120.0, 600.0
# After it is ready; in the first half of what all are funded for.
EARLY_AFTER_S = (10.0, 60.0)
SPENT_SHARE = 0.98
BUILD_TIMEOUT_S = 180.0
RUN_TIMEOUT_S = 900.0
LOOK_S, ASK_EACH_S = 0.05, 1.0
SEED = 3
MILLISECOND_NS = 1_000_000
DEFINITION: Definition = {
    "name": "spent",
    "image": "busybox",
    "shape": {"vcpus": 1, "memory_mib": 128, "disk_gib": 1},
    "test": {"sh": "true", "repeat": 1},
}


@dataclass(slots=True)
class Deadlines:
    """What keepers go by, read off their files.

    `seen`: by machine (when it was written by the wall clock, deadline by boot time), in ns.
    """

    machines: Path
    seen: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def look(self) -> None:
        """Note what was written since the last look."""
        for file in self.machines.glob("*/deadline"):
            try:
                written_ns, deadline_ns = file.stat().st_mtime_ns, int(file.read_text())
            except FileNotFoundError:  # its machine is gone
                continue
            notes = self.seen[file.parent.name]
            if not notes or notes[-1][1] != deadline_ns:
                notes.append((written_ns, deadline_ns))

    def extensions(self) -> dict[str, list[tuple[int, int]]]:
        """By machine, (written, by how much) of each extension."""
        return {
            name: [(notes[n][0], notes[n][1] - notes[n - 1][1]) for n in range(1, len(notes))]
            for name, notes in self.seen.items()
        }


@dataclass(frozen=True, slots=True)
class Spent:
    """A run that is over. `killed` are the machines that were, for want of money."""

    cap_micros: int
    ledger: RunLedger
    killed: frozenset[str]
    not_renewed: int
    deadlines: Deadlines

    @property
    def charged_micros(self) -> int:
        return _micros(self.ledger["charged_usd"])

    @property
    def accounted_micros(self) -> int:
        """Spent, or impossible to spend: the margin of each kill, and the indivisible rest."""
        rate = _micros(self.ledger["rate_usd_per_fork_hour"])
        margins = len(self.killed) * cost_micros(KILL_MARGIN_NS, rate)
        return self.charged_micros + margins + smallest_extension_micros(rate)


def measure(_rig: Rig) -> Result:
    """One capped step to its end."""
    with running(STACK_DIRECTORY) as stack:
        client, deadlines = stack.client, Deadlines(stack.directory / "machines")
        client.snapshots.build(DEFINITION, timeout=BUILD_TIMEOUT_S)
        cap_micros = _cap_micros(client)
        started = client.runs.start(
            "spent",
            count=FORKS,
            spend_cap=cap_micros / MICROS_PER_USD,
            verify_each=False,
            hold_seconds=HOLD_S,
        )
        _to_its_end(client, started["run_id"], deadlines)
        spent = _spent(client, started["run_id"], cap_micros, deadlines)
    return _result(spent)


def _cap_micros(client: Promigence) -> int:
    """What funds every fork for its lease."""
    quote = client.runs.quote(
        "spent", count=FORKS, spend_cap=1000, verify_each=False, hold_seconds=HOLD_S
    )
    rate = _micros(quote["rate"]["usd_per_fork_hour"])
    return FORKS * cost_micros(int(LEASE_S * NS_PER_SECOND), rate)


def _to_its_end(client: Promigence, run_id: str, deadlines: Deadlines) -> None:
    """Hand some forks back, each some time after it was ready, until the run is over."""
    chance = Random(SEED)  # noqa: S311 - no secret is made of it
    after_s = {
        index: chance.uniform(*EARLY_AFTER_S) for index in chance.sample(range(FORKS), EARLY)
    }
    due: dict[str, float] = {}
    asked, until = 0.0, time.monotonic() + RUN_TIMEOUT_S
    while (now := time.monotonic()) < until:
        deadlines.look()
        if now > asked + ASK_EACH_S:
            asked = now
            forks = client.runs.forks(run_id)
            if all(fork["state"] == "ended" for fork in forks):
                return
            for fork in forks:
                if fork["index"] in after_s and fork["state"] == "ready":
                    due.setdefault(fork["fork_id"], now + after_s.pop(fork["index"]))
        for fork_id in [fork_id for fork_id, at in due.items() if at <= now]:
            del due[fork_id]
            client.forks.release(fork_id)
        time.sleep(LOOK_S)
    raise TimeoutError(f"run {run_id} is not over after {RUN_TIMEOUT_S:g} s")


def _spent(client: Promigence, run_id: str, cap_micros: int, deadlines: Deadlines) -> Spent:
    forks = client.runs.forks(run_id)
    reasons = {fork["fork_id"]: fork["reason"] for fork in forks if fork["outcome"] == "capped"}
    others = {fork["reason"] for fork in forks} - {"released", "run_exhausted", "not_renewed"}
    if others:
        raise RuntimeError(f"forks ended otherwise than by money or by us: {others}")
    ledger = client.runs.ledger(run_id)
    killed = {a["attempt_id"] for a in ledger["attempts"] if a["fork_id"] in reasons}
    not_renewed = list(reasons.values()).count("not_renewed")
    return Spent(cap_micros, ledger, frozenset(killed), not_renewed, deadlines)


def _result(spent: Spent) -> Result:
    extensions = {n: e for n, e in spent.deadlines.extensions().items() if n in spent.killed}
    each = [extension for notes in extensions.values() for extension in notes]
    counts = [len(notes) for notes in extensions.values()]
    share = spent.accounted_micros / spent.cap_micros
    return Result(
        about={
            **DEFINITION["shape"],
            "forks": FORKS,
            "handed_back": EARLY,
            "killed": len(spent.killed),
            "not_renewed": spent.not_renewed,
            "cap_micros": spent.cap_micros,
            "charged_micros": spent.charged_micros,
            "extensions_each": f"{min(counts)} to {max(counts)}, {mean(counts):.1f} on average",
            "late_kill_seconds": sum(a["late_kill_seconds"] for a in spent.ledger["attempts"]),
        },
        figures=(
            Figure("one extension", tuple(by_ns / NS_PER_SECOND for _, by_ns in each)),
            Figure("shared out to written for its keeper", _arrivals_s(spent.ledger, each)),
        ),
        claims=(
            Claim("spent, kill margins and the rest, of the cap", share, at_least=SPENT_SHARE),
            Claim("charged, of the cap", spent.charged_micros / spent.cap_micros, at_most=1.0),
        ),
    )


def _arrivals_s(ledger: RunLedger, extensions: list[tuple[int, int]]) -> tuple[float, ...]:
    """From the booking of the last sharing before it to the file; both by this host's wall clock."""
    shared_ns = [_wall_ns(move["at"]) for move in ledger["moves"] if move["kind"] == "share"]
    return tuple(
        (written_ns - max(at for at in shared_ns if at <= written_ns)) / NS_PER_SECOND
        for written_ns, _ in extensions
    )


def _wall_ns(instant: str) -> int:
    return math.floor(datetime.fromisoformat(instant).timestamp() * 1000) * MILLISECOND_NS


def _micros(usd: float) -> int:
    return round(usd * MICROS_PER_USD)
