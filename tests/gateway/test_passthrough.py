"""Same protocol in and out: bytes pass untouched but for the model's name; and answers that pause are continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.raw_exchange import (
    PROVIDERS,
    RawAnswer,
    Served,
    answer,
    ask,
    call,
    frames,
    is_complete,
    path_of,
    stage,
    text_of,
    whole_answer,
    write_chunked,
)
from toolwire.core.envelopes import ENVELOPE_PREFIX, EnvelopeEntry, write_envelope
from toolwire_conformance.peers.peer import encode_json

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
SAME = pytest.mark.parametrize("protocol", PROVIDERS)


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rules = "".join(
        f'[models."alias-{name}-*"]\nprovider = "{name}"\n' for name in ("chat", "responses", "anthropic", "gemini")
    )
    rules += '[models.old]\nprovider = "anthropic"\nmodel = "claude-opus-4-8-s990x"\n'
    rules += '[models.capped]\nprovider = "anthropic"\nmodel = "claude-sonnet-4-5-s991x"\nmax_output_tokens = 7\n'
    with stage(tmp_path_factory.mktemp("passing"), more=rules) as staged:
        yield staged


# --- requests ---

ODD = {
    "openai-chat": '{ "messages" :\t[{"content":"Caf\\u00e9 \\ud83d\\ude00 🌍 \\/", "role": "user", "x_note": {"model": "inner", "n": 1.50}}],\r\n "temperature": 1.0E+0, "big": 123456789012345678901234567890,\n"model"%s:  "%s"%s }\n',
    "openai-responses": '{"x_new":{"deep":[1,2.0,-0,1e2]},"input": "Caf\\u00e9 🌍","store":false ,"model"%s:"%s"%s}',
    "anthropic": '{"max_tokens":100.0e0,\n "messages":[{"role":"user","content":"Caf\\u00e9 🌍 \\u2028"}] , "x_new": [null , {"model":"inner"}],"model"%s: "%s"%s}',
    "gemini": '{"contents":[{"parts":[{"text":"Caf\\u00e9 🌍","xNew":{"model":"inner"}}],"role":"user"}],"generationConfig":{"temperature":1.00%s%.0s%s}}',
}


def _odd_body(protocol: str, model: str, stream: bool) -> bytes:
    flag = ', "stream" : true' if stream and protocol != "gemini" else ""
    return (ODD[protocol] % ("", model, flag)).encode()


@STREAMS
@SAME
@pytest.mark.parametrize("way", ["provider", "alias"])
def test_requests_arrive_byte_for_byte_but_for_the_models_name(
    served: Served, protocol: str, stream: bool, way: str
) -> None:
    provider = {"openai-chat": "chat", "openai-responses": "responses"}.get(protocol, protocol)
    play = write_chunked(*frames(protocol)) if stream else whole_answer(protocol)
    scene = served.scene(protocol, play, model=f"alias-{provider}")
    asked = scene.model if way == "provider" else scene.name
    sent = _odd_body(protocol, asked, stream)
    got = ask(served.port, "POST", path_of(protocol, asked, stream), sent)
    assert got.status == 200, got.data
    assert scene.asked[0].body.decode() == _odd_body(protocol, scene.name, stream).decode()
    line = served.line(got.id)
    assert (line["passthrough"], line["input_tokens"], line["output_tokens"]) == (True, 25, 12)


@STREAMS
@SAME
def test_half_of_a_character_is_replaced_and_reported(served: Served, protocol: str, stream: bool) -> None:
    """Agents cut texts between the halves of a surrogate pair, and providers refuse such a request."""
    play = write_chunked(*frames(protocol)) if stream else whole_answer(protocol)
    scene = served.scene(protocol, play)
    sent = _odd_body(protocol, scene.model, stream).replace(b"Caf", b"\\ud83dCaf")
    got = ask(served.port, "POST", path_of(protocol, scene.model, stream), sent)
    assert got.status == 200, got.data
    assert "\ufffdCaf" in json.dumps(json.loads(scene.asked[0].body), ensure_ascii=False)
    assert "text-repaired" in json.dumps(served.line(got.id)["losses"])


FUNCTION = {"type": "function", "name": "f"}
DECLARED = [{"functionDeclarations": [{"name": "f"}]}]
UNUSUAL = [
    ("openai-responses", {"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"tool_choice": FUNCTION}),
    (
        "openai-responses",
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            }
        },
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}},
    ),
    (
        "gemini",
        {"config": {"systemInstruction": "Be brief.", "tools": DECLARED, "temperature": 1, "labels": {"a": "b"}}},
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": DECLARED,
            "generationConfig": {"temperature": 1},
            "labels": {"a": "b"},
        },
    ),
    (
        "gemini",
        {
            "generationConfig": {"topK": 1},
            "tools": DECLARED,
            "config": {"tool_config": {"functionCallingConfig": {"mode": "ANY"}}},
        },
        {"generationConfig": {"topK": 1}, "tool_config": {"functionCallingConfig": {"mode": "ANY"}}},
    ),
]
"""A protocol, members that clients send and its servers refuse, and what a server gets."""


@pytest.mark.parametrize(("protocol", "given", "sent"), UNUSUAL)
def test_what_servers_refuse_is_written_as_they_take_it(
    served: Served, protocol: str, given: dict[str, Any], sent: dict[str, Any]
) -> None:
    scene = served.scene(protocol, whole_answer(protocol))
    tools = [{**FUNCTION, "parameters": {}}] if protocol == "openai-responses" else None
    more = {"tools": tools} if tools else {}
    assert call(served, protocol, scene.model, False, **more, **given).status == 200
    got = json.loads(scene.asked[0].body)
    assert {key: got.get(key) for key in sent} == sent
    assert "config" not in got


UNION = {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object"}]}
FILTER = {"type": "object", "properties": {"$filter": {"type": "string"}}}
DOUBLE = {"type": "object", "properties": {"a": {"type": "double"}}}
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "openai-chat",
        "gpt-5.5",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": UNION}}]},
        "schema-rewritten",
    ),
    ("openai-chat", "gpt-5.5", {"max_tokens": 50}, "setting-mapped"),
    ("openai-chat", "gpt-4.1", {"tools": []}, "setting-mapped"),
    ("openai-chat", "gpt-5.5", {"tool_choice": "auto"}, "setting-mapped"),
    ("openai-chat", "gpt-4o", {"parallel_tool_calls": False}, "setting-mapped"),
    ("openai-chat", "o3", {"tools": [], "tool_choice": "none", "parallel_tool_calls": True}, "setting-mapped"),
    ("openai-chat", "gpt-5.5", {"stop": ["END"]}, "no-counterpart"),
    ("openai-chat", "gpt-6", {"temperature": 0.2}, "no-counterpart"),
    ("openai-chat", "gpt-5-mini", {"temperature": 0}, "no-counterpart"),
    ("openai-chat", "gpt-5.1", {"temperature": 0, "reasoning_effort": "low"}, "no-counterpart"),
    ("openai-responses", "gpt-6", {"temperature": 0.2}, "no-counterpart"),
    ("openai-responses", "gpt-5.5", {"temperature": 0.2}, "no-counterpart"),
    ("openai-responses", "gpt-5.5", {"tools": [FUNCTION | {"parameters": UNION}]}, "schema-rewritten"),
    ("anthropic", "claude-opus-4-8", {"tools": [{"name": "f", "input_schema": FILTER}]}, "schema-rewritten"),
    ("anthropic", "claude-opus-4-8", {"tools": [{"name": "a.b", "input_schema": DOUBLE}]}, "name-rewritten"),
    (
        "gemini",
        "gemini-3-pro",
        {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": DOUBLE}]}]},
        "schema-rewritten",
    ),
    ("gemini", "gemini-3-pro", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "choice-weakened"),
    (
        "gemini",
        "gemini-3-pro",
        {"contents": [{"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]},
        "shape-repaired",
    ),
]
"""A protocol, a model, what its own clients send and the model's server is known to refuse, and the code of the change.
`laws/test_accepted_requests.py` has more of them."""


@STREAMS
@pytest.mark.parametrize(("protocol", "model", "given", "code"), REFUSED)
def test_what_a_model_is_known_to_refuse_is_mended_within_its_protocol(
    served: Served, protocol: str, model: str, given: dict[str, Any], code: str, stream: bool
) -> None:
    play = write_chunked(*frames(protocol)) if stream else whole_answer(protocol)
    scene = served.scene(protocol, play, model=model)
    got = call(served, protocol, scene.model, stream, **given)
    assert got.status == 200, got.data
    sent, refused = json.loads(scene.asked[0].body), json.dumps(given)[1:-1]
    assert refused not in json.dumps(sent)
    assert code in json.dumps(served.line(got.id)["losses"])


@pytest.mark.parametrize(
    ("message", "mended"),
    [
        ({"content": {"type": "text", "text": "Hi"}}, {"content": "Hi"}),
        (
            {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
            {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]},
        ),
        (
            {"content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {
                "content": "Hi",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        ),
    ],
    ids=["content", "arguments", "call"],
)
def test_an_answer_in_an_odd_shape_is_mended_for_clients_of_its_protocol(
    served: Served, message: dict[str, Any], mended: dict[str, Any]
) -> None:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": "stop"}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    scene = served.scene("openai-chat", answer(200, json.dumps(body).encode()), model="command-z")
    got = call(served, "openai-chat", scene.model, False)
    assert json.loads(got.data)["choices"][0]["message"].items() >= mended.items()
    assert got.headers["x-toolwire-losses"] == "1; codes=shape-repaired"
    assert "shape-repaired" in json.dumps(served.line(got.id)["losses"])


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_what_only_openai_refuses_passes_to_other_models(served: Served, name: str) -> None:
    protocol = f"openai-{name}"
    scene = served.scene(protocol, whole_answer(protocol), model="command-z")
    function = {"name": "a.b", "parameters": UNION}
    tool = {"type": "function", "function": function} if name == "chat" else {"type": "function", **function}
    got = call(served, protocol, scene.model, False, tools=[tool], max_tokens=5)
    assert json.loads(scene.asked[0].body)["tools"] == [tool]
    assert served.line(got.id)["passthrough"] is True


def test_a_setting_in_config_and_beside_it_is_refused(served: Served) -> None:
    scene = served.scene("gemini", whole_answer("gemini"))
    more = {"generationConfig": {"topK": 1}, "config": {"topK": 2}}
    got = call(served, "gemini", scene.model, False, **more)
    assert got.status == 400
    assert b"/config/topK" in got.data


@SAME
def test_a_model_in_the_path_is_all_that_changes_there(served: Served, protocol: str) -> None:
    scene = served.scene(protocol, whole_answer(protocol))
    call(served, protocol, scene.model, False)
    assert scene.asked[0].target == path_of(protocol, scene.name, False)


def test_an_escaped_key_and_a_name_that_is_also_inside(served: Served) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    for body in (
        b'{"messages":[{"role":"user","content":"Hi"}],"mod\\u0065l":"%b"}' % scene.model.encode(),
        b'{"metadata":{"model":"inner"},"messages":[{"role":"user","content":"Hi"}],"model":"%b"}'
        % scene.model.encode(),
    ):
        assert ask(served.port, "POST", "/v1/chat/completions", body).status == 200
        sent = scene.asked[-1].body
        assert json.loads(sent)["model"] == scene.name
        assert scene.model.encode() not in sent


def test_our_own_envelope_is_opened_before_it_goes_anywhere(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"))
    sealed = write_envelope([EnvelopeEntry("reasoning", "gemini/elsewhere", "c2VhbA==", "hm")])
    thinking = {"type": "thinking", "thinking": "hm", "signature": sealed}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "a"}]},
        {"role": "user", "content": "b"},
    ]
    got = call(served, "anthropic", scene.model, False, messages=turns)
    assert got.status == 200
    assert ENVELOPE_PREFIX.encode() not in scene.asked[0].body
    assert "passthrough" not in served.line(got.id)


def test_an_alias_of_another_family_is_fitted_not_passed(served: Served) -> None:
    """A fixed budget of thinking is an error for newer models, which think as they see fit."""
    scene = served.scene("anthropic", whole_answer("anthropic"))
    served.wire.scenes[b"s990x"] = scene
    body = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000, "temperature": 1}
    got = call(served, "anthropic", "old", False, **body)
    assert got.status == 200, got.data
    sent = scene.asked[0].json()
    assert sent["model"] == "claude-opus-4-8-s990x"
    assert sent["thinking"]["type"] == "adaptive"


def test_an_operators_limit_is_no_passing(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"))
    served.wire.scenes[b"s991x"] = scene
    got = call(served, "anthropic", "capped", False)
    assert scene.asked[0].json()["max_tokens"] == 7
    assert "setting-clamped" in got.headers["x-toolwire-losses"]


# --- answers ---


@SAME
def test_a_whole_answer_arrives_byte_for_byte(served: Served, protocol: str) -> None:
    body = whole_answer(protocol).partition(b"\r\n\r\n")[2]
    odd = b" " + body.replace(b":", b" :\t", 3)[:-1] + b', "x_new": {"a": 1.50, "b": "\\u00e9\xf0\x9f\x8c\x8d"}}\r\n'
    scene = served.scene(protocol, answer(200, odd))
    got = call(served, protocol, scene.model, False)
    assert got.data == odd


@SAME
@pytest.mark.parametrize("size", [1, 7, 100000])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_a_stream_arrives_byte_for_byte_however_it_is_cut(
    served: Served, protocol: str, size: int, ends: bytes
) -> None:
    every = frames(protocol, "Grüße, 🌍! 你好")
    strange = 'event: new.kind\nid: 7\ndata: {"type": "new.kind", "x": "🌍"}\n\n'.encode()
    data = (
        b": a comment\n\n"
        + every[0]
        + (strange if protocol != "gemini" else b": 1\n\n")
        + b"".join(every[1:])
        + b": bye\n\n"
    )
    data = data.replace(b"\n", ends)
    scene = served.scene(protocol, write_chunked(*(data[at : at + size] for at in range(0, len(data), size))))
    got = call(served, protocol, scene.model, True)
    assert got.data == data
    line = served.line(got.id)
    assert (line["input_tokens"], line["output_tokens"], line["passthrough"]) == (25, 12, True)


@SAME
def test_headers_of_the_same_protocol_pass_and_others_do_not(served: Served, protocol: str) -> None:
    scene = served.scene(
        protocol,
        whole_answer(
            protocol,
            set_cookie="a=b",
            server="theirs",
            x_ratelimit_limit_requests="5",
            anthropic_organization_id="o",
            openai_processing_ms="7",
            retry_after="1",
        ),
    )
    got = call(served, protocol, scene.model, False)
    assert "set-cookie" not in got.headers
    assert got.headers.get("server") != "theirs"
    assert ("openai-processing-ms" in got.headers) == protocol.startswith("openai")
    assert ("anthropic-organization-id" in got.headers) == (protocol == "anthropic")


# --- answers that pause ---

SEARCH: dict[str, dict[str, Any]] = {
    "openai-chat": {"web_search_options": {}},
    "openai-responses": {"tools": [{"type": "web_search"}]},
    "gemini": {"tools": [{"googleSearch": {}}]},
    "anthropic": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
}


def paused_answer(text: str, reason: str, stream: bool) -> bytes:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 12},
    }
    if not stream:
        return answer(200, encode_json(body).encode())
    from toolwire_conformance.peers import PEERS

    return write_chunked(*(frame.encode() for frame in PEERS["anthropic"].write_stream(body)))


@STREAMS
@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "gemini"])
def test_an_answer_that_pauses_is_continued_inside(served: Served, client: str, stream: bool) -> None:
    plays = [
        paused_answer("One, ", "pause_turn", stream),
        paused_answer("two, ", "pause_turn", stream),
        paused_answer("three.", "end_turn", stream),
    ]
    scene = served.scene("anthropic", *plays)
    got = call(served, client, scene.model, stream, **SEARCH[client])
    assert got.status == 200, got.data
    assert text_of(client, got, stream) == "One, two, three."
    assert not stream or is_complete(client, got.frames)
    assert [len(asked.json()["messages"]) for asked in scene.asked] == [1, 2, 2]
    again = scene.asked[2].json()["messages"][-1]
    assert again["role"] == "assistant"
    assert [block["text"].strip() for block in again["content"]] == ["One,", "two,"]
    line = served.line(got.id)
    assert (line["input_tokens"], line["output_tokens"]) == (75, 36)
    assert _ends(client, got, stream) == 1


def _ends(client: str, got: RawAnswer, stream: bool) -> int:
    """How many endings an answer has."""
    if not stream:
        return 1
    words = {"openai-chat": b"[DONE]", "openai-responses": b"event: response.completed", "gemini": b'"finishReason"'}
    return got.data.count(words[client])


@STREAMS
def test_a_client_that_knows_pauses_gets_them(served: Served, stream: bool) -> None:
    scene = served.scene("anthropic", paused_answer("One, ", "pause_turn", stream))
    got = call(served, "anthropic", scene.model, stream, **SEARCH["anthropic"])
    assert b'"pause_turn"' in got.data
    assert len(scene.asked) == 1


@STREAMS
@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "gemini"])
def test_a_pause_that_does_not_go_on_is_a_failure(served: Served, client: str, stream: bool) -> None:
    scene = served.scene("anthropic", paused_answer("One, ", "pause_turn", stream), answer(500, b"{}"))
    got = call(served, client, scene.model, stream, **SEARCH[client])
    if stream:
        assert not is_complete(client, got.frames)
        assert b"status 500" in got.data
    else:
        assert got.status == 500


@STREAMS
def test_an_answer_that_pauses_for_ever_is_given_up(served: Served, stream: bool) -> None:
    scene = served.scene("anthropic", paused_answer("One, ", "pause_turn", stream))
    got = call(served, "openai-chat", scene.model, stream, **SEARCH["openai-chat"])
    assert b"paused" in got.data
    assert got.status == (200 if stream else 502)
    assert len(scene.asked) < 20
