"""The group of instances that hosts run on, as an Auto Scaling group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.domain.fleet import FleetState, Instance, Lifecycle
from app.errors import CloudRefused
from infra.aws.refusals import translated
from infra.aws.session import Account

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef, InstanceTypeDef

# What one call of the API takes.
PAGE = 50
_ENDED = "terminated"


class AutoScalingFleet:
    """`app.ports.fleet.Fleet`. The group and its launch template are the operator's; here only its size is moved.

    Whatever the group's policies say, an instance that is protected from scale-in is ended by `retire` alone.
    """

    def __init__(self, account: Account, group: str) -> None:
        self._groups = account.autoscaling()
        self._ec2 = account.ec2()
        self._group = group

    def state(self) -> FleetState:
        with translated(group=self._group):
            found = self._groups.describe_auto_scaling_groups(AutoScalingGroupNames=[self._group])
        groups = found["AutoScalingGroups"]
        if not groups:
            raise CloudRefused(
                "refused", f"there is no Auto Scaling group {self._group}", group=self._group
            )
        return _state(groups[0])

    def desire(self, count: int) -> None:
        now = self.state()
        if not now.least <= count <= now.most:
            raise _limit(f"{count} instances", now, self._group)
        with translated(group=self._group):
            self._groups.set_desired_capacity(
                AutoScalingGroupName=self._group, DesiredCapacity=count, HonorCooldown=False
            )

    def protect(self, instance_ids: tuple[str, ...]) -> None:
        # One that is not in service refuses for all that are named with it.
        there = {
            each.instance_id
            for each in self.state().instances
            if each.lifecycle is Lifecycle.IN_SERVICE and not each.protected
        }
        wanted = [each for each in instance_ids if each in there]
        for start in range(0, len(wanted), PAGE):
            with translated(group=self._group, instances=wanted[start : start + PAGE]):
                self._groups.set_instance_protection(
                    AutoScalingGroupName=self._group,
                    InstanceIds=wanted[start : start + PAGE],
                    ProtectedFromScaleIn=True,
                )

    def retire(self, instance_id: str) -> None:
        now = self.state()
        if instance_id not in {each.instance_id for each in now.living}:
            return
        if now.desired <= now.least:
            raise _limit("one instance less", now, self._group)
        with translated(group=self._group, instance=instance_id):
            self._groups.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=True
            )

    def ended(self, instance_ids: tuple[str, ...]) -> frozenset[str]:
        ended: set[str] = set()
        for start in range(0, len(instance_ids), PAGE):
            ids = list(instance_ids[start : start + PAGE])
            # By a filter: an id that is not known, or none at all, is passed over and spoils nothing.
            with translated(instances=ids):
                found = self._ec2.describe_instances(
                    Filters=[
                        {"Name": "instance-id", "Values": ids},
                        {"Name": "instance-state-name", "Values": [_ENDED]},
                    ]
                )
            ended |= {
                each["InstanceId"]
                for reservation in found["Reservations"]
                for each in reservation["Instances"]
                if each["State"]["Name"] == _ENDED
            }
        return frozenset(ended & set(instance_ids))


def _state(group: AutoScalingGroupTypeDef) -> FleetState:
    return FleetState(
        desired=group["DesiredCapacity"],
        least=group["MinSize"],
        most=group["MaxSize"],
        instances=tuple(
            sorted(map(_instance, group["Instances"]), key=lambda one: one.instance_id)
        ),
        protects_new=bool(group.get("NewInstancesProtectedFromScaleIn")),
    )


def _instance(told: InstanceTypeDef) -> Instance:
    return Instance(
        instance_id=told["InstanceId"],
        zone=told["AvailabilityZone"],
        lifecycle=_lifecycle(told["LifecycleState"]),
        protected=told["ProtectedFromScaleIn"],
    )


def _lifecycle(told: str) -> Lifecycle:
    """Amazon's states have stages: `Pending:Wait`, `Terminating:Proceed`, `Warmed:Stopped`."""
    if told == "InService":
        return Lifecycle.IN_SERVICE
    return Lifecycle.PENDING if told.partition(":")[0] == "Pending" else Lifecycle.ENDING


def _limit(what: str, now: FleetState, group: str) -> CloudRefused:
    return CloudRefused(
        "limit_exceeded",
        f"the group {group} allows {now.least} to {now.most} instances, and is at {now.desired}: no {what}",
        group=group,
    )
