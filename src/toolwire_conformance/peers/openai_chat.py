"""OpenAI Chat Completions: a provider's answers, and how a client reads them (SDK 3.x)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import to_builtins

from toolwire_conformance import Json, Object
from toolwire_conformance.peers import peer
from toolwire_conformance.peers.checks import (
    check_object_schema,
    check_strict_schema,
    check_unknown_keys,
    is_since,
    known_names,
    matches,
    numbered_objects,
    objects,
    refusals,
)

# --- what the provider refuses --------------------------------------------------------------------------------------

NAMES = known_names("openai-chat")
PARTS_BY_ROLE = NAMES["parts"]
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID_LIMIT = 40
_OPENAI_MODEL = re.compile(r"(?:.*/)?(?:gpt|chatgpt|codex|o\d|the-model)")
"""Models that OpenAI itself serves, and those without a name of their own. Others run on servers that accept more."""
TOOLS_LIMIT = 128


def check_fields(body: Object, model: str) -> Iterator[str]:
    known = NAMES["fields"]["request"]
    if not _OPENAI_MODEL.match(model):
        known |= NAMES["fields"]["other_servers"]
    yield from check_unknown_keys(body, known)
    given = {key for key, value in body.items() if value is not None}
    name, tools, stop = body.get("model"), body.get("tools"), body.get("stop")
    is_chosen = body.get("tool_choice") not in (None, "none") and not body.get("functions")
    yield from refusals(
        (not isinstance(name, str) or not name, "you must provide a model parameter"),
        (not objects(body.get("messages")), "messages: expected at least one message"),
        ("stream_options" in given and not body.get("stream"), STREAM_OPTIONS_TEXT),
        (not tools and is_chosen, "'tool_choice' is only allowed when 'tools' are specified."),
        (not tools and "parallel_tool_calls" in given, PARALLEL_TEXT),
        (tools == [], "[] is too short - 'tools'"),
        (isinstance(stop, list) and not 1 <= len(stop) <= 4, "stop: between 1 and 4 sequences"),
        ("top_logprobs" in given and not body.get("logprobs"), "top_logprobs needs logprobs"),
    )


STREAM_OPTIONS_TEXT = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
PARALLEL_TEXT = "'parallel_tool_calls' is only allowed when 'tools' are specified."


def check_limits(body: Object, model: str) -> Iterator[str]:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    is_reasoning_model = re.match(r"o\d", model) or (is_since(model, "gpt", (5, 0)) and "chat" not in model)
    if not is_reasoning_model:
        return
    if body.get("max_tokens") is not None:
        yield "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    effort = body.get("reasoning_effort") not in (None, "none")
    if effort and body.get("tools") and is_since(model, "gpt", (5, 4)):
        yield "Function tools with reasoning_effort are not supported in /v1/chat/completions. Use /v1/responses."


def check_messages(body: Object, model: str) -> Iterator[str]:
    for index, message in numbered_objects(body.get("messages")):
        at = f"messages[{index}]"
        role, content = message.get("role"), message.get("content")
        if role not in PARTS_BY_ROLE:
            yield f"{at}.role: Invalid value: {role!r}"
            continue
        has_other = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        may_be_null = role == "function" or (role == "assistant" and has_other)
        if content is None and not may_be_null:
            yield f"{at}.content: Invalid value: expected a string, got null."
        if message.get("tool_calls") == []:
            yield f"{at}.tool_calls: [] is too short"
        if isinstance(content, list):
            yield from _check_parts(content, role, at)
        elif not isinstance(content, (str, type(None))):
            yield f"{at}.content: Invalid type: expected one of an array of objects or string"
        for number, call in numbered_objects(message.get("tool_calls")):
            yield from _check_call(call, f"{at}.tool_calls[{number}]")


def _check_parts(content: list[Json], role: str, path: str) -> Iterator[str]:
    if not content:
        yield f"{path}.content: [] is too short"
    for number, part in numbered_objects(content):
        at, kind = f"{path}.content[{number}]", part.get("type")
        if kind not in PARTS_BY_ROLE[role]:
            yield f"{at}.type: Invalid value: {kind!r}. Supported values: {sorted(PARTS_BY_ROLE[role])}"
        if kind == "text" and not isinstance(part.get("text"), str):
            yield f"{at}.text: expected a string"
        if kind == "image_url" and not isinstance((part.get("image_url") or {}).get("url"), str):
            yield f"{at}.image_url.url: expected a string"


def _check_call(call: Object, path: str) -> Iterator[str]:
    id = call.get("id")
    if not isinstance(id, str):
        yield f"{path}.id: Missing required parameter"
    elif not 0 < len(id) <= ID_LIMIT:
        yield f"{path}.id: string too long or empty. Expected a string with maximum length {ID_LIMIT}, got {len(id)}"
    kind = call.get("type")
    if kind not in ("function", "custom"):
        yield f"{path}.type: Invalid value: {kind!r}"
        return
    inner = call.get(kind) or {}
    if not matches(TOOL_NAME, inner.get("name")):
        yield f"{path}.{kind}.name: expected a string that matches '^[a-zA-Z0-9_-]{{1,64}}$', got {inner.get('name')!r}"
    if not isinstance(inner.get("arguments" if kind == "function" else "input"), str):
        yield f"{path}.{kind}.arguments: expected a string"


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """The results of an assistant's calls must follow directly, and none may be missing."""
    due: dict[str, int] = {}
    known: set[str] = set()
    for index, message in numbered_objects(body.get("messages")):
        if message.get("role") == "tool":
            id = message.get("tool_call_id", "")
            if id not in known:
                yield f"messages[{index}]: role 'tool' must be a response to a preceding message with 'tool_calls'"
            due.pop(id, None)
            continue
        if due:
            yield f"messages[{index}]: 'tool_calls' must be followed by tool messages for each id: {list(due)}"
        due = {call.get("id", ""): index for call in objects(message.get("tool_calls"))}
        known = set(due)
    if due:
        yield f"the last 'tool_calls' were not answered: {list(due)}"


def check_tools(body: Object, model: str) -> Iterator[str]:
    given = body.get("tools")
    if isinstance(given, list) and len(given) > TOOLS_LIMIT:
        yield f"Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_LIMIT}, got {len(given)}"
    for index, tool in numbered_objects(given):
        at, kind = f"tools[{index}]", tool.get("type")
        if kind not in ("function", "custom"):
            yield f"{at}.type: Invalid value: {kind!r}. Supported values are: 'function' and 'custom'."
            continue
        inner = tool.get(kind)
        if not isinstance(inner, dict):
            yield f"{at}.{kind}: Missing required parameter"
            continue
        if not matches(TOOL_NAME, inner.get("name")):
            yield f"{at}.{kind}.name: string does not match '^[a-zA-Z0-9_-]{{1,64}}$', got {inner.get('name')!r}"
        yield from check_unknown_keys(inner, NAMES["tools"][kind], f"{at}.{kind}.")
        yield from check_unknown_keys(tool, frozenset({"type", kind}), f"{at}.")
        if inner.get("parameters") is not None:
            yield from check_object_schema(inner["parameters"], f"{at}.function.parameters")
            if inner.get("strict"):
                yield from check_strict_schema(inner["parameters"], f"{at}.function.parameters")


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
    chosen = body.get("tool_choice")
    if chosen is None or chosen in ("none", "auto", "required"):
        return
    if not isinstance(chosen, dict) or chosen.get("type") not in ("function", "custom", "allowed_tools"):
        yield f"tool_choice: Invalid value: {chosen!r}"
        return
    kind = chosen["type"]
    declared = [_named_tool(tool) for tool in objects(body.get("tools"))]
    wanted = [chosen] if kind != "allowed_tools" else objects((chosen.get("allowed_tools") or {}).get("tools"))
    if not wanted:
        yield "tool_choice.allowed_tools.tools: expected at least one tool"
    missing = (tool for tool in map(_named_tool, wanted) if tool not in declared)
    yield from (f"tool_choice: Tool choice {name!r} not found in 'tools' parameter." for _, name in missing)


def _named_tool(tool: Object) -> tuple[Json, Json]:
    return tool.get("type"), (tool.get(str(tool.get("type"))) or {}).get("name")


def check_formats(body: Object, model: str) -> Iterator[str]:
    given = body.get("response_format")
    if given is None:
        return
    kind = given.get("type")
    if kind == "json_object" and "json" not in str(body.get("messages")).lower():
        yield "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    if kind == "json_schema":
        inner = given.get("json_schema") or {}
        if not TOOL_NAME.fullmatch(str(inner.get("name") or "")):
            yield "response_format.json_schema.name: Missing required parameter"
        if inner.get("strict"):
            yield from check_strict_schema(inner.get("schema"), "response_format.json_schema.schema")
    elif kind not in ("text", "json_object"):
        yield f"response_format.type: Invalid value: {kind!r}"


# --- the provider's answers -----------------------------------------------------------------------------------------

USAGE: Object = {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}


def _call_deltas(number: int, call: Object) -> list[Object]:
    kind = "custom" if "custom" in call else "function"
    field = "input" if kind == "custom" else "arguments"
    head = {"index": number, "id": call["id"], "type": kind, kind: {"name": call[kind]["name"], field: ""}}
    rest = [{"index": number, kind: {field: text}} for text in peer.split_text(call[kind][field])]
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


class ChatPeer(peer.Peer):
    name = "openai-chat"
    short_name = "chat"
    http = peer.PeerHttp(base_path="/v1", path="/v1/chat/completions", path_pattern=re.compile(r"/chat/completions$"))
    model = "gpt-4.1"
    sealing_model = "gpt-4.1"
    turns_key = "messages"
    checks = (check_fields, check_limits, check_messages, check_pairs, check_tools, check_tool_choice, check_formats)
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
                deltas += [{key: text} for text in peer.split_text(message.get(key) or "")]
            if message.get("annotations"):
                deltas.append({"annotations": message["annotations"]})
            for number, call in enumerate(message.get("tool_calls") or []):
                deltas += _call_deltas(number, call)
            frames += [{"choices": [{"index": index, "delta": delta, "finish_reason": None}]} for delta in deltas]
            frames.append({"choices": [{"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}]})
        if body.get("usage"):
            frames.append({"choices": [], "usage": body["usage"]})
        return [*self.complete_frames([*frames], body["model"]), peer.write_frame(None, "[DONE]")]

    def complete_frame(self, frame: Object, model: str, earlier: list[Json]) -> str:
        """`{"delta": …, "finish_reason": …}` is short for a chunk with one choice, `{"usage": …}` for one without."""
        if "error" in frame:
            return peer.write_frame(None, frame)
        head = {"id": "chatcmpl-conformance", "object": "chat.completion.chunk", "created": 1767225600, "model": model}
        rest = {key: value for key, value in frame.items() if key not in ("delta", "finish_reason")}
        if "delta" in frame:
            choice = {"index": 0, "delta": frame["delta"], "finish_reason": frame.get("finish_reason")}
            rest = {"choices": [choice], **rest}
        return peer.write_frame(None, {**head, "choices": [], **rest})

    def fold_stream(self, frames: list[peer.SseFrame]) -> peer.FoldedStream:
        body: Object = {"object": "chat.completion", "choices": []}
        violations: list[str] = []
        minor_violations: list[str] = []
        done = False
        for frame in frames:
            if done:
                found = minor_violations if frame.text == "[DONE]" else violations
                found.append(f"a frame after [DONE]: {frame.text[:80]}")
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
        return peer.folded_stream(body, violations, minor_violations)

    def history_turns(self, body: Object) -> list[Json]:
        return [body["choices"][0]["message"]]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        return {"messages": [{"role": "user", "content": prompt}]}

    def write_tools(self, tools: Sequence[peer.ScenarioTool]) -> list[Json]:
        return [{"type": "function", "function": to_builtins(tool)} for tool in tools]

    def write_answer(self, answer: peer.ModelAnswer) -> Object:
        functions = [{"name": name, "arguments": peer.encode_json(arguments)} for name, arguments in answer.calls]
        calls = [{"id": f"call_Kq3Vx{n}", "type": "function", "function": one} for n, one in enumerate(functions)]
        message = {"role": "assistant", "content": answer.text or None} | ({"tool_calls": calls} if calls else {})
        return {"choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}]}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        ids = [call["id"] for call in body["choices"][0]["message"].get("tool_calls") or []]
        return [{"role": "tool", "tool_call_id": id, "content": text} for id, text in zip(ids, texts, strict=True)]

    def expect_tool(self, tool: peer.ScenarioTool) -> Json:
        return {"type": "function", "function": {"name": tool.name, "parameters": peer.expect_properties(tool)}}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        function = {"name": name, "arguments": {"$json": {"$is": arguments}}}
        return {"id": id, "type": "function", "function": function}

    def expect_answer(self, answer: peer.ModelAnswer) -> Json:
        message: Object = {"role": "assistant"} | ({"content": {"$text": answer.text}} if answer.text else {})
        message["tool_calls"] = self.expect_calls(answer, "c") or {"$either": ["$absent", []]}
        return {"choices": [{"message": message, "finish_reason": "tool_calls" if answer.calls else "stop"}]}

    def expect_model_turns(self, answer: peer.ModelAnswer, calls: list[Json]) -> list[Json]:
        return [{"role": "assistant", "tool_calls": calls}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"role": "tool", "tool_call_id": id, "content": {"$within": text}}
