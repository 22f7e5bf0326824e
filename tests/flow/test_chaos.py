"""The random fault run, short: nothing is broken; and each law sees a product that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain import ledger
from app.domain.failure import Failure
from app.domain.fork import EndReason
from app.domain.ledger import Split
from app.domain.machine import Command, CommandEnd
from app.domain.run import Claimed, Exec
from app.errors import EnvironmentFault, FailureKind
from app.flow import _broken, _claimed, collect, recover
from app.ports import HostPorts, Ports
from drills.chaos import episode
from drills.chaos.__main__ import in_words, summed_up
from drills.chaos.chances import ALL_FAULTS, KILLS
from drills.chaos.episode import Result, play
from drills.chaos.judge import Law
from drills.chaos.plan import draw_commands
from infra.fakes.world import World
from infra.store import attempts, closing, execs
from infra.store.rows import find_attempt, lock_forks
from infra.store.tables import forks as fork_rows

SEEDS = (1, 2, 3)
FORKS = 100
# A sabotaged product breaks something within so many short episodes, in worse chances.
WORSE = replace(ALL_FAULTS, freeze=0.003, bell_lost=0.15, planted=2.0)
TRIES, FEW = range(2, 10), 30


def test_what_befalls_forks_is_never_held_against_them() -> None:
    results = [play(seed, FORKS) for seed in SEEDS]
    told = [f"seed {result.seed}: {each}" for result in results for each in result.broken]
    assert told == []
    summary = summed_up(results, 1.0)
    assert summary["forks"] >= FORKS * len(SEEDS)
    assert summary["faults"] > summary["forks"]
    assert summary["workers_killed"] > 0
    assert summary["unaccounted_micros"] == 0
    assert set(summary["outcomes"]) > {"passed", "failed", "env_failed"}
    assert {law.value: 0 for law in Law}.items() <= summary.items()
    assert "0 misattributed_env_as_task" in in_words(summary)


def test_no_command_runs_twice_and_no_result_is_lost_whenever_workers_die() -> None:
    """Workers are killed at any of their port calls, bells ring twice; the counter is outside of the guests."""
    result = play(7, 110, chances=KILLS, drawn=draw_commands)
    assert [str(each) for each in result.broken] == []
    assert result.commands >= 500
    assert result.met["crash"] >= 25
    assert result.met["bell doubled"] >= 500
    # A machine that came up just then is lost with its worker, before any command, or with its host where one worker
    # after the other is killed before it adopts it: nothing else may be.
    assert set(result.kinds) <= {"worker_lost", "host_lost"}


def test_a_seed_is_the_same_episode_again() -> None:
    first, again = (play(5, 20) for _ in range(2))
    assert (first.met, first.outcomes, first.kinds) == (again.met, again.outcomes, again.kinds)


Sabotage = Callable[[pytest.MonkeyPatch], None]


def run_again_what_had_started(patch: pytest.MonkeyPatch) -> None:
    """A replacement asks nobody whether a command had started."""
    after = _claimed.after_failure

    def forgetful(claimed: Claimed, named: Failure) -> EndReason | None:
        return after(replace(claimed, attempt=replace(claimed.attempt, intent=False)), named)

    patch.setattr(_claimed, "after_failure", forgetful)
    patch.setattr(closing, "_reason", lambda _, closing: closing.then)


def score_a_lost_machine(patch: pytest.MonkeyPatch) -> None:
    """A machine that was lost is a command that failed."""
    after = _claimed.after_failure

    def scoring(claimed: Claimed, named: Failure) -> EndReason | None:
        if named.kind is FailureKind.GUEST_LOST and claimed.attempt.intent:
            return EndReason.COMMAND_FAILED
        return after(claimed, named)

    patch.setattr(_claimed, "after_failure", scoring)


def excuse_what_failed(patch: pytest.MonkeyPatch) -> None:
    """Whatever does not pass has lost its way out."""

    def excusing(_host: HostPorts, _ended: Exec, end: CommandEnd) -> EnvironmentFault | None:
        if end.exit_code == 0:
            return None
        return EnvironmentFault(FailureKind.EGRESS_LOST, "surely", egress=[])

    patch.setattr(collect, "environment_fault", excusing)


def start_again_in_the_guest(patch: pytest.MonkeyPatch) -> None:
    """A guest without a journal: an id starts as often as it is told to, which a lost answer brings about."""
    run = World.run

    def forgetting(self: World, name: str, exec_id: str, command: Command) -> None:
        self.box(name).jobs.pop(exec_id, None)
        run(self, name, exec_id, command)
        if self.starts[exec_id] == 1:
            self.fault("start", FailureKind.GUEST_LOST, after=True)

    patch.setattr(World, "run", forgetting)


def drop_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Whoever had a machine once has it for ever."""

    def anyone(at: Any, claimed: Claimed) -> Any:
        (fork,) = lock_forks(at, fork_rows.c.fork_id == claimed.fork.fork_id)
        return fork, find_attempt(at, claimed.attempt.attempt_id, lock=True)

    for module in (attempts, closing, execs):
        patch.setattr(module, "held", anyone)
    patch.setattr(_claimed, "still_held", lambda _ports, claimed: claimed)


def give_a_channel_up_at_once(patch: pytest.MonkeyPatch) -> None:
    """A connection that breaks is a machine that is lost."""
    patch.setattr(_broken, "CHANNEL_TRIES", 1)


def lose_a_micro_dollar(patch: pytest.MonkeyPatch) -> None:
    """Environment failures cost one less than they did."""
    charge = ledger.charge

    def cheap(*given: Any, **named: Any) -> Split:
        split = charge(*given, **named)
        less = min(1, split.environment_micros)
        return replace(
            split,
            total_micros=split.total_micros - less,
            environment_micros=split.environment_micros - less,
        )

    patch.setattr(ledger, "charge", cheap)


def forget_to_tell(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told that a fork got a machine."""
    patch.setattr(attempts, "tell", lambda _at, _events: None)


def look_after_nothing(patch: pytest.MonkeyPatch) -> None:
    """A bell that is lost is lost: nobody rings again, nobody comes by."""

    def only_beat(ports: Ports, host: HostPorts) -> None:
        ports.hosts.heartbeat(host.host_id, host.bundles.mounted())

    def only_build(ports: Ports) -> None:
        ports.bells.place()
        for host_id, build_id, _ in ports.hosts.placed():
            if build_id:
                ports.bells.build(host_id, build_id)
        for build, host in ports.builds.unsettled():
            ports.bells.verify(host or "", build.build_id)

    patch.setattr(recover, "tick", only_build)
    patch.setattr(recover, "sweep", lambda _ports, _host: None)
    patch.setattr(recover, "watch_host", only_beat)
    patch.setattr(episode, "LONGEST_S", 120.0)


@pytest.mark.parametrize(
    ("sabotage", "law"),
    [
        (run_again_what_had_started, Law.TWICE),
        (score_a_lost_machine, Law.ENV_AS_TASK),
        (excuse_what_failed, Law.TASK_AS_ENV),
        (start_again_in_the_guest, Law.TWICE),
        (drop_the_fence, Law.SURPRISE),
        (give_a_channel_up_at_once, Law.TASK_AS_ENV),
        (lose_a_micro_dollar, Law.MONEY),
        (forget_to_tell, Law.EVENTS),
        (look_after_nothing, Law.UNFINISHED),
    ],
)
def test_a_product_that_breaks_a_law_is_seen(
    monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, law: Law
) -> None:
    sabotage(monkeypatch)
    for seed in TRIES:
        result = play(seed, FEW, chances=WORSE)
        seen = [each for each in result.broken if each.law is law]
        if seen:
            assert trace_of(result, seen[0].fork_id), "a break comes with what happened"
            return
    raise AssertionError(f"{len(TRIES)} episodes saw nothing of it")


def trace_of(result: Result, fork_id: str) -> list[str]:
    """What happened to a fork; of what is nobody's fork there is nothing to tell."""
    return result.traces[fork_id] if fork_id.startswith("fork_") else [fork_id or "all"]
