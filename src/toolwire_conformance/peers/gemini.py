"""Gemini generateContent: a provider's answers, and how a client reads them (SDKs and Gemini CLI)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from urllib.parse import unquote

from msgspec import to_builtins

from toolwire_conformance import Json, Object
from toolwire_conformance.peers import peer
from toolwire_conformance.peers.checks import (
    is_base64,
    is_before,
    is_since,
    known_names,
    matches,
    numbered_objects,
    objects,
    refusals,
    to_camel_case,
)

# --- what the provider refuses --------------------------------------------------------------------------------------

FIELDS = known_names("gemini")["fields"]
FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SCHEMA_TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")


def unknown_names(names: Iterable[str], path: str) -> Iterator[str]:
    at = f" at '{path}'" if path else ""
    return (f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.' for name in names)


def schema_type(node: Object) -> str:
    """The type in upper case, empty if there is none; some clients send its number."""
    kind = node.get("type")
    if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(SCHEMA_TYPES):
        return SCHEMA_TYPES[kind]
    return str(kind).upper() if isinstance(kind, (str, int)) else ""


def check_schema(node: Json, path: str) -> Iterator[str]:
    """The OpenAPI subset of `parameters` and `responseSchema`; Gemini refuses any other keyword."""
    if not isinstance(node, dict):
        yield f"{path}: expected a schema"
        return
    node = {to_camel_case(key): value for key, value in node.items()}
    yield from unknown_names(node.keys() - FIELDS["schema"], path)
    kind = schema_type(node)
    if isinstance(node.get("type"), list):
        yield f"{path}.type: Proto field is not repeating, cannot start list."
    elif kind and kind not in SCHEMA_TYPES:
        yield f"{path}.type: Invalid value {kind!r}"
    if "enum" in node:
        if kind != "STRING":
            yield f"{path}.enum: only allowed for STRING type"
        values = node["enum"] if isinstance(node["enum"], list) else []
        others = (value for value in values if not isinstance(value, str))
        yield from (f"{path}.enum: Invalid value (TYPE_STRING), {value!r}" for value in others)
    yield from _check_properties(node, path)
    if kind == "ARRAY" and "items" not in node:
        yield f"{path}.items: missing field."
    if "items" in node:
        yield from check_schema(node["items"], f"{path}.items")
    for index, child in enumerate(node.get("anyOf") or []):
        yield from check_schema(child, f"{path}.any_of[{index}]")


def _check_properties(node: Object, path: str) -> Iterator[str]:
    properties = node.get("properties")
    names = properties if isinstance(properties, dict) else {}
    undefined = (name for name in node.get("required") or [] if name not in names)
    yield from (f"{path}.required: property is not defined: {name!r}" for name in undefined)
    for name, child in names.items():
        if not PARAMETER_NAME.fullmatch(name):
            yield f"{path}.properties: invalid parameter name {name!r}"
        yield from check_schema(child, f"{path}.properties[{name}]")


def check_declarations(body: Object, model: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, tool in numbered_objects(body.get("tools")):
        for number, declared in numbered_objects(tool.get("functionDeclarations")):
            at = f"tools[{index}].function_declarations[{number}]"
            name = declared.get("name")
            if not matches(FUNCTION_NAME, name):
                yield f"{at}.name: Invalid function name. Must start with a letter or an underscore, got {name!r}"
            elif name in seen:
                yield f"{at}.name: Duplicate function declaration found: {name}"
            seen.add(str(name))
            yield from unknown_names(declared.keys() - FIELDS["declaration"], at)
            yield from _check_parameters(declared, at)


def _check_parameters(declared: Object, path: str) -> Iterator[str]:
    schema, free = declared.get("parameters"), declared.get("parametersJsonSchema")
    if schema is not None and free is not None:
        yield f"{path}: parameters and parameters_json_schema are exclusive"
    if schema is not None:
        yield from check_schema(schema, f"{path}.parameters")
        if schema_type(schema) not in ("OBJECT", ""):
            yield f"{path}.parameters: schema should be of type OBJECT"
    if free is not None:
        if not isinstance(free, dict):
            yield f"{path}.parameters_json_schema: expected an object"
        elif str(free.get("type", "object")).lower() != "object":
            yield f"{path}.parameters_json_schema: schema should be of type OBJECT"
        yield from check_references(free, path)


def check_references(free: Json, path: str) -> Iterator[str]:
    """`$ref` must refer to a definition in the same schema."""
    stack: list[Json] = [free]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and not _is_resolvable(free, reference):
                yield f"{path}: reference to undefined schema {reference!r}"
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _is_resolvable(free: Json, reference: str) -> bool:
    node = free
    for key in filter(None, unquote(reference[1:]).split("/")):
        name = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return reference.startswith("#")


def check_tool_kinds(body: Object, model: str) -> Iterator[str]:
    """Built-in tools beside functions need a newer model, separate tool objects, and a flag in toolConfig."""
    tools = objects(body.get("tools"))
    for index, tool in enumerate(tools):
        at, held = f"tools[{index}]", [key for key in tool if tool[key] is not None]
        several = "functionDeclarations" in held and len(held) > 1
        yield from unknown_names(tool.keys() - FIELDS["built_in_tools"] - {"functionDeclarations"}, at)
        yield from refusals(
            (several, f"{at}.tool_type: one_of 'tool_type' has more than one initialized field: {held}"),
            (not held, f"{at}.tool_type: required one_of 'tool_type' must have one initialized field"),
            (tool.get("functionDeclarations") == [], f"{at}.function_declarations: must not be empty"),
        )
    functions = any("functionDeclarations" in tool for tool in tools)
    built_in = any(tool.keys() & (FIELDS["built_in_tools"] - {"computerUse"}) for tool in tools)
    if not (functions and built_in):
        return
    if is_before(model, "gemini", (3, 0)):
        yield "Built-in tools and Function Calling cannot be combined in the same request."
    elif not (body.get("toolConfig") or {}).get("includeServerSideToolInvocations"):
        yield "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with functions."


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
    given: Object = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if not given:
        return
    mode = str(given.get("mode", "AUTO")).upper()
    if mode not in ("AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"):
        yield f"tool_config.function_calling_config.mode: Invalid value {mode!r}"
    allowed = given.get("allowedFunctionNames")
    declared = [d.get("name") for tool in objects(body.get("tools")) for d in objects(tool.get("functionDeclarations"))]
    if mode in ("ANY", "VALIDATED") and not declared:
        yield "Function calling config is set without function_declarations."
    if allowed is None:
        return
    if mode not in ("ANY", "VALIDATED"):
        yield "allowed_function_names should be set only when the mode is ANY or VALIDATED."
    if not allowed:
        yield "allowed_function_names must not be empty."
    yield from (f"allowed_function_names: {name!r} is not declared" for name in allowed if name not in declared)


# --- fields and parts -----------------------------------------------------------------------------------------------

PART_DATA_FIELDS = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
)  # fmt: skip
THINKING_TEXT = "generation_config.thinking_config: set thinking_level or thinking_budget, not both"


def camel_case_fields(value: Json) -> Json:
    """A request with every field name in camelCase; arguments, results and schemas keep their keys."""
    if isinstance(value, list):
        return [camel_case_fields(element) for element in value]
    if not isinstance(value, dict):
        return value
    renamed = {to_camel_case(key): inner for key, inner in value.items()}
    return {key: v if key in FIELDS["free_json"] else camel_case_fields(v) for key, v in renamed.items()}


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from unknown_names(body.keys() - FIELDS["request"], "")
    if not objects(body.get("contents")):
        yield "contents: contents is not specified"
    config = body.get("generationConfig") or {}
    yield from unknown_names(config.keys() - FIELDS["generation_config"], "generation_config")


def check_config(body: Object, model: str) -> Iterator[str]:
    given: Object = body.get("generationConfig") or {}
    thinking: Object = given.get("thinkingConfig") or {}
    is_old = is_before(model, "gemini", (3, 0))
    schemas = [key for key in ("responseSchema", "responseJsonSchema") if given.get(key) is not None]
    mime = given.get("responseMimeType")
    untyped = schemas and mime not in ("application/json", "text/x.enum")
    functions = any(tool.get("functionDeclarations") for tool in objects(body.get("tools")))
    both = functions and mime == "application/json" and is_old
    yield from refusals(
        ("thinkingLevel" in thinking and "thinkingBudget" in thinking, THINKING_TEXT),
        ("thinkingLevel" in thinking and is_old, "Thinking level is not supported for this model."),
        (len(given.get("stopSequences") or []) > 5, "generation_config.stop_sequences: at most 5"),
        (len(schemas) > 1, "generation_config: response_schema and response_json_schema are exclusive"),
        (untyped, "generation_config.response_mime_type must be application/json with a schema"),
        (both, "Function calling with a response mime type: 'application/json' is unsupported"),
    )
    if "responseSchema" in given:
        yield from check_schema(given["responseSchema"], "generation_config.response_schema")


def check_parts(body: Object, model: str) -> Iterator[str]:
    contents = [(f"contents[{index}]", content) for index, content in numbered_objects(body.get("contents"))]
    if isinstance(body.get("systemInstruction"), dict):
        contents.append(("system_instruction", body["systemInstruction"]))
    for at, content in contents:
        if content.get("role", "user") not in ("user", "model", "function", "system"):
            yield f"{at}.role: Please use a valid role: user, model."
        if not objects(content.get("parts")):
            yield f"{at}.parts: contents.parts must not be empty."
        for number, part in numbered_objects(content.get("parts")):
            yield from _check_part(part, f"{at}.parts[{number}]")


def _check_part(part: Object, path: str) -> Iterator[str]:
    held = [key for key in PART_DATA_FIELDS if part.get(key) is not None]
    if len(held) != 1:
        yield f"{path}.data: required oneof field 'data' must have one initialized field, has {held}"
    yield from unknown_names(part.keys() - FIELDS["part"] - set(PART_DATA_FIELDS), path)
    if part.get("thoughtSignature") is not None and not is_base64(part["thoughtSignature"]):
        yield f"{path}.thought_signature: Base64 decoding failed"
    call, response, media = part.get("functionCall"), part.get("functionResponse"), part.get("inlineData")
    if isinstance(call, dict):
        if not call.get("name") and not call.get("partialArgs") and "willContinue" not in call and call:
            yield f"{path}.function_call.name: Name cannot be empty."
        if not isinstance(call.get("args", {}), (dict, type(None))):
            yield f"{path}.function_call.args: Proto field is not repeating, cannot start list."
    if isinstance(response, dict):
        if not response.get("name"):
            yield f"{path}.function_response.name: Name cannot be empty."
        if not isinstance(response.get("response"), dict):
            yield f"{path}.function_response.response: must be an object"
    if isinstance(media, dict) and not (media.get("mimeType") and media.get("data") is not None):
        yield f"{path}.inline_data: mime_type and data are required"


# --- turns ----------------------------------------------------------------------------------------------------------


def _part_values(parts: list[Object], key: str) -> list[Object]:
    return [part[key] for part in parts if isinstance(part.get(key), dict)]


def _merged_turns(body: Object) -> Iterator[tuple[int, str, list[Object]]]:
    """Index, role and parts of each content; neighbours of the same role are merged, as Gemini does."""
    contents = numbered_objects(body.get("contents"))
    for role, group in groupby(contents, lambda pair: "model" if pair[1].get("role") == "model" else "user"):
        merged = list(group)
        yield merged[0][0], role, [part for _, content in merged for part in objects(content.get("parts"))]


def check_turns(body: Object, model: str) -> Iterator[str]:
    """Calls must follow a user turn, and all their responses must be in the next turn."""
    calls: list[Object] = []
    first = True
    for index, role, parts in _merged_turns(body):
        if role == "user":
            yield from _check_responses(index, calls, _part_values(parts, "functionResponse"))
            calls = []
        else:
            calls = [call for call in _part_values(parts, "functionCall") if call.get("name")]
            if calls and first:
                yield CALL_FIRST_TEXT
        first = False
    if calls:
        yield f"the conversation ends in {len(calls)} function calls without responses"


CALL_FIRST_TEXT = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESPONSE_COUNT_TEXT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the"
    " function call turn."
)


def _check_responses(index: int, calls: list[Object], responses: list[Object]) -> Iterator[str]:
    if len(calls) != len(responses):
        yield f"contents[{index}]: {RESPONSE_COUNT_TEXT} ({len(calls)} calls, {len(responses)} responses)"
        return
    if sorted(call.get("name", "") for call in calls) != sorted(response.get("name", "") for response in responses):
        yield f"contents[{index}]: function responses have other names than the calls"
    ids = sorted(call.get("id") or "" for call in calls)
    if ids != sorted(response.get("id") or "" for response in responses):
        yield f"contents[{index}]: functionResponse.id does not match functionCall.id"
    elif len(set(ids)) < len(ids) and any(ids):
        yield f"contents[{index}]: function call ids are not unique"


def check_signatures(body: Object, model: str) -> Iterator[str]:
    """Gemini 3: the first call of each step of the current turn needs a thought signature; earlier turns do not."""
    if not is_since(model, "gemini", (3, 0)):
        return
    steps = list(_merged_turns(body))
    # Text from the user begins a new turn; media beside function responses belong to them.
    begins = [
        at
        for at, (_, role, parts) in enumerate(steps)
        if role == "user" and (not _part_values(parts, "functionResponse") or any(part.get("text") for part in parts))
    ]
    for index, role, parts in steps[max(begins, default=0) :]:
        first = next((part for part in parts if isinstance(part.get("functionCall"), dict)), None)
        if role == "model" and first is not None and not first.get("thoughtSignature"):
            name = first["functionCall"].get("name")
            yield f"Function call `{name}` in the `{index + 1}.` content block is missing a `thought_signature`"


def check_response_media(body: Object, model: str) -> Iterator[str]:
    for index, content in numbered_objects(body.get("contents")) if is_before(model, "gemini", (3, 0)) else ():
        if any(response.get("parts") for response in _part_values(objects(content.get("parts")), "functionResponse")):
            yield f"contents[{index}]: function_response.parts is not supported for this model"


# --- the provider's answers -----------------------------------------------------------------------------------------

USAGE: Object = {"promptTokenCount": 25, "candidatesTokenCount": 12, "totalTokenCount": 37}


def _unfold_part(part: Object) -> list[Object]:
    if part.keys() <= {"text", "thought", "thoughtSignature"} and part.get("text"):
        plain = {key: value for key, value in part.items() if key != "thoughtSignature"}
        texts = [{**plain, "text": text} for text in peer.split_text(part["text"])]
        return [*texts, {**part, "text": ""}] if "thoughtSignature" in part else texts
    return [part]


# --- the client -----------------------------------------------------------------------------------------------------


def _add_chunk(chunk: Object, body: Object, violations: list[str]) -> None:
    for snake in ("usage_metadata", "model_version", "prompt_feedback"):
        if snake in chunk:
            violations.append(f"{snake} is ignored: answers are camelCase")
    body.update({key: value for key, value in chunk.items() if key != "candidates"})
    whole = body.setdefault("candidates", [])
    for candidate in chunk.get("candidates", []):
        index = candidate.get("index", 0)
        while len(whole) <= index:
            whole.append({"index": len(whole), "content": {"role": "model", "parts": []}})
        parts = whole[index]["content"]["parts"]
        for part in candidate.get("content", {}).get("parts", []):
            _append_part(parts, part, violations)
        whole[index].update({key: value for key, value in candidate.items() if key != "content"})


def _append_part(parts: list[Object], part: Object, violations: list[str]) -> None:
    """Append a text to the text before it if both are of one kind; skip an empty text without a signature."""
    signature, call = part.get("thoughtSignature"), part.get("functionCall")
    if signature is not None and not is_base64(signature):
        violations.append(f"thoughtSignature is not base64: {signature[:80]!r}")
    if isinstance(call, dict) and not isinstance(call.get("args", {}), dict):
        violations.append("functionCall.args is not an object")
    if part.get("text") == "" and "thoughtSignature" not in part:
        return
    last = parts[-1] if parts else {}
    is_text = "text" in part and part.keys() <= {"text", "thought"}
    if is_text and last.keys() == part.keys() and last.get("thought") == part.get("thought"):
        last["text"] += part["text"]
    else:
        parts.append(dict(part))


def _end_violations(frames: list[peer.SseFrame], body: Object) -> list[str]:
    if body.get("promptFeedback", {}).get("blockReason"):
        return []
    if not body.get("candidates"):
        return ["no candidates"]
    found = [f"candidate {c['index']} has no finishReason" for c in body["candidates"] if "finishReason" not in c]
    last = frames[-1].data if isinstance(frames[-1].data, dict) else {}
    ends = last.get("candidates") or [{}]
    if ends[0].get("finishReason") in (None, "STOP", "MAX_TOKENS") and not ends[0].get("content", {}).get("parts"):
        found.append("the last chunk has no parts: SDK chats drop the whole turn")
    return found


SEAL = "EpcBCpQB+sealed/thoughts+of/the+modelA=="
SEAL_SPELLINGS = {"$either": [SEAL, SEAL.replace("+", "-").replace("/", "_")]}
"""The same bytes in both base64 alphabets: Gemini accepts either."""


def _write_schema(schema: Object) -> Object:
    """As the SDK writes it: types in upper case."""
    out = {**schema, "type": schema["type"].upper()}
    if "properties" in schema:
        out["properties"] = {name: _write_schema(inner) for name, inner in schema["properties"].items()}
    return out


class GeminiPeer(peer.Peer):
    name = "gemini"
    short_name = "gemini"
    http = peer.PeerHttp(
        path="/v1beta/models/{model}:generateContent",
        stream_path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
        path_pattern=re.compile(r"/models/(?P<model>[^:]+):(?:generate|(?P<stream>streamGenerate))Content$"),
        frames_query="alt=sse",
        other_paths={"count": "/v1beta/models/{model}:countTokens"},
        count_path=":countTokens",
        credential=("x-goog-api-key", "{key}"),
    )
    model = "gemini-2.5-flash"
    sealing_model = "gemini-3.8-flash"
    turns_key = "contents"
    checks = (
        check_fields, check_config, check_parts, check_turns, check_signatures, check_response_media,
        check_declarations, check_tool_kinds, check_tool_choice,
    )  # fmt: skip

    def normalise_body(self, body: Json) -> Json:
        return camel_case_fields(body)

    def complete_answer(self, body: Object, model: str) -> Object:
        """Fill in the usual fields; a content without a role gets the role `model`."""
        candidates = []
        for index, candidate in enumerate(body.get("candidates", [])):
            if "content" in candidate:
                candidate = {**candidate, "content": {"role": "model", **candidate["content"]}}
            candidates.append({"index": index, **candidate})
        rest = {"candidates": candidates} if candidates else {}
        return {"usageMetadata": dict(USAGE), "modelVersion": model, "responseId": "resp-conformance", **body, **rest}

    def write_stream(self, body: Object) -> list[str]:
        """Text in several chunks, then its signature; every other part in one chunk; then an empty text with the finish
        reason."""
        frames: list[Json] = []
        for candidate in body.get("candidates", []):
            for part in candidate.get("content", {}).get("parts", []):
                for piece in _unfold_part(part):
                    frames.append({"candidates": [{"index": candidate["index"], "content": {"parts": [piece]}}]})
            last = {key: value for key, value in candidate.items() if key != "content"}
            if "content" in candidate:
                last["content"] = {"parts": [{"text": ""}]}
            frames.append({"candidates": [last], "usageMetadata": body["usageMetadata"]})
        return self.complete_frames(frames or [body], body["modelVersion"])

    def complete_frame(self, frame: Object, model: str, earlier: list[Json]) -> str:
        return peer.write_frame(None, frame if "error" in frame else self.complete_answer(frame, model))

    def fold_stream(self, frames: list[peer.SseFrame]) -> peer.FoldedStream:
        body: Object = {}
        violations: list[str] = []
        for frame in frames:
            if frame.event is not None:
                violations.append(f"an event line ({frame.event}) makes clients fail")
            if frame.other_lines:
                violations.append(f"a line other than data makes clients fail: {frame.other_lines[0][:80]}")
            if not isinstance(frame.data, dict):
                violations.append(f"a frame that is not a JSON object makes clients fail: {frame.text[:80]}")
            elif "error" in frame.data:
                body["error"] = frame.data["error"]
                break  # clients stop reading here
            else:
                _add_chunk(frame.data, body, violations)
        if "error" not in body:
            violations += _end_violations(frames, body)
        return peer.FoldedStream(body, tuple(violations))

    def history_turns(self, body: Object) -> list[Json]:
        return [body["candidates"][0]["content"]]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        return {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}

    def write_tools(self, tools: Sequence[peer.ScenarioTool]) -> list[Json]:
        declared = [{**to_builtins(tool), "parameters": _write_schema(tool.parameters)} for tool in tools]
        return [{"functionDeclarations": declared}]

    def write_answer(self, answer: peer.ModelAnswer) -> Object:
        parts: list[Json] = [{"text": answer.text}] if answer.text else []
        for number, (name, arguments) in enumerate(answer.calls):
            signed = {"thoughtSignature": SEAL} if answer.is_sealed and number == 0 else {}
            parts.append({"functionCall": {"id": f"gc7d{number}", "name": name, "args": arguments}, **signed})
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        parts = body["candidates"][0]["content"]["parts"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [
            {key: call[key] for key in ("id", "name") if key in call} | {"response": {"output": text}}
            for call, text in zip(calls, texts, strict=True)
        ]
        return [{"role": "user", "parts": [{"functionResponse": result} for result in results]}]

    def expect_prompt(self, prompt: str) -> Json:
        return {"parts": {"$text": {"$contains": prompt}}}

    def expect_tool(self, tool: peer.ScenarioTool) -> Json:
        schema = peer.expect_properties(tool)
        return {"name": tool.name, "$either": [{"parameters": schema}, {"parametersJsonSchema": schema}]}

    def expect_tools(self, tools: Sequence[peer.ScenarioTool]) -> Json:
        options = peer.grouping_options([self.expect_tool(tool) for tool in tools])
        return {"$either": [{"$contains": [{"functionDeclarations": group} for group in groups]} for groups in options]}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"functionCall": {"name": name, "args": {"$is": arguments}, "id": {"$either": ["$absent", id]}}}

    def expect_answer(self, answer: peer.ModelAnswer) -> Json:
        parts = peer.exactly_these(self.expect_calls(answer, "c"), {"functionCall": "$any"}, answer.text)
        return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}

    def expect_model_turns(self, answer: peer.ModelAnswer, calls: list[Json]) -> list[Json]:
        if answer.is_sealed:
            calls = [{**calls[0], "thoughtSignature": SEAL_SPELLINGS}, *calls[1:]]
        return [{"role": "model", "parts": {"$contains": calls}}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        ids = {"$either": ["$absent", id]}
        return {"functionResponse": {"name": name, "id": ids, "response": {"$within": text}}}

    def result_turn_options(self, results: list[Json]) -> list[list[Json]]:
        return [[{"parts": {"$contains": group}} for group in groups] for groups in peer.grouping_options(results)]
