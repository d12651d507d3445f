"""OpenAI Chat Completions: the provider's answers and the client's reading of them (SDK 3.x)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.dialects.dialect import Dialect, Folded, Json, Object, Wire, pieces
from toolwire.conformance.frames import Frame, frame_text

WIRE = Wire(base="/v1", path="/v1/chat/completions", listens=re.compile(r"/chat/completions$"))
USAGE: Object = {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}


def complete(body: Object, model: str) -> Object:
    head = {"id": "chatcmpl-conformance", "object": "chat.completion", "created": 1767225600, "model": model}
    choices = []
    for index, choice in enumerate(body.get("choices", [])):
        message = {"role": "assistant", "content": None, **choice.get("message", {})}
        choices.append({"index": index, **choice, "message": message})
    return {**head, "usage": dict(USAGE), **body, "choices": choices}


def stream(body: Object) -> list[str]:
    frames: list[Object] = []
    for choice in body["choices"]:
        index, message = choice["index"], choice["message"]
        deltas: list[Object] = [{"role": "assistant", "content": None if message.get("tool_calls") else ""}]
        for key in ("reasoning_content", "content", "refusal"):
            deltas += [{key: text} for text in pieces(message.get(key) or "")]
        if message.get("annotations"):
            deltas.append({"annotations": message["annotations"]})
        for number, call in enumerate(message.get("tool_calls") or []):
            deltas += _call_deltas(number, call)
        frames += [{"choices": [{"index": index, "delta": delta, "finish_reason": None}]} for delta in deltas]
        frames.append({"choices": [{"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if body.get("usage"):
        frames.append({"choices": [], "usage": body["usage"]})
    return [*complete_frames([*frames], body["model"]), frame_text(None, "[DONE]")]


def _call_deltas(number: int, call: Object) -> list[Object]:
    kind = "custom" if "custom" in call else "function"
    field = "input" if kind == "custom" else "arguments"
    head = {"index": number, "id": call["id"], "type": kind, kind: {"name": call[kind]["name"], field: ""}}
    rest = [{"index": number, kind: {field: text}} for text in pieces(call[kind][field])]
    return [{"tool_calls": [delta]} for delta in (head, *rest)]


def complete_frames(frames: list[Json], model: str) -> list[str]:
    """`{"delta": …, "finish_reason": …}` stands for a chunk with one choice, `{"usage": …}` for one with none."""
    head = {"id": "chatcmpl-conformance", "object": "chat.completion.chunk", "created": 1767225600, "model": model}
    out = []
    for frame in frames:
        if isinstance(frame, dict) and "error" not in frame:
            rest = {key: value for key, value in frame.items() if key not in ("delta", "finish_reason")}
            if "delta" in frame:
                choice = {"index": 0, "delta": frame["delta"], "finish_reason": frame.get("finish_reason")}
                rest = {"choices": [choice], **rest}
            frame = {**head, "choices": [], **rest}
        out.append(frame_text(None, frame))
    return out


# --- the client -----------------------------------------------------------------------------------------------------


def fold(frames: list[Frame]) -> Folded:
    body: Object = {"object": "chat.completion", "choices": []}
    complaints: list[str] = []
    formalities: list[str] = []
    done = False
    for frame in frames:
        if done:
            complaints.append(f"a frame after [DONE]: {frame.text[:80]}")
        elif frame.text == "[DONE]":
            done = True
        elif not isinstance(frame.data, dict):
            if frame.text or frame.event:
                complaints.append(f"a frame that is no chunk: {frame.text[:80]}")
        elif frame.data.get("error"):
            body["error"] = frame.data["error"]
        else:
            formalities += _head(frame.data, body)
            _take(frame.data, body, complaints)
    _finish(body, complaints)
    if not done and "error" not in body:
        formalities.append("the stream ended without [DONE]")
    return Folded(body, (*complaints, *formalities), tuple(formalities))


def _head(chunk: Object, body: Object) -> Iterator[str]:
    """What every chunk says again."""
    for key in ("id", "model", "created"):
        if chunk.get(key) is None:
            yield f"a chunk without {key}"
        elif body.setdefault(key, chunk[key]) != chunk[key]:
            yield f"{key} changes from {body[key]!r} to {chunk[key]!r}"


def _take(chunk: Object, body: Object, complaints: list[str]) -> None:
    if chunk.get("object") != "chat.completion.chunk":
        complaints.append(f"object is {chunk.get('object')!r}, the client skips the chunk")
    if chunk.get("usage") is not None or "usage" in body:
        body["usage"] = chunk.get("usage")
    for choice in chunk["choices"]:
        index = choice.get("index")
        if index == len(body["choices"]):
            message: Object = {"role": "assistant", "content": None}
            body["choices"].append({"index": index, "message": message, "finish_reason": None})
        if not isinstance(index, int) or index >= len(body["choices"]):
            complaints.append(f"choice index {index!r}")
            continue
        _take_delta(choice, body["choices"][index], complaints)


def _take_delta(choice: Object, whole: Object, complaints: list[str]) -> None:
    if whole["finish_reason"] and (choice.get("finish_reason") or choice.get("delta")):
        complaints.append(f"choice {choice['index']} goes on after its finish_reason")
    message, delta = whole["message"], choice.get("delta") or {}
    for key, value in delta.items():
        if key == "tool_calls":
            for call in value or ():
                _take_call(call, message.setdefault("tool_calls", []), complaints)
        elif isinstance(value, str) and key != "role":
            message[key] = (message.get(key) or "") + value
        elif value is not None and key != "role":
            message[key] = value
    if choice.get("finish_reason"):
        whole["finish_reason"] = choice["finish_reason"]


def _take_call(delta: Object, calls: list[Object], complaints: list[str]) -> None:
    """Texts are concatenated, ids and names too, as the SDK does: sent twice they are wrong."""
    index = delta.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        complaints.append("tool_calls[].index is missing")
        return
    if index == len(calls):
        calls.append({"type": "function"})
        for key in ("id", "type"):
            if not delta.get(key):
                complaints.append(f"the first delta of call {index} has no {key}")
    elif index > len(calls) or index < len(calls) - 1:
        complaints.append(f"tool_calls[].index {index} after {len(calls) - 1}")
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


def _finish(body: Object, complaints: list[str]) -> None:
    if "error" in body:
        return
    if not body["choices"]:
        complaints.append("no choice at all")
    for choice in body["choices"]:
        if not choice["finish_reason"]:
            complaints.append(f"choice {choice['index']} has no finish_reason")


def history(body: Object) -> list[Json]:
    return [body["choices"][0]["message"]]


DIALECT = Dialect("openai-chat", WIRE, complete, stream, complete_frames, fold, history)
