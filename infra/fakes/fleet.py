"""A group of instances in memory: launches take a while, and what is not protected goes when the group is to shrink."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from app.domain.fleet import FleetState, Instance, Lifecycle
from app.domain.money import NS_PER_SECOND
from app.errors import CloudRefused, Unavailable
from app.ports import Clock

LAUNCH_S = 60.0
LEAVE_S = 30.0


@dataclass(slots=True)
class _Life:
    """One instance, and until when it is on its way in or out."""

    instance: Instance
    until_ns: int = 0
    ended: bool = False


@dataclass(slots=True)
class FakeFleet:
    """`app.ports.fleet.Fleet`. `away` makes every call fail; the verb `deaf_to` does what it is asked, and fails.

    `short` is how many instances the zone has left; None is as many as are asked for.
    """

    clock: Clock
    least: int = 0
    most: int = 10
    desired: int = 0
    protects_new: bool = False
    away: bool = False
    deaf_to: str = ""
    short: int | None = None
    _lives: dict[str, _Life] = field(default_factory=dict)

    def state(self) -> FleetState:
        self._answer("state")
        return self._now()

    def desire(self, count: int) -> None:
        self._pass_time()
        if not self.away:
            self._check(count)
            self.desired = count
            self._scale_in()
            self._pass_time()
        self._answer("desire")

    def protect(self, instance_ids: tuple[str, ...]) -> None:
        self._pass_time()
        for name in instance_ids:
            life = self._lives.get(name)
            if not self.away and life and life.instance.lifecycle is Lifecycle.IN_SERVICE:
                life.instance = replace(life.instance, protected=True)
        self._answer("protect")

    def retire(self, instance_id: str) -> None:
        self._pass_time()
        life = self._lives.get(instance_id)
        if not self.away and life is not None and life.instance.lives:
            self._check(self.desired - 1)
            self.desired -= 1
            self._end(life)
        self._answer("retire")

    def ended(self, instance_ids: tuple[str, ...]) -> frozenset[str]:
        self._answer("ended")
        self._pass_time()
        return frozenset(
            name for name in instance_ids if name in self._lives and self._lives[name].ended
        )

    def interrupt(self, instance_id: str) -> None:
        """The cloud takes an instance back; as many as before stay asked for."""
        self._end(self._lives[instance_id])

    def _answer(self, verb: str) -> None:
        if self.away or self.deaf_to == verb:
            raise Unavailable("cloud_away", f"the cloud does not answer {verb}")

    def _check(self, count: int) -> None:
        if not self.least <= count <= self.most:
            raise CloudRefused(
                "limit_exceeded", f"{count} is not within {self.least} to {self.most}"
            )

    def _now(self) -> FleetState:
        self._pass_time()
        return FleetState(
            self.desired,
            self.least,
            self.most,
            tuple(life.instance for life in self._lives.values() if not life.ended),
            self.protects_new,
        )

    def _pass_time(self) -> None:
        now_ns = self.clock.boot_ns()
        for life in self._lives.values():
            if life.until_ns > now_ns:
                continue
            if life.instance.lifecycle is Lifecycle.PENDING:
                life.instance = replace(life.instance, lifecycle=Lifecycle.IN_SERVICE)
            elif life.instance.lifecycle is Lifecycle.ENDING:
                life.ended = True
        while self._living() < self.desired and self.short != 0:
            self._launch(now_ns)

    def _launch(self, now_ns: int) -> None:
        name = f"i-{len(self._lives):017x}"
        new = Instance(name, "us-east-1a", Lifecycle.PENDING, self.protects_new)
        self._lives[name] = _Life(new, now_ns + int(LAUNCH_S * NS_PER_SECOND))
        if self.short is not None:
            self.short -= 1

    def _scale_in(self) -> None:
        """The cloud's own choice: the oldest that are not protected."""
        for life in self._lives.values():
            if self._living() <= self.desired:
                return
            if life.instance.lives and not life.instance.protected:
                self._end(life)

    def _end(self, life: _Life) -> None:
        life.instance = replace(life.instance, lifecycle=Lifecycle.ENDING)
        life.until_ns = self.clock.boot_ns() + int(LEAVE_S * NS_PER_SECOND)

    def _living(self) -> int:
        return sum(life.instance.lives for life in self._lives.values())
