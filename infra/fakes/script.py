"""The commands that a fake machine runs: `sim: 0.2s print hello exit 1`.

Words, in any number: `<seconds>s` (time passes), `print TEXT`, `error TEXT`, `env NAME` (prints the variable),
`exit N`, `signal N`, `result TEXT` (what a grade writes to its result file), and what becomes of the machine:
`crash` (its process dies), `panic`, `poweroff`, `hang` (never ends, never answers), `diskfull` (its host has no room
for what it wrote: it stands still), `oom` (its kernel panics for want of memory), `victim` (its kernel kills a process
outside of the command for that), `hostoom` (the host's kernel kills it). `$NAME` stands for the words in that variable,
so that the forks of one run may do different things. Texts follow shell quoting.
`true` and `false` are known too; anything else ends with 127, as a shell would.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

DURATION = re.compile(r"(\d+(?:\.\d+)?)s")


class Fate(StrEnum):
    """What a script does to its machine when its time is over."""

    NONE = "none"
    CRASH = "crash"
    PANIC = "panic"
    POWEROFF = "poweroff"
    HANG = "hang"
    DISKFULL = "diskfull"
    OOM = "oom"
    VICTIM = "victim"
    HOSTOOM = "hostoom"


@dataclass(frozen=True, slots=True)
class Script:
    duration_ns: int = 0
    exit_code: int | None = 0
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    fate: Fate = Fate.NONE


def parse(argv: tuple[str, ...], env: dict[str, str]) -> Script:
    """What a command does in a fake machine; never an error: a bad script ends with 127 and says why."""
    text = argv[-1] if argv[:2] == ("/bin/sh", "-c") else shlex.join(argv)
    plain = {"true": Script(), "false": Script(exit_code=1)}.get(text.strip())
    if plain is not None:
        return plain
    if not text.lstrip().startswith("sim:"):
        return _unknown(f"not found in a fake machine (it runs `sim:` scripts): {text}")
    try:
        return _script(_words(text.lstrip()[4:], env), env)
    except (ValueError, StopIteration):
        return _unknown(f"not a script: {text}")


def _words(text: str, env: dict[str, str]) -> Iterator[str]:
    for word in shlex.split(text):
        if word.startswith("$"):
            yield from shlex.split(env.get(word[1:], ""))
        else:
            yield word


def _script(words: Iterator[str], env: dict[str, str]) -> Script:
    duration_ns, exit_code, signal, fate = 0, 0, None, Fate.NONE
    result: str | None = None
    stdout: list[str] = []
    stderr: list[str] = []
    for word in words:
        duration = DURATION.fullmatch(word)
        if duration:
            duration_ns += int(float(duration[1]) * 1e9)
        elif word == "print":
            stdout.append(next(words))
        elif word == "error":
            stderr.append(next(words))
        elif word == "result":
            result = next(words)
        elif word == "env":
            stdout.append(env.get(next(words), ""))
        elif word == "exit":
            exit_code = int(next(words))
        elif word == "signal":
            signal = int(next(words))
        else:
            fate = Fate(word)
    return Script(
        duration_ns,
        None if signal is not None else exit_code,
        signal,
        _lines(stdout),
        _lines(stderr),
        result,
        fate,
    )


def _lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _unknown(message: str) -> Script:
    return Script(exit_code=127, stderr=message + "\n")
