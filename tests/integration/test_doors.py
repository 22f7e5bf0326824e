"""A host's whole way in and out: an instance of the group, a role of PostgreSQL, a user of Redis, a secret, files; all
real but AWS's API, for which a moto server stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis
from pydantic import SecretStr
from typer.testing import CliRunner

from app.domain.access import HOST_ROLE
from app.domain.audit import Sought
from app.flow import admit
from infra import wiring, wiring_access
from infra.aws.session import Account
from infra.queue import CeleryBells, redis_url
from infra.settings import Settings, as_json, load
from tests.contract.moto_server import REGION, moto_server
from tests.contract.postgres import server as postgres
from tests.integration.guarded_redis import GuardedRedis, guarded
from workers.admitting import Doorkeeper
from workers.server import app

GROUP, BY_HAND = "promigence", "rack-7"


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedRedis]:
    with guarded(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def settings(tmp_path: Path, queue: GuardedRedis, database: str) -> Settings:
    """Of a control plane without an account, written down in its directory."""
    made = Settings(
        dir=tmp_path,
        database_url=SecretStr(database),
        redis_url=SecretStr(queue.control()),
        redis_admin_url=SecretStr(queue.admin_url),
    )
    wiring.migrate(made)
    _make_the_group(database)
    (tmp_path / "settings.json").write_text(as_json(made))
    return made


@pytest.fixture
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with moto_server(tmp_path_factory.mktemp("aws")) as endpoint:
        account = Account(REGION, endpoint)
        image = account.ec2().register_image(Name="base", RootDeviceName="/dev/xvda")["ImageId"]
        account.ec2().create_launch_template(
            LaunchTemplateName="host",
            LaunchTemplateData={"ImageId": image, "InstanceType": "m5.large"},
        )
        account.autoscaling().create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchTemplate={"LaunchTemplateName": "host", "Version": "$Latest"},
            MinSize=0,
            MaxSize=2,
            DesiredCapacity=2,
            AvailabilityZones=[f"{REGION}a"],
        )
        yield account


def test_an_instance_comes_finds_its_logins_and_is_cut_off_when_it_is_gone(
    settings: Settings, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings.model_copy(
        update={
            "aws_region": REGION,
            "aws_endpoint": account.endpoint,
            "deployment": "d",
            "fleet": GROUP,
        }
    )
    (tmp_path / "settings.json").write_text(as_json(settings))
    fleet = wiring.fleet(settings)
    assert fleet is not None
    names = sorted(each.instance_id for each in fleet.state().instances)
    with (
        wiring_access.access(settings) as access,
        closing(CeleryBells(settings.broker_url, at_once=1)) as bells,
    ):
        assert access is not None
        keeper = Doorkeeper(access, fleet, bells.alone)
        with bells.alone("doors", 60):
            assert keeper.turn() is None
        moved = keeper.turn()
        assert moved is not None
        assert (sorted(moved.admitted), moved.failures) == (names, ())
        ours = _credentials(settings, names[0], tmp_path / "secrets", monkeypatch)
        assert _reached(ours) == f"promigence_host_{names[0]}"
        assert _credentials(settings, names[1], tmp_path / "other", monkeypatch) != ours

        fleet.retire(names[0])
        moved = keeper.turn()
        assert moved is not None
        assert moved.expelled == (names[0],)
        assert admit.known(access) == {names[1]}
        _shut_out(ours)
        admit.expel(access, names[1])


def test_a_host_is_let_in_and_shut_out_by_hand(settings: Settings) -> None:
    told = _server("hosts", "admit", BY_HAND, "--json", "--dir", str(settings.dir))
    ours = Settings(
        dir=settings.dir / "host",
        database_url=SecretStr(told["database_url"]),
        redis_url=SecretStr(told["redis_url"]),
    )

    assert _reached(ours) == f"promigence_host_{BY_HAND}"
    assert _server("hosts", "expel", BY_HAND, "--json", "--dir", str(settings.dir)) == {
        "host_id": BY_HAND,
        "admitted": False,
    }
    _shut_out(ours)
    _server("hosts", "expel", BY_HAND, "--json", "--dir", str(settings.dir))
    with wiring.control(settings) as control:
        actions = [each.action for each in control.ports.audit.list(None, Sought(), 10, None)]
    assert actions.count("hosts.expel") == 2
    assert actions.count("hosts.admit") == 1


def test_without_logins_of_their_own_it_says_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "promigence.db").touch()
    refused = CliRunner().invoke(app, ["hosts", "admit", BY_HAND, "--dir", str(tmp_path)])

    assert refused.exit_code != 0
    assert "PROMIGENCE_REDIS_ADMIN_URL" in str(refused.exception)


def _make_the_group(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", "")) as database:
        there = database.execute("SELECT FROM pg_roles WHERE rolname = %s", (HOST_ROLE,)).fetchone()
        if there is None:
            database.execute(f"CREATE ROLE {HOST_ROLE} NOLOGIN")


def _server(*words: str) -> dict[str, str]:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (done.output, done.exception)
    told: dict[str, str] = json.loads(done.stdout)
    return told


def _credentials(
    settings: Settings, host_id: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """What this host's settings are once it has fetched its secret."""
    with monkeypatch.context() as environment:
        for name, value in {
            "AWS_REGION": REGION,
            "AWS_ENDPOINT": settings.aws_endpoint or "",
            "DEPLOYMENT": "d",
            "HOST_ID": host_id,
            "SECRETS_DIR": str(folder),
        }.items():
            environment.setenv(f"PROMIGENCE_{name}", value)
        _server("credentials", "--json", "--dir", str(folder / "host"))
        return load(folder / "host")


def _reached(settings: Settings) -> str:
    """Who the database says that this host is; its queue is reached, too."""
    with closing(redis.Redis.from_url(redis_url(settings.broker_url))) as client:
        assert client.ping()
    with psycopg.connect(settings.database.replace("+psycopg", "")) as database:
        (name,) = database.execute("SELECT session_user").fetchone() or ("",)
    return str(name)


def _shut_out(settings: Settings) -> None:
    with (
        closing(redis.Redis.from_url(redis_url(settings.broker_url))) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(settings.database.replace("+psycopg", "")).close()
