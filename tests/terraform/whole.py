"""What there is of a deployment after the tests of its root, which take seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.terraform.account import Account
from tests.terraform.bindings import alone
from tests.terraform.program import Terraform


@dataclass(frozen=True, slots=True)
class Whole:
    """What is there after a root's tests: resources, all that Terraform said of them, what the account was given."""

    resources: list[dict[str, Any]]
    text: str
    passwords: dict[str, str]
    secrets: dict[str, list[str]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each["values"] for each in self.resources if each["type"] == kind]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = (
            each["values"]
            for each in self.resources
            if (each["type"], each["name"]) == (kind, name)
        )
        return dict(found)

    @property
    def control(self) -> dict[str, str]:
        """What a control instance fetches."""
        secret = self.one("aws_secretsmanager_secret", "control")
        found: dict[str, str] = json.loads(self.secrets[secret["id"]][-1])
        return found


def of_root(terraform: Terraform, account: Account, folder: Path, kept: Path) -> Whole:
    """Of all processes that run tests one runs the root's, and keeps what came of them at `kept`."""
    with alone(kept.with_suffix(".lock")):
        if not kept.exists():
            kept.write_text(json.dumps(asdict(_tested(terraform, account, folder))))
    return Whole(**json.loads(kept.read_text()))


def _tested(terraform: Terraform, account: Account, folder: Path) -> Whole:
    terraform.initialise(folder)
    done = terraform.run(folder, "test", "-json", "-verbose")
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    states = [each["test_state"] for each in said if each["type"] == "test_state"]
    found = (list(_below(state["root_module"])) for state in states)
    made = next(
        each for each in found if any(one["type"] == "aws_autoscaling_group" for one in each)
    )
    return Whole(made, done.stdout + done.stderr, account.passwords, account.secrets)


def _below(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from module.get("resources", ())
    for child in module.get("child_modules", ()):
        yield from _below(child)
