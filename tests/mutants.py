"""Small errors in the arithmetic of money, each of which a test must notice: `python -m tests.mutants [--json]`.

A mutant is one text replaced in a copy of the tree. It is killed if a test fails that passes without it, and not if the
copy cannot even be imported. Two run at a time.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("app", "infra", "tests", "pyproject.toml")
AT_ONCE = 2
TIMEOUT_S = 300
# Exit codes of pytest.
PASSED, FAILED = 0, 1

PROOF = ("tests/unit/test_ledger_laws.py",)
LEDGER = ("tests/unit/test_ledger.py",)
STORE = ("tests/contract/test_store_money.py", "-k", "sqlite")
BELLS = ("tests/flow/test_bells_after_rows.py",)
SCHEMA = ("tests/contract/test_store_schema.py", "-k", "sqlite and refused")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in the file; `law` is what breaks with `new`; `tests` are arguments of pytest."""

    path: str
    old: str
    new: str
    law: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.path}: {self.old.strip()!r} -> {self.new.strip()!r}"


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    killed: bool
    by: str
    seconds: float


MONEY = "app/domain/money.py"
DOMAIN = "app/domain/ledger.py"
QUOTE = "app/domain/quote.py"
BOOKING = "infra/store/money.py"
CLOSING = "infra/store/closing.py"
ATTEMPTS = "infra/store/attempts.py"
METERS = "infra/store/meters.py"
FENCE = "infra/store/fence.py"
STARTING = "app/flow/start.py"
TABLES = "infra/store/migrations/versions/0001_the_first_tables.py"

MUTANTS = (
    Mutant(
        MONEY,
        "return -(-duration_ns * micros_per_hour // NS_PER_HOUR)",
        "return duration_ns * micros_per_hour // NS_PER_HOUR",
        "5: rounded up",
        PROOF,
    ),
    Mutant(
        MONEY,
        "return -(-duration_ns * micros_per_hour // NS_PER_HOUR)",
        "return duration_ns * micros_per_hour // NS_PER_HOUR + 1",
        "5: by less than one",
        PROOF,
    ),
    Mutant(
        MONEY,
        "return micros * NS_PER_HOUR // micros_per_hour",
        "return -(-micros * NS_PER_HOUR // micros_per_hour)",
        "8: a lease costs no more than its grant",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "total = cost_micros(min(max(lived_ns, 0), lease_ns), micros_per_hour)",
        "total = cost_micros(NS_PER_SECOND, micros_per_hour) * -(-min(max(lived_ns, 0), lease_ns) // NS_PER_SECOND)",
        "5: once an attempt, never per tick",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "total = cost_micros(min(max(lived_ns, 0), lease_ns), micros_per_hour)",
        "total = cost_micros(max(lived_ns, 0), micros_per_hour)",
        "1: a late kill is charged up to the lease",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return Split(total, verification, total - verification, 0)",
        "return Split(total, verification, total, 0)",
        "4: the parts of a charge are the whole",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return Split(total, 0, 0, total)",
        "return Split(total, 0, 0, total - 1)",
        "4: also where the environment failed",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "min(ready_after_ns, lived_ns)",
        "max(ready_after_ns, lived_ns)",
        "verification ends when the fork is ready",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "    share = budget_micros // len(worsts_micros)",
        "    share = -(-budget_micros // len(worsts_micros))",
        "1: grants within the budget",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return tuple(min(share, worst) for worst in worsts_micros)",
        "return tuple(max(share, worst) for worst in worsts_micros)",
        "1: no grant above a fork's worst case",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return grant_micros >= smallest_micros",
        "return grant_micros > 0",
        "6: no machine starts unfunded",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return grant(lacking) if lacking <= pool_micros else None",
        "return grant(lacking)",
        "1: no top-up above the pool",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return grant(lacking) if lacking <= pool_micros else None",
        "return grant(lacking) if lacking < pool_micros else None",
        "a replacement that can just be paid for starts",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "return min(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)",
        "return max(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)",
        "8: a lease is what its grant funds",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return min(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)",
        "return worst_attempt_ns",
        "8: a lease comes from the grant, not from the worst case",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return Settled(charged, NOTHING, give_back(rest), False, 0, worst_micros)",
        "return Settled(charged, NOTHING, NOTHING, False, 0, worst_micros)",
        "1: what an ended fork held is the pool's again",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "    rest = grant_micros - total\n",
        "    rest = grant_micros\n",
        "1: what is charged is held no more",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "funded = rest + topped_up.granted_micros",
        "funded = rest",
        "1: a top-up is the fork's",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "    if sum(grants) > pool_micros:",
        "    if len(grants) > pool_micros:",
        "1: nobody joins on more than the pool has",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "for need in wanting) <= pool_micros:",
        "for need in wanting) <= 2 * pool_micros:",
        "everybody gets a worthwhile extension, or some do",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "        if part <= left:\n",
        "        if part < left:\n",
        "sharing leaves less than one extension",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "        if part <= left:\n",
        "        if left > 0:\n",
        "1: no extension above the pool",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "        part = min(need.lacking_micros, left // (len(by_lack) - position))\n        left -= part\n",
        "        part = min(need.lacking_micros, left)\n",
        "1: no more is shared than there is",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "or now_ns < self.lease_ends_ns",
        "or now_ns <= self.lease_ends_ns",
        "no money for a machine whose lease is over",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "return age_ns > START_WINDOW_NS + lease_ns + CLOSE_MARGIN_NS",
        "return age_ns > START_WINDOW_NS + lease_ns",
        "8: the margin before a close by time",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return age_ns > START_WINDOW_NS + lease_ns + CLOSE_MARGIN_NS",
        "return age_ns > lease_ns + CLOSE_MARGIN_NS",
        "8: the window in which a machine may still start",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "if min(parts) < 0 or sum(parts) != self.budget_micros:",
        "if sum(parts) != self.budget_micros:",
        "1: no part below 0",
        LEDGER,
    ),
    Mutant(
        QUOTE,
        "    neediest = max(cost_micros(",
        "    neediest = min(cost_micros(",
        "6: the smallest cap funds the neediest fork",
        LEDGER,
    ),
    Mutant(
        QUOTE,
        "return min(timing.allowance_ns + MINIMUM_LEASE_NS, timing.attempt_ns)",
        "return min(timing.allowance_ns, timing.attempt_ns)",
        "6: verification and the smallest useful time",
        PROOF,
    ),
    Mutant(
        BOOKING,
        "pool_micros=runs.c.pool_micros + move.pool_micros",
        "pool_micros=runs.c.pool_micros",
        "1: what goes to a grant is taken from the pool",
        STORE,
    ),
    Mutant(
        BOOKING,
        "    at.execute(insert(ledger), [_row(run, entry, now_ns) for entry in moving])\n",
        "",
        "1: every move has its entry",
        STORE,
    ),
    Mutant(
        BOOKING,
        "return 0 if last is None else int(last) + 1",
        "return 0",
        "nothing is booked twice",
        STORE,
    ),
    Mutant(
        TABLES,
        'sa.CheckConstraint("pool_micros >= 0"',
        'sa.CheckConstraint("pool_micros >= -1"',
        "1: the database refuses a pool below 0",
        SCHEMA,
    ),
    Mutant(
        TABLES,
        '"budget_micros = pool_micros + granted_micros + charged_micros"',
        '"budget_micros >= pool_micros + granted_micros"',
        "1: the database refuses parts that are not the budget",
        SCHEMA,
    ),
    Mutant(
        TABLES,
        'sa.PrimaryKeyConstraint("subject_id", "kind", "sequence", name="pk_ledger")',
        'sa.PrimaryKeyConstraint("subject_id", "kind", "sequence", "booked_ns", name="pk_ledger")',
        "the database refuses what is booked twice",
        STORE,
    ),
    Mutant(
        CLOSING,
        "        Entry(ending.fork.fork_id, LedgerKind.RETURN, settled.returned),\n",
        "",
        "1: a lease that is over is returned",
        STORE,
    ),
    Mutant(
        CLOSING,
        "        charged_micros=split.total_micros,\n",
        "        charged_micros=0,\n",
        "1: what a run was charged is what its machines cost",
        STORE,
    ),
    Mutant(
        CLOSING,
        "    if not ledger.may_close_by_time(age_ns, attempt.lease_ns):\n        return None\n",
        "",
        "8: nobody closes by guess",
        STORE,
    ),
    Mutant(
        CLOSING,
        "if closing.boot_id in (None, attempt.boot_id):",
        "if attempt.boot_id:",
        "2: readings of two boots are not compared",
        STORE,
    ),
    Mutant(
        ATTEMPTS,
        "lease_ns=ledger.lease_ns(fork.grant_micros, rate, fork.worst_attempt_ns),",
        "lease_ns=fork.worst_attempt_ns,",
        "8: a lease comes from the grant",
        STORE,
    ),
    Mutant(
        ATTEMPTS,
        "grant_micros=fork.grant_micros + move.granted_micros",
        "grant_micros=fork.grant_micros",
        "1: a top-up before a start is the fork's",
        STORE,
    ),
    Mutant(
        METERS,
        "ledger.lease_ns(each.need.grant_micros + part_micros, rate, each.worst_attempt_ns)",
        "ledger.lease_ns(each.need.grant_micros + 2 * part_micros, rate, each.worst_attempt_ns)",
        "8: an extension is what its grant funds",
        STORE,
    ),
    Mutant(
        FENCE,
        "    if attempt.claim != claimed.attempt.claim:\n        raise StaleClaim(attempt_id)\n",
        "",
        "8: who lost a machine does not close it",
        ("tests/contract/test_store_money.py", "-k", "sqlite and interleaving"),
    ),
    Mutant(
        STARTING,
        "        ports.runs.start(run, tuple(_forks(run, step)), receipt(answer))\n        ports.bells.place()\n",
        "        ports.bells.place()\n        ports.runs.start(run, tuple(_forks(run, step)), receipt(answer))\n",
        "7: nothing is rung before its rows",
        BELLS,
    ),
)


def main() -> int:
    began = time.monotonic()
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = _copies(Path(folder))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for verdict in pool.map(lambda mutant: _tried(mutant, copies), MUTANTS):
                verdicts.append(verdict)
                _say("\n".join(_lines(verdict)))
    survived = [verdict.mutant.name for verdict in verdicts if not verdict.killed]
    seconds = round(time.monotonic() - began, 1)
    _say(f"{len(verdicts) - len(survived)} of {len(verdicts)} mutants killed in {seconds} s")
    if "--json" in sys.argv:
        summary = {"mutants": len(verdicts), "survived": len(survived), "seconds": seconds}
        _say(json.dumps(summary | {"survivors": survived}))
    return 1 if survived else 0


def applied(mutant: Mutant, source: str) -> str:
    """The mutated source. Raises ValueError for a list that is out of date."""
    found = source.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.name}: found {found} times, so this list is out of date")
    return source.replace(mutant.old, mutant.new)


def _copies(folder: Path) -> queue.Queue[Path]:
    """Trees to mutate, one for each that runs; their byte code goes by content, since a mutant may be no later or
    longer than its original.
    """
    copies: queue.Queue[Path] = queue.Queue()
    for number in range(AT_ONCE):
        copy = folder / str(number)
        copy.mkdir()
        for name in COPIED:
            _copy(ROOT / name, copy / name)
        compiled = (sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash")
        subprocess.run((*compiled, *COPIED[:-1]), cwd=copy, check=True, timeout=TIMEOUT_S)
        copies.put(copy)
    return copies


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def _tried(mutant: Mutant, copies: queue.Queue[Path]) -> Verdict:
    copy = copies.get()
    path = copy / mutant.path
    source = path.read_text()
    began = time.monotonic()
    try:
        path.write_text(applied(mutant, source))
        code, output = _tested(copy, mutant.tests)
    finally:
        path.write_text(source)
        copies.put(copy)
    if code not in (PASSED, FAILED):
        raise RuntimeError(f"{mutant.name}: its tests could not run\n{output}")
    return Verdict(mutant, code == FAILED, _failed_test(output), time.monotonic() - began)


def _tested(copy: Path, tests: Iterable[str]) -> tuple[int, str]:
    options = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider")
    drawn = ("--hypothesis-seed=0", "--hypothesis-profile=unshrunk")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", *options, *drawn, *tests),
        cwd=copy,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return done.returncode, done.stdout + done.stderr


def _failed_test(output: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (.*)$", output, re.MULTILINE)
    return found.group(1) if found else ""


def _lines(verdict: Verdict) -> Iterator[str]:
    word = "killed  " if verdict.killed else "SURVIVED"
    yield f"{word} {verdict.seconds:5.1f} s  [{verdict.mutant.law}] {verdict.mutant.name}"
    if verdict.by:
        yield f"            by {verdict.by[:150]}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
