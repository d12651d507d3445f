"""What can go wrong between here and a provider, as values: a kind, and a sentence that says what to check."""

from __future__ import annotations

import errno
import re
import socket
from typing import Literal, final

from msgspec import Struct

Kind = Literal[
    "dns",
    "refused",
    "unreachable",
    "tls",
    "connect-timeout",
    "first-byte-timeout",
    "idle-timeout",
    "cut",
    "protocol",
    "proxy",
]

_NUMBER = re.compile(r"\[Errno (\d+)\]")
_BY_NUMBER: dict[int, Kind] = {errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "connect-timeout"}
_SENTENCES: dict[Kind, str] = {
    "dns": "the name of {peer} cannot be resolved: check the host in the base URL and this machine's DNS",
    "refused": "{peer} refused the connection: check that a server runs there and that the port is right",
    "unreachable": "{peer} cannot be reached ({why}): check the network, the firewall and whether a proxy is needed",
    "connect-timeout": "{peer} accepted no connection in time: check host and firewall, and whether a proxy is needed",
}


@final
class Fault(Struct, frozen=True):
    """Why there is no answer, or no whole one. The detail never holds a secret."""

    kind: Kind
    detail: str


def read_connect_error(error: Exception, peer: str) -> Fault:
    """The error of an attempt to connect; what TLS has to say is read by `trust`."""
    kind = _kind(error)
    return Fault(kind, _SENTENCES[kind].format(peer=peer, why=_why(error)))


def _kind(error: Exception) -> Kind:
    if isinstance(error, socket.gaierror | UnicodeError):
        return "dns"
    if isinstance(error, TimeoutError):
        return "connect-timeout"
    # Several addresses were tried: then the numbers stand only in the text.
    numbers = {int(number) for number in _NUMBER.findall(str(error))} or {getattr(error, "errno", None) or 0}
    return _BY_NUMBER.get(numbers.pop(), "unreachable") if len(numbers) == 1 else "unreachable"


def _why(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, "no route") if isinstance(number, int) else "no route"
