"""The hosts' logins at an ElastiCache, whose users are made by AWS's API alone: one each, in the cache's user group.

A user takes seconds to be there, and its group up to some minutes to take it in; a group that is being changed takes no
other change. So a login is made at once, and `settle` lets in all that have been made since, together.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.domain.access import HOST_ROLE, host_named
from app.errors import BadRequest, CloudRefused, Unavailable
from infra.aws.refusals import translated
from infra.aws.session import Account

if TYPE_CHECKING:
    from types_boto3_elasticache.type_defs import UserGroupTypeDef, UserTypeDef

# AWS's own: of users in a group, and of characters in a password (16 to 128).
MOST_IN_GROUP = 100
PASSWORD_BYTES = 32
DEPLOYMENT_TAG = "promigence:deployment"
_INSTANCE = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})", re.ASCII)
_READY, _LEAVING = "active", "deleting"
_GONE = "UserNotFound"


def user_prefix(deployment: str) -> str:
    """What the ids of a deployment's users begin with: an id has 40 characters, and a deployment's name up to 64."""
    return f"pmg-{hashlib.sha256(deployment.encode()).hexdigest()[:8]}-"


class CacheUsers:
    """`app.ports.access.Logins` on ElastiCache, for hosts that are instances of EC2.

    `rules` are the words of an access string for a host, `url` makes the URL of a user and its password. A password
    that is replaced opens nothing more within a minute, and a host that is removed is cut off within the same.
    """

    def __init__(
        self,
        account: Account,
        deployment: str,
        group: str,
        rules: Callable[[str], tuple[str, ...]],
        url: Callable[[str, str], str],
    ) -> None:
        self._cache = account.elasticache()
        self._deployment = deployment
        self._prefix = user_prefix(deployment)
        self._group = group
        self._rules = rules
        self._url = url

    def create(self, host_id: str) -> str:
        user_id, password = self._id(host_id), secrets.token_urlsafe(PASSWORD_BYTES)
        rules = " ".join(self._rules(host_id))
        found = self._user(user_id)
        if found is None:
            self._make(host_id, user_id, rules, password)
        elif found.get("Status") == _READY:
            with translated(user=user_id):
                self._cache.modify_user(
                    UserId=user_id,
                    AccessString=rules,
                    AuthenticationMode={"Type": "password", "Passwords": [password]},
                )
        else:
            raise Unavailable("login_pending", f"user {user_id} is {found.get('Status')}")
        return self._url(_name(host_id), password)

    def remove(self, host_id: str) -> None:
        user_id = self._id(host_id)
        found = self._user(user_id)
        if found is None or found.get("Status") == _LEAVING:
            return
        if found.get("Status") != _READY:
            raise Unavailable("login_pending", f"user {user_id} is {found.get('Status')}")
        with translated(user=user_id):
            # Out of its group, and so out of the cache, it goes with this.
            self._cache.delete_user(UserId=user_id)

    def list(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                each["UserId"].removeprefix(self._prefix)
                for each in self._ours()
                if each.get("Status") != _LEAVING
            )
        )

    def settle(self) -> None:
        """Ask for all users that are there to be taken into the group, if it takes changes now.

        Raises CloudRefused(limit_exceeded) where it has no room for all: those that fit are asked for.
        """
        group = self._its_group()
        if group.get("Status") != _READY:
            return
        inside = group.get("UserIds", [])
        ready = [each["UserId"] for each in self._ours() if each.get("Status") == _READY]
        waiting = sorted(set(ready) - set(inside))
        room = MOST_IN_GROUP - len(inside)
        if waiting[:room]:
            with translated(group=self._group):
                self._cache.modify_user_group(UserGroupId=self._group, UserIdsToAdd=waiting[:room])
        if len(waiting) > room:
            raise CloudRefused(
                "limit_exceeded",
                f"user group {self._group} is full: AWS allows {MOST_IN_GROUP} users in one, so as many hosts,"
                " less those of the control plane",
                group=self._group,
                waiting=len(waiting) - room,
            )

    def _make(self, host_id: str, user_id: str, rules: str, password: str) -> None:
        engine = self._its_group().get("Engine", "redis")
        with translated(user=user_id):
            self._cache.create_user(
                UserId=user_id,
                UserName=_name(host_id),
                Engine=engine,
                AccessString=rules,
                AuthenticationMode={"Type": "password", "Passwords": [password]},
                Tags=[{"Key": DEPLOYMENT_TAG, "Value": self._deployment}],
            )

    def _its_group(self) -> UserGroupTypeDef:
        with translated(group=self._group):
            found = self._cache.describe_user_groups(UserGroupId=self._group)["UserGroups"]
        if not found:
            raise CloudRefused(
                "refused", f"there is no user group {self._group}", group=self._group
            )
        return found[0]

    def _user(self, user_id: str) -> UserTypeDef | None:
        try:
            with translated(user=user_id):
                found = self._cache.describe_users(UserId=user_id)["Users"]
        except CloudRefused as refused:
            if refused.details.get("aws_code") == _GONE:
                return None
            raise
        return found[0] if found else None

    def _ours(self) -> Iterator[UserTypeDef]:
        with translated(users=self._prefix):
            pages = list(self._cache.get_paginator("describe_users").paginate())
        for page in pages:
            for each in page["Users"]:
                rest = each.get("UserId", "").removeprefix(self._prefix)
                if each.get("UserId") == self._prefix + rest and _INSTANCE.fullmatch(rest):
                    yield each

    def _id(self, host_id: str) -> str:
        if _INSTANCE.fullmatch(host_named(host_id)) is None:
            raise BadRequest(
                "bad_host_id",
                "with ElastiCache a host is an instance of EC2, by its id",
                host_id=host_id,
            )
        return self._prefix + host_id


def _name(host_id: str) -> str:
    return f"{HOST_ROLE}_{host_id}"
