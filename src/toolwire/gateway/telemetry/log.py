"""The log: one line for each request, as JSON or as text, lines for events, and debug lines with the tools and tool
calls of a request, as the client and as the provider saw them.

Text from clients and providers can neither forge a line nor show a key (`redact.py`).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice, pairwise
from math import floor

import msgspec

from toolwire.core import ir
from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.codec import Codec
from toolwire.core.events import fold
from toolwire.core.json_values import Json, Malformed, decode, expect_object
from toolwire.core.losses import LossSummary, summarise_losses
from toolwire.gateway.http.redact import (
    MAX_NAME,
    SecretFilter,
    hide_secrets,
    printable_text,
    redact_body,
    redact_start,
    safe_name,
    shorten_agent,
)
from toolwire.gateway.http.stderr import STDERR
from toolwire.gateway.models.amounts import write_amount
from toolwire.gateway.telemetry.record import CallUsage, Costs, ExchangeCapture, ExchangeRecord
from toolwire.gateway.telemetry.text_lines import (
    UNLIMITED,
    event_line,
    exchange_line,
    log_level,
    quote_value,
    write_pairs,
)
from toolwire.protocols import CODECS
from toolwire.terminal import terminal_width
from toolwire.terminal.text import add_colour


def log_path(record: ExchangeRecord) -> str:
    """The path without its query, which may contain a key."""
    return safe_name(record.client.path.partition("?")[0])


AttemptRows = Sequence[tuple[str, str, float]]


class CallLine(msgspec.Struct, omit_defaults=True, gc=False):
    provider: str
    model: str
    account: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated: bool = False
    cost_usd: msgspec.Raw | None = None


def _raw_amount(amount: Decimal) -> msgspec.Raw:
    return msgspec.Raw(write_amount(amount).encode())


def _call_line(call: CallUsage) -> CallLine:
    usage = call.usage
    cost = None if call.cost is None else _raw_amount(call.cost)
    line = CallLine(call.provider, safe_name(call.model), call.account, estimated=call.is_estimated, cost_usd=cost)
    if usage is not None:
        line.input_tokens, line.output_tokens = usage.input, usage.output
    return line


class LogLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A JSON line. `event` also holds the fields of `json_line_head`; the others are different in every request."""

    time: str
    event: msgspec.Raw
    request_id: str
    first_byte_ms: float | None
    duration_ms: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_expected_tokens: int | None = None
    """What the cache could give: the tokens of the prompt before."""
    reasoning_tokens: int | None = None
    usage_estimated: bool = False
    cost_usd: msgspec.Raw | None = None
    """Of all calls of providers whose cost is known."""
    unpriced_calls: int = 0
    reported_cost_usd: msgspec.Raw | None = None
    """What the providers say themselves."""
    calls: Sequence[CallLine] = ()
    """The calls of providers, if the answer took more than one, or if what one has used was estimated."""
    session: str = ""
    attempts: AttemptRows = ()
    tool_runs: Sequence[tuple[str, str]] = ()
    upstream_request_id: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    tool_calls: Sequence[tuple[str, str]] = ()
    """The tools that the answer calls: the client's name, and the provider's."""
    message: str = ""
    """The sentence about a failure that the client got."""
    loss_details: Sequence[LossSummary] = ()
    """Code, place and description of each loss."""
    request: str = ""
    response: str = ""


_encoder = msgspec.json.Encoder()
encode, _encode_lines = _encoder.encode, _encoder.encode_lines
_decode_text = msgspec.json.Decoder(str).decode
MAX_DETAILS = 100
"""Losses that are logged in full; `loss_count` counts all."""


def json_line_head(record: ExchangeRecord) -> msgspec.Raw:
    """The first fields of a line, without empty ones. Many requests share them, so their encoded form is cached."""
    fields = {
        "level": log_level(record),
        "key_name": printable_text(record.client.key_name),
        "team": printable_text(record.client.team),
        "agent": printable_text(record.client.agent),
        "user_agent": shorten_agent(record.client.user_agent),
        "subagent": printable_text(record.client.subagent),
        "client_address": printable_text(record.client.address),
        "operation": record.asked.operation,
        "method": printable_text(record.client.method, 16),
        "path": log_path(record),
        "client_protocol": record.client.protocol,
        "provider_protocol": record.upstream.protocol,
        "provider": record.upstream.provider,
        "account": record.upstream.account,
        "requested_model": safe_name(record.asked.model),
        "model": safe_name(record.upstream.model),
        "stream": record.asked.stream,
        "passthrough": record.is_passthrough,
        "status": record.status,
        "failure": record.failure,
        "client_disconnected": record.client_disconnected,
        "losses": tuple(dict.fromkeys(record.answer.losses)),
        "loss_count": len(record.answer.losses),
    }
    return msgspec.Raw(b'"exchange",' + encode({name: value for name, value in fields.items() if value})[1:-1])


def _shorten(text: str) -> str:
    """Not escaped here: see `write_json_lines`."""
    return printable_text(text) if len(text) > MAX_NAME else text


def json_line(record: ExchangeRecord, stamp: str, head: msgspec.Raw, bodies: bool) -> LogLine:
    started, first, answer = record.started, record.first_byte, record.answer
    request_id, upstream_id, usage = record.request_id, answer.request_id, answer.usage
    line = LogLine(
        stamp,
        head,
        request_id if len(request_id) <= MAX_NAME else printable_text(request_id),
        (first - started) * 1e5 // 1.0 / 1e2 if first else None,
        (record.ended - started) * 1e5 // 1.0 / 1e2,
        session=record.asked.session,
        upstream_request_id=upstream_id if len(upstream_id) <= MAX_NAME else printable_text(upstream_id),
        bytes_in=record.traffic.bytes_in,
        bytes_out=record.traffic.bytes_out,
    )
    if usage is not None:
        line.input_tokens, line.output_tokens = usage.input, usage.output
        line.cache_read_tokens, line.cache_write_tokens = usage.cache_read, usage.cache_write
        line.reasoning_tokens, line.usage_estimated = usage.reasoning, answer.is_estimated
    if record.costs.calls:
        _add_calls(line, record.costs)
    if record.cache is not None:
        line.cache_expected_tokens = record.cache.expected
    if answer.ledgers:
        line.loss_details = [
            (code, _shorten(place), _shorten(what)) for code, place, what in summarise_losses(answer.ledgers)
        ][:MAX_DETAILS]
    attempts = record.attempts
    if len(attempts) > 1 or (attempts and attempts[0][1] != "ok"):
        line.attempts = [(name, printable_text(outcome), int(took * 1e5) / 1e2) for name, outcome, took in attempts]
    if answer.tool_runs:
        line.tool_runs = answer.tool_runs[:MAX_DETAILS]
    if answer.tool_calls:
        line.tool_calls = [
            (name := safe_name(client), name if provider == client else safe_name(provider))
            for client, provider in answer.tool_calls[:MAX_DETAILS]
        ]
    if record.message:
        line.message = printable_text(redact_start(record.message), 500)
    if bodies:
        line.request = redact_body(record.traffic.request_body)
        line.response = redact_body(record.traffic.response_body)
    return line


def _add_calls(line: LogLine, of_calls: Costs) -> None:
    calls = of_calls.calls
    if len(calls) > 1 or calls[0].is_estimated:
        line.calls = [_call_line(call) for call in calls[:MAX_DETAILS]]
    if not of_calls.is_priced:
        return
    costs = of_calls.add_up()
    line.unpriced_calls = costs.unpriced
    if costs.total is not None:
        line.cost_usd = _raw_amount(costs.total)
    if costs.reported is not None:
        line.reported_cost_usd = _raw_amount(costs.reported)


def _escape_line(line: LogLine) -> LogLine:
    def escape(text: str) -> str:
        return text if text.isprintable() else printable_text(text)

    line.request_id, line.upstream_request_id = escape(line.request_id), escape(line.upstream_request_id)
    line.loss_details = [(code, escape(place), escape(what)) for code, place, what in line.loss_details]
    return line


def write_json_lines(lines: Sequence[LogLine | dict[str, Json]]) -> str:
    """Fields are escaped only if the encoded lines contain something that is not printable."""
    try:
        text = _encode_lines(lines).decode()
        # JSON escapes all ASCII control characters except for DEL.
        if text.isascii() and text.find("\\") < 0 and text.find("\x7f") < 0:
            return text
    except UnicodeEncodeError:
        pass  # half of a surrogate pair, which is not printable either
    return _encode_lines([_escape_line(line) if type(line) is LogLine else line for line in lines]).decode()


def write_stderr(line: str) -> None:
    STDERR.write(line)


LEVELS = ("debug", "info", "warn", "error")


# --- the log --------------------------------------------------------------------------------------------------------


_MAX_CACHED_HEADS = 1024


class Log:
    """Writes lines in one of the formats `json`, `text` and `none`; `none` still writes events. `auto` is `text` on a
    terminal and `json` elsewhere."""

    def __init__(
        self, form: str, out: Callable[[str], None] = write_stderr, clock: Callable[[], float] = time.time
    ) -> None:
        self._out, self._clock = out, clock
        has_stderr = sys.stderr is not None and not sys.stderr.closed
        self._is_terminal = out is write_stderr and has_stderr and sys.stderr.isatty()
        self._colour = self._is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._line_heads: dict[tuple[object, ...], msgspec.Raw] = BoundedDict(_MAX_CACHED_HEADS)
        self.configure(form, False)

    def configure(self, form: str, bodies: bool, secrets: Iterable[str] = (), level: str = "info") -> None:
        """Set the format, whether bodies are logged, the secrets to remove, and the minimum level."""
        if form == "auto":
            form = "text" if self._is_terminal else "json"
        self._form = form
        self._bodies = bodies
        self._min_level = LEVELS.index(level)
        self._stamp_second, self._stamp = -1.0, ""
        self._fractions = [f".{thousandth:03d}Z" if form == "json" else "" for thousandth in range(1000)]
        self._line_heads.clear()
        self._secret_filter = SecretFilter(secrets)

    @property
    def shows_sessions(self) -> bool:
        return self._form == "json"

    def _write_time(self, wall: float) -> str:
        fraction = wall - self._stamp_second
        if not 0.0 <= fraction < 1.0:
            second = int(wall)
            utc = self._form == "json"
            moment = time.gmtime(second) if utc else time.localtime(second)
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S" if utc else "%H:%M:%S", moment)
            self._stamp_second = float(second)
            fraction = wall - second
        return self._stamp + self._fractions[floor(fraction * 1000)]

    def _json_line(self, record: ExchangeRecord, stamp: str) -> LogLine:
        asked = record.asked
        key = (
            record.client, record.upstream, asked.operation, asked.model, asked.stream, record.is_passthrough,
            record.status, record.failure, record.client_disconnected, record.answer.losses,
        )  # fmt: skip
        head = self._line_heads.get(key)
        if head is None:
            head = json_line_head(record)
            # Clients choose these texts, so long ones are not cached.
            client = record.client
            texts = (asked.model, record.upstream.model, client.user_agent, client.path, *client.secrets)
            if sum(map(len, texts)) <= 1000 and len(record.answer.losses) <= 50:
                self._line_heads[key] = head
        return json_line(record, stamp, head, self._bodies)

    def log_exchanges(self, records: Sequence[ExchangeRecord]) -> None:
        if self._form == "none":
            return
        if self._min_level > 1:
            records = [record for record in records if LEVELS.index(log_level(record)) >= self._min_level]
        is_json = self._form == "json"
        width = UNLIMITED if is_json else self._width()
        lines: list[Json] = []
        starts: list[int] = []
        for record in records:
            starts.append(len(lines))
            stamp = self._write_time(record.started_at)
            if is_json:
                lines.append(self._json_line(record, stamp))
            else:
                lines.append(self._add_bodies(exchange_line(record, stamp, width, self._colour), record))
            if self._min_level == 0 and (capture := record.traffic.capture) is not None:
                lines += [self._debug_line(stamp, record, fields) for fields in debug_lines(record, capture)]
        if not lines:
            return
        self._report_dropped_lines()
        write = write_json_lines if is_json else "".join
        text = write(lines)
        secrets = tuple(dict.fromkeys([secret for record in records for secret in record.client.secrets]))
        if secrets and hide_secrets(text, secrets) != text:
            # Seldom. Each in its own lines: what one client calls its key may be a part of another one's lines.
            hide = _hide_in_json if is_json else _hide_in_text
            own = [write(lines[start:end]) for start, end in pairwise((*starts, len(lines)))]
            text = "".join(map(hide, own, records))
        self._out(self._secret_filter.clean(text))

    def _width(self) -> int:
        return terminal_width(sys.stderr) if self._is_terminal else UNLIMITED

    def _add_bodies(self, line: str, record: ExchangeRecord) -> str:
        """A request is one line in a file; on a terminal its bodies are below it."""
        if not self._bodies:
            return line
        bodies = (("request", record.traffic.request_body), ("response", record.traffic.response_body))
        pairs = write_pairs((name, redact_body(body)) for name, body in bodies)
        return f"{line}{pairs}\n" if self._is_terminal else f"{line[:-1]}{pairs}\n"

    def _report_dropped_lines(self) -> None:
        if self._out is write_stderr and (lost := STDERR.take_unreported()):
            what = "standard error was not read fast enough: lines are missing here"
            self._write_event("log_lines_dropped", {"lines": lost, "message": what}, "warn")

    def _debug_line(self, stamp: str, record: ExchangeRecord, fields: Fields) -> Json:
        id = printable_text(record.request_id)
        shown = {name: value for name, value in fields if value not in ("", [], 0)}
        if self._form == "json":
            return {"time": stamp, "event": "debug", "level": "debug", "request_id": id, **shown}
        step = f"{shown.pop('step'):>17}"
        step = add_colour(step, "dim") if self._colour else step
        pairs = [f"  {name}={_write_list(value)}" for name, value in shown.items()]
        return f"{stamp} {step}{''.join(pairs)}  request_id={quote_value(id)}\n"

    def log_event(
        self, kind: str, fields: Mapping[str, object], level: str = "info", secrets: tuple[str, ...] = ()
    ) -> None:
        """Log an event. `secrets` are those of the exchange that it is about."""
        if LEVELS.index(level) >= self._min_level:
            self._report_dropped_lines()
            self._write_event(kind, fields, level, secrets)

    def _write_event(self, kind: str, fields: Mapping[str, object], level: str, secrets: tuple[str, ...] = ()) -> None:
        stamp = self._write_time(self._clock())
        shown = {name: _write_field(value, () if name in OWN_FIELDS else secrets) for name, value in fields.items()}
        if self._form == "json":
            line = encode({"time": stamp, "event": kind, "level": level, **shown}).decode() + "\n"
        else:
            line = event_line(kind, shown, stamp, level, self._width(), self._colour)
        self._out(self._secret_filter.clean(line))


OWN_FIELDS = frozenset(
    "time event level step request_id key_name team client_address operation client_protocol provider_protocol provider"
    " account failure".split()
)
"""Fields that say who did what: no key of a client is in them, and nothing that it calls its key hides them."""
_JSON_TEXT = re.compile(r'(?:"(?P<name>\w+)":)?(?P<text>"(?:[^"\\]|\\.)*+")')


def _hide_in_json(lines: str, record: ExchangeRecord) -> str:
    """JSON lines without the keys of a client, which can be any text: only values change, so the lines stay valid."""
    secrets = record.client.secrets

    def hide(found: re.Match[str]) -> str:
        name, text = found["name"], found["text"]
        if name in OWN_FIELDS:
            return found[0]
        return f"{found[0][: -len(text)]}{encode(hide_secrets(_decode_text(text), secrets)).decode()}"

    return _JSON_TEXT.sub(hide, lines) if secrets else lines


def _hide_in_text(lines: str, record: ExchangeRecord) -> str:
    """Lines of text without the keys of a client; the name of its key stays."""
    own = write_pairs([("key", printable_text(record.client.key_name))]).strip()
    parts = lines.split(own) if own else [lines]
    return own.join([hide_secrets(part, record.client.secrets) for part in parts])


def _write_field(value: object, secrets: tuple[str, ...]) -> Json:
    """A field of an event: numbers as they are, everything else as safe text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_write_field(item, secrets) for item in value]
    return printable_text(redact_start(hide_secrets(str(value), secrets)), 500)


def _write_list(value: object) -> str:
    """A value that may be a list of strings or of objects; of these, strings as they are and numbers with names."""
    if not isinstance(value, list):
        return quote_value(value)
    items = [
        item if isinstance(item, str)
        else " ".join([one if isinstance(one, str) else f"{name}={one}" for name, one in item.items()])
        for item in value
    ]  # fmt: skip
    return f"[{', '.join(items)}]"


# --- debug lines ----------------------------------------------------------------------------------------------------

MAX_ARGUMENTS = 200
"""Characters of arguments that are logged."""
MAX_RECENT = 10
"""Calls and results of a conversation that are logged, the last ones."""
MAX_LISTED = 100
"""Tools of a request, and calls of an answer, that are logged."""
MAX_DESCRIBED = 1024 * 1024
"""Bytes of a body up to which it is read for debug lines: the event loop waits for that. The console shows all."""

Fields = tuple[tuple[str, object], ...]


def debug_lines(record: ExchangeRecord, capture: ExchangeCapture) -> Iterator[Fields]:
    """The fields of each debug line: the client's request, each upstream request and response, the client's
    response, and each loss."""
    client = CODECS.get(record.client.protocol)
    if client is None:
        return
    request = _describe_request(client, capture.client_request)
    yield ("step", "client_request"), ("protocol", client.name), ("path", log_path(record)), *request
    for sent in capture.upstream_calls:
        codec, provider = CODECS[sent.protocol], ("provider", sent.provider)
        where = (("protocol", codec.name), provider, ("url", printable_text(redact_start(sent.url), 300)))
        yield ("step", "upstream_request"), *where, *_describe_request(codec, sent.body)
        if sent.status:
            response = _describe_response(codec, sent.response.data, sent.status)
            yield ("step", "upstream_response"), provider, ("status", sent.status), *response
    response = _describe_response(client, capture.client_response.data, record.status)
    yield ("step", "client_response"), ("status", record.status), *response
    losses = (loss for ledger in record.answer.ledgers if ledger is not None for loss in ledger.losses)
    for loss in islice(losses, MAX_DETAILS):
        yield (
            ("step", "loss"),
            ("code", loss.code),
            ("path", printable_text(loss.path)),
            ("severity", loss.severity),
            ("what", shorten_text(loss.what)),
            ("why", shorten_text(loss.why)),
        )


def _describe_request(codec: Codec, body: bytes) -> Fields:
    if len(body) > MAX_DESCRIBED:
        return (("bytes", len(body)),)
    try:
        request = codec.read_request(expect_object(decode(body), None))
    except (Malformed, RecursionError):
        return (("unreadable_bytes", len(body)),)
    parts = [part for turn in request.turns for part in turn.parts]
    calls = [part for part in parts if isinstance(part, (ir.Call, ir.ProviderCall))]
    results = [part for part in parts if isinstance(part, (ir.Result, ir.ProviderResult))]
    choice = request.choice
    chosen = () if choice is None else (choice.mode, *(printable_text(tool.name or tool.kind) for tool in choice.tools))
    tools = ir.list_declared_tools(request)
    return (
        ("tools", [_tool_label(tool) for tool in tools[:MAX_LISTED]]),
        ("omitted_tools", max(0, len(tools) - MAX_LISTED)),
        ("tool_choice", ",".join(chosen)),
        ("omitted_calls", max(0, len(calls) - MAX_RECENT)),
        ("calls", [_describe_call(part) for part in calls[-MAX_RECENT:]]),
        ("results", [_describe_result(part) for part in results[-MAX_RECENT:]]),
    )


def _describe_response(codec: Codec, body: bytes, status: int) -> Fields:
    response = read_captured_response(codec, body) if status < 300 and len(body) <= MAX_DESCRIBED else None
    if response is None:
        return (("bytes", len(body)),)
    parts = [part for choice in response.choices for part in choice.parts]
    reasons = [choice.finish.kind for choice in response.choices if choice.finish is not None]
    calls = [part for part in parts if isinstance(part, (ir.Call, ir.ProviderCall))]
    return (
        ("calls", [_describe_call(part) for part in calls[:MAX_LISTED]]),
        ("omitted_calls", max(0, len(calls) - MAX_LISTED)),
        ("results", [_describe_result(part) for part in parts if isinstance(part, ir.ProviderResult)]),
        ("text_length", sum(len(part.text) for part in parts if isinstance(part, ir.Text))),
        ("finish_reasons", ",".join(reasons)),
    )


def _tool_label(tool: ir.AnyTool) -> str:
    """The name of a tool, and its kind if it is not a function."""
    if isinstance(tool, ir.Tool):
        name = f"{tool.namespace}.{tool.name}" if tool.namespace else tool.name
        return printable_text(name if tool.kind == "function" else f"{name} ({tool.kind})")
    return printable_text(
        f"{tool.name or tool.tool} (provider tool)" if isinstance(tool, ir.ProviderTool) else f"{tool.kind} (opaque)"
    )


def _describe_call(call: ir.Call | ir.ProviderCall) -> dict[str, str]:
    if isinstance(call, ir.ProviderCall):
        named = {"provider_tool": call.tool}
    else:
        kind = {} if call.kind == "function" else {"kind": call.kind}
        named = {"name": f"{call.namespace}.{call.name}" if call.namespace else call.name, **kind}
    shown = {name: printable_text(value) for name, value in (*named.items(), ("id", call.id))}
    return {**shown, "arguments": shorten_text(call.arguments)}


def _describe_result(result: ir.Result | ir.ProviderResult) -> dict[str, object]:
    if isinstance(result, ir.ProviderResult):
        details = {"sources": len(result.sources), "size": len(result.text), "error": printable_text(result.error)}
        return {"provider_tool": printable_text(result.tool), "id": printable_text(result.id)} | {
            key: value for key, value in details.items() if value
        }
    texts = [part.text for part in result.content if isinstance(part, ir.Text)]
    data = [part.data for part in result.content if isinstance(part, ir.Media)]
    size = sum(map(len, texts)) + sum(map(len, data))
    return {"id": printable_text(result.id), "size": size} | ({"error": True} if result.error else {})


def shorten_text(text: str) -> str:
    return printable_text(redact_start(text), MAX_ARGUMENTS)


def read_captured_response(codec: Codec, body: bytes) -> ir.Response | None:
    if not body:
        return None
    try:
        if body.lstrip()[:1] == b"{":
            return codec.read_response(expect_object(decode(body), None))
        reader = codec.make_stream_reader()
        return fold([*reader.feed(body), *reader.close()])
    except (Malformed, RecursionError):
        return None
