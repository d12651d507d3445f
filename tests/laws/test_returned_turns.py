"""A provider's own turn comes back to it, through a client of any protocol, without words that it never said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from material import corpus, needs_corpus
from toolwire.core.json_values import Malformed
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock-converse")
USER = {"role": "user", "content": "q"}


def history(protocol: str, *turns: Any) -> Any:
    if protocol == "gemini":
        asked = {"role": "user", "parts": [{"text": "q"}]}
        return {"contents": [asked, *turns, *([asked] if turns else [])]}
    if protocol == "bedrock-converse":
        said = {"role": "user", "content": [{"text": "q"}]}
        return {"messages": [said, *turns, *([said] if turns else [])]}
    key = "input" if protocol == "openai-responses" else "messages"
    limit = {"max_tokens": 99} if protocol == "anthropic" else {}
    return {"model": "m", key: [USER, *turns, *([USER] if turns else [])], **limit}


def echo(protocol: str, answer: Any) -> Any:
    """The next request of a client that sends the whole answer back."""
    if protocol == "openai-chat":
        return history(protocol, answer["choices"][0]["message"])
    if protocol == "openai-responses":
        return history(protocol, *answer["output"])
    if protocol == "anthropic":
        return history(protocol, {"role": "assistant", "content": answer["content"]})
    if protocol == "bedrock-converse":
        return history(protocol, answer["output"]["message"])
    return history(protocol, answer["candidates"][0]["content"])


def words(protocol: str, body: Any) -> str:
    """What the model has said, and that it has refused to say."""
    if protocol == "gemini":
        parts = [part for turn in body["contents"] if turn.get("role") == "model" for part in turn.get("parts", ())]
        return "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    if protocol == "bedrock-converse":
        blocks = [block for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]]
        cited = [piece for block in blocks for piece in block.get("citationsContent", {}).get("content", [])]
        return "".join(block.get("text", "") for block in [*blocks, *cited])
    turns = body["input"] if protocol == "openai-responses" else body["messages"]
    out = ""
    for turn in turns:
        content = turn.get("content") if turn.get("role") == "assistant" else None
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        out += "".join(block.get("text", block.get("refusal", "")) for block in blocks if block["type"] != "thinking")
        out += turn.get("refusal") or ""
    return out


def check_returned(provider: str, client: str, answer: Any, model: str) -> None:
    options = Options(model=model)
    first, second = (Exchange(find_codec(client), find_codec(provider), options) for _ in range(2))
    first.translate_request(history(client))
    seen = first.translate_response(answer)
    if seen.status == 200:
        sent = second.translate_request(echo(client, seen.json())).json()
        assert words(provider, sent) == words(provider, echo(provider, answer)) + explanation_of(answer, client)


def explanation_of(answer: Any, client: str) -> str:
    """Why Claude has refused, beside its words: OpenAI's clients get it as the words of a refusal, and send it back."""
    details = answer.get("stop_details") if client.startswith("openai") else None
    return ": ".join(filter(None, (details.get("category"), details.get("explanation")))) if details else ""


PAGE = {"type": "web_search_result", "url": "https://a.b", "title": "t", "encrypted_content": "EqgfCioIARgB"}
CODE = {"type": "code_execution_result", "stdout": "4\n", "stderr": "", "return_code": 0, "content": []}


def claude(name: str, found: Any) -> Any:
    use = {"type": "server_tool_use", "id": "srvtoolu_01ABC", "name": name, "input": {"query": "x", "code": "2+2"}}
    result = {"type": f"{name}_tool_result", "tool_use_id": "srvtoolu_01ABC", "content": found}
    content = [{"type": "text", "text": "Let me see."}, use, result, {"type": "text", "text": "It is 4."}]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn"}
    return {**head, "content": content, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}


def gemini(*parts: Any, **metadata: Any) -> Any:
    content = {"role": "model", "parts": [*parts, {"text": "It is 4."}]}
    return {"candidates": [{"content": content, "finishReason": "STOP", **metadata}], "responseId": "r1"}


def openai(*items: Any) -> Any:
    said = [{"type": "output_text", "text": "It is 4.", "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": said}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5.6"}
    return {**head, "output": [*items, message]}


def converse(name: str) -> Any:
    use = {"toolUseId": "tooluse_1", "name": name, "type": "server_tool_use", "input": {"query": "x"}}
    result = {"toolUseId": "tooluse_1", "type": f"{name}_result", "content": [{"text": "found"}], "status": "success"}
    content = [{"text": "Let me see."}, {"toolUse": use}, {"toolResult": result}, {"text": "It is 4."}]
    counts = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    head = {"stopReason": "end_turn", "usage": counts, "metrics": {"latencyMs": 1}}
    return {**head, "output": {"message": {"role": "assistant", "content": content}}}


def gemini_code(**id: str) -> tuple[Any, Any]:
    made = {"executableCode": {"language": "PYTHON", "code": "print(2+2)", **id}}
    return made, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n", **id}}


def gemini_search(id: str) -> tuple[Any, Any]:
    kind = {"id": id, "toolType": "GOOGLE_SEARCH_WEB"}
    found = {"search_suggestions": "<div>x</div>"}
    return {"toolCall": {**kind, "args": {"queries": ["x"]}}}, {"toolResponse": {**kind, "response": found}}


CHUNK = {"web": {"uri": "https://a.b", "title": "t"}}
LOGS = [{"type": "logs", "logs": "4\n"}]
ANSWERS: dict[str, tuple[str, str, Any]] = {
    "Anthropic's search": ("anthropic", "claude-opus-5-5", claude("web_search", [PAGE])),
    "Anthropic's search that found nothing": ("anthropic", "claude-opus-5-5", claude("web_search", [])),
    "Anthropic's code": ("anthropic", "claude-opus-5-5", claude("code_execution", CODE)),
    "Gemini's search": (
        "gemini",
        "gemini-2.5-pro",
        gemini(groundingMetadata={"webSearchQueries": ["x"], "groundingChunks": [CHUNK]}),
    ),
    "Gemini's search with ids": ("gemini", "gemini-3.8-flash", gemini(*gemini_search("4f244mfi"))),
    "Gemini's code": ("gemini", "gemini-2.5-pro", gemini(*gemini_code(), *gemini_code())),
    "Gemini's code with ids": ("gemini", "gemini-3.8-flash", gemini(*gemini_code(id="a1b2c3d4"))),
    "Nova's search": ("bedrock-converse", "amazon.nova-2-lite-v1:0", converse("nova_grounding")),
    "OpenAI's search": (
        "openai-responses",
        "gpt-5.6",
        openai({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}),
    ),
    "OpenAI's code": (
        "openai-responses",
        "gpt-5.6",
        openai(
            {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "2+2", "outputs": LOGS}
            | {"container_id": "cntr_1"}
        ),
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.parametrize("client", NAMES)
def test_what_a_providers_tools_found_is_not_put_into_its_mouth(case: str, client: str) -> None:
    provider, model, answer = ANSWERS[case]
    check_returned(provider, client, answer, model)


def test_executed_code_comes_back_to_gemini_as_it_was() -> None:
    parts = [*gemini_code(), *gemini_code()]
    options = Options(model="gemini-2.5-pro")
    first, second = (Exchange(find_codec("anthropic"), find_codec("gemini"), options) for _ in range(2))
    first.translate_request(history("anthropic"))
    seen = first.translate_response(gemini(*parts)).json()
    uses = [block["id"] for block in seen["content"] if block["type"] == "server_tool_use"]
    assert len(set(uses)) == 2
    sent = second.translate_request(echo("anthropic", seen)).json()
    assert sent["contents"][1]["parts"] == [*parts, {"text": "It is 4."}]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_another_provider_is_told_what_was_found(target: str) -> None:
    """A session that changes its provider goes on with it."""
    body = echo("anthropic", claude("web_search", [PAGE]))
    exchange = Exchange(find_codec("anthropic"), find_codec(target), Options(model="m"))
    assert "https://a.b" in json.dumps(exchange.translate_request(body).json())


@needs_corpus
@pytest.mark.parametrize("client", NAMES)
def test_recorded_turns_come_back_with_their_own_words(client: str) -> None:
    checked = 0
    for recorded in corpus():
        if recorded.status != 200 or not isinstance(recorded.response, dict):
            continue
        try:
            words(recorded.protocol, echo(recorded.protocol, recorded.response))
        except (KeyError, IndexError, TypeError, Malformed):
            continue  # not an answer in full
        check_returned(recorded.protocol, client, recorded.response, recorded.model)
        checked += 1
    assert checked > 300
