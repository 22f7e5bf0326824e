"""A port as one process has it: at every call its process may be struck, and the chronicle hears what was done."""

from __future__ import annotations

from typing import Any, Protocol, cast

from app.ports import Clock, HostPorts, Ports

DATABASE = frozenset(
    {"attempts", "execs", "builds", "hosts", "meters", "runs", "snapshots", "projects", "workers"}
)


class Hooks(Protocol):
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


class Intercepted:
    """Stands where a port stands."""

    def __init__(self, port: object, name: str, hooks: Hooks) -> None:
        self._port, self._name, self._hooks = port, name, hooks

    def __getattr__(self, verb: str) -> Any:
        act, name, hooks = getattr(self._port, verb), self._name, self._hooks
        if not callable(act):
            return act  # a property: nothing is done

        def call(*given: Any, **named: Any) -> Any:
            hooks.before(name, verb, given)
            answer = act(*given, **named)
            hooks.after(name, verb, given, answer)
            return answer

        self.__dict__[verb] = call  # found without this detour from now on
        return call


class StepClock:
    """A host's clock, whose pauses let others go on meanwhile."""

    def __init__(self, clock: Clock, hooks: Hooks) -> None:
        self.boot_ns, self.wall_ns, self.boot_id = clock.boot_ns, clock.wall_ns, clock.boot_id
        self.pause = hooks.sleep


def intercepted_ports(ports: Ports, clock: Clock, hooks: Hooks) -> Ports:
    """The control plane's ports for one process, by this host's clock."""
    calls: dict[str, Any] = {
        name: Intercepted(getattr(ports, name), name, hooks) for name in DATABASE
    }
    bells = cast(Any, Intercepted(ports.bells, "bells", hooks))
    fields = {name: getattr(ports, name) for name in ports.__dataclass_fields__}
    return Ports(**fields | calls | {"bells": bells, "clock": StepClock(clock, hooks)})


def intercepted_host(host: HostPorts, hooks: Hooks) -> HostPorts:
    """A host's ports for one process."""
    fields = {name: getattr(host, name) for name in host.__dataclass_fields__}
    calls = {
        name: Intercepted(fields[name], name, hooks) for name in ("machines", "guest", "bundles")
    }
    return HostPorts(**fields | calls)
