"""How a drill of a real stack ends when it is interrupted, has no stack to itself, or is answered no more."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

from rich.console import Console
from rich.markup import escape

from demo.stack import ENDING, kept_logs
from promigence import PromigenceError

T = TypeVar("T")


def completed(drill: Callable[[], T], directory: Path, console: Console) -> T:
    """What the drill found; `directory` is its stack's.

    Raises SystemExit, when its reason is said: 130 if the drill was interrupted, 1 if another one has the stack of this
    checkout, or if the stack did not answer.
    """
    for number in ENDING:
        signal.signal(number, _interrupt)
    try:
        return drill()
    except KeyboardInterrupt:
        console.print("interrupted; the stack is stopped")
        raise SystemExit(130) from None
    except BlockingIOError:
        console.print("a demo or another drill runs in this checkout; its stack is left alone")
    except (PromigenceError, subprocess.SubprocessError) as error:
        console.print(f"[red]{escape(str(error))}[/red]; logs: {kept_logs(directory)}")
    raise SystemExit(1)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite end is an interruption: the stack is stopped on the way out."""
    raise KeyboardInterrupt
