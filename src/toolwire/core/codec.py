"""What a room is: the same few doors in every protocol, and the rules that others must keep toward it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from toolwire.core.events import Event
from toolwire.core.ir import EMPTY_MAPPING, Failure, Request, Response, Usage
from toolwire.core.json_values import Json, Object
from toolwire.core.losses import Ledger
from toolwire.keeping import Keeping
from toolwire.schema import ConvertedSchema


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """What this protocol demands of a request; the steps in `translate` read these, never a room's name."""

    tool_name_pattern: re.Pattern[str]
    """Legal tool names, the whole name. Every ASCII identifier is one, as far as `name_limit` allows."""
    max_tool_name_length: int = 64
    call_id_pattern: re.Pattern[str] = re.compile(r"[A-Za-z0-9_-]+")
    max_call_id_length: int = 64
    tool_kinds: frozenset[str] = frozenset({"function"})
    """Kinds of tools, calls and results that it knows besides its own; all others are wrapped as functions."""
    has_namespaces: bool = False
    allows_tools_in_turns: bool = False
    """Can tools be added in the middle of the conversation?"""
    result_placement: Literal["turns", "user"] = "turns"
    """Each result in a turn of its own (role "tool"), or all of a batch first in one user turn."""
    merged_roles: frozenset[str] = frozenset()
    """Roles whose neighbouring turns must be one."""
    must_start_with_user: bool = False
    allows_empty_text: bool = True
    """Are empty or blank text parts accepted?"""
    system_placement: Literal["top", "turns", "both"] = "turns"
    """Instructions apart from the turns, among them, or either."""
    mid_system_turns: Literal["keep", "user", "model"] = "keep"
    """A system turn in the middle: kept, turned into user text, or decided by `mid_system_models`."""
    mid_system_turn_models: re.Pattern[str] = re.compile(r"(?!)")
    result_media_kinds: frozenset[str] = frozenset()
    """Kinds of media that a result may hold."""
    result_error_style: Literal["flag", "text"] = "text"
    """Results have an error flag, or the text must say it."""
    seal_slots: frozenset[str] = frozenset()
    """Parts that have a slot for a seal: reasoning, call, text."""
    seal_vendor: str = ""
    """Who makes its seals, by the name under which other protocols carry them for that vendor."""
    seal_error_pattern: re.Pattern[str] = re.compile(r"(?!)")
    """What a provider says, as code or in words, that takes a seal for another's or for an altered one."""
    token_limit_error_patterns: tuple[re.Pattern[str], ...] = ()
    """How a provider says that less must be asked for: the `most` there is, what it must stay `below`, or the `window`
    and what is `used` of it."""
    needs_signed_reasoning: bool = False
    """Is thinking without a seal refused?"""
    needs_reasoning_returned: bool = False
    """Must thinking come back with the calls that it led to, though nothing seals it?"""
    binds_reasoning_to_tools: Callable[[str], bool] = lambda model: False
    """Is thinking of this model refused when the list of tools is another than it was before?"""
    needs_part_after_reasoning: bool = False
    """Must a sealed piece of reasoning be followed by what it led to?"""
    has_turn_phases: bool = False
    """Do turns have a phase?"""
    json_mode_needs_word: bool = False
    """Must the word stand somewhere in the conversation before JSON can be asked for without a schema?"""
    can_force_tools: Callable[[str, bool | None], bool] = lambda model, thinks: True
    """Can this model be made to call a tool, and does it think beside that where it shall? None: nobody said whether it
    shall."""
    convert_tool_schema: Callable[[Json, str], ConvertedSchema] | None = None
    """The dialect that the schemas of tools must be in, by the model's name, where parameters may be renamed."""
    server_runs_tools: bool = True
    """Does the server run tools itself, where its protocol has such?"""
    needs_result_for_every_call: bool = True
    """Must every call have a result?"""
    call_finish_kinds: frozenset[str] = frozenset({"calls"})
    """Endings that a strict reader accepts for an answer with calls."""
    turns_key: str = "messages"
    """The key of the body that holds the conversation."""


class ErrorReply(msgspec.Struct, frozen=True):
    """An error as it goes out: status, body and headers."""

    status: int
    body: Json
    headers: Mapping[str, str] = EMPTY_MAPPING


class WriteContext(msgspec.Struct, frozen=True):
    """What a writer of answers may know: the client's request, and a clock and a seed that are passed in."""

    request: Request | None = None
    now: int = 0
    seed: str = ""


class StreamReader(Protocol):
    """Bytes of one answer in, events out; `close` at the end of input. Never raises for what the peer sends.

    It may also have `again`, which is there after bytes were fed that ended with a delta: where the next bytes are one
    frame that can only be more text of that part, it gives that text; None for all other bytes, which are then fed.
    """

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class StreamWriter(Protocol):
    """Events in, bytes out; `close` gives what is still owed.

    It may also have `grower(kind, index)`, asked after a delta of this kind was written: what writes more text of that
    part until another event comes, or None.
    """

    def write(self, event: Event) -> bytes: ...

    def close(self) -> bytes: ...


class EndpointMatch(msgspec.Struct, frozen=True):
    """What a path asks for; model and stream are told here only where the body does not say them."""

    operation: Literal["generate", "count"]
    model: str = ""
    stream: bool | None = None
    framing: str = ""
    """How the client wants a stream framed, where there is a choice; "" is the usual way."""


class ModelInfo(msgspec.Struct, frozen=True):
    """A model as a list of models shows it."""

    id: str
    owner: str = ""
    created: int = 0
    input_limit: int | None = None
    output_limit: int | None = None


class TokenCountEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint that counts the tokens of a request."""

    path: Callable[[str], str]
    """Its path, from the model's name."""
    read_body: Callable[[Object], Object]
    """The request whose tokens are asked for, as a body of this room."""
    write_body: Callable[[Object, str], Object]
    """A body of this room as the body of a count; the model's name is given."""
    read_count: Callable[[Json], int | None]
    write_count: Callable[[int], Object]


class RateLimit(msgspec.Struct, frozen=True):
    """One allowance of a provider: how much there is, what is left of it, and in how many seconds it is whole again."""

    kind: str
    """requests, tokens, input-tokens, output-tokens."""
    limit: int | None = None
    remaining: int | None = None
    reset_after: float | None = None


class FramingConverter(Protocol):
    """Frames of the usual kind in, the kind that the client asked for out."""

    content_type: str
    """Of what comes out."""

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...


class Quirk(msgspec.Struct, frozen=True, kw_only=True):
    """Where servers of one protocol differ: other rules, or something done to the body before it is sent."""

    about: str
    constraints: Mapping[str, object] = EMPTY_MAPPING
    """Fields of `Rules` that are different."""
    rewrite_body: Callable[[Object, str, Ledger], Object] | None = None
    """The body as this server takes it (the same object where nothing had to change; never changed in place); the
    model's name is given, and what is left out is noted."""


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """How a call of this protocol looks from outside. Header names are in lower case everywhere."""

    request_path: Callable[[str, bool], str]
    """The path of a call, from the model's name and whether it streams."""
    model_in_body: bool = True
    stream_in_body: bool = True
    stream_content_type: str = "text/event-stream"
    fixed_endpoints: Mapping[str, EndpointMatch] = EMPTY_MAPPING
    """Paths that never vary, and what a POST to them asks for."""
    match_endpoint: Callable[[str, str], EndpointMatch | None] | None = None
    """What a POST to any other path, with this query, asks for; None when it is not this protocol's."""
    sdk_base_url: tuple[str, str, str] | None = None
    """The vendor whose SDK speaks this, the variable that holds its base URL, and what stands in it behind the host."""
    provider_tool_markers: tuple[bytes, ...] = ()
    """Words in a body that declare a search or a fetch which the provider runs."""
    history_markers: tuple[bytes, ...] = ()
    """Words in a body that tell of earlier calls, results or thinking. Those may have been another model's, so such a
    request is read before it passes untouched."""
    model_list_paths: tuple[str, ...] = ("/v1/models",)
    """Paths at which models are listed; one model stands below."""
    path_prefixes: tuple[str, ...] = ()
    """What the paths of this protocol begin with, also those that are only passed through."""
    identifying_names: frozenset[str] = frozenset()
    """Headers and query keys that only clients of this protocol send."""
    write_credential: Callable[[str], tuple[str, str]] = lambda key: ("authorization", f"Bearer {key}")
    """The header that shows a key to a provider."""
    credential_headers: tuple[str, ...] = ("authorization",)
    """Headers in which clients of this protocol show their key."""
    credential_query_key: str = ""
    forwarded_headers: tuple[str, ...] = ()
    """Client headers that a provider of the same protocol sees too; one that ends in * stands for all that begin so."""
    extra_headers: Callable[[str, bytes, Mapping[str, str]], tuple[tuple[str, str], ...]] = lambda *_: ()
    """Headers that a call needs besides its key, from the model's name, the body, and the client's headers (empty when
    the client speaks another protocol)."""
    returned_headers: tuple[str, ...] = ()
    """Headers of an answer that a client of the same protocol gets to see, spelled as in `forwarded`."""
    request_id_header: str = "x-request-id"
    heartbeat: bytes = b""
    """What may be sent in a long silence of a stream; empty when nothing may."""
    repeats_stream_failure: bool = False
    """Is a failure in the middle of a stream told once more behind its frame, bare? Some clients pass over the frame,
    and take what came before for the whole; none passes over what is no frame. Not behind a whole call: those clients
    run it and go on, or would run it and ask for it again."""
    failures_sent_in_stream: Mapping[str, frozenset[str]] = EMPTY_MAPPING
    """Kinds of failures that some agents understand only in the stream which they asked for, and not by a status."""
    read_rate_limits: Callable[[Mapping[str, str], float], tuple[RateLimit, ...]] = lambda headers, now: ()
    write_rate_limits: Callable[[tuple[RateLimit, ...], float], dict[str, str]] = lambda limits, now: {}
    """Rate limits out of and into headers; the clock is passed in, because some wires tell a time of day."""
    write_model_list: Callable[[tuple[ModelInfo, ...], Mapping[str, str]], Object] = lambda cards, query: {}
    """The list of models; the query may ask for a page of it."""
    write_model_entry: Callable[[ModelInfo], Object] = lambda card: {}
    token_count: TokenCountEndpoint | None = None
    make_framing_converter: Callable[[str], FramingConverter | None] = lambda name: None


class ResponsePeek(msgspec.Struct, frozen=True, gc=False):
    """What a whole answer says of itself."""

    model: str
    usage: Usage | None


class Codec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One protocol. Equal only to itself, so that it can be a key."""

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
    peek_response: Callable[[bytes], ResponsePeek | None] = lambda data: None
    """The model and usage of an ordinary whole answer, without reading the rest of it; None for any other."""
    supports_model: Callable[[str, bool], bool] = lambda model, tools: True
    """Can this model be asked in this protocol (with tools)? Some vendors offer a model in one of theirs only."""
    keeping: Keeping | None = None
    """What is kept for clients of this protocol, where it has such things."""
    supports_provider_tool: Callable[[str, str, bool], bool] = lambda tool, model, functions: False
    """Does the provider run this tool (one of `ir.HOSTED`) for this model, beside functions if there are any?"""
    quirks: Mapping[str, Quirk] = EMPTY_MAPPING
    """What servers of this protocol are known to do differently, by name."""
