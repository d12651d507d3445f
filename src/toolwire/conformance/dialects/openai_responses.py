"""OpenAI Responses: the provider's answers and the client's reading of them (SDK 3.x and Codex)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from toolwire.conformance.dialects.dialect import Dialect, Folded, Json, Object, Wire, pieces
from toolwire.conformance.frames import Frame, frame_text

WIRE = Wire(
    base="/v1",
    path="/v1/responses",
    listens=re.compile(r"/responses$"),
    asks={"count": "/v1/responses/input_tokens", "compact": "/v1/responses/compact"},
    counts="/responses/input_tokens",
)
USAGE: Object = {
    "input_tokens": 25,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 37,
}
NEEDED = frozenset({"created_at", "model", "output"})
"""Of a response that an event holds; without the rest clients do."""
ENDS = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}


def complete(body: Object, model: str) -> Object:
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


def stream(body: Object) -> list[str]:
    frames: list[Object] = [{"type": "response.created"}, {"type": "response.in_progress"}]
    for index, item in enumerate(body["output"]):
        begun, between = _unfolded(item)
        frames.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        frames += [{"output_index": index, "item_id": item.get("id"), **frame} for frame in between]
        frames.append({"type": "response.output_item.done", "output_index": index, "item": item})
    frames.append({"type": f"response.{body['status']}", "response": body})
    return complete_frames([*frames], body["model"])


def _unfolded(item: Object) -> tuple[Object, list[Object]]:
    unfold = UNFOLD.get(item["type"])
    return unfold(item) if unfold else (item, [])


def _unfold_message(item: Object) -> tuple[Object, list[Object]]:
    frames: list[Object] = []
    for index, part in enumerate(item["content"]):
        kind = part["type"]
        key = "text" if kind == "output_text" else "refusal"
        name = f"response.{kind}"
        cited = part.get("annotations") or []
        empty = {**part, key: ""} | ({"annotations": []} if cited else {})
        frames.append({"type": "response.content_part.added", "content_index": index, "part": empty})
        frames += [{"type": f"{name}.delta", "content_index": index, "delta": text} for text in pieces(part[key])]
        for number, one in enumerate(cited):
            about = {"content_index": index, "annotation_index": number, "annotation": one}
            frames.append({"type": f"{name}.annotation.added", **about})
        frames.append({"type": f"{name}.done", "content_index": index, key: part[key]})
        frames.append({"type": "response.content_part.done", "content_index": index, "part": part})
    return {**item, "content": [], "status": "in_progress"}, frames


def _unfold_reasoning(item: Object) -> tuple[Object, list[Object]]:
    frames: list[Object] = []
    name = "response.reasoning_summary"
    for index, part in enumerate(item.get("summary", [])):
        frames.append({"type": f"{name}_part.added", "summary_index": index, "part": {**part, "text": ""}})
        frames += [{"type": f"{name}_text.delta", "summary_index": index, "delta": t} for t in pieces(part["text"])]
        frames.append({"type": f"{name}_text.done", "summary_index": index, "text": part["text"]})
        frames.append({"type": f"{name}_part.done", "summary_index": index, "part": part})
    return {**item, "summary": []}, frames


def _unfolder(key: str, name: str) -> Callable[[Object], tuple[Object, list[Object]]]:
    def unfold(item: Object) -> tuple[Object, list[Object]]:
        frames: list[Object] = [{"type": f"{name}.delta", "delta": text} for text in pieces(item[key])]
        return {**item, key: "", "status": "in_progress"}, [*frames, {"type": f"{name}.done", key: item[key]}]

    return unfold


UNFOLD: dict[str, Callable[[Object], tuple[Object, list[Object]]]] = {
    "message": _unfold_message,
    "reasoning": _unfold_reasoning,
    "function_call": _unfolder("arguments", "response.function_call_arguments"),
    "custom_tool_call": _unfolder("input", "response.custom_tool_call_input"),
}


def complete_frames(frames: list[Json], model: str) -> list[str]:
    """Sequence numbers, event lines and the response object; at the end its output is what was done before."""
    done: list[Object] = []
    out = []
    for number, frame in enumerate(frames):
        if isinstance(frame, str):
            out.append(frame_text(None, frame))
            continue
        kind = frame["type"]
        if kind == "response.output_item.done":
            done.append(frame["item"])
        if kind in ENDS or kind in ("response.created", "response.in_progress"):
            status = ENDS.get(kind, "in_progress")
            rest: Object = {"status": status, "output": done} if kind in ENDS else {"status": status, "usage": None}
            frame = {**frame, "response": complete({**rest, **frame.get("response", {})}, model)}
        out.append(frame_text(kind, {"type": kind, "sequence_number": number, **frame}))
    return out


# --- the client -----------------------------------------------------------------------------------------------------


class _Reader:
    """Keeps the items that are open and done, and complains as the SDK's accumulator does, and Codex."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.formalities: list[str] = []
        self.id: str | None = None
        self.items: dict[int, Object] = {}
        self.done: dict[int, Object] = {}
        self.open_parts: set[tuple[Any, ...]] = set()
        self.deltas: dict[tuple[Any, ...], str] = {}
        self.body: Object = {}
        self.ended = False
        self.raised = False
        """Did an event bring an error that the SDK raises?"""

    def take(self, frame: Frame, number: int) -> None:
        if not isinstance(frame.data, dict):
            found = self.formalities if self.ended and frame.text == "[DONE]" else self.complaints
            found.append(f"a frame that is no event: {frame.text[:80]}")
            return
        data = frame.data
        kind = data.get("type", "")
        if frame.event != kind:
            found = self.formalities if frame.event is None else self.complaints
            found.append(f"event line {frame.event!r}, type {kind!r}")
        if data.get("sequence_number") != number:
            self.formalities.append(f"sequence_number {data.get('sequence_number')!r} of {kind}, expected {number}")
        if self.ended:
            self.complaints.append(f"{kind} after the end")
        if number == 0 and kind != "response.created":
            self._missed(kind, f"the first event is {kind}, not response.created")
        self._dispatch(kind, data)

    def _dispatch(self, kind: str, data: Object) -> None:
        if "response" in data:
            self._lifecycle(kind, data["response"])
        elif kind == "response.output_item.added":
            self._added(data)
        elif kind == "response.output_item.done":
            self._done(data)
        elif kind == "error":
            self.body.setdefault("error", data.get("error") or data)
            self.raised = bool(data.get("error"))
        elif "output_index" in data:
            self._inside(kind, data)

    def _lifecycle(self, kind: str, response: Object) -> None:
        if not response.get("id"):
            self._missed(kind, f"{kind} without response.id")
        elif self.id not in (None, response["id"]):
            self.complaints.append(f"response.id changes from {self.id!r} to {response['id']!r}")
        self.id = response.get("id")
        for key in ("object", "created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools"):
            if response.get(key) is None:
                self._missed(kind if key in NEEDED else "", f"{kind}: response without {key}")
        if kind in ENDS:
            self.ended, self.body = True, response
            if response.get("status") != ENDS[kind]:
                self.complaints.append(f"{kind} with status {response.get('status')!r}")

    def _missed(self, kind: str, line: str) -> None:
        """Of a failure clients read nothing but what it says."""
        (self.formalities if kind in ("", "error", "response.failed") else self.complaints).append(line)

    def _added(self, data: Object) -> None:
        index, item = data["output_index"], data["item"]
        if index != len(self.items):
            self.complaints.append(f"output_index {index}, expected {len(self.items)}")
        if still := [at for at in self.items if at not in self.done]:
            self.formalities.append(f"item {index} is added while item {still[0]} is open")
        if not item.get("id"):
            self.complaints.append(f"item {index} has no id")
        elif item["id"] in [other.get("id") for other in self.items.values()]:
            self.complaints.append(f"item id {item['id']!r} is used twice")
        for key in ("arguments", "input"):
            if isinstance(item.get(key), str) and item[key]:
                self.complaints.append(f"{key} stand in output_item.added already: they would double")
        self.items[index] = item

    def _done(self, data: Object) -> None:
        index, item = data["output_index"], data["item"]
        begun = self.items.get(index)
        if begun is None or index in self.done:
            self.complaints.append(f"item {index} is done but not open")
            return
        for key in ("id", "type", "call_id"):
            if begun.get(key) != item.get(key):
                self.complaints.append(f"item {index}: {key} changes from {begun.get(key)!r} to {item.get(key)!r}")
        if left := [part for part in self.open_parts if part[0] == index]:
            self.complaints.append(f"item {index} is done while its part {left[0][1:]} is open")
        self._compare(index, item)
        self.done[index] = item

    def _inside(self, kind: str, data: Object) -> None:
        index = data["output_index"]
        item = self.items.get(index)
        if item is None or index in self.done:
            self.complaints.append(f"{kind} for item {index}, which is not open")
            return
        if data.get("item_id") != item.get("id") and not kind.startswith("response.shell_call_command"):
            self.complaints.append(f"{kind}: item_id {data.get('item_id')!r} is not {item.get('id')!r}")
        place = (index, "content_index" in data, data.get("content_index", data.get("summary_index")))
        if kind.endswith("_part.added"):
            self.open_parts.add(place)
        elif kind.endswith("_part.done"):
            self.open_parts.discard(place)
        elif kind.endswith(".delta") and place[2] is not None and place not in self.open_parts:
            self.complaints.append(f"{kind} without its part: {data.get('delta')!r}")
        if kind.endswith((".delta", ".done")) and isinstance(data.get("delta"), str):
            self.deltas[place] = self.deltas.get(place, "") + data["delta"]

    def _compare(self, index: int, item: Object) -> None:
        """The deltas must add up to what is done."""
        wanted: dict[tuple[Any, ...], Json] = {}
        for key in ("arguments", "input"):
            if isinstance(item.get(key), str):
                wanted[index, False, None] = item[key]
        for at, part in enumerate(item.get("content") or []):
            wanted[index, True, at] = part.get("text", part.get("refusal"))
        for place, text in wanted.items():
            if text is not None and self.deltas.get(place, "") != text:
                self.complaints.append(
                    f"item {index} is done with {text!r}, deltas were {self.deltas.get(place, '')!r}"
                )

    def close(self) -> None:
        if not self.ended:
            if self.raised:
                return
            self.complaints.append("the stream ended without response.completed, incomplete or failed")
            return
        if self.body.get("status") == "failed":
            return
        if open_items := self.items.keys() - self.done.keys():
            self.complaints.append(f"items {sorted(open_items)} were never done: Codex ignores them")
        ids = [self.done[index].get("id") for index in sorted(self.done)]
        if [item.get("id") for item in self.body.get("output") or []] != ids:
            self.complaints.append(f"response.output holds other items than were done: {ids}")
        usage = self.body.get("usage")
        if not isinstance(usage, dict) or "total_tokens" not in usage:
            self.complaints.append("the end has no usage with total_tokens")


def fold(frames: list[Frame]) -> Folded:
    reader = _Reader()
    for number, frame in enumerate(frame for frame in frames if frame.text or frame.event):
        reader.take(frame, number)
    reader.close()
    return Folded(reader.body, (*reader.complaints, *reader.formalities), tuple(reader.formalities))


def history(body: Object) -> list[Json]:
    return list(body["output"])


DIALECT = Dialect("openai-responses", WIRE, complete, stream, complete_frames, fold, history, True)
