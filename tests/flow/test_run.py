"""A step from quote to report: outcomes, money, order, idempotency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.machine import Command, DeathCause
from app.domain.run import Group, GuestFaults
from app.errors import BadRequest, Conflict, FailureKind, Forbidden, NotFound
from app.flow import quote, start, stop
from app.flow._once import Token
from infra.fakes.guest import FakeGuest
from infra.fakes.world import World
from tests.flow.stage import PROJECT, Stage, definition, sim, spec


def add_up(page: dict) -> None:  # type: ignore[type-arg]
    """Laws 1 and 4, as a customer can check them."""
    totals, cost = page["totals"], page["cost"]
    assert sum(n for name, n in totals.items() if name != "requested") == totals["requested"]
    parts = cost["tasks_usd"] + cost["environment_usd"] + cost["verification_usd"]
    assert round(parts, 6) == cost["total_usd"]
    assert cost["total_usd"] <= cost["spend_cap_usd"]


def test_commands_pass_fail_and_time_out(suite: Stage) -> None:
    for text, outcome, reward, code in (
        ("2s print ok", "passed", 1.0, 0),
        ("2s exit 7", "failed", 0.0, 7),
        ("2s signal 11", "failed", 0.0, None),
        ("90s print late", "timed_out", 0.0, None),
    ):
        page = suite.run_until_final(suite.start(spec(text)))
        add_up(page)
        assert page["totals"][outcome] == 2
        for fork in page["forks"]:
            assert (fork["reward"], fork["reward_valid"]) == (reward, True)
            assert fork["exit_code"] == code
            assert [check["sound"] for check in fork["checks"]] == [True] * 8
    assert page["forks"][0]["stdout_tail"] == "late\n"
    assert page["forks"][0]["seconds"] == 60


def test_verify_each_runs_the_own_test_first(suite: Stage) -> None:
    page = suite.run_until_final(suite.start(spec("1s", verify_each=True)))
    assert page["totals"]["passed"] == 2
    assert page["cost"]["verification_usd"] > 0
    kinds = {name.partition("_")[0] for name in suite.world.starts}
    assert {"test", "task"} <= kinds


def test_a_machine_that_dies_before_its_command_is_replaced(suite: Stage) -> None:
    suite.world.fault("wake", FailureKind.BARRIER_FAILED)
    page = suite.run_until_final(suite.start(spec(count=3)))
    add_up(page)
    assert page["totals"]["passed"] == 3
    (failed,) = page["environment_failures"]
    assert (failed["kind"], failed["phase"], failed["replaced"]) == (
        "barrier_failed",
        "barrier",
        True,
    )
    assert sorted(fork["attempts"] for fork in page["forks"]) == [1, 1, 2]


def test_a_machine_that_dies_in_mid_command_is_an_environment_failure_with_evidence(
    suite: Stage,
) -> None:
    page = suite.run_until_final(suite.start(spec("3s crash", count=1)))
    add_up(page)
    (fork,) = page["forks"]
    assert (fork["outcome"], fork["reward"], fork["reward_valid"]) == ("env_failed", None, False)
    assert fork["failure"]["kind"] == "guest_lost"
    assert fork["failure"]["task_may_have_caused"] is True
    assert fork["failure"]["evidence"]["process_signal"] == 6
    assert page["cost"]["tasks_usd"] == 0
    assert page["cost"]["environment_usd"] == page["cost"]["total_usd"] > 0
    assert sum(suite.world.starts.values()) == 3 + 1  # three of the build, and never again


def test_a_machine_that_dies_while_its_command_is_started_is_named_by_its_death(
    suite: Stage,
) -> None:
    run_id = suite.start(spec("50s", count=1))
    start_of_machines = suite.host.guest.start

    def start(name: str, exec_id: str, command: Command) -> None:
        suite.world.die(name, DeathCause.PANICKED)
        start_of_machines(name, exec_id, command)

    suite.hosts["host0"] = replace(suite.host, guest=Starting(suite.world, start))
    suite.run_for(3)
    (fork,) = suite.report(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "guest_panicked")
    assert fork["failure"]["task_may_have_caused"] is True


class Starting(FakeGuest):
    """A guest whose commands start in another way."""

    def __init__(self, world: World, start: Callable[[str, str, Command], None]) -> None:
        super().__init__(world)
        self._start = start

    def start(self, name: str, exec_id: str, command: Command) -> None:
        self._start(name, exec_id, command)


def test_a_full_disk_of_the_host_is_named_and_not_waited_for(suite: Stage) -> None:
    run_id = suite.start(spec("3s diskfull", count=1))
    suite.run_for(10)
    (fork,) = suite.report(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "host_disk_full")
    assert fork["failure"]["task_may_have_caused"] is False


def test_guest_faults_may_be_the_tasks(suite: Stage) -> None:
    given = spec("1s panic", count=1, guest_faults=GuestFaults.TASK)
    (fork,) = suite.run_until_final(suite.start(given))["forks"]
    assert (fork["outcome"], fork["reward"]) == ("failed", 0.0)


@pytest.mark.parametrize(
    ("cause", "signal", "outcome"),
    [
        (DeathCause.SIGNAL, 9, "env_failed"),
        (DeathCause.KEEPER_LOST, None, "env_failed"),
        (DeathCause.SIGNAL, 11, "failed"),
        (DeathCause.EXIT, None, "failed"),
    ],
)
def test_a_task_that_answers_for_its_machine_does_not_for_one_that_is_killed_from_outside(
    suite: Stage, cause: DeathCause, signal: int | None, outcome: str
) -> None:
    run_id = suite.start(spec("50s", count=1, guest_faults=GuestFaults.TASK))
    suite.run_for(3)
    (fork,) = suite.ports.runs.forks(run_id)
    suite.world.die(fork.attempt_id or "", cause, signal)
    (ended,) = suite.run_until_final(run_id)["forks"]
    assert (ended["outcome"], ended["failure"]["kind"]) == (outcome, "guest_lost")
    assert ended["reward"] == (0.0 if outcome == "failed" else None)


def test_a_command_that_shuts_its_machine_down_failed(suite: Stage) -> None:
    (fork,) = suite.run_until_final(suite.start(spec("1s poweroff", count=1)))["forks"]
    assert (fork["outcome"], fork["reason"]) == ("failed", "command_shut_down")


def test_own_exit_codes_are_environment_failures(suite: Stage) -> None:
    given = spec(count=1, exec=sim("1s exit 75", environment_exit_codes=(75,)))
    (fork,) = suite.run_until_final(suite.start(given))["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "reported_by_command")


def test_replacements_end(suite: Stage) -> None:
    suite.world.fault("restore", FailureKind.RESTORE_FAILED, times=50)
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 100)
    page = suite.run_until_final(suite.start(spec(count=1, environment_retries=0)))
    add_up(page)
    assert page["forks"][0]["outcome"] == "env_failed"
    assert page["forks"][0]["attempts"] == 1


def test_a_grade_decides(suite: Stage) -> None:
    given = spec("1s exit 9", count=1, grade=sim("1s exit 0"))
    (fork,) = suite.run_until_final(suite.start(given))["forks"]
    assert fork["outcome"] == "passed"


def test_a_binding_cap_ends_what_it_cannot_fund(suite: Stage) -> None:
    given = spec(count=4, exec=sim("5000s", timeout_s=9000), cap_usd=0.004, environment_retries=0)
    page = suite.run_until_final(suite.start(given))
    add_up(page)
    assert page["totals"]["capped"] == 4
    assert {fork["reason"] for fork in page["forks"]} == {"run_exhausted"}
    assert all(fork["reward"] is None for fork in page["forks"])
    assert page["cost"]["total_usd"] > 0.9 * 0.004


def test_money_that_one_fork_frees_funds_the_others(suite: Stage) -> None:
    given = spec(count=2, exec=sim("400s", timeout_s=9000), cap_usd=0.008, environment_retries=0)
    run_id = suite.start(given)
    suite.run_for(10)
    first = suite.ports.runs.forks(run_id)[0]
    suite.world.die(first.attempt_id or "", DeathCause.SIGNAL, 9)
    page = suite.run_until_final(run_id)
    add_up(page)
    assert page["totals"] | {"passed": 1, "env_failed": 1} == page["totals"]


def test_a_quote_is_what_the_run_costs_at_most(suite: Stage) -> None:
    given = spec("30s", count=5)
    quoted: dict[str, Any] = quote.quote(suite.ports, PROJECT, given).as_dict()
    answer = start.start(suite.ports, PROJECT, given, str(quoted["quote_id"]), None)
    assert answer["quote"] == quoted
    page = suite.run_until_final(str(answer["run_id"]))
    assert 0 < page["cost"]["total_usd"] <= quoted["max_cost_usd"] <= quoted["worst_case_usd"]


def test_quotes_hold_for_their_arguments_and_their_time(suite: Stage) -> None:
    given = spec()
    held = quote.quote(suite.ports, PROJECT, given)
    with pytest.raises(Conflict, match="other arguments"):
        start.start(suite.ports, PROJECT, spec(count=3), held.quote_id, None)
    suite.clock.advance(3600)
    with pytest.raises(Conflict, match="expired"):
        start.start(suite.ports, PROJECT, given, held.quote_id, None)


def test_the_same_key_starts_one_run(suite: Stage) -> None:
    token = Token("once", "body")
    first = start.start(suite.ports, PROJECT, spec(), None, token)
    assert start.start(suite.ports, PROJECT, spec(), None, token) == first
    with pytest.raises(Conflict) as refused:
        start.start(suite.ports, PROJECT, spec(count=9), None, Token("once", "other"))
    assert refused.value.code == "idempotency_mismatch"


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ({"cap_usd": 0.000001}, BadRequest, "cap_too_small"),
        ({"count": 0}, BadRequest, "count_out_of_range"),
        ({"count": 2001}, BadRequest, "count_out_of_range"),
        ({"egress": ("evil.example:80",)}, Forbidden, "egress_not_allowed"),
    ],
)
def test_bad_arguments(suite: Stage, change: dict, kind: type, code: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(kind) as refused:
        suite.start(spec(**change))
    assert getattr(refused.value, "code", None) == code


def test_an_unknown_snapshot(stage: Stage) -> None:
    with pytest.raises(NotFound):
        stage.start(spec())


def test_the_smallest_cap_works_and_less_does_not(suite: Stage) -> None:
    with pytest.raises(BadRequest) as refused:
        suite.start(spec(cap_usd=0.000002))
    smallest = float(str(refused.value.details["smallest_cap_usd"]))
    suite.start(spec(cap_usd=smallest))
    with pytest.raises(BadRequest):
        suite.start(spec(cap_usd=smallest - 0.000001))


def test_forks_that_differ_all_live_on_a_cap_at_their_worst_case(suite: Stage) -> None:
    """An equal share is less than the neediest of them must have to start: it waits for what the others leave."""
    suite.build(definition(name="slow-suite", test=sim("300s", timeout_s=600)))
    groups = (Group("task-suite", 4), Group("slow-suite", 1))
    asked = spec(
        groups=groups, exec=sim("1s", timeout_s=2), environment_retries=0, verify_each=True
    )
    # 30 s to restore, 60 or 600 s of own test, 2 s of work, at 10 micro-dollars a second.
    worst = (4 * 92 + 632) * 10
    with pytest.raises(BadRequest, match="smallest cap that works"):
        quote.quote(suite.ports, PROJECT, replace(asked, cap_micros=worst - 1))
    run_id = suite.start(replace(asked, cap_micros=worst))
    slow = suite.ports.runs.forks(run_id)[-1]
    assert slow.grant_micros < slow.smallest_micros
    page = suite.run_until_final(run_id)
    add_up(page)
    assert page["totals"]["passed"] == 5


def test_cancel_ends_everything_once(suite: Stage) -> None:
    run_id = suite.start(spec("50s", count=3))
    suite.run_for(5)
    stop.cancel(suite.ports, PROJECT, run_id)
    stop.cancel(suite.ports, PROJECT, run_id)
    page = suite.run_until_final(run_id)
    add_up(page)
    assert page["totals"]["cancelled"] == 3
    assert suite.host.machines.known() == ()


def test_a_run_larger_than_its_room_waits_in_order(suite: Stage) -> None:
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 2)
    page = suite.run_until_final(suite.start(spec("5s", count=7)))
    assert page["totals"]["passed"] == 7


def test_few_forks_come_up_at_once_and_the_others_cost_nothing_meanwhile(suite: Stage) -> None:
    suite.hosts["host0"] = replace(suite.host, forks_at_once=2)
    run_id = suite.start(spec("90s", count=6, verify_each=True, exec=sim("90s", timeout_s=200)))
    for seconds in range(1, 8):
        suite.run_for(1)
        states = [fork.state.value for fork in suite.ports.runs.forks(run_id)]
        assert states.count("checking") <= 2, seconds
    assert states.count("running") == 6
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 6
    # a second of test each, and not one second of waiting for it
    assert page["cost"]["verification_usd"] <= 6 * 0.00002


def test_forks_that_wait_too_long_are_environment_failures(suite: Stage) -> None:
    given = replace(spec("500s", count=1, exec=sim("500s", timeout_s=900)))
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 1)
    suite.start(given)
    suite.run_for(5)
    waiting = suite.start(spec(count=1, queue_timeout_ns=60 * 1_000_000_000))
    page = suite.run_until_final(waiting)
    add_up(page)
    (fork,) = page["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "no_capacity")
    assert fork["cost_usd"] == 0


def test_duplicate_entropy_is_refused(suite: Stage) -> None:
    run_id = suite.start(spec(count=1, environment_retries=0))
    other = suite.start(spec(count=2, environment_retries=0))
    suite.world.samples = SameSample()
    page = suite.run_until_final(other)
    assert page["totals"] | {"passed": 1, "env_failed": 1} == page["totals"]
    (failed,) = page["environment_failures"]
    assert failed["kind"] == "barrier_failed"
    assert "sample" in failed["evidence"]
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def test_a_fork_without_randomness_has_failed_its_barrier(suite: Stage) -> None:
    suite.world.samples = SameSample(shown="0" * 32)
    page = suite.run_until_final(suite.start(spec(count=1, environment_retries=0)))
    (failed,) = page["environment_failures"]
    assert (failed["kind"], failed["phase"]) == ("barrier_failed", "barrier")
    assert failed["evidence"]["probe"] == "entropy"


class SameSample(dict[str, str]):
    """Every machine shows this."""

    def get(self, key: str, default: object = None) -> str:
        return self.setdefault("shown", "ab" * 16)
