"""The objects of the Responses state: options, expanded requests, lists, stored responses as streams, summaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItemList
from openai.types.responses import CompactedResponse, Response, ResponseStreamEvent
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import TypeAdapter

from material import NAMES
from toolwire import translate
from toolwire.core import envelopes
from toolwire.core.codec import WriteContext
from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.core.events import fold
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure, Origin, Request, Seal, Summary, Text, Turn, strip_origins
from toolwire.core.json_values import encode
from toolwire.core.losses import Ledger
from toolwire.gateway.exchange.client_body import ClientBody, read_client_body
from toolwire.gateway.features.responses.endpoints import (
    Page,
    StateOperation,
    match_operation,
    read_added_items,
    read_conversation,
    read_metadata,
    read_page,
    write_conversation,
    write_page,
)
from toolwire.gateway.features.responses.history import (
    expand_request,
    write_compact_response,
    write_summary_request,
    write_summary_response,
)
from toolwire.gateway.features.responses.recorder import StreamTap, number_frames, write_state_fields
from toolwire.gateway.features.responses.response_objects import (
    StateOptions,
    add_missing_ids,
    is_stateless,
    not_found_failure,
    read_items_to_store,
    read_state_options,
    read_text,
    write_deleted,
    write_ended_response,
    write_listed_item,
    write_pending_response,
    write_response_stream,
    write_terminal_event,
)
from toolwire.protocols import find_codec
from toolwire.translation import seals
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire_conformance.peers import find_violations

NAME = "openai-responses"
CODEC = find_codec(NAME)
SAMPLES = Path(__file__).parent.parent / "samples" / "openai_responses"
STREAMS = sorted(path.name for path in SAMPLES.glob("*.sse"))
WHOLE = sorted(path.name for path in SAMPLES.glob("*.json") if b'"object": "response"' in path.read_bytes())


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def message_item(text: str, id: str = "msg_1") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": id, "type": "message", "status": "completed", "role": "assistant", "content": content}


CALL = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "ok"}


# --- is_stateless -----------------------------------------------------------------------------------------------------

QUICK: list[tuple[bytes, bool]] = [
    (b'{"model":"m","input":"x","store":false}', True),
    (b'{"store" : false,"input":[{"role":"user","content":"a conversation in the background"}]}', True),
    (b'{"store":false,"previous_response_id":null,"background":false,"conversation":null}', True),
    (b'{"model":"m","input":"x"}', False),
    (b'{"store":true}', False),
    (b'{"store":null}', False),
    (b'{"store":false,"previous_response_id":"resp_1"}', False),
    (b'{"store":false,"conversation":{"id":"conv_1"}}', False),
    (b'{"store":false,"conversation":"conv_1"}', False),
    (b'{"store":false,"background":true}', False),
    (b'{"store":false,"input":[{"type":"item_reference","id":"msg_1"}]}', False),
    (b'{"store":false,"input":[{"id":"msg_1"}]}', False),
    (b'{"store":false,"input":[{"id":"msg_1","status":"completed"}]}', False),
    (b'{"store":false,"input":[{"role":"user","content":[]},"x"]}', False),
    (b'{"store":false,"input":[{"role":"user","content":"an item_reference {\\"id\\":\\"x\\"}"}]}', True),
    (b'{"store":false,"input":[{"type":"compaction_trigger"}]}', False),
    (b'{"input":"x","tools":[{"type":"function","name":"f","parameters":{"default":{"store":false}}}]}', False),
    (b'{"input":"say \\"store\\":false"}', False),
    (b'{"store":false', False),
    (b"", False),
]


@pytest.mark.parametrize(("body", "sure"), QUICK)
def test_is_stateless_is_never_wrong(body: bytes, sure: bool) -> None:
    found = read_client_body(CODEC, body)
    assert (isinstance(found, ClientBody) and is_stateless(found.members)) is sure


# --- paths ------------------------------------------------------------------------------------------------------------

OPERATIONS: list[tuple[str, str, StateOperation | None]] = [
    ("GET", "/v1/responses/resp_1", StateOperation(name="response", id="resp_1")),
    ("DELETE", "/v1/responses/resp_1", StateOperation(name="response-delete", id="resp_1")),
    ("POST", "/v1/responses/resp_1/cancel", StateOperation(name="response-cancel", id="resp_1")),
    ("GET", "/v1/responses/resp_1/input_items", StateOperation(name="response-items", id="resp_1")),
    ("GET", "/v1/responses/a%2Fb%C3%BC%zz", StateOperation(name="response", id="a/bü%zz")),
    ("POST", "/v1/responses/compact", StateOperation(name="compact")),
    ("POST", "/v1/conversations", StateOperation(name="conversation-create")),
    ("GET", "/v1/conversations/conv_1", StateOperation(name="conversation", id="conv_1")),
    ("POST", "/v1/conversations/conv_1", StateOperation(name="conversation-update", id="conv_1")),
    ("DELETE", "/v1/conversations/conv_1", StateOperation(name="conversation-delete", id="conv_1")),
    ("GET", "/v1/conversations/conv_1/items", StateOperation(name="items", id="conv_1")),
    ("POST", "/v1/conversations/conv_1/items", StateOperation(name="items-add", id="conv_1")),
    ("GET", "/v1/conversations/conv_1/items/msg_1", StateOperation(name="item", id="conv_1", item_id="msg_1")),
    (
        "DELETE",
        "/v1/conversations/conv_1/items/msg_1",
        StateOperation(name="item-delete", id="conv_1", item_id="msg_1"),
    ),
    ("POST", "/v1/responses", None),
    ("GET", "/v1/responses", None),
    ("GET", "/v1/responses/", None),
    ("POST", "/v1/responses/input_tokens", None),
    ("GET", "/v1/responses/input_tokens", None),
    ("GET", "/v1/responses/compact", None),
    ("HEAD", "/v1/responses/resp_1", None),
    ("POST", "/v1/responses/resp_1", None),
    ("GET", "/v1/responses/resp_1/cancel", None),
    ("GET", "/v1/responses/resp_1/input_items/x", None),
    ("GET", "/v1/conversations", None),
    ("PUT", "/v1/conversations/conv_1/items/msg_1", None),
    ("GET", "/v1/conversations/conv_1/items/", None),
    ("GET", "/v1/conversations/conv_1/items/a/b", None),
    ("GET", "/v1/chat/completions/x", None),
]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_match_operation(method: str, path: str, operation: StateOperation | None) -> None:
    assert match_operation(method, path) == operation


# --- options ------------------------------------------------------------------------------------------------------------

OPTIONS: list[tuple[dict[str, Any], StateOptions]] = [
    ({"input": "x"}, StateOptions(store=True)),
    ({"input": "x", "store": None, "background": None, "conversation": None}, StateOptions(store=True)),
    ({"input": "x", "store": False}, StateOptions()),
    ({"previous_response_id": "resp_1", "store": False}, StateOptions(previous_response_id="resp_1")),
    ({"conversation": "conv_1"}, StateOptions(store=True, conversation="conv_1")),
    ({"conversation": {"id": "conv_1"}}, StateOptions(store=True, conversation="conv_1")),
    ({"input": "x", "background": True}, StateOptions(store=True, background=True)),
    (
        {
            "input": [
                user("x"),
                {"type": "item_reference", "id": "a"},
                {"id": "b"},
                {"id": "a", "type": "item_reference"},
            ]
        },
        StateOptions(store=True, references=("a", "b")),
    ),
    ({"input": [user("x"), {"type": "compaction_trigger"}]}, StateOptions(store=True, compaction=True)),
]


@pytest.mark.parametrize(("body", "options"), OPTIONS)
def test_state_options(body: dict[str, Any], options: StateOptions) -> None:
    assert read_state_options(body) == options


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "a", "conversation": "b"}, "previous_response_id", "Mutually exclusive"),
    ({"background": True, "store": False}, "background", "store"),
    ({"previous_response_id": 7}, "previous_response_id", "expected a string, but got an integer"),
    ({"conversation": []}, "conversation", "expected a string, but got an array"),
    ({"conversation": {"id": None}}, "", ""),
    ({"conversation": {"name": "x"}}, "conversation", "but got an object"),
    ({"store": "yes"}, "store", "expected a boolean, but got a string"),
    ({"input": 1.5}, "input", "got a decimal"),
    ({"input": ["x"]}, "input[0]", "expected an object"),
    ({"input": [{"type": "item_reference", "id": None}]}, "input[0].id", "got null"),
    ({"input": [{"type": "compaction_trigger"}, user("x")]}, "input[0]", "last"),
]


@pytest.mark.parametrize(("body", "param", "word"), REFUSED)
def test_invalid_state_options(body: dict[str, Any], param: str, word: str) -> None:
    got = read_state_options(body)
    if not word:
        assert got == StateOptions(store=True)
        return
    assert isinstance(got, Failure)
    assert (got.status, got.param) == (400, param)
    assert word in got.message
    assert CODEC.write_error(got).body["error"]["type"] == "invalid_request_error"


# --- items ------------------------------------------------------------------------------------------------------------


def test_a_string_is_a_user_message() -> None:
    (item,) = read_items_to_store({"input": "hi"}, "seed")
    assert {**item, "id": ""} == user("hi", id="")
    assert item["id"].startswith("msg_")
    assert read_items_to_store({"input": "hi"}, "seed") == [item]
    assert read_items_to_store({"input": "hi"}, "other") != [item]
    assert read_items_to_store({}, "seed") == []


PREFIXES = {
    "message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_", "web_search_call": "ws_",
    "function_call_output": "fco_", "computer_call": "cu_", "image_generation_call": "ig_", "mcp_call": "mcp_",
    "compaction": "cmp_", "vendor:thing": "item_",
}  # fmt: skip


def test_missing_ids_are_added() -> None:
    given = [{"type": kind, "x": number} for number, kind in enumerate(PREFIXES)]
    got = add_missing_ids(given, "seed")
    assert [item["id"].partition("_")[0] + "_" for item in got] == list(PREFIXES.values())
    assert len({item["id"] for item in got}) == len(got)
    assert add_missing_ids([{"role": "user", "content": "x"}, CALL], "s")[1] is CALL
    assert [
        item.get("type") for item in read_items_to_store({"input": [CALL, {"type": "compaction_trigger"}]}, "s")
    ] == ["function_call"]


def turn(body: dict[str, Any], history: list[dict[str, Any]], answer: list[dict[str, Any]], seed: str) -> Any:
    """One turn of a conversation: what the provider gets, and the history after it."""
    sent = expand_request(body, history, {})
    return sent["input"], [*history, *read_items_to_store(body, seed), *answer]


def test_every_turn_repeats_the_same_prefix() -> None:
    stray = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "e",
        "status": None,
        "content": None,
    }
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}]
    turns: list[tuple[Any, list[dict[str, Any]]]] = [
        ("hi", [stray, {**CALL, "created_by": "x", "caller": None}]),
        ([RESULT, {"role": "user", "content": "and?"}], [message_item("done", "msg_2")]),
        (
            [
                user("more", id=None, status=None),
                {**message_item("x", "msg_7"), "phase": None},
                {"role": "user", "content": ""},
            ],
            [],
        ),
    ]
    history: list[dict[str, Any]] = []
    before: list[Any] = []
    for number, (asked, answer) in enumerate(turns):
        body = {"model": "gpt-6", "input": asked, "tools": tools, "previous_response_id": f"resp_{number}"}
        sent, history = turn(body, history, answer, f"seed{number}")
        assert json.dumps(sent).startswith(json.dumps(before)[:-1])
        assert find_violations(NAME, {"model": "gpt-6", "input": sent, "tools": tools}) == []
        assert "_tw" not in json.dumps(sent)
        assert "null" not in json.dumps(sent)
        before = sent


def test_only_state_keys_are_removed() -> None:
    body = {"conversation": "c", "model": "m", "input": "x", "background": True, "store": True, "metadata": {"a": "b"}}
    got = expand_request(body, [], {})
    assert got == {"model": "m", "input": [user("x")], "store": True, "metadata": {"a": "b"}}
    assert body["input"] == "x"
    assert expand_request({"previous_response_id": "r"}, [message_item("a")], {}) == {"input": [message_item("a")]}


def test_references_are_replaced_once() -> None:
    body = {"input": [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}, {"id": "msg_2"}, {"id": "msg_9"}]}
    got = expand_request(
        body, [message_item("a", "msg_1")], {"msg_1": message_item("a", "msg_1"), "msg_2": message_item("b", "msg_2")}
    )
    assert got["input"] == [message_item("a", "msg_1"), message_item("b", "msg_2"), {"id": "msg_9"}]


def test_a_stored_reference_is_replaced() -> None:
    kept = [{"type": "item_reference", "id": "msg_2"}, message_item("a", "msg_1")]
    got = expand_request({"input": "x"}, kept, {"msg_2": message_item("b", "msg_2")})
    assert got["input"] == [message_item("b", "msg_2"), message_item("a", "msg_1"), user("x")]


def test_compaction_replaces_the_history_before_it() -> None:
    later = {**CALL, "call_id": "late", "async": True}
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    seal = {"type": "compaction", "id": "cmp_1", "encrypted_content": "e"}
    older = {"type": "compaction", "id": "cmp_0", "encrypted_content": "d"}
    history = [user("a"), older, message_item("b"), CALL, RESULT, later, tools, user("c"), seal, message_item("d")]
    late = {**RESULT, "call_id": "late"}
    got = expand_request({"input": [late]}, history, {})
    assert got["input"] == [user("a"), later, tools, user("c"), seal, message_item("d"), late]
    window = [user("a"), user("b"), seal]
    assert expand_request({"input": [*window, message_item("x"), seal]}, [], {})["input"] == [
        *window,
        message_item("x"),
        seal,
    ]


def test_response_only_keys_are_removed() -> None:
    parsed = {**message_item("{}"), "content": [{"type": "output_text", "text": "{}", "annotations": [], "parsed": {}}]}
    call = {**CALL, "parsed_arguments": {}, "async": True, "async_": True}
    got = expand_request({"input": [parsed, call]}, [], {})["input"]
    assert got == [
        {**message_item("{}"), "content": [{"type": "output_text", "text": "{}", "annotations": []}]},
        {**CALL, "async": True},
    ]


# --- lists and conversations ------------------------------------------------------------------------------------------

PAGES: list[tuple[dict[str, str], Page | str]] = [
    ({}, Page()),
    (
        {"limit": "100", "order": "asc", "after": "msg_1", "include": "x"},
        Page(after="msg_1", limit=100, descending=False),
    ),
    ({"limit": "1", "order": "desc"}, Page(limit=1)),
    ({"limit": "0"}, "integer_below_min_value"),
    ({"limit": "101"}, "integer_above_max_value"),
    ({"limit": "many"}, "invalid_type"),
    ({"order": "up"}, "invalid_value"),
]


@pytest.mark.parametrize(("query", "page"), PAGES)
def test_pages(query: dict[str, str], page: Page | str) -> None:
    got = read_page(query)
    if isinstance(page, Page):
        assert got == page
    else:
        assert isinstance(got, Failure)
        assert (got.code, got.status, got.param in query) == (page, 400, True)


def test_a_list_shows_every_message_in_its_full_form() -> None:
    short = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "phase": None}, RESULT, CALL]
    page = write_page(add_missing_ids(short, "s"), True)
    for shape in (ResponseItemList, ConversationItemList):
        shape.model_validate(page)
    first, second, result, call = page["data"]
    assert (first["type"], first["status"], first["content"]) == ("message", "completed", user("a")["content"])
    assert second["content"] == [{"type": "output_text", "text": "b", "annotations": []}]
    assert "phase" not in second
    assert result == {**RESULT, "id": result["id"], "status": "completed"}
    assert call == CALL == write_listed_item(CALL)
    assert (page["first_id"], page["last_id"], page["has_more"]) == (first["id"], "fc_1", True)
    ResponseItemList.model_validate(write_page([], False))


def test_conversations() -> None:
    made = read_conversation({"items": [user("a")], "metadata": {"k": "v"}})
    assert made == ([user("a")], {"k": "v"})
    assert read_conversation({"items": None, "metadata": None}) == ([], {})
    assert read_metadata({"metadata": {}}) == {}
    assert read_added_items({"items": [CALL]}) == [CALL]
    shown = write_conversation("conv_1", 5, {"k": "v"})
    assert Conversation.model_validate(shown).metadata == {"k": "v"}
    ConversationDeletedResource.model_validate(write_deleted("conversation.deleted", "conv_1"))
    assert write_deleted("response", "resp_1") == {"id": "resp_1", "object": "response", "deleted": True}


BAD_CONVERSATIONS: list[tuple[Callable[[dict[str, Any]], object], dict[str, Any], str, str]] = [
    (read_conversation, {"items": [CALL] * 21}, "items", "array_above_max_length"),
    (read_conversation, {"items": "x"}, "items", "invalid_type"),
    (read_conversation, {"items": ["x"]}, "items[0]", "invalid_type"),
    (read_conversation, {"metadata": []}, "metadata", "invalid_type"),
    (read_conversation, {"metadata": {str(n): "v" for n in range(17)}}, "metadata", "object_above_max_properties"),
    (read_metadata, {"metadata": {"k" * 65: "v"}}, "metadata", "string_above_max_length"),
    (read_metadata, {"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
    (read_metadata, {"metadata": {"k": 1}}, "metadata.k", "invalid_type"),
    (read_metadata, {}, "metadata", "missing_required_parameter"),
    (read_added_items, {}, "items", "missing_required_parameter"),
    (read_added_items, {"items": [CALL] * 21}, "items", "array_above_max_length"),
]


@pytest.mark.parametrize(("read", "body", "param", "code"), BAD_CONVERSATIONS)
def test_invalid_conversations(
    read: Callable[[dict[str, Any]], object], body: dict[str, Any], param: str, code: str
) -> None:
    got = read(body)
    assert isinstance(got, Failure)
    assert (got.status, got.param, got.code) == (400, param, code)


NOT_FOUND = [
    (
        "previous",
        400,
        "previous_response_not_found",
        "previous_response_id",
        "Previous response with id 'x' not found.",
    ),
    ("response", 404, None, None, "Response with id 'x' not found."),
    ("conversation", 404, None, None, "Conversation with id 'x' not found."),
    ("item", 404, None, None, "Item with id 'x' not found."),
]


@pytest.mark.parametrize(("kind", "status", "code", "param", "message"), NOT_FOUND)
def test_not_found_errors(kind: str, status: int, code: str | None, param: str | None, message: str) -> None:
    sent = CODEC.write_error(not_found_failure(kind, "x"))
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    assert (sent.status, sent.body) == (status, {"error": error})


# --- responses --------------------------------------------------------------------------------------------------------


def test_pending_failed_and_cancelled_responses() -> None:
    body = {
        "model": "m",
        "input": "x",
        "background": True,
        "instructions": "i",
        "conversation": "conv_1",
        "tools": None,
    }
    options = read_state_options({**body, "conversation": None, "previous_response_id": "resp_0"})
    assert isinstance(options, StateOptions)
    begun = {**write_pending_response(body, 7, "queued"), **write_state_fields(options, derive_id("resp_", "s"), 7)}
    told = Response.model_validate_json(encode(begun))
    assert (told.status, told.created_at, told.instructions, told.background) == ("queued", 7, "i", True)
    assert (told.previous_response_id, told.id[:5]) == ("resp_0", "resp_")
    assert told.conversation is not None
    failed = write_ended_response(begun, "failed", Failure("rate", "too many", retry_after=3))
    assert Response.model_validate_json(encode(failed)).error is not None
    assert failed["error"] == {"code": "rate_limit_exceeded", "message": "too many Please try again in 3s."}
    gone = write_ended_response(begun, "cancelled", None)
    assert (read_text(gone, "status"), gone["error"], read_text(gone, "id")) == ("cancelled", None, begun["id"])
    assert write_state_fields(StateOptions(conversation="c"), "", 7) == {"conversation": {"id": "c"}}
    assert write_state_fields(StateOptions(store=True), "", 7) == {"store": True}


EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def events(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.partition("data: ")[2]) for frame in data.decode().split("\n\n") if frame]


@pytest.mark.parametrize("name", WHOLE)
def test_a_response_as_a_stream(name: str) -> None:
    answer = json.loads((SAMPLES / name).read_text())
    data = write_response_stream(answer)
    told = events(data)
    for number, event in enumerate(told):
        EVENT.validate_python(event)
        assert event["sequence_number"] == number
    assert (told[0]["type"], told[-1]["response"]) == ("response.created", answer)
    assert [event["item"] for event in told if event["type"] == "response.output_item.done"] == answer["output"]
    added_up = ResponseStreamState(text_format=omit, input_tools=omit)
    for event in told:
        added_up.handle_event(EVENT.validate_python(event))
    reader = CODEC.make_stream_reader()
    read = fold([*reader.feed(data), *reader.close()])
    whole = CODEC.read_response(answer)
    assert (strip_origins(read.choices), strip_origins(read.usage), strip_origins(read.failure)) == (
        strip_origins(whole.choices),
        strip_origins(whole.usage),
        strip_origins(whole.failure),
    )
    assert [number for number, _ in number_frames(data)] == list(range(len(told)))
    assert b"".join(frame for _, frame in number_frames(data)) == data


def test_unfinished_and_failed_responses_as_streams() -> None:
    begun = {**write_pending_response({"model": "m"}, 1, "queued"), "id": "resp_1"}
    kinds = {
        status: [event["type"] for event in events(write_response_stream({**begun, "status": status}))]
        for status in ("queued", "in_progress", "cancelled", "failed", "incomplete", "completed")
    }
    assert kinds["queued"] == ["response.created", "response.queued"]
    assert kinds["in_progress"] == ["response.created", "response.in_progress"]
    assert kinds["cancelled"][-1] == kinds["failed"][-1] == "response.failed"
    assert kinds["incomplete"][-1] == "response.incomplete"
    assert events(write_terminal_event({**begun, "status": "completed"}, 9))[0]["sequence_number"] == 9


def test_number_frames() -> None:
    data = b': hi\r\n\r\ndata: {"sequence_number":4,"delta":"x"}\r\n\r\nevent: a\ndata: {"tool":{"sequence_number":9}}\n\ndata: {"sequ'
    assert [number for number, _ in number_frames(data)] == [-1, 4, 4]


# --- the tap ----------------------------------------------------------------------------------------------------------


def run_tap(data: bytes, cuts: list[int], changes: dict[str, Any], last: dict[str, Any]) -> tuple[bytes, Any]:
    tap = StreamTap(changes)
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges) if b > a]
    out = b"".join(map(tap.feed, [*pieces, b""])) + tap.close()
    assert not (tap.response and b"response.completed" in out.rpartition(b"event:")[2])
    return out + tap.release(last), tap.response


SPELLINGS = {
    "as it is": lambda data: data,
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "cr": lambda data: data.replace(b"\n", b"\r"),
    "data alone": lambda data: b"\n\n".join(frame.split(b"\n")[-1] for frame in data.split(b"\n\n")),
    "more blank lines": lambda data: data.replace(b"\n\n", b"\n\n\n"),
    "no last blank line": lambda data: data.rstrip(b"\n"),
    "comments": lambda data: data.replace(b"event:", b": keep-alive\n\nevent:"),
    "done": lambda data: data + b"data: [DONE]\n\n",
}


CUT = [
    (name, spelling)
    for name in STREAMS
    for spelling in SPELLINGS
    if spelling == "as it is" or name in ("function_call.sse", "error_event.sse", "background_queued.sse")
]


@pytest.mark.parametrize(("name", "spelling"), CUT)
def test_a_tapped_stream_is_the_same_stream_however_it_is_cut(name: str, spelling: str) -> None:
    data = SPELLINGS[spelling]((SAMPLES / name).read_bytes())
    every = list(range(len(data)))
    for changes, last in (({}, {}), ({"id": "resp_new"}, {"store": False}), ({}, {"store": False})):
        whole, response = run_tap(data, [], changes, last)
        assert run_tap(data, every, changes, last) == (whole, response)
        if not changes and not last:
            assert whole == data
        if response is not None:
            assert response.get("id") == changes.get("id", response.get("id"))
            assert response["status"] in ("completed", "incomplete", "failed")


SAMPLE = (SAMPLES / "text.sse").read_bytes()


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=12), st.sampled_from(sorted(SPELLINGS)))
def test_any_split_gives_the_same_result(cuts: list[int], spelling: str) -> None:
    data = SPELLINGS[spelling](SAMPLE)
    changes = {"previous_response_id": "resp_0"}
    whole = run_tap(data, [], changes, {"store": False})
    assert run_tap(data, cuts, changes, {"store": False}) == whole
    assert whole[1]["previous_response_id"] == "resp_0"


def test_changes_apply_to_every_lifecycle_event() -> None:
    out, response = run_tap(SAMPLE, [], {"id": "resp_new", "conversation": {"id": "c"}}, {"store": False})
    told = [event["response"] for event in events(out) if "response" in event]
    assert len(told) == 3
    assert all((one["id"], one["conversation"]) == ("resp_new", {"id": "c"}) for one in told)
    assert [one["store"] for one in told] == [True, True, False]
    assert response["store"] is True
    assert [event["type"] for event in events(out)] == [event["type"] for event in events(SAMPLE)]


def test_only_the_last_event_is_held_back() -> None:
    tap = StreamTap({})
    *frames, last = [frame + b"\n\n" for frame in SAMPLE.split(b"\n\n") if frame]
    for frame in frames:
        assert tap.feed(frame) == frame
        assert tap.response is None
    assert tap.feed(last) == b""
    assert tap.response == json.loads(last.partition(b"data: ")[2])["response"]
    assert tap.feed(b": bye\n\n") == b""
    assert tap.release({}) == last + b": bye\n\n"
    assert tap.feed(b"data: [DONE]\n\n") == b"data: [DONE]\n\n"


def test_one_blank_line_too_many_belongs_to_the_next_frame() -> None:
    data = b": hi\n\n\n" + SAMPLE
    whole = run_tap(data, [], {"id": "x"}, {})
    assert all(run_tap(data, [cut], {"id": "x"}, {}) == whole for cut in range(20))


def test_names_of_the_last_event_in_a_text_hold_nothing_back() -> None:
    frames = [
        b'data: {"type":"response.output_text.delta","delta":"response.completed"}\n\n',
        b'data: {"type":"response.output_text.delta","delta":"\\"type\\":\\"response.failed\\""}\n\n',
        b"data: response.completed\n\n",
        b'data: {"type":"response.completed","response":null}\n\n',
        b'data: {"type":"error","code":"server_error","message":"m","param":null}\n\n',
    ]
    tap = StreamTap({"id": "x"})
    assert [tap.feed(frame) for frame in frames] == frames
    assert tap.feed(b": half") + tap.feed(b"") == b""
    assert (tap.close(), tap.response, tap.release({"store": False})) == (b": half", None, b"")


def test_items_missing_in_the_last_event_are_added() -> None:
    done = {"type": "response.output_item.done", "output_index": 0, "item": message_item("response.failed")}
    for response in ({"id": "resp_1"}, {"id": "resp_1", "output": []}, {"id": "resp_1", "output": None}):
        end = {"type": "response.completed", "response": response}
        data = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in (done, end))
        out, whole = run_tap(data, [], {}, {})
        assert out == data
        assert whole == {**response, "status": "completed", "output": [message_item("response.failed")]}


# --- summaries --------------------------------------------------------------------------------------------------------

TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}]
ANSWER = {
    "output": [CALL, message_item("What "), message_item(" "), message_item("was done.")],
    "usage": {"input_tokens": 5},
}


def test_the_request_for_a_summary_keeps_the_cached_prefix() -> None:
    body = {
        "model": "gpt-6", "instructions": "i", "tools": TOOLS, "tool_choice": "required", "stream": True, "store": True,
        "previous_response_id": "r", "conversation": None, "context_management": [{"type": "compaction"}],
        "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "max_output_tokens": 20,
        "input": [{"type": "compaction_trigger"}], "reasoning": {"effort": "low"}, "stream_options": {},
    }  # fmt: skip
    items = read_items_to_store({"input": [user("a"), CALL, RESULT, {"type": "compaction_trigger"}]}, "s")
    got = write_summary_request(body, items)
    assert find_violations(NAME, got) == []
    asked = got.pop("input")
    assert asked[:-1] == [user("a"), CALL, RESULT]
    assert asked[-1]["role"] == "user"
    assert got == {
        "model": "gpt-6", "instructions": "i", "tools": TOOLS, "tool_choice": "none", "store": False,
        "text": {"verbosity": "low"}, "reasoning": {"effort": "low"},
    }  # fmt: skip
    assert "tool_choice" not in write_summary_request({"model": "m"}, items)


def compact_response() -> dict[str, Any]:
    items = read_items_to_store(
        {"input": [user("a"), message_item("b"), CALL, RESULT, {"role": "user", "content": "c"}]}, "s"
    )
    got = write_compact_response({**ANSWER, "usage": None}, items, "seed", 9)
    assert isinstance(got, dict)
    return got


def test_compact_response() -> None:
    got = compact_response()
    told = CompactedResponse.model_validate({**got, "output": got["output"][2:]})
    assert (told.object, told.created_at, told.usage.total_tokens) == ("response.compaction", 9, 0)
    sample = json.loads((SAMPLES / "compact.json").read_text())
    assert list(got) == list(sample)
    assert [list(item) for item in got["output"][1:]] == [list(item) for item in sample["output"]]
    assert [item["type"] for item in got["output"]] == ["message", "message", "compaction"]
    assert [item["content"] for item in got["output"][:2]] == [user("a")["content"], user("c")["content"]]
    (entry,) = envelopes.read_envelope(got["output"][2]["encrypted_content"]) or []
    assert (entry.position, entry.maker, entry.text) == ("summary", "toolwire", "What \n\nwas done.")


def test_summary_response() -> None:
    got = write_summary_response({"model": "m", "input": "x"}, ANSWER, "seed", 9)
    assert isinstance(got, dict)
    told = Response.model_validate_json(encode({**got, "usage": None}))
    assert (told.status, told.completed_at, [item.type for item in told.output]) == ("completed", 9, ["compaction"])
    assert got["usage"] == ANSWER["usage"]
    assert [event["type"] for event in events(write_response_stream(got))][2:] == [
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]


@pytest.mark.parametrize("output", [[], [CALL], [message_item("  ")], None])
def test_no_summary_is_a_failure(output: Any) -> None:
    for got in (
        write_summary_response({}, {"output": output}, "s", 9),
        write_compact_response({"output": output}, [], "s", 9),
    ):
        assert isinstance(got, Failure)
        assert CODEC.write_error(got).status == 502


@pytest.mark.parametrize("target", NAMES)
def test_the_gateway_s_summary_becomes_text(target: str) -> None:
    body = {"model": "gpt-6", "input": [*compact_response()["output"], {"role": "user", "content": "go on"}]}
    got = translate(body, "request", source=NAME, target=target)
    text = got.body.decode()
    assert "was done." in text
    assert ENVELOPE_PREFIX not in text
    assert seals.SUMMARY_INTRO.split("\n")[0] in text
    assert "summary-as-text" in got.ledger.codes
    assert [loss for loss in got.losses if loss.severity == "lost"] == []
    if target != "unified":
        assert find_violations(target, got.json(), "gpt-6") == []
    again = translate(body, "request", source=NAME, target=target)
    assert again.body == got.body


THEIRS = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}


@pytest.mark.parametrize("target", NAMES)
def test_openai_s_summary_goes_only_to_openai(target: str) -> None:
    body = {"model": "m", "input": [user("a"), THEIRS, user("b")]}
    exchange = Exchange(CODEC, find_codec(target), Options())
    got = exchange.translate_request(body)
    if target == NAME:
        assert got.json() == body
        assert (exchange.needs_provider_state, exchange.has_unreadable_summary, got.losses) == (False, False, ())
    else:
        assert (exchange.needs_provider_state, exchange.has_unreadable_summary) == (True, True)
        assert "gAAAA" not in got.body.decode()
        assert "seal-dropped" in got.ledger.codes


@pytest.mark.parametrize("item", [THEIRS, {"type": "compaction", "encrypted_content": "g"}, {**THEIRS, "x": 1}])
def test_a_summary_item_is_read_and_written(item: dict[str, Any]) -> None:
    body = {"model": "m", "input": [user("a"), item]}
    request = CODEC.read_request(body)
    assert strip_origins(request.turns[1].parts[0]) == Summary(
        seal=Seal(NAME, item["encrypted_content"]), id=item.get("id", "")
    )
    assert request.turns[1].role == "user"
    assert CODEC.write_request(request, Ledger(NAME, NAME)) is body
    anew = CODEC.write_request(strip_origins(request), Ledger(NAME, NAME))
    assert anew["input"][1] == {key: value for key, value in item.items() if key != "x"}
    assert not Exchange(CODEC, CODEC).needs_provider_state


BLOCKS: list[tuple[dict[str, Any], bool]] = [
    ({"type": "compaction", "content": "So far."}, True),
    ({"type": "compaction", "content": "So far.", "encrypted_content": "e", "signature": "s"}, True),
    ({"type": "compaction", "content": None, "encrypted_content": "e"}, False),
]


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize(("block", "readable"), BLOCKS)
def test_a_summary_block_is_told_where_it_can_be_read(block: dict[str, Any], readable: bool, target: str) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [block, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]
    body = {"model": "m", "max_tokens": 99, "messages": messages}
    exchange = Exchange(find_codec("anthropic"), find_codec(target), Options())
    got = exchange.translate_request(body)
    if target == "anthropic":
        assert got.json() == body
        return
    assert exchange.has_unreadable_summary is not readable
    assert ("So far." in got.body.decode()) is readable
    assert ("summary-as-text" in got.ledger.codes) is readable


def test_a_summary_block_is_read_and_written() -> None:
    block = {"type": "compaction", "content": "So far.", "encrypted_content": "e"}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": [block]}]}
    there = find_codec("anthropic")
    request = there.read_request(body)
    assert strip_origins(request.turns[0].parts) == (Summary("So far.", Seal("anthropic", "e")),)
    assert there.write_request(strip_origins(request), Ledger("anthropic", "anthropic"))["messages"] == body["messages"]


@pytest.mark.parametrize("target", NAMES)
def test_a_writer_drops_and_reports_a_foreign_summary(target: str) -> None:
    stranger = Summary(seal=Seal("elsewhere", "x"), origin=Origin("elsewhere", None, {}))
    request = Request("m", turns=(Turn("user", (Text("a"), stranger)), Turn("assistant", (stranger, Text("b")))))
    ledger = Ledger("elsewhere", target)
    assert "elsewhere" not in json.dumps(find_codec(target).write_request(request, ledger), default=str)
    assert set(ledger.codes) & {"part-dropped", "seal-dropped"}


# --- ids --------------------------------------------------------------------------------------------------------------


def test_translated_answers_never_share_an_id() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    ids = {translate(answer, "response", source="openai-chat", target=NAME, seed=seed).json()["id"] for seed in "abc"}
    assert len(ids) == 3
    response = CODEC.read_response({"id": "resp_1", "output": [], "status": "completed"})
    assert CODEC.write_response(strip_origins(response), Ledger(NAME, NAME), WriteContext(seed="s"))["id"] == "resp_1"
    assert (
        CODEC.write_response(strip_origins(response), Ledger("openai-chat", NAME), WriteContext(seed="s"))["id"]
        != "resp_1"
    )
