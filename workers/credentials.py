"""`promigence-server credentials`: what this instance logs in with, from the account's secrets into files."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.errors import BadRequest, NotFound, Unavailable
from infra.settings import load, secret_file
from workers.command import HERE, Dir, Json

ASK_AGAIN_S = 5.0
# Of a secret's names: a file is called after each.
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)

Read = Callable[[str], dict[str, str]]


def credentials(
    secret: Annotated[
        str | None, typer.Option(help="The secret's name; this instance's own by default.")
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="For so many seconds it may not be there yet.")
    ] = 0,
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Write each value of a secret into a file of the secrets directory (`PROMIGENCE_SECRETS_DIR`), which every part
    reads as it starts. Files that are there stay until what follows them is.
    """
    from infra import wiring_access

    settings = load(directory)
    name = secret or wiring_access.own_secret(settings)
    found = fetched(name, wiring_access.secret_words(settings), wait)
    written = write(settings.secrets_dir, found)
    told = {"secret": name, "written": [path.name for path in written]}
    typer.echo(json.dumps(told) if as_json else f"{name}: {', '.join(told['written'])}")


def fetched(
    name: str,
    read: Read,
    wait_s: float,
    clock_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """The secret, as soon as it can be had.

    Raises NotFound(no_secret) or Unavailable when it cannot after `wait_s`; CloudRefused at once.
    """
    until_s = clock_s() + wait_s
    while True:
        try:
            return read(name)
        except (NotFound, Unavailable):
            left_s = until_s - clock_s()
            if left_s <= 0:
                raise
        pause(min(ASK_AGAIN_S, left_s))


def write(directory: Path, words: dict[str, str]) -> tuple[Path, ...]:
    """A file each, `promigence_<name>`, for nobody but this user; whole or not at all.

    Raises BadRequest(bad_secret) for a name that is none, and then writes nothing.
    """
    wrong = [name for name in words if NAME.fullmatch(name) is None]
    if wrong:
        raise BadRequest("bad_secret", f"the secret has {len(wrong)} names that no setting has")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tuple(_file(secret_file(directory, name), words[name]) for name in sorted(words))


def _file(path: Path, said: str) -> Path:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(said)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return path
