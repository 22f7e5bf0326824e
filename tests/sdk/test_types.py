"""The shapes that the SDK promises are those that the API says, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from app.api.openapi import document
from promigence import types

DOCUMENT = document()
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
SHAPES = {
    "AuditEntry": types.AuditEntry,
    "Build": types.Build,
    "Console": types.Console,
    "Deleted": types.Deleted,
    "Event": types.Event,
    "ExecResult": types.ExecResult,
    "Fork": types.Fork,
    "ForkPage": types.ForkPage,
    "Host": types.Host,
    "Key": types.Key,
    "NewKey": types.NewKey,
    "Project": types.Project,
    "Quote": types.Quote,
    "Released": types.Released,
    "Report": types.Report,
    "Run": types.Run,
    "RunLedger": types.RunLedger,
    "Snapshot": types.Snapshot,
    "Started": types.Started,
    "Uploaded": types.Uploaded,
    "Usage": types.Usage,
}


@pytest.mark.parametrize("name", SHAPES)
def test_an_answer_has_the_shape_that_the_sdk_says(name: str) -> None:
    schema = DOCUMENT["components"]["schemas"][name]
    assert list(differences(schema, SHAPES[name], name)) == []


def test_a_difference_is_found() -> None:
    moves = DOCUMENT["components"]["schemas"]["RunLedger"]["properties"]["moves"]
    assert list(differences(moves, list[types.RunLedger], "moves")) != []
    assert list(differences({"type": "number"}, str, "a")) == ["a: number is not str"]
    assert list(differences({"type": "number"}, float | None, "a")) != []
    assert list(differences({"enum": ["a", "b"]}, Literal["a"], "a")) != []


def differences(schema: Any, hint: Any, where: str) -> Iterator[str]:
    """What the API's schema and the SDK's type say differently, each with its place."""
    schema = _followed(schema)
    options, hints = _options(schema), _hints(hint)
    if len(options) > 1 or len(hints) > 1:
        if ({"type": "null"} in options) != (type(None) in hints):
            yield f"{where}: {schema} is not {hint}"
        options = [each for each in options if each != {"type": "null"}]
        hints = [each for each in hints if each is not type(None)]
        if len(options) == len(hints) == 1:
            yield from differences(options[0], hints[0], where)
            return
    if words := _words(options):
        if words != _words_of(hints):
            yield f"{where}: {sorted(words)} is not {hint}"
        return
    if hint is Any or not schema.keys() - {"title"}:
        return
    if is_typeddict(hint):
        yield from _keys(schema, hint, where)
    elif get_origin(hint) is list:
        yield from differences(schema.get("items", {}), get_args(hint)[0], f"{where}[]")
    elif get_origin(hint) is dict:
        if schema.get("type") != "object":
            yield f"{where}: {schema.get('type')} is not {hint}"
    elif schema.get("type") != PLAIN.get(hint):
        yield f"{where}: {schema.get('type')} is not {getattr(hint, '__name__', hint)}"


def _keys(schema: Any, hint: Any, where: str) -> Iterator[str]:
    named = get_type_hints(hint)
    said = schema.get("properties", {})
    for name in named.keys() ^ said.keys():
        yield f"{where}.{name}: only in the {'SDK' if name in named else 'API'}"
    for name in named.keys() & said.keys():
        yield from differences(said[name], named[name], f"{where}.{name}")


def _followed(schema: Any) -> Any:
    name = schema.get("$ref")
    return DOCUMENT["components"]["schemas"][name.rpartition("/")[2]] if name else schema


def _options(schema: Any) -> list[Any]:
    return [_followed(each) for each in schema.get("anyOf", [schema])]


def _hints(hint: Any) -> list[Any]:
    return list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]


def _words(options: list[Any]) -> set[str]:
    """The words of an enumeration, however it is put together."""
    return {
        word
        for each in options
        for word in (each.get("enum") or ([each["const"]] if "const" in each else []))
    }


def _words_of(hints: list[Any]) -> set[str]:
    return {word for each in hints if get_origin(each) is Literal for word in get_args(each)}
