"""A whole deployment, as its root makes it in an account: what it costs, who logs in with what, what stays secret."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from urllib.parse import parse_qs, urlsplit

from app.api.schemas.base import MAX_WAIT_S
from docs.costs import Sizes, sizes
from infra.aws.cache_users import MOST_IN_GROUP
from infra.queue.rules import of_control, of_flower
from infra.serve import KEEP_ALIVE_S
from infra.settings import Settings
from infra.store.engine import POOL_OVERFLOW, POOL_SIZE
from tests.terraform.folders import ROOT
from tests.terraform.whole import Whole

# One sends logs, one opens operators' sessions.
OF_AMAZONS_AGENTS = {"logs", "ssm", "ssmmessages"}


def test_what_is_priced_is_what_the_root_makes(whole: Whole, root: str) -> None:
    (database,) = whole.of("aws_db_instance")
    (redis,) = whole.of("aws_elasticache_replication_group")
    (group,), (template,) = (
        [each for each in whole.of(kind) if each["name"].endswith("-control")]
        for kind in ("aws_autoscaling_group", "aws_launch_template")
    )
    endpoints = [
        each for each in whole.of("aws_vpc_endpoint") if each["vpc_endpoint_type"] == "Interface"
    ]
    assert sizes(root) == Sizes(
        zones=len({each["availability_zone"] for each in whole.of("aws_subnet")}),
        control_type=template["instance_type"],
        control_instances=group["desired_capacity"],
        control_disk_gib=template["block_device_mappings"][0]["ebs"][0]["volume_size"],
        database_class=database["instance_class"],
        database_copies=2 if database["multi_az"] else 1,
        database_gib=database["allocated_storage"],
        redis_type=redis["node_type"],
        redis_nodes=redis["num_cache_clusters"],
        endpoints=sum(len(each["subnet_ids"]) for each in endpoints),
        secrets=len(whole.of("aws_secretsmanager_secret")),
        alarms=len(whole.of("aws_cloudwatch_metric_alarm")),
        metrics=len(whole.of("aws_cloudwatch_log_metric_filter")),
    )


def test_the_stores_and_the_control_plane_have_the_same_passwords(whole: Whole) -> None:
    stores = (
        ("database_url", whole.one("aws_db_instance", "this"), "identifier", "username"),
        ("redis_url", whole.one("aws_elasticache_user", "control"), "user_id", "user_name"),
        ("flower_redis_url", whole.one("aws_elasticache_user", "flower"), "user_id", "user_name"),
    )
    for name, store, key, user in stores:
        url = urlsplit(whole.control[name])
        assert (url.username, url.password) == (store[user], whole.passwords[store[key]])


def test_the_control_plane_goes_where_the_stores_are_and_knows_them_by_their_certificates(
    whole: Whole,
) -> None:
    database, redis = urlsplit(whole.control["database_url"]), urlsplit(whole.control["redis_url"])
    assert database.hostname == whole.one("aws_db_instance", "this")["address"]
    assert parse_qs(database.query)["sslmode"] == ["verify-full"]
    group = whole.one("aws_elasticache_replication_group", "this")
    assert (redis.scheme, redis.hostname) == ("rediss", group["primary_endpoint_address"])


def test_no_secret_is_in_the_state_or_in_what_terraform_says(whole: Whole) -> None:
    stores = [each["identifier"] for each in whole.of("aws_db_instance")]
    stores += [each["user_id"] for each in whole.of("aws_elasticache_user")]
    drawn = {whole.passwords[store] for store in stores}
    drawn |= {whole.control[name] for name in ("key_secret", "flower_password", "metrics_token")}
    assert len(drawn) == 7, "two of them are one"
    assert all(len(each) == 43 for each in drawn)
    assert not {each for each in drawn if each in whole.text}


def test_redis_lets_each_do_what_its_rules_say(whole: Whole) -> None:
    for name, rules in (("control", of_control()), ("flower", of_flower())):
        user = whole.one("aws_elasticache_user", name)
        assert user["access_string"].split() == " ".join(rules).split()


def test_every_host_that_there_may_be_has_room_in_the_group_of_users(whole: Whole) -> None:
    (group,) = whole.of("aws_elasticache_user_group")
    most = MOST_IN_GROUP - len(group["user_ids"])
    variables = (ROOT / "terraform/modules/deployment/variables.tf").read_text()
    assert f"var.fleet_max <= {most}\n" in variables


def test_every_service_that_is_called_has_its_endpoint(whole: Whole) -> None:
    """Without one, and without a way to the internet, a call hangs until its time-out."""
    called = set(
        re.findall(r"boto3\.client\(\s*\"(\w+)\"", (ROOT / "infra/aws/session.py").read_text())
    )
    assert {"ec2", "s3", "secretsmanager"} <= called
    reached = {each["service_name"].rpartition(".")[2] for each in whole.of("aws_vpc_endpoint")}
    assert reached == called | OF_AMAZONS_AGENTS | {"kms"}


def test_logs_are_sent_to_groups_that_are_there(whole: Whole) -> None:
    done = subprocess.run(
        [ROOT / "deploy/image/agent-config", "trial"], check=True, capture_output=True, timeout=60
    )
    files = json.loads(done.stdout)["logs"]["logs_collected"]["files"]["collect_list"]
    groups = {each["name"] for each in whole.of("aws_cloudwatch_log_group")}
    assert {each["log_group_name"] for each in files} == {
        name for name in groups if name.startswith("/promigence/trial/")
    }


def test_the_readme_lists_the_alarms(whole: Whole) -> None:
    page = (ROOT / "terraform/README.md").read_text()
    section = page.partition("## Alarms")[2].partition("\n## ")[0]
    names = re.findall(r"`([\w.]+)`", " ".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    listed = {name.removesuffix("_...") for name in names}
    alarms = whole.of("aws_cloudwatch_metric_alarm")
    made = {each["alarm_name"].removeprefix("promigence-trial-") for each in alarms}
    # Of each node and part one, under one heading.
    told = {name if name in listed else name.partition("_")[0] for name in made}
    assert told == listed - {"idle_commitment"}


def test_the_billing_worker_moves_the_group_that_hosts_are_in(whole: Whole) -> None:
    (hosts,) = [
        each for each in whole.of("aws_autoscaling_group") if each["name"].endswith("-host")
    ]
    (template,) = [
        each for each in whole.of("aws_launch_template") if each["name"].endswith("-control")
    ]
    told = base64.b64decode(template["user_data"]).decode().splitlines()
    assert f"PROMIGENCE_FLEET={hosts['name']}" in told


def test_instances_are_told_settings_that_there_are(whole: Whole) -> None:
    """One that is misspelt would be passed over in silence."""
    told = [
        base64.b64decode(each["user_data"]).decode() for each in whole.of("aws_launch_template")
    ]
    for script in told:
        names = re.findall(r"^PROMIGENCE_(\w+)=", script, re.MULTILINE)
        assert len(names) > 5
        assert {name.lower() for name in names} <= Settings.model_fields.keys()


def test_the_load_balancer_outwaits_a_poll_and_is_outwaited_by_the_api(whole: Whole) -> None:
    (balancer,) = whole.of("aws_lb")
    assert 2 * MAX_WAIT_S < balancer["idle_timeout"] < KEEP_ALIVE_S


def test_files_can_be_had_back_for_as_long_as_the_rows_that_name_them(whole: Whole) -> None:
    (database,) = whole.of("aws_db_instance")
    (rules,) = whole.of("aws_s3_bucket_lifecycle_configuration")
    kept = [
        each["noncurrent_days"]
        for rule in rules["rule"]
        for each in rule["noncurrent_version_expiration"]
    ]
    assert kept == [database["backup_retention_period"]]


def test_connections_suffice_for_every_process(whole: Whole) -> None:
    parameters = whole.one("aws_db_parameter_group", "this")["parameter"]
    (most,) = (int(each["value"]) for each in parameters if each["name"] == "max_connections")
    (hosts,) = [
        each for each in whole.of("aws_autoscaling_group") if each["name"].endswith("-host")
    ]
    assert most >= (POOL_SIZE + POOL_OVERFLOW) * (hosts["max_size"] + 8)
