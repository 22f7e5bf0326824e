"""What a key opens: each route asks for its one scope, before it reads anything."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.api.guard import need_of, needs
from app.api.routes import runs
from app.domain.account import Caller, Scope
from app.errors import Forbidden
from tests.api.places import ROUTES, Route
from tests.api.world import Door, raw
from tests.flow.stage import PROJECT

PAGE = Path(__file__).parents[2] / "docs/access.md"


def keyed(door: Door, *scopes: Scope) -> Door:
    """The same API by a key with these scopes."""
    return replace(door, key=door.stage.ports.keys.create(PROJECT, "narrow", scopes)[1])


def fail(_: bytes) -> bytes:
    """A body that fails whoever reads it."""
    raise AssertionError("a key without the scope had its body read")


def path_of(route: Route) -> str:
    return re.sub(r"{(\w+)}", lambda name: "0" * 64 if name[1] == "sha256" else "none", route.path)


@pytest.fixture(scope="module")
def narrow(still: Door) -> dict[str, tuple[Door, Door]]:
    """By scope: the API by a key that has it alone, and by one that has all the others."""
    return {
        scope.value: (keyed(still, scope), keyed(still, *(set(Scope) - {scope}))) for scope in Scope
    }


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_a_key_without_the_scope_is_refused_before_anything_is_read(
    narrow: dict[str, tuple[Door, Door]], name: str
) -> None:
    route = ROUTES[name]
    seen = raw(narrow[route.scope][1], route.method, path_of(route), chunks=map(fail, [b"{}"]))
    assert (seen.broke, seen.status) == (None, 403)
    error = seen.error
    assert (error["code"], error["retryable"]) == ("missing_scope", False)
    assert error["details"]["needed"] == [route.scope]
    assert set(error["details"]["scopes"]) == {each.value for each in Scope} - {route.scope}
    assert route.scope in error["message"]


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_the_scope_alone_opens_the_route(narrow: dict[str, tuple[Door, Door]], name: str) -> None:
    """As far as the route itself: that a thing is not there, or a body no good, is said by what lies behind."""
    route = ROUTES[name]
    seen = raw(narrow[route.scope][0], route.method, path_of(route))
    assert seen.broke is None
    assert seen.status in (200, 201, 400, 404)


def test_a_route_that_says_no_scope_cannot_be_made() -> None:
    async def opened_by_anything() -> dict[str, object]:
        return {}

    with pytest.raises(TypeError, match="opened_by_anything says no scope"):
        runs.router.get("/open")(opened_by_anything)
    assert need_of(needs(Scope.RUN)(opened_by_anything)).scope is Scope.RUN


def test_the_page_says_of_every_route_what_opens_it() -> None:
    rows = re.findall(r"^\| `([A-Z]+ /v1[^`]+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {route.name: route.scope for route in ROUTES.values()}
    assert len(rows) == len(ROUTES)


def test_reading_is_what_only_reads() -> None:
    """GET needs `read`, or `admin` where it tells of keys; whatever changes something needs another."""
    for route in ROUTES.values():
        reads = route.method == "GET" and not route.path.startswith(("/v1/keys", "/v1/audit"))
        assert (route.scope == Scope.READ) is reads, route.name


def test_no_scope_implies_another() -> None:
    caller = Caller(PROJECT, "key_1", frozenset({Scope.ADMIN}))
    caller.need(Scope.ADMIN)
    for scope in (Scope.READ, Scope.RUN, Scope.BUILD):
        with pytest.raises(Forbidden, match=f"scope {scope}; this key has admin"):
            caller.need(scope)
    with pytest.raises(Forbidden, match="scope read, run; this"):
        caller.may_give([Scope.RUN, Scope.ADMIN, Scope.READ])
