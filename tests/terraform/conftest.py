"""Terraform over a copy of terraform/, with a provider that has the real one's schema."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from docs.costs import ROOTS
from tests.terraform import bindings, program, stub, wire
from tests.terraform.account import Account
from tests.terraform.folders import ROOT
from tests.terraform.program import Terraform
from tests.terraform.whole import Whole, of_root

CACHE = ROOT / ".promigence" / "terraform"


@pytest.fixture(scope="session")
def types() -> bindings.Types:
    try:
        return bindings.types_of(ROOT / "terraform", CACHE)
    except bindings.Unavailable as error:
        unavailable(f"the aws provider's schema cannot be had: {error}")


@pytest.fixture(scope="session")
def account(types: bindings.Types) -> Account:
    return Account(types)


@pytest.fixture(scope="session")
def terraform(types: bindings.Types, account: Account) -> Iterator[program.Terraform]:
    binary = program.find()
    if binary is None:
        unavailable(
            "there is no terraform on this machine: install 1.11 or newer to have terraform/ checked"
        )
    # Not pytest's own: the path of a socket has at most 107 letters.
    with tempfile.TemporaryDirectory(prefix="terraform-") as scratch:
        socket = Path(scratch) / "provider"
        with stub.serving(wire.provider_schema(types), socket, account.answers()) as providers:
            yield program.Terraform(binary, Path(scratch), providers)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of terraform/, so that nothing that Terraform writes lands in the checkout."""
    return copied(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session", params=ROOTS)
def root(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def whole(
    terraform: Terraform,
    account: Account,
    tree: Path,
    root: str,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
) -> Whole:
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    return of_root(terraform, account, tree / "envs" / root, shared / f"{root}.json")


def copied(into: Path, name: str = "terraform") -> Path:
    return Path(
        shutil.copytree(
            ROOT / "terraform", into / name, ignore=shutil.ignore_patterns(".terraform*")
        )
    )


def unavailable(reason: str) -> NoReturn:
    """Says aloud that nothing was checked: a failure in CI, which must not be green for it, a skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; in CI that is a failure", pytrace=False)
    pytest.skip(reason)
