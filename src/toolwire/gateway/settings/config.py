"""The checked configuration as values. `load.py` reads it from `toolwire.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Meta, Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec, ModelFacts
from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.settings.cloud_access import CloudAccess
from toolwire.gateway.settings.prices import Prices
from toolwire.gateway.settings.problems import KeyPath, Problem, ProblemCollector, TomlTable
from toolwire.gateway.settings.times import parse_time
from toolwire.policy.rules import Rule

MAX_SECONDS = 1e9
"""Three decades: timers cannot take every number, and infinity not at all."""
MAX_INTEGER = 2**53
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Positive = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
NonNegative = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
TextMapping = Mapping[str, str]
SectionType = TypeVar("SectionType", bound="Section")


class Secret:
    """A secret that is shown only by `reveal()`, never by `repr` or in a log."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(…)" if self._value else "Secret()"

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled")


class Timeouts(Struct, frozen=True, kw_only=True):
    """Time limits in seconds; 0 means no limit."""

    connect: Seconds = 10.0
    """Connecting to a provider, including DNS, proxy and TLS."""
    first_byte: Seconds = 600.0
    """From the request to the first byte of the provider's answer. Models can think for minutes."""
    between_bytes: Seconds = 300.0
    """The longest pause between two bytes of an answer."""
    whole_answer: Seconds = 3600.0
    """From the request to the last byte of the provider's answer, however steadily it comes."""
    all_attempts: Seconds = 60.0
    """Until another provider is asked, where there is one: all that have a fallback share this time for the first byte
    of a stream; for a whole answer each has all of it. Retries end with it. Without a fallback `first_byte` counts."""
    drain: Seconds = 0.0
    """How long the gateway accepts new requests after it was asked to stop, while `/readyz` answers 503, so that a load
    balancer can notice. Needed only behind a load balancer."""
    shutdown: Seconds = 300.0
    """How long running requests may take to finish when the gateway stops."""


MAX_DOLLARS = 9_000_000
"""Counters are exact up to 2^53 billionths of a dollar."""
Dollars = Annotated[float, Meta(gt=0, le=MAX_DOLLARS)]


class LimitAmounts(Struct, frozen=True, kw_only=True):
    """How much may be used, of several things. What is left out has no limit."""

    requests_per_minute: Positive | None = None
    """Requests that begin in a minute."""
    tokens_per_minute: Positive | None = None
    """Input and output tokens, also those from the prompt cache."""
    tokens_per_hour: Positive | None = None
    """The same in an hour."""
    tokens_per_day: Positive | None = None
    """The same in a day."""
    tokens_per_month: Positive | None = None
    """The same in a month."""
    dollars_per_hour: Dollars | None = None
    """What requests cost in an hour, in US dollars."""
    dollars_per_day: Dollars | None = None
    """The same in a day."""
    dollars_per_month: Dollars | None = None
    """The same in a month."""
    parallel_requests: Positive | None = None
    """Requests that run at the same time."""


class ClientKey(Struct, frozen=True, kw_only=True):
    """A key that a client must send. As soon as there is one, requests without a key are refused."""

    name: str
    """Whose key it is, for the log."""
    sha256: str
    """The SHA-256 hash of the key in hexadecimal. `toolwire keys new NAME --write` makes a key and adds its hash."""
    team: str = ""
    """The team that it belongs to, for the log, and for `team` in `[[policy]]` and `teams` in `[mcp.NAME]`."""
    models: tuple[str, ...] = ("*",)
    """Names and patterns of the models that the client may use. `*` and `provider/*` allow everything. In others `*` or
    `?` match no `:` and no `@`, unless the pattern has them (`gpt-5*:*`)."""
    providers: tuple[str, ...] = ("*",)
    """Names and patterns of the providers that get the client's requests. Others are left out wherever a model, an
    alias or a fallback leads to them."""
    mcp_servers: tuple[str, ...] = ("*",)
    """Names and patterns of the MCP servers whose tools the client gets, of those that `[mcp]` offers to it."""
    expires: str = ""
    """When the key stops working: `2026-12-31` (at the end of that day, in UTC) or `2026-12-31T18:00:00Z`. Empty for
    never."""
    disabled: bool = False
    """Refuse the key for now, and keep everything that belongs to it."""
    limits: LimitAmounts = LimitAmounts()
    """How much the client may use, as in `[[limits]]`: `limits = { dollars_per_day = 5, parallel_requests = 4 }`. Other
    limits hold as well."""
    metrics: bool = False
    """May the client read `/metrics`? They show the providers, models and token counts of all clients."""
    old_sha256: str = ""
    """The hash of the key before this one, which works until `old_until`, so that it can be replaced without haste."""
    old_until: str = ""
    """When the old key stops working, written as `expires`."""
    first_sha256: str = ""
    """The hash of the first key, if it was replaced since. What a client has stored belongs to its first key."""

    @property
    def is_restricted(self) -> bool:
        """Are there models that the client may not use?"""
        return "*" not in self.models

    @property
    def has_all_providers(self) -> bool:
        return "*" in self.providers

    @property
    def expires_at(self) -> float:
        """Unix time. What cannot be read as a time has passed."""
        return (parse_time(self.expires) or 0.0) if self.expires else inf

    @property
    def old_until_at(self) -> float:
        return parse_time(self.old_until) or 0.0

    def may_use_provider(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.providers)

    def may_use_mcp_server(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.mcp_servers)


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The gateway itself."""

    host: str = "127.0.0.1"
    """The address to listen on. Other machines can be served only with `[[server.keys]]` or `store_keys`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8642
    """The port to listen on; 0 chooses a free port."""
    workers: Positive = 1
    """Worker processes that share the port."""
    heartbeat: Seconds = 15.0
    """Seconds without data after which a stream sends a heartbeat, in protocols that have one; 0 for never."""
    max_body: Positive = 64 * 1024 * 1024
    """The largest request body in bytes, after decompression."""
    max_memory: NonNegative = 0
    """Bytes of memory for requests, answers and buffers in flight, of all workers together. Beyond it, requests get 503
    with `retry-after`. By default half of what the container, or else the machine, has."""
    max_requests: Positive = 1024
    """Requests in flight, for each worker. Some more wait for their turn; beyond those, 503 with `retry-after`. One
    client key may have half of them, or 512 if that is more; `parallel_requests` in `[[limits]]` allows less."""
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    """When a client disconnects: `cancel` its request at the provider, or let it finish (`drain`)."""
    allowed_hosts: tuple[str, ...] = ()
    """Values of the Host header to accept besides the address and the names of this machine."""
    timeouts: Timeouts = Timeouts()
    """`[server.timeouts]`, see below."""
    keys: tuple[ClientKey, ...] = ()
    """`[[server.keys]]`, see below."""
    store_keys: bool = False
    """Accept the client keys of the store, too (`toolwire keys new NAME --store`). Then every client needs a key, also
    while there is none yet, and while the store cannot be read."""
    shared_objects: bool = False
    """With client keys: whether all keys may list, read, change and delete what the providers store for their accounts
    (files, batches, vector stores …). By default a key can reach only what it has created itself."""
    retries: NonNegative = 2
    """How often a failed request is repeated at one provider before the next fallback."""
    cooldown_after: Positive = 5
    """After how many consecutive failures a provider is skipped for a while."""
    cooldown: Seconds = 30.0
    """For how many seconds it is skipped."""
    log_format: Literal["auto", "json", "text", "none"] = "auto"
    """The format of the log. `auto` is `text` on a terminal and `json` elsewhere. `none` still logs events such as a
    reloaded configuration."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """The minimum log level. `debug` adds the tools and the tool calls of every request, on both sides, with their
    arguments."""
    watch_cache: bool = True
    """Compare the prompts of a session, and warn once if a prefix has changed that the provider could have read from
    its cache. With `log_bodies`, or at the level `debug`, the warning has a short excerpt of the prompt."""
    log_bodies: bool = False
    """Log the bodies of requests and answers. They contain everything that your users write."""
    secret_env: str = ""
    """The environment variable with a secret that signs the signatures and summaries which clients carry between
    requests. Gateways that serve the same clients need the same one. It can hold several, separated by commas: the
    first signs, all are accepted. Default: a key that the first gateway creates, in PostgreSQL, beside the SQLite store
    (or derived from `[store] key_env`), or without a store in the state folder."""
    metrics_sha256: str = ""
    """The SHA-256 hash of a key that may read `/metrics` and nothing else, as in `[[server.keys]]`. With client keys,
    `/metrics` needs this key or one with `metrics = true`."""
    metrics_listen: str = ""
    """An address of its own for `/metrics`, such as `127.0.0.1:9100`: then it is not at the gateway's own address.
    Without `metrics_sha256` it needs no key there. Only with `toolwire serve`; a change needs a restart."""
    loopback: bool = True
    """Serve the embedded model `loopback`."""

    @property
    def needs_keys(self) -> bool:
        """Must every client have a key?"""
        return bool(self.keys) or self.store_keys


class CallSettings(Struct, frozen=True, kw_only=True):
    """Tools for models that call them badly, or not at all. What a model leaves out is that of its provider."""

    tools: Literal["auto", "native", "prompted"] | None = None
    """How the model gets its tools: as tools (`native`), or as a part of the prompt, for models and servers without
    tools (`prompted`). `auto`, the default, is `native`, and `prompted` for a model that refused tools by a known
    error."""
    tool_search: Literal["gateway", "off"] | None = None
    """`gateway`: defer tools if there are more than `direct_tools`, or if the client has marked some so. The model
    finds them with a tool `search_tools`, which the gateway adds and runs. `off` by default: tools beyond the limit of
    a provider are left out."""
    direct_tools: Annotated[int, Meta(ge=0)] | None = None
    """With `tool_search`: how many tools are declared from the start, in the client's order. 32 by default."""
    tool_format: str | None = None
    """How the model writes tool calls as text, if its server does not recognise them: `auto` (the marks in the text
    decide), `eager` (also JSON without marks that ends the answer), the name of a format, such as `hermes`, or `off`.
    By default `auto` for local servers and for open models by name, `off` for others; then only answers to requests
    with tools are searched. With a format that is set here, thinking and marks are found in all answers. Only tools
    that the request offers are called."""
    repair_calls: bool | None = None
    """Repair names and arguments of calls, if the offered tools leave one sure reading? By default as `tool_format`."""
    on_bad_call: Literal["keep", "ask-again", "refuse"] | None = None
    """A call whose arguments cannot be repaired: `keep` it as it is, `ask-again` (the model is told once what is
    wrong), or `refuse` the answer. `keep` by default."""
    binary_results: Literal["native", "summary"] | None = None
    """Images and files in tool results: sent if the provider accepts them, or always replaced by a line of text. By
    default as `[translate]` says."""
    describe_images: str | None = None
    """For models that cannot see: the model (`provider/model`) that describes images to them, once for each image.
    Its text replaces the image. `off` by default: images are sent."""


_SECRET_HEADER = re.compile(r"(?i)key|token|auth|secret|cookie|credential|password")
_SECRET_QUERIES = frozenset({"code", "sig", "signature"})
"""Names of keys in queries that are none in headers: Azure Functions has `code`, signed addresses have the others."""


class Provider(Struct, frozen=True, kw_only=True, eq=False):
    """An upstream API. Compared by identity, so that it can be a dict key; `repr` hides its key and headers."""

    name: str
    account: str = ""
    """Set if this is one account of a provider that has several: the same provider with another key."""
    weight: float = 1.0
    """The account's share of the sessions, compared with the other accounts."""
    accounts: tuple[Provider, ...] = ()
    """All accounts, if there are several. The provider itself then has the key and headers of the first that has a key,
    for what needs no certain account."""
    kind: str = ""
    """The well-known server that it is; "" for another one."""
    protocols: tuple[str, ...]
    """Its protocols, the preferred one first."""
    base_urls: TextMapping = EMPTY_MAPPING
    """By protocol."""
    api_key: Secret = Secret()
    api_key_env: str = ""
    """The environment variable that the key is from, or should be."""
    forward_auth: bool = False
    access: CloudAccess = CloudAccess()
    """Credentials of a cloud, in place of a key."""
    platform: str = ""
    """The cloud whose ways its protocols have there (`Codec.platforms`)."""
    auth_headers: TextMapping = EMPTY_MAPPING
    """By protocol: the header for the key, where it is not the protocol's own."""
    quirks: tuple[str, ...] = ()
    may_have_quirks: bool = True
    """May it turn out not to know all of its protocols? Not the vendor of a protocol at its own address: what that
    refuses is wrong."""
    headers: TextMapping = EMPTY_MAPPING
    models: tuple[str, ...] = ()
    """Names and patterns of models that clients can use without naming the provider."""
    proxies: TextMapping = EMPTY_MAPPING
    """By protocol; a protocol that is missing is reached directly."""
    ca_file: str = ""
    list_models: bool = True
    embedded: bool = False
    calls: CallSettings = CallSettings()
    default_tool_format: str = ""
    """What is used if no `tool_format` is set; "" if the model's name decides."""
    prices: Mapping[str, Prices] = EMPTY_MAPPING
    """What the operator says about prices, by the names and patterns of models at this provider, the longest first."""

    @property
    def is_demo(self) -> bool:
        """One of the embedded models `demo-…`, which speak one protocol. Lists of providers leave them out."""
        return self.embedded and len(self.protocols) == 1

    @property
    def label(self) -> str:
        """Its name, with the account."""
        return f"{self.name}/{self.account}" if self.account else self.name

    def find_account(self, name: str) -> Provider | None:
        return next((account for account in self.accounts if account.account == name), None)

    @property
    def each_account(self) -> tuple[Provider, ...]:
        """The accounts, or the provider itself if it has only one."""
        return self.accounts or (self,)

    @property
    def is_key_missing(self) -> bool:
        """Is a required key not set? Then a request would only be refused."""
        return bool(self.api_key_env) and not self.api_key and not self.forward_auth

    @property
    def key_state(self) -> str:
        """Where the key comes from, or the variable to set, for people; never the key itself."""
        if self.accounts:
            return "accounts: " + ", ".join(f"{account.account} {account.key_state}" for account in self.accounts)
        if self.embedded:
            return "needs no key"
        if self.is_key_missing:
            return f"set {self.api_key_env}"
        if self.forward_auth:
            return "clients send their own key"
        if self.access.method:
            return f"uses {self.access.label}"
        if self.api_key:
            return f"uses {self.api_key_env}" if self.api_key_env else "has a key in the file"
        return "without a key"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, and what the operator's own headers and the queries of the addresses have in its place: values that
        nobody else may see."""
        queries = (pair for url in self.base_urls.values() for pair in parse_qsl(urlsplit(url).query))
        named = (value for name, value in self.headers.items() if _SECRET_HEADER.search(name))
        in_urls = (value for name, value in queries if _SECRET_HEADER.search(name) or name in _SECRET_QUERIES)
        found = (self.api_key.reveal(), *(value.rpartition(" ")[2] for value in named), *in_urls)
        return tuple(dict.fromkeys(filter(None, found)))

    def credential(self, codec: Codec) -> tuple[str, str] | None:
        """The header with the key: `auth_header`, or the one that the protocol uses."""
        if not self.api_key:
            return None
        key, header = self.api_key.reveal(), self.auth_headers.get(codec.name, "")
        if not header:
            return codec.http.write_credential(key)
        return header, f"Bearer {key}" if header == "authorization" else key

    def __repr__(self) -> str:
        return f"Provider({self.label!r}, {', '.join(self.protocols)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # for pretty printers
        return [("name", self.name), ("protocols", self.protocols)]


class ModelRule(CallSettings, frozen=True, kw_only=True):
    """Where requests for a model are sent. Exact names win over patterns, longer patterns over shorter ones."""

    name: str
    """The name that clients use; `*` matches any characters, `?` one."""
    provider: str
    """The provider that gets the requests."""
    model: str = ""
    """The model's name at the provider; by default the name that the client used."""
    protocol: str = ""
    """The protocol to use; by default the best one for the client and the model."""
    max_output_tokens: Positive | None = None
    """The limit for requests that ask for more output tokens, or that set no limit."""
    fallbacks: tuple[str, ...] = ()
    """What to try next if it fails: `provider/model`, or names of other models."""


class TranslateSettings(Struct, frozen=True, kw_only=True):
    """How requests are translated from one protocol to another."""

    binary_results: Literal["native", "summary"] = "native"
    """Images and files in tool results: sent if the provider accepts them, or always replaced by a line of text."""
    on_loss: Literal["report", "refuse"] = "report"
    """If something cannot be translated: `report` it, or `refuse` the request."""
    cache_breakpoints: bool = True
    """Set cache breakpoints for clients that cannot, if the provider caches only marked content (Anthropic)."""
    web_search: str = ""
    """`mcp:SERVER/TOOL`: the MCP tool to use for web search if the provider has none."""
    web_fetch: str = ""
    """`mcp:SERVER/TOOL`: the MCP tool to use for fetching pages if the provider has none."""

    @property
    def substitutes(self) -> Mapping[str, tuple[str, str]]:
        """The MCP server and tool that replace a provider's tool, by the name of that tool."""
        named = {"web_search": self.web_search, "web_fetch": self.web_fetch}
        pairs = {tool: value.removeprefix("mcp:").partition("/") for tool, value in named.items() if value}
        return {tool: (server, name) for tool, (server, _, name) in pairs.items()}


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The store for responses, conversations, and signatures that Chat clients cannot return."""

    url: str = ""
    """`sqlite:///FOLDER/FILE` (an absolute path), `postgresql://USER@HOST/DATABASE`, or `none` to store nothing.
    Default: `toolwire/store.db` in the XDG state folder (`~/.local/state`)."""
    url_env: str = ""
    """The environment variable with the URL, to keep its password out of this file."""
    ttl: Seconds = 30 * 24 * 3600.0
    """For how many seconds data is kept after its last use; 0 keeps it forever."""
    max_bytes: NonNegative = 1024 * 1024 * 1024
    """The maximum size on disk. Beyond it, data of the client keys that store the most is deleted, what would expire
    first. 0 means no limit."""
    key_env: str = ""
    """The environment variable with the key that encrypts stored bodies. It can hold several keys, separated by commas:
    the first encrypts, all decrypt."""
    background_lease: Annotated[float, Meta(gt=0, le=MAX_SECONDS)] = 10.0
    """After how many seconds without a sign of life from its gateway a background response counts as failed."""

    def __repr__(self) -> str:  # the URL may contain a password
        return f"Store(ttl={self.ttl}, max_bytes={self.max_bytes})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("ttl", self.ttl), ("max_bytes", self.max_bytes)]


class Power(Struct, frozen=True):
    """What a configuration does in the name of whoever uses it: it starts a command, or sends a key of the environment,
    or of clients, to an address."""

    identity: str
    """A hash of everything that matters, with the secrets."""
    table: str
    """The table of the file that says so."""
    text: str
    """For people, without secrets of the environment."""
    is_ready: bool = True
    """Is everything there that it needs? A key can be set later."""


class SectionInput(Struct, frozen=True):
    """What a section is read from, and checked with."""

    tables: TomlTable
    """All tables of the file."""
    environ: Mapping[str, str]
    collector: ProblemCollector
    folder: Path
    """Paths in the file are relative to it."""
    config: Config
    """What is read already: the gateway's own settings, and for a check the sections of all features."""


class Section(Struct, frozen=True, kw_only=True):
    """The settings of a feature: a subclass, declared in the feature's folder and listed in `SECTIONS` in
    `configuration/load.py`. `Config.section` finds it by its class. Every field has a default."""

    renamed_keys: ClassVar[Mapping[KeyPath, str]] = {}
    """Old keys of its tables, as in `load.RENAMED_KEYS`."""

    @classmethod
    def list_tables(cls) -> Mapping[str, type[Struct]]:
        """Its tables, as the documentation writes them (`[costs]`, `[[limits]]`, `[mcp.NAME]`), and their keys."""
        raise NotImplementedError

    @classmethod
    def read(cls, source: SectionInput) -> Self:
        """Read it from a file. This is for a section with one table, whose keys are the section's own."""
        (name,) = cls.table_names()
        return cls(**source.collector.at(name).read_fields(source.tables.get(name, {}), cls) or {})

    def check(self, source: SectionInput) -> None:
        """Check it together with the rest of the configuration."""

    @property
    def secrets(self) -> Iterable[str]:
        """Values that must not appear in logs and reports."""
        return ()

    def list_powers(self) -> Iterable[Power]:
        """The commands that it starts, and the keys that it sends to an address."""
        return ()

    @classmethod
    def table_names(cls) -> tuple[str, ...]:
        return tuple(header.strip("[]").partition(".")[0] for header in cls.list_tables())


class Config(Struct, frozen=True, kw_only=True):
    """The whole configuration, checked."""

    server: ServerSettings = ServerSettings()
    providers: Mapping[str, Provider] = EMPTY_MAPPING
    models: tuple[ModelRule, ...] = ()
    facts: Mapping[str, ModelFacts] = EMPTY_MAPPING
    """What the operator says about models, by name or pattern."""
    translate: TranslateSettings = TranslateSettings()
    store: StoreSettings = StoreSettings()
    policy: tuple[Rule, ...] = ()
    sections: Mapping[type[Section], Section] = {}
    """The settings of features and of the console."""
    file: Path | None = None
    has_key_list: bool = False
    """Is `keys` written in `[server]`, if only as an empty list?"""
    warnings: tuple[Problem, ...] = ()

    def section(self, kind: type[SectionType]) -> SectionType:
        """The settings of a feature; its defaults without a file."""
        found = self.sections.get(kind)
        return found if isinstance(found, kind) else kind()

    def with_section(self, section: Section) -> Config:
        return replace(self, sections={**self.sections, type(section): section})

    @property
    def searches_tools(self) -> bool:
        """Does the gateway search for deferred tools for any model?"""
        return any(one.tool_search == "gateway" for one in self._call_settings)

    @property
    def describes_images(self) -> bool:
        return any(one.describe_images not in (None, "off") for one in self._call_settings)

    @property
    def _call_settings(self) -> tuple[CallSettings, ...]:
        return (*self.models, *(provider.calls for provider in self.providers.values()))

    @property
    def secrets(self) -> list[str]:
        """Values that must not appear in logs and reports."""
        accounts = [account for provider in self.providers.values() for account in provider.each_account]
        urls = (self.store.url, *(url for account in accounts for url in account.proxies.values()))
        passwords = [password for url in urls for password in find_password(url)]
        keys = [secret for account in accounts for secret in account.secrets]
        of_features = [secret for section in self.sections.values() for secret in section.secrets]
        return [*dict.fromkeys((*keys, *passwords, *of_features))]


def find_password(url: str) -> tuple[str, ...]:
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    return (unquote(password),) if password else ()
