"""One command's life: a client, what it prints and where, and how its errors end it.

Results go to stdout, everything else (progress, advice, errors) to stderr; with `--json` stdout carries one JSON
document and nothing more, an error included.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from promigence.cli.exits import ExitCode, code_of_error
from promigence.client import Promigence
from promigence.errors import PromigenceError

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout; progress on stderr.")
]

PIPE_COLUMNS = 400
# Folded text is not narrower.
PROSE_COLUMNS = 16
GAP = 2
# Plain digits, as counts and amounts are printed.
NUMBER = re.compile(r"[-+]?\$?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Session:
    """A client and two consoles."""

    client: Promigence
    as_json: bool
    out: Console
    err: Console

    def give(self, result: Any, *shown: RenderableType) -> None:
        """The command's result: as JSON, or as it is shown to a person."""
        if self.as_json:
            print(json.dumps(result, indent=2))
            return
        for one in shown:
            self.out.print(one)

    def say(self, *shown: RenderableType) -> None:
        """Something beside the result."""
        for one in shown:
            self.err.print(one)


@dataclass(frozen=True, slots=True)
class WholeTable:
    """A table that is never narrower than `least` characters: a terminal wraps what it has no room for."""

    drawn: Table
    least: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, self.least)
        yield from console.render(self.drawn, options.update(width=width))


@contextmanager
def session(ctx: typer.Context, as_json: bool) -> Iterator[Session]:
    """Everything that a command needs, given back at its end. Ends the process with the exit code of an error."""
    out, err = consoles()
    connect: Callable[[], Promigence] = ctx.obj or Promigence
    try:
        with connect() as client:
            yield Session(client, as_json, out, err)
    except PromigenceError as error:
        _tell(error, as_json, err)
        raise typer.Exit(code_of_error(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        err.print(_red("error"), plain(str(error)))
        raise typer.Exit(ExitCode.BAD_USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def consoles() -> tuple[Console, Console]:
    """Stdout and stderr, as they are now; what comes from a guest is never read as markup."""
    return _console(stderr=False), _console(stderr=True)


def plain(text: str) -> Text:
    """Text of unknown origin as a terminal may have it: no control character but newline and tab."""
    return Text("".join(one if one.isprintable() or one in "\n\t" else "�" for one in text))


def table(*columns: str, rows: list[tuple[Any, ...]], prose: str = "") -> RenderableType:
    """Columns as wide as what is in them, numbers to the right, `-` for None.

    Only the column named `prose` is folded where a terminal is narrow: an id or a date can always be copied.
    """
    if not rows:
        return Text("none", style="dim")
    cells = [[plain("-" if cell is None else str(cell)) for cell in row] for row in rows]
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    least = -GAP
    for name, column in zip(columns, zip(*cells, strict=True), strict=True):
        widest = max(len(name), *(cell.cell_len for cell in column))
        width = min(widest, PROSE_COLUMNS) if name == prose else widest
        justify: JustifyMethod = "right" if _are_numbers(column) else "left"
        drawn.add_column(
            name, justify=justify, overflow="fold", min_width=width, no_wrap=name != prose
        )
        least += width + GAP
    for row_cells in cells:
        drawn.add_row(*row_cells)
    return WholeTable(drawn, least)


def moment(told: str) -> str:
    """An instant of the wire as it stands in a table: to the second."""
    return re.sub(r"\.[0-9]+", "", told)


def usd(amount: float) -> str:
    """Dollars: to the micro-dollar below one, fewer places where the amount is large."""
    return f"${amount:.{6 if amount < 1 else 4 if amount < 100 else 2}f}"


def exact_usd(amount: float) -> str:
    """Dollars to the micro-dollar, so that parts are seen to add up."""
    return f"${amount:.6f}"


def _are_numbers(cells: Iterable[Text]) -> bool:
    told = [cell.plain for cell in cells if cell.plain not in ("-", "")]
    return bool(told) and all(map(NUMBER.fullmatch, told))


def _console(*, stderr: bool) -> Console:
    """A terminal has its width; a pipe gets lines as long as they are."""
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    return console


def _tell(error: PromigenceError, as_json: bool, err: Console) -> None:
    if as_json:
        told = {
            "code": error.code,
            "message": error.message,
            "status": error.status,
            "retryable": error.retryable,
            "request_id": error.request_id,
            "details": error.details,
        }
        print(json.dumps({"error": told}, indent=2))
    err.print(_red("error"), plain(str(error)))
    for name in ("check", "output", "reproduce"):
        if error.details.get(name):
            err.print(Text(f"{name}:", style="bold"), plain(str(error.details[name]).rstrip()))


def _red(text: str) -> Text:
    return Text(f"{text}:", style="bold red")


def write_raw(stdout: str, stderr: str) -> None:
    """A guest's output: as it is into a pipe or a file, without control characters onto a terminal."""
    for stream, text in ((sys.stdout, stdout), (sys.stderr, stderr)):
        stream.write(plain(text).plain if stream.isatty() else text)
        stream.flush()
