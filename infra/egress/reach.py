"""From a target's name to a connection: resolved once, checked, and what was checked is what is connected to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from app.domain.egress import REFUSED, check, host_and_port
from app.errors import BadRequest, Forbidden
from infra.egress.addresses import Address, is_own, refusal, resolve
from infra.egress.http import RequestRefusedError

CONNECT_TIMEOUT_S = 15.0
# A name of more is no service's; each may take the whole of the time above.
_ADDRESSES_TRIED = 4

Resolver = Callable[[str, int], list[Address]]


class Reach:
    """Where machines may go, whichever of them asks.

    `operator_allows` are the operator's patterns (`app/domain/egress.py`), none by default; loopback, and the host's
    own addresses, only where a pattern names the very address (or `localhost`). `never` are `host:port` of the control
    plane, refused whatever the patterns say.
    """

    def __init__(
        self,
        operator_allows: Iterable[str] = (),
        never: Iterable[str] = (),
        resolver: Resolver = resolve,
    ) -> None:
        self._operator_allows = tuple(operator_allows)
        self._never = tuple(host_and_port(target) for target in never)
        self._resolve = resolver

    def dial(self, target: str) -> socket.socket:
        """A connection to `host:port`. Raises RequestRefusedError: the answer that the machine gets, and what is kept
        of it.
        """
        try:
            host, port = host_and_port(target)
            check((target,), self._operator_allows)
        except BadRequest as error:
            raise RequestRefusedError(400, error.message) from error
        except Forbidden as error:
            raise refused(target, "it is not on the operator's allow-list") from error
        return _first_connection(target, port, self._sound_addresses(target, host, port))

    def _sound_addresses(self, target: str, host: str, port: int) -> list[Address]:
        """Where the target leads; refused as a whole if any of it leads where nobody may go."""
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise fault(target, 502, "unresolved", f"its name does not resolve: {error}") from error
        for address in addresses:
            if self._is_control_plane(address, port):
                raise refused(target, "it is a part of the control plane")
            why = refusal(address)
            if why is None and is_own(address) and not self._lists(address, port):
                why = "an address of the host itself, and the operator does not list it"
            if why is not None:
                raise refused(target, f"it leads to {address}: {why}")
        return addresses

    def _is_control_plane(self, address: Address, port: int) -> bool:
        """A part that listens on every address of the host is at each of them."""
        for host, its_port in self._never:
            if its_port != port:
                continue
            try:
                at = self._resolve(host, port)
            except OSError:
                continue
            if address in at or (is_own(address) and any(each.is_unspecified for each in at)):
                return True
        return False

    def _lists(self, address: Address, port: int) -> bool:
        """Whether the operator names this very address. No wildcard and no name that merely resolves to it opens it."""
        spellings = {str(address)}
        if address.is_loopback:
            spellings.add("localhost")
        for pattern in self._operator_allows:
            host, _, pattern_port = pattern.rpartition(":")
            if host.strip("[]").lower() in spellings and pattern_port in ("*", str(port)):
                return True
        return False


def refused(target: str, why: str) -> RequestRefusedError:
    """Nobody allowed it: no fault of anybody's."""
    return RequestRefusedError(403, f"{target} cannot be reached from here: {why}", target, REFUSED)


def fault(target: str, status: int, what: str, why: str) -> RequestRefusedError:
    """An allowed target that failed, or the way to it."""
    return RequestRefusedError(status, f"{target} failed: {why}", target, what)


def _first_connection(target: str, port: int, addresses: list[Address]) -> socket.socket:
    failed = fault(target, 502, "unresolved", "it has no address")
    for address in addresses[:_ADDRESSES_TRIED]:
        try:
            return socket.create_connection((str(address), port), timeout=CONNECT_TIMEOUT_S)
        except TimeoutError:
            failed = fault(target, 504, "timed_out", f"{address} did not answer")
        except ConnectionRefusedError:
            failed = fault(target, 502, "connection_refused", f"{address} refused the connection")
        except OSError as error:
            failed = fault(target, 502, "unreachable", f"{address}: {error.strerror or error}")
    raise failed
