"""The steps of quotes and runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promigence._protocol import MAX_WAIT_SECONDS, Request, expect, path_of, query_of
from promigence._steps.calls import Steps, Terms, call_for, pages, pause_before_next, poll
from promigence.errors import DeadlineExceeded, WaitTimeout
from promigence.types import (
    Fork,
    Group,
    Quote,
    QuoteTerms,
    Report,
    Run,
    RunLedger,
    Started,
    StartTerms,
)

# How often someone who watches a run is told.
WATCH_SECONDS = 1.0


def quote(
    snapshot: str | Sequence[Group], given: QuoteTerms, key: str, terms: Terms
) -> Steps[Quote]:
    body = _body(snapshot, given, QuoteTerms)
    return call_for(
        Request("POST", path_of("quotes"), json=body, idempotency_key=key), Quote, terms
    )


def start(
    snapshot: str | Sequence[Group], given: StartTerms, key: str, terms: Terms
) -> Steps[Started]:
    body = _body(snapshot, given, StartTerms)
    return call_for(
        Request("POST", path_of("runs"), json=body, idempotency_key=key), Started, terms
    )


def get(run_id: str, terms: Terms) -> Steps[Run]:
    return call_for(Request("GET", path_of("runs", run_id)), Run, terms)


def report(run_id: str, forks: bool, terms: Terms) -> Steps[Report]:
    request = Request("GET", path_of("runs", run_id, "report"), query_of(forks=forks))
    return call_for(request, Report, terms)


def ledger(run_id: str, terms: Terms) -> Steps[RunLedger]:
    return call_for(Request("GET", path_of("runs", run_id, "ledger")), RunLedger, terms)


def cancel(run_id: str, key: str, terms: Terms) -> Steps[Run]:
    request = Request("POST", path_of("runs", run_id, "cancel"), idempotency_key=key)
    return call_for(request, Run, terms)


def find(labels: Mapping[str, str], limit: int | None, terms: Terms) -> Steps[list[Run]]:
    query = tuple(("label", f"{name}={value}") for name, value in labels.items())
    return pages(Request("GET", path_of("runs"), query), "runs", Run, limit, terms)


def forks(run_id: str, terms: Terms) -> Steps[list[Fork]]:
    return pages(Request("GET", path_of("runs", run_id, "forks")), "forks", Fork, None, terms)


def wait(
    run_id: str, with_forks: bool, on_progress: Callable[[Run], None] | None, terms: Terms
) -> Steps[Report]:
    """Long polls until the run is final, then its report. Raises WaitTimeout; the run goes on."""
    every = MAX_WAIT_SECONDS if on_progress is None else WATCH_SECONDS
    clock = terms.deadline.clock
    request = Request("GET", path_of("runs", run_id))
    after = 0.0
    while True:
        begun = clock() + after
        try:
            answer = yield from poll(request, every, terms, after)
        except DeadlineExceeded as late:
            raise _goes_on(run_id) from late
        run = expect(answer, Run)
        if on_progress is not None:
            on_progress(run)
        if run["final"]:
            break
        after = pause_before_next(begun, every, clock)
    return (yield from report(run_id, with_forks, terms))


def _goes_on(run_id: str) -> WaitTimeout:
    return WaitTimeout(
        f"run {run_id} is not final yet and goes on; wait for it again or cancel it",
        details={"run_id": run_id},
    )


def _body(
    snapshot: str | Sequence[Group], given: Mapping[str, Any], shape: type[Any]
) -> dict[str, Any]:
    """The request's body. Raises TypeError for an argument that there is not, as Python does for its own."""
    known = shape.__optional_keys__ | shape.__required_keys__
    for name in given.keys() - known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"unexpected argument {name!r}{hint}")
    body = {name: value for name, value in given.items() if name != "idempotency_key"}
    if isinstance(snapshot, str):
        return {"snapshot": snapshot, **body}
    return {"groups": [dict(group) for group in snapshot], **body}
