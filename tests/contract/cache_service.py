"""ElastiCache's users and user groups in memory, for what moto has not: every request is checked by botocore's model of
the service, every refusal is one that the model knows of, and nothing is there as soon as it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import botocore.session
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from infra.aws.session import Account

ROOM = 100
GROUP, REGION = "promigence-d", "us-east-1"


class CacheService:
    """As boto3's client, as far as it is used. `pass_time` lets what was asked for come about."""

    def __init__(self) -> None:
        self._model = botocore.session.get_session().get_service_model("elasticache")
        self.users: dict[str, dict[str, Any]] = {}
        self.passwords: dict[str, str] = {}
        self.group: dict[str, Any] = {
            "UserGroupId": GROUP,
            "Status": "active",
            "Engine": "valkey",
            "UserIds": ["d-default", "d-control"],
        }
        self.asked: list[str] = []
        for user_id in self.group["UserIds"]:
            self.users[user_id] = {"UserId": user_id, "UserName": user_id, "Status": "active"}

    def create_user(self, **asked: Any) -> dict[str, Any]:
        self._check("CreateUser", asked)
        user_id = asked["UserId"]
        if len(user_id) > 40:
            raise self._refusal("CreateUser", "InvalidParameterValue")
        if user_id in self.users:
            raise self._refusal("CreateUser", "UserAlreadyExists")
        if asked["Engine"] != self.group["Engine"]:
            raise self._refusal("CreateUser", "InvalidParameterCombination")
        self._take_password("CreateUser", user_id, asked)
        self.users[user_id] = {
            "UserId": user_id,
            "UserName": asked["UserName"],
            "Status": "creating",
            "AccessString": asked["AccessString"],
        }
        return self.users[user_id]

    def modify_user(self, **asked: Any) -> dict[str, Any]:
        self._check("ModifyUser", asked)
        user = self._active("ModifyUser", asked["UserId"])
        self._take_password("ModifyUser", asked["UserId"], asked)
        user.update(Status="modifying", AccessString=asked["AccessString"])
        return user

    def delete_user(self, **asked: Any) -> dict[str, Any]:
        self._check("DeleteUser", asked)
        user = self._active("DeleteUser", asked["UserId"])
        user["Status"] = "deleting"
        return user

    def describe_users(self, **asked: Any) -> dict[str, Any]:
        self._check("DescribeUsers", asked)
        if asked["UserId"] not in self.users:
            raise self._refusal("DescribeUsers", "UserNotFound")
        return {"Users": [dict(self.users[asked["UserId"]])]}

    def describe_user_groups(self, **asked: Any) -> dict[str, Any]:
        self._check("DescribeUserGroups", asked)
        if asked["UserGroupId"] != GROUP:
            raise self._refusal("DescribeUserGroups", "UserGroupNotFound")
        return {"UserGroups": [{**self.group, "UserIds": list(self.group["UserIds"])}]}

    def modify_user_group(self, **asked: Any) -> dict[str, Any]:
        self._check("ModifyUserGroup", asked)
        if self.group["Status"] != "active":
            raise self._refusal("ModifyUserGroup", "InvalidUserGroupState")
        for user_id in asked["UserIdsToAdd"]:
            self._active("ModifyUserGroup", user_id)
        assert len(self.group["UserIds"]) + len(asked["UserIdsToAdd"]) <= ROOM
        self.group.update(Status="modifying", PendingChanges=asked["UserIdsToAdd"])
        return self.group

    def get_paginator(self, name: str) -> CacheService:
        assert name == "describe_users"
        return self

    def paginate(self) -> Iterator[dict[str, Any]]:
        """Two to a page."""
        users = [dict(each) for each in self.users.values()]
        return iter([{"Users": users[at : at + 2]} for at in range(0, len(users), 2)])

    def pass_time(self) -> None:
        for user_id, user in tuple(self.users.items()):
            if user["Status"] == "deleting":
                del self.users[user_id]
                self.group["UserIds"] = [each for each in self.group["UserIds"] if each != user_id]
            user["Status"] = "active"
        added = self.group.pop("PendingChanges", [])
        self.group["UserIds"] += [each for each in added if each in self.users]
        self.group["Status"] = "active"

    def lets_in(self, user_name: str, password: str) -> bool:
        """Whether the cache knows this user, and this password of it."""
        return any(
            user["UserName"] == user_name and self.passwords.get(user_id) == password
            for user_id, user in self.users.items()
            if user_id in self.group["UserIds"]
        )

    def _check(self, operation: str, asked: dict[str, Any]) -> None:
        self.asked.append(operation)
        shape = self._model.operation_model(operation).input_shape
        assert shape is not None
        report = ParamValidator().validate(asked, shape)
        assert not report.has_errors(), report.generate_report()

    def _active(self, operation: str, user_id: str) -> dict[str, Any]:
        if user_id not in self.users:
            raise self._refusal(operation, "UserNotFound")
        if self.users[user_id]["Status"] != "active":
            code = "UserNotFound" if operation == "ModifyUserGroup" else "InvalidUserState"
            raise self._refusal(operation, code)
        return self.users[user_id]

    def _take_password(self, operation: str, user_id: str, asked: dict[str, Any]) -> None:
        mode = asked["AuthenticationMode"]
        (password,) = mode["Passwords"]
        if mode["Type"] != "password" or not 16 <= len(password) <= 128:
            raise self._refusal(operation, "InvalidParameterValue")
        self.passwords[user_id] = password

    def _refusal(self, operation: str, code: str) -> ClientError:
        known = self._model.operation_model(operation).error_shapes
        assert code in {each.metadata.get("error", {}).get("code") for each in known}
        told: Any = {
            "Error": {"Code": code, "Message": "no"},
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }
        return ClientError(told, operation)


class CacheAccount:
    """An account in which there is nothing but this cache."""

    def __init__(self, service: CacheService) -> None:
        self._service = service
        self.region = REGION

    def elasticache(self) -> CacheService:
        return self._service


def account_of(service: CacheService) -> Account:
    return cast(Account, CacheAccount(service))
