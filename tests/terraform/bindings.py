"""Where the schema comes from: a package of generated bindings, fetched by its hash, read for the types in use."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.terraform import schema
from tests.terraform.schema import Block

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
# A download of 71 MB; on a slow line it is had at the second try.
FETCH_SECONDS = 280
KINDS = {"resource": "", "data": "data-aws-", "ephemeral": "ephemeral-aws-"}
# By kind, one of those, and name, as in aws_vpc; the provider's own configuration is (provider, aws).
Types = dict[str, dict[str, Block]]
IN_USE = re.compile(r'^(resource|data|ephemeral)\s+"aws_(\w+)"', re.MULTILINE)


class Unavailable(Exception):
    """The package cannot be had here; says why."""


def types_of(modules: Path, cache: Path, requirements: Path = REQUIREMENTS) -> Types:
    """The provider's schema for itself and all types that files below `modules` use. Kept in `cache`.

    A type that the provider does not have is left out: Terraform itself then says where it is used.

    Raises:
        Unavailable: the package of bindings is not in `cache` and cannot be fetched.
    """
    used = frozenset(
        found for path in modules.rglob("*.tf") for found in IN_USE.findall(path.read_text())
    )
    sources = (requirements, Path(schema.__file__), Path(__file__))
    of = repr(sorted(used)).encode() + b"".join(path.read_bytes() for path in sources)
    kept = cache / f"schema-{hashlib.sha256(of).hexdigest()[:16]}.json"
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / "lock"):
        if not kept.exists():
            read = _read(used, _wheel(cache, requirements))
            for old in cache.glob("schema-*"):
                old.unlink()
            kept.write_text(json.dumps(read, default=asdict))
        return {
            kind: {name: schema.load(block) for name, block in blocks.items()}
            for kind, blocks in json.loads(kept.read_text()).items()
        }


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Inside, no other process is where this file locks it out."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _wheel(cache: Path, requirements: Path) -> Path:
    folder = cache / hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        coming = folder.with_suffix(".part")
        _fetch(coming, requirements)
        coming.rename(folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _fetch(folder: Path, requirements: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    what = [
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "-r",
        str(requirements),
        "-d",
        str(folder),
    ]
    try:
        subprocess.run(
            [*pip, *what], check=True, capture_output=True, text=True, timeout=FETCH_SECONDS
        )
    except subprocess.CalledProcessError as error:
        raise Unavailable(
            f"pip cannot fetch {requirements.name}: {error.stderr.strip()}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"pip has not fetched {requirements.name} in {FETCH_SECONDS} s"
        ) from error


def _read(used: frozenset[tuple[str, str]], wheel: Path) -> Types:
    folders = {
        f"{KINDS[kind]}{name.replace('_', '-')}": (kind, f"aws_{name}") for kind, name in used
    }
    types: Types = {kind: {} for kind in KINDS}
    bindings = dict(_bindings(wheel, {"provider", *folders}))
    for folder, (kind, name) in folders.items():
        if folder in bindings:
            types[kind][name] = schema.read(bindings[folder])
    return types | {"provider": {"aws": schema.read_provider(bindings["provider"])}}


def _bindings(wheel: Path, folders: set[str]) -> Iterator[tuple[str, str]]:
    names: Mapping[str, str] = {f"package/lib/{folder}/index.js": folder for folder in folders}
    with zipfile.ZipFile(wheel) as archive:
        (bundle,) = [name for name in archive.namelist() if name.endswith(".jsii.tgz")]
        with archive.open(bundle) as packed, tarfile.open(fileobj=packed, mode="r|gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.name in names else None
                if content is not None:
                    yield names[member.name], content.read().decode()
