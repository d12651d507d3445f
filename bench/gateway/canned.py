"""What the provider answers and the clients ask: one small tool call in each protocol, whole or as a stream.

The shapes come from `toolwire_conformance.dialects`, which know the protocols without the code that is measured.
"""

from __future__ import annotations

import json
from typing import Any

from bench import bodies
from toolwire import translate
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import encode_json, read_frames, write_frame

Object = dict[str, Any]

DELTAS = 100
TOOL = "tool_0"
TEXT_DELTAS = {"call": DELTAS // 2, "text": DELTAS - 1}
"""The streams, and how many of their deltas are text; the others are arguments."""
ARGUMENTS: Object = {"path": "/src/file.py", "old": "a = 1", "new": "b = 2\n" * 40, "count": 1}
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
}
MODELS = {name: bodies.MODELS[name] for name in PATHS}
SIZES = ("small", "session", "agent")


def protocol_of(path: str) -> str | None:
    """The protocol that a path belongs to, wherever a gateway's base URL put it."""
    path = path.partition("?")[0]
    ends = {
        "/chat/completions": "openai-chat",
        "/responses": "openai-responses",
        "/messages": "anthropic",
        ":generateContent": "gemini",
        ":streamGenerateContent": "gemini",
    }
    return next((name for end, name in ends.items() if path.endswith(end)), None)


# --- answers --------------------------------------------------------------------------------------------------------


def whole_answer(protocol: str) -> bytes:
    text = "I will edit the file."
    spelled = encode_json(ARGUMENTS)
    call = {"id": "call_bench0001", "type": "function", "function": {"name": TOOL, "arguments": spelled}}
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    made: dict[str, Object] = {
        "openai-chat": {"choices": [{"message": message, "finish_reason": "tool_calls"}]},
        "openai-responses": {"output": [_message_item(text), _function_call_item(spelled)]},
        "anthropic": {
            "content": [{"type": "text", "text": text}, _tool_use_block(ARGUMENTS)],
            "stop_reason": "tool_use",
        },
        "gemini": {
            "candidates": [{"content": {"parts": [{"text": text}, _function_call_part()]}, "finishReason": "STOP"}]
        },
    }
    return encode_json(PEERS[protocol].complete_answer(made[protocol], MODELS[protocol])).encode()


def events(protocol: str, stream: str = "call") -> tuple[bytes, ...]:
    """The same as a stream of `DELTAS` deltas, and what frames them."""
    makers = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _messages, "gemini": _gemini}
    words = [f" word{number:02d}" for number in range(TEXT_DELTAS[stream])]
    arguments = _pieces(encode_json(ARGUMENTS), DELTAS - len(words))
    frames = PEERS[protocol].complete_frames(makers[protocol](words, arguments), MODELS[protocol])
    if protocol == "openai-chat":
        frames.append(write_frame(None, "[DONE]"))
    return tuple(frame.encode() for frame in frames)


def _pieces(text: str, count: int) -> list[str]:
    return [text[len(text) * at // count : len(text) * (at + 1) // count] for at in range(count)]


def _message_item(text: str, status: str = "completed") -> Object:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if text else []
    return {"id": "msg_bench", "type": "message", "role": "assistant", "status": status, "content": content}


def _function_call_item(spelled: str, status: str = "completed") -> Object:
    head = {"id": "fc_bench", "type": "function_call", "call_id": "call_bench0001", "name": TOOL}
    return {**head, "arguments": spelled, "status": status}


def _tool_use_block(arguments: Object) -> Object:
    return {"type": "tool_use", "id": "toolu_bench0001", "name": TOOL, "input": arguments}


def _function_call_part() -> Object:
    return {"functionCall": {"name": TOOL, "args": ARGUMENTS}}


def _chat(words: list[str], arguments: list[str]) -> list[Any]:
    first = {"index": 0, "id": "call_bench0001", "type": "function", "function": {"name": TOOL, "arguments": ""}}
    deltas: list[Object] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words]
    deltas.append({"tool_calls": [first]})
    for piece in arguments:
        deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    ending = [{"delta": {}, "finish_reason": "tool_calls"}]
    usage = {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}
    return [*({"delta": delta} for delta in deltas), *ending, {"usage": usage}]


def _responses(words: list[str], arguments: list[str]) -> list[Any]:
    whole, spelled = "".join(words), "".join(arguments)
    said, called = _message_item(whole), _function_call_item(spelled)
    text = {"output_index": 0, "item_id": said["id"], "content_index": 0}
    call = {"output_index": 1, "item_id": called["id"]}
    part = said["content"][0]
    name = "response.function_call_arguments"
    return [
        {"type": "response.created"},
        {"type": "response.in_progress"},
        {"type": "response.output_item.added", "output_index": 0, "item": _message_item("", "in_progress")},
        {"type": "response.content_part.added", **text, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **text, "delta": word, "logprobs": []} for word in words),
        {"type": "response.output_text.done", **text, "text": whole, "logprobs": []},
        {"type": "response.content_part.done", **text, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": said},
        {"type": "response.output_item.added", "output_index": 1, "item": _function_call_item("", "in_progress")},
        *({"type": f"{name}.delta", **call, "delta": piece} for piece in arguments),
        {"type": f"{name}.done", **call, "arguments": spelled, "name": TOOL},
        {"type": "response.output_item.done", "output_index": 1, "item": called},
        {"type": "response.completed"},
    ]


def _messages(words: list[str], arguments: list[str]) -> list[Any]:
    def block(index: int, begun: Object, deltas: list[Object]) -> list[Object]:
        inside = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        start = {"type": "content_block_start", "index": index, "content_block": begun}
        return [start, *inside, {"type": "content_block_stop", "index": index}]

    text = [{"type": "text_delta", "text": word} for word in words]
    call = [{"type": "input_json_delta", "partial_json": piece} for piece in arguments]
    return [
        {"type": "message_start"},
        *block(0, {"type": "text", "text": ""}, text),
        *block(1, _tool_use_block({}), call),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]


def _gemini(words: list[str], arguments: list[str]) -> list[Any]:
    """Arguments come in one piece here, so all deltas but one are text."""
    parts: list[Object] = [*({"text": text} for text in _pieces("".join(words), DELTAS - 1)), _function_call_part()]
    chunks: list[Any] = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return [*chunks, {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}]}]


# --- requests -------------------------------------------------------------------------------------------------------


def requests(size: str) -> dict[str, Object]:
    """The same request in each protocol: one tool and a short message, or an agent's session of 62 kB or 250 kB."""
    base = bodies.conversation(1, 0, 0, 0) if size == "small" else bodies.conversation(*bodies.SIZES[size])
    if size == "small":
        del base["messages"][2:]
    del base["stream"]
    return {
        name: json.loads(
            translate(
                base, "request", source="openai-chat", target=name, model=MODELS[name], cache_breakpoints=False
            ).body
        )
        for name in PATHS
    }


def build_request(body: Object, protocol: str, model: str, stream: bool) -> tuple[str, bytes]:
    """The path and the body with which a client of this protocol asks for a model."""
    path = PATHS[protocol].format(model=model)
    if protocol == "gemini":
        return path.replace(":generate", ":streamGenerate") + "?alt=sse" if stream else path, encode_json(body).encode()
    return path, encode_json({**body, "model": model, **({"stream": True} if stream else {})}).encode()


# --- what came back -------------------------------------------------------------------------------------------------


def find_fault(protocol: str, answer: bytes, stream: bool) -> str | None:
    """What is wrong with an answer: it must hold the canned call, name and arguments, in the client's protocol."""
    try:
        text = answer.decode()
        body = PEERS[protocol].fold_stream(read_frames(text)).body if stream else json.loads(text)
        calls = _calls(protocol, body)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return f"not an answer of {protocol}: {type(error).__name__}: {error}"
    return None if calls == [(TOOL, ARGUMENTS)] else f"not the tool call that was sent: {str(calls)[:120]}"


def _calls(protocol: str, body: Object) -> list[tuple[str, Any]]:
    match protocol:
        case "openai-chat":
            calls = [call["function"] for call in body["choices"][0]["message"]["tool_calls"]]
            return [(call["name"], json.loads(call["arguments"])) for call in calls]
        case "openai-responses":
            items = [item for item in body["output"] if item["type"] == "function_call"]
            return [(item["name"], json.loads(item["arguments"])) for item in items]
        case "anthropic":
            return [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]
    parts = body["candidates"][0]["content"]["parts"]
    return [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part]
