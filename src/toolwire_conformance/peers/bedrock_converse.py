"""Amazon Bedrock's Converse: a provider's answers, and how a client reads them (boto3).

The rules are those of the service model (`bedrock-runtime` in botocore 1.44.3, November 2026) and of AWS's error texts
as they were reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from toolwire_conformance import Json, Object
from toolwire_conformance.peers import event_stream, peer
from toolwire_conformance.peers.checks import (
    check_unknown_keys,
    is_base64,
    known_names,
    matches,
    numbered_objects,
    objects,
    refusals,
)

NAMES = known_names("bedrock-converse")
FIELDS, BLOCKS = NAMES["fields"], NAMES["blocks"]
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
DOCUMENT_NAME = re.compile(r"(?!.* {2})[A-Za-z0-9_()\[\] -]{1,200}")
FORMATS = {
    "image": frozenset("png jpeg gif webp".split()),
    "document": frozenset("pdf csv doc docx xls xlsx html txt md".split()),
    "video": frozenset("mkv mov mp4 webm flv mpeg mpg wmv three_gp".split()),
    "audio": frozenset("mp3 opus wav aac flac mp4 ogg mkv mka x-aac m4a mpeg mpga pcm webm".split()),
}
BLANK_TEXT = "The text field in the ContentBlock object at {} is blank. Add text to the text field, and try again."
NO_TOOLS_TEXT = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
ROLES_TEXT = "A conversation must alternate between user and assistant roles."
SDK_TEXT = "Parameter validation failed: {}"


# --- what the provider refuses --------------------------------------------------------------------------------------


def members(block: Object) -> list[str]:
    return [key for key, value in block.items() if value is not None]


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, FIELDS["request"])
    config: Object = body.get("inferenceConfig") or {}
    yield from check_unknown_keys(config, FIELDS["inference"], "inferenceConfig.")
    limit, stop = config.get("maxTokens"), config.get("stopSequences")
    yield from refusals(
        (not objects(body.get("messages")), "messages: a conversation must have at least one message"),
        (limit is not None and (type(limit) is not int or limit < 1), "inferenceConfig.maxTokens: at least 1"),
        (isinstance(stop, list) and (len(stop) > 2500 or not all(stop)), "inferenceConfig.stopSequences: 1 character"),
    )
    for key in ("temperature", "topP"):
        value = config.get(key)
        if value is not None and (isinstance(value, bool) or not 0 <= value <= 1):
            yield f"inferenceConfig.{key}: must be between 0 and 1"
    metadata = body.get("requestMetadata")
    if metadata is not None and not 1 <= len(metadata) <= 16:
        yield "requestMetadata: between 1 and 16 entries"
    tier = body.get("serviceTier")
    if tier is not None and tier.get("type") not in ("priority", "default", "flex", "reserved"):
        yield f"serviceTier.type: {tier.get('type')!r}"
    yield from _check_output(body.get("outputConfig"))


def _check_output(config: Json) -> Iterator[str]:
    form = (config or {}).get("textFormat")
    if form is None:
        return
    schema = ((form.get("structure") or {}).get("jsonSchema") or {}).get("schema")
    if form.get("type") != "json_schema" or not isinstance(schema, str):
        yield "outputConfig.textFormat: the schema must be a string"
    elif not isinstance(json.loads(schema), dict):
        yield "outputConfig.textFormat: the schema is not an object"


def check_roles(body: Object, model: str) -> Iterator[str]:
    roles = [message.get("role") for message in objects(body.get("messages"))]
    for number, role in enumerate(roles):
        if role not in ("user", "assistant"):
            yield f"messages.{number}.role: {role!r}"
        if number and role == roles[number - 1]:
            yield f"messages.{number}: {ROLES_TEXT}"
    if roles and roles[0] != "user":
        yield f"messages.0: {ROLES_TEXT} Make sure the conversation starts with a user message"


def check_contents(body: Object, model: str) -> Iterator[str]:
    for number, block in numbered_objects(body.get("system")):
        yield from _check_block(block, BLOCKS["system"], f"system.{number}")
    names: list[str] = []
    for number, message in numbered_objects(body.get("messages")):
        content = message.get("content")
        at = f"messages.{number}.content"
        if not isinstance(content, list) or not content:
            yield f"The content field in the Message object at messages.{number} is empty."
            continue
        role = str(message.get("role"))
        for place, block in enumerate(content):
            if not isinstance(block, dict):
                yield SDK_TEXT.format(f"{at}.{place} is not an object")
                continue
            yield from _check_block(block, BLOCKS.get(role, frozenset()), f"{at}.{place}")
        documents = [block["document"] for block in objects(content) if isinstance(block.get("document"), dict)]
        names += [str(document.get("name")) for document in documents]
        if documents and not any("text" in block for block in objects(content)):
            yield f"messages.{number}: a document needs a text in the same message"
        if objects(content) and "reasoningContent" in objects(content)[-1]:
            yield f"messages.{number}: The final block in an assistant message cannot be `thinking`."
    yield from (f"documents must have different names: {name}" for name in set(names) if names.count(name) > 1)


def _check_block(block: Object, allowed: frozenset[str], path: str) -> Iterator[str]:
    held = members(block)
    if len(held) != 1:
        yield SDK_TEXT.format(f"{path}: a tagged union has one member, not {held}")
        return
    kind, value = held[0], block[held[0]]
    if kind not in allowed:
        yield SDK_TEXT.format(f"{path}: unknown member {kind!r}")
    elif kind == "text" and not (isinstance(value, str) and value.strip()):
        yield BLANK_TEXT.format(path)
    elif kind in FORMATS:
        yield from _check_media(kind, value, path)
    elif kind == "toolUse":
        yield from _check_call(value, path)
    elif kind == "toolResult":
        yield from _check_result(value, path)
    elif kind == "reasoningContent":
        yield from _check_reasoning(value, path)
    elif kind == "cachePoint" and (value.get("type") != "default" or value.get("ttl", "5m") not in ("5m", "1h")):
        yield f"{path}.cachePoint: {value}"


def _check_media(kind: str, value: Object, path: str) -> Iterator[str]:
    source = value.get("source") or {}
    yield from check_unknown_keys(value, FIELDS["media"], f"{path}.{kind}.")
    yield from refusals(
        (
            kind != "document" and value.get("format") not in FORMATS[kind],
            f"{path}.{kind}.format: {value.get('format')}",
        ),
        (value.get("format", "pdf") not in FORMATS[kind], f"{path}.{kind}.format: {value.get('format')!r}"),
        (len(members(source)) != 1, f"{path}.{kind}.source: has one member"),
        ("bytes" in source and not is_base64(source["bytes"]), f"{path}.{kind}.source.bytes: is not base64"),
        (
            kind == "document" and not matches(DOCUMENT_NAME, value.get("name")),
            f"{path}.document.name: {value.get('name')!r}",
        ),
    )


def _check_call(value: Object, path: str) -> Iterator[str]:
    yield from check_unknown_keys(value, FIELDS["tool_use"], f"{path}.toolUse.")
    yield from refusals(
        (not matches(CALL_ID, value.get("toolUseId")), f"{path}.toolUse.toolUseId: {value.get('toolUseId')!r}"),
        (not matches(TOOL_NAME, value.get("name")), f"{path}.toolUse.name: {value.get('name')!r}"),
        (not isinstance(value.get("input"), dict), f"{path}.toolUse.input: is not an object"),
    )


def _check_result(value: Object, path: str) -> Iterator[str]:
    yield from check_unknown_keys(value, FIELDS["tool_result"], f"{path}.toolResult.")
    content = value.get("content")
    yield from refusals(
        (not matches(CALL_ID, value.get("toolUseId")), f"{path}.toolResult.toolUseId: {value.get('toolUseId')!r}"),
        (not isinstance(content, list), f"{path}.toolResult.content: Field required"),
        (
            value.get("status", "success") not in ("success", "error"),
            f"{path}.toolResult.status: {value.get('status')!r}",
        ),
    )
    for number, block in numbered_objects(content):
        yield from _check_block(block, BLOCKS["tool_result"], f"{path}.toolResult.content.{number}")
        if "json" in block and not isinstance(block["json"], dict):
            yield f"{path}.toolResult.content.{number}.json: is not an object"


def _check_reasoning(value: Object, path: str) -> Iterator[str]:
    if "redactedContent" in value:
        if not is_base64(value["redactedContent"]):
            yield f"{path}.reasoningContent.redactedContent: is not base64"
        return
    text = value.get("reasoningText") or {}
    yield from refusals(
        (not isinstance(text.get("text"), str), f"{path}.reasoningContent.reasoningText.text: Member must not be null"),
        (text.get("signature") == "", f"{path}.reasoningContent.reasoningText.signature: is empty"),
    )


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """All results of a turn are in the message after it, and all calls have one."""
    pending: list[str] = []
    for number, message in numbered_objects(body.get("messages")):
        blocks = objects(message.get("content"))
        results = [str(block["toolResult"].get("toolUseId")) for block in blocks if "toolResult" in block]
        if missing := [id for id in pending if id not in results]:
            yield f"Expected toolResult blocks at messages.{number}.content for the following Ids: {', '.join(missing)}"
        if len(set(results)) < len(results):
            yield f"The toolResult blocks at messages.{number}.content contain duplicate Ids"
        elif [id for id in results if id not in pending]:
            text = "exceeds the number of toolUse blocks of previous turn"
            yield f"The number of toolResult blocks at messages.{number}.content {text}"
        pending = [str(block["toolUse"].get("toolUseId")) for block in blocks if "toolUse" in block]
        if len(set(pending)) < len(pending):
            yield f"messages.{number}: `tool_use` ids must be unique"
    if pending:
        yield f"Expected toolResult blocks for the following Ids: {', '.join(pending)}"


def check_tools(body: Object, model: str) -> Iterator[str]:
    config = body.get("toolConfig")
    blocks = [block for message in objects(body.get("messages")) for block in objects(message.get("content"))]
    if config is None:
        if any("toolUse" in block or "toolResult" in block for block in blocks):
            yield NO_TOOLS_TEXT
        return
    yield from check_unknown_keys(config, FIELDS["tool_config"], "toolConfig.")
    tools = objects(config.get("tools"))
    if not any("toolSpec" in tool or "systemTool" in tool for tool in tools):
        yield "The provided request is not valid: toolConfig.tools is empty"
    names: list[Any] = []
    for number, tool in enumerate(tools):
        at = f"toolConfig.tools.{number}"
        if len(members(tool)) != 1 or members(tool)[0] not in BLOCKS["tools"]:
            yield SDK_TEXT.format(f"{at}: {members(tool)}")
        spec = tool.get("toolSpec")
        if isinstance(spec, dict):
            names.append(spec.get("name"))
            yield from _check_spec(spec, at)
    yield from (f"toolConfig: duplicate tool name {name}" for name in set(names) if names.count(name) > 1)
    yield from _check_choice(config.get("toolChoice"), names)


def _check_spec(spec: Object, path: str) -> Iterator[str]:
    schema = (spec.get("inputSchema") or {}).get("json")
    yield from check_unknown_keys(spec, FIELDS["tool_spec"], f"{path}.toolSpec.")
    yield from refusals(
        (not matches(TOOL_NAME, spec.get("name")), f"{path}.toolSpec.name: {spec.get('name')!r}"),
        (spec.get("description") == "", f"{path}.toolSpec.description: is empty"),
        (not isinstance(schema, dict), f"{path}.toolSpec.inputSchema.json: Field required"),
        (isinstance(schema, dict) and schema.get("type") != "object", f"{path}.inputSchema.json.type must be object"),
    )


def _check_choice(choice: Json, names: list[Any]) -> Iterator[str]:
    if choice is None:
        return
    if len(members(choice)) != 1 or members(choice)[0] not in ("auto", "any", "tool"):
        yield SDK_TEXT.format(f"toolChoice: must be one of auto, any, tool: {members(choice)}")
    elif "tool" in choice and choice["tool"].get("name") not in names:
        yield f"toolConfig.toolChoice.tool.name: {choice['tool'].get('name')!r} is not declared"


def check_cache_points(body: Object, model: str) -> Iterator[str]:
    tools = objects((body.get("toolConfig") or {}).get("tools"))
    contents = [objects(message.get("content")) for message in objects(body.get("messages"))]
    entries = [entry for part in (tools, objects(body.get("system")), *contents) for entry in part]
    points = [entry["cachePoint"] for entry in entries if "cachePoint" in entry]
    if len(points) > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(points)}."
    lifetimes = [point.get("ttl", "5m") for point in points]
    if "5m" in lifetimes and "1h" in lifetimes[lifetimes.index("5m") :]:
        yield "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"


# --- streams --------------------------------------------------------------------------------------------------------


def _unfold_block(index: int, block: Object) -> Iterator[tuple[str, Object]]:
    (kind, value), at = next(iter(block.items())), {"contentBlockIndex": index}
    deltas: list[Object] = []
    if kind == "text":
        deltas = [{"text": piece} for piece in peer.split_text(value)]
    elif kind == "toolUse":
        yield "contentBlockStart", {**at, "start": {"toolUse": {k: v for k, v in value.items() if k != "input"}}}
        text = peer.encode_json(value["input"])
        deltas = [{"toolUse": {"input": piece}} for piece in ("", *peer.split_text(text))]
    elif kind == "reasoningContent" and "reasoningText" in value:
        inner = value["reasoningText"]
        deltas = [{"reasoningContent": {key: inner[key]}} for key in ("text", "signature") if inner.get(key)]
    elif kind == "reasoningContent":
        deltas = [{"reasoningContent": value}]
    elif kind == "citationsContent":
        deltas = [{"text": "".join(item["text"] for item in value["content"])}]
        deltas += [{"citation": item} for item in value["citations"]]
    for delta in deltas:
        yield "contentBlockDelta", {**at, "delta": delta}
    yield "contentBlockStop", at


class _ClientReader:
    """Adds a stream up as boto3's clients do: block by block, each closed by its stop."""

    def __init__(self) -> None:
        self.content: list[Object] = []
        self.body: Object = {}
        self.violations: list[str] = []
        self._open: Object | None = None
        self._arguments = ""
        self._has_started = False

    def read(self, event: str, data: Any) -> None:
        data = {key: value for key, value in data.items() if key != "p"} if isinstance(data, dict) else data
        if event == event_stream.BROKEN_EVENT:
            self.violations.append(f"ChecksumMismatch: {data}")
        elif event.startswith(("exception:", "error:")):
            error = data if isinstance(data, dict) else {"message": data}
            self.body = {"error": {"type": event.partition(":")[2], **error}}
        elif event == "messageStart":
            if self._has_started or data.get("role") != "assistant":
                self.violations.append("messageStart comes twice, or without the role")
            self._has_started = True
        elif event.startswith("contentBlock"):
            self._read_block(event, data)
        elif event == "messageStop":
            if self._open is not None:
                self.violations.append("messageStop comes while a block is open")
            self.body |= data
        elif event == "metadata":
            if "stopReason" not in self.body:
                self.violations.append("metadata comes before messageStop")
            self.body |= data

    def _read_block(self, event: str, data: Object) -> None:
        if not self._has_started or "stopReason" in self.body:
            self.violations.append(f"{event} comes outside of the message")
        if data.get("contentBlockIndex") != len(self.content) - (self._open is not None):
            self.violations.append(f"{event} has the index {data.get('contentBlockIndex')}")
        if event == "contentBlockStart":
            held = members(data.get("start") or {})
            if len(held) != 1 or held[0] not in ("toolUse", "toolResult", "image"):
                self.violations.append(f"ResponseParserError: a start of {held}")
            self._begin({held[0]: dict(data["start"][held[0]])} if held else {})
        elif event == "contentBlockDelta":
            self._read_delta(data.get("delta") or {})
        else:
            self._end()

    def _begin(self, block: Object) -> None:
        if self._open is not None:
            self.violations.append("a block starts while another is open")
        self._open, self._arguments = block, ""
        self.content.append(block)

    def _read_delta(self, delta: Object) -> None:
        held = members(delta)
        if len(held) != 1:
            self.violations.append(f"ResponseParserError: a delta of {held}")
            return
        kind, value = held[0], delta[held[0]]
        if self._open is None:
            self._begin({})
        block = self.content[-1]
        if kind == "toolUse":
            if "toolUse" not in block:
                self.violations.append("arguments of a call that has not started")
            self._arguments += value["input"]
        elif kind == "text":
            block["text"] = block.get("text", "") + value
        elif kind == "reasoningContent":
            self._read_reasoning(block.setdefault("reasoningContent", {}), value)
        elif kind == "citation":
            block.setdefault("citations", []).append(value)
        elif kind == "toolResult":
            block["toolResult"].setdefault("content", []).extend(value)
        else:
            block.setdefault(kind, {}).update(value)

    def _read_reasoning(self, block: Object, value: Object) -> None:
        if "redactedContent" in value:
            block["redactedContent"] = value["redactedContent"]
            return
        inner = block.setdefault("reasoningText", {"text": ""})
        inner["text"] += value.get("text", "")
        if "signature" in value:
            inner["signature"] = value["signature"]

    def _end(self) -> None:
        block, self._open = self._open, None
        if block is None or not block:
            self.violations.append("contentBlockStop of a block that is not open")
        elif "toolUse" in block:
            try:
                block["toolUse"]["input"] = json.loads(self._arguments or "{}")
            except ValueError:
                self.violations.append(f"the input of a call is not JSON: {self._arguments!r}")
        elif "citations" in block:
            text, citations = block.pop("text", ""), block.pop("citations")
            block["citationsContent"] = {"content": [{"text": text}], "citations": citations}

    def finish(self) -> Object:
        if "error" in self.body:
            return self.body
        if "stopReason" not in self.body:
            self.violations.append("the stream ends without messageStop")
        elif "usage" not in self.body:
            self.violations.append("the stream ends without metadata")
        return {"output": {"message": {"role": "assistant", "content": self.content}}, **self.body}


USAGE = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
SEAL = "RXFRQkNnSVlBaElrWm05dg=="
THOUGHT = "I need the tool."


class ConversePeer(peer.Peer):
    name = "bedrock-converse"
    short_name = "converse"
    is_compared = False  # the others were played before it was there
    http = peer.PeerHttp(
        path="/model/{model}/converse",
        stream_path="/model/{model}/converse-stream",
        path_pattern=re.compile(r"/model/(?P<model>.+)/converse(?P<stream>-stream)?$"),
        other_paths={"count": "/model/{model}/count-tokens"},
        count_path="/count-tokens",
        framing=peer.Framing(event_stream.CONTENT_TYPE, event_stream.encode_text, event_stream.TextDecoder),
    )
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    sealing_model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    turns_key = "messages"
    checks = (
        check_fields, check_roles, check_contents, check_pairs, check_tools, check_cache_points,
    )  # fmt: skip

    def complete_answer(self, body: Object, model: str) -> Object:
        message = {"role": "assistant", **(body.get("output") or {}).get("message", {})}
        return {"usage": dict(USAGE), "metrics": {"latencyMs": 5}, **body, "output": {"message": message}}

    def write_stream(self, body: Object) -> list[str]:
        frames: list[tuple[str, Object]] = [("messageStart", {"role": "assistant"})]
        for index, block in enumerate(body["output"]["message"]["content"]):
            frames += _unfold_block(index, block)
        frames.append(("messageStop", {"stopReason": body["stopReason"]}))
        metadata = {key: value for key, value in body.items() if key not in ("output", "stopReason")}
        frames.append(("metadata", metadata))
        return [
            peer.write_frame(event, {**data, "p": "abcdefgh"[: 1 + number % 8]})
            for number, (event, data) in enumerate(frames)
        ]

    def complete_frame(self, frame: Object, model: str, earlier: list[Json]) -> str:
        """A frame is an object whose one key is the event."""
        ((event, data),) = frame.items()
        usual = {"usage": USAGE, "metrics": {"latencyMs": 5}} if event == "metadata" else {}
        return peer.write_frame(event, {**usual, **data} if isinstance(data, dict) else peer.encode_json(data))

    def fold_stream(self, frames: list[peer.SseFrame]) -> peer.FoldedStream:
        reader = _ClientReader()
        for frame in frames:
            reader.read(frame.event or "", frame.data)
        return peer.folded_stream(reader.finish(), reader.violations, ())

    def history_turns(self, body: Object) -> list[Json]:
        return [body["output"]["message"]]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_first_request(self, prompt: str, tools: Sequence[peer.ScenarioTool]) -> Object:
        return self.write_prompt(prompt) | ({"toolConfig": {"tools": self.write_tools(tools)}} if tools else {})

    def expect_first_request(self, prompt: str, tools: Sequence[peer.ScenarioTool]) -> Json:
        declared = {"toolConfig": {"tools": self.expect_tools(tools)}} if tools else {}
        return {self.turns_key: self.expect_first_turns(prompt)} | declared

    def write_prompt(self, prompt: str) -> Object:
        return {"inferenceConfig": {"maxTokens": 1000}, "messages": [{"role": "user", "content": [{"text": prompt}]}]}

    def write_tools(self, tools: Sequence[peer.ScenarioTool]) -> list[Json]:
        return [
            {"toolSpec": {"name": tool.name, "description": tool.description, "inputSchema": {"json": tool.parameters}}}
            for tool in tools
        ]

    def write_answer(self, answer: peer.ModelAnswer) -> Object:
        content: list[Json] = []
        if answer.is_sealed:
            content.append({"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": SEAL}}})
        if answer.text:
            content.append({"text": answer.text})
        for number, (name, arguments) in enumerate(answer.calls):
            content.append({"toolUse": {"toolUseId": f"tooluse_Rz5Np{number}", "name": name, "input": arguments}})
        message = {"role": "assistant", "content": content}
        return {"output": {"message": message}, "stopReason": "tool_use" if answer.calls else "end_turn"}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        blocks = body["output"]["message"]["content"]
        ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        pairs = zip(ids, texts, strict=True)
        results = [{"toolResult": {"toolUseId": id, "content": [{"text": text}]}} for id, text in pairs]
        return [{"role": "user", "content": results}]

    def expect_tool(self, tool: peer.ScenarioTool) -> Json:
        return {"toolSpec": {"name": tool.name, "inputSchema": {"json": peer.expect_properties(tool)}}}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"toolUse": {"toolUseId": id, "name": name, "input": {"$is": arguments}}}

    def expect_answer(self, answer: peer.ModelAnswer) -> Json:
        content = peer.exactly_these(self.expect_calls(answer, "c"), {"toolUse": "$any"}, answer.text)
        message = {"role": "assistant", "content": content}
        return {"output": {"message": message}, "stopReason": "tool_use" if answer.calls else "end_turn"}

    def expect_model_turns(self, answer: peer.ModelAnswer, calls: list[Json]) -> list[Json]:
        sealed = {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": {"$is": SEAL}}}}
        thought = [sealed] if answer.is_sealed else []
        return [{"role": "assistant", "content": {"$contains": [*thought, *calls]}}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"toolResult": {"toolUseId": id, "content": {"$within": text}}}

    def result_turn_options(self, results: list[Json]) -> list[list[Json]]:
        return [[{"role": "user", "content": {"$contains": results}}]]
