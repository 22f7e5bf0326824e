"""`make audit`: known vulnerabilities of what the lock files pin, and under which licences it comes.

    python infra/setup/audit.py [--json] [LOCK...]

Asked by pip-audit (run by uv, pinned here), which asks the package index's vulnerability service. Exit status 0: every
package was looked up, and none has a known vulnerability; 1: some have; 2: the service could not be asked about all of
them, which is no clean bill.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

PIP_AUDIT = "pip-audit==2.10.1"
LOCKS = ("requirements.txt", "requirements-dev.txt")
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
WITHIN_S = 900
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of the packages of a lock file: `name version` each, and why some could not be looked up."""

    looked_up: tuple[str, ...]
    vulnerable: tuple[str, ...]
    unknown: tuple[str, ...]
    why: str = ""

    @property
    def exit_code(self) -> int:
        if self.vulnerable:
            return VULNERABLE
        return UNKNOWN if self.unknown or self.why or not self.looked_up else CLEAN


def main() -> None:
    """Audit each lock file; the worst verdict is the exit status, a vulnerability before an unknown."""
    asked = _arguments()
    verdicts = {lock: judge(*_ask(lock), _pinned(lock)) for lock in asked.locks}
    licences = _licences({name for lock in asked.locks for name, _ in _pinned(lock)})
    if asked.json:
        told = {lock: _as_dict(verdict) for lock, verdict in verdicts.items()}
        print(json.dumps({"locks": told, "licences": licences}, indent=2))
    else:
        for lock, verdict in verdicts.items():
            print(_words(lock, verdict))
        print("licences:", ", ".join(f"{name} ({count})" for name, count in licences.items()))
    codes = {verdict.exit_code for verdict in verdicts.values()}
    raise SystemExit(next((code for code in (VULNERABLE, UNKNOWN) if code in codes), CLEAN))


def judge(report: Any, why: str, pinned: Iterable[tuple[str, str]]) -> Verdict:
    """pip-audit's report, held against what is pinned: what it passes over is unknown, and it ends with 0 for that."""
    entries = report.get("dependencies", []) if isinstance(report, dict) else []
    seen = {_plain(each["name"]): each for each in entries if "version" in each}
    vulnerable, unknown, looked_up = [], [], []
    for name, version in pinned:
        entry = seen.get(_plain(name))
        if entry is None or entry["version"] != version:
            unknown.append(f"{name} {version}")
            continue
        looked_up.append(f"{name} {version}")
        ids = [str(each["id"]) for each in entry.get("vulns", [])]
        if ids:
            vulnerable.append(f"{name} {version}: {', '.join(ids)}")
    return Verdict(tuple(looked_up), tuple(vulnerable), tuple(unknown), why)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="audit")
    parser.add_argument("locks", nargs="*", default=LOCKS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _ask(lock: str) -> tuple[Any, str]:
    """pip-audit's report, and what it complained of where it gave none."""
    uv = str(Path(sys.executable).parent / "uv")
    tool = (uv, "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit")
    options = ("--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off")
    try:
        done = subprocess.run(
            (*tool, *options, "-r", lock),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        return json.loads(done.stdout), ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    except json.JSONDecodeError:
        return None, (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]


def _pinned(lock: str) -> list[tuple[str, str]]:
    """Name and version of each package that this Python would install."""
    lines = Path(lock).read_text().splitlines()
    found = [match.groups() for line in lines if (match := _PINNED.match(line))]
    here = {_plain(each.name): each.version for each in metadata.distributions()}
    # Of a package that is pinned twice, for several Pythons, the one that is installed here.
    twice = {
        name for name, count in Counter(_plain(name) for name, _ in found).items() if count > 1
    }
    return [
        (name, version)
        for name, version in found
        if _plain(name) not in twice or here.get(_plain(name)) == version
    ]


def _licences(names: set[str]) -> dict[str, int]:
    """How many of the installed ones come under which licence, as they declare it."""
    wanted = {_plain(name) for name in names}
    told = Counter(
        _licence(each.metadata) for each in metadata.distributions() if _plain(each.name) in wanted
    )
    return dict(told.most_common())


def _licence(of: metadata.PackageMetadata) -> str:
    classifiers = [
        str(line).rpartition(" :: ")[2]
        for line in of.get_all("Classifier", [])
        if str(line).startswith("License :: ")
    ]
    text = _said(of, "License").partition("\n")[0][:40]
    return _said(of, "License-Expression") or ", ".join(classifiers) or text or "none said"


def _said(of: metadata.PackageMetadata, name: str) -> str:
    return str(of[name]) if name in of else ""


def _words(lock: str, verdict: Verdict) -> str:
    head = f"{lock}: {len(verdict.looked_up)} looked up, {len(verdict.vulnerable)} with known vulnerabilities"
    lines = [head, *(f"  {each}" for each in verdict.vulnerable)]
    if verdict.why or verdict.unknown:
        lines.append(
            f"  NOT AUDITED: {len(verdict.unknown)} packages; the vulnerability service cannot be asked about "
            f"them from here{': ' + verdict.why if verdict.why else ''}"
        )
    return "\n".join(lines)


def _as_dict(verdict: Verdict) -> dict[str, object]:
    return {
        "looked_up": len(verdict.looked_up),
        "vulnerable": verdict.vulnerable,
        "unknown": verdict.unknown,
        "why": verdict.why,
    }


def _plain(name: str) -> str:
    return re.sub(r"[._-]+", "-", name).lower()


if __name__ == "__main__":
    main()
