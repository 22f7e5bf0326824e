"""Makes `.build/`, the files of the demo's environment.

`repo` is a real project with a bug seeded into it; `hidden` its own tests that see the bug, which
never get into the image; `wheels` what the guest installs without a network; `rollout` a clean copy
of the package here. Everything downloaded is pinned by hash, and a second call does nothing.

    python -m demo.environment
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / ".build"
HIDDEN_FILE = "tests/test_setutils.py"
# The project's own tests that the seeded bug breaks; all others pass with it. A test checks both.
HIDDEN_TESTS = (
    "test_iset_scalar_index_bounds",
    "test_iset_scalar_index_multiple_dead_intervals",
)
DOWNLOAD_TIMEOUT_SECONDS = 300


def prepare(build: Path = BUILD) -> Path:
    """Make `build` (repo/, wheels/, hidden/) unless it is there for these very inputs; return it.

    Raises subprocess.CalledProcessError or TimeoutExpired when a download, its hash or the patch
    fails; then there is no half-made `build`.
    """
    stamp = build / "stamp"
    inputs = _inputs_digest()
    if stamp.is_file() and stamp.read_text() == inputs:
        return build
    making = build.with_name(f"{build.name}.making")
    for stale in (making, build):
        shutil.rmtree(stale, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        _make(making)
        (making / "stamp").write_text(inputs)
        making.rename(build)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return build


def without_tests(source: str, names: tuple[str, ...]) -> str:
    """The module without these top-level functions."""
    cut = {number for name in names for number in _lines_of(source, name)}
    lines = source.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, 1) if number not in cut)


def only_tests(source: str, names: tuple[str, ...]) -> str:
    """The module with its imports, helpers and, of all tests, these alone."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    tests = {node.name for node in functions if node.name.startswith("test_")}
    return without_tests(source, tuple(tests.difference(names)))


def _lines_of(source: str, name: str) -> range:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return range(first, (node.end_lineno or node.lineno) + 1)
    raise LookupError(f"the module has no function {name}")


def _make(root: Path) -> None:
    wheels, sources = root / "wheels", root / "sources"
    _download(
        "requirements-guest.txt", wheels, "--only-binary", ":all:", "--python-version", "3.11"
    )
    # pip asks the source's build backend for its metadata; the pinned wheel serves as it is, zipped.
    backend = next(wheels.glob("flit_core-*.whl"))
    _download(
        "requirements-project.txt",
        sources,
        "--no-binary",
        ":all:",
        "--no-build-isolation",
        backend=backend,
    )
    archive = next(sources.glob("*.tar.gz"))
    subprocess.run(
        ["tar", "-xzf", str(archive), "-C", str(sources), "--no-same-owner"], check=True, timeout=60
    )
    (sources / archive.name.removesuffix(".tar.gz")).rename(root / "repo")
    shutil.rmtree(sources)
    _seed_bug(root / "repo")
    _hide_tests(root / "repo" / HIDDEN_FILE, root / "hidden")
    shutil.copytree(
        HERE / "rollout", root / "rollout", ignore=shutil.ignore_patterns("__pycache__")
    )


def _download(requirements: str, into: Path, *options: str, backend: Path | None = None) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-qq",
        "--disable-pip-version-check",
        "--require-hashes",
        "--no-deps",
    ]
    subprocess.run(
        [*pip, *options, "--requirement", str(HERE / requirements), "--dest", str(into)],
        env={**os.environ, "PYTHONPATH": str(backend or "")},
        stdout=sys.stderr,
        check=True,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
    )


def _seed_bug(repo: Path) -> None:
    # Inside another repository, git would take the paths for that one's and skip them without a word.
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(repo.parent)}
    patch = str(HERE / "bug.patch")
    subprocess.run(["git", "apply", patch], cwd=repo, env=alone, check=True, timeout=60)


def _hide_tests(module: Path, hidden: Path) -> None:
    source = module.read_text()
    hidden.mkdir()
    (hidden / "test_hidden.py").write_text(only_tests(source, HIDDEN_TESTS))
    module.write_text(without_tests(source, HIDDEN_TESTS))


def _inputs_digest() -> str:
    digest = hashlib.sha256()
    for pattern in ("requirements-*.txt", "bug.patch", "environment.py", "rollout/*.py"):
        for path in sorted(HERE.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    print(prepare())
