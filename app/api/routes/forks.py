from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.idempotency import Idempotent, remembered
from app.api.schemas.base import Id
from app.api.schemas.fork import ForkPage, ReleaseBody, Released
from app.domain import fork as rules
from app.domain.account import Scope
from app.domain.run import Fork as ForkRow
from app.flow import report as read
from app.flow.hold import release

router = APIRouter(route_class=Guarded, prefix="/v1/forks", tags=["held forks"])


@router.get("/{fork_id}", response_model=ForkPage, response_model_exclude_unset=True)
@needs(Scope.READ)
async def get_fork(context: Ctx, project_id: Project, fork_id: Id) -> dict[str, object]:
    """A fork whole: as it stands, its machines, its newest 200 commands."""
    return await context.run(read.fork, context.ports, project_id, fork_id)


@router.post("/{fork_id}/release", response_model=Released)
@needs(Scope.RUN)
async def release_fork(
    context: Ctx, project_id: Project, token: Idempotent, fork_id: Id, body: ReleaseBody
) -> dict[str, object]:
    """Hand a held fork back with a grade, or none; a kept one with none. The same grade again changes nothing."""
    ports = context.ports

    def act() -> dict[str, object]:
        release(ports, project_id, fork_id, body.passed, body.reward)
        return _released(ports.runs.fork(project_id, fork_id))

    return await context.run(remembered, ports, project_id, token, act)


def _released(fork: ForkRow) -> dict[str, object]:
    """What the release comes to: its host still ends the machine, but the wish is kept and decides."""
    reason = fork.reason or fork.kept or fork.stop_asked
    assert reason is not None, "a release that was accepted is a wish or an end"
    outcome = rules.OUTCOMES[reason]
    reward = rules.reward(outcome, fork.result.reward)
    return {
        "fork_id": fork.fork_id,
        "outcome": outcome.value,
        "reward": reward,
        "reward_valid": reward is not None,
        "reason": reason.value,
    }
