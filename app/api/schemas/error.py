"""The one shape of every error."""

from __future__ import annotations

from typing import Any

from app.api.schemas.base import Answer


class Error(Answer):
    """`code` is stable, for programs; `message` is for people; `retryable`: nothing was done, send it again."""

    code: str
    message: str
    retryable: bool
    request_id: str
    details: dict[str, Any]


class ErrorAnswer(Answer):
    error: Error
