"""Anthropic Messages: the provider's answers and the client's reading of them (SDK 2.x and Claude Code)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from toolwire.conformance.dialects.dialect import Dialect, Folded, Json, Object, Wire, pieces
from toolwire.conformance.frames import Frame, compact, frame_text

WIRE = Wire(
    path="/v1/messages",
    listens=re.compile(r"/messages$"),
    asks={"count": "/v1/messages/count_tokens"},
    counts="/messages/count_tokens",
    credential=("x-api-key", "{key}"),
    headers={"anthropic-version": "2023-06-01"},
)
USAGE: Object = {"input_tokens": 25, "output_tokens": 12}
DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", ""),
    "signature_delta": ("signature", "signature"),
    "citations_delta": ("citation", ""),
}
HOLDS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
}


def complete(body: Object, model: str) -> Object:
    head = {"id": "msg_01Conformance", "type": "message", "role": "assistant", "model": model}
    return {**head, "stop_sequence": None, "usage": dict(USAGE), **body}


def stream(body: Object) -> list[str]:
    usage = body["usage"]
    start = {**body, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    frames: list[Object] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(body["content"]):
        begun, deltas = _unfolded(block)
        frames.append({"type": "content_block_start", "index": index, "content_block": begun})
        frames += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        frames.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
    frames += [{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}]
    return [frame_text(frame["type"], frame) for frame in frames]


def _unfolded(block: Object) -> tuple[Object, list[Object]]:
    match block["type"]:
        case "text":
            cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations") or ()]
            said = [{"type": "text_delta", "text": text} for text in pieces(block["text"])]
            return {**block, "text": ""} | ({"citations": []} if cited else {}), [*cited, *said]
        case "thinking":
            said = [{"type": "thinking_delta", "thinking": text} for text in pieces(block["thinking"])]
            signed: Object = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*said, signed]
        case "tool_use" | "server_tool_use":
            text = compact(block["input"]) if block["input"] else ""
            parts = ["", *pieces(text)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block, []


def complete_frames(frames: list[Json], model: str) -> list[str]:
    out = []
    for frame in frames:
        if isinstance(frame, str):
            out.append(frame_text(None, frame))
            continue
        if frame["type"] == "message_start":
            message = complete({"content": [], "stop_reason": None}, model) | frame.get("message", {})
            frame = {**frame, "message": message}
        if frame["type"] == "message_delta":
            frame = {"usage": {"output_tokens": USAGE["output_tokens"]}, **frame}
            frame["delta"] = {"stop_sequence": None, **frame["delta"]}
        out.append(frame_text(frame["type"], frame))
    return out


# --- the client -----------------------------------------------------------------------------------------------------


class _Reader:
    """Adds up a stream; each method takes one event."""

    def __init__(self) -> None:
        self.message: Object = {}
        self.complaints: list[str] = []
        self.formalities: list[str] = []
        self.open: dict[int, tuple[Object, list[str]]] = {}
        """The blocks that are open, and the JSON that has come for each."""
        self.ended = False

    def message_start(self, data: Object) -> None:
        if self.message:
            self.complaints.append("a second message_start")
        self.message = {**data["message"], "content": list(data["message"].get("content") or [])}
        for key in ("id", "role", "model"):
            if not self.message.get(key):
                self.formalities.append(f"message_start without {key}")
        if not self.message.get("usage"):
            self.complaints.append("message_start without usage")

    def content_block_start(self, data: Object) -> None:
        if self.open:
            self.formalities.append(f"block {data['index']} starts while block {max(self.open)} is open")
        if data["index"] != len(self.message["content"]):
            self.complaints.append(f"block index {data['index']}, expected {len(self.message['content'])}")
        block = dict(data["content_block"])
        if block["type"] in ("tool_use", "server_tool_use"):
            if block.get("input") != {}:
                self.complaints.append(
                    f"input of {block['type']} stands in content_block_start, clients ignore it there"
                )
            block["input"] = {}
        self.message["content"].append(block)
        self.open[data["index"]] = block, []

    def content_block_delta(self, data: Object) -> None:
        if data["index"] not in self.open:
            self.complaints.append(f"delta for block {data['index']}, open is {self._opened()}")
            return
        (block, parts), delta = self.open[data["index"]], data["delta"]
        kind = delta["type"]
        if kind not in HOLDS.get(block["type"], set()):
            self.complaints.append(f"mismatched content block type: {kind} in a block of type {block['type']}")
            return
        value_key, block_key = DELTAS[kind]
        if kind == "input_json_delta":
            parts.append(delta["partial_json"])
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        else:
            block[block_key] += delta[value_key]

    def content_block_stop(self, data: Object) -> None:
        if data["index"] not in self.open:
            self.complaints.append(f"block {data['index']} stops, open is {self._opened()}")
            return
        block, parts = self.open.pop(data["index"])
        if text := "".join(parts):
            try:
                block["input"] = json.loads(text)
            except ValueError:
                block["input"] = {"__unparsedToolInput": text}

    def _opened(self) -> str:
        return ", ".join(map(str, self.open)) or "none"

    def message_delta(self, data: Object) -> None:
        if not isinstance(data.get("usage"), dict):
            self.complaints.append("message_delta without usage")
        if self.open:
            self.complaints.append(f"message_delta while block {self._opened()} is open")
        self.message.update(data["delta"])
        self.message["usage"] = {**self.message.get("usage", {}), **(data.get("usage") or {})}

    def message_stop(self, data: Object) -> None:
        self.ended = True
        if not self.message.get("stop_reason"):
            self.complaints.append("message_stop without a stop_reason")

    def error(self, data: Object) -> None:
        self.ended = True
        self.message["error"] = data["error"]

    def ping(self, data: Object) -> None:
        pass


def fold(frames: list[Frame]) -> Folded:
    reader = _Reader()
    for complaint in _read(reader, frames):
        reader.complaints.append(complaint)
    return Folded(reader.message, (*reader.complaints, *reader.formalities), tuple(reader.formalities))


def _read(reader: _Reader, frames: list[Frame]) -> Iterator[str]:
    for frame in frames:
        if frame.event is None:
            if frame.text:
                yield f"a frame without its event line is passed over: {frame.text[:80]}"
            continue
        if not isinstance(frame.data, dict) or frame.data.get("type") != frame.event:
            yield f"event {frame.event} holds data of another type: {frame.text[:80]}"
            continue
        if reader.ended:
            yield f"{frame.event} after the end"
        if not reader.message and frame.event not in ("message_start", "ping", "error"):
            yield f"{frame.event} before message_start"
            continue
        take = getattr(reader, frame.event, None)
        if take is not None:
            take(frame.data)
    if not reader.ended:
        yield "the stream ended without message_stop or error"


def history(body: Object) -> list[Json]:
    return [{"role": "assistant", "content": body["content"]}]


DIALECT = Dialect("anthropic", WIRE, complete, stream, complete_frames, fold, history)
