"""The instance metadata service of each of the zone's instances, under a path of its own: version 2, with tokens."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from werkzeug.wrappers import Request, Response

PREFIX = "/metadata/"
_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
_LONGEST_TTL_S = 21_600


class Metadata:
    """A WSGI application: `/metadata/<instance id>/latest/...`, as an instance finds it at 169.254.169.254."""

    def __init__(self, zone: str, region: str) -> None:
        self._zone = zone
        self._region = region
        self._lock = Lock()
        # (instance, until when) by token
        self._tokens: dict[str, tuple[str, float]] = {}
        self._notices: dict[str, str] = {}

    def notify(self, instance_id: str, action: str, within_s: float) -> None:
        """The instance is told that its spot capacity is taken back in so long."""
        at = datetime.now(UTC) + timedelta(seconds=within_s)
        told = {"action": action, "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        with self._lock:
            self._notices[instance_id] = json.dumps(told)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        instance_id, _, path = request.path.removeprefix(PREFIX).partition("/")
        with self._lock:
            answer = self._answer(request, instance_id, path)
        return answer(environ, start_response)

    def _answer(self, request: Request, instance_id: str, path: str) -> Response:
        if path == "latest/api/token":
            return self._token(request, instance_id)
        owner, until = self._tokens.get(request.headers.get(_TOKEN, ""), ("", 0.0))
        if owner != instance_id or time.monotonic() > until:
            return Response("Unauthorized", 401)
        told = self._values(instance_id).get(path)
        return Response(told) if told is not None else Response("Not Found", 404)

    def _token(self, request: Request, instance_id: str) -> Response:
        ttl = request.headers.get(f"{_TOKEN}-ttl-seconds", "")
        if request.method != "PUT" or not ttl.isdecimal() or not 1 <= int(ttl) <= _LONGEST_TTL_S:
            return Response("Bad Request", 400)
        token = secrets.token_urlsafe(40)
        self._tokens[token] = (instance_id, time.monotonic() + int(ttl))
        return Response(token, headers={f"{_TOKEN}-ttl-seconds": ttl})

    def _values(self, instance_id: str) -> dict[str, str | None]:
        who = {
            "instanceId": instance_id,
            "availabilityZone": self._zone,
            "region": self._region,
        }
        return {
            "latest/dynamic/instance-identity/document": json.dumps(who),
            "latest/meta-data/instance-id": instance_id,
            "latest/meta-data/placement/availability-zone": self._zone,
            "latest/meta-data/placement/region": self._region,
            "latest/meta-data/spot/instance-action": self._notices.get(instance_id),
        }
