"""A port as one process has it: at every call the weather has its say, and the chronicle what was done."""

from __future__ import annotations

from typing import Any, Protocol, cast

from app.ports import Clock, HostPorts, Ports

DATABASE = frozenset(
    {"attempts", "execs", "builds", "hosts", "meters", "runs", "snapshots", "projects", "workers"}
)


class Meets(Protocol):
    """Whose calls they are."""

    def before(self, port: str, verb: str, given: tuple[Any, ...]) -> None:
        """May raise, or hand the baton on, before the call."""
        ...

    def after(self, port: str, verb: str, given: tuple[Any, ...], answer: Any) -> None:
        """May raise, when all is done and nobody was told."""
        ...

    def sleep(self, seconds: float) -> None:
        """The step that runs goes on that much later."""
        ...


class Tap:
    """Stands where a port stands."""

    def __init__(self, port: object, name: str, meets: Meets) -> None:
        self._port, self._name, self._meets = port, name, meets

    def __getattr__(self, verb: str) -> Any:
        act, name, meets = getattr(self._port, verb), self._name, self._meets

        def call(*given: Any, **named: Any) -> Any:
            meets.before(name, verb, given)
            answer = act(*given, **named)
            meets.after(name, verb, given, answer)
            return answer

        self.__dict__[verb] = call  # found without this detour from now on
        return call


class StepClock:
    """A host's clock, whose pauses let others go on meanwhile."""

    def __init__(self, clock: Clock, meets: Meets) -> None:
        self.boot_ns, self.wall_ns, self.boot_id = clock.boot_ns, clock.wall_ns, clock.boot_id
        self.pause = meets.sleep


def tapped_ports(ports: Ports, clock: Clock, meets: Meets) -> Ports:
    """The control plane's ports for one process, by this host's clock."""
    taps: dict[str, Any] = {name: Tap(getattr(ports, name), name, meets) for name in DATABASE}
    bells = cast(Any, Tap(ports.bells, "bells", meets))
    fields = {name: getattr(ports, name) for name in ports.__dataclass_fields__}
    return Ports(**fields | taps | {"bells": bells, "clock": StepClock(clock, meets)})


def tapped_host(host: HostPorts, meets: Meets) -> HostPorts:
    """A host's ports for one process."""
    fields = {name: getattr(host, name) for name in host.__dataclass_fields__}
    taps = {name: Tap(fields[name], name, meets) for name in ("machines", "guest", "bundles")}
    return HostPorts(**fields | taps)
