"""A TCP port that leads to a unix socket, and can be made to fail as networks do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 64 * 1024
_DONE_WITHIN_S = 5.0


class Outage(StrEnum):
    """How the database is unreachable: connections are refused, or taken and never answered."""

    REFUSED = "refused"
    SILENT = "silent"


class Forwarder:
    """Leads 127.0.0.1:`port` to a unix socket, in a thread of its own, until `close`."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="forwarder")
        self._thread.start()
        self.port = 0
        self._do(self._listen())

    def cut(self, how: Outage) -> None:
        """From now on nothing gets through: what is connected is reset and new connections are refused, or all
        are left open and silent.
        """
        self._do(self._refuse() if how is Outage.REFUSED else self._fall_silent())

    def mend(self) -> None:
        """All is as before; what was sent into the silence arrives now. Twice is safe."""
        self._do(self._mend())

    def close(self) -> None:
        """End all connections and the port."""
        self._do(self._refuse())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DONE_WITHIN_S)
        self._loop.close()

    def _do(self, act: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(act, self._loop).result(_DONE_WITHIN_S)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for writer in tuple(self._open):
            writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fall_silent(self) -> None:
        self._flows.clear()

    async def _mend(self) -> None:
        self._flows.set()
        if self._listener is None:
            await self._listen()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._flows.wait()
            above = await asyncio.open_unix_connection(str(self._upstream))
            self._open.add(above[1])
            with suppress(OSError):
                await asyncio.gather(self._pump(reader, above[1]), self._pump(above[0], writer))
            self._end(above[1])
        finally:
            self._end(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._flows.wait()
            writer.write(chunk)
            await writer.drain()
        # Whoever ends a connection to a database ends both directions of it.
        writer.close()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.transport.abort()
