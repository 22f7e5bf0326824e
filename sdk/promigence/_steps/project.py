"""The step of the caller's project."""

from __future__ import annotations

from promigence._protocol import Request, path_of
from promigence._steps.calls import Steps, Terms, call_for
from promigence.types import Project


def read(terms: Terms) -> Steps[Project]:
    return call_for(Request("GET", path_of("project")), Project, terms)
