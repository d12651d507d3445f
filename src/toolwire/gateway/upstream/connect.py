"""Whom to trust: TLS as the system is set up, and what to check when it fails."""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote

from msgspec import Struct

from toolwire.gateway.upstream.address import Address, split_url
from toolwire.gateway.upstream.connection import UpstreamConnection
from toolwire.gateway.upstream.errors import TransportError, read_connect_error

_UNKNOWN_AUTHORITY = (
    "its certificate comes from no authority that is trusted here: behind a company's proxy or with an own authority, "
    "set ca_file for this provider or SSL_CERT_FILE; if nothing is trusted, install the system's CA certificates"
)
_WRONG_HOST = "its certificate is for another name: check the host in the base URL"
_CERTIFICATE_ERRORS: dict[int, str] = {
    9: "its certificate is not valid yet: check this machine's clock",
    10: "its certificate has expired: check this machine's clock, else only the provider can mend it",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    62: _WRONG_HOST,
    64: _WRONG_HOST,
}
"""OpenSSL's numbers for what is wrong with a certificate."""
_TLS_ERRORS: dict[str, str] = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port: check whether the URL begins with http:// or https://",
    "HTTP_REQUEST": "it does not speak TLS on this port: check whether the URL begins with http:// or https://",
    "RECORD_LAYER_FAILURE": "it does not speak TLS on this port: check whether the URL begins with http:// or https://",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that are too old",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks only versions of TLS that are too old",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client certificate, which is not supported",
}


class TlsContexts:
    """Contexts of TLS, made when first needed: reading the system's certificates takes a while."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, ca_file: str) -> ssl.SSLContext | TransportError:
        """The system's authorities (OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR), and those of a `ca_file`."""
        known = self._contexts.get(ca_file)
        if known is not None:
            return known
        context = ssl.create_default_context()
        try:
            if ca_file:
                context.load_verify_locations(ca_file)
        except OSError:
            return TransportError(
                "tls", f"the ca_file {ca_file} cannot be read: it must exist and hold PEM certificates"
            )
        context.set_alpn_protocols(["http/1.1"])
        self._contexts[ca_file] = context
        return context


def read_tls_error(error: Exception, peer: str) -> TransportError:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = _CERTIFICATE_ERRORS.get(error.verify_code) or f"its certificate is not accepted ({error.verify_message})"
    elif isinstance(error, ssl.SSLError):
        reason = error.reason or "no reason given"
        what = _TLS_ERRORS.get(reason) or f"OpenSSL says {reason.lower().replace('_', ' ')}"
    else:
        what = "it closed the connection during the handshake: check that this port speaks TLS"
    return TransportError("tls", f"no secure connection to {peer}: {what}")


# --- The way by a proxy: what its URL says, and the tunnel that it is asked for ---


MAX_PROXY_HEAD = 64 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_STATUS_HINTS = {407: "check the user and password of the proxy", 403: "the proxy does not allow this host"}


class Proxy(Struct, frozen=True):
    """A proxy; its `authorization` is a secret, so nothing here is shown but the host."""

    scheme: str
    host: str
    port: int
    authorization: str = ""

    @property
    def label(self) -> str:
        return f"the proxy {self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # pretty printers ask this
        return [("host", self.host), ("port", self.port)]


def read_proxy(url: str) -> Proxy:
    parts, host, port = split_url(url, "a proxy URL")
    if parts.username is None:
        return Proxy(parts.scheme, host, port)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(parts.scheme, host, port, f"Basic {b64encode(pair.encode()).decode()}")


def proxy_refusal(proxy: Proxy, address: Address, status: int) -> TransportError:
    hint = _STATUS_HINTS.get(status, "check the proxy")
    return TransportError("proxy", f"{proxy.label} refused the way to {address.label} with status {status}: {hint}")


class ProxyTunnel(asyncio.Protocol):
    """Asks for a tunnel; the caller's own headers stay for its other end."""

    __slots__ = ("_address", "_head", "_proxy", "_result")

    def __init__(self, proxy: Proxy, address: Address) -> None:
        self._proxy = proxy
        self._address = address
        self._head = bytearray()
        self._result: asyncio.Future[TransportError | None] = asyncio.get_running_loop().create_future()

    async def request_tunnel(self, transport: asyncio.WriteTransport) -> TransportError | None:
        way = self._address.label
        secret = self._proxy.authorization
        lines = [f"CONNECT {way} HTTP/1.1", f"host: {way}"]
        if secret:
            lines.append(f"proxy-authorization: {secret}")
        transport.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        return await self._result

    def data_received(self, data: bytes) -> None:
        self._head += data
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            status = int(found[1]) if (found := _STATUS_LINE.match(self._head)) else 0
            del self._head[: end + 4]
            if not 100 <= status < 200:
                self._set_result(self._check_status(status))
                return
        if len(self._head) > MAX_PROXY_HEAD:
            self._set_result(self._unexpected_response())

    def _check_status(self, status: int) -> TransportError | None:
        if status >= 300:
            return proxy_refusal(self._proxy, self._address, status)
        # Nobody may speak in the tunnel before us.
        return None if status >= 200 and not self._head else self._unexpected_response()

    def connection_lost(self, error: Exception | None) -> None:
        self._set_result(
            TransportError("proxy", f"{self._proxy.label} closed the connection when asked for {self._address.label}")
        )

    def _unexpected_response(self) -> TransportError:
        return TransportError(
            "proxy", f"{self._proxy.label} did not answer as a proxy does: check its host, port and scheme"
        )

    def _set_result(self, error: TransportError | None) -> None:
        if not self._result.done():
            self._result.set_result(error)


# --- Making a connection to a provider: straight, or by a proxy; plain, or in TLS ---


_ProtocolT = TypeVar("_ProtocolT", bound=asyncio.Protocol)

_HANGUP_ERRORS = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_PROXY_ERROR_KINDS = frozenset({"dns", "refused", "unreachable"})


class Connector:
    """The way to one address."""

    __slots__ = ("_address", "_proxy", "_tls_contexts")

    def __init__(self, address: Address, proxy: Proxy | None, tls_contexts: TlsContexts) -> None:
        self._address = address
        self._proxy = proxy
        self._tls_contexts = tls_contexts

    async def connect(
        self, seconds: float, make: Callable[[], UpstreamConnection]
    ) -> UpstreamConnection | TransportError:
        """All of it within `seconds`: the name, the connection, the proxy and TLS; 0 is no limit."""
        address, proxy = self._address, self._proxy
        context: ssl.SSLContext | None = None
        if address.scheme == "https" or (proxy is not None and proxy.scheme == "https"):
            # Not within the time: the first one reads the system's certificates.
            trusted = self._tls_contexts.context(address.ca_file)
            if isinstance(trusted, TransportError):
                return trusted
            context = trusted
        try:
            async with asyncio.timeout(seconds or None):
                if proxy is None:
                    opened = await _open_endpoint(make, address, address.label, context)
                elif address.scheme == "http" or context is None:
                    opened = _as_proxy_error(await _open_endpoint(make, proxy, proxy.label, context))
                else:
                    return await self._connect_through_tunnel(proxy, make, context)
                return opened if isinstance(opened, TransportError) else opened[1]
        except TimeoutError as error:
            return read_connect_error(error, address.label if proxy is None else f"{address.label} by {proxy.label}")

    async def _connect_through_tunnel(
        self, proxy: Proxy, make: Callable[[], UpstreamConnection], context: ssl.SSLContext
    ) -> UpstreamConnection | TransportError:
        """TLS to the provider inside a tunnel: the proxy sees its name, and nothing that is sent to it."""
        address = self._address
        opened = _as_proxy_error(await _open_endpoint(lambda: ProxyTunnel(proxy, address), proxy, proxy.label, context))
        if isinstance(opened, TransportError):
            return opened
        transport, tunnel = opened
        inner: asyncio.Transport | None = None
        try:
            fault = await tunnel.request_tunnel(transport)
            if fault is not None:
                return fault
            connection = make()
            loop = asyncio.get_running_loop()
            inner = await loop.start_tls(transport, connection, context, server_hostname=address.host)
        except OSError as error:
            return _read_error(error, address.label, is_tls=True)
        finally:
            if inner is None:
                transport.abort()
        if inner is None:  # the loop calls it optional: the proxy hung up at the last moment
            return _read_error(ConnectionResetError(), address.label, is_tls=True)
        connection.connection_made(inner)
        return connection


async def _open_endpoint(
    make: Callable[[], _ProtocolT], endpoint: Address | Proxy, peer: str, context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, _ProtocolT] | TransportError:
    """To the provider itself, or to its proxy."""
    if endpoint.scheme == "http":
        context = None
    try:
        return await _create_connection(make, endpoint.host, endpoint.port, context)
    except (OSError, UnicodeError) as error:
        return _read_error(error, peer, is_tls=context is not None)


async def _create_connection(
    make: Callable[[], _ProtocolT], host: str, port: int, context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, _ProtocolT]:
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        # Not every loop can try IPv6 and IPv4 side by side.
        return await loop.create_connection(make, host, port, ssl=context, happy_eyeballs_delay=0.25)
    return await loop.create_connection(make, host, port, ssl=context)


def _read_error(error: Exception, peer: str, *, is_tls: bool) -> TransportError:
    if isinstance(error, ssl.SSLError) or (is_tls and isinstance(error, _HANGUP_ERRORS)):
        return read_tls_error(error, peer)
    return read_connect_error(error, peer)


def _as_proxy_error(
    opened: tuple[asyncio.Transport, _ProtocolT] | TransportError,
) -> tuple[asyncio.Transport, _ProtocolT] | TransportError:
    """That the proxy is not there is a fault of the proxy."""
    if isinstance(opened, TransportError) and opened.kind in _PROXY_ERROR_KINDS:
        return TransportError("proxy", opened.detail)
    return opened
