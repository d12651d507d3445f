"""The configuration as values. `configfile` reads it, `routing` and the rest of the gateway live by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from toolwire.core.codec import Http
from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.config.problems import Problem
from toolwire.policy.rules import Rule

Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[int, Meta(ge=0)]
TextMapping = Mapping[str, str]


class Secret:
    """A key that shows itself to nobody who does not ask for it by name."""

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
        raise TypeError("a secret is not written down")


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long something may take, in seconds; 0 is no limit."""

    connect: Seconds = 10.0
    """Until a connection to the provider stands."""
    first_byte: Seconds = 600.0
    """From the request until the first byte of the answer: models think for long."""
    between_bytes: Seconds = 300.0
    """The longest silence within an answer."""
    all_attempts: Seconds = 60.0
    """All tries together, fallbacks included, before the first byte reached the client."""
    drain: Seconds = 0.0
    """How long the gateway still serves new requests after it was asked to stop, while `/readyz` says 503: time for a
    balancer to notice. Without one there is nothing to wait for."""
    shutdown: Seconds = 300.0
    """For streams to finish when the gateway is asked to stop."""


class ClientKey(Struct, frozen=True, kw_only=True):
    """A key that clients show. With at least one, nobody is served without."""

    name: str
    """Who it belongs to, for the log."""
    sha256: str
    """The SHA-256 of the key in hexadecimal, so that the file holds no key: `toolwire check-config --hash-key`."""
    models: tuple[str, ...] = ("*",)
    """Names and patterns of the models that it may ask for."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The gateway itself."""

    host: str = "127.0.0.1"
    """The address to listen on. Beyond this machine only with `[[server.keys]]`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8642
    """The port to listen on; 0 takes a free one."""
    workers: Positive = 1
    """Processes that share the port."""
    heartbeat: Seconds = 15.0
    """Seconds of silence after which a stream gets a sign of life, in protocols that have one; 0 for none."""
    max_body: Positive = 64 * 1024 * 1024
    """The largest request in bytes, unpacked."""
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    """A client that leaves cancels its call at the provider, or lets it finish."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that the Host header may hold, besides the address and the names of this machine."""
    timeouts: Timeouts = Timeouts()
    """`[server.timeouts]`, see below."""
    keys: tuple[ClientKey, ...] = ()
    """`[[server.keys]]`, see below."""
    retries: NonNegative = 2
    """Further tries at one provider before the next fallback."""
    cooldown_after: Positive = 5
    """Failures in a row after which a provider rests."""
    cooldown: Seconds = 30.0
    """How many seconds it rests."""
    log_format: Literal["json", "text", "none"] = "json"
    """The log line of an exchange."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """The least that is worth a line. `debug` adds lines that tell which tools came and went, and what calls looked
    like on both sides, arguments included."""
    log_bodies: bool = False
    """Write requests and answers into the log too. They hold whatever your users say."""
    loopback: bool = True
    """Serve the embedded model `loopback`."""


class Provider(Struct, frozen=True, kw_only=True, eq=False):
    """Where models are. Equal only to itself, so that it can be a key; shows neither its key nor its headers."""

    name: str
    protocols: tuple[str, ...]
    """What it speaks, best first."""
    base_urls: TextMapping = EMPTY_MAPPING
    """By protocol."""
    api_key: Secret = Secret()
    api_key_env: str = ""
    """Where the key is from, or should be."""
    forward_auth: bool = False
    auth_header: str = ""
    quirks: tuple[str, ...] = ()
    headers: TextMapping = EMPTY_MAPPING
    models: tuple[str, ...] = ()
    """Names and patterns that it serves without being named."""
    proxies: TextMapping = EMPTY_MAPPING
    """By protocol; one that is missing is reached directly."""
    ca_file: str = ""
    embedded: bool = False

    @property
    def is_key_missing(self) -> bool:
        """Is a key needed that is not there? A call would only be refused."""
        return bool(self.api_key_env) and not self.api_key and not self.forward_auth

    def credential(self, http: Http) -> tuple[str, str] | None:
        """The header that shows the key, as this provider wants it or as the protocol has it."""
        if not self.api_key:
            return None
        key, header = self.api_key.reveal(), self.auth_header.lower()
        if not header:
            return http.write_credential(key)
        return header, f"Bearer {key}" if header == "authorization" else key

    def __repr__(self) -> str:
        return f"Provider({self.name!r}, {', '.join(self.protocols)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # pretty printers ask this
        return [("name", self.name), ("protocols", self.protocols)]


class ModelRule(Struct, frozen=True, kw_only=True):
    """Where requests for a model go. Exact names come before patterns, longer patterns before shorter."""

    name: str
    """The name that clients ask for; `*` and `?` stand for any characters and any one."""
    provider: str
    """The provider that is asked."""
    model: str = ""
    """The model's name there; the asked one when left out."""
    protocol: str = ""
    """The protocol to ask in; the best for the client and the model when left out."""
    max_output_tokens: Positive | None = None
    """The most that may be asked for; a request that asks for more, or for nothing, gets this."""
    fallbacks: tuple[str, ...] = ()
    """What is tried next when it fails: `provider/model`, or the names of other models."""


class TranslateSettings(Struct, frozen=True, kw_only=True):
    """How requests are carried from one protocol to another."""

    binary_results: Literal["native", "summary"] = "native"
    """Media in tool results: carried wherever the provider can take them, or replaced by a line of text."""
    on_loss: Literal["report", "refuse"] = "report"
    """Say what could not be carried over, or refuse such a request."""
    cache_breakpoints: bool = True
    """Set cache breakpoints for clients that cannot, where the provider caches only what is marked."""
    web_search: str = ""
    """`mcp:SERVER/TOOL`: a tool of an MCP server that searches where the provider has no search of its own."""
    web_fetch: str = ""
    """`mcp:SERVER/TOOL`: the same for a tool that fetches a page."""

    @property
    def substitutes(self) -> Mapping[str, tuple[str, str]]:
        """The server and the tool that stand in, by the tool that they stand in for."""
        named = {"web_search": self.web_search, "web_fetch": self.web_fetch}
        pairs = {tool: value.removeprefix("mcp:").partition("/") for tool, value in named.items() if value}
        return {tool: (server, name) for tool, (server, _, name) in pairs.items()}


class StoreSettings(Struct, frozen=True, kw_only=True):
    """What is kept between requests: answers to go on from, conversations, and what some clients cannot carry."""

    url: str = ""
    """`sqlite:///FOLDER/FILE` (a path from the root), `postgresql://USER@HOST/DATABASE`, or `none` to keep nothing.
    Left out: `toolwire/store.db` in the XDG state folder (`~/.local/state`)."""
    url_env: str = ""
    """The variable of the environment that holds the URL, so that no password stands in this file."""
    ttl: Seconds = 30 * 24 * 3600.0
    """Seconds that something is kept after it was last used; 0 keeps it for ever."""
    max_bytes: NonNegative = 1024 * 1024 * 1024
    """The most that it may take on the disk; what would go first anyway then goes earlier. 0 is no limit."""
    key_env: str = ""
    """The variable of the environment that holds the key to encrypt bodies with. It may hold several with commas
    between them: the first encrypts, all decrypt."""
    background_lease: Annotated[float, Meta(gt=0)] = 10.0
    """Seconds after which work in the background counts as lost when its gateway says nothing more of it."""

    def __repr__(self) -> str:  # a URL can hold a password
        return f"Store(ttl={self.ttl}, max_bytes={self.max_bytes})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("ttl", self.ttl), ("max_bytes", self.max_bytes)]


class McpServer(Struct, frozen=True, kw_only=True, eq=False):
    """A server of tools: a program that is started, or a URL. Shows neither its variables nor its headers."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, Secret] = EMPTY_MAPPING
    cwd: str = ""
    url: Secret = Secret()
    display_name: str = ""
    """The command or the URL as it stands in the file, without what a query may hold."""
    headers: Mapping[str, Secret] = EMPTY_MAPPING
    missing_variables: tuple[str, ...] = ()
    """Variables of the environment that it needs and that are not set: it is not tried without them."""
    tools: tuple[str, ...] = ("*",)
    models: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    timeout: float = 60.0
    connect_timeout: float = 30.0
    call_visibility: Literal["hidden", "text"] = "hidden"
    max_rounds: int = 16
    max_parallel: int = 8

    @property
    def connection_identity(self) -> tuple[object, ...]:
        """What decides with whom we talk: while it stays the same, so does the connection."""
        env = tuple((name, value.reveal()) for name, value in self.env.items())
        headers = tuple((name, value.reveal()) for name, value in self.headers.items())
        return self.command, env, self.cwd, self.url.reveal(), headers, self.missing_variables

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen in what we say of it."""
        values = (self.url, *self.env.values(), *self.headers.values())
        return tuple(value.reveal() for value in values if value)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {self.display_name!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("shown", self.display_name)]


class Config(Struct, frozen=True, kw_only=True):
    """All of it, checked."""

    server: ServerSettings = ServerSettings()
    providers: Mapping[str, Provider] = EMPTY_MAPPING
    models: tuple[ModelRule, ...] = ()
    translate: TranslateSettings = TranslateSettings()
    store: StoreSettings = StoreSettings()
    policy: tuple[Rule, ...] = ()
    mcp: Mapping[str, McpServer] = EMPTY_MAPPING
    file: Path | None = None
    warnings: tuple[Problem, ...] = ()
