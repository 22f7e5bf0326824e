"""Which keys a caller may have meant who wrote one that is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel


def keys_beside(route: Any, path: Sequence[int | str]) -> list[str]:
    """The keys that are known at the place of the last part of `path`, in the body of a route."""
    body = getattr(route, "body_field", None)
    return _keys_at(body.field_info.annotation if body else None, path[:-1])


def _keys_at(annotation: Any, parents: Sequence[int | str]) -> list[str]:
    models = list(_models(annotation))
    for part in parents:
        if isinstance(part, str):
            models = [
                inner
                for model in models
                if part in model.model_fields
                for inner in _models(model.model_fields[part].annotation)
            ]
    return sorted({key for model in models for key in model.model_fields})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation, through unions, lists and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
