"""Where a target really leads: its addresses, and which of them nobody may go to."""

from __future__ import annotations

import ipaddress
import socket

# Where clouds keep credentials and the like, and that is not link-local: AWS, Google, Azure, Alibaba, Oracle.
_METADATA = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("fd00:ec2::/32", "fd20:ce::254/128", "168.63.129.16/32"),
        *("100.100.100.200/32", "192.0.0.192/32"),
    )
)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_RESERVED = ipaddress.ip_network("240.0.0.0/4")
# IPv6 that ends in an IPv4 address: NAT64 of everybody and of a network, SIIT. A translator may stand anywhere.
_ENDING_IN_IPV4 = tuple(
    ipaddress.ip_network(network)
    for network in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")
)
# What stands before the IPv4 address of an ISATAP interface, whatever its network (RFC 5214).
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def refusal(address: Address) -> str | None:
    """Why nobody may go to this address, whatever is listed; None if somebody may. Loopback is not decided here."""
    for each in _embedded(address):
        if each.is_link_local:
            return "a link-local address"
        if any(each in network for network in _METADATA):
            return "a metadata service"
        if each.is_multicast:
            return "a multicast address"
        if each.is_unspecified or each in _THIS_NETWORK or each in _RESERVED:
            return "no address of a host"
        if each != address and each.is_loopback:
            return "loopback in disguise"
    return None


def _embedded(address: Address) -> tuple[Address, ...]:
    """The address, and every IPv4 address that an IPv6 one carries."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    is_isatap = int(address) >> 32 & 0xFFFFFFFF in _ISATAP
    if is_isatap or int(address) < 2**32 or any(address in each for each in _ENDING_IN_IPV4):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.is_loopback or address.is_unspecified:
        return (address,)
    return (address, *(each for each in inner if each is not None))


def resolve(host: str, port: int) -> list[Address]:
    """Each address once, in the resolver's order; bounded by the resolver's own timeout."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = (ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found)
    return list(dict.fromkeys(addresses))


def is_own(address: Address) -> bool:
    """Whether this host itself answers at the address: only a host's own address can be bound."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
