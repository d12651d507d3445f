"""The interface of a codec: `Codec` (readers and writers of one protocol), `Constraints` (what the protocol demands of
a request), `Http` (paths, headers, credentials), and the stream reader and writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import msgspec

from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.events import Delta, Event
from toolwire.core.framing import SSE_FRAMING, Framing
from toolwire.core.ir import EMPTY_MAPPING, Failure, Request, Response, Tool, Usage
from toolwire.core.json_values import Json, Object, Path, read_count
from toolwire.core.losses import Ledger
from toolwire.core.request_members import RequestMembers


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol demands of a request.

    The steps in `translation/` read these fields and never branch on a protocol's name. A quirk of a server replaces
    some of them.
    """

    tool_name_pattern: re.Pattern[str]
    """Legal tool names. Every ASCII identifier up to `max_tool_name_length` is one."""
    counts_on_request: bool = True
    """May a request ask for token counts in a stream (`Http.ask_for_usage`)?"""
    max_tool_name_length: int = 64
    """A longer name is shortened by `request_steps.tools`, and restored in the answer."""
    call_id_pattern: re.Pattern[str] = re.compile(r"[A-Za-z0-9_-]+")
    max_call_id_length: int = 64
    tool_kinds: frozenset[str] = frozenset({"function"})
    """Shared kinds of tools, calls and results (see `ir.Call.kind`). Foreign kinds are wrapped as functions."""
    has_namespaces: bool = False
    """Can tools be grouped in namespaces (Responses)? Elsewhere the namespace goes into the name."""
    allows_tools_in_turns: bool = False
    """Can tools be added in the middle of the conversation (`ir.ToolsAdded`)?"""
    result_placement: Literal["turns", "user"] = "turns"
    """OpenAI: each result is a turn of role "tool". Anthropic, Gemini: all results of a batch start one user turn."""
    merged_roles: frozenset[str] = frozenset()
    """Roles whose consecutive turns must be merged into one (Anthropic, Gemini)."""
    must_start_with_user: bool = False
    """Must the first turn be the user's?"""
    allows_empty_text: bool = True
    """Are empty and blank text parts accepted? Anthropic refuses them."""
    system_placement: Literal["top", "turns", "both"] = "turns"
    """Where instructions go: into a field of their own (Anthropic, Gemini), among the turns (Chat), or either."""
    mid_system_turns: Literal["keep", "user", "by_model"] = "keep"
    """A system turn in the middle: kept, made a user turn, or kept for models that match `mid_system_turn_models`."""
    mid_system_turn_models: re.Pattern[str] = re.compile(r"(?!)")
    result_media_kinds: frozenset[str] = frozenset()
    """Kinds of media that a result may hold (see `ir.Media.kind`). Others are moved into a user turn."""
    has_refusal_parts: bool = False
    """Has an answer a part for the words of a refusal (OpenAI)? Others explain it beside the finish reason."""
    result_error_style: Literal["flag", "text"] = "text"
    """How a failed result is marked: by a flag (Anthropic `is_error`), or at the start of its text."""
    seal_slots: frozenset[str] = frozenset()
    """Parts that can carry a seal and that clients send back: "reasoning", "call", "text"."""
    seal_vendor: str = ""
    """The vendor that makes its seals, as other protocols name it. Chat servers carry Gemini's thought signatures in
    `extra_content.google`; the maker of such a seal ends in `@google`."""
    seal_error_pattern: re.Pattern[str] = re.compile(r"(?!)")
    """Matches the code or message of an error that refuses a seal. The request is then repeated without seals."""
    token_limit_error_patterns: tuple[re.Pattern[str], ...] = ()
    """Match the message of an error that says `max_tokens` is too high. Their groups say what is possible: the `most`,
    a number to stay `below`, or the `window` and what is `used` of it."""
    needs_signed_reasoning: bool = False
    """Anthropic refuses thinking blocks without a signature."""
    needs_reasoning_returned: bool = False
    """Must unsealed thinking come back with the calls that it led to (DeepSeek's `reasoning_content`)?"""
    binds_reasoning_to_tools: Callable[[str], bool] = lambda model: False
    """Does this model refuse its own thinking when the tools have changed since (newer Anthropic models)?"""
    needs_part_after_reasoning: bool = False
    """Responses refuses a reasoning item that is not followed by the item that it led to."""
    keeps_unsealed_reasoning: Literal["always", "stored"] = "always"
    """Does it take its own thinking back without a seal? OpenAI's Responses only where it has stored the answer: with
    `store: false` it knows no ids."""
    has_turn_phases: bool = False
    """Do turns have a phase (`ir.Turn.phase`)?"""
    json_mode_needs_word: bool = False
    """OpenAI refuses JSON mode unless the word "json" is in the conversation."""
    can_force_tools: Callable[[str, bool | None], bool] = lambda model, thinks: True
    """Can this model be forced to call a tool while it thinks (True), does not (False), or may think (None)?"""
    convert_tool_schema: Callable[[Json, str], ConvertedSchema] | None = None
    """Converts the JSON Schema of a tool for this model, where the protocol takes only a subset of it (Gemini) or needs
    an object at the root (OpenAI). Parameters may get other names."""
    refuses_tool: Callable[[Tool, str], bool] = lambda tool, model: False
    """Is the server of this model known to refuse the schema of this tool, which a client of its own protocol declares?
    Then it is converted as those of other protocols are."""
    judged_members: Callable[[str], frozenset[str]] = lambda model: frozenset()
    """The members of a request in which clients of its own protocol send what this model's server is known to refuse:
    none for models of which that is not known."""
    convert_strict_schema: Callable[[Json], tuple[ConvertedSchema, str]] | None = None
    """Converts the schema of a strict tool, where the protocol has rules for those (OpenAI): the schema and "", or the
    schema without strictness and why it cannot be strict."""
    convert_format_schema: Callable[[Json, str], ConvertedSchema] | None = None
    """Converts the JSON Schema of the answer for this model, where other protocols allow more (OpenAI needs an object
    at the root)."""
    max_tools: Callable[[str], int | None] = lambda model: None
    """How many tools a request to this model may declare (OpenAI: 128, Gemini: 512); None if there is no known limit.
    Those beyond it are left out, so that the session can go on."""
    tool_search_types: tuple[str, ...] = ()
    """The types of tools with which the provider itself searches for deferred tools begin with one of these (Anthropic
    `tool_search_tool_…`, Responses `tool_search`)."""
    takes_schema_for_calls: bool = False
    """Where a call is required and the tools are in the prompt: can the server hold the model to the JSON Schema of a
    call (`response_format`)?"""
    takes_frames_for_calls: bool = False
    """Where a call is allowed and the tools are in the prompt: can the server hold the model to a JSON Schema between
    marks, and leave it free elsewhere (vLLM, SGLang)?"""
    server_runs_tools: bool = True
    """Does the server run the tools that its protocol says a provider runs? Many compatible servers do not."""
    arguments_must_parse: bool = False
    """Do clients of this protocol parse the arguments of every call, and end if they cannot?"""
    takes_async_calls: bool = False
    """May the result of a call come in any later turn, if the call says so (Responses `async`)? Others refuse a call
    without a result."""
    call_finish_kinds: frozenset[str] = frozenset({"calls"})
    """Finish kinds that `parse_tool_calls(strict=True)` accepts. Gemini ends an answer with calls with STOP."""
    turns_key: str = "messages"
    """The key of the body that holds the conversation."""
    tools_key: str = "tools"
    """The key of the body that holds the tools."""
    instructions_key: str = ""
    """The key of the body that holds the instructions; "" where they are turns."""


class ErrorReply(msgspec.Struct, frozen=True):
    status: int
    body: Json
    headers: Mapping[str, str] = EMPTY_MAPPING


class WriteContext(msgspec.Struct, frozen=True):
    """What a writer of answers needs besides the answer."""

    request: Request | None = None
    """The client's request: Responses, for instance, repeats its settings in the answer."""
    now: int = 0
    """Seconds since 1970. The library itself never reads a clock."""
    seed: str = ""
    """What made-up ids are derived from."""
    request_ledger: Ledger | None = None
    """The losses of the request: unified lists them in the answer."""
    input_tokens: int | None = None
    """An estimate of the request's tokens, made before its turns were dropped; None while it has them."""


DeltaWriter = Callable[[str], bytes]
"""Writes one delta with this text."""


class StreamReader(Protocol):
    """Bytes of one answer in, events out; `close` at the end of input. Never raises for what the peer sends."""

    replaced_halves: list[Path]
    """The places of texts in which U+FFFD replaced half of a surrogate pair."""
    is_frame_changed: bool
    """Was something mended in the JSON of the last frame?"""
    repeated_length: int
    """Characters of what `read_repeat` has read, as `measure_text` counts them."""

    @property
    def has_unstarted_call(self) -> bool:
        """Has a frame named a call that no event has started yet, because more of its name may follow?"""

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...

    def read_repeat(self, data: bytes) -> str | None:
        """Fast path: the text of a frame that repeats the last delta with another text, recognised by its bytes alone,
        such as Anthropic's `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"…"}}`.

        `data` must start where a frame starts. Such a frame is read by this call. None for all other bytes, which must
        be fed, and always None where a codec recognises no repeats.
        """


class StreamWriter(Protocol):
    """Events in, bytes out; `close` returns what the client still needs."""

    def write(self, event: Event) -> bytes: ...

    def close(self) -> bytes: ...

    def delta_writer(self, kind: type[Delta], index: int) -> DeltaWriter | None:
        """Fast path: a function that writes more deltas of this kind and part from their texts alone, until another
        event is written. Called after such a delta was written. None where such deltas must be written as events."""


class AdaptedBody(msgspec.Struct, frozen=True):
    """A request of a cloud as the protocol itself has it."""

    data: bytes
    headers: Mapping[str, str]
    """The client's headers, with what the cloud has in the body."""


class EndpointMatch(msgspec.Struct, frozen=True):
    """What a path asks for. `model` and `stream` are set where the path says them and the body does not (Gemini)."""

    operation: Literal["generate", "count_tokens"]
    model: str = ""
    stream: bool | None = None
    framing: str = ""
    """"" for the protocol's own framing, else a name for `make_framing_converter` (Gemini without `alt=sse`: a JSON
    array)."""
    ignores_model_in_body: bool = False
    """Does the model of the path count, whatever the body says (deployments of Azure)?"""
    adapt_body: Callable[[bytes, EndpointMatch, Mapping[str, str]], AdaptedBody | Failure] | None = None
    """Makes the body that the protocol itself has of one that a cloud has at this path, from the client's headers."""
    adapt_error: Callable[[bytes], tuple[bytes, Mapping[str, str]]] | None = None
    """The body of an error as the SDKs of a cloud read it, and the headers that it needs."""
    other_model: str = ""
    """The vendor's own name of the model, where a cloud has another one: it is used if nobody knows that."""


class PassthroughEndpoint(msgspec.Struct, frozen=True):
    """An endpoint that is forwarded to a provider of the protocol and not translated."""

    methods: frozenset[str]
    path: str
    """`{id}` is one segment, `{model}` the name of a model, `{version}` a version of the API."""
    model_place: Literal["", "body", "form", "path"] = ""
    """Where the request names its model; "form" is a multipart form or, if it is JSON, the body."""
    objects: Literal["", "create", "list", "use"] = ""
    """Does it create, list, or read, change or delete objects that the provider stores for the account?"""
    runs_models: bool = False
    """Can it make models run on requests that the gateway does not read, such as those in a batch file? Then rules for
    tools and lists of models could be evaded."""
    reads_files: bool = False
    """Does it take requests from a file, so that the gateway cannot see which objects they use?"""
    names_objects: bool = False
    """Does its response name objects that are new to the client, such as the results of a batch?"""
    cost: Literal["", "free", "storage", "input", "tokens"] = ""
    """What a request costs that sends something. "free": nothing. "storage": no tokens, but money for what is stored.
    "input" and "tokens": its tokens, those of its input alone or all, which its answer says or which can be estimated.
    "": it uses models and does not say how much, as a batch does. Limits cannot count this, nor storage. Looked up in
    November 2026: OpenAI bills vector stores by size and day and containers by session (its pricing page, as others
    quoted it in March 2026), Google caches by their lifetime (ai.google.dev/gemini-api/docs/caching). No page was found
    that names a price for files, prompts or descriptions."""

    def find_cost(self, method: str) -> Literal["", "free", "storage", "input", "tokens"]:
        return "free" if method in _READING_METHODS else self.cost


_READING_METHODS = frozenset({"GET", "HEAD", "DELETE"})
"""They cost nothing at any endpoint that is forwarded."""


def parse_passthrough_endpoints(table: str) -> tuple[PassthroughEndpoint, ...]:
    """Endpoints from lines such as `POST /v1/files create`: methods, path, and the words for the other fields."""
    rows = (line.split() for line in table.strip().splitlines())
    endpoints: list[PassthroughEndpoint] = []
    for methods, path, *words in rows:
        fields = dict(_ENDPOINT_WORDS[word] for word in words)
        endpoints.append(PassthroughEndpoint(frozenset(methods.split(",")), path, **fields))
    return tuple(endpoints)


_ENDPOINT_WORDS: Mapping[str, tuple[str, Any]] = {
    **{word: ("model_place", word) for word in ("body", "form", "path")},
    **{word: ("objects", word) for word in ("create", "list", "use")},
    **{flag.replace("_", "-"): (flag, True) for flag in ("runs_models", "reads_files", "names_objects")},
    **{word: ("cost", word.removeprefix("counts-")) for word in ("free", "storage", "counts-input", "counts-tokens")},
}
"""The field that each word sets, and its value."""


Modality: TypeAlias = Literal["text", "image", "audio", "video", "file"]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a model. None is unknown, and unknown facts forbid nothing."""

    context_window: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """The most tokens that the model takes in one request."""
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """The most tokens that it can answer with."""
    input_modalities: tuple[Modality, ...] | None = None
    """What it takes: `text`, `image`, `audio`, `video`, `file`."""
    output_modalities: tuple[Modality, ...] | None = None
    """What it answers with."""
    tools: bool | None = None
    """Can it call tools?"""
    parallel_tools: bool | None = None
    """Can it call several tools at once?"""
    reasoning_efforts: tuple[str, ...] | None = None
    """The efforts that it can be asked for, such as `low` and `high`; none if it does not think."""


NO_FACTS = ModelFacts()


def make_facts(context_window: Json = None, max_output_tokens: Json = None) -> ModelFacts:
    """Facts from what a server says; whatever is not a usable number is unknown."""
    window, output = (
        value if type(value) is int and 0 < value <= 2**53 else None for value in (context_window, max_output_tokens)
    )
    return ModelFacts(context_window=window, max_output_tokens=output)


class ModelInfo(msgspec.Struct, frozen=True):
    """An entry of a list of models."""

    id: str
    owner: str = ""
    """The provider that serves it."""
    created: int = 0
    """Seconds since 1970; 0 if unknown."""
    facts: ModelFacts = NO_FACTS
    display_name: str = ""
    """A name for people, if the provider has one."""
    capabilities: Mapping[str, Json] = EMPTY_MAPPING
    """What Anthropic's list says about its own models, in Anthropic's words."""


class ModelPage(msgspec.Struct, frozen=True):
    """One page of a provider's list of models."""

    models: tuple[ModelInfo, ...] = ()
    next_path: str = ""
    """The path of the next page; "" after the last one."""


class TokenCountEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint that counts the tokens of a request."""

    path: Callable[[str], str]
    """Its path for a model."""
    read_body: Callable[[Object], Object]
    """The ordinary request body that a count request is about."""
    write_body: Callable[[Object, str], Object]
    """The count request for an ordinary request body and a model."""
    count_key: str
    """The member of the answer with the count."""
    other_members: Mapping[str, Json] = EMPTY_MAPPING
    """What else is in the answer."""

    def read_count(self, body: Json) -> int | None:
        return read_count(body.get(self.count_key)) if isinstance(body, dict) else None

    def write_count(self, tokens: int) -> Object:
        return {**self.other_members, self.count_key: tokens}


class RateLimit(msgspec.Struct, frozen=True):
    """One rate limit of a provider, as its headers tell it."""

    kind: str
    """requests, tokens, input-tokens or output-tokens."""
    limit: int | None = None
    remaining: int | None = None
    reset_after: float | None = None
    """Seconds until all of the limit is available again."""


class FramingConverter(Protocol):
    """Converts the frames of a stream to another framing that the client asked for."""

    content_type: str

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...


class Quirk(msgspec.Struct, frozen=True, kw_only=True):
    """A difference of some servers of a protocol: other constraints, or a change of the body before it is sent."""

    about: str
    """One sentence for the reference."""
    constraints: Mapping[str, object] = EMPTY_MAPPING
    """The fields of `Constraints` that differ."""
    rewrite_body: Callable[[Object, str, Ledger], Object] | None = None
    """From the body, the model's name and the ledger; the same object when nothing changes, never changed in place."""
    http: Mapping[str, object] = EMPTY_MAPPING
    """The fields of `Http` that differ."""
    markers: tuple[bytes, ...] = ()
    """Bytes of every body that it changes: bodies without them pass as they are. () if bytes do not tell."""
    refusal: re.Pattern[str] | None = None
    """Matches what a server with this quirk says when it refuses a request. If a server says it that is not known to
    have the quirk, it is asked once more, with it."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud that offers models in this protocol in its own way: other paths, other models, other envelopes."""

    http: Mapping[str, object] = EMPTY_MAPPING
    """The fields of `Http` that differ."""
    supports_model: Callable[[str, bool], bool] | None = None
    """As that of `Codec`: a cloud offers several protocols, and each model in some of them."""
    reads_all: bool = False
    """Is a request always read and written, because headers become members or are left out?"""


class UsageNames(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer of an endpoint that is only forwarded calls its token counts. The defaults are those of OpenAI,
    whose endpoints differ; Anthropic has the second ones."""

    holder: str = "usage"
    """The object that they are in."""
    counts: Mapping[str, tuple[str, ...]] = msgspec.field(
        default_factory=lambda: {
            "input": ("prompt_tokens", "input_tokens"),
            "output": ("completion_tokens", "output_tokens"),
            "total": ("total_tokens",),
            "cache_read": ("cached_tokens",),
        }
    )
    """By the field of `Usage`."""
    details: tuple[str, ...] = ("prompt_tokens_details", "input_tokens_details")
    """Objects in it with further counts."""


def need_no_headers(model: str, body: bytes, client_headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """For protocols that need no header besides the key."""
    return ()


class CarriedRequest(msgspec.Struct, frozen=True):
    """A request of the protocol, and as it is sent."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class AnswerDecoder(Protocol):
    """From the bytes of a stream in another framing to server-sent events of the protocol."""

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...


class Carriage(msgspec.Struct, frozen=True, kw_only=True):
    """How a cloud carries the requests and streams of a protocol, where it has other envelopes for them."""

    write_request: Callable[[CarriedRequest], CarriedRequest]
    """Moves members between path, headers and body. The same object where nothing changes."""
    stream_content_type: str = ""
    """That of a stream in another framing."""
    make_stream_decoder: Callable[[], AnswerDecoder] | None = None


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """How the protocol looks over HTTP. Header names are in lower case everywhere."""

    request_path: Callable[[str, bool], str]
    """The path of a request, from the model's name and whether it streams."""
    model_in_body: bool = True
    """Gemini says the model in the path instead."""
    model_collection: str = ""
    """A prefix that a model's name may have or not (Google's `models/`): limits and prices know it as one model."""
    ask_for_usage: Callable[[bytes], bytes | None] | None = None
    """Makes the body of a request for a stream ask for token counts; None if it asks already, or if it need not."""
    drop_usage_chunks: Callable[[bytes], bytes] | None = None
    """Removes frames that have only token counts, for a client that has not asked for them."""
    framing: Framing = SSE_FRAMING
    """How its streams are framed, and their content type."""
    fixed_endpoints: Mapping[str, EndpointMatch] = EMPTY_MAPPING
    """Paths without variable parts, and what a POST to them asks for."""
    match_endpoint: Callable[[str, str], EndpointMatch | None] | None = None
    """What a POST to any other path and query asks for; None when the path is not of this protocol."""
    sdk_base_url: tuple[str, str, str] | None = None
    """For the vendor's SDK: the vendor, the environment variable with the base URL, and the URL's path."""
    provider_tool_markers: tuple[bytes, ...] = ()
    """Bytes in a body that may declare a tool which the provider runs. Without them a request need not be parsed."""
    history_markers: tuple[bytes, ...] = ()
    """Bytes of earlier calls, results or thinking, which may come from another model, or of what some models refuse:
    such a body is parsed first."""
    model_list_paths: tuple[str, ...] = ("/v1/models",)
    """Paths that list models; a single model is at `PATH/ID`."""
    path_aliases: Mapping[str, str] = EMPTY_MAPPING
    """Other places where clouds have the paths of this protocol. `{deployment}` is the model, `{rest}` the rest."""
    path_prefixes: tuple[str, ...] = ()
    """Prefixes of this protocol's paths, to answer in the right protocol where a path is wrong."""
    passthrough_endpoints: tuple[PassthroughEndpoint, ...] = ()
    """All endpoints that are forwarded. No other path of a provider can be reached."""
    forwarded_path: Callable[[str, str], str] | None = None
    """The path of a forwarded request where a cloud has another one, from that of the protocol and the model's name."""
    output_limit_keys: tuple[str, ...] = ("max_output_tokens",)
    """Keys that limit the output tokens of an answer."""
    lenient_output_limit_keys: tuple[str, ...] = ()
    """More of them that only some servers take."""
    answer_count_keys: tuple[str, ...] = ()
    """Keys that ask for several answers: by their number, or by a list of prompts."""
    settings_keys: tuple[str, ...] = ()
    """The object that these keys are in (Gemini's `generationConfig`); none if they are outermost."""
    forwarded_usage: UsageNames = UsageNames()
    media_markers: tuple[bytes, ...] = ()
    """Bytes of every body with an image, a file, a sound or a video, whose length says little about their tokens."""
    object_markers: tuple[bytes, ...] = ()
    """Bytes of keys in a request that name an object which a provider stores."""
    creation_markers: tuple[bytes, ...] = ()
    """Bytes of a request whose answer may create objects at the provider: containers, and files in them."""
    find_created_objects: Callable[[Object], Iterable[str]] = lambda _: ()
    """The ids of such objects in an answer or an event of a stream. It reads only what the provider itself writes: what
    the model wrote, such as the input of a call, can name objects of others."""
    created_object_markers: tuple[bytes, ...] = ()
    """Bytes of an answer, or of an event, that may have such an id."""
    objects_have_names: bool = False
    """Are stored objects named by collection and id (Gemini: `files/abc`)? Elsewhere an id is unique by itself."""
    identifying_names: frozenset[str] = frozenset()
    """Headers and query keys that only clients of this protocol send."""
    write_credential: Callable[[str], tuple[str, str]] = lambda key: ("authorization", f"Bearer {key}")
    """The header that sends a key to a provider."""
    credential_headers: tuple[str, ...] = ("authorization",)
    """Headers in which clients of this protocol send their key."""
    credential_query_key: str = ""
    forwarded_headers: tuple[str, ...] = ()
    """Client headers that are forwarded to a provider of the same protocol. A name may end in `*`. Those that choose an
    account are forwarded only with the client's own credential."""
    list_refused: Callable[[str, Mapping[str, str]], Iterable[str]] | None = None
    """What is left out of the headers of a client of the protocol because a server of this model refuses it, for
    people, from the model's name and the headers."""
    extra_headers: Callable[[str, bytes, Mapping[str, str]], tuple[tuple[str, str], ...]] = need_no_headers
    """Headers that a request needs besides the key (Anthropic's `anthropic-version`), from the model's name, the body,
    and the client's headers (empty when the client speaks another protocol)."""
    returned_headers: tuple[str, ...] = ()
    """Response headers that are returned to a client of the same protocol. A name may end in `*`."""
    upload_url_header: str = ""
    """The response header with the URL at the provider where a client goes on with an upload (Gemini)."""
    request_id_header: str = "x-request-id"
    stream_end: bytes = b""
    """The frame behind the last one that says something of the answer; SDKs wait for it."""
    heartbeat: bytes = b""
    """What keeps a silent stream alive (Anthropic's `ping`); empty when the protocol has nothing for that."""
    second_failure_event: str = ""
    """The event that may follow a failure and repeats it: OpenAI sends `response.failed` after `error`."""
    repeats_stream_failure: bool = False
    """Write a failure in the middle of a stream a second time, as bare JSON after its event? Some clients ignore the
    event and take the answer so far for the whole; bare JSON makes them fail. Not after a complete call: such clients
    run the call and go on."""
    failures_sent_in_stream: Mapping[str, frozenset[str]] = EMPTY_MAPPING
    """Kinds of failures, each with the agents that understand it only in a stream of status 200 (Codex: "context")."""
    read_rate_limits: Callable[[Mapping[str, str], float], tuple[RateLimit, ...]] = lambda headers, now: ()
    write_rate_limits: Callable[[tuple[RateLimit, ...], float], dict[str, str]] = lambda limits, now: {}
    """Rate limits from and to headers. The clock is passed in, because Anthropic sends the reset as a time of day."""
    write_model_list: Callable[[tuple[ModelInfo, ...], Mapping[str, str]], Object] = lambda models, query: {}
    """The list of models. The query may ask for one page."""
    write_model_entry: Callable[[ModelInfo], Object] = lambda model: {}
    provider_models_path: str = ""
    """The path of the first page of a provider's list of models; "" if the protocol has no such list."""
    read_model_list: Callable[[Json], ModelPage | None] = lambda body: None
    """One page of a provider's list; None if it is not one. Entries that cannot be read are left out."""
    changes_window: Callable[[Mapping[str, str], bytes], bool] = lambda headers, body: False
    """May the provider shorten this prompt, or take a longer one than usual, because the request asks for that?"""
    find_model_facts: Callable[[str], ModelFacts] = lambda model: NO_FACTS
    """What the codec's own tables say about a model: requests are written by them."""
    token_count: TokenCountEndpoint | None = None
    carriage: Carriage | None = None
    """None where requests are sent as they are written."""
    make_framing_converter: Callable[[str], FramingConverter | None] = lambda framing: None


MAX_HOLLOW_BYTES = 64
"""A choice of more bytes says something. A smaller one is read in full: it may be hollow (`Response.is_hollow`)."""


class ResponsePeek(msgspec.Struct, frozen=True, gc=False):
    model: str
    usage: Usage | None
    called_tools: tuple[str, ...] = ()
    """The names of the tools that the answer calls."""


Members: TypeAlias = Mapping[str, msgspec.Raw]
"""The outermost members of a body, not decoded."""


class RequestPeek(msgspec.Struct, frozen=True, gc=False):
    """What the outermost members of a request say."""

    model: str = ""
    stream: bool | None = None
    continues: str = ""
    """The id of the answer or conversation that it continues (Responses)."""
    conversation: str = ""
    """That of the conversation."""
    is_unusual: bool = False
    """Has it a shape that clients send and servers of the protocol refuse? `Codec.rewrite_unusual` changes that."""


_decode_text = msgspec.json.Decoder(str).decode
_decode_flag = msgspec.json.Decoder(bool | None).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_NO_ITEMS = msgspec.Raw(b"[]")


def peek_members(members: Members) -> RequestPeek | None:
    """The model and whether a stream is asked for; None if one of them is of another type. Null is as if nothing was
    there."""
    try:
        model = _decode_text(members["model"]) if "model" in members else ""
        stream = _decode_flag(members["stream"]) if "stream" in members else None
    except (msgspec.DecodeError, UnicodeError):
        if bytes(members.get("model", b"")) != b"null":
            return None
        # LangChain's AzureChatOpenAI 1.7.3 writes that: the path names the deployment
        return peek_members({name: value for name, value in members.items() if name != "model"})
    return RequestPeek(model, stream)


def list_items(members: Members, name: str) -> list[msgspec.Raw]:
    """The items of a member, not decoded; none if it is not a list."""
    try:
        return _decode_items(members.get(name, _NO_ITEMS)) or []
    except (msgspec.DecodeError, UnicodeError):
        return []


def count_tools(members: Members) -> int:
    return len(list_items(members, "tools"))


class Codec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One protocol: its readers, writers and rules. Codecs are compared by identity, so they can be dict keys."""

    name: str
    constraints: Constraints
    http: Http
    read_request: Callable[[Object], Request]
    write_request: Callable[[Request, Ledger], Object]
    read_response: Callable[[Object], Response]
    write_response: Callable[[Response, Ledger, WriteContext], Object]
    read_error: Callable[[Json, int, Mapping[str, str]], Failure]
    write_error: Callable[[Failure], ErrorReply]
    make_stream_reader: Callable[[], StreamReader]
    make_stream_writer: Callable[[Ledger, WriteContext], StreamWriter]
    request_members: RequestMembers = RequestMembers()
    """The names of the members of its requests, for those who decide by a body that is not translated."""
    estimates_input: bool = False
    """Does a stream begin with the tokens of the request, estimated where the provider says them only at the end?"""
    peek_request: Callable[[Members], RequestPeek | None] = peek_members
    """What the outermost members of a request say; None if one of them is of another type."""
    rewrite_unusual: Callable[[Object], Object] = lambda body: body
    """A body whose peek says that it is unusual, as servers take it. Raises Malformed."""
    count_tools: Callable[[Members], int] = count_tools
    """How many tools a request declares, wherever its protocol has a place for them. Called only where it matters."""
    peek_response: Callable[[bytes], ResponsePeek | None] = lambda data: None
    """The model and usage of a whole answer without parsing the rest; None where that is not possible."""
    supports_model: Callable[[str, bool], bool] = lambda model, tools: True
    """Can this model be used with this protocol (and with tools)? OpenAI offers some models in Responses only."""
    supports_provider_tool: Callable[[str, str, bool], bool] = lambda tool, model, functions: False
    """Does it run this tool (of `ir.PROVIDER_TOOLS`) for this model, and beside functions if there are any?"""
    quirks: Mapping[str, Quirk] = EMPTY_MAPPING
    """Known differences of servers, by the name that is used in the configuration."""
    platforms: Mapping[str, Platform] = EMPTY_MAPPING
    """Clouds that offer it in their own way, by their names in `providers.toml`."""
    rewritten_markers: tuple[bytes, ...] | None = ()
    """Of a server with quirks: bytes of every body that these change; None if bytes do not tell."""
