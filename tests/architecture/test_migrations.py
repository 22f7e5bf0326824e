"""An expanding migration takes nothing away that an older release works with, for it works on beside the newer one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

VERSIONS = Path(__file__).parents[2] / "infra" / "store" / "migrations" / "versions"
# Those before were written when one release at a time used a database.
SINCE = "0016"

TAKE_AWAY = frozenset(
    {
        "alter_column",
        "create_check_constraint",
        "create_exclude_constraint",
        "create_foreign_key",
        "create_unique_constraint",
        "drop_column",
        "drop_constraint",
        "drop_table",
        "rename_table",
    }
)
WORDS = ("DROP ", "RENAME ", "NOT NULL", "UNIQUE", "ALTER COLUMN", "DELETE ", "TRUNCATE")


def wrongs(source: str) -> list[str]:
    """What an expanding migration must not do, in words; nothing for a contracting one that names what it needs."""
    tree = ast.parse(source)
    told = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if told.get("kind") == "contract":
        return [] if told.get("needs") else ["a contracting migration says what it `needs`"]
    return [
        *_undeclared(told),
        *(wrong for node in ast.walk(tree) if isinstance(node, ast.Call) for wrong in _call(node)),
    ]


def _undeclared(told: Mapping[str, object]) -> Iterator[str]:
    if told.get("kind") != "expand":
        yield "it says no `kind`"


def _call(node: ast.Call) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    options = {each.arg: each.value for each in node.keywords}
    if name in TAKE_AWAY:
        yield f"{name} in line {node.lineno}"
    if name == "add_column":
        yield from (f"{wrong} in line {node.lineno}" for wrong in _column(node))
    if name == "create_index" and _is(options.get("unique"), True):
        yield f"create_index(unique=True) in line {node.lineno}"
    if name == "execute":
        said = " ".join(
            each.value
            for each in ast.walk(node)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )
        yield from (
            f"execute({word.strip()}) in line {node.lineno}"
            for word in WORDS
            if word in said.upper()
        )


def _column(node: ast.Call) -> Iterator[str]:
    """An older release inserts rows without it."""
    for column in (each for each in node.args if isinstance(each, ast.Call)):
        options = {each.arg: each.value for each in column.keywords}
        if not _is(options.get("nullable"), True) and "server_default" not in options:
            yield "add_column(NOT NULL without server_default)"
        if _is(options.get("unique"), True):
            yield "add_column(unique=True)"


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_what_expands_takes_nothing_away() -> None:
    since = [path for path in sorted(VERSIONS.glob("[0-9c]*.py")) if path.name >= SINCE]
    found = {path.name: wrongs(path.read_text()) for path in since}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "body",
    [
        'op.drop_column("run", "state")',
        'op.rename_table("run", "runs")',
        'op.alter_column("run", "state", nullable=False)',
        'op.add_column("run", sa.Column("x", sa.String(), nullable=False))',
        'op.add_column("run", sa.Column("x", sa.String()))',
        'op.create_index("ux", "run", ["x"], unique=True)',
        'op.create_check_constraint("ck", "run", "x > 0")',
        'op.execute("alter table run drop column x")',
        'with op.batch_alter_table("run") as run:\n    run.drop_constraint("ck")',
    ],
)
def test_what_would_is_found(body: str) -> None:
    assert wrongs(f'kind = "expand"\n{body}')


def test_what_says_nothing_of_itself_is_found() -> None:
    assert wrongs("revision = '1'") == ["it says no `kind`"]
    assert wrongs("kind = 'contract'") == ["a contracting migration says what it `needs`"]
    assert wrongs("kind = 'contract'\nneeds = '0016'\nop.drop_table('run')") == []


def test_what_adds_passes() -> None:
    added = 'op.add_column("run", sa.Column("x", sa.Integer(), nullable=False, server_default="1"))'
    assert (
        wrongs(f'kind = "expand"\n{added}\nop.create_table("t")\nop.create_index("ix", "t")') == []
    )
