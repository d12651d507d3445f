"""Compaction: replaces a long conversation by a summary, for `POST /v1/responses/compact` and `compaction_trigger`.

A provider that speaks Responses compacts itself. For any other one the model is asked to write a summary.
"""

from __future__ import annotations

from toolwire.core.envelopes import ENVELOPE_PREFIX, TOOLWIRE_MAKER, EnvelopeEntry, write_envelope
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure, Usage
from toolwire.core.json_values import Malformed, Object, decode, encode, expect_object
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.gateway_request import AttemptFailed, GatewayRequest, Reply, StartedStream
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.pipeline.passthrough import forward_native
from toolwire.gateway.pipeline.pipeline import Pipeline
from toolwire.gateway.pipeline.route import Target
from toolwire.gateway.responses_state.context import (
    OperationContext,
    OperationResult,
    allows_upstream_state,
    is_native_target,
    replace_body,
)
from toolwire.gateway.responses_state.history import StoredHistory, expand_request, load_history
from toolwire.gateway.responses_state.recorder import StatelessRecorder, StoringRecorder
from toolwire.gateway.responses_state.response_objects import (
    COMPACTION,
    COMPACTION_TRIGGER,
    add_missing_ids,
    clean_item,
    item_type,
    make_response_id,
    read_items_to_store,
    read_output,
    write_listed_item,
    write_pending_response,
    write_response_stream,
    write_user_message,
)
from toolwire.gateway.responses_state.state_options import read_state_options
from toolwire.protocols.openai_responses.http import PATH
from toolwire.protocols.openai_responses.response import write_usage

COMPACT_PATH = f"{PATH}/compact"
_ENVELOPE_MARK = ENVELOPE_PREFIX.encode()


def compacts_upstream(call: GatewayRequest, targets: tuple[Target, ...]) -> bool:
    """Can the provider compact the conversation itself? Not if it contains envelopes, which only the gateway reads."""
    return is_native_target(call, targets) and _ENVELOPE_MARK not in call.body


async def compact_conversation(context: OperationContext) -> OperationResult:
    """`POST /v1/responses/compact`."""
    call, pipeline = context.call, context.pipeline
    body = context.read_body()
    targets = pipeline.route_request(call)
    if isinstance(targets, AttemptFailed):
        return targets.reply
    options = context.unwrap(read_state_options(body))
    history = await load_history(context.repository, context.owner, options)
    if isinstance(history, Failure):
        if history.status >= 500 or not (is_native_target(call, targets) and allows_upstream_state(call)):
            raise context.refusal(history)
    elif options.refers_to_stored:
        body = expand_request(body, history.items, history.referenced)
        replace_body(call, body)
    if compacts_upstream(call, targets):
        reply = await forward_native(call, targets[0], COMPACT_PATH)
        if reply is not None:
            return reply
    items = read_items_to_store(body, call.id_seed)
    answer = await _request_summary(call, targets, pipeline, body)
    if isinstance(answer, AttemptFailed):
        return answer.reply
    response = context.unwrap(write_compact_response(answer, items, call.id_seed, int(call.now)))
    return Reply(200, JSON_HEADERS, encode(response))


async def answer_with_compaction(
    call: GatewayRequest,
    targets: tuple[Target, ...],
    pipeline: Pipeline,
    recorder: StoringRecorder | StatelessRecorder,
    body: Object,
    history: StoredHistory,
) -> Reply | AttemptFailed:
    """Answer a request whose input ends with `compaction_trigger`."""
    stream = call.stream
    answer = await _request_summary(call, targets, pipeline, expand_request(body, history.items, history.referenced))
    if isinstance(answer, AttemptFailed):
        return answer
    response = write_summary_response(body, answer, call.id_seed, int(call.now))
    if isinstance(response, Failure):
        return error_replies.gateway_error(call, response)
    reply = await recorder.save_reply(Reply(200, JSON_HEADERS, encode(response)))
    if not stream:
        return reply
    headers = {**reply.headers, "content-type": call.client_codec.http.stream_content_type}
    return Reply(200, headers, write_response_stream(expect_object(decode(reply.body), None)))


async def _request_summary(
    call: GatewayRequest, targets: tuple[Target, ...], pipeline: Pipeline, body: Object
) -> Object | AttemptFailed:
    """Ask the model for a summary; returns its response."""
    replace_body(call, write_summary_request(body, read_items_to_store(body, call.id_seed)))
    call.stream, call.recorder, call.gateway_tools = False, None, None
    answer = await pipeline.request_answer(call, targets)
    if isinstance(answer, AttemptFailed):
        return answer
    if isinstance(answer, StartedStream):
        raise TypeError("the pipeline streams the answer to a request with `stream: false`")
    try:
        return expect_object(decode(answer.body, max_bytes=len(answer.body)), None)
    except Malformed as bad:
        return error_replies.gateway_error(call, Failure("upstream", str(bad), 502))


# --- the request for a summary ----------------------------------------------------------------------------------------

SUMMARY_PROMPT = """\
This conversation has become long and will go on without its earlier messages. Write the summary from which another \
model can take over the work at this very point. It will see your summary and nothing else of what was said and done \
so far, except for the user's own messages.

Say, under short headings:
- what the user wants in the end, and how they want it done (wishes, rules, preferences, things they refused);
- what was decided, and why; what was tried and did not work;
- the state of the work: files that were read, made or changed and what stands in them, commands that were run and \
what came out, what runs or is open now;
- what is left to do, the next step first;
- everything that must be spelled exactly: names, paths, ids, versions, addresses, numbers, errors, pieces of code.

Write facts only, no greeting and no remark about this task. Call no tools, and do not go on with the work itself."""

_DROPPED_KEYS = frozenset(
    """previous_response_id conversation background stream stream_options context_management include
    max_output_tokens store tool_choice input text""".split()
)


def write_summary_request(body: Object, items: list[Object]) -> Object:
    """The request that asks the model for a summary. It has the same instructions and tools as the client's, so that
    the provider's prompt cache matches."""
    out = {key: value for key, value in body.items() if key not in _DROPPED_KEYS}
    text = body.get("text")
    if isinstance(text, dict) and text.get("verbosity") is not None:
        out["text"] = {"verbosity": text["verbosity"]}
    out["input"] = [
        *(clean_item(item) for item in items if item.get("type") != COMPACTION_TRIGGER),
        write_user_message(SUMMARY_PROMPT),
    ]
    if body.get("tools"):
        out["tool_choice"] = "none"
    out["store"] = False
    return out


# --- the response -----------------------------------------------------------------------------------------------------


def write_compact_response(answer: Object, items: list[Object], seed: str, now: int) -> Object | Failure:
    """The response of `/v1/responses/compact`: the user's messages, and the summary of everything else."""
    item = _write_compaction_item(answer, seed)
    if isinstance(item, Failure):
        return item
    messages = [clean_item(one) for one in items if item_type(one) == "message" and one.get("role") == "user"]
    return {
        "id": make_response_id(f"{seed}|compact"),
        "object": "response.compaction",
        "created_at": now,
        "output": [*map(write_listed_item, add_missing_ids(messages, seed)), item],
        "usage": _summary_usage(answer),
    }


def write_summary_response(body: Object, answer: Object, seed: str, now: int) -> Object | Failure:
    """The response to a request with `compaction_trigger`: its output is the summary."""
    item = _write_compaction_item(answer, seed)
    if isinstance(item, Failure):
        return item
    return {
        **write_pending_response(body, now, "completed"),
        "id": make_response_id(seed),
        "completed_at": now,
        "output": [item],
        "usage": _summary_usage(answer),
    }


def _write_compaction_item(answer: Object, seed: str) -> Object | Failure:
    text = _read_summary_text(answer)
    if not text:
        return Failure("upstream", "the model wrote no summary of the conversation", 502, "no_summary")
    envelope = write_envelope([EnvelopeEntry("summary", TOOLWIRE_MAKER, "", text)])
    return {"id": derive_id("cmp_", seed), "type": COMPACTION, "encrypted_content": envelope}


def _read_summary_text(answer: Object) -> str:
    messages = [item.get("content") for item in read_output(answer) if item.get("type") == "message"]
    parts = [part for content in messages if isinstance(content, list) for part in content if isinstance(part, dict)]
    texts = [part.get("text") for part in parts if part.get("type") == "output_text"]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _summary_usage(answer: Object) -> Object:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else write_usage(Usage())
