"""Providers out of the file, the environment, and the rows of servers that are known by name (`providers.toml`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.config.config import Provider, Secret, ServerSettings
from toolwire.gateway.config.problems import KeyPath, ProblemCollector, TomlTable, suggest_name
from toolwire.gateway.config.urls import (
    check_base_url,
    check_proxy_url,
    complete_base_url,
    is_own_address,
    proxy_from_environment,
)
from toolwire.protocols import CODECS, find_codec

LOOPBACK_NAME = "loopback"
UNSUPPORTED_SERVERS = {
    "bedrock": "Amazon Bedrock signs every request and is out of scope",
    "vertex": "Vertex AI authenticates with short-lived tokens and is out of scope",
}
_PROVIDER_NAME = re.compile(r"[^/*?\s]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type"})
"""Headers that a call has anyway."""


class KnownServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is known by name; the keys are explained in the file."""

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
    """A provider. What is left out is taken over from the well-known server of that name, or of its `kind`."""

    kind: str = ""
    """The well-known server that it is, where its own name is another."""
    protocols: tuple[str, ...] | None = None
    """What it speaks, best first. A client's own protocol is preferred, then the first that takes the model."""
    base_url: str | dict[str, str] | None = None
    """Where it is, with or without the version at the end: one for all protocols, or a table by protocol."""
    api_key_env: str | None = None
    """The variable of the environment that holds the key."""
    api_key: str | None = None
    """The key itself. A variable is safer."""
    forward_auth: bool = False
    """Pass on what the client authenticates with, instead of a key."""
    auth_header: str | None = None
    """The header that the key goes into, where it is not the protocol's own; `authorization` makes a bearer token."""
    quirks: tuple[str, ...] | None = None
    """Where this server differs from its protocol."""
    headers: dict[str, str] | None = None
    """Further headers of every call."""
    models: tuple[str, ...] | None = None
    """Names and patterns of models that clients may ask for without naming the provider."""
    proxy: str | None = None
    """The proxy to go through, `""` for none; left out, the environment decides (`HTTPS_PROXY`, `NO_PROXY`)."""
    ca_file: str = ""
    """Certificates to trust besides the system's, as a PEM file; from the folder of this file."""


@cache
def known_servers() -> Mapping[str, KnownServer]:
    """The well-known servers."""
    text = files("toolwire.gateway.config").joinpath("providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, KnownServer])


def loopback_provider() -> Provider:
    """The embedded model, which speaks everything."""
    return Provider(name=LOOPBACK_NAME, protocols=tuple(CODECS), models=(LOOPBACK_NAME,), embedded=True)


class ProviderBuilder:
    """Everything that a provider is built from, and the providers that came of it, in order."""

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
                hint = "call yours otherwise; `loopback = false` under [server] takes the embedded one away"
                self._collector.add(place, "`loopback` is the embedded model", hint)
            elif not _PROVIDER_NAME.fullmatch(name):
                self._collector.add(place, f"a provider cannot be called `{name}`", "no slashes, stars or spaces")
            else:
                given = self._collector.read_fields(self._collector.expect_table(table, place), ProviderTable, place)
                if given is not None:
                    self._build_provider(name, ProviderTable(**given), place)

    def add_from_environment(self) -> None:
        """Rows whose key is set, and local servers whose address is."""
        for name, row in known_servers().items():
            address = any(self._environ.get(variable) for variable in row.base_url_env)
            if name not in self._seen_names and (address if row.local else self._key_from_environment(row)[0]):
                if not row.local and not row.base_url and not address:
                    variable = self._key_from_environment(row)[1]
                    hint = f"set {row.base_url_env[0]} too, or write [providers.{name}] with a base_url"
                    self._collector.add((variable,), f"a key for {row.title}, but no address", hint, "warning")
                    continue
                self.ensure_provider(name, (name,))

    def ensure_provider(self, name: str, path: KeyPath) -> bool:
        """Is there a provider of this name? A row that the file speaks of becomes one, with its key or without."""
        if name not in self._seen_names and name in known_servers():
            self._seen_names.add(name)
            self._build_provider(name, ProviderTable(), path)
        return name in self._seen_names

    @property
    def names(self) -> list[str]:
        """Those of the file first, as they are tried."""
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
        """What the provider inherits; an empty row for one that nobody knows; None when it cannot be one."""
        kind = table.kind or name
        if kind in UNSUPPORTED_SERVERS and (table.kind or table.base_url is None):
            self._collector.add(
                (*path, "kind"), UNSUPPORTED_SERVERS[kind], "docs/guides/providers.md says what works instead"
            )
            return None
        if table.kind and table.kind not in known_servers():
            self._collector.add(
                (*path, "kind"), f"no server is known as `{table.kind}`", suggest_name(table.kind, known_servers())
            )
            return None
        if kind in known_servers():
            return known_servers()[kind]
        if table.protocols is None or table.base_url is None:
            missing = " and ".join(key for key in ("protocols", "base_url") if getattr(table, key) is None)
            near = suggest_name(name, known_servers())
            hint = (
                f"add it, or a `kind`; known servers: {', '.join(known_servers())}"
                if near.startswith("there is")
                else near
            )
            self._collector.add(path, f"`{name}` is no well-known server, and {missing} is missing", hint)
            return None
        return KnownServer(title=name, protocols=())

    def _read_protocols(self, table: ProviderTable, known: KnownServer, path: KeyPath) -> tuple[str, ...]:
        if table.protocols is None:
            return known.protocols
        path = (*path, "protocols")
        if not table.protocols:
            self._collector.add(path, "a provider speaks at least one protocol", f"there is: {', '.join(CODECS)}")
        return tuple(
            dict.fromkeys(self._normalise_protocol(word, (*path, at)) for at, word in enumerate(table.protocols))
        )

    def _normalise_protocol(self, protocol: str, path: KeyPath) -> str:
        spelled = protocol.replace("_", "-")
        if spelled not in CODECS:
            self._collector.add(path, f"no protocol is called `{protocol}`", suggest_name(protocol, CODECS))
        return spelled

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
            self._collector.add(path, f"no base URL for {', '.join(missing)}", "one for every protocol that it speaks")
        return {protocol: urls[protocol] for protocol in protocols if protocol in urls}

    def _is_valid_url(self, url: str, path: KeyPath) -> bool:
        wrong = check_base_url(url)
        if wrong:
            self._collector.add(path, wrong)
        elif is_own_address(url, self._server):
            wrong = "this is the gateway itself, which would call itself without end"
            self._collector.add(path, wrong, "name the provider's own address, or give the gateway another port")
        return not wrong

    def _base_url_from_environment(self, name: str, known: KnownServer) -> str:
        """A base URL that the environment gives; one that leads back here is meant for SDKs, and passed over."""
        if known.base_url and known_servers().get(name) is not known:
            return ""
        for variable in known.base_url_env:
            given = self._environ.get(variable, "").strip()
            if not given:
                continue
            usual = known.base_url if isinstance(known.base_url, str) else ""
            try:
                url = complete_base_url(given, usual, known.base_path)
                wrong = check_base_url(url)
            except ValueError:
                url, wrong = "", "no URL"
            if wrong:
                self._collector.add((variable,), wrong, "it is passed over", "warning")
            elif is_own_address(url, self._server):
                hint = f"it is passed over here, and {known.title} is called at its own address; your SDK may keep it"
                self._collector.add((variable,), "this is the gateway itself", hint, "warning")
            else:
                return url
        return ""

    # --- keys ---

    def _key_from_environment(self, known: KnownServer) -> tuple[str, str]:
        """The first key that the environment holds for a row, and its variable."""
        for variable in known.key_env:
            value = self._environ.get(variable, "").strip()
            if value:
                return value, variable
        return "", ""

    def _read_credentials(self, table: ProviderTable, known: KnownServer, path: KeyPath) -> tuple[str, str]:
        """The key and where it is from. A variable that should hold it and does not is a warning: all else works."""
        self._check_single_credential(table, path)
        if table.api_key is not None:
            hint = "a variable is safer: `api_key_env`"
            self._collector.add((*path, "api_key"), "the key stands in the file", hint, "warning")
            return table.api_key.strip(), ""
        if table.forward_auth:
            if self._server.keys:
                hint = "clients show the gateway's key, so most have none of their own to pass on"
                self._collector.add((*path, "forward_auth"), "the server has keys too", hint, "warning")
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
            hint = f"set {variable}; until then requests to this provider are refused"
            where = (*path, "api_key_env") if path[0] == "providers" else path
            self._collector.add(where, f"the variable {variable} is not set", hint, "warning")
        return key, variable

    def _check_single_credential(self, table: ProviderTable, path: KeyPath) -> None:
        chosen = {
            "api_key": table.api_key is not None,
            "api_key_env": table.api_key_env is not None,
            "forward_auth": table.forward_auth,
        }
        given = [name for name, there in chosen.items() if there]
        if len(given) > 1:
            self._collector.add((*path, given[1]), f"{' and '.join(given)} exclude each other", "keep one of them")

    # --- the rest ---

    def _check_headers_and_files(self, table: ProviderTable, protocols: tuple[str, ...], path: KeyPath) -> None:
        for at, quirk in enumerate(table.quirks or ()):
            known = sorted(
                {name for protocol in protocols if protocol in CODECS for name in find_codec(protocol).quirks}
            )
            if quirk not in known:
                wrong = f"no quirk of {', '.join(protocols)} is called `{quirk}`"
                self._collector.add((*path, "quirks", at), wrong, suggest_name(quirk, known))
        for header, value in (table.headers or {}).items():
            if not _HEADER_NAME.fullmatch(header) or "\r" in value or "\n" in value:
                self._collector.add((*path, "headers", header), f"`{header}` is no header that can be sent")
            elif header.lower() in _RESERVED_HEADERS:
                self._collector.add((*path, "headers", header), f"`{header}` is set by the gateway", "leave it out")
        if table.auth_header and not _HEADER_NAME.fullmatch(table.auth_header):
            self._collector.add((*path, "auth_header"), "this is no name of a header")
        if table.ca_file and not (self._folder / table.ca_file).is_file():
            self._collector.add((*path, "ca_file"), "there is no such file", "the path is from the folder of this file")

    def _read_proxies(self, table: ProviderTable, urls: Mapping[str, str], path: KeyPath) -> Mapping[str, str]:
        if table.proxy is not None:
            wrong = check_proxy_url(table.proxy) if table.proxy else ""
            if wrong:
                self._collector.add((*path, "proxy"), wrong)
            return dict.fromkeys(urls, table.proxy) if table.proxy else EMPTY_MAPPING
        found: dict[str, Any] = {}
        for protocol, url in urls.items():
            proxy, variable = proxy_from_environment(url, self._environ)
            if not proxy:
                continue
            wrong = check_proxy_url(proxy)
            if not wrong:
                found[protocol] = proxy
            elif not any(problem.location == variable for problem in self._collector.problems):
                self._collector.add((variable,), wrong, "it is passed over", "warning")
        return found
