"""Accept a step: save its rows and its money in one transaction, then ring."""

from __future__ import annotations

from collections.abc import Iterator

from app.domain.ledger import equal_grants
from app.domain.money import cost_micros
from app.domain.quote import Quote, smallest_lease_ns
from app.domain.run import Fork, Run, RunKind, RunSpec, RunState
from app.domain.spec import digest, with_open_command
from app.errors import Conflict
from app.flow._once import Answer, ReceiptOf, Token, once
from app.flow._priced import Step, pinned, priced
from app.ids import new_id
from app.ports import Ports


def start(
    ports: Ports, project_id: str, spec: RunSpec, quote_id: str | None, token: Token | None
) -> Answer:
    """Start a run: `{"run_id", "state", "quote"}`.

    With a `quote_id` the step costs what that quote says, whatever the card in force says meanwhile; without one it is
    priced now. Raises what `pinned` raises; NotFound(unknown_quote), Conflict(quote_mismatch, quote_expired), or what
    `priced` raises; Conflict(idempotency_mismatch). Conflict(project_budget_exhausted) also when other runs have
    taken, since it was quoted, what this one needs.
    """

    def effect(receipt: ReceiptOf) -> Answer:
        step = pinned(ports, project_id, spec)
        quote = _quote(ports, project_id, step, quote_id)
        run = _run(ports, project_id, step, quote)
        answer: Answer = {
            "run_id": run.run_id,
            "state": "queued",  # as it is read, too: no fork has a machine yet
            "quote": quote.as_dict(),
        }
        ports.runs.start(run, tuple(_forks(run, step)), receipt(answer))
        ports.bells.place()
        return answer

    return once(ports, project_id, token, effect)


def _quote(ports: Ports, project_id: str, step: Step, quote_id: str | None) -> Quote:
    if quote_id is None:
        return priced(ports, project_id, step)
    held, spec_sha256 = ports.quotes.get(project_id, quote_id)
    if spec_sha256 not in (digest(step.spec), digest(with_open_command(step.spec))):
        raise Conflict(
            "quote_mismatch", f"quote {quote_id} was made for other arguments; quote these first"
        )
    if held.expires_ns < ports.clock.wall_ns():
        raise Conflict("quote_expired", f"quote {quote_id} has expired; ask for a new one")
    return held


def _run(ports: Ports, project_id: str, step: Step, quote: Quote) -> Run:
    budget = quote.budget_micros
    granted = sum(_grants(step, quote))
    return Run(
        run_id=new_id("run"),
        project_id=project_id,
        kind=RunKind.USER,
        state=RunState.ACTIVE,
        spec=step.spec,
        quote=quote,
        budget_micros=budget,
        pool_micros=budget - granted,
        granted_micros=granted,
        charged_micros=0,
        created_ns=ports.clock.wall_ns(),
    )


def _grants(step: Step, quote: Quote) -> tuple[int, ...]:
    worsts = tuple(
        timing.worst_micros(quote.rate.micros_per_hour)
        for group, timing in zip(step.spec.groups, step.timings, strict=True)
        for _ in range(group.count)
    )
    return equal_grants(quote.budget_micros, worsts)


def _forks(run: Run, step: Step) -> Iterator[Fork]:
    rate = run.quote.rate.micros_per_hour
    grants = iter(_grants(step, run.quote))
    index = 0
    for group, snapshot, timing in zip(step.spec.groups, step.snapshots, step.timings, strict=True):
        for _ in range(group.count):
            yield Fork(
                fork_id=new_id("fork"),
                run_id=run.run_id,
                project_id=run.project_id,
                index=index,
                key=group.key,
                env=group.env,
                snapshot=snapshot.ref,
                bundle_id=snapshot.bundle_id,
                restore_key=snapshot.restore_key,
                shape=snapshot.definition.shape,
                grant_micros=next(grants),
                worst_micros=timing.worst_micros(rate),
                worst_attempt_ns=timing.attempt_ns,
                smallest_micros=cost_micros(smallest_lease_ns(timing), rate),
                queued_ns=run.created_ns,
            )
            index += 1
