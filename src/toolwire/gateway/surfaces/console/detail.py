"""Both sides of one exchange, worked out from its captured bytes when somebody looks: bodies, events with their times,
tools, calls and results next to each other, losses at their places, and the time of each step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import itemgetter

from msgspec import Struct

from toolwire.core import ir
from toolwire.core.codec import Codec
from toolwire.core.framing import SSE_FRAMING, Framing
from toolwire.core.json_values import Json, Malformed, Path, encode_text, json_pointer, parse_object
from toolwire.core.losses import Loss
from toolwire.core.sse import FrameTooLong
from toolwire.gateway.http.headers import REQUEST_ID_HEADER
from toolwire.gateway.surfaces.console import api
from toolwire.gateway.surfaces.console.case_file import write_curl
from toolwire.gateway.surfaces.console.headers import list_headers, write_url
from toolwire.gateway.surfaces.console.rows import (
    CleanText,
    cache_usage,
    call_cost,
    clean_texts,
    exchange_id,
    exchange_row,
    loss_row,
    milliseconds,
)
from toolwire.gateway.telemetry.conversations import full_name, result_text
from toolwire.gateway.telemetry.log import log_path, read_captured_response
from toolwire.gateway.telemetry.record import CapturedBytes, ExchangeRecord, UpstreamCapture
from toolwire.policy.rules import tool_name
from toolwire.protocols import CODECS

MAX_BODY = 4 * 1024 * 1024
"""Characters of a body that are shown."""
PAGE = 256 * 1024
"""Characters of a body that are sent at once."""
MAX_EVENTS = 5000
MAX_CALLS = 200
"""Calls of the history that are shown, the last ones; and of the answer, the first ones."""
MAX_TOOL_PLACE = 8
"""Steps of the path to a tool: `/input/3/tools/0/tools/1` has the most."""
MAX_RESULT = 4000
"""Characters of a result that are shown beside its call; the whole one is in the body."""


def describe_exchange(
    record: ExchangeRecord, worker: int, clean: CleanText, words: tuple[str, str] = ("", "")
) -> api.ExchangeDetail:
    clean = cache(clean)  # bodies are shown as a whole and as a command, and events that pass on both sides
    capture, calls = record.traffic.capture, list_upstream_calls(record)
    client = CODECS.get(record.client.protocol)
    request = read_request(client, capture.client_request) if capture is not None and client is not None else None
    provider_request = read_request(CODECS[calls[-1].protocol], calls[-1].body) if calls else None
    losses, renamed = list_losses(record), calls[-1].renamed_tools if calls else {}
    return api.ExchangeDetail(
        row=exchange_row(record, worker, words),
        output=describe_output(record, worker, clean),
        client=describe_client(record, worker, clean),
        upstream_calls=[describe_upstream_call(record, worker, number, clean) for number in range(len(calls))],
        call_costs=[call_cost(call, record.costs.is_priced) for call in record.costs.calls],
        cache=clean_texts(cache_usage(record.cache), clean),
        tools=clean_texts([*pair_tools(request, provider_request, renamed, losses)], clean),
        calls=clean_texts([*pair_calls(record, request, provider_request)], clean),
        losses=clean_texts([loss_row(*loss) for loss in losses], clean),
        steps=list(time_steps(record)),
        curl=write_curl(record, clean),
    )


# --- bodies and events ---


def describe_output(record: ExchangeRecord, worker: int, clean: CleanText) -> api.Output:
    """The answer as the client gets it, as text."""
    id = exchange_id(worker, record.number)
    codec, capture = CODECS.get(record.client.protocol), record.traffic.capture
    response = None
    if codec is not None and capture is not None and record.status < 400:
        response = read_captured_response(codec, capture.client_response.data)
    if response is None or capture is None:
        return api.Output(id=id, bytes_out=record.traffic.bytes_out)
    parts = [part for choice in response.choices for part in choice.parts]
    calls = [
        part.name if isinstance(part, ir.Call) else part.tool
        for part in parts
        if isinstance(part, ir.Call | ir.ProviderCall)
    ]
    return api.Output(
        id=id,
        text=clean("".join(part.text for part in parts if isinstance(part, ir.Text))),
        reasoning=clean("".join(part.text for part in parts if isinstance(part, ir.Reasoning))),
        calls=list(map(clean, calls)),
        bytes_out=capture.client_response.size,
    )


def describe_client(record: ExchangeRecord, worker: int, clean: CleanText) -> api.ClientSide:
    capture = record.traffic.capture
    response = capture.client_response if capture is not None else None
    framing = find_framing(record.client.protocol)
    return api.ClientSide(
        protocol=record.client.protocol,
        method=record.client.method,
        path=log_path(record),
        request=write_body(record, worker, "request", record.traffic.bytes_in, clean),
        status=record.status,
        response=write_body(
            record, worker, "response", response.size if response is not None else record.traffic.bytes_out, clean
        ),
        events=list_events(framing, response, record.started, clean)
        if record.asked.stream and response is not None
        else (),
        request_headers=list_headers(capture.client_headers.items(), clean) if capture is not None else (),
        response_headers=list_headers(list_reply_headers(record), clean),
    )


def describe_upstream_call(record: ExchangeRecord, worker: int, number: int, clean: CleanText) -> api.UpstreamCall:
    call = list_upstream_calls(record)[number]
    framing = find_framing(call.protocol)
    is_stream = call.headers.get("content-type", "").startswith(framing.content_type)
    return api.UpstreamCall(
        provider=call.provider,
        protocol=call.protocol,
        url=write_url(call, clean),
        request=write_body(record, worker, f"{number}-request", len(call.body), clean),
        status=call.status,
        error=clean(call.error),
        started_ms=milliseconds(call.started - record.started),
        head_ms=milliseconds(call.head_received - record.started) if call.head_received else None,
        ended_ms=milliseconds(call.ended - record.started) if call.ended else None,
        response=write_body(record, worker, f"{number}-response", call.response.size, clean),
        events=list_events(framing, call.response, record.started, clean) if is_stream else (),
        request_headers=list_headers([(REQUEST_ID_HEADER, record.request_id), *call.sent_headers], clean)
        if call.address is not None
        else (),
        response_headers=list_headers(call.headers.items(), clean),
    )


def list_reply_headers(record: ExchangeRecord) -> list[tuple[str, str]]:
    """What the client got, without the headers of the connection."""
    capture = record.traffic.capture
    parts = capture.reply_headers if capture is not None else ()
    return [*{name: value for part in parts for name, value in part.items()}.items()]


def list_upstream_calls(record: ExchangeRecord) -> Sequence[UpstreamCapture]:
    return record.traffic.capture.upstream_calls if record.traffic.capture is not None else ()


def find_body(record: ExchangeRecord, place: str) -> tuple[bytes, bool]:
    """What was kept of a body, and whether it was cut: `request` and `response` are the client's, `0-request` is the
    one to the first provider."""
    capture = record.traffic.capture
    if capture is None:
        return b"", False
    number, _, name = place.rpartition("-")
    if not number:
        request, response, protocol = capture.client_request, capture.client_response, record.client.protocol
    elif number.isdecimal() and number.isascii() and len(number) < 9 and int(number) < len(capture.upstream_calls):
        call = capture.upstream_calls[int(number)]
        request, response, protocol = call.body, call.response, call.protocol
    else:
        return b"", False
    if name == "request":
        return request, False
    return (write_stream_text(protocol, response.data), response.is_cut) if name == "response" else (b"", False)


def find_framing(protocol: str) -> Framing:
    codec = CODECS.get(protocol)
    return SSE_FRAMING if codec is None else codec.http.framing


def write_stream_text(protocol: str, data: bytes) -> bytes:
    """A body as people can read it: some streams are binary."""
    framing = find_framing(protocol)
    return framing.write_text(data).encode() if data.startswith(framing.frame_starts) else data


def clean_body(data: bytes, clean: CleanText) -> str:
    """A whole one, because half of a credential would not be recognised."""
    return clean(data.decode("utf-8", "replace"))


def write_body(record: ExchangeRecord, worker: int, place: str, size: int, clean: CleanText) -> api.Body:
    data, is_cut = find_body(record, place)
    text = clean_body(data, clean)
    page = cut_page(text, exchange_id(worker, record.number), place, 0)
    is_cut = is_cut or len(text) > MAX_BODY or len(data) < size
    return api.Body(text=page.text, size=max(size, len(data)), is_cut=is_cut, next=page.next)


def cut_page(text: str, id: str, place: str, start: int) -> api.BodyPage:
    end = min(start + PAGE, MAX_BODY)
    next_page = f"exchanges/{id}/bodies/{place}/{end}" if end < min(len(text), MAX_BODY) else ""
    return api.BodyPage(text=text[start:end], next=next_page)


def list_events(framing: Framing, captured: CapturedBytes, started: float, clean: CleanText) -> list[api.StreamEvent]:
    """The events of a stream. An event has the time of the piece that completed it."""
    splitter = framing.make_splitter()
    events: list[api.StreamEvent] = []
    try:
        for data, time in zip(captured.pieces, captured.times, strict=False):  # a whole body, an error, has no times
            ms = milliseconds(time - started)
            for frame in splitter.feed(data):
                text = clean(frame.data.decode("utf-8", "replace"))
                events.append(api.StreamEvent(ms=ms, event=clean(frame.event or ""), data=text))
            if len(events) >= MAX_EVENTS:
                break
    except FrameTooLong:
        pass  # the body shows it
    return events[:MAX_EVENTS]


def read_request(codec: Codec | None, body: bytes) -> ReadRequest | None:
    """A captured request; None if it cannot be read."""
    if codec is None or not body:
        return None
    try:
        json = parse_object(body)
        return ReadRequest(codec.read_request(json), json)
    except (Malformed, RecursionError):
        return None


class ReadRequest(Struct, frozen=True):
    """A request in the internal form, and as JSON."""

    request: ir.Request
    json: Json


# --- losses ---


def list_losses(record: ExchangeRecord) -> list[tuple[Loss, bool]]:
    """The losses, and whether each happened in the answer: the first ledger is that of the request."""
    ledgers = enumerate(record.answer.ledgers)
    return [(loss, number > 0) for number, ledger in ledgers if ledger is not None for loss in ledger.losses]


# --- tools ---


def pair_tools(
    client: ReadRequest | None,
    provider: ReadRequest | None,
    renamed: Mapping[str, str],
    losses: Sequence[tuple[Loss, bool]],
) -> Iterator[api.ToolRow]:
    """The tools of the client with what became of each, then those that were added."""
    sent = {renamed.get(name := shown_name(tool), name): tool for tool in list_tools(provider)}
    by_mention = index_losses([loss for loss, is_in_answer in losses if not is_in_answer])
    for tool in list_tools(client):
        name = shown_name(tool)
        match = sent.pop(name, None)
        place = json_pointer(ir.source_path(tool))
        concerned = {**by_mention.get(place, {}), **by_mention.get(f"`{name}`", {})} if place else {}
        reasons = [f"{loss.what}: {loss.why}" for _, loss in sorted(concerned.items(), key=itemgetter(0))]
        provider_name = shown_name(match) if match is not None else ""
        yield api.ToolRow(
            client_name=name,
            provider_name=provider_name,
            kind=tool_name(tool).kind,
            state=_tool_state(name, provider_name, bool(reasons)),
            reasons=reasons,
            client_declaration=write_declaration(client, tool),
            provider_declaration=write_declaration(provider, match),
        )
    for tool in sent.values():
        yield api.ToolRow(
            client_name="",
            provider_name=shown_name(tool),
            kind=tool_name(tool).kind,
            state="added",
            reasons=[],
            client_declaration="",
            provider_declaration=write_declaration(provider, tool),
        )


def _tool_state(client_name: str, provider_name: str, has_reasons: bool) -> api.ToolState:
    if not provider_name:
        return "dropped"
    if client_name != provider_name:
        return "renamed"
    return "changed" if has_reasons else "kept"


def index_losses(losses: Sequence[Loss]) -> dict[str, dict[int, Loss]]:
    """The losses by number, under each place that they are in, and under each name that they mention, as the losses of
    policy rules do."""
    found: dict[str, dict[int, Loss]] = {}
    for number, loss in enumerate(losses):
        steps = loss.path.split("/")[:MAX_TOOL_PLACE]
        for mention in (*accumulate(steps, "{}/{}".format), loss.path, *_MENTIONED_NAME.findall(loss.what)):
            found.setdefault(mention, {})[number] = loss
    return found


_MENTIONED_NAME = re.compile("`[^`]*`")


def list_tools(read: ReadRequest | None) -> tuple[ir.AnyTool, ...]:
    return ir.list_declared_tools(read.request) if read is not None else ()


def shown_name(tool: ir.AnyTool) -> str:
    name = tool_name(tool)
    return f"{name.namespace}.{name.name}" if name.namespace else name.name


def write_declaration(read: ReadRequest | None, tool: ir.AnyTool | None) -> str:
    """The JSON of a tool, as it is in the request."""
    found = find_place(read.json, ir.source_path(tool)) if read is not None and tool is not None else None
    return "" if found is None else encode_text(found)


def find_place(json: Json, path: Path) -> Json:
    """What is at a place of a JSON document; None if there is nothing."""
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    for step in reversed(steps):
        try:
            json = json[step]
        except (KeyError, IndexError, TypeError):
            return None
    return json


# --- calls and results ---


def pair_calls(
    record: ExchangeRecord, client: ReadRequest | None, provider: ReadRequest | None
) -> Iterator[api.CallPair]:
    """The calls of the history, then those of the answer, on both sides."""
    capture = record.traffic.capture
    if capture is None:
        return
    upstream_calls = capture.upstream_calls
    renamed = upstream_calls[-1].renamed_tools if upstream_calls else {}
    history = match_calls(list_history_calls(client), list_history_calls(provider), renamed)
    for client_call, provider_call in history[-MAX_CALLS:]:
        yield api.CallPair(is_in_answer=False, client=client_call, provider=provider_call)
    codec = CODECS.get(record.client.protocol)
    answer = list_answer_calls(codec, capture.client_response.data, record.status) if codec is not None else []
    sent = [
        call
        for one in upstream_calls
        for call in list_answer_calls(CODECS[one.protocol], one.response.data, one.status)
    ][:MAX_CALLS]
    for client_call, provider_call in match_calls(answer, sent, renamed):
        yield api.CallPair(is_in_answer=True, client=client_call, provider=provider_call)


Matched = tuple[api.CallSide | None, api.CallSide | None]


def match_calls(client: list[api.CallSide], provider: list[api.CallSide], renamed: Mapping[str, str]) -> list[Matched]:
    """Calls of the same tool in the same order belong together, if their ids do not say otherwise."""
    waiting = list(provider)
    pairs: list[Matched] = []
    names, ids = {one.name for one in client}, {one.id for one in client}
    provider_ids = {one.id for one in provider if one.id}

    def is_known(call: api.CallSide) -> bool:
        return call.id in ids or renamed.get(call.name, call.name) in names

    for call in client:
        same_name = (one for one in waiting if renamed.get(one.name, one.name) == call.name)
        same_id = (one for one in waiting if one.id == call.id) if call.id in provider_ids else iter(())
        found = next(same_id, None) or next(same_name, None)
        if found is not None:
            # What only the provider has seen, such as calls that the gateway ran, comes before it.
            place = waiting.index(found)
            pairs += [(None, one) for one in waiting[:place] if not is_known(one)]
            waiting = [one for one in waiting[:place] if is_known(one)] + waiting[place + 1 :]
        pairs.append((call, found))
    return pairs + [(None, one) for one in waiting]


def list_history_calls(read: ReadRequest | None) -> list[api.CallSide]:
    if read is None:
        return []
    parts = [part for turn in read.request.turns for part in turn.parts]
    results = {part.id: part for part in parts if isinstance(part, ir.Result | ir.ProviderResult)}
    calls = [part for part in parts if isinstance(part, ir.Call | ir.ProviderCall)]
    return [describe_call(part, results) for part in calls[-2 * MAX_CALLS :]]  # the other side may have fewer of them


def list_answer_calls(codec: Codec, body: bytes, status: int) -> list[api.CallSide]:
    response = read_captured_response(codec, body) if status < 300 else None
    parts = [part for choice in response.choices for part in choice.parts] if response is not None else []
    results: dict[str, ir.Result | ir.ProviderResult]
    results = {part.id: part for part in parts if isinstance(part, ir.ProviderResult)}
    calls = [part for part in parts if isinstance(part, ir.Call | ir.ProviderCall)]
    return [describe_call(part, results) for part in calls[:MAX_CALLS]]


def describe_call(
    call: ir.Call | ir.ProviderCall, results: Mapping[str, ir.Result | ir.ProviderResult]
) -> api.CallSide:
    result = results.get(call.id)
    return api.CallSide(
        id=call.id,
        name=full_name(call),
        arguments=call.arguments,
        result=result_text(result)[:MAX_RESULT] if result is not None else "",
        has_result=result is not None,
        is_error=result is not None and bool(result.error),
    )


# --- time ---


def time_steps(record: ExchangeRecord) -> Iterator[api.TimedStep]:
    """Preparing, then waiting for and reading each answer, with what the gateway did in between, then the end."""
    calls = list_upstream_calls(record)
    last = record.started
    for number, call in enumerate(calls):
        yield _step(record, _name_pause(calls, number), "", last, call.started)
        last = call.ended or record.ended or call.head_received or call.started
        outcome = str(call.status) if call.status else call.error
        yield _step(record, f"wait for {call.provider}", outcome, call.started, call.head_received or last)
        if call.status:
            yield _step(record, f"read from {call.provider}", f"{call.response.size} bytes", call.head_received, last)
    if record.ended:
        yield _step(record, "finish", "", last, record.ended)


def _name_pause(calls: Sequence[UpstreamCapture], number: int) -> str:
    """What the gateway did before a call to a provider."""
    if number == 0:
        return "prepare"
    before, call = calls[number - 1], calls[number]
    if not before.error and 0 < before.status < 400:
        return "prepare the next request"
    return "wait before the retry" if before.provider == call.provider else "prepare the fallback"


def _step(record: ExchangeRecord, name: str, text: str, start: float, end: float) -> api.TimedStep:
    started, duration = milliseconds(start - record.started), milliseconds(end - start)
    return api.TimedStep(name=name, detail=text, started_ms=started, duration_ms=duration)
