"""OpenAI Chat Completions: a provider's answers, and how a client reads them (SDK 3.x)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import to_builtins

from toolwire.conformance.peers.peer import (
    FoldedStream,
    ModelAnswer,
    Peer,
    PeerHttp,
    ScenarioTool,
    SseFrame,
    encode_json,
    expect_properties,
    folded_stream,
    split_text,
    write_frame,
)
from toolwire.core.json_values import Json, Object

USAGE: Object = {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}


def _call_deltas(number: int, call: Object) -> list[Object]:
    kind = "custom" if "custom" in call else "function"
    field = "input" if kind == "custom" else "arguments"
    head = {"index": number, "id": call["id"], "type": kind, kind: {"name": call[kind]["name"], field: ""}}
    rest = [{"index": number, kind: {field: text}} for text in split_text(call[kind][field])]
    return [{"tool_calls": [delta]} for delta in (head, *rest)]


# --- the client -----------------------------------------------------------------------------------------------------


def _add_chunk(chunk: Object, body: Object, violations: list[str], minor_violations: list[str]) -> None:
    for key in ("id", "model", "created"):  # every chunk repeats them
        if chunk.get(key) is None:
            minor_violations.append(f"a chunk without {key}")
        elif body.setdefault(key, chunk[key]) != chunk[key]:
            minor_violations.append(f"{key} changes from {body[key]!r} to {chunk[key]!r}")
    if chunk.get("object") != "chat.completion.chunk":
        violations.append(f"object is {chunk.get('object')!r}, the client skips the chunk")
    if chunk.get("usage") is not None or "usage" in body:
        body["usage"] = chunk.get("usage")
    for choice in chunk["choices"]:
        index = choice.get("index")
        if index == len(body["choices"]):
            message: Object = {"role": "assistant", "content": None}
            body["choices"].append({"index": index, "message": message, "finish_reason": None})
        if not isinstance(index, int) or index >= len(body["choices"]):
            violations.append(f"choice index {index!r}")
            continue
        _add_delta(choice, body["choices"][index], violations)


def _add_delta(choice: Object, whole: Object, violations: list[str]) -> None:
    if whole["finish_reason"] and (choice.get("finish_reason") or choice.get("delta")):
        violations.append(f"choice {choice['index']} continues after its finish_reason")
    message, delta = whole["message"], choice.get("delta") or {}
    for key, value in delta.items():
        if key == "tool_calls":
            for call in value or ():
                _add_call_delta(call, message.setdefault("tool_calls", []), violations)
        elif isinstance(value, str) and key != "role":
            message[key] = (message.get(key) or "") + value
        elif value is not None and key != "role":
            message[key] = value
    if choice.get("finish_reason"):
        whole["finish_reason"] = choice["finish_reason"]


def _add_call_delta(delta: Object, calls: list[Object], violations: list[str]) -> None:
    """Concatenate texts, ids and names, as the SDK does: an id that is sent twice becomes wrong."""
    index = delta.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        violations.append("tool_calls[].index is missing")
        return
    if index == len(calls):
        calls.append({"type": "function"})
        for key in ("id", "type"):
            if not delta.get(key):
                violations.append(f"the first delta of call {index} has no {key}")
    elif index > len(calls) or index < len(calls) - 1:
        violations.append(f"tool_calls[].index {index} after {len(calls) - 1}")
        return
    call = calls[index]
    call["type"] = delta.get("type") or call["type"]
    if delta.get("id"):
        call["id"] = call.get("id", "") + delta["id"]
    for kind in ("function", "custom"):
        for key, value in (delta.get(kind) or {}).items():
            if isinstance(value, str):
                inner = call.setdefault(kind, {})
                inner[key] = inner.get(key, "") + value


class ChatPeer(Peer):
    name = "openai-chat"
    short_name = "chat"
    http = PeerHttp(base_path="/v1", path="/v1/chat/completions", path_pattern=re.compile(r"/chat/completions$"))
    model = "gpt-4.1"
    sealing_model = "gpt-4.1"
    turns_key = "messages"
    provider_seals = False
    has_seal_slot = False

    def complete_answer(self, body: Object, model: str) -> Object:
        head = {"id": "chatcmpl-conformance", "object": "chat.completion", "created": 1767225600, "model": model}
        choices = []
        for index, choice in enumerate(body.get("choices", [])):
            message = {"role": "assistant", "content": None, **choice.get("message", {})}
            choices.append({"index": index, **choice, "message": message})
        return {**head, "usage": dict(USAGE), **body, "choices": choices}

    def write_stream(self, body: Object) -> list[str]:
        frames: list[Object] = []
        for choice in body["choices"]:
            index, message = choice["index"], choice["message"]
            deltas: list[Object] = [{"role": "assistant", "content": None if message.get("tool_calls") else ""}]
            for key in ("reasoning_content", "content", "refusal"):
                deltas += [{key: text} for text in split_text(message.get(key) or "")]
            if message.get("annotations"):
                deltas.append({"annotations": message["annotations"]})
            for number, call in enumerate(message.get("tool_calls") or []):
                deltas += _call_deltas(number, call)
            frames += [{"choices": [{"index": index, "delta": delta, "finish_reason": None}]} for delta in deltas]
            frames.append({"choices": [{"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}]})
        if body.get("usage"):
            frames.append({"choices": [], "usage": body["usage"]})
        return [*self.complete_frames([*frames], body["model"]), write_frame(None, "[DONE]")]

    def complete_frames(self, frames: list[Json], model: str) -> list[str]:
        """`{"delta": …, "finish_reason": …}` is short for a chunk with one choice, `{"usage": …}` for one without."""
        head = {"id": "chatcmpl-conformance", "object": "chat.completion.chunk", "created": 1767225600, "model": model}
        out = []
        for frame in frames:
            if isinstance(frame, dict) and "error" not in frame:
                rest = {key: value for key, value in frame.items() if key not in ("delta", "finish_reason")}
                if "delta" in frame:
                    choice = {"index": 0, "delta": frame["delta"], "finish_reason": frame.get("finish_reason")}
                    rest = {"choices": [choice], **rest}
                frame = {**head, "choices": [], **rest}
            out.append(write_frame(None, frame))
        return out

    def fold_stream(self, frames: list[SseFrame]) -> FoldedStream:
        body: Object = {"object": "chat.completion", "choices": []}
        violations: list[str] = []
        minor_violations: list[str] = []
        done = False
        for frame in frames:
            if done:
                violations.append(f"a frame after [DONE]: {frame.text[:80]}")
            elif frame.text == "[DONE]":
                done = True
            elif not isinstance(frame.data, dict):
                if frame.text or frame.event:
                    violations.append(f"a frame that is not a chunk: {frame.text[:80]}")
            elif frame.data.get("error"):
                body["error"] = frame.data["error"]
            else:
                _add_chunk(frame.data, body, violations, minor_violations)
        if "error" not in body:
            endless = [choice["index"] for choice in body["choices"] if not choice["finish_reason"]]
            violations += [f"choice {index} has no finish_reason" for index in endless]
            violations += [] if body["choices"] else ["no choices"]
            minor_violations += [] if done else ["the stream ended without [DONE]"]
        return folded_stream(body, violations, minor_violations)

    def history_turns(self, body: Object) -> list[Json]:
        return [body["choices"][0]["message"]]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        return {"messages": [{"role": "user", "content": prompt}]}

    def write_tools(self, tools: Sequence[ScenarioTool]) -> list[Json]:
        return [{"type": "function", "function": to_builtins(tool)} for tool in tools]

    def write_answer(self, answer: ModelAnswer) -> Object:
        functions = [{"name": name, "arguments": encode_json(arguments)} for name, arguments in answer.calls]
        calls = [{"id": f"call_Kq3Vx{n}", "type": "function", "function": one} for n, one in enumerate(functions)]
        message = {"role": "assistant", "content": answer.text or None} | ({"tool_calls": calls} if calls else {})
        return {"choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}]}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        ids = [call["id"] for call in body["choices"][0]["message"].get("tool_calls") or []]
        return [{"role": "tool", "tool_call_id": id, "content": text} for id, text in zip(ids, texts, strict=True)]

    def expect_tool(self, tool: ScenarioTool) -> Json:
        return {"type": "function", "function": {"name": tool.name, "parameters": expect_properties(tool)}}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        function = {"name": name, "arguments": {"$json": {"$is": arguments}}}
        return {"id": id, "type": "function", "function": function}

    def expect_answer(self, answer: ModelAnswer) -> Json:
        message: Object = {"role": "assistant"} | ({"content": {"$text": answer.text}} if answer.text else {})
        message["tool_calls"] = self.expect_calls(answer, "c") or {"$either": ["$absent", []]}
        return {"choices": [{"message": message, "finish_reason": "tool_calls" if answer.calls else "stop"}]}

    def expect_model_turns(self, answer: ModelAnswer, calls: list[Json]) -> list[Json]:
        return [{"role": "assistant", "tool_calls": calls}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"role": "tool", "tool_call_id": id, "content": {"$within": text}}
