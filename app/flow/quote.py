"""Say what a step can cost at most, and hold that price for a while."""

from __future__ import annotations

from app.domain.quote import Quote
from app.domain.run import RunSpec
from app.domain.spec import digest
from app.flow._priced import pinned, priced
from app.ports import Ports


def quote(ports: Ports, project_id: str, spec: RunSpec) -> Quote:
    """Price `spec` and keep the quote for `limits.quote_life_ns`. Raises what `pinned` and `priced` raise."""
    step = pinned(ports, project_id, spec)
    made = priced(ports, project_id, step)
    ports.quotes.save(project_id, made, digest(step.spec))
    return made
