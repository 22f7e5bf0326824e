"""Small errors in the arithmetic of money, each of which a test must notice: `python -m tests.mutants [--json]`; with
`--every` those of who may do what, too.

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

from tests.mutants.listed import LEDGER_MUTANTS
from tests.mutants.listed_access import ACCESS_MUTANTS
from tests.mutants.listed_events import EVENT_MUTANTS
from tests.mutants.listed_keep import KEEP_MUTANTS
from tests.mutants.listed_projects import PROJECT_MUTANTS
from tests.mutants.mutant import Mutant, applied

ROOT = Path(__file__).parents[2]
MUTANTS = LEDGER_MUTANTS + PROJECT_MUTANTS + KEEP_MUTANTS + EVENT_MUTANTS
# What is not about money is tried by hand: it would take CI a minute more.
EVERY = MUTANTS + ACCESS_MUTANTS
COPIED = ("app", "infra", "tests", "pyproject.toml")
AT_ONCE = 2
TIMEOUT_S = 300
# Exit codes of pytest.
PASSED, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    killed: bool
    by: str
    seconds: float


def main() -> int:
    began = time.monotonic()
    verdicts = []
    mutants = EVERY if "--every" in sys.argv else MUTANTS
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = _copies(Path(folder))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            suites = list(dict.fromkeys(mutant.tests for mutant in mutants))
            for suite in pool.map(lambda suite: _passing(suite, copies), suites):
                _say(f"passing without a mutant: {' '.join(suite)}")
            for verdict in pool.map(lambda mutant: _tried(mutant, copies), mutants):
                verdicts.append(verdict)
                _say("\n".join(_lines(verdict)))
    survived = [verdict.mutant.name for verdict in verdicts if not verdict.killed]
    seconds = round(time.monotonic() - began, 1)
    _say(f"{len(verdicts) - len(survived)} of {len(verdicts)} mutants killed in {seconds} s")
    if "--json" in sys.argv:
        summary = {"mutants": len(verdicts), "survived": len(survived), "seconds": seconds}
        _say(json.dumps(summary | {"survivors": survived}))
    return 1 if survived else 0


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


def _passing(suite: tuple[str, ...], copies: queue.Queue[Path]) -> tuple[str, ...]:
    copy = copies.get()
    try:
        code, output = _tested(copy, suite)
    finally:
        copies.put(copy)
    if code != PASSED:
        raise RuntimeError(f"{suite} fails without any mutant\n{output}")
    return suite


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
