"""The steps of the usage statement."""

from __future__ import annotations

from collections.abc import Sequence

from promigence._protocol import Request, path_of, query_of
from promigence._steps.calls import Steps, Terms, call_for
from promigence.types import Usage


def read(begin: str | None, until: str | None, by: Sequence[str], terms: Terms) -> Steps[Usage]:
    query = query_of(**{"from": begin, "until": until, "by": ",".join(by)})
    return call_for(Request("GET", path_of("usage"), query), Usage, terms)
