"""Which key a caller may have meant who wrote one that is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel


def nearest_key(route: Any, path: Sequence[int | str]) -> str | None:
    """The known key nearest to the last part of `path` in the body of a route; None when none is near."""
    body = getattr(route, "body_field", None)
    *parents, wrong = path
    known = _keys_at(body.field_info.annotation if body else None, parents)
    near = get_close_matches(str(wrong)[:100], known, n=1, cutoff=0.5)
    return near[0] if near else None


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
