"""The page of costs is what its generator draws, of what the roots really make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.costs import PAGE, ROOTS, Sizes, page, sizes
from tests.terraform.program import Terraform


def test_the_page_is_drawn_from_the_prices() -> None:
    drawn = page()
    assert PAGE.read_text() == drawn, "run `python -m docs.costs` and commit terraform/costs.md"


@pytest.mark.parametrize("root", ROOTS)
def test_what_is_priced_is_what_the_root_makes(terraform: Terraform, tree: Path, root: str) -> None:
    assert _made(list(_resources(terraform, tree / "envs" / root))) == sizes(root)


def _resources(terraform: Terraform, folder: Path) -> Iterator[dict[str, Any]]:
    """Every resource of the root after the first of its tests that has made instances."""
    terraform.initialise(folder)
    done = terraform.run(folder, "test", "-json", "-verbose")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    states = [each["test_state"] for each in said if each["type"] == "test_state"]
    for state in states:
        found = list(_below(state["root_module"]))
        if any(each["type"] == "aws_autoscaling_group" for each in found):
            yield from found
            return


def _below(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from module.get("resources", ())
    for child in module.get("child_modules", ()):
        yield from _below(child)


def _made(resources: list[dict[str, Any]]) -> Sizes:
    def of(kind: str) -> list[dict[str, Any]]:
        return [each["values"] for each in resources if each["type"] == kind]

    (database,), (redis,) = of("aws_db_instance"), of("aws_elasticache_replication_group")
    (control,), (template,) = (
        [each for each in of(kind) if each["name"].endswith("-control")]
        for kind in ("aws_autoscaling_group", "aws_launch_template")
    )
    interfaces = [
        each for each in of("aws_vpc_endpoint") if each["vpc_endpoint_type"] == "Interface"
    ]
    return Sizes(
        zones=len({each["availability_zone"] for each in of("aws_subnet")}),
        control_type=template["instance_type"],
        control_instances=control["desired_capacity"],
        control_disk_gib=template["block_device_mappings"][0]["ebs"][0]["volume_size"],
        database_class=database["instance_class"],
        database_copies=2 if database["multi_az"] else 1,
        database_gib=database["allocated_storage"],
        redis_type=redis["node_type"],
        redis_nodes=redis["num_cache_clusters"],
        endpoints=sum(len(each["subnet_ids"]) for each in interfaces),
        secrets=len(of("aws_secretsmanager_secret")),
        alarms=len(of("aws_cloudwatch_metric_alarm")),
        metrics=len(of("aws_cloudwatch_log_metric_filter")),
    )
