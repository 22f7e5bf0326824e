"""`promigence runs watch`: what happens in a run, line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.text import Text

from promigence.cli.exits import ExitCode, code_of_totals
from promigence.cli.session import AsJson, Session, moment, plain, session
from promigence.types import Event

STYLES = {
    "ready": "green",
    "attempt_failed": "magenta",
    "kept": "yellow",
    "replaced": "yellow",
    "stop_asked": "yellow",
    "run_stopped": "bold magenta",
    "run_started": "bold",
    "run_ended": "bold",
}


def watch(
    ctx: typer.Context,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")],
    after: Annotated[int, typer.Option(min=0, help="Go on after this event.")] = 0,
    as_json: AsJson = False,
) -> None:
    """What happens in a run, until it has ended. Ctrl-C lets go of it; it goes on. --json: an object a line."""
    with session(ctx, as_json) as here:
        heard = after
        try:
            for event in here.client.runs.events(run_id, after=after):
                _show(here, event)
                heard = event["number"]
        except KeyboardInterrupt:
            here.say(
                f"let go; the run goes on. Go on watching: promigence runs watch {run_id} --after {heard}"
            )
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        raise typer.Exit(code_of_totals(here.client.runs.get(run_id)["totals"]))


def line(event: Event) -> Text:
    """One event as a person reads it: its number, when, whose, and what."""
    whose = "run" if event["index"] is None else f"fork {event['index']}"
    head = f"{event['number']:>6}  {moment(event['at'])}  {whose:<9} "
    kind = Text(f"{plain(event['kind']).plain:<17}", style=STYLES.get(event["kind"], ""))
    return Text.assemble(head, kind, " ", plain(_what(event)))


def _show(here: Session, event: Event) -> None:
    if here.as_json:
        print(json.dumps(event), flush=True)
    else:
        here.out.print(line(event))


def _what(event: Event) -> str:
    """The facts that matter most; of a kind that this release does not know, its reason."""
    words = WORDS.get(event["kind"])
    told = str(event["reason"] or "") if words is None else words(event, event["data"])
    return " ".join(told.split())


def _started(_event: Event, data: dict[str, Any]) -> str:
    return f"{data.get('forks')} forks of {', '.join(data.get('snapshots', []))}"


def _placed(event: Event, _data: dict[str, Any]) -> str:
    return f"on {event['host']}: {event['reason']}"


def _restoring(event: Event, data: dict[str, Any]) -> str:
    return f"machine {data.get('attempt')} on {event['host']}"


def _ready(_event: Event, data: dict[str, Any]) -> str:
    return f"after {data.get('seconds', 0):.1f} s"


def _intended(_event: Event, data: dict[str, Any]) -> str:
    return str(data.get("purpose"))


def _command(_event: Event, data: dict[str, Any]) -> str:
    how = "ran past its limit" if data.get("timed_out") else f"exit code {data.get('exit_code')}"
    if data.get("refused"):
        how = f"refused: {data['refused']}"
    return f"{data.get('purpose')}: {how}"


def _failed(_event: Event, data: dict[str, Any]) -> str:
    failure = data.get("failure") or {}
    return f"{failure.get('kind')} in {failure.get('phase')}: {failure.get('message')}"


def _ended(event: Event, data: dict[str, Any]) -> str:
    reward = data.get("reward")
    told = f"{data.get('outcome')} ({event['reason']})"
    return told if reward is None else f"{told}, reward {reward}"


def _stopped(_event: Event, data: dict[str, Any]) -> str:
    return (
        f"the environment failed {data.get('env_failed')} forks, the share of "
        f"{data.get('env_failed_share')}: {data.get('forks')} others are stopped"
    )


def _run_ended(_event: Event, data: dict[str, Any]) -> str:
    outcomes = data.get("outcomes") or {}
    return ", ".join(f"{count} {name}" for name, count in outcomes.items())


WORDS: dict[str, Callable[[Event, dict[str, Any]], str]] = {
    "run_started": _started,
    "placed": _placed,
    "restoring": _restoring,
    "ready": _ready,
    "command_intended": _intended,
    "command_ended": _command,
    "attempt_failed": _failed,
    "fork_ended": _ended,
    "run_stopped": _stopped,
    "run_ended": _run_ended,
}
