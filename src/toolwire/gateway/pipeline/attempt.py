"""The third step of the pipeline: send a prepared request to its provider, and read the response, or how its stream
starts.

An answer that needs further rounds (it paused, or it calls tools that the gateway runs) asks again through this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import TypeVar

from msgspec.structs import replace

from toolwire.core.codec import Codec, WriteContext
from toolwire.core.errors import RETRY_HEADERS, find_wait, is_lasting, is_used_up
from toolwire.core.ir import EMPTY_MAPPING, Failure, Media, Response, Result, Text, Usage
from toolwire.core.json_values import Malformed, decode, encode, expect_object
from toolwire.core.losses import Ledger
from toolwire.core.provenance import loosen_response
from toolwire.core.tokens import (
    estimate_answer_tokens,
    estimate_input,
    estimate_text_tokens,
    is_believable,
    is_possible,
)
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.gateway_request import (
    AnswerStream,
    AttemptAnswer,
    AttemptFailed,
    GatewayRequest,
    PreparedRequest,
    StartedStream,
    Upstream,
)
from toolwire.gateway.exchange.headers import client_response_headers, upstream_request_headers
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.gateway.http.client import HttpResponse
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import REQUEST_ID_HEADER
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size, run_in_thread
from toolwire.gateway.http.memory import SMALL_BODY
from toolwire.gateway.http.messages import Reply, UpstreamRequest, UpstreamResponse
from toolwire.gateway.http.senders import DecodedResponse
from toolwire.gateway.models.loopback.model import answer_request
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.telemetry.record import UpstreamCapture
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.streaming import StreamTranslation
from toolwire.translation.tool_rounds import Rounds

MAX_RESPONSE = 256 * 1024 * 1024
FIRST_CONTENT_SECONDS = 15.0
"""How long the start of a stream waits for its first content, where no heartbeat is set."""
LARGE_PIECE = 32 * 1024
"""Bytes of a stream, with those of which nothing has come yet, from which on they are translated in a thread: a text
of many calls takes a microsecond for each."""
MAX_PAUSES = 16
REFUSED_ROUNDS = 2
"""Rounds after the last one in which every tool call is refused, and rounds with nothing but calls of tools that rules
have removed. A model that still makes such calls then is given up."""


async def attempt_request(request: GatewayRequest, prepared: PreparedRequest) -> AttemptAnswer:
    """Send the request, and read the whole response, or a stream up to its first content. The first byte of the body
    must come in the time of the attempt: some servers send the head at once."""
    upstream = prepared.upstream
    record = request.record
    max_seconds = prepared.attempt.max_seconds
    ends = request.clock() + max_seconds if max_seconds < inf else 0.0
    record.upstream = upstream.names
    record.is_passthrough = prepared.is_passthrough
    if request.stream and request.running.counts_use:
        _ask_for_usage(request, prepared)
    if len(request.body.data) > SMALL_BODY:
        _forget_conversation(request, prepared)
    renamed = EMPTY_MAPPING
    if record.traffic.capture is not None and not prepared.is_passthrough:
        renamed = prepared.exchange.renamed_tools
    response = await send_request(request, upstream, prepared.body, "POST", max_seconds, renamed)
    if type(response) is TransportError:  # `isinstance` is slow for a Struct that is not one
        return error_replies.transport_error(request, upstream, response)
    if upstream.provider.account and request.runtime.accounts is not None:
        request.runtime.accounts.note_rate_limits(request, upstream, response.headers)
    record.answer.request_id = response.headers.get(upstream.codec.http.request_id_header, "")
    answer: AttemptAnswer
    if ends and not await response.wait_for_data(ends - request.clock()):
        response.abort()
        silent = TransportError("first-byte-timeout", "the head of its answer came, and nothing after it")
        answer = error_replies.transport_error(request, upstream, silent)
    elif response.status >= 300:
        answer = await _read_error_response(request, prepared, response)
    elif request.stream:
        answer = await _start_stream(request, prepared, response)
    else:
        answer = await _read_whole_response(request, prepared, response)
    if type(answer) is AttemptFailed and response.status < 300 and record.answer.tool_runs:
        return replace(answer, can_retry=False, can_fall_back=False)  # tools that were run must not run again
    return answer


def _forget_conversation(request: GatewayRequest, prepared: PreparedRequest) -> None:
    """What was decoded of a long request does not wait for its answer."""
    request.body.forget_values()
    if not prepared.is_passthrough:
        prepared.exchange.forget_turns()


def _ask_for_usage(request: GatewayRequest, prepared: PreparedRequest) -> None:
    """A limit counts what the provider says. A client must not be able to keep it silent."""
    codec = prepared.upstream.codec
    ask = codec.http.ask_for_usage
    asking = ask(prepared.body) if ask is not None and codec.constraints.counts_on_request else None
    prepared.attempt.drops_usage = asking is not None and codec.name == request.client_codec.name
    if asking is not None:
        prepared.body = asking


async def send_request(
    request: GatewayRequest,
    upstream: Upstream,
    body: bytes,
    method: str = "POST",
    max_seconds: float = inf,
    renamed_tools: Mapping[str, str] = EMPTY_MAPPING,
    is_billed: bool = True,
) -> UpstreamResponse | TransportError:
    """Send a body to an upstream, and wait for the head of the response. It is sent again only if a connection that had
    been idle was closed without any answer, which providers do at any moment; the log shows that as an attempt. If it
    may cost something, whoever reads the answer says what it has used (`Telemetry.end_call`)."""
    record, runtime, started = request.record, request.runtime, request.clock()
    telemetry, captured = runtime.telemetry, None
    if is_billed:
        # The upstream of a path that is only forwarded is the same for all models.
        model = upstream.model or record.upstream.model
        telemetry.start_call(request.running, upstream.provider.name, model, upstream.provider.account)
    headers = upstream_request_headers(request, upstream, body)
    if record.traffic.capture is not None:
        codec, provider = upstream.codec, upstream.provider
        captured = UpstreamCapture(
            codec.name, provider.name, upstream.address, upstream.path, body, started, renamed_tools, headers
        )
        record.traffic.capture.upstream_calls.append(captured)
    response: UpstreamResponse | TransportError
    if upstream.address is None:
        asked = (upstream.codec, body, upstream.model, upstream.stream, int(request.now), request.id_seed)
        response = await run_by_size(len(body), partial(answer_request, *asked))
    else:
        if record.upstream is not upstream.names and record.upstream.address != upstream.names.address:
            record.upstream = replace(record.upstream, address=upstream.names.address)
        call_headers = ((REQUEST_ID_HEADER, record.request_id), *request.running.trace_headers)
        sent = UpstreamRequest(upstream.address, method, upstream.path, headers, body, call_headers, max_seconds)
        response = await upstream.sender.send_request(sent)
        if type(response) is TransportError and response.kind == "stale-connection":
            seconds = request.clock() - started
            telemetry.record_attempt(record, upstream.provider, response.kind, seconds, is_transport_error=True)
            response = await upstream.sender.send_request(sent)
    if upstream.hidden_keys and (type(response) is HttpResponse or type(response) is DecodedResponse):
        response.hide_keys(upstream.hidden_keys)
    if captured is not None:
        response = captured.capture_response(response, request.clock, telemetry.recent)
    if is_billed:
        _note_head(request, upstream, body, response)
    if request.watch_objects is None or type(response) is TransportError:
        return response
    return request.watch_objects(upstream, response)


def _note_head(
    request: GatewayRequest, upstream: Upstream, body: bytes, response: UpstreamResponse | TransportError
) -> None:
    """The head of an answer has come, or does not come: a call that was refused has used nothing."""
    running = request.running
    if type(response) is TransportError:
        if response.kind != "first-byte-timeout":  # there it has worked, and may bill it
            request.runtime.telemetry.drop_call(running)
    elif response.status >= 300:
        request.runtime.telemetry.drop_call(running)
    elif running.sinks.prompts is not None and upstream.address is not None:
        running.sinks.prompts.keep_prompt(running, upstream.codec.name, body)


Answer = TypeVar("Answer")


async def retry_after_pause(
    request: GatewayRequest,
    provider: Provider,
    failure: Failure,
    number: int,
    ask: Callable[[], Awaitable[Answer]],
    deadline: float = inf,
) -> Answer | None:
    """Ask again, after a pause that grows with the number of retries. None if the pause would be too long, or if too
    many requests are retried at this provider already."""
    wait = error_replies.retry_wait(failure, number)
    admission = request.runtime.admission
    if (
        wait > error_replies.MAX_RETRY_WAIT
        or request.clock() + wait > deadline
        or not admission.start_retry(provider.name)
    ):
        return None
    try:
        await asyncio.sleep(wait)
        return await ask()
    finally:
        admission.end_retry(provider.name)


async def _read_error_response(
    request: GatewayRequest, prepared: PreparedRequest, response: UpstreamResponse
) -> AttemptFailed:
    data = await response.read(MAX_RESPONSE)
    if isinstance(data, TransportError):
        return error_replies.transport_error(request, prepared.upstream, data)
    if response.status < 400:
        return error_replies.redirect_error(request, prepared.upstream, response.status)
    return await run_by_size(len(data), lambda: _translate_error(request, prepared, response, data))


def _translate_error(
    request: GatewayRequest, prepared: PreparedRequest, response: UpstreamResponse, data: bytes
) -> AttemptFailed:
    upstream, exchange = prepared.upstream, prepared.exchange
    error = exchange.translate_error(data, response.status, response.headers)
    failure = error.failure or Failure("upstream", "", 502)
    if failure.kind == "rate" and failure.retry_after is None:
        limits = upstream.codec.http.read_rate_limits(response.headers, request.now)
        failure = replace(failure, retry_after=find_wait(limits))
    headers = client_response_headers(request, upstream, response.headers, prepared.loss_codes)
    is_own = not exchange.is_cross_protocol and _is_json_error(response, data)
    if upstream.provider.platform and is_own:  # a cloud may say it in its own way, whatever the protocol
        is_own = _has_shape_of(exchange.client, data)
    if not is_own or error_replies.is_missing_path(upstream, failure):
        return error_replies.provider_failure(request, upstream, failure, headers)
    if is_lasting(failure):
        headers = {name: value for name, value in headers.items() if name not in RETRY_HEADERS}
    if is_used_up(failure):
        return error_replies.used_up_failure(request, upstream, failure, headers)
    return error_replies.passed_failure(upstream, failure, response.status, {**error.headers, **headers}, data)


def _is_json_error(response: UpstreamResponse, data: bytes) -> bool:
    """Does the error say something that a client of the provider's own protocol can read as it is?"""
    if "json" not in response.headers.get("content-type", ""):
        return False
    try:
        return decode(data) not in ({}, [], None, "")
    except Malformed:
        return False


def _has_shape_of(codec: Codec, data: bytes) -> bool:
    body = decode(data)
    return isinstance(body, dict) and codec.write_error(Failure("server", "")).body.keys() <= body.keys()


async def _read_whole_response(
    request: GatewayRequest, prepared: PreparedRequest, response: UpstreamResponse
) -> Reply | AttemptFailed:
    upstream, headers = prepared.upstream, response.headers
    data: bytes | TransportError | Failure | AttemptFailed = await response.read(MAX_RESPONSE)
    if type(data) is bytes:
        if request.ticket is not None:
            request.ticket.add_answer(len(data))  # it counts in the memory budget until the request ends
        if not prepared.is_passthrough and prepared.exchange.can_take_rounds:
            data = await _complete_rounds(request, prepared, data)
    if not isinstance(data, bytes):
        if isinstance(data, TransportError):
            return error_replies.transport_error(request, upstream, data)
        return data if isinstance(data, AttemptFailed) else error_replies.provider_failure(request, upstream, data, {})
    is_stream = not data.startswith(b"{") and (
        _looks_like_stream(data)
        or (
            headers.get("content-type", "").startswith(upstream.codec.http.framing.content_type)
            and not data.lstrip().startswith(b"{")
        )
    )
    try:
        if prepared.is_passthrough and not is_stream:
            passed = await _pass_response(request, upstream, headers, data)
            if request.running.counts_use:
                await _note_least(request, prepared, data)
            return passed
        exchange = prepared.exchange
        translate = exchange.translate_streamed_response if is_stream else exchange.translate_response
        is_large = _weigh_answer(exchange, data) >= LARGE_BODY
        translation = await run_in_thread(partial(translate, data)) if is_large else translate(data)
    except Malformed as bad:
        return error_replies.unreadable_response(request, upstream, bad)
    request.runtime.telemetry.end_call(request.running, exchange.last_usage(translation.usage))
    if request.running.counts_use:
        await _note_least(request, prepared, data)
    return await _make_translated_reply(request, prepared, headers, translation)


async def _make_translated_reply(
    request: GatewayRequest, prepared: PreparedRequest, headers: Mapping[str, str], translation: Translation
) -> Reply | AttemptFailed:
    """Record what a translated answer says, and store what has to be."""
    upstream, exchange, record = prepared.upstream, prepared.exchange, request.record
    record.answer.usage, record.answer.model = translation.usage, translation.model
    record.answer.finish_reasons = translation.finishes
    record.answer.set_tool_calls(translation.called_tools, exchange.client_tool_name)
    codes = prepared.loss_codes + translation.ledger.codes
    if request.signature_store is not None:
        if translation.memory_records:
            await request.signature_store.save_signatures(translation.memory_records)
        codes += error_replies.unsaved_seal_codes(request)
    if codes:
        record.answer.add_losses(codes, prepared.ledger, translation.ledger)
    sent_headers = client_response_headers(request, upstream, headers, codes)
    failure = translation.failure
    if failure is not None and translation.status != 200:
        return error_replies.provider_failure(request, upstream, failure, sent_headers)
    reply = Reply(translation.status, sent_headers, translation.body)
    return reply if failure is None else error_replies.provider_error(failure, reply)


async def _note_least(request: GatewayRequest, prepared: PreparedRequest, data: bytes) -> None:
    """Note what the last call must have used, for limits: some servers say no usage, or one that cannot be."""
    record = request.record
    request.runtime.telemetry.end_call(request.running, None)  # if it was not read
    last = record.costs.calls[-1] if record.costs.calls else None
    if last is None:
        return
    if last.usage is not None and is_believable(last.usage.input) and is_believable(last.usage.output):
        return
    codec, body = prepared.upstream.codec, prepared.body
    sent = await run_by_size(len(body), partial(estimate_input, codec, body))
    made = await run_by_size(len(data), partial(estimate_answer_tokens, codec, data))
    last.least = replace(sent, output=made)


async def _complete_rounds(
    request: GatewayRequest, prepared: PreparedRequest, data: bytes
) -> bytes | TransportError | Failure | AttemptFailed:
    exchange = prepared.exchange
    while True:
        try:
            rounds = await run_by_size(
                _weigh_answer(exchange, data), partial(exchange.add_round, data, _looks_like_stream(data))
            )
        except Malformed:
            return data
        if rounds is None or not rounds.needs_next_round:
            if rounds is not None and rounds.intercepted:
                exchange.keep_pending_results(await run_leftover_tool_calls(request, prepared.upstream, rounds))
            return data
        request.runtime.telemetry.end_call(request.running, rounds.round_usage)
        if request.running.counts_use:
            await _note_least(request, prepared, data)
        response = await ask_next_round(request, prepared, rounds, partial(exchange.next_request, rounds))
        if isinstance(response, (TransportError, Failure, AttemptFailed)):
            return response
        read = await response.read(MAX_RESPONSE)
        if isinstance(read, TransportError):
            return read
        data = read


SEARCHED_WEIGHT = 8
"""A text that is searched for calls takes longer to read: a mark in it takes as long as a hundred letters."""


def _weigh_answer(exchange: Exchange, data: bytes) -> int:
    return len(data) * (SEARCHED_WEIGHT if exchange.repairs_answers else 1)


def _looks_like_stream(data: bytes) -> bool:
    """Did the provider send a stream though none was asked for? Each round may differ."""
    return data.lstrip()[:6].startswith((b"data:", b"event:", b":"))


async def _pass_response(
    request: GatewayRequest, upstream: Upstream, headers: Mapping[str, str], data: bytes
) -> Reply | AttemptFailed:
    """Record usage, model and tool calls of a response that passes through. Raises Malformed if it is not a response
    at all."""
    codec, record, telemetry = upstream.codec, request.record, request.runtime.telemetry
    reply = Reply(200, client_response_headers(request, upstream, headers, ()), data)
    peek_at = codec.peek_response
    peek = peek_at(data) if len(data) < LARGE_BODY else await run_in_thread(partial(peek_at, data))
    if peek is not None:
        telemetry.end_call(request.running, peek.usage)
        record.answer.usage, record.answer.model = peek.usage, peek.model
        if peek.called_tools:
            record.answer.tool_calls = tuple(zip(peek.called_tools, peek.called_tools, strict=True))
        return reply
    response = await run_by_size(len(data), lambda: codec.read_response(expect_object(decode(data), None)))
    telemetry.end_call(request.running, response.usage)
    record.answer.usage, record.answer.model = response.usage, response.model
    record.answer.set_tool_calls(response.called_tools, str)
    if response.failure is None:
        if not response.unknown_fields:
            return reply
        return await run_by_size(len(data), lambda: _mend_shapes(request, upstream, headers, response, reply))
    if response.id:
        return error_replies.provider_error(response.failure, reply)
    # Without an id it is an error that was sent with status 200: the client must see that in the status.
    return error_replies.provider_failure(request, upstream, response.failure, reply.headers)


def _mend_shapes(
    request: GatewayRequest, upstream: Upstream, headers: Mapping[str, str], response: Response, reply: Reply
) -> Reply:
    """A response as its protocol has it, if it is written in another shape that can mean only this."""
    codec, ledger = upstream.codec, Ledger(upstream.codec.name, upstream.codec.name)
    ledger.note_foreign_fields(response)
    if not ledger.codes:
        return reply
    body = codec.write_response(loosen_response(response), ledger, WriteContext(now=int(request.now), seed=response.id))
    request.record.answer.add_losses(ledger.codes, ledger)
    return Reply(200, client_response_headers(request, upstream, headers, ledger.codes), encode(body))


async def _start_stream(
    request: GatewayRequest, prepared: PreparedRequest, response: UpstreamResponse
) -> StartedStream | AttemptFailed:
    """Wait for the first content of a stream. Until then another provider can still be asked."""
    headers = client_response_headers(request, prepared.upstream, response.headers, prepared.loss_codes)
    content_type = response.headers.get("content-type", "")
    is_stream = content_type.startswith(prepared.upstream.codec.http.framing.content_type)
    translated = None if is_stream and prepared.is_passthrough else StreamTranslation(prepared.exchange)
    stream: AnswerStream = translated or PassthroughStream(prepared.upstream.codec)
    stream.describe_failure = partial(error_replies.name_provider, prepared.upstream)
    started = StartedStream(prepared, response, stream, headers)
    if is_stream or translated is None:
        failed = await _wait_for_content(request, started)
    else:
        failed = await _stream_whole_response(request, started, translated)
    if failed is None and stream.failure is not None:
        request.record.answer.usage = stream.usage
        failed = error_replies.provider_failure(request, prepared.upstream, stream.failure, headers)
    if failed is not None:
        response.abort()
        await end_stream_call(request, started)
        return failed
    return started


async def end_stream_call(request: GatewayRequest, started: StartedStream) -> None:
    """The call whose stream was read has ended, or is given up: record what it has used. Where the provider has not
    said all of it, because the stream was cut or because it never does, the rest is estimated."""
    telemetry, running, stream = request.runtime.telemetry, request.running, started.stream
    usage, length = stream.round_usage, stream.text_length
    if running.open_call is None:
        return
    is_refused = stream.failure is not None and stream.failure.kind not in error_replies.BROKEN_ANSWER_KINDS
    if is_refused and usage is None and not length:
        telemetry.drop_call(running)
        return
    usage = usage if usage is not None and is_possible(usage) else None
    usage, is_estimated = usage or Usage(), usage is None
    if not is_believable(usage.input):
        codec, body = started.request.upstream.codec, started.request.body
        sent = await run_by_size(len(body), partial(estimate_input, codec, body))
        media = {"input_audio": sent.input_audio, "input_image": sent.input_image}
        usage, is_estimated = replace(usage, input=sent.input, total=None, **media), True
    has_end = stream.ended or stream.needs_next_round
    made = estimate_text_tokens(length)
    if not is_believable(usage.output) and (made or usage.output):
        usage, is_estimated = replace(usage, output=made, total=None), True
    elif not has_end:  # Anthropic says the input when the stream starts
        usage, is_estimated = replace(usage, output=max(usage.output, made), total=None), True
    telemetry.end_call(running, usage, is_estimated)


async def _wait_for_content(request: GatewayRequest, started: StartedStream) -> AttemptFailed | None:
    """What comes before the content, but for the first byte, may also come after the start."""
    response, stream, clock = started.response, started.stream, request.clock
    deadline = 0.0
    while not stream.has_content and stream.failure is None:
        if deadline and not await response.wait_for_data(deadline - clock()):
            return None
        data = await response.read_chunk()
        deadline = deadline or clock() + (request.runtime.config.server.heartbeat or FIRST_CONTENT_SECONDS)
        if isinstance(data, TransportError):
            return error_replies.transport_error(request, started.request.upstream, data)
        if not data:
            started.response_ended = True
            started.pending_output.append(await close_stream(started))
            return None
        started.pending_output.append(await _feed_stream(started, data))
    return None


async def _feed_stream(started: StartedStream, data: bytes) -> bytes:
    """What comes of a piece of a stream."""
    started.silent_size = size = started.silent_size + len(data)
    feed = started.stream.feed
    out = feed(data) if size < LARGE_PIECE else await run_in_thread(partial(feed, data))
    if out:
        started.silent_size = 0
    return out


async def close_stream(started: StartedStream) -> bytes:
    """What comes at the end of a stream, where what has waited is translated."""
    close = started.stream.close
    return close() if started.silent_size < LARGE_PIECE else await run_in_thread(close)


async def _stream_whole_response(
    request: GatewayRequest, started: StartedStream, stream: StreamTranslation
) -> AttemptFailed | None:
    """Some providers send a whole response though a stream was asked for."""
    upstream = started.request.upstream
    data = await started.response.read(MAX_RESPONSE)
    if isinstance(data, TransportError):
        return error_replies.transport_error(request, upstream, data)
    weight = _weigh_answer(started.request.exchange, data)
    try:
        started.pending_output.append(await run_by_size(weight, partial(_feed_whole_response, stream, data)))
    except Malformed as bad:
        return error_replies.unreadable_response(request, upstream, bad)
    started.response_ended = True
    return None


def _feed_whole_response(stream: StreamTranslation, data: bytes) -> bytes:
    return stream.feed(data) + stream.close() if isinstance(decode(data), list) else stream.feed_whole_response(data)


# --- further rounds of one answer ---


def _refuse_round(request: GatewayRequest, failure: Failure) -> AttemptFailed:
    return replace(error_replies.gateway_error(request, failure), was_asked=False)


async def ask_next_round(
    request: GatewayRequest, prepared: PreparedRequest, rounds: Rounds, write: Callable[[tuple[Result, ...]], bytes]
) -> UpstreamResponse | TransportError | Failure | AttemptFailed:
    """Run the tool calls of a round that are not the client's, and ask the provider to continue, if limits allow it."""
    ended = request.refuse_ended_key()
    if ended is not None:
        return _refuse_round(request, ended)
    results = await _run_round(request, prepared.upstream, rounds)
    if isinstance(results, (TransportError, Failure)):
        return results
    size = len(prepared.body) + sum(map(_count_characters, results))
    body = await run_by_size(size, partial(write, results))
    reserve = request.running.reserve_round
    refused = await reserve(request.running, prepared.upstream.codec, body) if reserve is not None else None
    if refused is not None:
        return _refuse_round(request, refused)
    send = partial(_send_round, request, prepared, body)
    response = await send()
    for number in range(request.runtime.config.server.retries):
        if not isinstance(response, Failure) or response.kind not in error_replies.RETRYABLE_KINDS:
            break
        again = await retry_after_pause(request, prepared.upstream.provider, response, number, send)
        if again is None:
            break
        response = again
    return response


async def _send_round(request: GatewayRequest, prepared: PreparedRequest, body: bytes) -> UpstreamResponse | Failure:
    upstream, prepared.body = prepared.upstream, body
    if request.stream and request.running.counts_use:
        _ask_for_usage(request, prepared)
    response = await send_request(request, upstream, prepared.body)
    if isinstance(response, TransportError):
        return error_replies.transport_failure(upstream, response)
    if response.status < 300:
        return response
    read = await response.read(MAX_RESPONSE)
    data = b"" if isinstance(read, TransportError) else read
    error = prepared.exchange.translate_error(data, response.status, response.headers)
    return error.failure or Failure("upstream", "", 502)


async def _run_round(
    request: GatewayRequest, upstream: Upstream, rounds: Rounds
) -> tuple[Result, ...] | TransportError | Failure:
    """The results of a round. An error if the answer takes too many rounds."""
    if not rounds.intercepted:
        if rounds.resumptions < MAX_PAUSES:
            return ()
        return TransportError("protocol", f"the answer paused more than {MAX_PAUSES} times")
    if rounds.removed_rounds >= REFUSED_ROUNDS and (tool := rounds.removed_tool):
        # Not an error after which clients ask again by themselves: the model would insist again.
        what = f"the model insists on the tool `{tool}`, which the rules of this gateway ([[policy]]) have removed"
        return Failure("unprocessable", f"{what}: it called it {REFUSED_ROUNDS + 1} times", 422)
    limit = request.gateway_tools.max_rounds if request.gateway_tools is not None else MAX_PAUSES
    if rounds.resumptions >= limit + REFUSED_ROUNDS:
        return TransportError("protocol", f"the model still calls tools after {limit} rounds of tool calls")
    return await _run_tool_calls(request, upstream, rounds, over_limit=rounds.resumptions >= limit)


async def run_leftover_tool_calls(request: GatewayRequest, upstream: Upstream, rounds: Rounds) -> tuple[Result, ...]:
    """Run the gateway's tool calls of a last round that also has some for the client. Their results are stored for the
    next request. Without a store they would be lost, so such calls are not run."""
    if request.signature_store is None:
        return ()
    return await _run_tool_calls(request, upstream, rounds, over_limit=False)


async def _run_tool_calls(
    request: GatewayRequest, upstream: Upstream, rounds: Rounds, over_limit: bool
) -> tuple[Result, ...]:
    calls = [] if over_limit else rounds.calls_to_run()
    results = await request.gateway_tools.run_calls(calls) if calls and request.gateway_tools is not None else ()
    request.record.answer.add_tool_runs(calls, results)
    describer = request.runtime.image_describer
    if upstream.image_model and describer is not None:
        results = await describer.describe_results(request, upstream.image_model, results)
    # A search reads the words of all tools when it is first used, and there may be thousands.
    size = LARGE_BODY if rounds.tool_search is not None else 0
    return await run_by_size(size, partial(rounds.complete_results, results, over_limit))


def _count_characters(result: Result) -> int:
    texts = (
        part.text if isinstance(part, Text) else part.data for part in result.content if isinstance(part, Text | Media)
    )
    return sum(map(len, texts))
