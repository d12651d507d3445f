"""Converse: its samples, the rules of the models behind it, and the faults that other gateways had with it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from material import NAMES, SAMPLES
from toolwire import Stream, ToolOutput, build_tool_results, parse_tool_calls, translate
from toolwire.core.codec import WriteContext
from toolwire.core.events import StreamChecker, fold
from toolwire.core.ir import Call, Failure, Reasoning, Response, Text
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec
from toolwire.protocols.bedrock_converse.errors import write_stream_error
from toolwire_conformance.peers import find_violations

NAME = "bedrock-converse"
CODEC = find_codec(NAME)
FOLDER = SAMPLES / "bedrock_converse"
GOOD = sorted(FOLDER.glob("[!n]*.bin"))
ODD = sorted(FOLDER.glob("negative_*.bin"))
ERRORS = sorted(path for path in FOLDER.glob("error_*.json"))
VERIFIED: dict[str, Any] = json.loads((FOLDER / "VERIFIED_BEDROCK.json").read_text())
CLAUDE, NOVA, LLAMA = "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0", "meta.llama4-scout-v1:0"
PROFILE = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def read_stream(data: bytes, size: int = 0) -> Response:
    reader, checker = CODEC.make_stream_reader(), StreamChecker()
    step = size or len(data)
    events = [event for at in range(0, len(data), step) for event in reader.feed(data[at : at + step])]
    events += reader.close()
    assert [fault for event in events if (fault := checker.check_event(event))] == []
    return fold(events)


def send(body: Any, source: str = "openai-chat", model: str = CLAUDE) -> tuple[Any, set[str]]:
    """A request as the provider gets it, which it must accept, and the codes of the losses."""
    sent = translate(body, "request", source=source, target=NAME, model=model)
    assert find_violations(NAME, sent.json(), model) == []
    return sent.json(), {loss.code for loss in sent.losses}


def chat(*messages: Any, **more: Any) -> Any:
    return {"model": "m", "messages": [{"role": "user", "content": "q"}, *messages], **more}


def write_calls(*ids: str, name: str = "f") -> Any:
    calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def write_results(*ids: str) -> list[Any]:
    return [{"role": "tool", "tool_call_id": id, "content": f"result of {id}"} for id in ids]


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*GOOD, *ODD], ids=lambda path: path.stem)
def test_any_split_reads_the_same(path: Path) -> None:
    data = path.read_bytes()
    assert len({repr(read_stream(data, size)) for size in (0, 1, 7, 50)}) == 1


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_stream_is_written_back_without_its_padding(path: Path) -> None:
    data = path.read_bytes()
    reader, ledger = CODEC.make_stream_reader(), Ledger(NAME, NAME)
    writer = CODEC.make_stream_writer(ledger, WriteContext())
    out = b"".join([writer.write(event) for event in (*reader.feed(data), *reader.close())]) + writer.close()
    assert read_frames(out) == read_frames(data)
    assert b'"p":' not in out
    assert ledger.losses == ()


def read_frames(data: bytes) -> list[tuple[str, Any]]:
    lines = CODEC.http.framing.write_text(data).split("\n\n")
    frames = [block.split("\n") for block in lines if block]
    loaded = [(head.removeprefix("event: "), json.loads(text.removeprefix("data: "))) for head, text in frames]
    return [
        (name, {k: v for k, v in one.items() if k != "p"} if isinstance(one, dict) else one) for name, one in loaded
    ]


FAILED = {
    "bad_message_crc": "does not match its checksum",
    "bad_prelude_crc": "does not match its checksum",
    "no_message_stop": "ended before its answer did",
    "payload_not_json": "not JSON",
    "sse_body": "does not match its checksum",
    "truncated_frame": "ended before its answer did",
    "two_union_members": "it has 2 members (`text`, `toolUse`)",
}
"""What is never a success; every other odd stream is an answer."""


@pytest.mark.parametrize("path", ODD, ids=lambda path: path.stem)
def test_an_odd_stream_is_an_answer_or_says_what_is_wrong(path: Path) -> None:
    response = read_stream(path.read_bytes())
    expected = FAILED.get(path.stem.removeprefix("negative_"))
    if expected is None:
        assert response.failure is None
        assert response.choices[0].finish is not None
    else:
        assert response.failure is not None
        assert expected in response.failure.message


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_stream_is_what_the_whole_answer_is(client: str, path: Path) -> None:
    stream = Stream(source=NAME, target=client)
    stream.feed(path.read_bytes())
    stream.close()
    is_failure = path.stem.startswith(("exception_", "error_"))
    assert (stream.failure is not None) == is_failure


@pytest.mark.parametrize("path", sorted(FOLDER.glob("whole_*.json")), ids=lambda path: path.stem)
def test_an_answer_comes_back_as_it_was(path: Path) -> None:
    body = json.loads(path.read_text())
    assert translate(body, "response", source=NAME, target=NAME).json() == body
    peek = CODEC.peek_response(path.read_bytes())
    response = CODEC.read_response(body)
    assert peek is not None
    assert (peek.called_tools, peek.usage and peek.usage.input) == (
        response.called_tools,
        response.usage and response.usage.input,
    )


KINDS = {
    "400_validation": "invalid",
    "403_access_denied": "permission",
    "403_expired_token": "authentication",
    "403_signature": "authentication",
    "404_model": "not_found",
    "408_timeout": "deadline",
    "424_model_error": "upstream",
    "429_not_ready": "overloaded",
    "429_throttling": "rate",
    "500_internal": "server",
    "503_unavailable": "overloaded",
}


@pytest.mark.parametrize("name", KINDS)
def test_errors_are_known_by_their_type(name: str) -> None:
    text = (FOLDER / f"error_{name}.json").read_text()
    told = {
        "400_validation": "ValidationException:http://internal.amazon.com/",
        "403_access_denied": "AccessDeniedException",
        "403_expired_token": "ExpiredTokenException",
        "403_signature": "InvalidSignatureException",
        "404_model": "ResourceNotFoundException",
        "408_timeout": "ModelTimeoutException",
        "424_model_error": "ModelErrorException",
        "429_not_ready": "ModelNotReadyException",
        "429_throttling": "ThrottlingException",
        "500_internal": "InternalServerException",
        "503_unavailable": "ServiceUnavailableException",
    }[name]
    body, status = json.loads(text), int(name[:3])
    failure = CODEC.read_error(body, status, {"x-amzn-ErrorType": told})
    assert failure.kind == KINDS[name] or (name == "424_model_error" and "originalStatusCode" in body)
    by_body = CODEC.read_error({**body, "__type": f"com.amazonaws.bedrock#{told.partition(':')[0]}"}, status, {})
    assert by_body.kind == failure.kind


def test_the_error_of_a_model_keeps_its_status_and_its_type() -> None:
    body = {"message": "the model failed", "originalStatusCode": 401}
    sent = CODEC.write_error(CODEC.read_error(body, 424, {"x-amzn-errortype": "ModelErrorException"}))
    assert (sent.status, sent.body) == (424, body)
    assert sent.headers["x-amzn-errortype"] == "ModelErrorException"


@pytest.mark.parametrize("code", ["refused", "dns", "connection-closed", "stream_truncated"])
def test_boto3_tries_again_when_a_provider_was_not_reached(code: str) -> None:
    """It does not after 424. A stream that has begun is not asked for again: its error says what it is."""
    failure = Failure("upstream", "no connection", 502, code)
    assert CODEC.write_error(failure).status in (500, 502, 503, 504)
    assert b"modelStreamErrorException" in write_stream_error(failure)


@pytest.mark.parametrize("path", ERRORS, ids=lambda path: path.stem)
def test_every_error_reaches_every_client(path: Path) -> None:
    for client in NAMES:
        back = translate(path.read_bytes(), "error", source=NAME, target=client, status=500)
        assert back.status >= 400
        assert back.body


# --- faults of others -------------------------------------------------------------------------------------------------


def test_1_the_index_of_a_block_is_no_number_of_a_choice_or_a_call() -> None:
    """litellm#19506, higress#3786."""
    stream = Stream(source=NAME, target="openai-chat")
    text = stream.feed((FOLDER / "text_then_tool_use.bin").read_bytes()).decode()
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert {choice["index"] for choice in choices} == {0}
    assert {call["index"] for choice in choices for call in choice["delta"].get("tool_calls", ())} == {0}


@pytest.mark.parametrize("reason", ["end_turn", "tool_use"])
def test_2_calls_are_known_by_their_blocks(reason: str) -> None:
    """bifrost#5206, strands#1827: a turn with calls ends with `tool_use`, whatever it was said to end with."""
    body = json.loads((FOLDER / "whole_parallel_tool_use.json").read_text()) | {"stopReason": reason}
    assert (
        translate(body, "response", source=NAME, target="openai-chat").json()["choices"][0]["finish_reason"]
        == "tool_calls"
    )
    empty = json.loads((FOLDER / "whole_text.json").read_text()) | {"stopReason": reason}
    assert (
        translate(empty, "response", source=NAME, target="openai-chat").json()["choices"][0]["finish_reason"] == "stop"
    )


def test_2_a_client_of_converse_gets_tool_use() -> None:
    answer = {"choices": [{"index": 0, "message": {**write_calls("c1"), "content": None}, "finish_reason": "stop"}]}
    assert translate(answer, "response", source="openai-chat", target=NAME).json()["stopReason"] == "tool_use"


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("data", [b"", (FOLDER / "negative_no_message_stop.bin").read_bytes()], ids=["empty", "cut"])
def test_3_a_stream_without_its_end_is_a_failure(client: str, data: bytes) -> None:
    """pi#4210, litellm#32686."""
    stream = Stream(source=NAME, target=client)
    stream.feed(data)
    stream.close()
    assert stream.failure is not None


def test_4_tokens_of_the_cache_are_counted_once() -> None:
    """ruby_llm#828, litellm#15270, bifrost#4746, weave#7328."""
    whole = translate(
        (FOLDER / "whole_cache_usage.json").read_bytes(), "response", source=NAME, target="anthropic"
    ).json()
    usage = whole["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (
        12,
        4000,
        1024,
    )
    streamed = read_stream((FOLDER / "cache_usage_tier.bin").read_bytes()).usage
    assert streamed is not None
    assert (streamed.input, streamed.cache_read, streamed.cache_write, streamed.cache_write_1h) == (
        5036,
        4000,
        1024,
        512,
    )
    prompt = translate(
        (FOLDER / "whole_cache_usage.json").read_bytes(), "response", source=NAME, target="openai-chat"
    ).json()
    assert prompt["usage"]["prompt_tokens"] == 5036


def anthropic_body(**more: Any) -> Any:
    mark = {"cache_control": {"type": "ephemeral"}}
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "s", **mark}],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, **mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r", **mark}]},
                    {"type": "text", "text": "and?", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                ],
            },
        ],
        **more,
    }


@pytest.mark.parametrize("model", [CLAUDE, PROFILE])
def test_5_cache_points_follow_what_they_are_of(model: str) -> None:
    """bifrost#5629, #5824, #6933 (profiles), litellm#32155 (lifetimes), Portkey#1762 (not inside of results)."""
    sent, _ = send(anthropic_body(), "anthropic", model)
    point = {"cachePoint": {"type": "default"}}
    assert sent["toolConfig"]["tools"][-1] == sent["system"][-1] == point
    last = sent["messages"][-1]["content"]
    assert [next(iter(block)) for block in last] == ["toolResult", "cachePoint", "text", "cachePoint"]
    assert "cachePoint" not in json.dumps(last[0])
    assert last[3] == point  # an hour may not follow five minutes


def test_5_an_hour_stays_an_hour() -> None:
    body = anthropic_body(system="s", tools=[{"name": "f", "description": "d", "input_schema": {"type": "object"}}])
    body["messages"][2]["content"][0]["content"] = "r"
    sent, _ = send(body, "anthropic")
    assert sent["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


def test_5_there_are_at_most_four_and_none_for_others() -> None:
    """twenty#26217; models that refuse them get none."""
    body = anthropic_body()
    body["messages"][0]["content"] = [
        {"type": "text", "text": f"q{number}", "cache_control": {"type": "ephemeral"}} for number in range(3)
    ]
    sent, codes = send(body, "anthropic")
    assert json.dumps(sent).count("cachePoint") == 4
    assert "cache-dropped" in codes
    assert "cachePoint" not in json.dumps(send(body, "anthropic", LLAMA)[0])


def test_5_system_messages_are_all_kept_and_later_ones_stay_in_their_place() -> None:
    """OpenManus#1413, bifrost#4068, litellm#41043."""
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "one"},
            {"role": "developer", "content": "two"},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a"},
            {"role": "system", "content": "reminder"},
            {"role": "user", "content": "next"},
        ],
    }
    sent, _ = send(body)
    assert [block["text"] for block in sent["system"]] == ["one", "two"]
    assert sent["messages"][-1] == {"role": "user", "content": [{"text": "reminder"}, {"text": "next"}]}


def test_6_7_results_are_results_all_in_one_message() -> None:
    """agentgateway#907, Portkey#748, bifrost#1164, litellm#20048 (the same id twice)."""
    body = chat(write_calls("a", "b"), *write_results("b", "a", "a"), {"role": "user", "content": "more"}, tools=[TOOL])
    sent, _ = send(body)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    results = [block["toolResult"]["toolUseId"] for block in sent["messages"][2]["content"] if "toolResult" in block]
    assert results == ["a", "b"]


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL], "tool_choice": "none"}])
def test_8_tools_that_were_called_are_declared(more: Any) -> None:
    """pentagi#196, zot#18, ironclaw#1710."""
    sent, codes = send(chat(write_calls("a"), *write_results("a"), **more))
    assert [tool["toolSpec"]["name"] for tool in sent["toolConfig"]["tools"]] == ["f"]
    assert codes & {"tools-added", "choice-weakened"}


def test_8_forbidden_tools_are_not_declared_at_all() -> None:
    """Converse has no choice `none`; without earlier calls the tools can be left out."""
    assert "toolConfig" not in send(chat(tools=[TOOL], tool_choice="none"))[0]


def test_9_ids_and_names_in_the_history_are_legal() -> None:
    """litellm#34239, #28825, hermes-agent#90016: one bad name poisons the session for good."""
    long = "call_" + "x" * 90
    body = chat(write_calls(long, "functions read_file", name="bad name!"), *write_results(long, "functions read_file"))
    sent, _ = send(body)
    ids = [block["toolUse"]["toolUseId"] for block in sent["messages"][1]["content"]]
    assert [block["toolResult"]["toolUseId"] for block in sent["messages"][2]["content"]] == ids


def test_10_a_tool_of_another_kind_is_no_tool_without_a_name() -> None:
    """litellm#24668, #19384."""
    body = {"model": "m", "input": "q", "tools": [{"type": "brand_new_tool", "x": 1}]}
    sent, codes = send(body, "openai-responses")
    assert "toolConfig" not in sent
    assert "opaque-dropped" in codes


def test_11_thinking_is_read_and_written_at_its_level() -> None:
    """hermes-agent#36260, spring-ai#6413, Roo-Code#11238, and `redactedContent` that litellm never writes back."""
    for stem, parts in (
        ("reasoning_then_tool_use", (Reasoning, Call)),
        ("reasoning_signature_only", (Reasoning,)),
        ("redacted_reasoning", (Reasoning, Text)),
        ("reasoning_unsigned", (Reasoning,)),
    ):
        found = read_stream((FOLDER / f"{stem}.bin").read_bytes()).choices[0].parts
        assert [type(part) for part in found][: len(parts)] == [*parts]
    whole = json.loads((FOLDER / "whole_redacted_reasoning.json").read_text())
    turns = build_tool_results(NAME, whole, [])
    assert turns[0] == whole["output"]["message"]


def test_11_a_signature_comes_back_through_another_protocol() -> None:
    whole = json.loads((FOLDER / "whole_reasoning_tool_use.json").read_text())
    asked = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "q"}], "tools": [
        {"name": "get_weather", "description": "d", "input_schema": {"type": "object"}}]}  # fmt: skip
    answer = translate(whole, "response", source=NAME, target="anthropic", request=asked).json()
    result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "15"}
    later = {**asked, "messages": [*asked["messages"], {"role": "assistant", "content": answer["content"]},
                                   {"role": "user", "content": [result]}]}  # fmt: skip
    sent, _ = send(later, "anthropic")
    assert sent["messages"][1]["content"][0] == whole["output"]["message"]["content"][0]


def test_11_models_without_signatures_get_none() -> None:
    body = anthropic_body()
    body["messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    sent, codes = send(body, "anthropic", LLAMA)
    assert '"signature"' not in json.dumps(sent)
    assert "seal-dropped" in codes


@pytest.mark.parametrize(("stem", "kind"), [("exception_throttling", "rate"), ("exception_first", "overloaded"),
                                            ("exception_model_stream_error", "upstream"), ("error_message_type", "server")])  # fmt: skip
def test_12_an_exception_in_the_stream_is_known_by_its_name(stem: str, kind: str) -> None:
    """litellm#24608: botocore gives all of them status 400."""
    failure = read_stream((FOLDER / f"{stem}.bin").read_bytes()).failure
    assert failure is not None
    assert failure.kind in (kind, "server" if kind == "upstream" else kind)


def test_14_blank_text_is_left_out_and_empty_results_say_something() -> None:
    """OpenHands#5339, hermes-agent#60628: a space is no placeholder any more."""
    results = [{"role": "tool", "tool_call_id": "a", "content": " "}]
    blank = {"role": "assistant", "content": " \n"}
    sent, codes = send(chat(write_calls("a"), *results, blank, {"role": "user", "content": "go on"}, tools=[TOOL]))
    assert "empty-omitted" in codes
    assert sent["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "(no output)"}]


def test_14_empty_citations_of_the_model_are_not_sent_back() -> None:
    """botocore#3525."""
    empty = {"citationsContent": {"content": [{"text": ""}], "citations": []}}
    turns = [{"role": "user", "content": [{"text": "q"}]}, {"role": "assistant", "content": [empty, {"text": "a"}]},
             {"role": "user", "content": [{"text": " "}, {"text": "n"}]}]  # fmt: skip
    sent = translate({"messages": turns}, "request", source=NAME, target=NAME, model=CLAUDE).json()
    assert sent["messages"][1]["content"] == [{"text": "a"}]


def test_15_documents_have_legal_names_each_its_own() -> None:
    """vercel/ai#20365, litellm#30093, generative-ai-use-cases#1671 (U+3000)."""
    data = base64.b64encode(b"%PDF-1.7").decode()
    names = ("plan_v1.2.pdf", "plan v1 2 pdf", "\u8a08\u753b\u3000\u66f8.pdf", "")
    blocks = [
        {"type": "document", "title": name, "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
        for name in names
    ]
    body = {"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}
    sent, _ = send(body, "anthropic")
    content = sent["messages"][0]["content"]
    found = [block["document"]["name"] for block in content if "document" in block]
    assert len(set(found)) == len(names)
    assert any("text" in block for block in content)


def test_16_a_model_without_streams_of_tools_is_asked_for_a_whole_answer() -> None:
    """pi#3739, obot#4101: the refusal names it, and the next request has the quirk."""
    quirk = CODEC.quirks["no-tool-streaming"]
    assert quirk.refusal is not None
    assert quirk.refusal.search("This model doesn't support tool use in streaming mode.")
    assert quirk.http["request_path"]("m", True) == "/model/m/converse"  # type: ignore[operator]


def test_17_a_profile_says_nothing_about_its_model() -> None:
    """mulder#205: nothing is left out that some model takes."""
    sent, codes = send(chat(tools=[TOOL], tool_choice="required", temperature=0.5, top_p=0.5), model=PROFILE)
    assert sent["toolConfig"]["toolChoice"] == {"any": {}}
    assert sent["inferenceConfig"] == {"temperature": 0.5, "topP": 0.5}
    assert codes <= {"max-tokens-added"}


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("openai.gpt-oss-120b-1:0", ("additionalModelRequestFields", {"reasoning_effort": "high"})),
        ("us.amazon.nova-2-lite-v1:0", ("additionalModelRequestFields",
                                        {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}})),
        (PROFILE, ("outputConfig", {"effort": "high"})),
    ],
)  # fmt: skip
def test_18_the_effort_reaches_the_model(model: str, place: tuple[str, Any]) -> None:
    """vercel/ai#21207."""
    assert send(chat(reasoning_effort="high"), model=model)[0][place[0]] == place[1]


def test_19_no_beta_flag_is_sent_or_forwarded() -> None:
    """litellm#19877, claude-code#49370: one unknown flag refuses the whole request."""
    assert CODEC.http.extra_headers("m", b"{}", {"anthropic-beta": "x"}) == ()
    assert "anthropic_beta" not in json.dumps(send(anthropic_body(betas=["x"]), "anthropic")[0])


def test_20_images_and_documents_in_results_are_kept() -> None:
    """llama_index#21677."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    body = anthropic_body()
    body["messages"][2]["content"][0]["content"] = [image]
    sent, _ = send(body, "anthropic")
    result = sent["messages"][2]["content"][0]["toolResult"]["content"]
    assert result == [{"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]


def test_21_silences_are_filled_with_an_event_that_sdks_skip() -> None:
    """litellm#30231: tool arguments were buffered for minutes, and the stream was cut."""
    assert read_frames(CODEC.http.heartbeat) == [("ping", {})]
    reader = CODEC.make_stream_reader()
    (event,) = reader.feed(CODEC.http.heartbeat)
    assert event.is_ignorable  # type: ignore[union-attr]


def test_22_an_answer_of_calls_alone_is_an_answer() -> None:
    """hydra#975."""
    body = json.loads((FOLDER / "whole_parallel_tool_use.json").read_text())
    assert [call.name for call in parse_tool_calls(NAME, body)] == ["get_weather"] * 2
    outputs = [
        ToolOutput(call.id, "15", is_error=number == 1) for number, call in enumerate(parse_tool_calls(NAME, body))
    ]
    said, given = build_tool_results(NAME, body, outputs)
    assert said == body["output"]["message"]
    assert [block["toolResult"].get("status") for block in given["content"]][1] == "error"
    again = {"messages": [{"role": "user", "content": [{"text": "q"}]}, said, given], "toolConfig": {"tools": [
        {"toolSpec": {"name": "get_weather", "inputSchema": {"json": {"type": "object"}}}}]}}  # fmt: skip
    assert find_violations(NAME, again) == []


# --- quirks, paths ----------------------------------------------------------------------------------------------------

REFUSALS = {
    "no-tool-streaming": "This model doesn't support tool use in streaming mode.",
    "no-forced-tools": "This model doesn't support the toolConfig.toolChoice.any field. Remove toolConfig.toolChoice.any",
    "no-cache-points": "You invoked an unsupported model or your request did not allow prompt caching.",
    "no-result-status": "This model doesn't support the toolResult.status field.",
    "no-signatures": "This model doesn't support the reasoningContent.reasoningText.signature field",
    "no-text-beside-tools": "Conversation blocks and tool result blocks cannot be provided in the same turn",
    "no-stop-sequences": "This model doesn't support the stopSequences field.",
}
QUIRKY: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"text": "q"}, {"cachePoint": {"type": "default"}}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
            {"text": "I look."}, {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "a", "content": [{"text": "no"}], "status": "error"}}, {"text": "and?"}]},
    ],
    "inferenceConfig": {"stopSequences": ["x"]},
    "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}],
                   "toolChoice": {"any": {}}},
}  # fmt: skip
GONE = {
    "no-forced-tools": "toolChoice",
    "no-cache-points": "cachePoint",
    "no-result-status": '"status"',
    "no-signatures": '"signature"',
    "no-text-beside-tools": "I look.",
    "no-stop-sequences": "stopSequences",
}


@pytest.mark.parametrize("name", CODEC.quirks)
def test_a_refusal_shows_its_quirk_and_no_other(name: str) -> None:
    shown = [one for one, quirk in CODEC.quirks.items() if quirk.refusal and quirk.refusal.search(REFUSALS[name])]
    assert shown == [name]


@pytest.mark.parametrize("name", GONE)
def test_what_a_model_refuses_is_left_out_and_reported(name: str) -> None:
    before, rewrite = json.dumps(QUIRKY), CODEC.quirks[name].rewrite_body
    assert rewrite is not None
    ledger = Ledger(NAME, NAME)
    out = rewrite(QUIRKY, "m", ledger)
    assert GONE[name] not in json.dumps(out)
    assert ledger.losses
    assert json.dumps(QUIRKY) == before
    plain: Any = {"messages": [{"role": "user", "content": [{"text": "q"}]}]}
    assert rewrite(plain, "m", Ledger(NAME, NAME)) is plain


@pytest.mark.parametrize("model", [CLAUDE, PROFILE, "provider/model with space", "ä%/"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_model_is_one_segment_of_the_path(model: str, stream: bool) -> None:
    path = CODEC.http.request_path(model, stream)
    assert path.count("/") == 3
    assert path.endswith("/converse-stream" if stream else "/converse")
    assert CODEC.http.match_endpoint is not None
    found = CODEC.http.match_endpoint(f"/model/{PROFILE}/converse{'-stream' if stream else ''}", "")
    assert found is not None
    assert (found.model, found.stream) == (PROFILE, stream)
    assert CODEC.http.match_endpoint("/model/x/invoke", "") is None


def test_a_count_is_asked_for_and_read() -> None:
    endpoint = CODEC.http.token_count
    assert endpoint is not None
    body = {"messages": [{"role": "user", "content": [{"text": "q"}]}], "inferenceConfig": {"maxTokens": 1}}
    asked = endpoint.write_body(body, "m")
    assert endpoint.read_body(asked) == {"messages": body["messages"]}
    assert endpoint.read_count({"inputTokens": 7}) == 7
