"""Histories that are not a question and an answer in turn: instructions alone, an assistant's turn first, a paused turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import translate
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire_conformance.peers import find_violations
from toolwire_conformance.peers.anthropic import _unfold_block

MODELS = {
    "anthropic": ("claude-opus-5-5", "claude-sonnet-4-5", "claude-3-5-haiku-20241022"),
    "gemini": ("gemini-3.8-flash", "gemini-2.5-pro"),
    "openai-chat": ("gpt-5.5",),
    "openai-responses": ("gpt-5.6",),
    "bedrock-converse": ("us.anthropic.claude-opus-4-6-v1:0", "amazon.nova-pro-v1:0", "meta.llama4-scout-v1:0"),
}
SYSTEM, DEVELOPER = {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Say hi."}
PARTS = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
ASSISTANT, USER = {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "b"}
BLANK_USER, BLANK_SYSTEM = {"role": "user", "content": ""}, {"role": "system", "content": ""}
NO_PARTS = {"role": "user", "content": []}
GEMINI_USER = [{"role": "user", "parts": [{"text": "b"}]}]
UPLOAD = {"type": "container_upload", "file_id": "file_1"}
ASYNC_CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "async": True}
LATE_RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
SOUND = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}}]}


def check_accepted(source: str, body: Any) -> None:
    for target, models in MODELS.items():
        for model in models if target != source else ():
            sent = translate(body, "request", source=source, target=target, model=model)
            assert find_violations(target, sent.json(), model) == [], (target, model)
            added = sum(map(sent.body.decode().count, ("Continue.", "[Media that")))
            assert added == [loss.code for loss in sent.losses].count("turn-added"), (target, model)


MESSAGES = [SYSTEM, DEVELOPER, PARTS, ASSISTANT, USER, SOUND, BLANK_USER, BLANK_SYSTEM, NO_PARTS]


@given(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=5))
def test_any_order_of_messages_is_accepted_and_what_is_added_is_told(messages: list[Any]) -> None:
    check_accepted("openai-chat", {"model": "x", "messages": messages})


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("openai-responses", {"model": "x", "instructions": "Be brief."}),
        ("openai-responses", {"model": "x", "instructions": "Be brief.", "input": []}),
        ("openai-responses", {"model": "x", "instructions": "Be brief.", "input": [DEVELOPER]}),
        ("openai-responses", {"model": "x", "input": [ASSISTANT, USER]}),
        ("anthropic", {"model": "x", "max_tokens": 99, "system": "Be brief.", "messages": []}),
        ("anthropic", {"model": "x", "max_tokens": 99, "messages": [ASSISTANT, USER]}),
        ("gemini", {"contents": [], "systemInstruction": {"parts": [{"text": "Be brief."}]}}),
        ("gemini", {"contents": [{"role": "model", "parts": [{"text": "hi"}]}]}),
        ("gemini", {"contents": [*GEMINI_USER, {"role": "model"}, *GEMINI_USER]}),
        ("gemini", {"contents": GEMINI_USER, "generationConfig": {"stopSequences": []}}),
        ("anthropic", {"model": "x", "max_tokens": 99, "messages": [USER, {"role": "assistant", "content": []}, USER]}),
        ("anthropic", {"model": "x", "max_tokens": 99, "messages": [USER], "stop_sequences": []}),
        ("anthropic", {"model": "x", "max_tokens": 99, "messages": [{"role": "user", "content": [UPLOAD]}]}),
        ("openai-responses", {"model": "x", "input": ""}),
        ("openai-responses", {"model": "x", "input": [USER, ASYNC_CALL]}),
        ("openai-responses", {"model": "x", "input": [USER, ASYNC_CALL, ASSISTANT, USER]}),
        ("openai-responses", {"model": "x", "input": [USER, ASYNC_CALL, ASSISTANT, USER, LATE_RESULT]}),
    ],
)
def test_instructions_alone_and_an_assistants_turn_first_are_accepted(source: str, body: Any) -> None:
    check_accepted(source, body)


def test_a_late_result_stays_where_it_is_for_a_provider_that_knows_such_calls() -> None:
    body = {"model": "gpt-5.6", "input": [USER, ASYNC_CALL, ASSISTANT, USER, LATE_RESULT]}
    sent = translate(body, "request", source="openai-responses", target="openai-responses")
    assert sent.json() == body
    assert find_violations("openai-responses", body) == []
    assert find_violations("openai-responses", {**body, "input": [*body["input"], LATE_RESULT]}) != []


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini", "bedrock-converse"])
def test_a_call_whose_result_comes_later_says_so(target: str) -> None:
    body = {"model": "x", "input": [USER, ASYNC_CALL, ASSISTANT, USER]}
    sent = translate(body, "request", source="openai-responses", target=target, model=MODELS[target][0])
    assert "not available yet" in sent.body.decode()
    assert "result-added" in sent.ledger.codes
    assert b"is_error" not in sent.body


@pytest.mark.parametrize("target", MODELS)
def test_instructions_alone_arrive(target: str) -> None:
    body = {"model": "x", "messages": [SYSTEM, DEVELOPER]}
    sent = json.dumps(translate(body, "request", source="openai-chat", target=target, model=MODELS[target][0]).json())
    assert "Be brief." in sent
    assert "Say hi." in sent


# --- a paused turn ----------------------------------------------------------------------------------------------------

PAGE = {"type": "web_search_result", "url": "https://a.b", "title": "t", "encrypted_content": "EqgfCioIARgB"}
CITED = {"type": "web_search_result_location", "cited_text": "q", "url": "https://a.b", "title": "t"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_01A", "name": "web_search", "input": {"query": "x"}}
CONTENT = [
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "text", "text": "Let me search. "},
    SEARCH,
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01A", "content": [{**PAGE, "page_age": "1 day"}]},
    {"type": "text", "text": "Found. ", "citations": [{**CITED, "encrypted_index": "Eo8"}]},
    {**SEARCH, "id": "srvtoolu_01B"},
]
SEARCHING = {
    "openai-responses": {"model": "m", "input": "q", "tools": [{"type": "web_search"}]},
    "openai-chat": {"model": "m", "messages": [USER], "web_search_options": {}},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "q"}]}], "tools": [{"googleSearch": {}}]},
}


def paused_answer(content: list[Any]) -> Any:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "usage": usage}
    return {**head, "content": content, "stop_reason": "pause_turn", "stop_sequence": None}


def as_stream(answer: Any) -> bytes:
    events: list[Any] = [{"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}]
    for index, block in enumerate(answer["content"]):
        start, deltas = _unfold_block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"output_tokens": 2}})
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        for event in (*events, {"type": "message_stop"})
    )


@pytest.mark.parametrize("model", MODELS["anthropic"][:2])
@pytest.mark.parametrize("client", SEARCHING)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("length", range(3, len(CONTENT) + 1))
def test_a_paused_turn_is_sent_back_as_it_came(model: str, client: str, streamed: bool, length: int) -> None:
    """Anthropic continues it: a user's turn after it would be a question that nobody asked."""
    content = CONTENT[:length]
    exchange = Exchange(find_codec(client), find_codec("anthropic"), Options(model=model))
    exchange.translate_request(SEARCHING[client])
    answer = paused_answer(content)
    rounds = exchange.add_round(as_stream(answer) if streamed else answer, streamed)
    assert rounds is not None
    messages = json.loads(exchange.next_request(rounds, ()))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[-1]["content"] == content


def test_a_turn_that_pauses_twice_is_one_turn() -> None:
    exchange = Exchange(find_codec("openai-chat"), find_codec("anthropic"), Options(model="claude-opus-5-5"))
    exchange.translate_request(SEARCHING["openai-chat"])
    sent: list[Any] = []
    for content in (CONTENT[:4], CONTENT[4:]):
        rounds = exchange.add_round(paused_answer(content))
        assert rounds is not None
        sent = json.loads(exchange.next_request(rounds, ()))["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"]
    assert sent[-1]["content"] == CONTENT


# --- reasoning that only OpenAI's store knows -------------------------------------------------------------------------

ASKED = {"role": "user", "content": "q"}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}
BARE: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
SUMMARISED = {**BARE, "summary": [{"type": "summary_text", "text": "s"}]}
SEALED = {**BARE, "encrypted_content": "gAAAA"}
ITEMS = [(BARE,), (SUMMARISED,), (BARE, {**BARE, "id": "rs_2"}), ({**BARE, "encrypted_content": None},)]


@pytest.mark.parametrize("bare", ITEMS)
@pytest.mark.parametrize("after", [(CALLED, OUTPUT), (SAID, ASKED), (ASKED,)])
def test_a_bare_reasoning_item_is_never_sent_where_nothing_is_stored(bare: tuple[Any, ...], after: Any) -> None:
    """OpenAI answers `Item with id 'rs_1' not found`."""
    body = {"model": "gpt-5.5", "store": False, "input": [ASKED, *bare, *after]}
    sent = translate(body, "request", source="openai-responses", target="openai-responses")
    assert not any(item.get("type") == "reasoning" for item in sent.json()["input"])
    assert "id" not in sent.json()["input"][1]  # by which OpenAI may know that reasoning belongs before it
    assert [loss.code for loss in sent.losses] == ["reasoning-dropped"] * len(bare)
    assert find_violations("openai-responses", sent.json(), "gpt-5.5") == []


@pytest.mark.parametrize("settings", [{}, {"store": True}, {"store": None}])
def test_where_answers_are_stored_a_bare_reasoning_item_is_known(settings: Any) -> None:
    body = {"model": "gpt-5.5", **settings, "input": [ASKED, BARE, CALLED, OUTPUT]}
    assert translate(body, "request", source="openai-responses", target="openai-responses").json() == body


@pytest.mark.parametrize("item", [SEALED, {**BARE, "content": [{"type": "reasoning_text", "text": "all of it"}]}])
def test_reasoning_that_is_all_there_is_sent(item: Any) -> None:
    body = {"model": "gpt-5.5", "store": False, "input": [ASKED, item, CALLED, OUTPUT]}
    assert translate(body, "request", source="openai-responses", target="openai-responses").json() == body


@pytest.mark.parametrize("source", ["openai-chat", "anthropic", "gemini"])
@pytest.mark.parametrize(("model", "asked"), [("gpt-5.6", True), ("o3", True), ("gpt-4.1", False), ("my-model", False)])
def test_encrypted_reasoning_is_asked_for_where_the_model_reasons(source: str, model: str, asked: bool) -> None:
    """A model that does not reason refuses to be asked for it."""
    bodies: dict[str, Any] = {
        "openai-chat": {"model": "x", "messages": [ASKED]},
        "anthropic": {"model": "x", "max_tokens": 99, "messages": [ASKED]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
    }
    sent = translate(bodies[source], "request", source=source, target="openai-responses", model=model).json()
    assert ("reasoning.encrypted_content" in sent.get("include", [])) == asked


# --- empty text at the end of a stream --------------------------------------------------------------------------------

GEMINI_PARTS: list[Any] = [
    [{"text": "hi"}, {"text": ""}],
    [{"text": ""}],
    [{"text": ""}, {"text": "hi"}, {"text": ""}],
    [{"text": "hi"}, {"text": "", "thoughtSignature": "c2ln"}],
    [{"text": "so", "thought": True}, {"text": "hi"}, {"text": ""}],
]


@pytest.mark.parametrize("parts", GEMINI_PARTS)
@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic", "unified"])
def test_empty_parts_of_gemini_do_not_become_empty_messages(parts: Any, target: str) -> None:
    asked, next_asked = ({"role": "user", "parts": [{"text": text}]} for text in ("q", "n"))
    body = {"contents": [asked, {"role": "model", "parts": parts}, next_asked]}
    sent = translate(body, "request", source="gemini", target=target, model="m").json()
    turns = sent["input"] if target == "openai-responses" else sent["messages"]
    said = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    assert "" not in said
    assert '""' not in json.dumps(said)
    assert ("hi" in json.dumps(said)) == ("hi" in json.dumps(parts))
    same = translate(body, "request", source="gemini", target="gemini", model="gemini-2.5-pro").json()
    assert same["contents"] == body["contents"]
