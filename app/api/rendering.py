"""A long answer, made a piece at a time on a thread: in one go its validation would keep the event loop, and with it
everybody's calls, for a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi.responses import StreamingResponse
from pydantic import BaseModel

_PIECE_BYTES = 256 * 1024


def rendered(
    model: type[BaseModel], told: Mapping[str, Any], long: Mapping[str, type[BaseModel]]
) -> Sequence[bytes]:
    """The JSON of `told` as `model` has it, unset fields left out, in pieces; `long` are its long lists, with the
    model of their elements. Raises pydantic's ValidationError.
    """
    short = {name: value for name, value in told.items() if name not in long}
    head = model.model_validate({**short, **{name: [] for name in long if name in told}})
    said = head.model_dump_json(exclude_unset=True, exclude=set(long), by_alias=True)
    pieces, gathered = [], bytearray(said.encode().removesuffix(b"}"))
    for name, element in long.items():
        if name not in told:
            continue
        gathered += b',"%s":[' % name.encode()
        for number, each in enumerate(told[name]):
            one = element.model_validate(each).model_dump_json(exclude_unset=True, by_alias=True)
            gathered += (b"," if number else b"") + one.encode()
            if len(gathered) >= _PIECE_BYTES:
                pieces.append(bytes(gathered))
                gathered.clear()
        gathered += b"]"
    return (*pieces, bytes(gathered) + b"}")


def in_pieces(pieces: Sequence[bytes]) -> StreamingResponse:
    """Sent as its reader takes it. The length is told, so that an answer cut short never looks whole."""

    async def each() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    length = {"Content-Length": str(sum(map(len, pieces)))}
    return StreamingResponse(each(), media_type="application/json", headers=length)
