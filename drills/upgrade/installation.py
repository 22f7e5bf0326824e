"""Two releases' code in one place, as a package manager leaves it: what is installed changes under processes
that run.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("app", "infra", "workers", "sdk", "guest", "pyproject.toml")
VENV_S, COMMAND_S = 120, 240


# The last commit before deployments had epochs and processes told their release. Later releases have tags.
FIRST_BEFORE = "8f30ebd"


class NoReleaseError(Exception):
    """The code of the release before is not to be had here."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment with the dependencies of this one, whose own code is wherever `code` leads."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "venv" / "bin" / "python"

    def code_of(self, release: str) -> Path:
        return self.directory / release

    def install(self, release: str) -> None:
        """From now on new processes run this one; those that run are not asked."""
        fresh = self.directory / "code.new"
        fresh.symlink_to(self.code_of(release))
        fresh.replace(self.directory / "code")

    def server(self, *words: str, release: str | None = None) -> tuple[str, ...]:
        """How `promigence-server` is run: by the installed release, or by one that lies here."""
        if release is None:
            return (str(self.python), "-P", "-m", "workers.server", *words)
        code = self.code_of(release)
        named = f"PYTHONPATH={code}{os.pathsep}{code / 'sdk'}"
        return ("env", named, str(self.python), "-P", "-m", "workers.server", *words)

    def run(
        self, *words: str, release: str | None = None, environment: Mapping[str, str] | None = None
    ) -> str:
        """What it prints. Raises subprocess.CalledProcessError with what it complained of."""
        return subprocess.run(
            self.server(*words, release=release),
            env=_environment() | dict(environment or {}),
            capture_output=True,
            text=True,
            check=True,
            timeout=COMMAND_S,
        ).stdout

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """By the installed release, beside whatever its caller does; what it prints can be read."""
        return subprocess.Popen(
            self.server(*words),
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def made(directory: Path, before: str) -> Installation:
    """Both releases, the older one (`before`, a commit or tag) installed. Raises NoReleaseError."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    installation = Installation(directory)
    _unpack(before, installation.code_of("old"))
    _copy(installation.code_of("new"))
    venv = directory / "venv"
    subprocess.run(
        (sys.executable, "-m", "venv", "--without-pip", str(venv)), check=True, timeout=VENV_S
    )
    site = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    code, libraries = directory / "code", sysconfig.get_path("purelib")
    (site / "release.pth").write_text(f"{code}\n{code / 'sdk'}\n{libraries}\n")
    installation.install("old")
    return installation


def before() -> str:
    """The release before this one: the last tag that this commit grew from, else the first one that can be named.

    Raises NoReleaseError.
    """
    tagged = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    named = tagged.stdout.strip() if tagged.returncode == 0 else FIRST_BEFORE
    there = _git("cat-file", "-e", f"{named}^{{commit}}")
    if there.returncode != 0:
        raise NoReleaseError(f"{named}: {there.stderr.strip()}")
    return named


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("git", "-C", str(ROOT), *words), capture_output=True, text=True, check=False
    )


def _environment() -> dict[str, str]:
    """Of commands: which code they import is said by what is installed alone."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _unpack(commit: str, into: Path) -> None:
    archived = subprocess.run(
        ("git", "-C", str(ROOT), "archive", commit, *CODE), capture_output=True, check=False
    )
    if archived.returncode != 0:
        raise NoReleaseError(f"{commit}: {archived.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
        tar.extractall(into, filter="data")


def _copy(into: Path) -> None:
    """This checkout as it is now: whoever works in it meanwhile does not change what is drilled."""
    into.mkdir()
    for name in CODE:
        source, target = ROOT / name, into / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
