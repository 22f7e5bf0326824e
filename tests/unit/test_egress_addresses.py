"""Where nobody may go, in every spelling."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from infra.egress.addresses import is_own, refusal, resolve


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "::ffff:169.254.169.254",
        "::ffff:a9fe:a9fe",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "fe80::1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "192.0.0.192",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b:1:dead::a9fe:a9fe",
        "::ffff:0:169.254.169.254",
        "2001:db8::5efe:169.254.169.254",
        "2001:db8::200:5efe:169.254.169.254",
        "2001:0:a9fe:a9fe::",
        "2001:0:808:808::5601:5601",
        "64:ff9b:1::127.0.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",  # noqa: S104 - nobody binds it here
        "0.1.2.3",
        "::",
        "::ffff:0.0.0.0",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::127.0.0.1",
        "2002:7f00:1::",
    ],
)
def test_nobody_may_go_there(address: str) -> None:
    assert refusal(ipaddress.ip_address(address)) is not None


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.7",
        "192.168.1.1",
        "8.8.8.8",
        "2001:4860:4860::8888",
        "fd00::7",
        "127.0.0.1",
        "::1",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:db8::5efe:8.8.8.8",
    ],
)
def test_elsewhere_the_lists_decide(address: str) -> None:
    assert refusal(ipaddress.ip_address(address)) is None


@pytest.mark.parametrize(
    "spelling", ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518"]
)
def test_odd_spellings_resolve_to_what_they_mean(spelling: str) -> None:
    assert [refusal(address) for address in resolve(spelling, 80)] == ["a link-local address"]


def test_the_hosts_own_addresses_are_known() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert is_own(ipaddress.ip_address("127.9.9.9"))
    assert not is_own(ipaddress.ip_address("192.0.2.1"))
    own = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    assert all(is_own(ipaddress.ip_address(str(address))) for address in own)
