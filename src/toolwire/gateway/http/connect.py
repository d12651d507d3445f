"""Opening a connection to a provider: directly or through a proxy, plain or with TLS."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote

from msgspec import Struct

from toolwire.gateway.http.connection import (
    DEADLINE_LOOKS,
    TransportError,
    TransportErrorKind,
    UpstreamConnection,
)
from toolwire.gateway.http.descriptors import DESCRIPTOR_HINT, descriptor_limit, has_free_descriptor, is_exhausted
from toolwire.gateway.settings.address import Address, split_url

_UNKNOWN_AUTHORITY = (
    "its certificate is not from a trusted authority: behind a company proxy or with a private CA, set ca_file for "
    "this provider or SSL_CERT_FILE; if no certificate is trusted, install the system's CA certificates"
)
_WRONG_HOST = "its certificate is for another name: check the host in the base URL"
_CERTIFICATE_ERRORS: dict[int, str] = {
    9: "its certificate is not valid yet: check this machine's clock",
    10: "its certificate has expired: check this machine's clock; if it is right, only the provider can fix it",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    62: _WRONG_HOST,
    64: _WRONG_HOST,
}
"""By OpenSSL's X509_V_ERR codes."""
_NO_TLS = "it does not speak TLS on this port: check whether the URL begins with http:// or https://"
_OLD_TLS = "it only speaks versions of TLS that are too old"
_TLS_ERRORS: dict[str, str] = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _OLD_TLS,
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client certificate, which is not supported",
}


class TlsContexts:
    """TLS contexts by ca_file, created on first use, because reading the system's certificates takes a while."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, ca_file: str) -> ssl.SSLContext | TransportError:
        """Trusts the system's authorities (OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR) and those of `ca_file`."""
        if ca_file in self._contexts:
            return self._contexts[ca_file]
        if not has_free_descriptor():  # OpenSSL would silently trust no authority at all
            return _out_of_descriptors("the system's certificates")
        context = ssl.create_default_context()
        try:
            if ca_file:
                context.load_verify_locations(ca_file)
        except OSError:
            message = f"the ca_file {ca_file} cannot be read: it must exist and contain PEM certificates"
            return TransportError("tls", message)
        context.set_alpn_protocols(["http/1.1"])
        self._contexts[ca_file] = context
        return context


def _out_of_descriptors(what: str) -> TransportError:
    message = (
        f"the gateway has no file descriptor left for {what}: its limit is {descriptor_limit():,}; {DESCRIPTOR_HINT}"
    )
    return TransportError("out-of-descriptors", message)


_ERRNO_TEXT = re.compile(r"\[Errno (\d+)\]")
_KIND_BY_ERRNO: dict[int, TransportErrorKind] = {errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "connect-timeout"}
_CONNECT_ERRORS: dict[TransportErrorKind, str] = {
    "dns": "the host name of {peer} cannot be resolved: check the host in the base URL and this machine's DNS",
    "refused": "{peer} refused the connection: check that a server is running there and that the port is right",
    "unreachable": "{peer} cannot be reached ({why}): check the network, the firewall and whether a proxy is needed",
    "connect-timeout": "{peer} did not accept a connection in time: check host, firewall and whether a proxy is needed",
}
_HANGUP_ERRORS = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


def _read_error(error: Exception, peer: str, *, is_tls: bool) -> TransportError:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = _CERTIFICATE_ERRORS.get(error.verify_code) or f"its certificate is not accepted ({error.verify_message})"
    elif isinstance(error, ssl.SSLError):
        reason = error.reason or "no reason given"
        what = _TLS_ERRORS.get(reason) or f"OpenSSL reports {reason.lower().replace('_', ' ')}"
    elif is_tls and isinstance(error, _HANGUP_ERRORS):
        what = "it closed the connection during the handshake: check that this port speaks TLS"
    else:
        return _read_connect_error(error, peer)
    return TransportError("tls", f"no secure connection to {peer}: {what}")


def _read_connect_error(error: Exception, peer: str) -> TransportError:
    number = getattr(error, "errno", None) or 0
    kind: TransportErrorKind = "unreachable"
    # If several addresses were tried, asyncio puts their errno only into the text.
    numbers = {int(text) for text in _ERRNO_TEXT.findall(str(error))} or {number}
    if isinstance(error, socket.gaierror | UnicodeError):
        kind = "dns"
    elif isinstance(error, TimeoutError):
        kind = "connect-timeout"
    elif len(numbers) == 1:
        kind = _KIND_BY_ERRNO.get(min(numbers), kind)
    if any(map(is_exhausted, numbers)) or (kind in ("dns", "unreachable") and not has_free_descriptor()):
        return _out_of_descriptors(f"a connection to {peer}")
    why = errno.errorcode.get(number, "no route")
    return TransportError(kind, _CONNECT_ERRORS[kind].format(peer=peer, why=why))


# --- proxies --------------------------------------------------------------------------------------------------------

MAX_PROXY_HEAD = 64 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_STATUS_HINTS = {407: "check the user and password of the proxy", 403: "the proxy does not allow this host"}


class Proxy(Struct, frozen=True):
    """Only the host is ever shown, because `authorization` is a secret."""

    scheme: str
    host: str
    port: int
    authorization: str = ""

    @property
    def label(self) -> str:
        return f"the proxy {self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # for pretty printers
        return [("host", self.host), ("port", self.port)]


def read_proxy(url: str) -> Proxy:
    parts, host, port = split_url(url, "a proxy URL")
    if parts.username is None:
        return Proxy(parts.scheme, host, port)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(parts.scheme, host, port, f"Basic {b64encode(pair.encode()).decode()}")


def proxy_refusal(proxy: Proxy, address: Address, status: int) -> TransportError:
    hint = _STATUS_HINTS.get(status, "check the proxy")
    return TransportError("proxy", f"{proxy.label} refused to connect to {address.label} with status {status}: {hint}")


class ProxyTunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel (CONNECT); the request itself is only sent through the tunnel."""

    def __init__(self, proxy: Proxy, address: Address) -> None:
        self._proxy = proxy
        self._address = address
        self._head = bytearray()
        self._result: asyncio.Future[TransportError | None] = asyncio.get_running_loop().create_future()

    async def request_tunnel(self, transport: asyncio.WriteTransport) -> TransportError | None:
        target = self._address.label
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        if self._proxy.authorization:
            lines.append(f"proxy-authorization: {self._proxy.authorization}")
        transport.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        return await self._result

    def data_received(self, data: bytes) -> None:
        self._head += data
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            status = int(found[1]) if (found := _STATUS_LINE.match(self._head)) else 0
            del self._head[: end + 4]
            if status >= 300:
                self._set_result(proxy_refusal(self._proxy, self._address, status))
            elif status >= 200 and not self._head:
                self._set_result(None)
            elif not 100 <= status < 200:  # in a tunnel the client speaks first, so bytes after the head are an error
                self._fail("did not answer like a proxy: check its host, port and scheme")
            else:
                continue
            return
        if len(self._head) > MAX_PROXY_HEAD:
            self._fail("did not answer like a proxy: check its host, port and scheme")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"closed the connection when asked for {self._address.label}")

    def _fail(self, what: str) -> None:
        self._set_result(TransportError("proxy", f"{self._proxy.label} {what}"))

    def _set_result(self, error: TransportError | None) -> None:
        if not self._result.done():
            self._result.set_result(error)


# --- connections ----------------------------------------------------------------------------------------------------

_ProtocolT = TypeVar("_ProtocolT", bound=asyncio.BaseProtocol)


class _Deadline:
    """`asyncio.timeout`, except that the loop reads all sockets before a deadline that has passed counts: if this
    process did not run for a while, the connection may be there. Raises TimeoutError; 0 seconds: no limit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._handle: asyncio.Handle | None = None
        self._has_expired = False

    async def __aenter__(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancel_requests = self._task.cancelling() if self._task is not None else 0
        if self._seconds:
            self._handle = self._loop.call_later(self._seconds, self._expire, DEADLINE_LOOKS)

    def _expire(self, looks: int) -> None:
        if looks:
            self._handle = self._loop.call_soon(self._expire, looks - 1)
        elif self._task is not None:
            self._has_expired = True
            self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if not self._has_expired or self._task is None:
            return
        is_own_cancellation = self._task.uncancel() <= self._cancel_requests
        if is_own_cancellation and kind is asyncio.CancelledError:
            raise TimeoutError from error


async def connect(
    address: Address, proxy: Proxy | None, contexts: TlsContexts, seconds: float, make: Callable[[], UpstreamConnection]
) -> UpstreamConnection | TransportError:
    """Look up the host, connect, and do the proxy's and the TLS handshake within `seconds`; 0: no limit."""
    context: ssl.SSLContext | None = None
    if address.scheme == "https" or (proxy is not None and proxy.scheme == "https"):
        # Outside the time limit, because the first context reads the system's certificates.
        trusted = contexts.context(address.ca_file)
        if isinstance(trusted, TransportError):
            return trusted
        context = trusted
    try:
        async with _Deadline(seconds):
            if proxy is not None and address.scheme == "https" and context is not None:
                return await _connect_through_tunnel(address, proxy, make, context)
            opened = await _open_endpoint(make, address if proxy is None else proxy, context)
            return opened if isinstance(opened, TransportError) else opened[1]
    except TimeoutError as error:
        peer = address.label if proxy is None else f"{address.label} through {proxy.label}"
        return _read_connect_error(error, peer)


async def _connect_through_tunnel(
    address: Address, proxy: Proxy, make: Callable[[], UpstreamConnection], context: ssl.SSLContext
) -> UpstreamConnection | TransportError:
    """TLS to the provider inside a tunnel: the proxy sees the provider's name, but nothing that is sent."""
    opened = await _open_endpoint(lambda: ProxyTunnel(proxy, address), proxy, context)
    if isinstance(opened, TransportError):
        return opened
    transport, tunnel = opened
    inner: asyncio.Transport | None = None
    try:
        refusal = await tunnel.request_tunnel(transport)
        if refusal is not None:
            return refusal
        connection = make()
        loop = asyncio.get_running_loop()
        inner = await loop.start_tls(transport, connection, context, server_hostname=address.host)
    except OSError as error:
        return _read_error(error, address.label, is_tls=True)
    finally:
        if inner is None:
            transport.abort()
    if inner is None:  # the proxy closed the connection at the last moment
        return _read_error(ConnectionResetError(), address.label, is_tls=True)
    connection.connection_made(inner)
    return connection


async def _open_endpoint(
    make: Callable[[], _ProtocolT], endpoint: Address | Proxy, context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, _ProtocolT] | TransportError:
    if endpoint.scheme == "http":
        context = None
    loop, host, port = asyncio.get_running_loop(), endpoint.host, endpoint.port
    try:
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop cannot try IPv6 and IPv4 at the same time
            return await loop.create_connection(make, host, port, ssl=context, happy_eyeballs_delay=0.25)
        return await loop.create_connection(make, host, port, ssl=context)
    except (OSError, UnicodeError) as raised:
        error = _read_error(raised, endpoint.label, is_tls=context is not None)
        is_proxy_error = isinstance(endpoint, Proxy) and error.kind in ("dns", "refused", "unreachable")
        return TransportError("proxy", error.detail) if is_proxy_error else error
