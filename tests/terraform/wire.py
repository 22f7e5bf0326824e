"""A provider's schema as Terraform's plugin protocol 6 puts it on the wire.

Written by hand: two messages do not pay for a compiler of protocol buffers, and the published Python classes of this
protocol are older than write-only arguments and ephemeral resources. Field numbers: tfplugin6.proto of Terraform 1.11.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tests.terraform.schema import Attribute, Block, NestedBlock

NESTINGS = {"single": 1, "list": 2, "set": 3, "map": 4}


def provider_schema(types: Mapping[str, Mapping[str, Block]]) -> bytes:
    """`GetProviderSchema.Response`, of types by kind and name, as bindings.Types says."""
    kinds = ((2, types["resource"]), (3, types["data"]), (8, types["ephemeral"]))
    encoded = b"".join(
        message(field, text(1, name) + message(2, _schema(block)))
        for field, blocks in kinds
        for name, block in blocks.items()
    )
    return message(1, _schema(types["provider"]["aws"])) + encoded


def message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that are messages, texts or bytes; numbers are passed over."""
    place = 0
    while place < len(content):
        tag, place = _read_varint(content, place)
        size, place = _read_varint(content, place)
        if tag & 7 == 2:
            yield tag >> 3, content[place : place + size]
            place += size


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def _schema(block: Block) -> bytes:
    return message(2, _block(block))


def _block(block: Block) -> bytes:
    attributes = b"".join(message(2, _attribute(each)) for each in block.attributes)
    return attributes + b"".join(message(3, _nested(each)) for each in block.blocks)


def _attribute(attribute: Attribute) -> bytes:
    flags = {
        4: attribute.required,
        5: attribute.optional,
        6: attribute.computed,
        11: attribute.write_only,
    }
    return (
        text(1, attribute.name)
        + text(2, json.dumps(attribute.type))
        + b"".join(_number(field, 1) for field, is_set in flags.items() if is_set)
    )


def _nested(nested: NestedBlock) -> bytes:
    return (
        text(1, nested.name)
        + message(2, _block(nested.block))
        + _number(3, NESTINGS[nested.nesting])
        + _number(4, nested.least)
        + _number(5, nested.most)
    )


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
