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

from toolwire.gateway.settings.addresses import completed, fault, is_self, proxy_fault, proxy_of
from toolwire.gateway.settings.config import Provider, Secret, Server
from toolwire.gateway.settings.problems import meant
from toolwire.gateway.settings.tables import Findings, Table
from toolwire.gateway.settings.toml_lines import Place
from toolwire.ir import NOTHING
from toolwire.protocols import ROOMS, room

LOOPBACK = "loopback"
NOT_OURS = {
    "bedrock": "Amazon Bedrock signs every request and is out of scope",
    "vertex": "Vertex AI authenticates with short-lived tokens and is out of scope",
}
_NAME = re.compile(r"[^/*?\s]+")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type"})
"""Headers that a call has anyway."""


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
def rows() -> Mapping[str, Row]:
    """The well-known servers."""
    text = files("toolwire.gateway.settings").joinpath("providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Row])


def loopback() -> Provider:
    """The embedded model, which speaks everything."""
    return Provider(name=LOOPBACK, protocols=tuple(ROOMS), models=(LOOPBACK,), embedded=True)


class Gathered:
    """Everything that a provider is built from, and the providers that came of it, in order."""

    def __init__(self, server: Server, environ: Mapping[str, str], findings: Findings, folder: Path) -> None:
        self._server, self._environ, self._findings, self._folder = server, environ, findings, folder
        self.found: dict[str, Provider] = {}
        self._tried: set[str] = set()

    def from_file(self, tables: Table) -> None:
        for name, table in tables.items():
            place: Place = ("providers", name)
            self._tried.add(name)
            if name == LOOPBACK:
                hint = "call yours otherwise; `loopback = false` under [server] takes the embedded one away"
                self._findings.add(place, "`loopback` is the embedded model", hint)
            elif not _NAME.fullmatch(name):
                self._findings.add(place, f"a provider cannot be called `{name}`", "no slashes, stars or spaces")
            else:
                given = self._findings.shaped(self._findings.table(table, place), ProviderTable, place)
                if given is not None:
                    self._build(name, ProviderTable(**given), place)

    def from_environment(self) -> None:
        """Rows whose key is set, and local servers whose address is."""
        for name, row in rows().items():
            address = any(self._environ.get(variable) for variable in row.base_url_env)
            if name not in self._tried and (address if row.local else self._key(row)[0]):
                if not row.local and not row.base_url and not address:
                    variable = self._key(row)[1]
                    hint = f"set {row.base_url_env[0]} too, or write [providers.{name}] with a base_url"
                    self._findings.add((variable,), f"a key for {row.title}, but no address", hint, "warning")
                    continue
                self.named(name, (name,))

    def named(self, name: str, place: Place) -> bool:
        """Is there a provider of this name? A row that the file speaks of becomes one, with its key or without."""
        if name not in self._tried and name in rows():
            self._tried.add(name)
            self._build(name, ProviderTable(), place)
        return name in self._tried

    @property
    def names(self) -> list[str]:
        """Those of the file first, as they are tried."""
        return list(dict.fromkeys([*self.found, *rows()]))

    # --- one provider ---

    def _build(self, name: str, table: ProviderTable, place: Place) -> None:
        row = self._row(name, table, place)
        if row is None:
            return
        protocols = self._protocols(table, row, place)
        urls = self._base_urls(name, table, row, protocols, place)
        key, variable = self._credentials(table, row, place)
        self._check_rest(table, protocols, place)
        if not protocols or not urls:
            return
        self.found[name] = Provider(
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
            proxies=self._proxies(table, urls, place),
            ca_file=str(self._folder / table.ca_file) if table.ca_file else "",
        )

    def _row(self, name: str, table: ProviderTable, place: Place) -> Row | None:
        """What the provider inherits; an empty row for one that nobody knows; None when it cannot be one."""
        kind = table.kind or name
        if kind in NOT_OURS and (table.kind or table.base_url is None):
            self._findings.add((*place, "kind"), NOT_OURS[kind], "docs/guides/providers.md says what works instead")
            return None
        if table.kind and table.kind not in rows():
            self._findings.add((*place, "kind"), f"no server is known as `{table.kind}`", meant(table.kind, rows()))
            return None
        if kind in rows():
            return rows()[kind]
        if table.protocols is None or table.base_url is None:
            missing = " and ".join(key for key in ("protocols", "base_url") if getattr(table, key) is None)
            near = meant(name, rows())
            hint = f"add it, or a `kind`; known servers: {', '.join(rows())}" if near.startswith("there is") else near
            self._findings.add(place, f"`{name}` is no well-known server, and {missing} is missing", hint)
            return None
        return Row(title=name, protocols=())

    def _protocols(self, table: ProviderTable, row: Row, place: Place) -> tuple[str, ...]:
        if table.protocols is None:
            return row.protocols
        place = (*place, "protocols")
        if not table.protocols:
            self._findings.add(place, "a provider speaks at least one protocol", f"there is: {', '.join(ROOMS)}")
        return tuple(dict.fromkeys(self._spelled(word, (*place, at)) for at, word in enumerate(table.protocols)))

    def _spelled(self, protocol: str, place: Place) -> str:
        spelled = protocol.replace("_", "-")
        if spelled not in ROOMS:
            self._findings.add(place, f"no protocol is called `{protocol}`", meant(protocol, ROOMS))
        return spelled

    def _base_urls(
        self, name: str, table: ProviderTable, row: Row, protocols: tuple[str, ...], place: Place
    ) -> dict[str, str]:
        place = (*place, "base_url")
        given = table.base_url
        if given is None:
            given = self._from_variable(name, row) or row.base_url
            if not given:
                self._findings.add(place, "`base_url` is missing", row.docs)
                return {}
        if isinstance(given, str):
            return dict.fromkeys(protocols, given) if self._right(given, place) else {}
        urls = {self._spelled(key, (*place, key)): url for key, url in given.items() if self._right(url, (*place, key))}
        missing = [protocol for protocol in protocols if protocol not in urls]
        if missing and len(urls) == len(given):
            self._findings.add(place, f"no base URL for {', '.join(missing)}", "one for every protocol that it speaks")
        return {protocol: urls[protocol] for protocol in protocols if protocol in urls}

    def _right(self, url: str, place: Place) -> bool:
        wrong = fault(url)
        if wrong:
            self._findings.add(place, wrong)
        elif is_self(url, self._server):
            wrong = "this is the gateway itself, which would call itself without end"
            self._findings.add(place, wrong, "name the provider's own address, or give the gateway another port")
        return not wrong

    def _from_variable(self, name: str, row: Row) -> str:
        """A base URL that the environment gives; one that leads back here is meant for SDKs, and passed over."""
        if row.base_url and rows().get(name) is not row:
            return ""
        for variable in row.base_url_env:
            given = self._environ.get(variable, "").strip()
            if not given:
                continue
            usual = row.base_url if isinstance(row.base_url, str) else ""
            try:
                url = completed(given, usual, row.base_path)
                wrong = fault(url)
            except ValueError:
                url, wrong = "", "no URL"
            if wrong:
                self._findings.add((variable,), wrong, "it is passed over", "warning")
            elif is_self(url, self._server):
                hint = f"it is passed over here, and {row.title} is called at its own address; your SDK may keep it"
                self._findings.add((variable,), "this is the gateway itself", hint, "warning")
            else:
                return url
        return ""

    # --- keys ---

    def _key(self, row: Row) -> tuple[str, str]:
        """The first key that the environment holds for a row, and its variable."""
        for variable in row.key_env:
            value = self._environ.get(variable, "").strip()
            if value:
                return value, variable
        return "", ""

    def _credentials(self, table: ProviderTable, row: Row, place: Place) -> tuple[str, str]:
        """The key and where it is from. A variable that should hold it and does not is a warning: all else works."""
        self._one_of(table, place)
        if table.api_key is not None:
            hint = "a variable is safer: `api_key_env`"
            self._findings.add((*place, "api_key"), "the key stands in the file", hint, "warning")
            return table.api_key.strip(), ""
        if table.forward_auth:
            if self._server.keys:
                hint = "clients show the gateway's key, so most have none of their own to pass on"
                self._findings.add((*place, "forward_auth"), "the server has keys too", hint, "warning")
            return "", ""
        if table.api_key_env is None:
            key, variable = self._key(row)
            if key or row.local or not row.key_env:
                return key, variable
            variable = row.key_env[0]
        else:
            variable = table.api_key_env
            key = self._environ.get(variable, "").strip()
        if not key:
            hint = f"set {variable}; until then requests to this provider are refused"
            where = (*place, "api_key_env") if place[0] == "providers" else place
            self._findings.add(where, f"the variable {variable} is not set", hint, "warning")
        return key, variable

    def _one_of(self, table: ProviderTable, place: Place) -> None:
        chosen = {
            "api_key": table.api_key is not None,
            "api_key_env": table.api_key_env is not None,
            "forward_auth": table.forward_auth,
        }
        given = [name for name, there in chosen.items() if there]
        if len(given) > 1:
            self._findings.add((*place, given[1]), f"{' and '.join(given)} exclude each other", "keep one of them")

    # --- the rest ---

    def _check_rest(self, table: ProviderTable, protocols: tuple[str, ...], place: Place) -> None:
        for at, quirk in enumerate(table.quirks or ()):
            known = sorted({name for protocol in protocols if protocol in ROOMS for name in room(protocol).quirks})
            if quirk not in known:
                wrong = f"no quirk of {', '.join(protocols)} is called `{quirk}`"
                self._findings.add((*place, "quirks", at), wrong, meant(quirk, known))
        for header, value in (table.headers or {}).items():
            if not _TOKEN.fullmatch(header) or "\r" in value or "\n" in value:
                self._findings.add((*place, "headers", header), f"`{header}` is no header that can be sent")
            elif header.lower() in _OURS:
                self._findings.add((*place, "headers", header), f"`{header}` is set by the gateway", "leave it out")
        if table.auth_header and not _TOKEN.fullmatch(table.auth_header):
            self._findings.add((*place, "auth_header"), "this is no name of a header")
        if table.ca_file and not (self._folder / table.ca_file).is_file():
            self._findings.add((*place, "ca_file"), "there is no such file", "the path is from the folder of this file")

    def _proxies(self, table: ProviderTable, urls: Mapping[str, str], place: Place) -> Mapping[str, str]:
        if table.proxy is not None:
            wrong = proxy_fault(table.proxy) if table.proxy else ""
            if wrong:
                self._findings.add((*place, "proxy"), wrong)
            return dict.fromkeys(urls, table.proxy) if table.proxy else NOTHING
        found: dict[str, Any] = {}
        for protocol, url in urls.items():
            proxy, variable = proxy_of(url, self._environ)
            if not proxy:
                continue
            wrong = proxy_fault(proxy)
            if not wrong:
                found[protocol] = proxy
            elif not any(problem.where == variable for problem in self._findings.all):
                self._findings.add((variable,), wrong, "it is passed over", "warning")
        return found
