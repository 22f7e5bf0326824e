"""Say what a step can cost at most, and hold that price for a while."""

from __future__ import annotations

from app.domain.quote import Quote
from app.domain.run import RunSpec
from app.domain.spec import digest
from app.flow._priced import priced
from app.ports import Ports


def quote(ports: Ports, project_id: str, spec: RunSpec) -> Quote:
    """Price `spec` and keep the quote for `limits.quote_life_ns`. Raises what `priced` raises."""
    step = priced(ports, project_id, spec)
    ports.quotes.save(project_id, step.quote, digest(step.spec))
    return step.quote
