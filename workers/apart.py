"""Work that lasts minutes, apart from the tasks: a thread each, one at a time for each thing that is worked on."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Apart:
    """Acts by key. Who finds a key taken goes: its bell rings again as long as there is something to do."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is worked on."""
        return not self._busy

    def begin(self, key: str, act: Callable[[], object]) -> bool:
        """Do it in a thread of its own; False if the key is taken. The thread dies with the process."""
        with self._lock:
            if key in self._busy:
                return False
            self._busy.add(key)
        threading.Thread(target=self._run, args=(key, act), name=key, daemon=True).start()
        return True

    def _run(self, key: str, act: Callable[[], object]) -> None:
        try:
            act()
        finally:
            with self._lock:
                self._busy.discard(key)
