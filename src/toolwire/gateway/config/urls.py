"""Base URLs: are they right, do they lead back to this gateway, and through which proxy is a host reached?"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from toolwire.gateway.config.config import ServerSettings

ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
DEFAULT_PORTS = {"http": 80, "https": 443}


def check_base_url(url: str) -> str:
    """What is wrong with a base URL; nothing when it is right."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"no URL: {error}"
    if parts.scheme not in DEFAULT_PORTS:
        return "a URL begins with https:// or http://"
    if not parts.hostname or port == 0:
        return "the URL names no host"
    if parts.username is not None or parts.password is not None:
        return "no user name or password can stand in a base URL"
    if parts.fragment or any(mark in url for mark in " \t\r\n"):
        return "a base URL has no spaces and no fragment"
    return ""


def check_proxy_url(url: str) -> str:
    """What is wrong with the URL of a proxy, which may hold a user name and a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "no URL"
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return "a proxy is http://HOST:PORT or https://HOST:PORT"
    return ""


def complete_base_url(given: str, default_url: str, default_path: str) -> str:
    """An address from the environment as a base URL: some variables hold only a host and a port, or where a server
    listens. `usual` is the base URL that it stands in for, `path` what follows where it has none."""
    full = given if "://" in given else f"http://{given}"
    parts = urlsplit(full)
    host = parts.hostname or ""
    if host in ANY_ADDRESS:
        host = "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    port = parts.port or (urlsplit(default_url).port if "://" not in given and default_url else None)
    where = f"{shown}:{port}" if port else shown
    return f"{parts.scheme}://{where}{parts.path.rstrip('/') or default_path}"


def is_loopback(host: str) -> bool:
    """Does this address, or name, stay on this machine?"""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)


def is_own_address(url: str, server: ServerSettings) -> bool:
    """Would a call to this base URL come back to this gateway?"""
    parts = urlsplit(url)
    if server.port == 0 or _url_port(parts) != server.port:
        return False
    host = parts.hostname or ""
    here = is_loopback(host) or host in ANY_ADDRESS
    listening = server.host.strip("[]")
    if here:
        return listening in ANY_ADDRESS or is_loopback(listening)
    return host == listening or host in server.allowed_hosts


def _url_port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


# --- proxies ------------------------------------------------------------------------------------------------------


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The proxy that the environment names for a base URL, and the variable that does; nothing for this machine."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if is_loopback(host) or _is_proxy_excluded(host, _url_port(parts), environ):
        return "", ""
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for spelled in (name, name.upper()):
            if environ.get(spelled):
                given = environ[spelled]
                return given if "://" in given else f"http://{given}", spelled
    return "", ""


def _is_proxy_excluded(host: str, port: int, environ: Mapping[str, str]) -> bool:
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return any(
        _matches_no_proxy(entry.strip().lower(), host.lower(), port) for entry in listed.split(",") if entry.strip()
    )


def _matches_no_proxy(entry: str, host: str, port: int) -> bool:
    """One entry of the list: everything, a network, or a domain with all below it, perhaps with a port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return ip_address(host) in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and not name.endswith(":") and (":" not in name or name.startswith("[")):
        if int(wanted) != port:
            return False
        entry = name
    domain = entry.strip("[]").lstrip("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")
