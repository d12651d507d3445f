"""Which proxy the environment names for a URL: `https_proxy`, `all_proxy`, `no_proxy` and their like."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from toolwire.gateway.settings.address import DEFAULT_PORTS, is_loopback


def url_port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The proxy for a base URL and the variable that names it; ("", "") for none, and always for this machine."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    no_proxy = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(",")
    if is_loopback(host) or any(_matches_no_proxy(entry.strip(), host, url_port(parts)) for entry in no_proxy):
        return "", ""
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if environ.get(variable):
                given = environ[variable]
                return given if "://" in given else f"http://{given}", variable
    return "", ""


def _matches_no_proxy(entry: str, host: str, port: int) -> bool:
    """Does one entry of NO_PROXY cover the host: `*`, a network, or a domain with its subdomains, maybe with a port?"""
    if entry in ("", "*"):
        return entry == "*"
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
    return host.lower() == domain or host.lower().endswith(f".{domain}")
