"""An account that takes whatever it is given: the provider behind tests of what Terraform cannot mock.

Terraform's `mock_provider` refuses ephemeral resources, so whatever reads a secret is tested against this: resources
get a value for all that AWS would compute, and what is written into a secret is read back from it.
"""

from __future__ import annotations

import itertools
import secrets
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tests.terraform.bindings import Types
from tests.terraform.schema import Attribute, Block
from tests.terraform.stub import Answer
from tests.terraform.wire import fields, message, text

State = dict[str, Any]
UNKNOWN = msgpack.ExtType(0, b"\x00")
# What data sources say of the account, beside values that fit their types.
FACTS: dict[str, State] = {
    "aws_caller_identity": {"account_id": "111122223333"},
    "aws_partition": {"partition": "aws", "dns_suffix": "amazonaws.com"},
    "aws_region": {"region": "us-east-1", "name": "us-east-1"},
}
# How ARNs begin that a module looks at; others are of a service `test`.
ARNS = {
    "aws_kms_key": "arn:aws:kms:us-east-1:111122223333:key/",
    "aws_s3_bucket": "arn:aws:s3:::",
}
# Arguments that make another resource of one, where a test depends on it.
FIXED = {"aws_secretsmanager_secret_version": ("secret_id", "secret_string_wo_version")}


@dataclass(frozen=True, slots=True)
class Account:
    types: Types
    # By the secret's id: its versions, the newest last.
    secrets: dict[str, list[str]] = field(default_factory=dict)
    # By a database's identifier or a Redis user's id: the password that it was last given.
    passwords: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def answers(self) -> dict[str, Answer]:
        """What a provider is asked for, by the call's name in the plugin protocol."""
        return {
            # Here and below, fields of messages are those of tfplugin6.proto.
            "UpgradeResourceState": lambda asked: message(
                1, message(2, _field(_field(asked, 3), 1))
            ),
            "ReadResource": lambda asked: message(1, _field(asked, 2)),
            "PlanResourceChange": self._plan,
            "ApplyResourceChange": self._apply,
            "ReadDataSource": self._read,
            "OpenEphemeralResource": self._open,
            "CloseEphemeralResource": lambda _: b"",
        }

    def _plan(self, asked: bytes) -> bytes:
        name, prior, proposed = _field(asked, 1).decode(), _state(asked, 2), _state(asked, 3)
        planned = _answer(1, proposed and _planned(self.types["resource"][name], proposed))
        changed = [
            each
            for each in FIXED.get(name, ())
            if prior and proposed and prior[each] != proposed[each]
        ]
        return planned + b"".join(message(2, message(1, text(1, each))) for each in changed)

    def _apply(self, asked: bytes) -> bytes:
        name, planned = _field(asked, 1).decode(), _state(asked, 3)
        made = planned and self._valued(self.types["resource"][name], planned, name)
        if made:
            self._keep(name, made, given=_state(asked, 4) or {})
        return _answer(1, made)

    def _keep(self, name: str, made: State, given: State) -> None:
        if name == "aws_secretsmanager_secret_version":
            self.secrets.setdefault(made["secret_id"], []).append(given["secret_string_wo"])
        if name == "aws_db_instance":
            self.passwords[made["identifier"]] = given["password_wo"]
        if name == "aws_elasticache_user":
            self.passwords[made["user_id"]] = given["passwords_wo"]

    def _read(self, asked: bytes) -> bytes:
        name, given = _field(asked, 1).decode(), _state(asked, 2) or {}
        block = self.types["data"][name]
        return _answer(
            1, self._valued(block, _planned(block, FACTS.get(name, {}) | _set(given)), name)
        )

    def _open(self, asked: bytes) -> bytes:
        name, given = _field(asked, 1).decode(), _state(asked, 2) or {}
        block = self.types["ephemeral"][name]
        drawn = (
            {"random_password": _password(given["password_length"])}
            if "password_length" in given
            else {}
        )
        kept = {"secret_string": self._version(given)} if "secret_id" in given else {}
        return _answer(3, self._valued(block, _planned(block, _set(given) | drawn | kept), name))

    def _version(self, given: State) -> str:
        versions = self.secrets[given["secret_id"]]
        return versions[-2 if given["version_stage"] == "AWSPREVIOUS" else -1]

    def _valued(self, block: Block, state: State, name: str) -> State:
        valued = {
            each.name: self._value(each, name) if state[each.name] == UNKNOWN else state[each.name]
            for each in block.attributes
        }
        return valued | _nested(block, state, lambda inner, each: self._valued(inner, each, name))

    def _value(self, attribute: Attribute, name: str) -> object:
        if attribute.type != "string":
            return {"number": 0, "bool": False, "list": [], "set": [], "map": {}}.get(
                _outer(attribute)
            )
        label = f"{name.removeprefix('aws_').replace('_', '-')}-{next(self.numbers)}"
        arn = ARNS.get(name, "arn:aws:test:us-east-1:111122223333:")
        return arn + label if attribute.name.endswith("arn") else label


def _planned(block: Block, state: State) -> State:
    """The state with all that is yet to be computed unknown, and nothing that is only ever written."""
    attributes = {
        each.name: _planned_value(each, state.get(each.name)) for each in block.attributes
    }
    return attributes | _nested(block, state, _planned)


def _planned_value(attribute: Attribute, value: object) -> object:
    if attribute.write_only:
        return None
    return UNKNOWN if value is None and attribute.computed else value


def _nested(block: Block, state: State, change: Callable[[Block, State], State]) -> State:
    changed: State = {}
    for each in block.blocks:
        inside = state.get(each.name)
        if each.nesting == "single" or inside is None or inside == UNKNOWN:
            changed[each.name] = change(each.block, inside) if isinstance(inside, dict) else inside
        else:
            changed[each.name] = [change(each.block, one) for one in inside]
        if changed[each.name] is None and each.nesting in ("list", "set"):
            changed[each.name] = []
    return changed


def _outer(attribute: Attribute) -> str:
    return str(attribute.type[0]) if isinstance(attribute.type, list) else attribute.type


def _set(given: State) -> State:
    return {name: value for name, value in given.items() if value is not None}


def _password(length: int) -> str:
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


def _field(asked: bytes, number: int) -> bytes:
    """A field of a message, empty if it is left out."""
    return dict(fields(asked)).get(number, b"")


def _state(asked: bytes, number: int) -> State | None:
    """A state in a field: of the two ways in which it may be written, always MessagePack."""
    state: State | None = msgpack.unpackb(
        _field(_field(asked, number), 1), ext_hook=lambda *_: UNKNOWN
    )
    return state


def _answer(number: int, state: State | None) -> bytes:
    return message(number, message(1, msgpack.packb(state)))
