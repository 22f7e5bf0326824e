"""Every error as one shape: `{"error": {code, message, retryable, request_id, details}}`, and no stack trace in any."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException

from app.api.nearest import keys_beside
from app.errors import (
    BadRequest,
    NotFound,
    PromigenceError,
    RateLimited,
    TooLarge,
    Unavailable,
)
from app.nearest import not_known

log = logging.getLogger(__name__)

MAX_FIELDS = 20


class Refused(HTTPException):
    """An error of ours that FastAPI lets through while it still reads the body."""

    def __init__(self, error: PromigenceError) -> None:
        super().__init__(error.status, error.message)
        self.error = error


class MethodNotAllowed(BadRequest):
    status = 405


class TooLong(BadRequest):
    status = 414


class TooSlow(BadRequest):
    status = 408
    retryable = True


def answer(error: PromigenceError, request_id: str) -> JSONResponse:
    """The error as a response; what is no fault of the caller is `internal` and stays in our log."""
    if error.status >= 500 and not isinstance(error, Unavailable):
        log.error("request %s failed: %s", request_id, error, exc_info=error)
        return internal(request_id)
    response = _response(
        error.status, error.code, error.message, error.retryable, request_id, error.details
    )
    if isinstance(error, Unavailable | RateLimited):
        response.headers["Retry-After"] = str(error.details.get("retry_after_seconds", 1))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def internal(request_id: str) -> JSONResponse:
    """Our fault. The details are in the log under the request's id."""
    return _response(
        500,
        "internal",
        f"the server failed; its log has request {request_id}",
        False,
        request_id,
        {},
    )


def install(app: FastAPI) -> None:
    """Let every way out of a handler end in the one shape."""
    app.add_exception_handler(PromigenceError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    return answer(cast("PromigenceError", error), request.state.request_id)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    faults = cast("RequestValidationError", error).errors()
    return answer(_bad_request(request, faults), request.state.request_id)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    return answer(_of_http(cast("HTTPException", error), request), request.state.request_id)


def _of_http(error: HTTPException, request: Request) -> PromigenceError:
    if isinstance(error, Refused):
        return error.error
    if error.status_code == 404:
        return NotFound("not_found", f"there is no {request.url.path}")
    if error.status_code == 405:
        return MethodNotAllowed("method_not_allowed", f"{request.method} is not allowed here")
    if error.status_code == 413:
        return TooLarge("too_large", "the body is too large")
    return BadRequest("bad_request", f"the body cannot be read as JSON: {_unread(error.__cause__)}")


def _unread(cause: BaseException | None) -> str:
    """Why bytes that may well be JSON were not read; syntax errors say it themselves, and where."""
    if isinstance(cause, RecursionError):
        return "it is nested too deeply"
    if isinstance(cause, UnicodeError):
        return "it is not UTF-8"
    # Python reads no whole number of thousands of digits, and says it by a bare ValueError.
    return "a number in it has too many digits" if isinstance(cause, ValueError) else "it broke off"


def _bad_request(request: Request, faults: Sequence[Any]) -> BadRequest:
    """Name each field and what is wrong with it; values stay out, they may be secrets."""
    fields = [_field(request, fault) for fault in faults[:MAX_FIELDS]]
    unknown = any(fault["type"] == "extra_forbidden" for fault in faults)
    message = "; ".join(f"{field['field'] or 'body'}: {field['problem']}" for field in fields)
    return BadRequest("unknown_field" if unknown else "bad_request", message, fields=fields)


def _field(request: Request, fault: Any) -> dict[str, str]:
    where, *path = fault["loc"]
    if fault["type"] == "json_invalid":
        return {"field": "", "problem": f"is not JSON (at character {path[0]})"}
    problem = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        problem = not_known(str(path[-1]), keys_beside(request.scope["route"], path))
    dotted = ".".join(str(part)[:100] for part in path)
    return {"field": dotted if where == "body" else f"{where} {dotted}", "problem": problem}


def _response(
    status: int,
    code: str,
    message: str,
    retryable: bool,
    request_id: str,
    details: dict[str, object],
) -> JSONResponse:
    error = {
        "code": code,
        "message": message,
        "retryable": retryable,
        "request_id": request_id,
        "details": to_jsonable_python(details, fallback=str),
    }
    return JSONResponse({"error": error}, status)
