"""URLs of providers and proxies: how they are parsed and checked, and how a request's path is joined to a base URL."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443}

_VERSION_SEGMENT = re.compile(r"v\d+(?:\.\d+)?(?:(?:alpha|beta)\d*)?")
_PRIVATE_DOMAINS = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".intranet", ".corp", ".home")
_FORBIDDEN_CHARACTER = re.compile(r"[\x00-\x20\x7f]")
PLAIN_HTTP = ("the key is sent over plain HTTP: everybody on the way can read it", "use an address with https://")
"""A problem and a hint, for an address that `is_exposed`."""


class Address(Struct, frozen=True, cache_hash=True):
    """A base URL and how to reach it. Hashable, because connections are pooled by address."""

    scheme: str
    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    base_path: str = ""
    """The path before the path of every request, without a slash at its end."""
    query: str = ""
    proxy: str = ""
    ca_file: str = ""

    @classmethod
    def parse(cls, url: str, proxy: str = "", ca_file: str = "") -> Address:
        """Raises ValueError with a message for the operator; it never contains a password."""
        parts, host, port = split_url(url, "a base URL")
        if "@" in parts.netloc:
            raise ValueError("a base URL must not contain a user name or password: put the key into api_key_env")
        if parts.fragment:
            raise ValueError("a base URL must not contain a fragment (#)")
        if proxy:
            split_url(proxy, "a proxy URL")
        base = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
        return cls(parts.scheme, host, port, base, parts.query, proxy, ca_file)

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = bracket_ipv6(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def label(self) -> str:
        """The address in messages."""
        return f"{bracket_ipv6(self.host)}:{self.port}"

    @property
    def _has_version(self) -> bool:
        """Does the base URL name a version, in its path or, as Azure's, in its query?"""
        return "api-version=" in self.query or any(map(_VERSION_SEGMENT.fullmatch, self.base_path.split("/")))

    def request_target(self, path: str) -> str:
        """The base URL and a protocol's path. If both name a version, that of the base URL is used; a base URL that is
        already the full URL of the endpoint is used as it is."""
        path, _, query = path.partition("?")
        version, slash, rest = path.lstrip("/").partition("/")
        if _VERSION_SEGMENT.fullmatch(version) and self._has_version:
            path = slash + rest
        if rest and self.base_path.endswith(f"/{rest}"):
            path = ""
        queries = "&".join(filter(None, (query, self.query)))
        return f"{self.base_path}{path}?{queries}" if queries else f"{self.base_path}{path}"

    def __repr__(self) -> str:
        """Without the proxy, whose URL may contain a password."""
        return f"Address({self.scheme}://{self.authority}{self.base_path}{' through a proxy' if self.proxy else ''})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # for pretty printers
        return [("host", self.host), ("port", self.port)]


def split_url(url: str, what: str) -> tuple[SplitResult, str, int]:
    """The parts of an HTTP URL, its host in ASCII and its port. Raises ValueError; `what` begins the message."""
    if _FORBIDDEN_CHARACTER.search(url):
        raise ValueError(f"{what} must not contain spaces or control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise ValueError(f"{what} has an invalid host or port: it must look like https://HOST:PORT/PATH") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(f"{what} must begin with http:// or https://")
    if not host or port == 0:
        raise ValueError(f"{what} must name a host{' and a port other than 0' if port == 0 else ''}")
    return parts, host, DEFAULT_PORTS[parts.scheme] if port is None else port


def check_base_url(url: str, proxy: str = "") -> str:
    """What is wrong with a base URL or its proxy's URL; "" if nothing is."""
    try:
        Address.parse(url, proxy)
    except ValueError as error:
        return str(error)
    return ""


def is_loopback(host: str) -> bool:
    """Is this address or name that of the local machine?"""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _read_address(name)
    return address is not None and address.is_loopback


def is_private(host: str) -> bool:
    """Is this a name or address of the local network, as far as one can tell? Names without a dot are those of
    containers and of machines nearby."""
    name = host.strip("[]").rstrip(".").lower()
    address = _read_address(name)
    if address is not None:
        return not address.is_global
    return "." not in name or name.endswith(_PRIVATE_DOMAINS)


def _read_address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_exposed(url: str) -> bool:
    """Would others on the way see what is sent there?"""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "") and not is_private(parts.hostname or "")
    except ValueError:
        return False  # has its own error
