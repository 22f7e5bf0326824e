"""`promigence-server doctor`: what is wrong with a stack, and what of it can be mended here and now."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from workers.command import HERE, Dir, Json, needs_stack
from workers.table import table

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from workers.examination import Finding, Report

COLUMNS = ("what", "name", "age s", "seen", "remedy")
FOUND = 1


def doctor(
    directory: Dir = HERE,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended.")] = False,
    as_json: Json = False,
) -> None:
    """Look for what leaked and for what the stack lacks, running or not. What is in use, young, or another stack's is
    never touched. Exit code 1 if anything is wrong (with --fix: if anything could not be mended).
    """
    from workers.examination import examine

    needs_stack(directory)
    report = examine(directory, fix=fix)
    typer.echo(json.dumps(_told(report), indent=2) if as_json else _shown(report))
    if not report.clean:
        raise typer.Exit(FOUND)


def _told(report: Report) -> dict[str, object]:
    return {
        "clean": report.clean,
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "notes": report.notes,
    }


def _shown(report: Report) -> str:
    lines = [f"note: {note}" for note in report.notes]
    if not report.findings:
        return "\n".join([*lines, "nothing is wrong"])
    return "\n".join([*lines, table(COLUMNS, map(_row, report.findings))])


def _row(finding: Finding) -> tuple[object, ...]:
    age = None if finding.age_seconds is None else f"{finding.age_seconds:.0f}"
    remedy = "mended" if finding.mended else finding.remedy
    return finding.kind, finding.name, age, finding.detail, remedy
