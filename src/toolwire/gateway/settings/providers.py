"""Providers from the file, the environment and the well-known servers (`providers.toml`); their URLs and proxies."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from toolwire.gateway.settings.address import PLAIN_HTTP, bracket_ipv6, check_base_url, is_exposed, is_loopback
from toolwire.gateway.settings.cloud_access import (
    AWS_METHODS,
    ENTRA_METHODS,
    AuthMethod,
    CloudAccess,
    CloudPlace,
    KnownCloud,
    find_azure_audience,
    read_aws_region,
    sign_for_host,
)
from toolwire.gateway.settings.config import CallSettings, Provider, Secret, ServerSettings
from toolwire.gateway.settings.problems import ProblemCollector, TomlTable, suggest_name
from toolwire.gateway.settings.proxies import proxy_from_environment, url_port
from toolwire.protocols import CODECS, find_codec
from toolwire.tool_formats.families import FORMAT_NAMES

LOOPBACK_NAME = "loopback"
DEMO_PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "gemini")
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
UNSUPPORTED_SERVERS = {
    "github": "GitHub Models was closed on 30 July 2026",
}
"""Why there is no such server: microsoft/langchain-for-beginners#34, looked up in November 2026."""
UNKNOWN_SERVER_QUIRKS = ("no-allowed-tools",)
"""What a server of no known kind is taken not to know, because of the known ones only OpenAI's do."""
_PROVIDER_NAME = re.compile(r"[^/*?\s]+")
_PLACE = re.compile(r"[A-Za-z0-9.:_-]{0,100}")
_PLACES = ("region", "project", "resource", "api_version")
"""Settings that are parts of an address."""
_ACCOUNT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
KEY_IN_FILE = ("the key is in the configuration file", "an environment variable is safer: use `api_key_env`")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[^\r\n\0\u0100-\U0010ffff]*")
"""What the client for providers can send."""
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
    auth_header: str | dict[str, str] = ""
    cloud: KnownCloud = KnownCloud()
    quirks: tuple[str, ...] = ()
    reference: bool = False
    models: tuple[str, ...] = ()
    name_shape: str = ""
    list_models: bool = True
    tool_format: str = ""
    catalogue: str = ""
    only_if_named: bool = False
    docs: str = ""
    source: tuple[str, ...]
    checked: str

    @property
    def _urls(self) -> tuple[str, ...]:
        return tuple(self.base_url.values()) if isinstance(self.base_url, dict) else (self.base_url,)

    @property
    def templates(self) -> tuple[str, ...]:
        """Its addresses and paths, with the marks of what the place in a cloud says."""
        return (*self._urls, *self.cloud.base_path.values())

    @property
    def needed_variables(self) -> tuple[str, ...]:
        """The environment variables that make it a provider."""
        needs_address = self.local or any(not url or "{" in url for url in self._urls)  # as of `https://{resource}.…`
        return (*(() if self.local else self.key_env[:1]), *(self.base_url_env[:1] if needs_address else ()))


class AccountTable(Struct, frozen=True, kw_only=True):
    """One of several accounts of a provider. A session stays on one account while it can."""

    name: str
    """What the log, the metrics and errors call it."""
    api_key_env: str | None = None
    """The environment variable with its API key."""
    api_key: str | None = None
    """The API key itself. An environment variable is safer."""
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """Its share of the sessions, compared with the other accounts."""
    headers: dict[str, str] | None = None
    """Additional headers of its requests, such as `openai-organization` or `openai-project`. They win over those
    of the provider."""


class CloudTable(CallSettings, frozen=True, kw_only=True):
    """What a provider of a cloud has: credentials that end, and an address by region, project or resource."""

    auth: Literal["aws", "aws-key", "google", "entra", "managed-identity"] | None = None
    """Credentials of a cloud instead of a key. `aws`: every request is signed; `aws-key`: a key of Bedrock is made of
    them. `google`: Application Default Credentials. `entra`: the `AZURE_…` variables of a client secret or of a
    workload identity. `managed-identity`: that of the machine in Azure."""
    auth_command: tuple[str, ...] | None = None
    """A program and its arguments that print a token, or JSON with the token and its end (`token`, `expires_in`). With
    `auth = "aws"` they are keys, as `aws configure export-credentials` prints them. Run without a shell, and every few
    minutes where nothing says how long the token lives."""
    profile: str = ""
    """With `auth = "aws"`: the profile of `~/.aws/config`. By default `AWS_PROFILE` or the environment decides."""
    role_arn: str = ""
    """With `auth = "aws"`: the role to assume."""
    audience: str = ""
    """With `auth = "entra"` or `"managed-identity"`: whom tokens are for, such as `api://ID` of Azure API Management.
    By default the models of Azure, or of Azure Government where the address is there."""
    credentials_file: str = ""
    """With `auth = "google"`: the file with credentials, relative to the folder of this file. By default what
    `GOOGLE_APPLICATION_CREDENTIALS` names, that of `gcloud`, or the metadata server."""
    region: str | None = None
    """Of Bedrock and Vertex AI, for the address. By default `AWS_REGION` or the region of the profile; on Vertex
    `global`."""
    project: str | None = None
    """The project of Google Cloud, for the address of Vertex AI. By default `GOOGLE_CLOUD_PROJECT`."""
    resource: str | None = None
    """The name of the resource in Azure, for its address."""
    api_version: str = ""
    """Of Azure, for addresses with the deployment in the path, such as `2024-10-21`. Without it the v1 API is used."""


class ProviderTable(CloudTable, frozen=True, kw_only=True):
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
    list_models: bool | None = None
    """Ask it for its models, for `/v1/models` and `toolwire models`? Azure is not asked by default: it lists what could
    be deployed."""
    proxy: str | None = None
    """The proxy to use, `""` for none. By default the environment decides (`HTTPS_PROXY`, `NO_PROXY`)."""
    ca_file: str = ""
    """A PEM file of certificates to trust besides the system's, relative to the folder of this file."""


@cache
def known_servers() -> Mapping[str, KnownServer]:
    text = files("toolwire.gateway.settings").joinpath("providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, KnownServer])


def embedded_providers(taken: Collection[str]) -> dict[str, Provider]:
    """The embedded model: as `loopback` it speaks every protocol, so that nothing is translated; as `demo-…` it speaks
    one, so that clients can try a translation. The latter are listed only if there is no other provider, and give way
    to a provider of the same name (`taken`)."""
    providers = {
        LOOPBACK_NAME: Provider(name=LOOPBACK_NAME, protocols=tuple(CODECS), models=(LOOPBACK_NAME,), embedded=True)
    }
    for protocol in DEMO_PROTOCOLS:
        name = f"demo-{protocol}"
        if name not in taken:
            providers[name] = Provider(
                name=name, protocols=(protocol,), models=(name,), embedded=True, list_models=not taken
            )
    return providers


def build_known_provider(name: str) -> Provider | None:
    """A well-known server as a provider without a key; None if it has no standard address."""
    collector = ProblemCollector(None)
    builder = ProviderBuilder(ServerSettings(), {}, collector, Path())
    builder.ensure_provider(name, collector)
    return builder.providers.get(name)


def list_provider_names(providers: Mapping[str, Provider]) -> list[str]:
    """All possible names, those of the file first, the embedded model last."""
    own = [name for name, provider in providers.items() if not provider.embedded]
    return list(dict.fromkeys([*own, *known_servers(), *providers]))


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
            place = self._collector.at("providers", name)
            self._seen_names.add(name)
            if name == LOOPBACK_NAME:
                hint = "use another name; `loopback = false` under [server] disables the embedded model"
                place.add("`loopback` is the name of the embedded model", hint)
            elif not _PROVIDER_NAME.fullmatch(name):
                place.add(f"invalid provider name `{name}`", "use no slashes, `*`, `?` or spaces")
            elif (given := place.read_fields(table, ProviderTable, ("accounts",))) is not None:
                accounts = _read_accounts(table, place.at("accounts"))
                self._build_provider(name, ProviderTable(**given), place, accounts)

    def add_from_environment(self) -> None:
        """Add the well-known servers whose key is set, and the local ones whose address is set."""
        for name, row in known_servers().items():
            address = any(self._environ.get(variable) for variable in row.base_url_env)
            key, variable = self._key_from_environment(row)
            if name in self._seen_names or row.only_if_named or not (address if row.local else key):
                continue
            missing = self._find_missing_place(row)
            if row.local or address or (row.base_url and not missing):
                self.ensure_provider(name, self._collector.at(name))
            else:
                others = (*row.base_url_env, *row.cloud.list_variables(missing))
                hint = f"set {others[0]} too, or write [providers.{name}] with `{missing or 'base_url'}`"
                wrong = f"there is a key for {row.title}, but no address"
                self._collector.at(variable).add(wrong, hint, "warning")

    def ensure_provider(self, name: str, place: ProblemCollector) -> bool:
        """Is there a provider with this name? A well-known server becomes one if the file uses it."""
        if name not in self._seen_names and name in known_servers():
            self._seen_names.add(name)
            self._build_provider(name, ProviderTable(), place)
        return name in self._seen_names

    @property
    def names(self) -> list[str]:
        """All possible names, those of the file first."""
        return list_provider_names(self.providers)

    # --- one provider ---

    def _build_provider(
        self, name: str, table: ProviderTable, place: ProblemCollector, accounts: tuple[AccountTable, ...] = ()
    ) -> None:
        row = _find_known_server(name, table, place)
        if row is None:
            return
        protocols = _read_protocols(table, row, place.at("protocols"))
        cloud = self._read_place(table, row)
        urls = self._read_base_urls(name, table, row, protocols, cloud, place)
        access = self._read_access(table, row, cloud, urls, place, has_accounts=bool(accounts))
        has_key = not accounts and not access.method
        key, variable = self._read_credentials(table, row, place) if has_key else ("", "")
        _check_key(key, variable, place)
        _check_cloud_keys(table, row, access, place)
        self._check_headers_and_files(table, protocols, place)
        if table.tool_format is not None:
            check_tool_format(table.tool_format, place.at("tool_format"))
        if not protocols or not urls:
            return
        provider = Provider(
            name=name,
            kind=next((kind for kind, known in known_servers().items() if known is row), ""),
            protocols=protocols,
            base_urls=urls,
            api_key=Secret(key),
            api_key_env=variable,
            forward_auth=table.forward_auth,
            access=access,
            platform=row.cloud.version_platform if table.api_version else row.cloud.platform,
            auth_headers=_find_auth_headers(table, row, protocols),
            quirks=_find_quirks(table, row),
            may_have_quirks=not row.reference or any(url != row.base_url for url in urls.values()),
            headers={header.lower(): value for header, value in (table.headers or {}).items()},
            models=row.models if table.models is None else table.models,
            proxies=self._read_proxies(table, urls, place),
            ca_file=str(self._folder / table.ca_file) if table.ca_file else "",
            list_models=row.list_models if table.list_models is None else table.list_models,
            calls=msgspec.convert(table, CallSettings, from_attributes=True),
            default_tool_format=row.tool_format,
        )
        self.providers[name] = self._add_accounts(provider, table, accounts, place) if accounts else provider

    def _add_accounts(
        self, provider: Provider, table: ProviderTable, accounts: tuple[AccountTable, ...], place: ProblemCollector
    ) -> Provider:
        for name in ("api_key", "api_key_env", "forward_auth", "auth", "auth_command"):
            if getattr(table, name) not in (None, False):
                place.at(name).add(f"`{name}` and `accounts` cannot be combined", "give each account its key")
        built: list[Provider] = []
        for number, account in enumerate(accounts):
            where = place.at("accounts", number)
            key, variable = self._read_account_key(account, where)
            _check_key(key, variable, where)
            _check_headers(account.headers, where)
            if account.name in [one.account for one in built]:
                where.at("name").add(f"two accounts have the name `{account.name}`", "the log tells them apart by it")
            if key and key in [one.api_key.reveal() for one in built]:
                where.add("this is the key of another account, too", "give each account a key of its own", "warning")
            headers = {header.lower(): value for header, value in (account.headers or {}).items()}
            built.append(
                replace(
                    provider,
                    account=account.name,
                    weight=account.weight,
                    api_key=Secret(key),
                    api_key_env=variable,
                    headers={**provider.headers, **headers},
                )
            )
        first = next((account for account in built if account.api_key), built[0])
        return replace(first, account="", weight=1.0, accounts=tuple(built))

    def _read_account_key(self, account: AccountTable, place: ProblemCollector) -> tuple[str, str]:
        if (account.api_key is None) == (account.api_key_env is None):
            place.add("an account needs one of `api_key_env` and `api_key`", "name the variable with its key")
        if account.api_key is not None:
            place.at("api_key").add(*KEY_IN_FILE, "warning")
            return account.api_key.strip(), ""
        variable = account.api_key_env or ""
        key = self._environ.get(variable, "").strip()
        if variable and not key:
            hint = f"set {variable}; until then, the account is not used"
            place.at("api_key_env").add(f"the environment variable {variable} is not set", hint, "warning")
        return key, variable

    # --- base URLs ---

    def _read_base_urls(
        self,
        name: str,
        table: ProviderTable,
        known: KnownServer,
        protocols: tuple[str, ...],
        cloud: CloudPlace,
        provider: ProblemCollector,
    ) -> dict[str, str]:
        given, place = table.base_url, provider.at("base_url")
        if given is None:
            given = self._base_url_from_environment(name, known) or known.base_url
            if not given:
                place.add("`base_url` is missing", known.docs)
                return {}
        if isinstance(given, str):
            given = dict.fromkeys(protocols, given)
            if known.cloud.platform:
                given = known.cloud.complete_paths(given, table.api_version)
        elif given is known.base_url and known.cloud.platform:
            given = known.cloud.complete_paths(given, table.api_version)
        if missing := cloud.find_missing(given[protocol] for protocol in protocols if protocol in given):
            variables = known.cloud.list_variables(missing)
            hint = f"add it, or set {variables[0]}" if variables else "add it, or the whole `base_url`"
            provider.at(missing).add(f"`{missing}` is missing", hint)
            return {}
        given = {key: cloud.fill(url) for key, url in given.items()}
        if isinstance(table.base_url, str | None) and len(set(given.values())) == 1:
            return given if self._is_valid_url(next(iter(given.values())), place) else {}
        valid = {key: url for key, url in given.items() if self._is_valid_url(url, place.at(key))}
        urls = {_normalise_protocol(key, place.at(key)): url for key, url in valid.items()}
        missing_urls = [protocol for protocol in protocols if protocol not in urls]
        if missing_urls and len(urls) == len(given):
            place.add(
                f"there is no base URL for {', '.join(missing_urls)}", "add one for every protocol in `protocols`"
            )
        return {protocol: urls[protocol] for protocol in protocols if protocol in urls}

    def _is_valid_url(self, url: str, place: ProblemCollector) -> bool:
        wrong = check_base_url(url)
        if wrong:
            place.add(wrong)
        elif is_own_address(url, self._server):
            wrong = "this is the address of the gateway itself, which would call itself forever"
            place.add(wrong, "use the provider's address, or another port for the gateway")
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
            if not wrong and not is_own_address(url, self._server):
                return url
            hint = "it is ignored"
            if not wrong:
                wrong = "this is the address of the gateway itself"
                hint = f"it is ignored here, and {known.title} is called at its standard address; SDKs can still use it"
            self._collector.at(variable).add(wrong, hint, "warning")
        return ""

    # --- credentials of clouds ---

    def _find_missing_place(self, known: KnownServer) -> str:
        """What the address of a cloud needs, and the environment does not say: its region or project."""
        return self._read_place(ProviderTable(), known).find_missing(known.templates)

    def _read_place(self, table: ProviderTable, known: KnownServer) -> CloudPlace:
        """The region, project and resource, of the file or else of the environment."""

        def find(name: str, given: str | None) -> str:
            values = (self._environ.get(variable, "").strip() for variable in known.cloud.list_variables(name))
            return given or next(filter(None, values), "")

        region = find("region", table.region) or known.cloud.region
        if not region and AWS_METHODS & {table.auth, known.cloud.auth}:
            region = read_aws_region(table.profile, self._environ)
        return CloudPlace(region, find("project", table.project), find("resource", table.resource))

    def _read_access(
        self,
        table: ProviderTable,
        known: KnownServer,
        cloud: CloudPlace,
        urls: Mapping[str, str],
        place: ProblemCollector,
        *,
        has_accounts: bool,
    ) -> CloudAccess:
        method: AuthMethod = table.auth or ("command" if table.auth_command is not None else "")
        named = [name for name in ("api_key", "api_key_env", "forward_auth", "auth_header") if getattr(table, name)]
        if method and named:
            what = "auth_command" if method == "command" else "auth"
            place.at(named[0]).add(f"`{named[0]}` and `{what}` cannot be combined", "remove one of them")
        if not method and not named and not has_accounts and not self._key_from_environment(known)[0]:
            method = known.cloud.auth
        if not method:
            return CloudAccess()
        if table.auth_command and method not in ("command", "aws"):
            place.at("auth_command").add(f'it cannot be combined with `auth = "{method}"`', "remove one of them")
        if table.auth_command == ():
            place.at("auth_command").add("it names no program", 'write `["PROGRAM", "ARGUMENT"]`')
            return CloudAccess()
        for url in dict.fromkeys(urls.values()):
            if is_exposed(url):
                place.at("base_url").add(*PLAIN_HTTP)
        if method in AWS_METHODS and not cloud.region:
            place.at("region").add("`region` is missing", "signatures are for a region; add it, or set AWS_REGION")
        audience = ""
        if method in ENTRA_METHODS:
            audience = table.audience.removesuffix("/.default") or find_azure_audience(urls)
        return CloudAccess(
            method=method,
            region=cloud.region,
            service=sign_for_host(next(iter(urls.values()), "")),
            audience=audience,
            profile=table.profile,
            role_arn=table.role_arn,
            credentials_file=str(self._folder / table.credentials_file) if table.credentials_file else "",
            command=table.auth_command or (),
        )

    # --- keys ---

    def _key_from_environment(self, known: KnownServer) -> tuple[str, str]:
        """The first key that is set for a server, and its variable."""
        values = ((self._environ.get(variable, "").strip(), variable) for variable in known.key_env)
        return next((found for found in values if found[0]), ("", ""))

    def _read_credentials(self, table: ProviderTable, known: KnownServer, place: ProblemCollector) -> tuple[str, str]:
        """The key and its variable. A variable that is not set is only a warning: the rest works without it."""
        given = [name for name in ("api_key", "api_key_env") if getattr(table, name) is not None]
        given += ["forward_auth"] if table.forward_auth else []
        if len(given) > 1:
            place.at(given[1]).add(f"{' and '.join(given)} cannot be combined", "remove one of them")
        if table.api_key is not None:
            place.at("api_key").add(*KEY_IN_FILE, "warning")
            return table.api_key.strip(), ""
        if table.forward_auth:
            if self._server.needs_keys:
                hint = "clients send a key of the gateway, so most have no provider key to forward"
                place.at("forward_auth").add("clients need a key of the gateway, too", hint, "warning")
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
            where = place.at("api_key_env") if place.location.startswith("providers.") else place
            where.add(f"the environment variable {variable} is not set", hint, "warning")
        return key, variable

    # --- the rest ---

    def _check_headers_and_files(
        self, table: ProviderTable, protocols: tuple[str, ...], place: ProblemCollector
    ) -> None:
        for number, quirk in enumerate(table.quirks or ()):
            codecs = [find_codec(protocol) for protocol in protocols if protocol in CODECS]
            known = sorted({name for codec in codecs for name in codec.quirks})
            if quirk not in known:
                wrong = f"unknown quirk `{quirk}` for {', '.join(protocols)}"
                place.at("quirks", number).add(wrong, suggest_name(quirk, known))
        _check_headers(table.headers, place)
        if table.auth_header and not _HEADER_NAME.fullmatch(table.auth_header):
            place.at("auth_header").add("not a valid header name")
        if table.ca_file and not (self._folder / table.ca_file).is_file():
            place.at("ca_file").add("the file does not exist", "it is relative to the folder of this file")

    def _read_proxies(self, table: ProviderTable, urls: Mapping[str, str], place: ProblemCollector) -> dict[str, str]:
        """The proxy of each protocol: that of the file, or else of the environment (`HTTPS_PROXY`, `NO_PROXY`)."""
        found: dict[str, str] = {}
        for protocol, url in urls.items():
            proxy, variable = table.proxy, ""
            if proxy is None:
                proxy, variable = proxy_from_environment(url, self._environ)
            wrong = check_base_url(url, proxy) if proxy else ""
            if proxy and not wrong:
                found[protocol] = proxy
            where = self._collector.at(variable) if variable else place.at("proxy")
            if wrong and not any(problem.location == where.location for problem in self._collector.problems):
                where.add(wrong, *(("it is ignored", "warning") if variable else ()))
        return found


def _check_cloud_keys(table: ProviderTable, row: KnownServer, access: CloudAccess, place: ProblemCollector) -> None:
    """Settings that do nothing here: whoever wrote them means something else."""
    uses_aws, of_address = access.method in AWS_METHODS, CloudPlace().list_needed(row.templates)
    needed: dict[str, tuple[bool, str]] = {
        "profile": (uses_aws and not access.command, 'it is for `auth = "aws"`'),
        "role_arn": (uses_aws and not access.command, 'it is for `auth = "aws"`'),
        "audience": (access.method in ENTRA_METHODS, 'it is for `auth = "entra"` and `"managed-identity"`'),
        "credentials_file": (access.method == "google", 'it is for `auth = "google"`'),
        "region": (uses_aws or "region" in of_address, "it is for Bedrock and Vertex AI"),
        "project": ("project" in of_address, "it is for Vertex AI"),
        "resource": ("resource" in of_address, "it is for Azure"),
        "api_version": (bool(row.cloud.version_path), "it is for Azure"),
    }
    for name, (is_used, hint) in needed.items():
        if getattr(table, name) and not is_used:
            place.at(name).add(f"`{name}` has no meaning here", hint)
        elif name in _PLACES and not _PLACE.fullmatch(getattr(table, name) or ""):
            place.at(name).add(f"this is not a valid `{name}`", "use letters, digits and `-`")


def _find_auth_headers(table: ProviderTable, row: KnownServer, protocols: tuple[str, ...]) -> dict[str, str]:
    given = row.auth_header if table.auth_header is None else table.auth_header
    headers = dict.fromkeys(protocols, given) if isinstance(given, str) else given
    return {protocol: header.lower() for protocol, header in headers.items() if header}


def _find_quirks(table: ProviderTable, row: KnownServer) -> tuple[str, ...]:
    given = row.quirks if table.quirks is None else table.quirks
    is_known = any(row is known for known in known_servers().values())
    return given if is_known else tuple(dict.fromkeys((*given, *UNKNOWN_SERVER_QUIRKS)))


def _read_accounts(table: object, place: ProblemCollector) -> tuple[AccountTable, ...]:
    """The accounts of a provider; names are checked, because they are in headers and logs."""
    tables = table.get("accounts", []) if isinstance(table, dict) else []
    if not isinstance(tables, list):
        place.add("`accounts` must be a list of tables", "write `[[providers.NAME.accounts]]`")
        return ()
    accounts: list[AccountTable] = []
    for number, one in enumerate(tables):
        given = place.at(number).read_fields(one, AccountTable)
        if given is not None and not _ACCOUNT_NAME.fullmatch(given["name"]):
            place.at(number, "name").add(f"invalid name `{given['name']}`", "use letters, digits, `.`, `_` and `-`")
        elif given is not None:
            accounts.append(AccountTable(**given))
    return tuple(accounts)


def _check_key(key: str, variable: str, place: ProblemCollector) -> None:
    """Two keys that were pasted into one variable, or the quotation marks of a text editor. The rest works without."""
    if not _HEADER_VALUE.fullmatch(key):
        where = place.at("api_key_env" if variable else "api_key") if place.location.startswith("providers.") else place
        what = f"the key{f' in {variable}' if variable else ''} contains a character that no header can have"
        hint = "look for a line break or quotation marks in it; until then, requests to this provider fail"
        where.add(what, hint, "warning")


def _check_headers(headers: Mapping[str, str] | None, place: ProblemCollector) -> None:
    for header, value in (headers or {}).items():
        if not _HEADER_NAME.fullmatch(header) or not _HEADER_VALUE.fullmatch(value):
            place.at("headers", header).add(f"`{header}` is not a valid header")
        elif header.lower() in _RESERVED_HEADERS:
            place.at("headers", header).add(f"`{header}` is set by the gateway", "remove it")


def check_tool_format(name: str, place: ProblemCollector) -> None:
    if name not in FORMAT_NAMES:
        place.add(f"unknown tool format `{name}`", suggest_name(name, FORMAT_NAMES))


def _find_known_server(name: str, table: ProviderTable, place: ProblemCollector) -> KnownServer | None:
    """The server to take missing keys from; an empty one if it is not a known server; None after an error."""
    kind = table.kind or name
    if kind in UNSUPPORTED_SERVERS and (table.kind or table.base_url is None):
        place.at("kind").add(UNSUPPORTED_SERVERS[kind], "see docs/guides/providers.md for alternatives")
        return None
    if table.kind and table.kind not in known_servers():
        place.at("kind").add(f"unknown server `{table.kind}`", suggest_name(table.kind, known_servers()))
        return None
    if kind in known_servers():
        return known_servers()[kind]
    if table.protocols is not None and table.base_url is not None:
        return KnownServer(title=name, protocols=(), source=(), checked="")
    keys = [key for key in ("protocols", "base_url") if getattr(table, key) is None]
    missing = f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'}"
    hint = suggest_name(name, known_servers())
    if hint.startswith("choose"):
        hint = f"add it, or set `kind` to one of the well-known servers: {hint}"
    place.add(f"`{name}` is not a well-known server, and {missing} missing", hint)
    return None


def _read_protocols(table: ProviderTable, known: KnownServer, place: ProblemCollector) -> tuple[str, ...]:
    if table.protocols is None:
        return known.protocols
    if not table.protocols:
        place.add("a provider needs at least one protocol", f"choose from: {', '.join(CODECS)}")
    return tuple(dict.fromkeys(_normalise_protocol(word, place.at(at)) for at, word in enumerate(table.protocols)))


def _normalise_protocol(protocol: str, place: ProblemCollector) -> str:
    name = protocol.replace("_", "-")
    if name not in CODECS:
        place.add(f"unknown protocol `{protocol}`", suggest_name(protocol, CODECS))
    return name


# --- addresses --------------------------------------------------------------------------------------------------------


def complete_base_url(given: str, default_url: str, default_path: str) -> str:
    """A base URL from a variable that may hold only HOST:PORT, or the address that a server listens on. The port
    defaults to that of `default_url`, the path to `default_path`."""
    full = given if "://" in given else f"http://{given}"
    parts = urlsplit(full)
    host = parts.hostname or ""
    if host in ANY_ADDRESS:
        host = "127.0.0.1"
    port = parts.port or (urlsplit(default_url).port if "://" not in given and default_url else None)
    where = f"{bracket_ipv6(host)}:{port}" if port else bracket_ipv6(host)
    return f"{parts.scheme}://{where}{parts.path.rstrip('/') or default_path}"


def is_own_address(url: str, server: ServerSettings) -> bool:
    """Would a call to this base URL come back to this gateway?"""
    parts = urlsplit(url)
    if server.port == 0 or url_port(parts) != server.port:
        return False
    host = parts.hostname or ""
    listening = server.host.strip("[]")
    if is_loopback(host) or host in ANY_ADDRESS:
        return listening in ANY_ADDRESS or is_loopback(listening)
    return host == listening or host in server.allowed_hosts
