"""`make demo`: the main job on real machines, and a check of everything that it claims.

    python -m demo [--json]

Exit status 0 when every claim held, else 1, and what differed is said. With `--json` the last line on
standard output is one JSON object: quote, report, capped_quote, capped_report, refused_snapshot,
timings, host.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo.environment import prepare
from demo.job import Job, Story
from demo.policy import serving
from demo.stack import ENDING, kept_logs, running
from demo.view import View
from promigence import PromigenceError

STACK_DIRECTORY = Path(".promigence/demo")


def main() -> int:
    """Prepare, start a stack, do the job, stop the stack; the exit status."""
    parser = argparse.ArgumentParser(prog="demo", description="the main job on real machines")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    as_json: bool = parser.parse_args().json
    view = View(Console(stderr=as_json))
    for number in ENDING:
        signal.signal(number, _interrupt)
    try:
        story, timings = demonstrate(view)
    except KeyboardInterrupt:
        view.say("interrupted; the stack is stopped")
        return 130
    except BlockingIOError:
        view.say("another demo runs in this checkout; its stack is left alone")
        return 1
    except (PromigenceError, subprocess.SubprocessError) as error:
        view.say(f"[red]{escape(str(error))}[/red]; its logs: {kept_logs(STACK_DIRECTORY)}")
        return 1
    for line in story.wrong:
        view.say(f"[red]not as claimed:[/red] {escape(line)}")
    if not story.wrong:
        view.say(f"[green]every claim held[/green], in {timings['total']:.0f} s")
    if as_json:
        print(json.dumps(answer(story, timings)))
    return 1 if story.wrong else 0


def demonstrate(view: View) -> tuple[Story, dict[str, float]]:
    """The whole job, and how many seconds each part of it took."""
    timings: dict[str, float] = {}
    with timed(timings, "total"):
        with timed(timings, "prepare"):
            hidden = (prepare() / "hidden" / "test_hidden.py").read_text()
        starting = time.monotonic()
        with serving(hidden) as policy, running(STACK_DIRECTORY, policy.address) as stack:
            timings["stack_up"] = time.monotonic() - starting
            view.say(f"the stack is up: {', '.join(part['name'] for part in stack.parts())}")
            story = Job(stack, policy, view, timings).run()
            stopping = time.monotonic()
        timings["stack_down"] = time.monotonic() - stopping
    return story, timings


def answer(story: Story, timings: dict[str, float]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "quote": story.quote,
        "report": story.report,
        "capped_quote": story.capped_quote,
        "capped_report": story.capped_report,
        "refused_snapshot": story.refused_snapshot,
        "timings": {name: round(seconds, 3) for name, seconds in timings.items()},
        "host": story.host,
    }


@contextmanager
def timed(timings: dict[str, float], name: str) -> Iterator[None]:
    """Note the seconds that the block took."""
    started = time.monotonic()
    yield
    timings[name] = time.monotonic() - started


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite end is an interruption: the stack is stopped on the way out."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
