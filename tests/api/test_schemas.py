"""What may come in: every limit has a test that fails without it, and what is refused is named by its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.api.schemas.command import MAX_COMMAND_BYTES, HeldCommand
from app.api.schemas.fork import ReleaseBody
from app.api.schemas.run import QuoteBody, StartBody
from app.api.schemas.snapshot import BuildBody
from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND
from app.domain.run import ExecSpec, Group, GuestFaults, RunSpec, StopWhen
from app.domain.snapshot import Definition, Upload

STEP: dict[str, Any] = {
    "snapshot": "task-suite",
    "count": 20,
    "spend_cap": 1.0,
    "exec": {"sh": "true"},
}
DEFINITION: dict[str, Any] = {"name": "task-suite", "image": "debian-12", "test": {"sh": "true"}}
SHA256 = "0" * 64


def _refused(model: type[BaseModel], body: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body)
    return [".".join(map(str, fault["loc"])) for fault in refused.value.errors()]


def test_a_step_becomes_the_spec_that_it_says() -> None:
    body = StartBody.model_validate(
        {
            **STEP,
            "exec": {
                "sh": "python -m rollout",
                "cwd": "/workspace",
                "env": {"B": "2", "A": "1"},
                "user": "agent",
                "timeout_seconds": 1.5,
                "environment_exit_codes": [75, 70, 75],
            },
            "grade": {
                "argv": ["grade", "--all"],
                "environment_exit_codes": [75],
                "result_required": True,
            },
            "verify_each": False,
            "environment_retries": 1,
            "rerun_started": True,
            "guest_faults": "task",
            "egress": ["policy.internal:8000"],
            "labels": {"step": "17"},
            "queue_timeout_seconds": 60,
            "stop_when": {"env_failed_share": 0.2},
        }
    )
    assert body.to_spec() == RunSpec(
        groups=(Group("task-suite", 20),),
        cap_micros=1_000_000,
        exec=ExecSpec(
            argv=("/bin/sh", "-c", "python -m rollout"),
            cwd="/workspace",
            env=(("A", "1"), ("B", "2")),
            user="agent",
            timeout_ns=1_500_000_000,
            environment_exit_codes=(70, 75),
        ),
        grade=ExecSpec(argv=("grade", "--all"), environment_exit_codes=(75,), result_required=True),
        verify_each=False,
        environment_retries=1,
        rerun_started=True,
        guest_faults=GuestFaults.TASK,
        egress=("policy.internal:8000",),
        labels=(("step", "17"),),
        queue_timeout_ns=60 * NS_PER_SECOND,
        stop_when=StopWhen(0.2),
    )


def test_what_is_left_out_takes_the_defaults_of_the_domain() -> None:
    said = StartBody.model_validate(STEP).to_spec()
    command = ExecSpec(("/bin/sh", "-c", "true"))
    assert said == RunSpec(groups=(Group("task-suite", 20),), cap_micros=1_000_000, exec=command)


def test_groups_and_a_hold_become_a_spec() -> None:
    body = {
        "groups": [
            {"snapshot": "a@3", "count": 16, "key": "prompt-17", "env": {"SEED": "17"}},
            {"snapshot": "b", "count": 1},
        ],
        "spend_cap": 2,
        "hold_seconds": 600,
    }
    said = StartBody.model_validate(body).to_spec()
    assert said.groups == (Group("a@3", 16, "prompt-17", (("SEED", "17"),)), Group("b", 1))
    assert (said.exec, said.hold_ns, said.count) == (None, 600 * NS_PER_SECOND, 17)


def test_a_quote_may_leave_its_command_open_and_a_start_may_not() -> None:
    body = {"snapshot": "task-suite", "count": 20, "spend_cap": 1.0}
    open_command = QuoteBody.model_validate(body).to_spec().exec
    assert open_command == ExecSpec(argv=())
    assert _refused(StartBody, body) == [""]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"snapshot": "Task"}, "snapshot"),
        ({"snapshot": "-task"}, "snapshot"),
        ({"snapshot": "a" * 64}, "snapshot"),
        ({"snapshot": "task@0"}, "snapshot"),
        ({"snapshot": "task\n"}, "snapshot"),
        ({"count": "20"}, "count"),
        ({"count": 2.5}, "count"),
        ({"count": True}, "count"),
        ({"spend_cap": 0}, "spend_cap"),
        ({"spend_cap": -1}, "spend_cap"),
        ({"spend_cap": 1e-7}, "spend_cap"),
        ({"spend_cap": 1e12}, "spend_cap"),
        ({"spend_cap": float("nan")}, "spend_cap"),
        ({"spend_cap": float("inf")}, "spend_cap"),
        ({"spend_cap": "1"}, "spend_cap"),
        ({"hold_seconds": 60}, ""),
        ({"exec": {}}, "exec"),
        ({"exec": {"sh": "true", "argv": ["true"]}}, "exec"),
        ({"exec": {"sh": "true", "timeout_seconds": 0}}, "exec.timeout_seconds"),
        ({"exec": {"sh": "true", "timeout_seconds": 604_801}}, "exec.timeout_seconds"),
        ({"exec": {"sh": "true", "timeout_seconds": float("nan")}}, "exec.timeout_seconds"),
        ({"exec": {"sh": "x" * (MAX_COMMAND_BYTES + 1)}}, "exec"),
        ({"exec": {"sh": "true", "env": {"A": "x" * 32_769}}}, "exec.env.A"),
        ({"exec": {"sh": "true", "env": {f"A{n}": "x" * 1000 for n in range(200)}}}, "exec"),
        ({"exec": {"sh": "true", "env": {str(n): "" for n in range(257)}}}, "exec.env"),
        ({"exec": {"sh": "true", "env": {"A=B": ""}}}, "exec.env.A=B.[key]"),
        ({"exec": {"sh": "a\0b"}}, "exec.sh"),
        ({"exec": {"sh": "\ud800"}}, "exec.sh"),
        ({"exec": {"argv": []}}, "exec.argv"),
        ({"exec": {"argv": [""]}}, "exec"),
        ({"exec": {"sh": "true", "cwd": "relative"}}, "exec.cwd"),
        ({"exec": {"sh": "true", "cwd": "/a/../b"}}, "exec.cwd"),
        ({"exec": {"sh": "true", "user": "a b"}}, "exec.user"),
        ({"exec": {"sh": "true", "environment_exit_codes": [0]}}, "exec.environment_exit_codes.0"),
        (
            {"exec": {"sh": "true", "environment_exit_codes": [256]}},
            "exec.environment_exit_codes.0",
        ),
        ({"grade": {"sh": "true", "result_required": "maybe"}}, "grade.result_required"),
        ({"exec": {"sh": "true", "result_required": True}}, "exec.result_required"),
        ({"environment_retries": -1}, "environment_retries"),
        ({"environment_retries": 11}, "environment_retries"),
        ({"guest_faults": "mine"}, "guest_faults"),
        ({"egress": ["policy.internal"]}, "egress.0"),
        ({"egress": ["*.internal:80"]}, "egress.0"),
        ({"egress": [f"h{n}:80" for n in range(65)]}, "egress"),
        ({"labels": {str(n): "x" for n in range(33)}}, "labels"),
        ({"labels": {"a=b": "x"}}, "labels.a=b.[key]"),
        ({"labels": {"a": "x" * 256}}, "labels.a"),
        ({"queue_timeout_seconds": 0}, "queue_timeout_seconds"),
        ({"stop_when": {"env_failed_share": 0}}, "stop_when.env_failed_share"),
        ({"stop_when": {"env_failed_share": 1.01}}, "stop_when.env_failed_share"),
        ({"stop_when": {"env_failed_share": float("nan")}}, "stop_when.env_failed_share"),
        ({"stop_when": {"env_failed_share": "0.2"}}, "stop_when.env_failed_share"),
        ({"stop_when": {}}, "stop_when.env_failed_share"),
        ({"stop_when": {"env_failed_share": 0.2, "failed": 1}}, "stop_when.failed"),
        ({"cuont": 1}, "cuont"),
        ({"groups": [{"snapshot": "a", "count": 1}]}, ""),
        ({"snapshot": None}, ""),
        ({"count": None}, ""),
    ],
)
def test_a_step_that_is_refused_says_where(change: dict[str, Any], path: str) -> None:
    assert _refused(StartBody, {**STEP, **change}) == [path]


def test_groups_have_limits_and_counts_of_their_own() -> None:
    step = {"spend_cap": 1.0, "hold_seconds": 1}
    group = {"snapshot": "a", "count": 1}
    assert _refused(StartBody, {**step, "groups": []}) == ["groups"]
    assert _refused(StartBody, {**step, "groups": [group] * 1001}) == ["groups"]
    assert _refused(StartBody, {**step, "groups": [group], "count": 2}) == [""]
    assert _refused(StartBody, {**step, "groups": [{**group, "kye": "x"}]}) == ["groups.0.kye"]
    assert (
        len(StartBody.model_validate({**step, "groups": [group] * 1000}).to_spec().groups) == 1000
    )


def test_the_longest_command_that_linux_takes_is_taken() -> None:
    sh = "x" * (MAX_COMMAND_BYTES - len("/bin/sh-c"))
    assert HeldCommand.model_validate({"sh": sh}).to_spec().argv[2] == sh
    assert _refused(HeldCommand, {"sh": sh + "x"}) == [""]
    assert _refused(HeldCommand, {"sh": "\u00e9" * (MAX_COMMAND_BYTES // 2 + 1)}) == [""]


@pytest.mark.parametrize("exec_id", ["", "x" * 65, "a/b", "a b", "\u00e9"])
def test_an_exec_id_is_a_plain_word(exec_id: str) -> None:
    assert _refused(HeldCommand, {"sh": "true", "exec_id": exec_id}) == ["exec_id"]


def test_a_reward_is_a_finite_number() -> None:
    assert ReleaseBody.model_validate({"passed": None, "reward": 0.5}).reward == 0.5
    for reward in ("NaN", "Infinity", "1e999", '"1"', "true"):
        body = json.loads(f'{{"reward": {reward}}}')
        assert _refused(ReleaseBody, body) == ["reward"]


def test_a_definition_becomes_what_it_says() -> None:
    body = BuildBody.model_validate(
        {
            "definition": {
                "name": "task-suite",
                "image": "debian-12",
                "shape": {"vcpus": 2, "memory_mib": 1024, "disk_gib": 8},
                "setup": ["make"],
                "warm": ["serve &"],
                "on_fork": ["reseed"],
                "test": {"sh": "pytest", "timeout_seconds": 300, "repeat": 3},
                "build_egress": ["mirror.internal:80"],
                "egress": ["policy.internal:8000"],
                "spend_cap": 0.5,
            },
            "files": [{"guest_path": "/workspace/repo", "sha256": SHA256}],
        }
    )
    shell = ("/bin/sh", "-c")
    assert body.to_definition() == Definition(
        name="task-suite",
        image="debian-12",
        shape=Shape(2, 1024, 8),
        test=ExecSpec((*shell, "pytest"), timeout_ns=300 * NS_PER_SECOND),
        repeat=3,
        files=(Upload("/workspace/repo", SHA256),),
        setup=(ExecSpec((*shell, "make"), timeout_ns=1800 * NS_PER_SECOND),),
        warm=(ExecSpec((*shell, "serve &"), timeout_ns=300 * NS_PER_SECOND),),
        on_fork=(ExecSpec((*shell, "reseed"), timeout_ns=30 * NS_PER_SECOND),),
        build_egress=("mirror.internal:80",),
        egress=("policy.internal:8000",),
        cap_micros=500_000,
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "Task"}, "definition.name"),
        ({"name": "task@1"}, "definition.name"),
        ({"image": ""}, "definition.image"),
        ({"files": {"./a": "/a"}}, "definition.files"),
        ({"shape": {"vcpus": 0}}, "definition.shape.vcpus"),
        ({"shape": {"memory_mb": 512}}, "definition.shape.memory_mb"),
        ({"test": {"sh": "true", "repeat": 0}}, "definition.test.repeat"),
        ({"test": {"sh": "true", "repeat": 21}}, "definition.test.repeat"),
        ({"test": None}, "definition.test"),
        ({"setup": "make"}, "definition.setup"),
        ({"setup": [""]}, "definition.setup.0"),
        ({"setup": ["true"] * 101}, "definition.setup"),
        ({"warm": ["a\0"]}, "definition.warm.0"),
        ({"build_egress": ["mirror"]}, "definition.build_egress.0"),
        ({"spend_cap": 0}, "definition.spend_cap"),
    ],
)
def test_a_definition_that_is_refused_says_where(change: dict[str, Any], path: str) -> None:
    assert _refused(BuildBody, {"definition": {**DEFINITION, **change}}) == [path]


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ([{"guest_path": "relative", "sha256": SHA256}], "files.0.guest_path"),
        ([{"guest_path": "/a/./b", "sha256": SHA256}], "files.0.guest_path"),
        ([{"guest_path": "/a", "sha256": SHA256.replace("0", "A")}], "files.0.sha256"),
        ([{"guest_path": "/a", "sha256": "0" * 63}], "files.0.sha256"),
        ([{"guest_path": "/a", "sha256": SHA256}] * 2, ""),
    ],
)
def test_files_that_are_refused_say_where(files: list[dict[str, str]], path: str) -> None:
    assert _refused(BuildBody, {"definition": DEFINITION, "files": files}) == [path]


def test_two_uploads_may_go_under_one_directory() -> None:
    files = [{"guest_path": "/a", "sha256": digit * 64} for digit in "01"]
    body = BuildBody.model_validate({"definition": DEFINITION, "files": files})
    assert len(body.to_definition().files) == 2
