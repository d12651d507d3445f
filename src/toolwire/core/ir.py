"""The internal form (IR) of requests and answers, which every protocol's reader produces and every writer takes.

Every node is a frozen value. A node that was read from a protocol's JSON has an `Origin`: its protocol, its place in
the input, its JSON, and the keys that the reader did not know. A writer of the same protocol writes an `intact` origin
back verbatim; any other writer uses only the typed fields. Change a node with `replace_fields`, which marks the origin
as no longer intact.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, final

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.json_values import Json, Number, Path

EMPTY_MAPPING: Mapping[str, Json] = MappingProxyType({})
PRICED_TIERS = frozenset({"flex", "priority", "fast"})
"""Service tiers that cost more or less than usual."""


class Origin(Struct, frozen=True, gc=False):
    """Where a node was read from."""

    protocol: str
    """The protocol's name, such as "anthropic"."""
    path: Path
    """Its place in the input, such as `/messages/0/content/1`."""
    wire: Json
    """Its JSON as it came, None when that is not kept."""
    extra: Mapping[str, Json] = EMPTY_MAPPING
    """The keys of `wire` that the reader did not know. A writer of the same protocol writes them back."""
    intact: bool = True
    """Does the node still mean exactly what `wire` says? Then it can be written back verbatim."""


class Seal(Struct, frozen=True, gc=False):
    """A value that only its maker can read: Anthropic's `thinking.signature`, OpenAI's `encrypted_content`, Gemini's
    `thoughtSignature`. It must go back to its maker unchanged, and only to its maker. Also called signature."""

    maker: str
    """The protocol's name, or `protocol/provider/account/family` where the gateway knows more."""
    value: str


class Citation(Struct, frozen=True, gc=False):
    """A source that supports a text: Anthropic `citations`, OpenAI `annotations`, Gemini `groundingMetadata`."""

    url: str = ""
    title: str = ""
    quote: str = ""
    """The cited words of the source."""
    start: int | None = None
    """The first character of the text that the citation supports."""
    end: int | None = None
    """The character after the last one."""
    origin: Origin | None = None


class TokenLogprob(Struct, frozen=True, gc=False):
    """A token of an answer with its log probability: an entry of OpenAI's `logprobs`, of Gemini's `logprobsResult`."""

    token: str
    logprob: Number
    bytes: tuple[int, ...] | None = None
    """Its UTF-8 bytes, which may be a part of a character; None where the protocol does not say."""
    top: tuple[TokenLogprob, ...] = ()
    """The most likely tokens at this place."""
    id: int | None = None
    """Its number in the model's vocabulary (Gemini)."""
    origin: Origin | None = None
    """Says where the list of tokens is; it has no JSON."""


Logprobs: TypeAlias = tuple[TokenLogprob, ...]


CacheBreakpoint: TypeAlias = str | None
"""A cache breakpoint after this part (Anthropic `cache_control`): its `ttl`, or "" for the default."""


# --- parts of a turn ------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, gc=False):
    text: str
    citations: tuple[Citation, ...] = ()
    cache: CacheBreakpoint = None
    seal: Seal | None = None
    """Gemini can put a `thoughtSignature` on a text."""
    origin: Origin | None = None
    logprobs: Logprobs = ()
    """Its tokens, in an answer whose request asked for them."""


class Refusal(Struct, frozen=True, gc=False):
    """The model's words when it declines: OpenAI's `refusal`."""

    text: str
    origin: Origin | None = None
    logprobs: Logprobs = ()


class Reasoning(Struct, frozen=True, gc=False):
    """Thinking: an Anthropic `thinking` block, an OpenAI `reasoning` item, a Gemini part with `thought: true`."""

    text: str = ""
    form: Literal["", "summary", "raw"] = ""
    """OpenAI tells a summary of the thinking from the thinking itself; "" where the protocol does not say."""
    hidden: bool = False
    """There is no text, only a seal: Anthropic's `redacted_thinking`."""
    seal: Seal | None = None
    id: str = ""
    """The id of an OpenAI Responses reasoning item, such as `rs_…`."""
    origin: Origin | None = None


class Media(Struct, frozen=True, gc=False):
    """An image, document, sound or video. One of `data`, `url` and `file_id` is set."""

    kind: Literal["image", "file", "audio", "video"]
    mime: str = ""
    data: str = ""
    """Base64."""
    url: str = ""
    file_id: str = ""
    """The id of a file that was uploaded to the provider."""
    name: str = ""
    detail: str = ""
    """OpenAI's `detail` of an image: low, high or auto."""
    cache: CacheBreakpoint = None
    seal: Seal | None = None
    origin: Origin | None = None


class Call(Struct, frozen=True, gc=False):
    """A tool call that the client must run: Anthropic `tool_use`, a Chat `tool_calls` entry, a Responses
    `function_call` or `custom_tool_call`, Gemini `functionCall`."""

    id: str
    """The id that the result names. Gemini may send none."""
    name: str
    arguments: str = ""
    """The JSON text as it came, "" for none. For kind "custom" it is the raw input, which need not be JSON."""
    kind: str = "function"
    """One of "function", "custom" (OpenAI's freeform tools), "search" (a search for deferred tools), or a client-side
    kind of one protocol, such as Responses' "local_shell"; then `arguments` is the JSON text of its action."""
    namespace: str = ""
    """The namespace of the tool (OpenAI Responses groups tools, for instance by MCP server)."""
    item_id: str = ""
    """The id of the item (`fc_…`) in OpenAI Responses, whose `call_id` is `id` here."""
    cache: CacheBreakpoint = None
    seal: Seal | None = None
    """Gemini signs calls with a `thoughtSignature`."""
    incomplete: bool = False
    """The arguments were cut off, for instance by the output limit."""
    is_async: bool = False
    """The result may come in any later request (a Responses custom call with `async: true`)."""
    origin: Origin | None = None

    @property
    def is_plain(self) -> bool:
        """Is it a whole function call with arguments, and nothing else that a writer must look at?"""
        if self.kind != "function" or self.namespace or self.incomplete or self.is_async:
            return False
        return self.cache is None and self.seal is None and bool(self.arguments) and not self.arguments.isspace()


class Result(Struct, frozen=True, gc=False):
    """The result of a call: Anthropic `tool_result`, a Chat message of role "tool", a Responses
    `function_call_output`, Gemini `functionResponse`."""

    id: str
    """The id of the call."""
    content: tuple[Part, ...] = ()
    error: bool | None = None
    """Did the tool fail (Anthropic `is_error`)? None where the protocol does not say."""
    name: str = ""
    """The name of the tool, where the protocol repeats it (Gemini)."""
    kind: str = "function"
    """As `Call.kind`."""
    namespace: str = ""
    cache: CacheBreakpoint = None
    value: Json = None
    """The JSON value, where the protocol has one (Gemini's `response`); `content` then holds its text."""
    origin: Origin | None = None


class ProviderCall(Struct, frozen=True, gc=False):
    """A call that the provider ran itself: Anthropic `server_tool_use`, a Responses `web_search_call`."""

    id: str
    tool: str
    """One of PROVIDER_TOOLS."""
    arguments: str = ""
    origin: Origin | None = None


class ProviderResult(Struct, frozen=True, gc=False):
    """What a tool that the provider ran has found: Anthropic's `web_search_tool_result`."""

    id: str
    tool: str
    """One of PROVIDER_TOOLS."""
    sources: tuple[Citation, ...] = ()
    text: str = ""
    error: str = ""
    origin: Origin | None = None


class ToolsAdded(Struct, frozen=True, gc=False):
    """Tools that become available in the middle of the conversation (the output of a Responses `tool_search`)."""

    tools: tuple[AnyTool, ...]
    origin: Origin | None = None


class ToolReference(Struct, frozen=True, gc=False):
    """A deferred tool that is loaded by name: Anthropic's `tool_reference`."""

    name: str
    origin: Origin | None = None


class Summary(Struct, frozen=True, gc=False):
    """A summary that replaces earlier turns (`compaction` at Anthropic and Responses): text, a seal, or both."""

    text: str = ""
    seal: Seal | None = None
    id: str = ""
    origin: Origin | None = None


class Opaque(Struct, frozen=True, gc=False):
    """A block, item or tool that only its own protocol knows. Its JSON is `origin.wire`."""

    kind: str
    """Its type as the protocol names it."""
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
    """One message. Results are in turns of role "tool" (OpenAI) or "user" (Anthropic, Gemini)."""

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    """The name of the speaker (Chat)."""
    phase: str = ""
    """The `phase` of a Responses message, such as "commentary" or "final_answer"."""
    origin: Origin | None = None


# --- tools ----------------------------------------------------------------------------------------------------------

PROVIDER_TOOLS = tuple("web_search web_fetch code_execution file_search image_generation computer mcp maps".split())
"""Tools that a provider can run itself, by a common name."""


class Grammar(Struct, frozen=True, gc=False):
    """The grammar that the input of a custom tool must match (OpenAI)."""

    syntax: str
    """Either "lark" or "regex"."""
    definition: str


class Tool(Struct, frozen=True, gc=False):
    """A tool that the client runs."""

    name: str
    description: str | None = None
    parameters: Json = None
    """Its JSON Schema as it came, None when there was none."""
    kind: str = "function"
    """As `Call.kind`."""
    grammar: Grammar | None = None
    namespace: str = ""
    namespace_description: str = ""
    strict: bool | None = None
    """Must arguments match the schema exactly (OpenAI `strict`)?"""
    defer: bool | None = None
    """Is the tool hidden until the model searches for it (`defer_loading`)?"""
    output: Json = None
    """The JSON Schema of its results (Gemini `response`, Responses `output_schema`)."""
    cache: CacheBreakpoint = None
    origin: Origin | None = None


class ProviderTool(Struct, frozen=True, gc=False):
    """A tool that the provider runs, such as Anthropic's `web_search_20250305` or Gemini's `googleSearch`."""

    tool: str
    """One of PROVIDER_TOOLS."""
    name: str = ""
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    location: Json = None
    """The user's `{city, country, region, timezone}`."""
    context_size: str = ""
    """OpenAI's `search_context_size`."""
    cache: CacheBreakpoint = None
    origin: Origin | None = None


AnyTool: TypeAlias = Tool | ProviderTool | Opaque


class ToolName(Struct, frozen=True, gc=False):
    """What identifies a tool, for instance in a tool choice."""

    name: str
    kind: str = "function"
    namespace: str = ""


class ToolChoice(Struct, frozen=True, gc=False):
    """Which tools the model may or must call."""

    mode: Literal["auto", "none", "required", "one", "allowed"]
    """`required`: it must call some tool. `one`: it must call the tool in `tools`. `allowed`: only those in `tools`."""
    tools: tuple[ToolName, ...] = ()
    required: bool = False
    """With mode `allowed`: must it call one of them?"""
    origin: Origin | None = None


# --- settings -------------------------------------------------------------------------------------------------------


class Thinking(Struct, frozen=True, gc=False):
    """How much the model should think: Anthropic `thinking`, OpenAI `reasoning`, Gemini `thinkingConfig`."""

    mode: Literal["", "off", "on", "auto"] = ""
    effort: str = ""
    """none, minimal, low, medium, high, xhigh or max."""
    budget: int | None = None
    """Tokens (Anthropic `budget_tokens`, Gemini `thinkingBudget`)."""
    summary: str = ""
    """What the client wants to see of it: "" for the default, "none", or a kind of summary (OpenAI: auto, detailed)."""
    origin: Origin | None = None


class Format(Struct, frozen=True, gc=False):
    """The format of the answer's text: OpenAI `response_format`, Gemini `responseSchema`."""

    kind: Literal["text", "json", "schema", "frames"]
    """`frames`: free text, and frames in it whose content has a schema."""
    schema: Json = None
    """Of frames a list of `{"begin": …, "schema": …, "end": …}`."""
    name: str = ""
    """Of frames the mark with which each begins."""
    description: str = ""
    strict: bool | None = None
    origin: Origin | None = None


class Settings(Struct, frozen=True, gc=False):
    """Settings that at least two protocols have. Those that only one has stay in the request's `origin.extra`."""

    max_tokens: int | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Number | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    count: int | None = None
    """How many answers (Chat `n`, Gemini `candidateCount`)."""
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
    """An id of the end user."""
    metadata: Json = None
    tier: str | None = None
    """The service tier."""
    store: bool | None = None
    cache_key: str | None = None
    """OpenAI's `prompt_cache_key`."""
    cache: str | None = None
    """An automatic breakpoint at the end of the prompt, as `CacheBreakpoint`; "off" when the operator wants none."""
    stream_usage: bool | None = None
    """Does the client want token counts in the stream (Chat `stream_options.include_usage`)?"""
    where: Mapping[str, Path] = EMPTY_MAPPING
    """The place of each setting in the input, by the name of the field."""


NO_SETTINGS = Settings()


class UnknownField(Struct, frozen=True, gc=False):
    """A key of the input that has no field here, and the object that has it. Other writers report it by its code."""

    path: Path
    key: str
    code: str = "unknown-field"
    what: str = ""
    """What it was read as, if it was only written in an odd way; "" if it is left out."""


class Request(Struct, frozen=True, gc=False):
    model: str = ""
    system: tuple[Part, ...] = ()
    """Instructions outside the turns: Anthropic `system`, Responses `instructions`, Gemini `systemInstruction`."""
    turns: tuple[Turn, ...] = ()
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice | None = None
    stream: bool | None = None
    settings: Settings = NO_SETTINGS
    has_provider_history: bool = False
    """Does the provider hold earlier turns (`previous_response_id`)? Then a result may be here without its call."""
    origin: Origin | None = None
    unknown_fields: tuple[UnknownField, ...] = ()
    continues_last_turn: bool = False
    """Is the last turn an answer that the provider has paused and shall continue (Anthropic `pause_turn`)?"""


def list_declared_tools(request: Request) -> tuple[AnyTool, ...]:
    """All tools of a request: also those that its turns add, and that searches for tools have found."""
    parts = [part for turn in request.turns for part in turn.parts]
    parts += [inner for part in parts if type(part) is Result for inner in part.content]
    added = [tool for part in parts if type(part) is ToolsAdded for tool in part.tools]
    return (*request.tools, *added) if added else request.tools


# --- answers --------------------------------------------------------------------------------------------------------

FinishKind: TypeAlias = Literal[
    "stop", "length", "calls", "filter", "refusal", "sequence", "pause", "context", "malformed", "other"
]


class Finish(Struct, frozen=True, gc=False):
    """Why an answer ended."""

    kind: FinishKind
    """The common word. "calls": Chat's `tool_calls`, Anthropic's `tool_use`. "sequence": a stop sequence was met
    (Anthropic). "pause": Anthropic's `pause_turn`, the answer goes on when asked again. "context": the context window
    is full. "malformed": the model wrote a call that cannot be read (Gemini's `MALFORMED_FUNCTION_CALL`)."""
    raw: str = ""
    """The provider's own word."""
    sequence: str = ""
    """The stop sequence that was met (Anthropic `stop_sequence`)."""
    detail: str = ""
    """A message about the end (Gemini `finishMessage`)."""
    origin: Origin | None = None


class Usage(Struct, frozen=True, gc=False):
    input: int = 0
    """All tokens of the prompt, cached ones included (Anthropic counts them apart)."""
    output: int = 0
    """All tokens of the answer, thinking included (Gemini counts it apart)."""
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    total: int | None = None
    origin: Origin | None = None
    cache_write_1h: int | None = None
    """Those of `cache_write` that are kept for an hour, which cost more (Anthropic)."""
    input_audio: int | None = None
    input_image: int | None = None
    output_audio: int | None = None
    output_image: int | None = None
    """Those of `input` and `output` that are audio or images, where the provider counts them apart."""
    searches: int | None = None
    """Web searches of the provider, where it counts them."""
    service_tier: str = ""
    """How the provider served the request, if that has prices of its own (OpenAI's `flex` and `priority`)."""


def read_service_tier(value: Json) -> str:
    """What an answer says about its service tier; "" for one with the usual prices. Google has two ways to write it."""
    return tier if (tier := str(value).lower().removeprefix("service_tier_")) in PRICED_TIERS else ""


class Choice(Struct, frozen=True, gc=False):
    """One answer of possibly several: a Chat choice, a Gemini candidate."""

    index: int
    parts: tuple[Part, ...]
    finish: Finish | None = None
    origin: Origin | None = None


@final
class Failure(Struct, frozen=True, gc=False):
    """An error that a provider sent, or an answer that broke off."""

    kind: str
    """A key of STATUS_BY_FAILURE_KIND."""
    message: str
    status: int = 0
    """The HTTP status, 0 where there was none."""
    code: str = ""
    param: str = ""
    """The field of the request that is wrong (OpenAI)."""
    retry_after: float | None = None  # seconds
    origin: Origin | None = None
    opens_at: int = 0  # seconds since 1970, where it is known when a limit opens


STATUS_BY_FAILURE_KIND: Mapping[str, int] = {
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
"""Every kind of failure, with the HTTP status for it if the provider gave none.

"timeout": the client was too slow to send its request. "deadline": the answer took too long, at the provider or by a
timeout of the gateway. "upstream": the connection failed, or the provider's answer cannot be read."""


class Response(Struct, frozen=True, gc=False):
    """The model's whole answer. (`Reply` in the gateway is the HTTP reply to the client.)"""

    id: str = ""
    model: str = ""
    created: int | None = None
    """Seconds since 1970."""
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    failure: Failure | None = None
    """The answer itself says that it failed (Responses `status: "failed"` with HTTP 200)."""
    origin: Origin | None = None
    unknown_fields: tuple[UnknownField, ...] = ()

    @property
    def called_tools(self) -> tuple[str, ...]:
        """The names of the tools that it calls."""
        return tuple([part.name for choice in self.choices for part in choice.parts if type(part) is Call])

    @property
    def is_hollow(self) -> bool:
        """Has it neither content nor the provider's word for its end? Such a body is not an answer, though it has the
        shape of one (Chat `{"choices":[{}]}`)."""
        says = [(each.finish and each.finish.raw) or any(map(says_something, each.parts)) for each in self.choices]
        return self.failure is None and not any(says)


def says_something(part: Part) -> bool:
    """False for an empty text, and for a call without a name."""
    match part:
        case Text() | Refusal():
            return bool(part.text)
        case Reasoning():
            return bool(part.text or part.seal or part.hidden)
        case Call():
            return bool(part.name)
    return True


# --- working with nodes ---------------------------------------------------------------------------------------------

Node = TypeVar("Node", bound=Struct)


def replace_fields(node: Node, **fields: Any) -> Node:
    """A copy with other fields. Its origin stays for its place and unknown keys, but is no longer intact."""
    origin: Origin | None = getattr(node, "origin", None)
    if origin is not None and origin.intact:
        fields["origin"] = replace(origin, intact=False)
    return replace(node, **fields)


def without_wire(origin: Origin | None) -> Origin | None:
    """An origin that is kept for its place only."""
    return None if origin is None else replace(origin, wire=None, intact=False)


def is_same(new: Sequence[object], old: Sequence[object]) -> bool:
    """Are these the very same objects? A step that changes nothing must return its input, so that it stays verbatim."""
    return len(new) == len(old) and all(map(is_, new, old))


def with_fields(node: Node, **fields: Any) -> Node:
    """The node with these fields; the same object where all of them are its own."""
    changes = {
        name: new
        for name, new in fields.items()
        if new is not (old := getattr(node, name)) and not (type(new) is tuple and is_same(new, old))
    }
    return replace_fields(node, **changes) if changes else node


def with_parts(turn: Turn, parts: Sequence[Part]) -> Turn:
    """The turn with these parts; the same object where they are its own."""
    return turn if is_same(parts, turn.parts) else replace_fields(turn, parts=tuple(parts))


def with_turns(request: Request, turns: Sequence[Turn]) -> Request:
    """The request with these turns; the same object where they are its own."""
    return request if is_same(turns, request.turns) else replace_fields(request, turns=tuple(turns))


def source_path(node: Any) -> Path:
    """The place of a node in the input."""
    return node.origin.path if node.origin is not None else None


PROVENANCE_FIELDS = ("origin", "unknown_fields", "where", "frame")
"""Fields that say where a node comes from, not what it means."""


def strip_origins(value: Any) -> Any:
    """A node and all below it without origins, to compare meanings. An `Opaque` keeps its origin: it is all it has."""
    if isinstance(value, tuple):
        return tuple(map(strip_origins, value))
    if isinstance(value, Struct):
        names = value.__struct_fields__
        fields = {name: strip_origins(getattr(value, name)) for name in names if name not in PROVENANCE_FIELDS}
        if "origin" in names[: len(names) - len(value.__struct_defaults__)]:
            fields["origin"] = replace(value.origin, path=None)  # type: ignore[attr-defined]
        return type(value)(**fields)
    return value


def split_data_url(url: str) -> tuple[str, str] | None:
    """The media type and the base64 data of a `data:` URL; None for every other URL."""
    head, comma, data = url.partition(",")
    return (head[5:-7], data) if comma and head.startswith("data:") and head.endswith(";base64") else None


TEXT_FILE_TYPES = frozenset(
    f"application/{name}" for name in "json xml yaml x-yaml toml javascript typescript sql x-sh x-python".split()
)
"""Types of text files besides `text/…`."""
_TEXT_FILE_ENDINGS = tuple(".txt .md .csv .tsv .json .xml .yaml .yml .toml .html .log .py .js .ts .sql .sh".split())


def document_text(media: Media) -> str | None:
    """The text of a text file; None for every other file, and for data that is not UTF-8."""
    mime = media.mime.partition(";")[0].strip().lower()
    is_text = mime.startswith("text/") or mime in TEXT_FILE_TYPES
    is_text = is_text or (not mime and media.name.endswith(_TEXT_FILE_ENDINGS))
    if media.kind != "file" or not media.data or not is_text:
        return None
    try:
        return b64decode(media.data, validate=True).decode()
    except ValueError:
        return None


def summarise_media(media: Media) -> str:
    """The line of text of a result whose media are elsewhere."""
    inline = media.url.removeprefix("data:").partition(",")[0].partition(";")[0] if media.url[:5] == "data:" else ""
    return f"Binary content of type {media.mime or inline or media.kind} was processed."


def titled_text(name: str, text: str) -> str:
    """A text file as text, with its name above it."""
    return f"[File: {name}]\n{text}" if name else text


def plain_text(parts: Iterable[Part]) -> str:
    return "".join([part.text for part in parts if isinstance(part, Text)])
