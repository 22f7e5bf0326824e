"""Whether the parts that the API needs answer; asked at most once a second, however many ask."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from anyio import CapacityLimiter, Lock, fail_after, to_thread

log = logging.getLogger(__name__)

# A probe returns when its part answers, and raises when it does not.
Probe = Callable[[], None]

PROBE_S = 5.0
FRESH_S = 1.0


class Readiness:
    """Probes on threads of their own: what fills the API's other threads must not hide what is wrong."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._probes = dict(probes)
        self._threads = CapacityLimiter(max(4, len(self._probes)))
        self._lock = Lock()
        self._asked_at = float("-inf")
        self._parts: dict[str, bool] = {}

    async def parts(self) -> dict[str, bool]:
        """Each part's name and whether it answered."""
        async with self._lock:
            if time.monotonic() - self._asked_at > FRESH_S:
                self._parts = {
                    name: await self._answers(name, probe) for name, probe in self._probes.items()
                }
                self._asked_at = time.monotonic()
            return self._parts

    async def _answers(self, name: str, probe: Probe) -> bool:
        try:
            with fail_after(PROBE_S):
                await to_thread.run_sync(probe, limiter=self._threads, abandon_on_cancel=True)
        except Exception as fault:  # noqa: BLE001 - whatever it raised, the part did not answer
            log.warning("part %s is not ready: %s", name, type(fault).__name__)
            return False
        return True
