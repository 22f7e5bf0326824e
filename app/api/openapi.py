"""The OpenAPI document: `python -m app.api.openapi docs/openapi.json` writes it anew; a test holds it to the routes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from app.api.main import routes
from app.api.middleware import OPEN_PATHS

KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": (
        "An API key. What an operation names beside it is the scope that the key must have: read, run, build or "
        "admin. None implies another; a key without it gets 403 missing_scope."
    ),
}


def document() -> dict[str, Any]:
    """What the routes say of themselves: each but the two of health wants a key, with the scope that it names."""
    said = routes().openapi()
    said["components"]["securitySchemes"] = {"key": KEY}
    for path in OPEN_PATHS:
        for operation in said["paths"][path].values():
            operation["security"] = []
    return said


def text() -> str:
    """The document as it is committed."""
    return json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
