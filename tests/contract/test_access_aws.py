"""Logins and secrets in an account of AWS: Secrets Manager on a moto server, ElastiCache's users in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from app.domain.access import HostAccess
from app.errors import BadRequest, CloudRefused, NotFound, Unavailable
from infra.access.redis import with_login
from infra.aws import secrets
from infra.aws.cache_users import MOST_IN_GROUP, CacheUsers, user_prefix
from infra.aws.secrets import SecretsManager
from infra.aws.session import Account
from infra.conformance_access import (
    LOGIN_CHECKS,
    ONE,
    SECRET_CHECKS,
    LoginSubject,
    SecretSubject,
)
from infra.queue.rules import of_host
from tests.contract.cache_service import GROUP, ROOM, CacheService, account_of
from tests.contract.moto_server import REGION, empty, moto_server

OTHER = "i-0123456789abcdef1"
DEPLOYMENT = "d"


class Patient:
    """Logins of a cache after whose every change some time has passed, and the group was looked after."""

    def __init__(self, service: CacheService) -> None:
        self._service = service
        self.users = _users(service)

    def create(self, host_id: str) -> str:
        url = self.users.create(host_id)
        self._settle()
        return url

    def remove(self, host_id: str) -> None:
        self.users.remove(host_id)
        self._settle()

    def list(self) -> tuple[str, ...]:
        return self.users.list()

    def _settle(self) -> None:
        self._service.pass_time()
        self.users.settle()
        self._service.pass_time()


@pytest.fixture
def service() -> CacheService:
    return CacheService()


@pytest.mark.parametrize("check", LOGIN_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_logins(
    service: CacheService, check: Callable[[LoginSubject], None]
) -> None:
    def opens(url: str) -> bool:
        parts = urlsplit(url)
        return service.lets_in(parts.username or "", parts.password or "")

    check(LoginSubject(Patient(service), opens, lambda: dict(service.users), OTHER))


def test_a_user_is_held_to_its_host_and_named_so_that_a_policy_can_tell_it(
    service: CacheService,
) -> None:
    _users(service).create(ONE)

    (user,) = [each for each in service.users.values() if each["UserId"].startswith("pmg-")]
    assert user["UserId"] == f"{user_prefix(DEPLOYMENT)}{ONE}"
    assert len(user["UserId"]) <= 40
    assert user["AccessString"] == " ".join(of_host(ONE))
    assert user["AccessString"].startswith("on -@all ")
    assert "reset" not in user["AccessString"]


def test_hosts_that_come_together_are_let_in_together(service: CacheService) -> None:
    users = _users(service)
    for host_id in (ONE, OTHER):
        users.create(host_id)
    users.settle()
    assert "ModifyUserGroup" not in service.asked

    service.pass_time()
    users.settle()
    users.settle()

    assert service.asked.count("ModifyUserGroup") == 1
    service.pass_time()
    assert {f"{user_prefix(DEPLOYMENT)}{each}" for each in (ONE, OTHER)} < set(
        service.group["UserIds"]
    )


def test_who_is_busy_says_so(service: CacheService) -> None:
    users = _users(service)
    users.create(ONE)

    for act in (users.create, users.remove):
        with pytest.raises(Unavailable) as refused:
            act(ONE)
        assert refused.value.code == "login_pending"
    assert users.list() == (ONE,)
    service.pass_time()
    users.remove(ONE)
    assert users.list() == ()
    users.remove(ONE)


def test_a_full_group_takes_those_that_fit_and_says_so(service: CacheService) -> None:
    users = _users(service)
    service.group["UserIds"] += [f"another-{number}" for number in range(ROOM - 3)]
    for host_id in (ONE, OTHER):
        users.create(host_id)
    service.pass_time()

    with pytest.raises(CloudRefused, match=f"{MOST_IN_GROUP} users") as refused:
        users.settle()

    assert refused.value.code == "limit_exceeded"
    service.pass_time()
    assert len(service.group["UserIds"]) == MOST_IN_GROUP


def test_another_deployments_users_are_nobody_here(service: CacheService) -> None:
    """One's name may begin with the other's."""
    for user_id in (f"{user_prefix('e')}{ONE}", f"{user_prefix(DEPLOYMENT)}x-{ONE}"):
        service.users[user_id] = {"UserId": user_id, "UserName": user_id, "Status": "active"}

    assert _users(service).list() == ()


def test_only_an_instance_has_a_user_of_the_cache(service: CacheService) -> None:
    for name in ("a-host", "i-xyz", "i-0123456789abcdef", "i-0123456789abcdef0\n"):
        with pytest.raises(BadRequest, match=r"instance of EC2|a host's id"):
            _users(service).create(name)


def test_a_group_that_is_not_there_is_named(service: CacheService) -> None:
    users = CacheUsers(account_of(service), DEPLOYMENT, "elsewhere", of_host, _url)

    with pytest.raises(CloudRefused, match="UserGroupNotFound"):
        users.create(ONE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("aws")) as endpoint:
        yield endpoint


@pytest.fixture
def account(server: str) -> Account:
    empty(server)
    return Account(REGION, server)


@pytest.mark.parametrize("check", SECRET_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_secrets(account: Account, check: Callable[[SecretSubject], None]) -> None:
    check(SecretSubject(_secrets(account), lambda host_id: _read(account, host_id)))


def test_a_secret_says_whose_instance_it_is_for(account: Account) -> None:
    _secrets(account).put(ONE, HostAccess("postgresql://a", "rediss://b"))

    told = account.secretsmanager().describe_secret(SecretId=f"promigence/{DEPLOYMENT}/host/{ONE}")

    assert {each["Key"]: each["Value"] for each in told["Tags"]} == {
        "promigence:deployment": DEPLOYMENT,
        "promigence:instance": f"arn:aws:ec2:{REGION}:123456789012:instance/{ONE}",
    }


def test_another_deployments_secrets_are_nobodys_here(account: Account) -> None:
    SecretsManager(account, "e", _no_pause).put(ONE, HostAccess("postgresql://a", "rediss://b"))
    SecretsManager(account, f"{DEPLOYMENT}/host/x", _no_pause).put(
        ONE, HostAccess("postgresql://a", "rediss://b")
    )
    account.secretsmanager().create_secret(
        Name=f"promigence/{DEPLOYMENT}/control", SecretString="{}"
    )

    found = _secrets(account).list()

    assert found == ()
    _secrets(account).delete(ONE)
    assert _read(account, ONE) is None


def test_what_is_no_object_of_strings_is_refused(account: Account) -> None:
    client = account.secretsmanager()
    for number, said in enumerate(("hunter2", '["hunter2"]', '{"hunter2": 1}')):
        client.create_secret(Name=str(number), SecretString=said)
        with pytest.raises(CloudRefused) as refused:
            secrets.read(account, str(number))
        assert refused.value.code == "refused"
        assert "hunter2" not in f"{refused.value} {refused.value.details}"


def _users(service: CacheService) -> CacheUsers:
    return CacheUsers(account_of(service), DEPLOYMENT, GROUP, of_host, _url)


def _url(user: str, password: str) -> str:
    return with_login("rediss://cache.example:6379/0", user, password)


def _secrets(account: Account) -> SecretsManager:
    return SecretsManager(account, DEPLOYMENT, _no_pause)


def _read(account: Account, host_id: str) -> HostAccess | None:
    try:
        told = secrets.read(account, f"promigence/{DEPLOYMENT}/host/{host_id}")
    except NotFound:
        return None
    assert json.dumps(told)
    return HostAccess(**told)


def _no_pause(_: float) -> None:
    """moto has a name free again at once."""
