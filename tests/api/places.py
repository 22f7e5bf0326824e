"""What the OpenAPI document says of each route, and every place of a request in which a text may name a thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.api.middleware import OPEN_PATHS
from app.api.openapi import document

DOCUMENT = document()


@dataclass(frozen=True, slots=True)
class Route:
    """`scope` is the one that it says it needs; `places` as `path run_id`, `query cursor`, `body
    groups.[].snapshot`.
    """

    method: str
    path: str
    scope: str
    places: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def _routes() -> Iterator[Route]:
    for path, operations in sorted(DOCUMENT["paths"].items()):
        if path in OPEN_PATHS:
            continue
        for method, operation in operations.items():
            ((_, (scope,)),) = operation["security"][0].items()
            yield Route(method.upper(), path, scope, frozenset(_places(operation)))


def _places(operation: Any) -> Iterator[str]:
    for param in operation.get("parameters", []):
        if param["in"] != "header":
            for leaf in _texts(param["schema"]):
                yield " ".join((param["in"], ".".join((param["name"], *leaf))))
    content = operation.get("requestBody", {}).get("content", {})
    for leaf in _texts(content.get("application/json", {}).get("schema", {})):
        yield f"body {'.'.join(leaf)}"


def _texts(schema: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a schema takes a text of the caller's own choice."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for each in schema.get("anyOf", []):
        yield from _texts(each, above)
    if schema.get("type") == "array":
        yield from _texts(schema["items"], (*above, "[]"))
    if schema.get("type") == "object":
        for name, each in schema.get("properties", {}).items():
            yield from _texts(each, (*above, name))
        for each in schema.get("patternProperties", {}).values():
            yield from _texts(each, (*above, "{}"))
    if schema.get("type") == "string" and not {"enum", "const"} & schema.keys():
        yield above


ROUTES = {route.name: route for route in _routes()}
