"""What a host logs in with, in Secrets Manager: a secret each, which the role of the hosts opens to its own host alone.

The policy compares the secret's tag `promigence:instance` with `${ec2:SourceInstanceARN}`, which AWS sets from the
credentials that an instance was given and nobody can claim; see docs/hosts-access.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from app.domain.access import HOST_ID, HostAccess, host_named
from app.errors import CloudRefused, NotFound
from infra.aws.refusals import translated
from infra.aws.session import Account

if TYPE_CHECKING:
    from types_boto3_secretsmanager.type_defs import CreateSecretRequestTypeDef, TagTypeDef

DEPLOYMENT_TAG, INSTANCE_TAG = "promigence:deployment", "promigence:instance"
# A name is free again some seconds after its secret was deleted for good.
FREE_AGAIN_S = 20
_PAUSE_S = 1.0
_GONE = "ResourceNotFoundException"
_THERE = "ResourceExistsException"
_NOT_NOW = "InvalidRequestException"


def name_of_host(deployment: str, host_id: str) -> str:
    """Where a host's own access is."""
    return f"promigence/{deployment}/host/{host_id}"


class SecretsManager:
    """`app.ports.access.Secrets` of one deployment. `key` encrypts them; None: the account's key for secrets."""

    def __init__(
        self,
        account: Account,
        deployment: str,
        pause: Callable[[float], None],
        key: str | None = None,
    ) -> None:
        self._secrets = account.secretsmanager()
        self._identity = account.sts()
        self._region = account.region
        self._deployment = deployment
        self._pause = pause
        self._key = key
        self._owner = ""

    def put(self, host_id: str, access: HostAccess) -> None:
        name = name_of_host(self._deployment, host_named(host_id))
        said = json.dumps({"database_url": access.database_url, "redis_url": access.redis_url})
        tags = self._tags(host_id)
        for left in range(FREE_AGAIN_S, -1, -1):
            try:
                self._put(name, said, tags)
                return
            except CloudRefused as refused:
                if refused.details.get("aws_code") != _NOT_NOW or left == 0:
                    raise
            self._pause(_PAUSE_S)

    def delete(self, host_id: str) -> None:
        name = name_of_host(self._deployment, host_named(host_id))
        try:
            with translated(secret=name):
                # Its passwords open nothing any more: there is nothing to recover.
                self._secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
        except CloudRefused as refused:
            if refused.details.get("aws_code") != _GONE:
                raise

    def list(self) -> tuple[str, ...]:
        prefix = name_of_host(self._deployment, "")
        with translated(secrets=prefix):
            return tuple(sorted(self._hosts(prefix)))

    def _put(self, name: str, said: str, tags: Sequence[TagTypeDef]) -> None:
        new: CreateSecretRequestTypeDef = {
            "Name": name,
            "SecretString": said,
            "Description": "What one host of Promigence logs in with",
            "Tags": tags,
        }
        if self._key is not None:
            new["KmsKeyId"] = self._key
        try:
            with translated(secret=name):
                self._secrets.create_secret(**new)
        except CloudRefused as refused:
            if refused.details.get("aws_code") != _THERE:
                raise
            with translated(secret=name):
                # Whose it is comes before what is in it.
                self._secrets.tag_resource(SecretId=name, Tags=tags)
                self._secrets.put_secret_value(SecretId=name, SecretString=said)

    def _hosts(self, prefix: str) -> Iterator[str]:
        pages = self._secrets.get_paginator("list_secrets").paginate(
            Filters=[{"Key": "name", "Values": [prefix]}]
        )
        for page in pages:
            for each in page["SecretList"]:
                # The filter matches words of a name, too.
                host_id = each["Name"].removeprefix(prefix)
                if each["Name"] == prefix + host_id and HOST_ID.fullmatch(host_id):
                    yield host_id

    def _tags(self, host_id: str) -> Sequence[TagTypeDef]:
        if not self._owner:
            with translated():
                # arn:aws:sts::123456789012:assumed-role/...
                told = self._identity.get_caller_identity()
            self._owner = f"{told['Arn'].split(':')[1]}:ec2:{self._region}:{told['Account']}"
        return [
            {"Key": DEPLOYMENT_TAG, "Value": self._deployment},
            {"Key": INSTANCE_TAG, "Value": f"arn:{self._owner}:instance/{host_id}"},
        ]


def read(account: Account, name: str) -> dict[str, str]:
    """The words of a secret that is a JSON object, by name.

    Raises NotFound(no_secret) while it is not there, or not for who asks (AWS says the same of both);
    CloudRefused(refused) where it is no such object; Unavailable.
    """
    try:
        with translated(secret=name):
            told = account.secretsmanager().get_secret_value(SecretId=name)
    except CloudRefused as refused:
        if refused.code == "denied" or refused.details.get("aws_code") in (_GONE, _NOT_NOW):
            raise NotFound("no_secret", f"{name} is not there, or not for this role") from refused
        raise
    return _words(name, told.get("SecretString", ""))


def _words(name: str, said: str) -> dict[str, str]:
    try:
        told = json.loads(said)
    except ValueError:
        # What is wrong with it would say what is in it.
        raise CloudRefused("refused", f"{name} is no JSON", secret=name) from None
    if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
        raise CloudRefused("refused", f"{name} is no object of strings", secret=name)
    return told
