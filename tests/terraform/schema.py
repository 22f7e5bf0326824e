"""The schema of Terraform's aws provider, for single types, as its generated bindings tell it.

The bindings have one JavaScript file for each type, and each class in it is a block. A comment states an argument's
name and flags, the lines below it the argument's type:

    // ttl - computed: false, optional: true, required: false
    _ttl;
    get ttl() {
        return this.getNumberAttribute('ttl');

What is read through `tolist` is a set. What is an object of another class is a nested block, or, where the provider may
compute it, an attribute of objects, which Terraform takes in the form of blocks too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# As Terraform writes types in JSON: "string", ["list", "string"], ["object", {"name": "string"}].
Type = str | list["Type | dict[str, Type]"]
Nesting = Literal["single", "list", "set", "map"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An argument or a result: `name = value`."""

    name: str
    type: Type
    required: bool = False
    optional: bool = False
    computed: bool = False
    write_only: bool = False


@dataclass(frozen=True, slots=True)
class NestedBlock:
    """`name { ... }`, at least `least` times and at most `most` times (0: any number)."""

    name: str
    nesting: Nesting
    block: Block
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    attributes: tuple[Attribute, ...]
    blocks: tuple[NestedBlock, ...] = ()


class UnreadableBindings(Exception):
    """The bindings are not written as this module reads them."""


def load(block: Mapping[str, Any]) -> Block:
    """A block from what `dataclasses.asdict` made of it."""
    return Block(
        attributes=tuple(Attribute(**each) for each in block["attributes"]),
        blocks=tuple(
            NestedBlock(**each | {"block": load(each["block"])}) for each in block["blocks"]
        ),
    )


def read(javascript: str) -> Block:
    """The block of the one type that these bindings are of.

    Raises:
        UnreadableBindings: it names the argument or class.
    """
    code = _code(javascript)
    classes = {
        found["name"]: found["body"]
        for found in re.finditer(
            r"^class (?P<name>\w+) extends (?P<body>.*?)^}", code, re.MULTILINE | re.DOTALL
        )
    }
    roots = [name for name, body in classes.items() if ROOT.match(body)]
    if len(roots) != 1:
        raise UnreadableBindings(f"{len(roots)} classes that are a type of their own: {roots}")
    return _Reader(classes, frozenset(WRITE_ONLY.findall(code))).block(roots[0])


def read_provider(javascript: str) -> Block:
    """The block of the provider's own configuration: its bindings state types where arguments are written out."""
    code = _code(javascript)
    structs = dict(
        re.findall(
            r"^function (\w+)ToHclTerraform\(struct\) \{(.*?)^}", code, re.MULTILINE | re.DOTALL
        )
    )
    own = code.partition("synthesizeHclAttributes() {")[2]
    nested = {name: (kind, structs[struct]) for name, struct, kind in WRITTEN_BLOCK.findall(own)}
    return Block(
        attributes=_written(own),
        blocks=tuple(
            NestedBlock(name, kind, Block(_written(struct)))
            for name, (kind, struct) in nested.items()
        ),
    )


def _written(code: str) -> tuple[Attribute, ...]:
    return tuple(
        Attribute(
            name,
            SIMPLE[of] if kind == "simple" else [kind, SIMPLE[COLLECTED.sub("", of)]],
            optional=True,
        )
        for name, kind, of in WRITTEN.findall(code)
    )


def _code(javascript: str) -> str:
    return javascript.partition("//# sourceMappingURL")[0]


ROOT = re.compile(r"cdktn\.Terraform(Resource|DataSource|EphemeralResource)\b")
WRITTEN = re.compile(
    r"^ +(\w+): \{\n +value: .*\n +isBlock: false,\n +type: \"(\w+)\",\n +storageClassType: \"(\w+)\",",
    re.MULTILINE,
)
WRITTEN_BLOCK = re.compile(
    r"^ +(\w+): \{\n +value: cdktn\.listMapperHcl\((\w+)ToHclTerraform.*\n +isBlock: true,\n +type: \"(\w+)\",",
    re.MULTILINE,
)
COLLECTED = re.compile(r"(List|Map)$")
SIMPLE: dict[str, Type] = {"string": "string", "number": "number", "boolean": "bool"}
WRITE_ONLY = re.compile(r"(\w+): this\.markWriteOnlyAttribute\(cdktn\.\w+ToTerraform")
ARGUMENT = re.compile(
    r"^    // (?P<name>\w+) - computed: (?P<computed>\w+), optional: (?P<optional>\w+), required: (?P<required>\w+)\n"
    r"(?P<code>.*?)(?=^    // \w+ - computed: |^    // =|\Z)",
    re.MULTILINE | re.DOTALL,
)
OBJECT = re.compile(
    r"= new (?P<of>\w+?)(?P<kind>OutputReference|List|Map)\(this, \"\w+\"(?:, (?P<set>true|false))?\)"
)
COLLECTION = re.compile(r"new cdktn\.(?P<kind>\w+)\(this, ")
GETTER = re.compile(r"this\.(?P<name>get\w+Attribute|interpolationForAttribute)\(")
ONE_OF_A_LIST = re.compile(r"super\(terraformResource, terraformAttribute, false, 0\);")
TYPES: dict[str, Type] = {
    "getStringAttribute": "string",
    "getNumberAttribute": "number",
    "getBooleanAttribute": "bool",
    "getListAttribute": ["list", "string"],
    "getNumberListAttribute": ["list", "number"],
    "getStringMapAttribute": ["map", "string"],
    "getNumberMapAttribute": ["map", "number"],
    "getBooleanMapAttribute": ["map", "bool"],
    "interpolationForAttribute": "dynamic",
    "StringMap": ["map", "string"],
    "NumberMap": ["map", "number"],
    "BooleanMap": ["map", "bool"],
    "StringMapList": ["list", ["map", "string"]],
    "StringListMap": ["map", ["list", "string"]],
    "StringListList": ["list", ["list", "string"]],
    "NumberListList": ["list", ["list", "number"]],
}


@dataclass(frozen=True, slots=True)
class _Reader:
    classes: dict[str, str]
    write_only: frozenset[str]

    def block(self, name: str) -> Block:
        members = [self._member(name, found) for found in ARGUMENT.finditer(self.classes[name])]
        return Block(
            attributes=tuple(each for each in members if isinstance(each, Attribute)),
            blocks=tuple(each for each in members if isinstance(each, NestedBlock)),
        )

    def _member(self, owner: str, found: re.Match[str]) -> Attribute | NestedBlock:
        nested = OBJECT.search(found["code"])
        if nested is None:
            return self._attribute(owner, found, self._plain(owner, found))
        block = self.block(f"{nested['of']}OutputReference")
        nesting = self._nesting(nested)
        if found["computed"] == "true":
            of = _as_object(block)
            return self._attribute(owner, found, of if nesting == "single" else [nesting, of])
        one = nested["kind"] == "OutputReference" and nesting == "list"
        return NestedBlock(
            found["name"], nesting, block, int(found["required"] == "true"), int(one)
        )

    def _attribute(self, owner: str, found: re.Match[str], type_: Type) -> Attribute:
        flags = {flag: found[flag] == "true" for flag in ("required", "optional", "computed")}
        if not any(flags.values()):
            raise UnreadableBindings(f"{owner}.{found['name']} is neither given nor computed")
        return Attribute(found["name"], type_, **flags, write_only=found["name"] in self.write_only)

    def _plain(self, owner: str, found: re.Match[str]) -> Type:
        how = COLLECTION.search(found["code"]) or GETTER.search(found["code"])
        type_ = TYPES.get(how[1]) if how else None
        if type_ is None:
            raise UnreadableBindings(f"the type of {owner}.{found['name']}")
        is_set = "cdktn.Fn.tolist(" in found["code"] and isinstance(type_, list)
        return ["set", *type_[1:]] if is_set and type_[0] == "list" else type_

    def _nesting(self, nested: re.Match[str]) -> Nesting:
        if nested["kind"] == "Map":
            return "map"
        if nested["kind"] == "List":
            return "set" if nested["set"] == "true" else "list"
        return (
            "list"
            if ONE_OF_A_LIST.search(self.classes[f"{nested['of']}OutputReference"])
            else "single"
        )


def _as_object(block: Block) -> Type:
    members: dict[str, Type] = {each.name: each.type for each in block.attributes}
    for nested in block.blocks:
        of = _as_object(nested.block)
        members[nested.name] = of if nested.nesting == "single" else [nested.nesting, of]
    return ["object", members]
