"""The JSON API of the console, as types. The page gets its TypeScript types from here (`make console`), and
docs/reference/console-api.json its schema, so both sides are one text. Names are those of the log.

All of it is below `API_PATH`:

    GET  state                        ConsoleState
    POST login                        Login → 204 with a session cookie; `logout` ends it
    GET  exchanges                    ExchangeList: the recent exchanges, newest first
    GET  exchanges/{id}               ExchangeDetail: both sides of one exchange
    GET  exchanges/{id}/conversation  Conversation: the same to read
    GET  exchanges/{id}/bodies/…      BodyPage: more of a body of it, at the path that the part before names
    GET  exchanges/{id}/case          a case that `toolwire conformance` can play, as a download
    GET  events                       server-sent events: `hello` (Hello), `exchange` (ExchangeRow), `output` (Output)
    GET  sessions                     SessionList
    GET  sessions/{id}                SessionDetail, by the id of the session or of one of its exchanges
    POST translate                    TranslateQuestion → TranslateAnswer
    GET  providers                    ProviderList
    POST providers/{name}/check       ProviderRow, after the provider was asked for its models
    GET  models                       ModelList
    GET  search?q=                    SearchResult
    GET  usage?by=&since=             UsageReport
    GET  requests?by=&step=&since=    RequestReport
    GET  limits                       LimitReport

Errors are an `ApiError`. Texts that came from clients, models and providers are plain text, never HTML, and contain no
credentials. Money is in US dollars, as a JSON number with all its digits; an unknown amount is null, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.core.losses import Severity
from toolwire.gateway.surfaces.console.api_usage import LimitReport, RequestReport, UsageReport

API_PATH = "/console/api/v1/"
CONSOLE_HEADER = "x-toolwire-console"
"""POST requests must have this header: a page of another origin cannot send it without being allowed to."""

ExchangeState: TypeAlias = Literal["running", "done", "failed", "disconnected"]
ToolState: TypeAlias = Literal["kept", "renamed", "changed", "dropped", "added"]
PartKind: TypeAlias = Literal["text", "reasoning", "refusal", "call", "result", "media", "other"]
MessageKind: TypeAlias = Literal["request", "response", "stream", "error"]
SessionSource: TypeAlias = Literal["previous_response_id", "conversation", "header", "prefix"]
KeyState: TypeAlias = Literal["set", "missing", "from_client", "not_needed"]

encode_message = msgspec.json.Encoder(decimal_format="number").encode
"""JSON of the API."""


class ApiError(Struct, frozen=True):
    """Any answer with a status of 400 or more."""

    message: str
    hint: str = ""


class Login(Struct, frozen=True):
    """The console's own key, which is not a client key."""

    key: str


class ProtocolInfo(Struct, frozen=True, kw_only=True):
    """A protocol, and where its clients send requests. `{model}` in a path stands for the model's name."""

    name: str
    path: str
    stream_path: str
    has_model_in_body: bool


class ConsoleState(Struct, frozen=True, kw_only=True):
    """What the page needs to know about the gateway."""

    version: str
    gateway_id: str
    """Another one after a restart."""
    needs_client_key: bool
    """Must requests to the gateway have a client key? The views that send requests ask for one."""
    can_log_out: bool
    """Was a key needed to open the console?"""
    workers: int
    has_replicas: bool
    """Can other gateways share its store? Each of them shows only what went through itself."""
    max_exchanges: int
    max_bytes: int
    protocols: Sequence[ProtocolInfo]


class CalledTool(Struct, frozen=True):
    """A tool that the answer calls, by both names."""

    client: str
    provider: str


class Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The provider's counts; absent where it has not sent them."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cache_expected: int | None = None
    """The tokens of the prompt before in the session, which an unchanged prefix lets the provider read."""
    cache_missed: int | None = None
    """Expected tokens that were not read."""
    is_estimated: bool = False


class Cost(Struct, frozen=True, kw_only=True):
    """What calls of providers cost, in USD."""

    cost_usd: Decimal | None
    """By our prices; None if it is unknown. Calls with an unknown cost are left out."""
    unpriced_calls: int
    """Calls whose cost is unknown."""
    reported_cost_usd: Decimal | None
    """What the providers say themselves; None if none does."""


class CacheUsage(Struct, frozen=True, kw_only=True):
    """What the provider's prompt cache gave for an exchange, against the prompt before in its session."""

    expected_tokens: int
    """The tokens of the prompt before, which an unchanged prefix lets the provider read."""
    read_tokens: int
    write_tokens: int
    missed_tokens: int
    """Expected tokens that were not read."""
    cause: str
    """Why they were not read: `tools`, `time`, `instructions`, `history`, `model`, `account`, `expired`, `unknown`; ""
    if they were."""
    reason: str
    """The same as a sentence, if the prefix broke."""
    place: str
    """The first place that differs, as a JSON Pointer into the request to the provider; "" if there is none."""
    extra_cost_usd: Decimal | None
    """What the missed tokens cost more than if they had been read; None if it is unknown."""


class ExchangeRow(Struct, frozen=True, kw_only=True):
    """One exchange as a row of a list."""

    id: str
    """Unique among all workers: the worker's number and a number in it, such as `0-17`."""
    request_id: str
    """The id in the log and in the client's `x-request-id`."""
    state: ExchangeState
    started_at: float
    """Unix time."""
    first_byte_ms: float | None
    duration_ms: float | None
    """None while it runs."""
    asked: str
    """The first words of what the user has asked in this turn; only in lists, and "" while it runs."""
    answered: str
    """The first words of the answer."""
    operation: str
    method: str
    path: str
    agent: str
    """The first product of the user agent."""
    key_name: str
    team: str
    """Of the client's key."""
    client_protocol: str
    provider_protocol: str
    provider: str
    requested_model: str
    model: str
    stream: bool
    passthrough: bool
    status: int
    """0 before the first byte."""
    failure: str
    message: str
    """The sentence about a failure that the client got."""
    losses: Sequence[str]
    """Codes, each once."""
    loss_count: int
    called_tools: Sequence[CalledTool]
    tool_runs: Sequence[str]
    """Tools that the gateway ran itself."""
    tokens: Tokens | None
    cost: Cost | None
    """Of all calls that have ended; None if there is none, or if costs are off."""
    attempts: int
    bytes_in: int
    bytes_out: int
    session: str
    """What to ask `sessions/{id}` for; "" if it has no session."""
    conversation: str
    """The `session` of the log, which the turns of one conversation have in common; "" if it is none."""


class ExchangeList(Struct, frozen=True, kw_only=True):
    exchanges: Sequence[ExchangeRow]
    removed: int
    """Older exchanges that were removed, because of the limits."""


class Hello(Struct, frozen=True, kw_only=True):
    """The first event of a connection to `events`."""

    gateway_id: str


class Output(Struct, frozen=True, kw_only=True):
    """More of the answer of a running stream, as the client gets it."""

    id: str
    text: str = ""
    reasoning: str = ""
    calls: Sequence[str] = ()
    """Names of the tools whose calls have begun."""
    bytes_out: int = 0


class Body(Struct, frozen=True, kw_only=True):
    """A body as far as it was kept: its first page."""

    text: str
    size: int
    """All bytes of it."""
    is_cut: bool = False
    next: str = ""
    """What to ask for the next page, below `API_PATH`; "" if there is none."""


class BodyPage(Struct, frozen=True, kw_only=True):
    """More of a body."""

    text: str
    next: str = ""
    """As in `Body`."""


class StreamEvent(Struct, frozen=True, kw_only=True):
    """One server-sent event."""

    ms: float
    """Since the start of the exchange."""
    event: str
    data: str


class Header(Struct, frozen=True, kw_only=True):
    """A header; the value is hidden unless it is known to be harmless."""

    name: str
    value: str


class ClientSide(Struct, frozen=True, kw_only=True):
    """What the client sent and got."""

    protocol: str
    method: str
    path: str
    request: Body
    status: int
    response: Body
    events: Sequence[StreamEvent] = ()
    """The response, where it is a stream."""
    request_headers: Sequence[Header] = ()
    response_headers: Sequence[Header] = ()


class UpstreamCall(Struct, frozen=True, kw_only=True):
    """One request to a provider and its answer: an attempt, a retry, a fallback, or a round after tool calls."""

    provider: str
    protocol: str
    url: str
    request: Body
    status: int
    """0 without an answer."""
    error: str
    """Why there is no answer."""
    started_ms: float
    head_ms: float | None
    ended_ms: float | None
    response: Body
    events: Sequence[StreamEvent] = ()
    request_headers: Sequence[Header] = ()
    """Without those that belong to the connection, and those that sign a request to a cloud."""
    response_headers: Sequence[Header] = ()


class CallCost(Struct, frozen=True, kw_only=True):
    """What one call of a provider has used. Calls that were refused, or did not reach the provider, use nothing."""

    provider: str
    account: str
    """Which of the provider's accounts was asked, if it has several."""
    model: str
    tokens: Tokens | None
    """None if they are unknown."""
    cost: Cost | None
    """None if costs are off."""


class ToolRow(Struct, frozen=True, kw_only=True):
    """A declared tool on both sides."""

    client_name: str
    """"" if the gateway added it."""
    provider_name: str
    """"" if it was dropped."""
    kind: str
    """`function`, `custom`, or the name of a provider's tool."""
    state: ToolState
    reasons: Sequence[str]
    """What did it, and why: a policy rule, or a limit of the provider."""
    client_declaration: str
    """JSON."""
    provider_declaration: str


class CallSide(Struct, frozen=True, kw_only=True):
    """A tool call as one side sees it."""

    id: str
    name: str
    arguments: str
    result: str
    """The start of its result, as text; "" if there is none yet."""
    has_result: bool
    is_error: bool


class CallPair(Struct, frozen=True, kw_only=True):
    """A tool call on both sides; one of them is null where only the other has it."""

    is_in_answer: bool
    """False for a call of the history in the request."""
    client: CallSide | None
    provider: CallSide | None


class LossRow(Struct, frozen=True, kw_only=True):
    """A loss, and where it happened."""

    code: str
    severity: Severity
    path: str
    """A JSON Pointer into the body of its side; in a stream it begins with `event/N`."""
    is_in_answer: bool
    """Did it happen in the answer? Then the path is into the provider's response, otherwise into the client's
    request."""
    what: str
    why: str


class TimedStep(Struct, frozen=True, kw_only=True):
    """A step of an exchange: preparing, each call to a provider up to its first byte and to its end, tool runs."""

    name: str
    detail: str
    started_ms: float
    duration_ms: float


class ExchangeDetail(Struct, frozen=True, kw_only=True):
    row: ExchangeRow
    output: Output
    """The answer so far, as the client gets it: of a running stream, what its `output` events have said."""
    client: ClientSide
    upstream_calls: Sequence[UpstreamCall]
    call_costs: Sequence[CallCost]
    cache: CacheUsage | None
    """None if there was no turn before, or nothing is known of a cache."""
    tools: Sequence[ToolRow]
    calls: Sequence[CallPair]
    losses: Sequence[LossRow]
    steps: Sequence[TimedStep]
    curl: str
    """The client's request as a command; the key is a variable of the shell."""


class ConversationPart(Struct, frozen=True, kw_only=True):
    """A part of a turn, as it can be read."""

    kind: PartKind
    text: str = ""
    """Of a call its arguments, of media their name, address or type."""
    is_cut: bool = False
    name: str = ""
    """The tool, the kind of media, or what else it is; of reasoning that cannot be read, why."""
    call_id: str = ""
    """Of a call and of its result."""
    pictures: Sequence[str] = ()
    """As `data:` URLs."""
    is_error: bool = False
    place: str = ""
    """A JSON Pointer into the request of its side; "" in an answer."""
    is_changed: bool = False
    """Has the other side nothing that says the same?"""
    losses: Sequence[LossRow] = ()
    """What was lost or changed there."""


class ConversationTurn(Struct, frozen=True, kw_only=True):
    role: str
    is_answer: bool
    """Is it the answer of this exchange, not a turn of its request?"""
    parts: Sequence[ConversationPart]
    place: str


class ConversationSide(Struct, frozen=True, kw_only=True):
    """What one side has sent and got; instructions are the first turn, of the role `system`."""

    protocol: str
    turns: Sequence[ConversationTurn]
    hidden_turns: int
    """Older turns that are left out."""


class Conversation(Struct, frozen=True, kw_only=True):
    """An exchange as a conversation. A side is null if it cannot be read, or no provider was asked."""

    client: ConversationSide | None
    provider: ConversationSide | None
    """Of the last call that was answered."""


class SessionRow(Struct, frozen=True, kw_only=True):
    """The turns of one conversation."""

    id: str
    title: str
    """The start of the first message of the user."""
    source: SessionSource
    """How its turns were found to belong together."""
    agent: str
    models: Sequence[str]
    turns: int
    started_at: float
    last_at: float
    tokens: Tokens
    cost: Cost | None
    """Of all its turns; None if no call has ended, or if costs are off."""
    extra_cost_usd: Decimal | None
    """What tokens that the cache did not give cost more than if it had; None if that is unknown of one turn."""
    broken_prefixes: int


class SessionList(Struct, frozen=True, kw_only=True):
    sessions: Sequence[SessionRow]


class PrefixBreak(Struct, frozen=True, kw_only=True):
    """Where a request stops being the same as the request before it, for the provider's prompt cache."""

    place: str
    """In the order in which providers cache: a JSON Pointer into the request to the provider, such as `/tools/3`."""
    same_bytes: int
    """Bytes before it that are the same."""
    before: str
    """The text around the place in the request before: up to the difference, and a little more."""
    after: str
    difference: int
    """Where the two texts begin to differ, in characters."""
    cause: str
    """The likely cause, as a sentence."""


class SessionTurn(Struct, frozen=True, kw_only=True):
    exchange: ExchangeRow
    prefix_bytes: int
    """Bytes of the request to the provider that could be cached: all but what is new in this turn."""
    prefix_break: PrefixBreak | None
    cache: CacheUsage | None
    """By the provider's counts. None if there was no turn before, or nothing is known of a cache."""


class SessionDetail(Struct, frozen=True, kw_only=True):
    session: SessionRow
    turns: Sequence[SessionTurn]


class TranslateQuestion(Struct, frozen=True, kw_only=True):
    """Something to translate to all protocols. An empty `kind` or `source` is guessed from the text."""

    text: str
    kind: Literal["", "request", "response", "stream", "error"] = ""
    source: str = ""


class TranslateResult(Struct, frozen=True, kw_only=True):
    protocol: str
    text: str
    """Pretty JSON, or the frames of a stream."""
    losses: Sequence[LossRow]
    error: str
    """Why there is no result."""


class TranslateAnswer(Struct, frozen=True, kw_only=True):
    kind: MessageKind
    source: str
    results: Sequence[TranslateResult]
    error: str
    """Why the text cannot be read, with the place."""


class Cooldown(Struct, frozen=True, kw_only=True):
    model: str
    seconds: float


class RateLimit(Struct, frozen=True, kw_only=True):
    """What the provider's last answer said about a limit."""

    name: str
    """`requests`, `tokens`, `input tokens` …"""
    limit: int | None
    remaining: int | None
    resets_at: float | None


class ProviderRow(Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    protocols: Sequence[str]
    address: str
    """Host and port."""
    key: KeyState
    key_variable: str
    is_embedded: bool
    cooldowns: Sequence[Cooldown]
    rate_limits: Sequence[RateLimit]
    last_outcome: str
    """Of the last attempt: "ok", a status, or the kind of a transport error."""
    last_at: float | None
    models: Sequence[str] | None
    """None if it has not been asked."""
    problem: str
    """Why its models cannot be listed, or that its key is missing, and what to do."""


class ProviderList(Struct, frozen=True, kw_only=True):
    providers: Sequence[ProviderRow]


class ModelRow(Struct, frozen=True, kw_only=True):
    name: str
    provider: str


class ModelList(Struct, frozen=True, kw_only=True):
    models: Sequence[ModelRow]
    problems: Sequence[str]


class SearchHit(Struct, frozen=True):
    """An exchange with all words of a search."""

    id: str
    excerpt: str
    """What is around the first word, without credentials."""


class SearchResult(Struct, frozen=True, kw_only=True):
    hits: Sequence[SearchHit]
    """Of each worker, the newest first."""
    is_complete: bool
    """Was everything searched? Otherwise only the newest exchanges were."""


API_TYPES = (
    ApiError, Login, ConsoleState, ExchangeList, SearchResult, UsageReport, RequestReport, LimitReport, ExchangeDetail,
    Conversation, BodyPage, Hello, ExchangeRow, Output, SessionList, SessionDetail, TranslateQuestion, TranslateAnswer,
    ProviderList, ProviderRow, ModelList,
)  # fmt: skip
"""The messages of the API; the types that they are made of follow from them."""
