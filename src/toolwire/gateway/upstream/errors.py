"""Errors of a connection to a provider, as values: a kind, and a message that says what to check."""

from __future__ import annotations

import errno
import re
import socket
from typing import Literal, final

from msgspec import Struct

TransportErrorKind = Literal[
    "dns",
    "refused",
    "unreachable",
    "tls",
    "connect-timeout",
    "first-byte-timeout",
    "idle-timeout",
    "connection-closed",
    "protocol",
    "proxy",
]

_ERRNO_TEXT = re.compile(r"\[Errno (\d+)\]")
_KIND_BY_ERRNO: dict[int, TransportErrorKind] = {errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "connect-timeout"}
_MESSAGES: dict[TransportErrorKind, str] = {
    "dns": "the host name of {peer} cannot be resolved: check the host in the base URL and this machine's DNS",
    "refused": "{peer} refused the connection: check that a server is running there and that the port is right",
    "unreachable": "{peer} cannot be reached ({why}): check the network, the firewall and whether a proxy is needed",
    "connect-timeout": "{peer} did not accept a connection in time: check host, firewall and whether a proxy is needed",
}


@final
class TransportError(Struct, frozen=True):
    """Why there is no answer, or no complete one. `detail` never contains a secret."""

    kind: TransportErrorKind
    detail: str


def read_connect_error(error: Exception, peer: str) -> TransportError:
    """The error of an attempt to connect, except for TLS errors."""
    kind = _error_kind(error)
    return TransportError(kind, _MESSAGES[kind].format(peer=peer, why=_errno_name(error)))


def _error_kind(error: Exception) -> TransportErrorKind:
    if isinstance(error, socket.gaierror | UnicodeError):
        return "dns"
    if isinstance(error, TimeoutError):
        return "connect-timeout"
    # If several addresses were tried, asyncio puts their errno only into the text.
    numbers = {int(number) for number in _ERRNO_TEXT.findall(str(error))} or {getattr(error, "errno", None) or 0}
    return _KIND_BY_ERRNO.get(numbers.pop(), "unreachable") if len(numbers) == 1 else "unreachable"


def _errno_name(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, "no route") if isinstance(number, int) else "no route"
