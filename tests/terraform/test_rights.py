"""The roles' policies against the calls of `infra/aws/`: each call is allowed, and nothing is that nobody calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import botocore.loaders
import botocore.model
from botocore import xform_name

from tests.terraform.folders import ROOT

CODE = ROOT / "infra" / "aws"
POLICIES = ROOT / "terraform" / "modules" / "iam" / "main.tf"
# S3's rights are not named after its operations: those of an upload in parts are all the right to put.
S3 = {
    "AbortMultipartUpload": "AbortMultipartUpload",
    "CompleteMultipartUpload": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteObject": "DeleteObject",
    "GetObject": "GetObject",
    "HeadObject": "GetObject",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListObjectsV2": "ListBucket",
    "PutObject": "PutObject",
    "UploadPart": "PutObject",
}
# What AWS asks for on behalf of those calls: keys of what is encrypted, tags of what is made.
IMPLIED = {
    *("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"),
    *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
    *("ec2:CreateTags", "elasticache:AddTagsToResource"),
}
# Amazon's own agents on the instance: one sends logs, one opens sessions.
AGENTS = {
    *("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"),
    "ssm:UpdateInstanceInformation",
    *(
        f"ssmmessages:{verb}{kind}Channel"
        for verb in ("Create", "Open")
        for kind in ("Control", "Data")
    ),
}
ROLES = {"sts:AssumeRole"}
# Who asks who it is needs no right.
FREE = {"sts:GetCallerIdentity"}


def test_every_call_is_allowed_to_somebody() -> None:
    missing = called() - allowed() - FREE
    assert not missing, f"called in infra/aws and in no policy: {sorted(missing)}"


def test_nothing_is_allowed_that_nobody_calls() -> None:
    spare = allowed() - called() - IMPLIED - AGENTS - ROLES
    assert not spare, f"in a policy and called nowhere: {sorted(spare)}"
    unused = (IMPLIED | AGENTS) - allowed()
    assert not unused, f"said to be needed, and in no policy: {sorted(unused)}"


def test_calls_are_found() -> None:
    """Of each kind one: what this test stands on."""
    found = called()
    assert {
        "ec2:CreateVolume",  # a call of a client
        "ec2:DescribeSnapshots",  # of a paginator
        "autoscaling:SetDesiredCapacity",
        "s3:ListBucketMultipartUploads",
        "s3:PutObject",
    } <= found
    assert "ec2:RunInstances" not in found


def allowed() -> set[str]:
    text = POLICIES.read_text()
    lists = re.findall(r"\bAction\s*=\s*(?:\[(.*?)\]|(\"[^\"]+\"))", text, re.DOTALL)
    return {action for parts in lists for action in re.findall(r'"([^"]+)"', "".join(parts))}


def called() -> set[str]:
    trees = [ast.parse(path.read_text()) for path in sorted(CODE.glob("*.py"))]
    services = {name for tree in trees for name in _clients(tree)}
    return {right for tree in trees for right in _rights(tree, services)}


def _rights(tree: ast.AST, services: set[str]) -> set[str]:
    """Of one file. Services call different things by one name, so only those count whose client is asked for here;
    a file that is handed its client may mean any.
    """
    words = set(_words(tree))
    methods = _methods(services & words or services)
    return {right for word in words for right in methods.get(word, ())}


def _clients(tree: ast.AST) -> Iterator[str]:
    """The services that clients are made of."""
    for call in _calls(tree):
        if ast.unparse(call.func) == "boto3.client" and isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value)


def _words(tree: ast.AST) -> Iterator[str]:
    """Names of called methods, and of the operations that are paged through or waited for."""
    for call in _calls(tree):
        if not isinstance(call.func, ast.Attribute):
            continue
        yield call.func.attr
        if call.func.attr == "get_paginator" and isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _methods(services: set[str]) -> dict[str, set[str]]:
    """Rights by the name of the method in boto3, of these services."""
    rights: dict[str, set[str]] = {}
    for service in services:
        for operation in _operations(service):
            name = S3.get(operation, operation) if service == "s3" else operation
            rights.setdefault(xform_name(operation), set()).add(f"{service}:{name}")
    return rights


@cache
def _operations(service: str) -> tuple[str, ...]:
    # Some services' descriptions are ten thousand lines long.
    description = botocore.loaders.Loader().load_service_model(service, "service-2")
    return tuple(botocore.model.ServiceModel(description, service).operation_names)
