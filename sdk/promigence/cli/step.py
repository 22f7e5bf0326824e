"""The options of a step, the same for `runs quote` and `runs start`, and what they say as arguments of the client."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from promigence.types import Exec, GradeExec, Group, StartTerms


@dataclass(frozen=True, slots=True)
class Step:
    """What is to run, and on which terms."""

    snapshot: str | Sequence[Group]
    terms: StartTerms


def usd_of(text: str) -> float:
    """An amount in plain digits. Raises typer.BadParameter for what only Python takes for one, such as 1_0 or nan."""
    if not re.fullmatch(r"[0-9]{1,30}(\.[0-9]{1,30})?", text):
        raise typer.BadParameter(f"{text!r} is no amount of USD, such as 2.50")
    return float(text)


def read_step(
    snapshot: Annotated[
        str | None, typer.Argument(help="A snapshot: NAME or NAME@VERSION.", show_default=False)
    ] = None,
    argv: Annotated[
        list[str] | None,
        typer.Argument(help="After --: the command as it is, without a shell.", show_default=False),
    ] = None,
    count: Annotated[int | None, typer.Option(help="How many forks.")] = None,
    spend_cap: Annotated[
        float | None,
        typer.Option(help="The most that the run may cost, USD.", parser=usd_of, metavar="USD"),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            help="A JSON file: a list of groups (snapshot, count, key, env) in place of SNAPSHOT."
        ),
    ] = None,
    sh: Annotated[str | None, typer.Option(help="The command, for /bin/sh -c.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Where the command runs in the guest.")] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="K=V in its environment; again for more.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="As whom it runs in the guest.")] = None,
    timeout: Annotated[float | None, typer.Option(help="The command's own limit, seconds.")] = None,
    environment_exit_code: Annotated[
        list[int] | None,
        typer.Option(
            help="An exit code by which the command reports a fault of its own infrastructure."
        ),
    ] = None,
    grade_sh: Annotated[
        str | None, typer.Option(help="A second command, which decides the outcome.")
    ] = None,
    grade_timeout: Annotated[float | None, typer.Option(help="Its limit, seconds.")] = None,
    grade_user: Annotated[str | None, typer.Option(help="As whom it runs in the guest.")] = None,
    grade_result_required: Annotated[
        bool | None,
        typer.Option(
            "--grade-result-required/--no-grade-result-required",
            help="Without a result file ($PROMIGENCE_RESULT) the grade has crashed.",
        ),
    ] = None,
    hold_seconds: Annotated[
        float | None,
        typer.Option(help="Hand the forks over for so long instead of running a command."),
    ] = None,
    verify_each: Annotated[
        bool | None,
        typer.Option("--verify-each/--no-verify-each", help="Run its own test in every fork."),
    ] = None,
    environment_retries: Annotated[
        int | None,
        typer.Option(help="How often a fork that failed before its command is replaced."),
    ] = None,
    rerun_started: Annotated[
        bool | None,
        typer.Option(
            "--rerun-started/--no-rerun-started", help="Also if its command may have started."
        ),
    ] = None,
    guest_faults: Annotated[
        str | None, typer.Option(help="Whose fault a dying guest is: environment or task.")
    ] = None,
    egress: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT that the forks may reach; again for more.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="K=V to find the run by; again for more.")
    ] = None,
    queue_timeout: Annotated[
        float | None, typer.Option(help="How long a fork may wait for a place, seconds.")
    ] = None,
    keep_failed: Annotated[
        int | None,
        typer.Option(help="Of the forks that fail, so many at a time keep their machines."),
    ] = None,
    stop_when_env_failed_share: Annotated[
        float | None,
        typer.Option(help="Stop the run when its environment failed such a share of its forks."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key starts the same run once.")
    ] = None,
) -> Step:
    """Raises typer.BadParameter for what does not go together."""
    if groups is not None and snapshot is not None:
        argv, snapshot = [snapshot, *(argv or [])], None
    if (snapshot is None) == (groups is None):
        raise typer.BadParameter("give a SNAPSHOT or --groups")
    exec_ = _given(
        sh=sh,
        argv=argv or None,
        cwd=cwd,
        env=_pairs("--env", env),
        user=user,
        timeout_seconds=timeout,
        environment_exit_codes=environment_exit_code or None,
    )
    terms = _given(
        count=count,
        spend_cap=spend_cap,
        verify_each=verify_each,
        exec=_command(exec_),
        grade=_grade(
            sh=grade_sh,
            timeout_seconds=grade_timeout,
            user=grade_user,
            result_required=grade_result_required,
        ),
        hold_seconds=hold_seconds,
        environment_retries=environment_retries,
        rerun_started=rerun_started,
        guest_faults=guest_faults,
        egress=egress or None,
        labels=_pairs("--label", label),
        queue_timeout_seconds=queue_timeout,
        keep_failed=keep_failed,
        stop_when=_given(env_failed_share=stop_when_env_failed_share) or None,
        idempotency_key=idempotency_key,
    )
    return Step(snapshot if groups is None else _read_groups(groups), terms)  # type: ignore[arg-type]


def with_step(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of a step; it gets the read `step` in their place."""
    options = inspect.signature(read_step, eval_str=True).parameters
    own = inspect.signature(function, eval_str=True).parameters
    rest = [one for name, one in own.items() if name != "step"]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        step = read_step(**{name: given.pop(name) for name in options})
        function(step=step, **given)

    # typer reads the signature; the wrapped function's own would win over it.
    parameters = [*options.values(), *rest]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    del command.__wrapped__
    return command


def command_of(
    sh: str | None,
    argv: list[str] | None,
    cwd: str | None,
    env: list[str] | None,
    user: str | None,
    timeout: float | None,
) -> Exec:
    """A held fork's command. Raises typer.BadParameter unless it is exactly one of `sh` and `argv`."""
    given = _given(
        sh=sh,
        argv=argv or None,
        cwd=cwd,
        env=_pairs("--env", env),
        user=user,
        timeout_seconds=timeout,
    )
    command = _command(given)
    if command is None:
        raise typer.BadParameter("give --sh, or a command after --")
    return command


def labels_of(label: list[str] | None) -> dict[str, str]:
    return _pairs("--label", label) or {}


def _command(given: dict[str, Any]) -> Exec | None:
    if not given:
        return None
    if ("sh" in given) == ("argv" in given):
        raise typer.BadParameter("give --sh, or a command after --, and not both")
    return given  # type: ignore[return-value]


def _grade(**options: Any) -> GradeExec | None:
    given = _given(**options)
    if given and "sh" not in given:
        raise typer.BadParameter("--grade-timeout, --grade-user and the like go with --grade-sh")
    return given or None


def _pairs(option: str, given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    pairs = [one.partition("=") for one in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise typer.BadParameter(f"{option} takes K=V")
    return {name: value for name, _, value in pairs}


def _read_groups(path: Path) -> list[Group]:
    try:
        told = json.loads(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"--groups: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"--groups: {path} is not JSON: {error}") from error
    if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
        raise typer.BadParameter(f"--groups: {path} is not a list of objects")
    return told


def _given(**options: Any) -> Any:
    return {name: value for name, value in options.items() if value is not None}
