"""Where a target really leads: its addresses, and which of them nobody may go to."""

from __future__ import annotations

import ipaddress
import socket

# Addresses behind which clouds keep credentials, and that are not link-local.
_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in ("fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200")
)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_RESERVED = ipaddress.ip_network("240.0.0.0/4")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def refusal(address: Address) -> str | None:
    """Why nobody may go to this address, whatever is listed; None if somebody may. Loopback is not decided here."""
    for each in _embedded(address):
        if each.is_link_local:
            return "a link-local address"
        if each in _METADATA:
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
    if address in _NAT64 or int(address) < 2**32:
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
