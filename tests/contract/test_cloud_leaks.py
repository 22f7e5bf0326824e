"""What nobody owns in an account of AWS's API: `promigence-server doctor` tells what it costs, and removes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.domain.cloud import TAG_BUNDLE, TAG_DEADLINE
from infra import wiring
from infra.aws.ec2 import Ec2Cloud
from infra.aws.session import Account
from infra.settings import load
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract.moto_server import REGION, instance, moto_server, never
from workers import examination
from workers.server import app

ZONE = f"{REGION}a"
HOUR_NS = 3600 * 10**9
LATE = {TAG_BUNDLE: "build_gone", TAG_DEADLINE: "0"}


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with moto_server(tmp_path) as url:
        yield url


@pytest.fixture
def stack(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a stack of which nothing runs, and that stores its snapshots in this account."""
    monkeypatch.setattr(examination, "PAUSE_S", 0.0)
    settings = {
        "machines": "fake",
        "bundles": "ebs",
        "aws_region": REGION,
        "aws_endpoint": endpoint,
        "deployment": "ours",
        "zone": ZONE,
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    wiring.migrate(load(tmp_path))
    return tmp_path


@pytest.fixture
def store(stack: Path) -> Iterator[Stores]:
    made = create_store(load(stack).database)
    made.hosts.register(a.fingerprint(load(stack).host_id), 16)
    yield made
    made.close()


def cloud_of(endpoint: str, deployment: str = "ours") -> Ec2Cloud:
    return Ec2Cloud(Account(REGION, endpoint), deployment, never)


def doctor(stack: Path, *words: str, code: int) -> Any:
    done = CliRunner().invoke(app, ["doctor", *words, "--dir", str(stack)])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if "--json" in words else done.stdout


def test_doctor_tells_what_is_nobodys_and_its_price_and_removes_it(
    stack: Path, store: Stores, endpoint: str
) -> None:
    cloud, theirs = cloud_of(endpoint), cloud_of(endpoint, "theirs")
    machine = instance(Account(REGION, endpoint))

    def volume(of: Ec2Cloud, token: str, size_gib: int) -> str:
        made = of.create_volume(
            token=token, zone=ZONE, size_gib=size_gib, snapshot_id=None, tags=LATE
        )
        return made.volume_id

    free, attached, another = volume(cloud, "1", 8), volume(cloud, "2", 4), volume(theirs, "3", 1)
    cloud.attach(attached, machine, "/dev/sdf")
    snapshot = cloud.create_snapshot(token="4", volume_id=free, tags=LATE).snapshot_id
    being_made = store.resources.intend(a.volume("tok_5"), HOUR_NS)
    tags = {TAG_DEADLINE: str(being_made.deadline_ns)}
    young = cloud.create_volume(
        token="tok_5", zone=ZONE, size_gib=2, snapshot_id=None, tags=tags
    ).volume_id

    told = doctor(stack, "--json", code=1)
    seen = {each["name"]: each for each in told["findings"]}
    costs = {name: each["usd_per_month"] for name, each in seen.items()}
    assert costs == {free: 0.64, attached: 0.32, snapshot: 0.4}
    assert "8 GiB of build_gone; no row knows it; 0.64 USD a month since 20" in seen[free]["detail"]
    assert seen[free]["remedy"].startswith("it would be detached and deleted")
    assert any("1.36 USD a month" in note for note in told["notes"])
    assert "0.64 USD a month" in doctor(stack, code=1)

    mended = doctor(stack, "--json", "--fix", code=0)
    assert all(each["mended"] for each in mended["findings"])
    assert doctor(stack, "--json", code=0)["findings"] == []
    assert [each.volume_id for each in cloud.volumes()] == [young]
    assert cloud.snapshots() == ()
    assert [each.volume_id for each in theirs.volumes()] == [another]


def test_an_account_that_does_not_answer_is_told_and_nothing_else_is_missed(
    stack: Path, store: Stores
) -> None:
    settings = json.loads((stack / "settings.json").read_text())
    away = {"aws_endpoint": "http://127.0.0.1:1", "blobs": "s3://bucket/files"}
    (stack / "settings.json").write_text(json.dumps(settings | away))
    (stack / "bundles" / "staged" / "build_unowned").mkdir(parents=True)
    told = doctor(stack, "--json", code=1)
    kinds = {each["kind"] for each in told["findings"]}
    assert kinds >= {"cloud_away", "blobs_away", "bundle"}
