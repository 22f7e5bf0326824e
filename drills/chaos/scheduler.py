"""Steps that can be paused in their middle: threads that pass one baton, so that a seed decides every interleaving."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Killed(BaseException):
    """The process of this step was killed. Like a real kill it is nobody's to catch."""


class Fiber:
    """One step of a process. It runs only inside `go_on`, until it pauses or is over."""

    def __init__(self, scheduler: Scheduler, act: Callable[[], object]) -> None:
        self.over = False
        self.error: BaseException | None = None
        self._scheduler, self._act = scheduler, act
        self._killed = False
        self._carrier = scheduler.carrier()

    def go_on(self) -> None:
        """Let it run to its next pause or its end."""
        self._carrier.turn(self)
        if self.over:
            self._scheduler.give_back(self._carrier)

    def pause(self) -> None:
        """Called by the step itself: hand the baton back. Raises Killed if it is not to go on."""
        self._carrier.wait()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """End it where it stands; nothing of it runs any further but its unwinding."""
        self._killed = True
        while not self.over:
            self.go_on()

    def run(self) -> None:
        """On its carrier's thread."""
        try:
            if not self._killed:
                self._act()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever a step raises is its driver's to judge
            self.error = error
        self.over = True


class Scheduler:
    """Carriers of fibers; a thread that has carried one carries the next."""

    def __init__(self) -> None:
        self._idle: list[_Carrier] = []

    def fiber(self, act: Callable[[], object]) -> Fiber:
        """A step that has not begun."""
        return Fiber(self, act)

    def carrier(self) -> _Carrier:
        return self._idle.pop() if self._idle else _Carrier()

    def give_back(self, carrier: _Carrier) -> None:
        self._idle.append(carrier)

    def close(self) -> None:
        """End the threads; every fiber is over by now."""
        while self._idle:
            self._idle.pop().end()


class _Carrier:
    def __init__(self) -> None:
        self._fiber: Fiber | None = None
        # Each is held by whoever waits for it; the other side lets it go.
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._carry, name="fiber", daemon=True)
        self._thread.start()

    def turn(self, fiber: Fiber) -> None:
        self._fiber = fiber
        self._go.release()
        self._back.acquire()

    def wait(self) -> None:
        self._back.release()
        self._go.acquire()

    def end(self) -> None:
        self._fiber = None
        self._go.release()
        self._thread.join()

    def _carry(self) -> None:
        while True:
            self._go.acquire()
            if self._fiber is None:
                return
            self._fiber.run()
            self._back.release()
