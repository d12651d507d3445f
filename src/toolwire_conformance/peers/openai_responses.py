"""OpenAI Responses: a provider's answers, and how a client reads them (SDK 3.x and Codex)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from toolwire_conformance import Json, Object
from toolwire_conformance.peers import peer
from toolwire_conformance.peers.checks import (
    check_object_schema,
    check_strict_schema,
    check_unknown_keys,
    known_names,
    matches,
    numbered_objects,
    objects,
    refusals,
)

# --- what the provider refuses --------------------------------------------------------------------------------------

NAMES = known_names("openai-responses")
CALL_ID_LIMIT = 64
ID_PREFIXES = {
    "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs", "web_search_call": "ws",
    "file_search_call": "fs", "image_generation_call": "ig", "mcp_call": "mcp", "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr", "code_interpreter_call": "ci", "computer_call": "cu",
}  # fmt: skip
CALL_ITEMS = NAMES["values"]["calls"]
CALL_BY_OUTPUT = {f"{call}_output": call for call in CALL_ITEMS}
ITEM_TYPES = NAMES["values"]["other_items"] | CALL_ITEMS | frozenset(CALL_BY_OUTPUT)
CALL_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
INPUT_PARTS = NAMES["values"]["input_parts"]
CODEX_METADATA = "internal_chat_message_metadata_passthrough"
"""Codex puts this field on items if it believes that it calls OpenAI directly."""


def item_type(item: Object) -> str:
    kind = item.get("type")
    return str(kind) if kind else "message" if "role" in item else "item_reference" if "id" in item else ""


def check_items(body: Object, model: str) -> Iterator[str]:
    for index, item in numbered_objects(body.get("input")):
        at, kind = f"input[{index}]", item_type(item)
        if kind not in ITEM_TYPES:
            yield f"{at}.type: Invalid value: {kind!r}"
            continue
        if kind in NAMES["items"]:
            known = NAMES["items"][kind] | {CODEX_METADATA}
            yield from check_unknown_keys(item, known, f"{at}.", "Unknown parameter: '{}'.")
        if kind == "message":
            yield from _check_message(item, at)
        if kind in CALL_ITEMS or kind in CALL_BY_OUTPUT:
            yield from _check_call_id(item, at, kind)
        yield from _check_item_id(item, at, kind)
        if key := {"function_call": "arguments", "custom_tool_call": "input"}.get(kind):
            if not matches(CALL_NAME, item.get("name")):
                yield f"Invalid '{at}.name': string does not match pattern, got {item.get('name')!r}"
            if not isinstance(item.get(key), str):
                yield f"Invalid type for '{at}.{key}': expected a string"
        if kind in ("function_call_output", "custom_tool_call_output"):
            yield from _check_output(item.get("output"), f"{at}.output")


def _check_message(item: Object, path: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"{path}.role: Invalid value: {role!r}"
    if not isinstance(content, (str, list)):
        yield f"Missing required parameter: '{path}.content'."
    allowed = NAMES["values"]["output_parts"] if role == "assistant" else INPUT_PARTS
    for number, part in numbered_objects(content):
        if part.get("type") not in allowed:
            yield f"{path}.content[{number}]: Invalid value: {part.get('type')!r}. Supported are: {sorted(allowed)}"
        elif part["type"] == "input_image" and not isinstance(part.get("image_url", ""), (str, type(None))):
            yield f"{path}.content[{number}].image_url: expected a string"


def _check_call_id(item: Object, path: str, kind: str) -> Iterator[str]:
    id = item.get("id") if kind == "local_shell_call_output" else item.get("call_id")
    if not isinstance(id, str) or not id:
        yield f"Missing required parameter: '{path}.call_id'."
    elif len(id) > CALL_ID_LIMIT:
        yield f"Invalid '{path}.call_id': string too long. Expected maximum length 64, but got {len(id)} instead."


def _check_item_id(item: Object, path: str, kind: str) -> Iterator[str]:
    prefix = "msg" if kind == "message" and item.get("role") == "assistant" else ID_PREFIXES.get(kind)
    id = item.get("id")
    if prefix and isinstance(id, str):
        if not id.startswith(prefix):
            yield f"Invalid '{path}.id': {id!r}. Expected an ID that begins with '{prefix}'."
        if len(id) > CALL_ID_LIMIT and kind != "reasoning":
            yield f"Invalid '{path}.id': string too long."


def _check_output(output: Json, path: str) -> Iterator[str]:
    if isinstance(output, str):
        return
    if not isinstance(output, list):
        yield f"Invalid type for '{path}': expected one of an array of objects or string"
    for number, part in numbered_objects(output):
        if part.get("type") not in INPUT_PARTS:
            yield f"{path}[{number}].type: Invalid value: {part.get('type')!r}. Supported are: {sorted(INPUT_PARTS)}"


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """Each call needs one output after it, and each output a call before it, unless the provider stores the history."""
    kept = bool(body.get("previous_response_id") or body.get("conversation"))
    open_calls: dict[str, str] = {}
    known: dict[str, str] = {}
    answered: set[str] = set()
    for index, item in numbered_objects(body.get("input")):
        kind = item_type(item)
        kept = kept or kind == "item_reference"
        id = item.get("id", "") if kind == "local_shell_call_output" else item.get("call_id", "")
        if kind in CALL_ITEMS:
            if id in known:
                yield f"Duplicate item found with call_id {id!r} at input[{index}]"
            known[id] = kind
            open_calls |= {} if item.get("async") else {id: kind}
        elif kind == "tool_search_call" and id:
            known[id] = kind
        elif kind in CALL_BY_OUTPUT and known.get(id) != "tool_search_call" and (id in known or not kept):
            if known.get(id) != CALL_BY_OUTPUT[kind]:
                yield f"No tool call found for {CALL_BY_OUTPUT[kind].replace('_', ' ')} output with call_id {id}."
            elif id in answered:
                yield f"input[{index}]: a second output for call_id {id}"
            open_calls.pop(id, None)
            answered.add(id)
    for id, kind in open_calls.items():
        yield f"No tool output found for {kind.replace('_', ' ')} {id}."


def check_reasoning(body: Object, model: str) -> Iterator[str]:
    given = [item for _, item in numbered_objects(body.get("input"))]
    for index, item in enumerate(given):
        if item_type(item) != "reasoning":
            continue
        if not isinstance(item.get("summary"), list):
            yield f"Missing required parameter: 'input[{index}].summary'."
        after = next((other for other in given[index + 1 :] if item_type(other) != "reasoning"), None)
        # The user may interrupt an answer after its reasoning.
        follows = after is not None and item_type(after) not in CALL_BY_OUTPUT
        if item.get("id") and not follows:
            yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
        if body.get("store") is False and not item.get("encrypted_content"):
            yield f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."


# --- fields and tools -----------------------------------------------------------------------------------------------

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, NAMES["fields"]["request"])
    prompt, previous, conversation = body.get("prompt"), body.get("previous_response_id"), body.get("conversation")
    given, limit = body.get("input"), body.get("max_output_tokens")
    is_missing = not isinstance(given, (str, list)) and not prompt and not previous
    too_few = f"Invalid 'max_output_tokens': integer below minimum value. Expected >= 16, but got {limit} instead."
    yield from refusals(
        (not body.get("model") and not prompt, "model: Missing required parameter"),
        (is_missing, "input: Missing required parameter"),
        (given == [] and not previous and not conversation, "input: expected at least one item"),
        (isinstance(limit, int) and limit < 16, too_few),
        (previous and conversation, "previous_response_id and conversation are exclusive"),
    )
    values = (value for value in body.get("include") or [] if value not in NAMES["values"]["include"])
    yield from (f"include: Invalid value: {value!r}" for value in values)
    for field in ("stream_options", "reasoning", "text"):
        yield from check_unknown_keys(body.get(field) or {}, NAMES["fields"][field], f"{field}.")


def check_tools(body: Object, model: str) -> Iterator[str]:
    given = [(f"tools[{index}]", tool) for index, tool in numbered_objects(body.get("tools"))]
    for index, item in numbered_objects(body.get("input")):
        if item.get("type") in ("additional_tools", "tool_search_output"):
            given += [(f"input[{index}].tools[{number}]", tool) for number, tool in numbered_objects(item.get("tools"))]
    for at, tool in given:
        yield from _check_tool(tool, at)
        if tool.get("type") == "namespace":
            if not isinstance(tool.get("description"), str):  # may be empty: Codex sends an empty one for `functions`
                yield f"{at}.description: Missing required parameter"
            for number, child in numbered_objects(tool.get("tools")):
                yield from _check_tool(child, f"{at}.tools[{number}]")
    names = [(tool.get("type"), tool["name"]) for tool in objects(body.get("tools")) if tool.get("name")]
    repeated = (named[1] for number, named in enumerate(names) if named in names[:number])
    yield from (f"Duplicate tool name: {name!r}" for name in repeated)


def _check_tool(tool: Object, path: str) -> Iterator[str]:
    kind, name = str(tool.get("type")), tool.get("name")
    kind = "web_search" if kind.startswith("web_search") else kind  # its versions have dates
    if kind == "image_generation":
        return
    if kind not in NAMES["tools"]:
        yield f"{path}.type: Invalid value: {kind!r}"
        return
    yield from check_unknown_keys(tool, NAMES["tools"][kind], f"{path}.")
    if kind in ("function", "custom", "namespace") and not matches(TOOL_NAME, name):
        yield f"{path}.name: string does not match pattern '^[a-zA-Z0-9_-]+$' (1 to 128), got {name!r}"
    if kind == "function" and tool.get("parameters") is not None:
        yield from check_object_schema(tool["parameters"], f"{path}.parameters")
        if tool.get("strict"):
            yield from check_strict_schema(tool["parameters"], f"{path}.parameters")


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
    chosen = body.get("tool_choice")
    given = objects(body.get("tools"))
    if chosen in (None, "none", "auto"):
        return
    added = any(item.get("type") in ("additional_tools", "tool_search_output") for item in objects(body.get("input")))
    if not given and not added:
        yield "Tool choice must be specified with 'tools' parameter."
    if chosen == "required" or added:
        return
    if not isinstance(chosen, dict) or not isinstance(chosen.get("type"), str):
        yield f"tool_choice: Invalid value: {chosen!r}"
        return
    named = [chosen] if chosen["type"] != "allowed_tools" else objects(chosen.get("tools"))
    if not named:
        yield "tool_choice.tools: expected at least one tool"
    declared = [(tool.get("type"), tool.get("name")) for tool in given]
    for tool in named:
        kind, name = tool.get("type"), tool.get("name")
        if kind in ("function", "custom") and (kind, name) not in declared:
            yield f"Tool choice '{kind}' {name!r} not found in 'tools' parameter."
        if "function" in tool:
            yield "Unknown parameter: 'tool_choice.function'."


def check_formats(body: Object, model: str) -> Iterator[str]:
    given = (body.get("text") or {}).get("format")
    if given is None:
        return
    kind = given.get("type")
    if kind == "json_schema":
        if not given.get("name") or not isinstance(given.get("schema"), dict):
            yield "text.format: name and schema are required"
        elif given.get("strict"):
            yield from check_strict_schema(given["schema"], "text.format.schema")
    elif kind == "json_object":
        if "json" not in (str(body.get("input")) + str(body.get("instructions"))).lower():
            yield "input must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
    elif kind != "text":
        yield f"text.format.type: Invalid value: {kind!r}"


# --- the provider's answers -----------------------------------------------------------------------------------------

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
            frames: list[Object] = [{"type": f"{name}.delta", "delta": text} for text in peer.split_text(item[key])]
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
        frames += [{"type": f"{name}.delta", **at, "delta": text} for text in peer.split_text(part[key])]
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

    def read_frame(self, frame: peer.SseFrame, number: int) -> None:
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


class ResponsesPeer(peer.Peer):
    name = "openai-responses"
    short_name = "responses"
    http = peer.PeerHttp(
        base_path="/v1",
        path="/v1/responses",
        path_pattern=re.compile(r"/responses$"),
        other_paths={"count": "/v1/responses/input_tokens", "compact": "/v1/responses/compact"},
        count_path="/responses/input_tokens",
    )
    model = "gpt-5.5"
    sealing_model = "gpt-5.5"
    turns_key = "input"
    checks = (check_fields, check_tools, check_tool_choice, check_formats, check_items, check_pairs, check_reasoning)
    uses_data_type = True

    def complete_answer(self, body: Object, model: str) -> Object:
        head = {"id": "resp_conformance", "object": "response", "created_at": 1767225600}
        head |= {"status": "completed", "model": model}
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

    def complete_frame(self, frame: Object, model: str, earlier: list[Json]) -> str:
        """Fill in the sequence number, the event line and the response object; its final output is the finished
        items."""
        kind = frame["type"]
        if kind in END_STATUSES or kind in ("response.created", "response.in_progress"):
            rest: Object = {"status": "in_progress", "usage": None}
            if kind in END_STATUSES:
                done = [one["item"] for one in objects(earlier) if one["type"] == "response.output_item.done"]
                rest = {"status": END_STATUSES[kind], "output": done}
            frame = {**frame, "response": self.complete_answer({**rest, **frame.get("response", {})}, model)}
        return peer.write_frame(kind, {"type": kind, "sequence_number": len(earlier), **frame})

    def fold_stream(self, frames: list[peer.SseFrame]) -> peer.FoldedStream:
        reader = _ClientReader()
        for number, frame in enumerate(frame for frame in frames if frame.text or frame.event):
            reader.read_frame(frame, number)
        reader.close()
        return peer.folded_stream(reader.body, reader.violations, reader.minor_violations)

    def history_turns(self, body: Object) -> list[Json]:
        return list(body["output"])

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        """With `store: false`, as agents use it: the whole history is in the input."""
        return {"input": [{"role": "user", "content": prompt}], "store": False}

    def write_tools(self, tools: Sequence[peer.ScenarioTool]) -> list[Json]:
        return [{"type": "function", **to_builtins(tool), "strict": False} for tool in tools]

    def write_answer(self, answer: peer.ModelAnswer) -> Object:
        output: list[Json] = []
        if answer.is_sealed:
            thought = [{"type": "summary_text", "text": "Two places."}]
            output.append({"type": "reasoning", "id": "rs_7f01", "summary": thought, "encrypted_content": SEAL})
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            head = {"type": "message", "id": "msg_7f02", "role": "assistant", "status": "completed"}
            output.append({**head, "content": content})
        for number, (name, arguments) in enumerate(answer.calls):
            call = {"name": name, "call_id": f"call_Wm8Ty{number}", "arguments": peer.encode_json(arguments)}
            output.append({"type": "function_call", "id": f"fc_7f1{number}", "status": "completed", **call})
        return {"output": output, "status": "completed"}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        ids = [item["call_id"] for item in body["output"] if item.get("type") == "function_call"]
        pairs = zip(ids, texts, strict=True)
        return [{"type": "function_call_output", "call_id": id, "output": text} for id, text in pairs]

    def expect_first_turns(self, prompt: str) -> Json:
        return {"$either": [{"$contains": prompt}, super().expect_first_turns(prompt)]}

    def expect_tool(self, tool: peer.ScenarioTool) -> Json:
        return {"type": "function", "name": tool.name, "parameters": peer.expect_properties(tool)}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"type": "function_call", "call_id": id, "name": name, "arguments": {"$json": {"$is": arguments}}}

    def expect_answer(self, answer: peer.ModelAnswer) -> Json:
        output: Object = peer.exactly_these(self.expect_calls(answer, "c"), {"type": "function_call"})
        if answer.text:
            # The message may come before or after the calls: gateways do both, and clients accept both.
            output["$either"] = [{"$contains": [{"type": "message", "content": {"$text": answer.text}}]}]
        return {"status": "completed", "output": output}

    def expect_model_turns(self, answer: peer.ModelAnswer, calls: list[Json]) -> list[Json]:
        thought = [{"type": "reasoning", "encrypted_content": {"$is": SEAL}}] if answer.is_sealed else []
        return [*thought, *calls]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"type": "function_call_output", "call_id": id, "output": {"$within": text}}

    def answered_turn_options(self, said: list[Json], results: list[Json]) -> list[list[Json]]:
        """All outputs after all calls, or each after its own: the service goes by their ids."""
        thoughts, calls = said[: -len(results)], said[-len(results) :]
        pairs = [item for pair in zip(calls, results, strict=True) for item in pair]
        return [[*said, *results], [*thoughts, *pairs]]
