"""Reads this repository's own Python: files, imports, calls. Standard library only, nothing is imported or run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_files(*folders: str) -> tuple[Path, ...]:
    """The modules under these folders of the repository; what is hidden there is not ours (a demo's builds)."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(sorted(path for path in found if not hidden(path.relative_to(ROOT))))


def hidden(path: Path) -> bool:
    """Whether any part of a relative path begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imported(tree: ast.Module) -> set[str]:
    """Top-level names of everything that a module imports, wherever in it, for its types alone or to run."""
    return {name.partition(".")[0] for name in _modules(tree)}


def at_run_time(tree: ast.Module) -> ast.Module:
    """The same module without what only a type checker reads."""
    return ast.Module([node for node in tree.body if not _is_for_types(node)], [])


def beyond_stdlib(tree: ast.Module, *allowed: str) -> set[str]:
    """What a module imports that is neither in the standard library nor allowed."""
    return imported(tree) - set(sys.stdlib_module_names) - set(allowed)


def environment_reads(tree: ast.Module) -> list[int]:
    """Lines that reach for the process's environment."""
    names = {"environ", "environb", "getenv", "getenvb"}
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and names & {alias.name for alias in node.names})
    ]


def loose_dataclasses(tree: ast.Module) -> list[str]:
    """Names of the dataclasses that are not both frozen and slotted."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if _is_dataclass(decorator) and not {"frozen", "slots"} <= _switched_on(decorator)
    ]


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_dataclass(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function) in {"dataclass", "dataclasses.dataclass"}


def _switched_on(decorator: ast.expr) -> set[str]:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return {
        keyword.arg
        for keyword in keywords
        if keyword.arg and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
    }
