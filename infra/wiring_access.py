"""The part of wiring that joins what lets hosts in: logins at the database and the queue, and secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from app.errors import BadRequest
from app.flow.teardown import Made
from app.ports.access import Access
from infra.access.postgres import PostgresLogins
from infra.access.redis import RedisLogins, with_login
from infra.aws import secrets as account_secrets
from infra.aws.cache_users import CacheUsers
from infra.aws.ec2 import Ec2Cloud
from infra.aws.secrets import SecretsManager
from infra.aws.session import Account
from infra.clock import HostClock
from infra.queue import redis_url
from infra.queue.address import database_number
from infra.queue.rules import of_host
from infra.settings import Settings
from infra.wiring import metadata


@contextmanager
def access(settings: Settings) -> Iterator[Access | None]:
    """Where hosts are given logins of their own; None where nobody may manage the users of Redis, or the database is
    SQLite: then all have the control plane's.
    """
    group, admin = settings.redis_user_group, settings.redis_admin_url
    if (group is None and admin is None) or not settings.database.startswith("postgresql"):
        yield None
        return
    database, kept = PostgresLogins(settings.database), _secrets(settings)
    rules = partial(of_host, db=database_number(settings.broker_url))
    if group is not None:
        users = _cache_users(settings, group, rules)
        yield Access(database, users, kept, users.settle)
        return
    assert admin is not None, "one of the two is set"
    url = redis_url(admin.get_secret_value())
    with closing(RedisLogins(url, settings.broker_url, rules)) as logins:
        yield Access(database, logins, kept)


def secret_words(settings: Settings) -> Callable[[str], dict[str, str]]:
    """Reads a secret of the account by its name. Raises BadRequest(no_region)."""
    if settings.aws_region is None:
        raise BadRequest("no_region", "set PROMIGENCE_AWS_REGION: secrets are in one region")
    return partial(account_secrets.read, _account(settings))


def own_secret(settings: Settings) -> str:
    """Where this host finds its access. Raises BadRequest(no_deployment), Unavailable while the metadata service is
    away.
    """
    if settings.deployment is None:
        raise BadRequest("no_deployment", "set PROMIGENCE_DEPLOYMENT, or name a --secret")
    with metadata(settings) as asked:
        host_id = settings.host_id if asked is None else asked.identity().instance_id
    return account_secrets.name_of_host(settings.deployment, host_id)


def made_in_account(settings: Settings) -> Made:
    """Where this deployment makes things in the account. Raises BadRequest(no_region, no_deployment)."""
    if settings.aws_region is None or settings.deployment is None:
        raise BadRequest(
            "no_deployment", "set PROMIGENCE_AWS_REGION and PROMIGENCE_DEPLOYMENT: whose is meant"
        )
    pause = HostClock().pause
    # Neither is written to: of users none is made here, and what they may do is nobody's.
    users = CacheUsers(_account(settings), settings.deployment, "", lambda _: (), lambda *_: "")
    return Made(
        Ec2Cloud(_account(settings), settings.deployment, pause),
        SecretsManager(_account(settings), settings.deployment, pause),
        users,
    )


def _cache_users(
    settings: Settings, group: str, rules: Callable[[str], tuple[str, ...]]
) -> CacheUsers:
    assert settings.deployment is not None, "settings see to it"
    url = partial(with_login, settings.broker_url)
    return CacheUsers(_account(settings), settings.deployment, group, rules, url)


def _secrets(settings: Settings) -> SecretsManager | None:
    if settings.aws_region is None or settings.deployment is None:
        return None
    pause = HostClock().pause
    return SecretsManager(_account(settings), settings.deployment, pause, settings.secrets_kms_key)


def _account(settings: Settings) -> Account:
    assert settings.aws_region is not None
    return Account(settings.aws_region, settings.aws_endpoint)
