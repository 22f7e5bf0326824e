"""Clients of AWS, each with bounds on how long a call may take, whatever the network does."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient
    from types_boto3_ec2 import EC2Client
    from types_boto3_elasticache import ElastiCacheClient
    from types_boto3_s3 import S3Client
    from types_boto3_secretsmanager import SecretsManagerClient
    from types_boto3_sts import STSClient

CONNECT_S = 3
READ_S = 20
ATTEMPTS = 5

# At the level `debug` they write down whole requests, session tokens among the headers.
for _library in ("boto3", "botocore", "s3transfer"):
    logging.getLogger(_library).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Account:
    """One region of an account, or what stands in for it at `endpoint` (a URL; None: AWS itself).

    Credentials come by boto3's own chain: on EC2 the instance's role. Nothing else of the region or of endpoints is
    taken from the environment. Each client may be shared by threads. A call connects within `CONNECT_S`, waits
    `READ_S` for each piece of an answer, and is tried `attempts` times at most (botocore's mode "standard": broken
    connections and 5xx after parts of a second, throttling after jittered pauses of up to 1, 2, 4 and 8 s, and 5 s more
    where AWS asks for it): with the figures above, no longer than 150 s.
    """

    region: str
    endpoint: str | None = None

    def ec2(self, attempts: int = ATTEMPTS) -> EC2Client:
        return boto3.client(
            "ec2",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=self._config(attempts),
        )

    def autoscaling(self, attempts: int = ATTEMPTS) -> AutoScalingClient:
        return boto3.client(
            "autoscaling",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=self._config(attempts),
        )

    def s3(self, attempts: int = ATTEMPTS) -> S3Client:
        # As many connections as the API has threads; a stand-in for S3 has no host name for each bucket.
        style = Config(
            max_pool_connections=40,
            s3=None if self.endpoint is None else {"addressing_style": "path"},
        )
        return boto3.client(
            "s3",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=self._config(attempts).merge(style),
        )

    def secretsmanager(self, attempts: int = ATTEMPTS) -> SecretsManagerClient:
        return boto3.client(
            "secretsmanager",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=self._config(attempts),
        )

    def elasticache(self, attempts: int = ATTEMPTS) -> ElastiCacheClient:
        return boto3.client(
            "elasticache",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=self._config(attempts),
        )

    def sts(self, attempts: int = ATTEMPTS) -> STSClient:
        return boto3.client(
            "sts",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=self._config(attempts),
        )

    def _config(self, attempts: int) -> Config:
        return Config(  # type: ignore[call-arg]  # its stubs know no ignore_configured_endpoint_urls
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"mode": "standard", "total_max_attempts": attempts},
            ignore_configured_endpoint_urls=True,
            # What stands in for AWS is on this machine or beside it.
            proxies=None if self.endpoint is None else {},
            user_agent_extra="promigence",
        )
