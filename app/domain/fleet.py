"""The group of instances that hosts run on, as the cloud shows it. An instance's id is the id of its host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Lifecycle(StrEnum):
    """Where an instance of the group is; ENDING is whatever is on its way out, or set aside by an operator."""

    PENDING = "pending"
    IN_SERVICE = "in_service"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. `protected`: the cloud never picks it when the group is to shrink."""

    instance_id: str
    zone: str
    lifecycle: Lifecycle
    protected: bool

    @property
    def lives(self) -> bool:
        return self.lifecycle is not Lifecycle.ENDING


@dataclass(frozen=True, slots=True)
class FleetState:
    """How many instances are asked for, within the group's own bounds, and those there are.

    `protects_new`: instances are protected from the moment that they are launched.
    """

    desired: int
    least: int
    most: int
    instances: tuple[Instance, ...]
    protects_new: bool = False

    @property
    def living(self) -> tuple[Instance, ...]:
        return tuple(each for each in self.instances if each.lives)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many hosts the operator allows, at least and at most."""

    least: int
    most: int
