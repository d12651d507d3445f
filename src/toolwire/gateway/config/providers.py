"""Providers from the file, the environment and the well-known servers (`providers.toml`); their URLs and proxies."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from toolwire.gateway.config.config import Provider, Secret, ServerSettings
from toolwire.gateway.config.problems import KeyPath, ProblemCollector, TomlTable, suggest_name, write_key_path
from toolwire.gateway.upstream.address import DEFAULT_PORTS, check_base_url, is_loopback
from toolwire.protocols import CODECS, find_codec

LOOPBACK_NAME = "loopback"
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
UNSUPPORTED_SERVERS = {
    "bedrock": "Amazon Bedrock needs signed requests, which is out of scope",
    "vertex": "Vertex AI needs short-lived tokens, which is out of scope",
}
_PROVIDER_NAME = re.compile(r"[^/*?\s]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type"})
"""Headers that the gateway sets itself."""


class KnownServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A well-known server; `providers.toml` explains the keys."""

    title: str
    protocols: tuple[str, ...]
    base_url: str | dict[str, str] = ""
    base_url_env: tuple[str, ...] = ()
    base_path: str = ""
    key_env: tuple[str, ...] = ()
    local: bool = False
    auth_header: str = ""
    quirks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    docs: str = ""


class ProviderTable(Struct, frozen=True, kw_only=True):
    """A provider. Missing keys are taken from the well-known server with this name or `kind`."""

    kind: str = ""
    """The well-known server to take missing keys from, if the provider has another name."""
    protocols: tuple[str, ...] | None = None
    """Its protocols, the preferred one first. The client's own protocol is used if it is among them."""
    base_url: str | dict[str, str] | None = None
    """Its URL, with or without the version at the end: one for all protocols, or a table by protocol."""
    api_key_env: str | None = None
    """The environment variable with the API key."""
    api_key: str | None = None
    """The API key itself. An environment variable is safer."""
    forward_auth: bool = False
    """Forward the client's own credentials instead of a key."""
    auth_header: str | None = None
    """The header for the key, if not the protocol's own. With `authorization` the key is sent as a bearer token."""
    quirks: tuple[str, ...] | None = None
    """How this server differs from its protocol."""
    headers: dict[str, str] | None = None
    """Additional headers of every request."""
    models: tuple[str, ...] | None = None
    """Names and patterns of models that clients can use without naming the provider."""
    proxy: str | None = None
    """The proxy to use, `""` for none. By default the environment decides (`HTTPS_PROXY`, `NO_PROXY`)."""
    ca_file: str = ""
    """A PEM file of certificates to trust besides the system's, relative to the folder of this file."""


@cache
def known_servers() -> Mapping[str, KnownServer]:
    text = files("toolwire.gateway.config").joinpath("providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, KnownServer])


def loopback_provider() -> Provider:
    """The embedded model, which speaks every protocol."""
    return Provider(name=LOOPBACK_NAME, protocols=tuple(CODECS), models=(LOOPBACK_NAME,), embedded=True)


class ProviderBuilder:
    """Builds the providers, in order."""

    def __init__(
        self, server: ServerSettings, environ: Mapping[str, str], collector: ProblemCollector, folder: Path
    ) -> None:
        self._server, self._environ, self._collector, self._folder = server, environ, collector, folder
        self.providers: dict[str, Provider] = {}
        self._seen_names: set[str] = set()

    def add_from_file(self, tables: TomlTable) -> None:
        for name, table in tables.items():
            place: KeyPath = ("providers", name)
            self._seen_names.add(name)
            if name == LOOPBACK_NAME:
                hint = "use another name; `loopback = false` under [server] disables the embedded model"
                self._collector.add(place, "`loopback` is the name of the embedded model", hint)
            elif not _PROVIDER_NAME.fullmatch(name):
                self._collector.add(place, f"invalid provider name `{name}`", "use no slashes, `*`, `?` or spaces")
            else:
                given = self._collector.read_fields(self._collector.expect_table(table, place), ProviderTable, place)
                if given is not None:
                    self._build_provider(name, ProviderTable(**given), place)

    def add_from_environment(self) -> None:
        """Add the well-known servers whose key is set, and the local ones whose address is set."""
        for name, row in known_servers().items():
            address = any(self._environ.get(variable) for variable in row.base_url_env)
            if name not in self._seen_names and (address if row.local else self._key_from_environment(row)[0]):
                if not row.local and not row.base_url and not address:
                    variable = self._key_from_environment(row)[1]
                    hint = f"set {row.base_url_env[0]} too, or write [providers.{name}] with a base_url"
                    self._collector.add((variable,), f"there is a key for {row.title}, but no address", hint, "warning")
                    continue
                self.ensure_provider(name, (name,))

    def ensure_provider(self, name: str, path: KeyPath) -> bool:
        """Is there a provider with this name? A well-known server becomes one if the file uses it."""
        if name not in self._seen_names and name in known_servers():
            self._seen_names.add(name)
            self._build_provider(name, ProviderTable(), path)
        return name in self._seen_names

    @property
    def names(self) -> list[str]:
        """All possible names, those of the file first."""
        return list(dict.fromkeys([*self.providers, *known_servers()]))

    # --- one provider ---

    def _build_provider(self, name: str, table: ProviderTable, path: KeyPath) -> None:
        row = self._find_known_server(name, table, path)
        if row is None:
            return
        protocols = self._read_protocols(table, row, path)
        urls = self._read_base_urls(name, table, row, protocols, path)
        key, variable = self._read_credentials(table, row, path)
        self._check_headers_and_files(table, protocols, path)
        if not protocols or not urls:
            return
        self.providers[name] = Provider(
            name=name,
            protocols=protocols,
            base_urls=urls,
            api_key=Secret(key),
            api_key_env=variable,
            forward_auth=table.forward_auth,
            auth_header=row.auth_header if table.auth_header is None else table.auth_header,
            quirks=row.quirks if table.quirks is None else table.quirks,
            headers={header.lower(): value for header, value in (table.headers or {}).items()},
            models=row.models if table.models is None else table.models,
            proxies=self._read_proxies(table, urls, path),
            ca_file=str(self._folder / table.ca_file) if table.ca_file else "",
        )

    def _find_known_server(self, name: str, table: ProviderTable, path: KeyPath) -> KnownServer | None:
        """The server to take missing keys from; an empty one if it is not a known server; None after an error."""
        kind = table.kind or name
        if kind in UNSUPPORTED_SERVERS and (table.kind or table.base_url is None):
            self._collector.add(
                (*path, "kind"), UNSUPPORTED_SERVERS[kind], "see docs/guides/providers.md for alternatives"
            )
            return None
        if table.kind and table.kind not in known_servers():
            self._collector.add(
                (*path, "kind"), f"unknown server `{table.kind}`", suggest_name(table.kind, known_servers())
            )
            return None
        if kind in known_servers():
            return known_servers()[kind]
        if table.protocols is None or table.base_url is None:
            missing = " and ".join(key for key in ("protocols", "base_url") if getattr(table, key) is None)
            near = suggest_name(name, known_servers())
            hint = (
                f"add it, or set `kind` to one of the known servers: {', '.join(known_servers())}"
                if near.startswith("choose")
                else near
            )
            self._collector.add(path, f"`{name}` is not a well-known server, and {missing} is missing", hint)
            return None
        return KnownServer(title=name, protocols=())

    def _read_protocols(self, table: ProviderTable, known: KnownServer, path: KeyPath) -> tuple[str, ...]:
        if table.protocols is None:
            return known.protocols
        path = (*path, "protocols")
        if not table.protocols:
            self._collector.add(path, "a provider needs at least one protocol", f"choose from: {', '.join(CODECS)}")
        return tuple(
            dict.fromkeys(self._normalise_protocol(word, (*path, at)) for at, word in enumerate(table.protocols))
        )

    def _normalise_protocol(self, protocol: str, path: KeyPath) -> str:
        name = protocol.replace("_", "-")
        if name not in CODECS:
            self._collector.add(path, f"unknown protocol `{protocol}`", suggest_name(protocol, CODECS))
        return name

    def _read_base_urls(
        self, name: str, table: ProviderTable, known: KnownServer, protocols: tuple[str, ...], path: KeyPath
    ) -> dict[str, str]:
        path = (*path, "base_url")
        given = table.base_url
        if given is None:
            given = self._base_url_from_environment(name, known) or known.base_url
            if not given:
                self._collector.add(path, "`base_url` is missing", known.docs)
                return {}
        if isinstance(given, str):
            return dict.fromkeys(protocols, given) if self._is_valid_url(given, path) else {}
        urls = {
            self._normalise_protocol(key, (*path, key)): url
            for key, url in given.items()
            if self._is_valid_url(url, (*path, key))
        }
        missing = [protocol for protocol in protocols if protocol not in urls]
        if missing and len(urls) == len(given):
            self._collector.add(
                path, f"there is no base URL for {', '.join(missing)}", "add one for every protocol in `protocols`"
            )
        return {protocol: urls[protocol] for protocol in protocols if protocol in urls}

    def _is_valid_url(self, url: str, path: KeyPath) -> bool:
        wrong = check_base_url(url)
        if wrong:
            self._collector.add(path, wrong)
        elif is_own_address(url, self._server):
            wrong = "this is the address of the gateway itself, which would call itself forever"
            self._collector.add(path, wrong, "use the provider's address, or another port for the gateway")
        return not wrong

    def _base_url_from_environment(self, name: str, known: KnownServer) -> str:
        """The base URL from the environment. One that leads to this gateway is meant for SDKs, and ignored."""
        if known.base_url and known_servers().get(name) is not known:
            return ""
        for variable in known.base_url_env:
            given = self._environ.get(variable, "").strip()
            if not given:
                continue
            default = known.base_url if isinstance(known.base_url, str) else ""
            try:
                url = complete_base_url(given, default, known.base_path)
                wrong = check_base_url(url)
            except ValueError:
                url, wrong = "", "invalid URL"
            if wrong:
                self._collector.add((variable,), wrong, "it is ignored", "warning")
            elif is_own_address(url, self._server):
                hint = f"it is ignored here, and {known.title} is called at its standard address; SDKs can still use it"
                self._collector.add((variable,), "this is the address of the gateway itself", hint, "warning")
            else:
                return url
        return ""

    # --- keys ---

    def _key_from_environment(self, known: KnownServer) -> tuple[str, str]:
        """The first key that is set for a server, and its variable."""
        for variable in known.key_env:
            value = self._environ.get(variable, "").strip()
            if value:
                return value, variable
        return "", ""

    def _read_credentials(self, table: ProviderTable, known: KnownServer, path: KeyPath) -> tuple[str, str]:
        """The key and its variable. A variable that is not set is only a warning: the rest works without it."""
        self._check_single_credential(table, path)
        if table.api_key is not None:
            hint = "an environment variable is safer: use `api_key_env`"
            self._collector.add((*path, "api_key"), "the key is in the configuration file", hint, "warning")
            return table.api_key.strip(), ""
        if table.forward_auth:
            if self._server.keys:
                hint = "clients send a key of the gateway, so most have no provider key to forward"
                self._collector.add((*path, "forward_auth"), "`[[server.keys]]` is set, too", hint, "warning")
            return "", ""
        if table.api_key_env is None:
            key, variable = self._key_from_environment(known)
            if key or known.local or not known.key_env:
                return key, variable
            variable = known.key_env[0]
        else:
            variable = table.api_key_env
            key = self._environ.get(variable, "").strip()
        if not key:
            hint = f"set {variable}; until then, requests to this provider fail"
            where = (*path, "api_key_env") if path[0] == "providers" else path
            self._collector.add(where, f"the environment variable {variable} is not set", hint, "warning")
        return key, variable

    def _check_single_credential(self, table: ProviderTable, path: KeyPath) -> None:
        chosen = {
            "api_key": table.api_key is not None,
            "api_key_env": table.api_key_env is not None,
            "forward_auth": table.forward_auth,
        }
        given = [name for name, there in chosen.items() if there]
        if len(given) > 1:
            self._collector.add((*path, given[1]), f"{' and '.join(given)} cannot be combined", "remove one of them")

    # --- the rest ---

    def _check_headers_and_files(self, table: ProviderTable, protocols: tuple[str, ...], path: KeyPath) -> None:
        for at, quirk in enumerate(table.quirks or ()):
            known = sorted(
                {name for protocol in protocols if protocol in CODECS for name in find_codec(protocol).quirks}
            )
            if quirk not in known:
                wrong = f"unknown quirk `{quirk}` for {', '.join(protocols)}"
                self._collector.add((*path, "quirks", at), wrong, suggest_name(quirk, known))
        for header, value in (table.headers or {}).items():
            if not _HEADER_NAME.fullmatch(header) or "\r" in value or "\n" in value:
                self._collector.add((*path, "headers", header), f"`{header}` is not a valid header")
            elif header.lower() in _RESERVED_HEADERS:
                self._collector.add((*path, "headers", header), f"`{header}` is set by the gateway", "remove it")
        if table.auth_header and not _HEADER_NAME.fullmatch(table.auth_header):
            self._collector.add((*path, "auth_header"), "not a valid header name")
        if table.ca_file and not (self._folder / table.ca_file).is_file():
            self._collector.add(
                (*path, "ca_file"), "the file does not exist", "it is relative to the folder of this file"
            )

    def _read_proxies(self, table: ProviderTable, urls: Mapping[str, str], path: KeyPath) -> Mapping[str, str]:
        """The proxy of each protocol: that of the file, or else of the environment (`HTTPS_PROXY`, `NO_PROXY`)."""
        found: dict[str, str] = {}
        for protocol, url in urls.items():
            proxy, variable = (
                (table.proxy, "") if table.proxy is not None else proxy_from_environment(url, self._environ)
            )
            if not proxy:
                continue
            wrong = check_base_url(url, proxy)
            if not wrong:
                found[protocol] = proxy
                continue
            place = (variable,) if variable else (*path, "proxy")
            if not any(problem.location == write_key_path(place) for problem in self._collector.problems):
                self._collector.add(place, wrong, *(("it is ignored", "warning") if variable else ()))
        return found


# --- addresses --------------------------------------------------------------------------------------------------------


def complete_base_url(given: str, default_url: str, default_path: str) -> str:
    """A base URL from a variable that may hold only HOST:PORT, or the address that a server listens on. The port
    defaults to that of `default_url`, the path to `default_path`."""
    full = given if "://" in given else f"http://{given}"
    parts = urlsplit(full)
    host = parts.hostname or ""
    if host in ANY_ADDRESS:
        host = "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    port = parts.port or (urlsplit(default_url).port if "://" not in given and default_url else None)
    where = f"{shown}:{port}" if port else shown
    return f"{parts.scheme}://{where}{parts.path.rstrip('/') or default_path}"


def is_own_address(url: str, server: ServerSettings) -> bool:
    """Would a call to this base URL come back to this gateway?"""
    parts = urlsplit(url)
    if server.port == 0 or _url_port(parts) != server.port:
        return False
    host = parts.hostname or ""
    listening = server.host.strip("[]")
    if is_loopback(host) or host in ANY_ADDRESS:
        return listening in ANY_ADDRESS or is_loopback(listening)
    return host == listening or host in server.allowed_hosts


def _url_port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The proxy for a base URL and the variable that names it; ("", "") for none, and always for this machine."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    no_proxy = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(",")
    if is_loopback(host) or any(_matches_no_proxy(entry.strip(), host, _url_port(parts)) for entry in no_proxy):
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
