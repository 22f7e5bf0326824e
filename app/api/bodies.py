"""Bytes in and out, never whole in memory: in by a spool on disk, out chunk by chunk from the blobs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, cast

from anyio import fail_after
from fastapi import Request
from fastapi.responses import StreamingResponse

from app.api.context import Context
from app.errors import BadRequest

MAX_FILE_BYTES = 2 * 1024**3
CHUNK_BYTES = 1024 * 1024
# A sender that is silent for so long has gone; its spool is given back.
SILENCE_S = 60.0
# And one that sends no more than this a second, once it has had that time.
SLOWEST_BYTES_S = 16 * 1024
clock_s = time.monotonic

# How a route that reads its body itself tells of it in the OpenAPI document.
Bytes = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@asynccontextmanager
async def spooled(context: Context, request: Request) -> AsyncIterator[BinaryIO]:
    """The whole body as a file read from its start. It has no name, so nothing is left of it after any crash.

    No thread waits for a slow sender. Raises BadRequest(upload_stalled); the body's limit is the middleware's.
    """
    file = cast("BinaryIO", await context.run(tempfile.TemporaryFile, dir=context.spool))
    try:
        async for chunk in _chunks(request):
            await context.run(file.write, chunk)
        await context.run(file.seek, 0)
        yield file
    finally:
        await context.run(file.close)


def streamed(context: Context, source: BinaryIO, size_bytes: int) -> StreamingResponse:
    """The bytes of `source`, closed in the end. The length is told, so a body cut short never looks whole."""
    return StreamingResponse(
        _read(context, source),
        media_type="application/octet-stream",
        headers={"Content-Length": str(size_bytes)},
    )


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces worth a thread's while, with a limit to each silence, and to a drip."""
    pieces = request.stream()
    gathered = bytearray()
    began, read = clock_s(), 0
    while True:
        left_s = began + SILENCE_S + read / SLOWEST_BYTES_S - clock_s()
        if left_s <= 0:
            raise _stalled()
        try:
            with fail_after(min(SILENCE_S, left_s)):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise _stalled() from None
        if piece is None:
            break
        gathered += piece
        read += len(piece)
        if len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _stalled() -> BadRequest:
    too_slow = f"it came too slowly, or not at all for {SILENCE_S:.0f} s; send it again"
    return BadRequest("upload_stalled", too_slow)


async def _read(context: Context, source: BinaryIO) -> AsyncIterator[bytes]:
    try:
        while chunk := await context.run(source.read, CHUNK_BYTES):
            yield chunk
    finally:
        source.close()
