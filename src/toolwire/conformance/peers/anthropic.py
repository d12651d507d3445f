"""Anthropic Messages: a provider's answers, and how a client reads them (SDK 2.x and Claude Code)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from toolwire.conformance.peers.peer import (
    FoldedStream,
    ModelAnswer,
    Peer,
    PeerHttp,
    ScenarioTool,
    SseFrame,
    encode_json,
    exactly_these,
    expect_properties,
    folded_stream,
    grouping_options,
    split_text,
    write_frame,
)
from toolwire.core.json_values import Json, Object

USAGE: Object = {"input_tokens": 25, "output_tokens": 12}
ALLOWED_DELTAS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
}


def _unfold_block(block: Object) -> tuple[Object, list[Object]]:
    match block["type"]:
        case "text":
            cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations") or ()]
            texts = [{"type": "text_delta", "text": text} for text in split_text(block["text"])]
            return {**block, "text": ""} | ({"citations": []} if cited else {}), [*cited, *texts]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": text} for text in split_text(block["thinking"])]
            signed: Object = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]
        case "tool_use" | "server_tool_use":
            text = encode_json(block["input"]) if block["input"] else ""
            parts = ["", *split_text(text)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block, []


# --- the client -----------------------------------------------------------------------------------------------------


class _ClientReader:
    """Adds up a stream; each method takes one event."""

    def __init__(self) -> None:
        self.message: Object = {}
        self.violations: list[str] = []
        self.minor_violations: list[str] = []
        self.open_blocks: dict[int, tuple[Object, list[str]]] = {}
        """The open blocks, and the JSON received for each."""
        self.is_ended = False

    def read_message_start(self, data: Object) -> None:
        if self.message:
            self.violations.append("a second message_start")
        self.message = {**data["message"], "content": list(data["message"].get("content") or [])}
        for key in ("id", "role", "model"):
            if not self.message.get(key):
                self.minor_violations.append(f"message_start without {key}")
        if not self.message.get("usage"):
            self.violations.append("message_start without usage")

    def read_block_start(self, data: Object) -> None:
        if self.open_blocks:
            self.minor_violations.append(f"block {data['index']} starts while block {max(self.open_blocks)} is open")
        if data["index"] != len(self.message["content"]):
            self.violations.append(f"block index {data['index']}, expected {len(self.message['content'])}")
        block = dict(data["content_block"])
        if block["type"] in ("tool_use", "server_tool_use"):
            if block.get("input") != {}:
                self.violations.append(f"content_block_start of {block['type']} contains input, which clients ignore")
            block["input"] = {}
        self.message["content"].append(block)
        self.open_blocks[data["index"]] = block, []

    def read_block_delta(self, data: Object) -> None:
        if data["index"] not in self.open_blocks:
            self.violations.append(f"delta for block {data['index']}, open is {self._open_block_text()}")
            return
        (block, parts), delta = self.open_blocks[data["index"]], data["delta"]
        kind = delta["type"]
        if kind not in ALLOWED_DELTAS.get(block["type"], set()):
            self.violations.append(f"mismatched content block type: {kind} in a block of type {block['type']}")
            return
        if kind == "input_json_delta":
            parts.append(delta["partial_json"])
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        else:
            key = kind.removesuffix("_delta")  # text or thinking
            block[key] += delta[key]

    def read_block_stop(self, data: Object) -> None:
        if data["index"] not in self.open_blocks:
            self.violations.append(f"block {data['index']} stops, open is {self._open_block_text()}")
            return
        block, parts = self.open_blocks.pop(data["index"])
        if text := "".join(parts):
            try:
                block["input"] = json.loads(text)
            except ValueError:
                block["input"] = {"__unparsedToolInput": text}

    def _open_block_text(self) -> str:
        return ", ".join(map(str, self.open_blocks)) or "none"

    def read_message_delta(self, data: Object) -> None:
        if not isinstance(data.get("usage"), dict):
            self.violations.append("message_delta without usage")
        if self.open_blocks:
            self.violations.append(f"message_delta while block {self._open_block_text()} is open")
        self.message.update(data["delta"])
        self.message["usage"] = {**self.message.get("usage", {}), **(data.get("usage") or {})}

    def read_message_stop(self, data: Object) -> None:
        self.is_ended = True
        if not self.message.get("stop_reason"):
            self.violations.append("message_stop without a stop_reason")

    def read_error(self, data: Object) -> None:
        self.is_ended = True
        self.message["error"] = data["error"]


EVENT_READERS: dict[str, Callable[[_ClientReader, Object], None]] = {
    "message_start": _ClientReader.read_message_start,
    "content_block_start": _ClientReader.read_block_start,
    "content_block_delta": _ClientReader.read_block_delta,
    "content_block_stop": _ClientReader.read_block_stop,
    "message_delta": _ClientReader.read_message_delta,
    "message_stop": _ClientReader.read_message_stop,
    "error": _ClientReader.read_error,
}


def _read_frames(reader: _ClientReader, frames: list[SseFrame]) -> Iterator[str]:
    for frame in frames:
        if frame.event is None:
            if frame.text:
                yield f"a frame without an event line is ignored: {frame.text[:80]}"
            continue
        if not isinstance(frame.data, dict) or frame.data.get("type") != frame.event:
            yield f"event {frame.event} has data of another type: {frame.text[:80]}"
            continue
        if reader.is_ended:
            yield f"{frame.event} after the end"
        if not reader.message and frame.event not in ("message_start", "ping", "error"):
            yield f"{frame.event} before message_start"
            continue
        if frame.event in EVENT_READERS:
            EVENT_READERS[frame.event](reader, frame.data)
    if not reader.is_ended:
        yield "the stream ended without message_stop or error"


SEAL = "EuYBCkQYAiJAsealed+thoughts/of+the/model0A=="
THOUGHT = "Two places."


class AnthropicPeer(Peer):
    name = "anthropic"
    short_name = "anthropic"
    http = PeerHttp(
        path="/v1/messages",
        path_pattern=re.compile(r"/messages$"),
        other_paths={"count": "/v1/messages/count_tokens"},
        count_path="/messages/count_tokens",
        credential=("x-api-key", "{key}"),
        headers={"anthropic-version": "2023-06-01"},
    )
    model = "claude-opus-5-5"
    sealing_model = "claude-opus-5-5"
    turns_key = "messages"

    def complete_answer(self, body: Object, model: str) -> Object:
        head = {"id": "msg_01Conformance", "type": "message", "role": "assistant", "model": model}
        return {**head, "stop_sequence": None, "usage": dict(USAGE), **body}

    def write_stream(self, body: Object) -> list[str]:
        usage: Object = body["usage"]
        empty: Object = {"content": [], "stop_reason": None, "stop_sequence": None}
        start = {**body, **empty, "usage": {**usage, "output_tokens": 1}}
        frames: list[Object] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(body["content"]):
            start_block, deltas = _unfold_block(block)
            frames.append({"type": "content_block_start", "index": index, "content_block": start_block})
            frames += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            frames.append({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
        frames += [{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}]
        return [write_frame(frame["type"], frame) for frame in frames]

    def complete_frames(self, frames: list[Json], model: str) -> list[str]:
        out = []
        for frame in frames:
            if isinstance(frame, str):
                out.append(write_frame(None, frame))
                continue
            if frame["type"] == "message_start":
                message = self.complete_answer({"content": [], "stop_reason": None}, model) | frame.get("message", {})
                frame = {**frame, "message": message}
            if frame["type"] == "message_delta":
                frame = {"usage": {"output_tokens": USAGE["output_tokens"]}, **frame}
                frame["delta"] = {"stop_sequence": None, **frame["delta"]}
            out.append(write_frame(frame["type"], frame))
        return out

    def fold_stream(self, frames: list[SseFrame]) -> FoldedStream:
        reader = _ClientReader()
        reader.violations.extend(_read_frames(reader, frames))
        return folded_stream(reader.message, reader.violations, reader.minor_violations)

    def history_turns(self, body: Object) -> list[Json]:
        return [{"role": "assistant", "content": body["content"]}]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        return {"max_tokens": 1000, "messages": [{"role": "user", "content": prompt}]}

    def write_tools(self, tools: Sequence[ScenarioTool]) -> list[Json]:
        return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]

    def write_answer(self, answer: ModelAnswer) -> Object:
        content: list[Json] = []
        if answer.is_sealed:
            content.append({"type": "thinking", "thinking": THOUGHT, "signature": SEAL})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        for number, (name, arguments) in enumerate(answer.calls):
            content.append({"type": "tool_use", "id": f"toolu_01Rz5Np{number}", "name": name, "input": arguments})
        return {"content": content, "stop_reason": "tool_use" if answer.calls else "end_turn"}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        ids = [block["id"] for block in body["content"] if block.get("type") == "tool_use"]
        pairs = zip(ids, texts, strict=True)
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in pairs]
        return [{"role": "user", "content": results}]

    def expect_tool(self, tool: ScenarioTool) -> Json:
        return {"name": tool.name, "input_schema": expect_properties(tool)}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"type": "tool_use", "id": id, "name": name, "input": {"$is": arguments}}

    def expect_answer(self, answer: ModelAnswer) -> Json:
        content = exactly_these(self.expect_calls(answer, "c"), {"type": "tool_use"}, answer.text)
        return {"role": "assistant", "content": content, "stop_reason": "tool_use" if answer.calls else "end_turn"}

    def expect_model_turns(self, answer: ModelAnswer, calls: list[Json]) -> list[Json]:
        thought = [{"type": "thinking", "thinking": THOUGHT, "signature": {"$is": SEAL}}] if answer.is_sealed else []
        return [{"role": "assistant", "content": {"$contains": [*thought, *calls]}}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"type": "tool_result", "tool_use_id": id, "content": {"$within": text}}

    def result_turn_options(self, results: list[Json]) -> list[list[Json]]:
        options = grouping_options(results)
        return [[{"role": "user", "content": {"$contains": group}} for group in groups] for groups in options]
