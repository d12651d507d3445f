"""OpenAI Responses: a provider's answers, and how a client reads them (SDK 3.x and Codex)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

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
    split_text,
    write_frame,
)
from toolwire.core.json_values import Json, Object

USAGE: Object = {
    "input_tokens": 25,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 37,
}
NEEDED_FIELDS = frozenset({"created_at", "model", "output"})
"""Fields of the response object in an event that clients need."""
END_STATUSES = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}


def _unfold_item(item: Object) -> tuple[Object, list[Object]]:
    """The item as it is added, and the frames that fill it in."""
    match item["type"]:
        case "message":
            empty = {**item, "content": [], "status": "in_progress"}
            return empty, _unfold_parts(item["content"], "content_index", "response.content_part", "response.")
        case "reasoning":
            name = "response.reasoning_"
            return {**item, "summary": []}, _unfold_parts(
                item.get("summary", []), "summary_index", f"{name}summary_part", name
            )
        case "function_call" | "custom_tool_call" as kind:
            key = "arguments" if kind == "function_call" else "input"
            name = f"response.{kind}_{key}"
            frames: list[Object] = [{"type": f"{name}.delta", "delta": text} for text in split_text(item[key])]
            return {**item, key: "", "status": "in_progress"}, [*frames, {"type": f"{name}.done", key: item[key]}]
    return item, []


def _unfold_parts(parts: list[Object], index_key: str, part_event: str, prefix: str) -> list[Object]:
    """The frames of the parts of a message or a summary; the events of a text are the prefix and its part's type."""
    frames: list[Object] = []
    for index, part in enumerate(parts):
        at, key, name = {index_key: index}, "refusal" if part["type"] == "refusal" else "text", prefix + part["type"]
        cited = part.get("annotations") or []
        empty = {**part, key: ""} | ({"annotations": []} if cited else {})
        frames.append({"type": f"{part_event}.added", **at, "part": empty})
        frames += [{"type": f"{name}.delta", **at, "delta": text} for text in split_text(part[key])]
        for number, one in enumerate(cited):
            frames.append({"type": f"{name}.annotation.added", **at, "annotation_index": number, "annotation": one})
        frames.append({"type": f"{name}.done", **at, key: part[key]})
        frames.append({"type": f"{part_event}.done", **at, "part": part})
    return frames


# --- the client -----------------------------------------------------------------------------------------------------


class _ClientReader:
    """Collects items, and reports what the SDK's accumulator and Codex would fail on."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.minor_violations: list[str] = []
        self.response_id: str | None = None
        self.items: dict[int, Object] = {}
        self.done_items: dict[int, Object] = {}
        self.open_parts: set[tuple[Any, ...]] = set()
        self.deltas: dict[tuple[Any, ...], str] = {}
        self.body: Object = {}
        self.is_ended = False
        self.has_raised = False
        """Was there an error event, which the SDK raises?"""

    def read_frame(self, frame: SseFrame, number: int) -> None:
        if not isinstance(frame.data, dict):
            found = self.minor_violations if self.is_ended and frame.text == "[DONE]" else self.violations
            found.append(f"a frame that is not an event: {frame.text[:80]}")
            return
        data = frame.data
        kind = data.get("type", "")
        if frame.event != kind:
            found = self.minor_violations if frame.event is None else self.violations
            found.append(f"event line {frame.event!r}, type {kind!r}")
        if data.get("sequence_number") != number:
            given = data.get("sequence_number")
            self.minor_violations.append(f"sequence_number {given!r} of {kind}, expected {number}")
        if self.is_ended:
            self.violations.append(f"{kind} after the end")
        if number == 0 and kind != "response.created":
            self._note_missing(kind, f"the first event is {kind}, not response.created")
        self._dispatch_event(kind, data)

    def _dispatch_event(self, kind: str, data: Object) -> None:
        if "response" in data:
            self._read_lifecycle(kind, data["response"])
        elif kind == "response.output_item.added":
            self._open_item(data)
        elif kind == "response.output_item.done":
            self._close_item(data)
        elif kind == "error":
            self.body.setdefault("error", data.get("error") or data)
            self.has_raised = bool(data.get("error"))
        elif "output_index" in data:
            self._read_item_event(kind, data)

    def _read_lifecycle(self, kind: str, response: Object) -> None:
        if not response.get("id"):
            self._note_missing(kind, f"{kind} without response.id")
        elif self.response_id not in (None, response["id"]):
            self.violations.append(f"response.id changes from {self.response_id!r} to {response['id']!r}")
        self.response_id = response.get("id")
        for key in ("object", "created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools"):
            if response.get(key) is None:
                self._note_missing(kind if key in NEEDED_FIELDS else "", f"{kind}: response without {key}")
        if kind in END_STATUSES:
            self.is_ended, self.body = True, response
            if response.get("status") != END_STATUSES[kind]:
                self.violations.append(f"{kind} with status {response.get('status')!r}")

    def _note_missing(self, kind: str, line: str) -> None:
        """Minor in a failure: clients read only its message."""
        (self.minor_violations if kind in ("", "error", "response.failed") else self.violations).append(line)

    def _open_item(self, data: Object) -> None:
        index, item = data["output_index"], data["item"]
        if index != len(self.items):
            self.violations.append(f"output_index {index}, expected {len(self.items)}")
        if still := [at for at in self.items if at not in self.done_items]:
            self.minor_violations.append(f"item {index} is added while item {still[0]} is open")
        if not item.get("id"):
            self.violations.append(f"item {index} has no id")
        elif item["id"] in [other.get("id") for other in self.items.values()]:
            self.violations.append(f"item id {item['id']!r} is used twice")
        for key in ("arguments", "input"):
            if isinstance(item.get(key), str) and item[key]:
                self.violations.append(f"output_item.added already contains {key}: clients would get it twice")
        self.items[index] = item

    def _close_item(self, data: Object) -> None:
        index, item = data["output_index"], data["item"]
        added = self.items.get(index)
        if added is None or index in self.done_items:
            self.violations.append(f"item {index} is done but not open")
            return
        for key in ("id", "type", "call_id"):
            if added.get(key) != item.get(key):
                self.violations.append(f"item {index}: {key} changes from {added.get(key)!r} to {item.get(key)!r}")
        if left := [part for part in self.open_parts if part[0] == index]:
            self.violations.append(f"item {index} is done while its part {left[0][1:]} is open")
        self._compare_deltas(index, item)
        self.done_items[index] = item

    def _read_item_event(self, kind: str, data: Object) -> None:
        index = data["output_index"]
        item = self.items.get(index)
        if item is None or index in self.done_items:
            self.violations.append(f"{kind} for item {index}, which is not open")
            return
        if data.get("item_id") != item.get("id") and not kind.startswith("response.shell_call_command"):
            self.violations.append(f"{kind}: item_id {data.get('item_id')!r} is not {item.get('id')!r}")
        place = (index, "content_index" in data, data.get("content_index", data.get("summary_index")))
        if kind.endswith("_part.added"):
            self.open_parts.add(place)
        elif kind.endswith("_part.done"):
            self.open_parts.discard(place)
        elif kind.endswith(".delta") and place[2] is not None and place not in self.open_parts:
            self.violations.append(f"{kind} without its part: {data.get('delta')!r}")
        if kind.endswith((".delta", ".done")) and isinstance(data.get("delta"), str):
            self.deltas[place] = self.deltas.get(place, "") + data["delta"]

    def _compare_deltas(self, index: int, item: Object) -> None:
        """The deltas must add up to the finished item."""
        wanted: dict[tuple[Any, ...], Json] = {}
        for key in ("arguments", "input"):
            if isinstance(item.get(key), str):
                wanted[index, False, None] = item[key]
        for at, part in enumerate(item.get("content") or []):
            wanted[index, True, at] = part.get("text", part.get("refusal"))
        for place, text in wanted.items():
            received = self.deltas.get(place, "")
            if text is not None and received != text:
                self.violations.append(f"item {index} is done with {text!r}, deltas were {received!r}")

    def close(self) -> None:
        if not (self.is_ended or self.has_raised):
            self.violations.append("the stream ended without response.completed, incomplete or failed")
        if not self.is_ended or self.body.get("status") == "failed":
            return
        if open_items := self.items.keys() - self.done_items.keys():
            self.violations.append(f"items {sorted(open_items)} were never done: Codex ignores them")
        ids = [self.done_items[index].get("id") for index in sorted(self.done_items)]
        if [item.get("id") for item in self.body.get("output") or []] != ids:
            self.violations.append(f"response.output differs from the finished items: {ids}")
        usage = self.body.get("usage")
        if not isinstance(usage, dict) or "total_tokens" not in usage:
            self.violations.append("the last event has no usage with total_tokens")


SEAL = "gAAAAABpQ7sealed_-thoughts+of/the=model=="


class ResponsesPeer(Peer):
    name = "openai-responses"
    short_name = "responses"
    http = PeerHttp(
        base_path="/v1",
        path="/v1/responses",
        path_pattern=re.compile(r"/responses$"),
        other_paths={"count": "/v1/responses/input_tokens", "compact": "/v1/responses/compact"},
        count_path="/responses/input_tokens",
    )
    model = "gpt-5.5"
    sealing_model = "gpt-5.5"
    turns_key = "input"
    uses_data_type = True

    def complete_answer(self, body: Object, model: str) -> Object:
        head = {
            "id": "resp_conformance",
            "object": "response",
            "created_at": 1767225600,
            "status": "completed",
            "model": model,
        }
        rest: Object = {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "store": False}
        tools = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return {**head, "output": [], **rest, **tools, "usage": dict(USAGE), **body}

    def write_stream(self, body: Object) -> list[str]:
        frames: list[Object] = [{"type": "response.created"}, {"type": "response.in_progress"}]
        for index, item in enumerate(body["output"]):
            added, deltas = _unfold_item(item)
            frames.append({"type": "response.output_item.added", "output_index": index, "item": added})
            frames += [{"output_index": index, "item_id": item.get("id"), **frame} for frame in deltas]
            frames.append({"type": "response.output_item.done", "output_index": index, "item": item})
        frames.append({"type": f"response.{body['status']}", "response": body})
        return self.complete_frames([*frames], body["model"])

    def complete_frames(self, frames: list[Json], model: str) -> list[str]:
        """Fill in sequence numbers, event lines and the response object; its final output is the finished items."""
        done: list[Object] = []
        out = []
        for number, frame in enumerate(frames):
            if isinstance(frame, str):
                out.append(write_frame(None, frame))
                continue
            kind = frame["type"]
            if kind == "response.output_item.done":
                done.append(frame["item"])
            if kind in END_STATUSES or kind in ("response.created", "response.in_progress"):
                status = END_STATUSES.get(kind, "in_progress")
                rest: Object = (
                    {"status": status, "output": done} if kind in END_STATUSES else {"status": status, "usage": None}
                )
                frame = {**frame, "response": self.complete_answer({**rest, **frame.get("response", {})}, model)}
            out.append(write_frame(kind, {"type": kind, "sequence_number": number, **frame}))
        return out

    def fold_stream(self, frames: list[SseFrame]) -> FoldedStream:
        reader = _ClientReader()
        for number, frame in enumerate(frame for frame in frames if frame.text or frame.event):
            reader.read_frame(frame, number)
        reader.close()
        return folded_stream(reader.body, reader.violations, reader.minor_violations)

    def history_turns(self, body: Object) -> list[Json]:
        return list(body["output"])

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        """With `store: false`, as agents use it: the whole history is in the input."""
        return {"input": [{"role": "user", "content": prompt}], "store": False}

    def write_tools(self, tools: Sequence[ScenarioTool]) -> list[Json]:
        return [{"type": "function", **to_builtins(tool), "strict": False} for tool in tools]

    def write_answer(self, answer: ModelAnswer) -> Object:
        output: list[Json] = []
        if answer.is_sealed:
            thought = [{"type": "summary_text", "text": "Two places."}]
            output.append({"type": "reasoning", "id": "rs_7f01", "summary": thought, "encrypted_content": SEAL})
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            head = {"type": "message", "id": "msg_7f02", "role": "assistant", "status": "completed"}
            output.append({**head, "content": content})
        for number, (name, arguments) in enumerate(answer.calls):
            call = {"name": name, "call_id": f"call_Wm8Ty{number}", "arguments": encode_json(arguments)}
            output.append({"type": "function_call", "id": f"fc_7f1{number}", "status": "completed", **call})
        return {"output": output, "status": "completed"}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        ids = [item["call_id"] for item in body["output"] if item.get("type") == "function_call"]
        pairs = zip(ids, texts, strict=True)
        return [{"type": "function_call_output", "call_id": id, "output": text} for id, text in pairs]

    def expect_first_turns(self, prompt: str) -> Json:
        return {"$either": [{"$contains": prompt}, super().expect_first_turns(prompt)]}

    def expect_tool(self, tool: ScenarioTool) -> Json:
        return {"type": "function", "name": tool.name, "parameters": expect_properties(tool)}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"type": "function_call", "call_id": id, "name": name, "arguments": {"$json": {"$is": arguments}}}

    def expect_answer(self, answer: ModelAnswer) -> Json:
        output: Object = exactly_these(self.expect_calls(answer, "c"), {"type": "function_call"})
        if answer.text:
            # The message may come before or after the calls: gateways do both, and clients accept both.
            output["$either"] = [{"$contains": [{"type": "message", "content": {"$text": answer.text}}]}]
        return {"status": "completed", "output": output}

    def expect_model_turns(self, answer: ModelAnswer, calls: list[Json]) -> list[Json]:
        thought = [{"type": "reasoning", "encrypted_content": {"$is": SEAL}}] if answer.is_sealed else []
        return [*thought, *calls]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"type": "function_call_output", "call_id": id, "output": {"$within": text}}
