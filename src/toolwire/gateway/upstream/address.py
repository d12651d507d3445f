"""Where a provider is: its base URL, taken apart once, and how a room's path is joined to it."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443}

_VERSION_SEGMENT = re.compile(r"v\d+(?:\.\d+)?(?:(?:alpha|beta)\d*)?")
_FORBIDDEN_CHARACTER = re.compile(r"[\x00-\x20\x7f]")


class Address(Struct, frozen=True, cache_hash=True):
    """A base URL, and how to get there. Hashable: connections are kept by it."""

    scheme: str
    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    base_path: str = ""
    """The path before every room's path, without a slash at its end."""
    query: str = ""
    proxy: str = ""
    ca_file: str = ""

    @classmethod
    def parse(cls, url: str, proxy: str = "", ca_file: str = "") -> Address:
        """Raises ValueError with a sentence for whoever wrote the URL; it never shows a password."""
        parts, host, port = split_url(url, "a base URL")
        if "@" in parts.netloc:
            raise ValueError("a base URL must not hold a user or password: put the key into api_key_env")
        if proxy:
            split_url(proxy, "a proxy URL")
        base = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
        return cls(parts.scheme, host, port, base, parts.query, proxy, ca_file)

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = _bracket_ipv6(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def label(self) -> str:
        """What a person is told."""
        return f"{_bracket_ipv6(self.host)}:{self.port}"

    @property
    def _has_version(self) -> bool:
        """Does the base name one, in its path or as Azure does in its query?"""
        return "api-version=" in self.query or any(map(_VERSION_SEGMENT.fullmatch, self.base_path.split("/")))

    def request_target(self, path: str) -> str:
        """The base and a room's path. Where both name a version, the base's holds; a base that is the whole address of
        an endpoint is taken as it is."""
        path, _, query = path.partition("?")
        version, slash, rest = path.lstrip("/").partition("/")
        if _VERSION_SEGMENT.fullmatch(version) and self._has_version:
            path = slash + rest
        if rest and self.base_path.endswith(f"/{rest}"):
            path = ""
        queries = "&".join(part for part in (query, self.query) if part)
        return f"{self.base_path}{path}?{queries}" if queries else f"{self.base_path}{path}"

    def __repr__(self) -> str:
        """Without the proxy, which may hold a password."""
        return f"Address({self.scheme}://{self.authority}{self.base_path}{' by a proxy' if self.proxy else ''})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # pretty printers ask this
        return [("host", self.host), ("port", self.port)]


def split_url(url: str, what: str) -> tuple[SplitResult, str, int]:
    """A URL, its host in ASCII letters and its port; `what` it is stands in the complaint."""
    if _FORBIDDEN_CHARACTER.search(url):
        raise ValueError(f"{what} must not hold spaces or control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise ValueError(f"{what} must look like https://host:port/path: its host or port cannot be read") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(f"{what} must begin with http:// or https://")
    if not host:
        raise ValueError(f"{what} must name a host")
    return parts, host, DEFAULT_PORTS[parts.scheme] if port is None else port


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host
