"""The internal form: what a conversation with tools means, in no provider's words.

Every node is a frozen value. It remembers its origin: the protocol and the place it was read from, its JSON, and the
keys that its reader did not know. A writer of the same protocol gives an intact origin back as it was; any other writer
writes from the meaning alone. Change a node only with `changed`, which lets go of the verbatim form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.json_values import Json, Number, Path

EMPTY_MAPPING: Mapping[str, Json] = MappingProxyType({})


class Origin(Struct, frozen=True, gc=False):
    """Where a node was read. `wire` is its JSON; `extra` the keys of it that nobody here knows; `intact` says that the
    node still means exactly what `wire` says."""

    protocol: str
    path: Path
    wire: Json
    extra: Mapping[str, Json] = EMPTY_MAPPING
    intact: bool = True


class Seal(Struct, frozen=True, gc=False):
    """A value that only its maker can read: a signature, encrypted reasoning, a thought signature."""

    maker: str
    """The protocol name, or `protocol/provider/account/family` where the gateway knows more."""
    value: str


class Citation(Struct, frozen=True, gc=False):
    """A source that a text names. `start` and `end` count characters of the text."""

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int | None = None
    end: int | None = None
    origin: Origin | None = None


# --- parts of a turn ------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, gc=False):
    text: str
    citations: tuple[Citation, ...] = ()
    cache: str | None = None
    """A cache breakpoint after this part: its time to live as spelled on the wire, "" for the default."""
    seal: Seal | None = None
    origin: Origin | None = None

    @property
    def is_plain(self) -> bool:
        """Is there nothing but the text: no citations, no cache breakpoint, no seal?"""
        return not self.citations and self.cache is None and self.seal is None


class Refusal(Struct, frozen=True, gc=False):
    text: str
    origin: Origin | None = None


class Reasoning(Struct, frozen=True, gc=False):
    """Thinking. `form` is "summary" or "raw" where the wire says which; `hidden` means that the text is sealed."""

    text: str = ""
    form: Literal["", "summary", "raw"] = ""
    hidden: bool = False
    seal: Seal | None = None
    id: str = ""
    origin: Origin | None = None


class Media(Struct, frozen=True, gc=False):
    """An image, a document, sound or film: base64 `data`, or a `url`, or a `file` that only its provider holds."""

    kind: Literal["image", "file", "audio", "video"]
    mime: str = ""
    data: str = ""
    url: str = ""
    file: str = ""
    name: str = ""
    detail: str = ""
    cache: str | None = None
    seal: Seal | None = None
    origin: Origin | None = None


class Call(Struct, frozen=True, gc=False):
    """A tool call. `arguments` is the JSON text as it came, "" for none; for kind "custom" it is the raw input.

    `kind` is "function", "custom", "search" (a search for tools), or a protocol's own client-side kind such as
    "local_shell": then `arguments` is the JSON text of what the wire calls its action.
    """

    id: str
    name: str
    arguments: str = ""
    kind: str = "function"
    namespace: str = ""
    item: str = ""
    """The id of the item that holds the call, where the wire has two ids."""
    cache: str | None = None
    seal: Seal | None = None
    incomplete: bool = False
    """The argument text was cut off."""
    later: bool = False
    """Its result may come in any later request."""
    origin: Origin | None = None

    @property
    def is_plain(self) -> bool:
        """Is it a whole function call with an id and arguments, and nothing else that a writer must look at?"""
        if self.kind != "function" or not self.id or self.namespace or self.incomplete or self.later:
            return False
        return self.cache is None and self.seal is None and not (not self.arguments or self.arguments.isspace())


class Result(Struct, frozen=True, gc=False):
    """What a tool answered. `error` is None where the wire did not say. `value` is set when the wire held JSON, and
    `content` is then its text form."""

    id: str
    content: tuple[Part, ...] = ()
    error: bool | None = None
    name: str = ""
    kind: str = "function"
    namespace: str = ""
    cache: str | None = None
    value: Json = None
    origin: Origin | None = None


class ProviderCall(Struct, frozen=True, gc=False):
    """A tool that the provider ran itself; `tool` is one of HOSTED."""

    id: str
    tool: str
    arguments: str = ""
    origin: Origin | None = None


class ProviderResult(Struct, frozen=True, gc=False):
    """What a provider's own tool found: sources, or text."""

    id: str
    tool: str
    sources: tuple[Citation, ...] = ()
    text: str = ""
    error: str = ""
    origin: Origin | None = None


class ToolsAdded(Struct, frozen=True, gc=False):
    """Tools that become available at this place of the conversation."""

    tools: tuple[AnyTool, ...]
    origin: Origin | None = None


class ToolReference(Struct, frozen=True, gc=False):
    """A deferred tool, loaded by name."""

    name: str
    origin: Origin | None = None


class Summary(Struct, frozen=True, gc=False):
    """What stands for earlier turns: a text, or a seal that only its maker can read, or both."""

    text: str = ""
    seal: Seal | None = None
    id: str = ""
    origin: Origin | None = None


class Opaque(Struct, frozen=True, gc=False):
    """A thing that only its own protocol knows; `kind` is what that protocol calls it. Its JSON is `origin.wire`."""

    kind: str
    origin: Origin


Part: TypeAlias = (
    Text
    | Refusal
    | Reasoning
    | Media
    | Call
    | Result
    | ProviderCall
    | ProviderResult
    | ToolsAdded
    | ToolReference
    | Summary
    | Opaque
)

Role: TypeAlias = Literal["user", "assistant", "system", "developer", "tool"]


class Turn(Struct, frozen=True, gc=False):
    """A message. Results stand in turns of role "tool" or "user", as the wire has them."""

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    phase: str = ""
    origin: Origin | None = None


# --- tools ----------------------------------------------------------------------------------------------------------

PROVIDER_TOOLS = (
    "web_search",
    "web_fetch",
    "code_execution",
    "file_search",
    "image_generation",
    "computer",
    "mcp",
    "maps",
)


class Grammar(Struct, frozen=True, gc=False):
    syntax: str
    definition: str


class Tool(Struct, frozen=True, gc=False):
    """A tool that the client runs. `parameters` is its JSON Schema as it came, None when there was none."""

    name: str
    description: str | None = None
    parameters: Json = None
    kind: str = "function"
    grammar: Grammar | None = None
    namespace: str = ""
    namespace_description: str = ""
    strict: bool | None = None
    defer: bool | None = None
    output: Json = None
    """The JSON Schema of what it returns."""
    cache: str | None = None
    origin: Origin | None = None


class ProviderTool(Struct, frozen=True, gc=False):
    """A tool that the provider runs; `tool` is one of HOSTED."""

    tool: str
    name: str = ""
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    location: Json = None
    """`{city, country, region, timezone}`."""
    context_size: str = ""
    cache: str | None = None
    origin: Origin | None = None


AnyTool: TypeAlias = Tool | ProviderTool | Opaque


class ToolName(Struct, frozen=True, gc=False):
    """A tool as a choice names it."""

    name: str
    kind: str = "function"
    namespace: str = ""


class ToolChoice(Struct, frozen=True, gc=False):
    """`one` names exactly one tool; `allowed` names a subset, of which `required` demands a call."""

    mode: Literal["auto", "none", "required", "one", "allowed"]
    tools: tuple[ToolName, ...] = ()
    required: bool = False
    origin: Origin | None = None


# --- settings -------------------------------------------------------------------------------------------------------


class Thinking(Struct, frozen=True, gc=False):
    """How much the model should think: an effort, a budget of tokens, or a mode of its protocol."""

    mode: Literal["", "off", "on", "auto"] = ""
    effort: str = ""
    """none, minimal, low, medium, high, xhigh, max."""
    budget: int | None = None
    show: str = ""
    """What the client wants to see: "" the default, "none", or a kind of summary."""
    origin: Origin | None = None


class Format(Struct, frozen=True, gc=False):
    """The shape of the answer's text."""

    kind: Literal["text", "json", "schema"]
    schema: Json = None
    name: str = ""
    description: str = ""
    strict: bool | None = None
    origin: Origin | None = None


class Settings(Struct, frozen=True, gc=False):
    """What two or more protocols can say; what only one can say stays in the request's `origin.extra`."""

    max_tokens: int | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Number | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    count: int | None = None
    """How many answers."""
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel: bool | None = None
    """May the model make several calls in one turn?"""
    thinking: Thinking | None = None
    format: Format | None = None
    verbosity: str | None = None
    user: str | None = None
    metadata: Json = None
    tier: str | None = None
    store: bool | None = None
    cache_key: str | None = None
    cache: str | None = None
    """An automatic cache breakpoint at the end of the prompt."""
    stream_usage: bool | None = None
    """Does the client want usage in the stream?"""
    where: Mapping[str, Path] = EMPTY_MAPPING
    """Where each of these stood in the input."""


NO_SETTINGS = Settings()


class UnknownField(Struct, frozen=True, gc=False):
    """A key that the internal form has no place for, and where it stands; `code` says what that means elsewhere."""

    path: Path
    key: str
    code: str = "unknown-field"


class Request(Struct, frozen=True, gc=False):
    model: str = ""
    system: tuple[Part, ...] = ()
    """Instructions that the wire keeps apart from the turns."""
    turns: tuple[Turn, ...] = ()
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice | None = None
    stream: bool | None = None
    settings: Settings = NO_SETTINGS
    continues: bool = False
    """Does the provider itself hold earlier turns? Then a result may stand here without its call."""
    origin: Origin | None = None
    unknown_fields: tuple[UnknownField, ...] = ()


# --- answers --------------------------------------------------------------------------------------------------------

FINISH_KINDS = ("stop", "length", "calls", "filter", "refusal", "sequence", "pause", "context", "malformed", "other")
FinishKind: TypeAlias = Literal[
    "stop", "length", "calls", "filter", "refusal", "sequence", "pause", "context", "malformed", "other"
]


class Finish(Struct, frozen=True, gc=False):
    """Why the answer ended: the common word beside the wire's own. `sequence` is the stop sequence that was met."""

    kind: FinishKind
    raw: str = ""
    sequence: str = ""
    detail: str = ""
    origin: Origin | None = None


class Usage(Struct, frozen=True, gc=False):
    """Token counts. `input` includes what was cached, `output` thinking; `origin.wire` is the wire's own, if kept."""

    input: int = 0
    output: int = 0
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    total: int | None = None
    origin: Origin | None = None


class Choice(Struct, frozen=True, gc=False):
    index: int
    parts: tuple[Part, ...]
    finish: Finish | None = None
    origin: Origin | None = None


class Failure(Struct, frozen=True, gc=False):
    """A provider's refusal or a broken answer, as a value. `kind` is one of FAILURES."""

    kind: str
    message: str
    status: int = 0
    code: str = ""
    param: str = ""
    retry_after: float | None = None
    """Seconds."""
    origin: Origin | None = None


STATUS_BY_FAILURE_KIND: Mapping[str, int] = MappingProxyType(
    {
        "invalid": 400,
        "context": 400,
        "authentication": 401,
        "billing": 402,
        "permission": 403,
        "not_found": 404,
        "timeout": 408,
        "conflict": 409,
        "too_large": 413,
        "unprocessable": 422,
        "rate": 429,
        "quota": 429,
        "cancelled": 499,
        "server": 500,
        "upstream": 502,
        "overloaded": 503,
        "deadline": 504,
    }
)
"""Every kind of failure with the status that suits it when the wire gave none."""


class Response(Struct, frozen=True, gc=False):
    id: str = ""
    model: str = ""
    created: int | None = None
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    failure: Failure | None = None
    """Set when the wire delivered a whole answer that says it failed."""
    origin: Origin | None = None
    unknown_fields: tuple[UnknownField, ...] = ()


# --- working with nodes ---------------------------------------------------------------------------------------------

Node = TypeVar("Node", bound=Struct)


def replace_fields(node: Node, **fields: Any) -> Node:
    """The same node with other fields. Its origin is kept for its place and its unknown keys, no longer verbatim."""
    origin: Origin | None = getattr(node, "origin", None)
    if origin is not None and origin.intact:
        fields["origin"] = replace(origin, intact=False)
    return replace(node, **fields)


def source_path(node: Any) -> Path:
    """Where a node stood in the input."""
    return node.origin.path if node.origin is not None else None


PROVENANCE_FIELDS = ("origin", "unknown_fields", "where", "frame")
"""Fields that say where a node comes from, not what it means."""


def strip_origins(value: Any) -> Any:
    """A node and all below it without origins, for comparing what they mean. What is only its origin keeps it."""
    if isinstance(value, tuple):
        return tuple(map(strip_origins, value))
    if isinstance(value, Struct):
        fields = {
            name: strip_origins(getattr(value, name))
            for name in value.__struct_fields__
            if name not in PROVENANCE_FIELDS
        }
        if "origin" in value.__struct_fields__ and not _has_optional_origin(type(value)):
            fields["origin"] = replace(value.origin, path=None)  # type: ignore[attr-defined]
        return type(value)(**fields)
    return value


def _has_optional_origin(kind: type[Struct]) -> bool:
    position = kind.__struct_fields__.index("origin")
    return position >= len(kind.__struct_fields__) - len(kind.__struct_defaults__)


def plain_text(parts: Iterable[Part]) -> str:
    """The text of text parts, joined."""
    return "".join([part.text for part in parts if isinstance(part, Text)])
