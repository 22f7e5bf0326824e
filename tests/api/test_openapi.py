"""The document that is committed is what the routes say; and what they say is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from app.api.main import routes
from app.api.openapi import document, text

ROOT = Path(__file__).parents[2]
OPERATIONS: list[tuple[str, str, Any]] = [
    (method, path, operation)
    for path, operations in document()["paths"].items()
    for method, operation in operations.items()
]


def test_the_committed_document_is_what_the_routes_say() -> None:
    committed = (ROOT / "docs/openapi.json").read_text(encoding="utf-8")
    assert committed == text(), "run: python -m app.api.openapi docs/openapi.json"


def test_every_route_says_what_it_does_and_how_it_fails() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))
    for method, path, operation in OPERATIONS:
        assert operation["summary"], path
        assert operation.get("description"), f"{method} {path} has no docstring"
        for status in ("4XX", "5XX"):
            schema = operation["responses"][status]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}, path


def test_the_document_has_the_requests_of_the_page_about_the_wire() -> None:
    page = (ROOT / "docs/wire.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(GET|HEAD|POST|PUT|DELETE) (/[^`? ]+)", page, re.MULTILINE)
    meant = {(method.lower(), _shape(path)) for method, path in rows}
    said = {(method, _shape(path)) for method, path, _ in OPERATIONS}
    assert len(meant) >= 20
    assert said == meant


def _shape(path: str) -> str:
    """Names of path parameters differ; their places do not."""
    return re.sub(r"{[^}]+}", "{}", path)


def test_no_body_takes_what_it_does_not_know() -> None:
    schemas = document()["components"]["schemas"]
    bodies = [name for name in schemas if name.endswith(("Body", "Command", "OwnTest"))]
    assert len(bodies) >= 10
    assert [name for name in bodies if schemas[name].get("additionalProperties") is not False] == []


def test_every_text_list_and_number_that_comes_in_has_a_limit() -> None:
    schemas = document()["components"]["schemas"]
    bodies = {
        name: schema
        for name, schema in schemas.items()
        if name.endswith(("Body", "Command", "OwnTest"))
    }
    unbounded = [
        f"{name}.{key}"
        for name, schema in bodies.items()
        for key, value in schema["properties"].items()
        for part in value.get("anyOf", [value])
        if not _is_bounded(part)
    ]
    # Held against the operator's limit and the greatest amount of money, which no schema can say.
    assert set(unbounded) <= {
        f"{name}.{key}"
        for name in ("QuoteBody", "StartBody", "GroupBody", "DefinitionBody", "RebuildBody")
        for key in ("count", "spend_cap")
    }


def _is_bounded(part: dict[str, Any]) -> bool:
    kinds = {
        "string": {"maxLength", "pattern", "enum"},
        "array": {"maxItems"},
        "object": {"maxProperties"},
        "integer": {"maximum"},
        "number": {"maximum"},
    }
    limits = kinds.get(str(part.get("type")))
    return limits is None or bool(limits & part.keys())


def test_the_document_itself_is_not_served() -> None:
    paths = {getattr(route, "path", "") for route in routes().routes}
    assert not paths & {"/openapi.json", "/docs", "/redoc"}
