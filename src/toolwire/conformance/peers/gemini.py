"""Gemini generateContent: a provider's answers, and how a client reads them (SDKs and Gemini CLI)."""

from __future__ import annotations

import base64
import binascii
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
    exactly_these,
    expect_properties,
    grouping_options,
    split_text,
    write_frame,
)
from toolwire.core.json_values import Json, Object

USAGE: Object = {"promptTokenCount": 25, "candidatesTokenCount": 12, "totalTokenCount": 37}


def _unfold_part(part: Object) -> list[Object]:
    if part.keys() <= {"text", "thought", "thoughtSignature"} and part.get("text"):
        plain = {key: value for key, value in part.items() if key != "thoughtSignature"}
        texts = [{**plain, "text": text} for text in split_text(part["text"])]
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


def is_base64(text: Json) -> bool:
    """Standard or URL-safe, padded or not."""
    if not isinstance(text, str):
        return False
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (ValueError, binascii.Error):
        return False
    return True


def _end_violations(frames: list[SseFrame], body: Object) -> list[str]:
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


class GeminiPeer(Peer):
    name = "gemini"
    short_name = "gemini"
    http = PeerHttp(
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

    def complete_frames(self, frames: list[Json], model: str) -> list[str]:
        def complete(frame: Json) -> Json:
            return self.complete_answer(frame, model) if isinstance(frame, dict) and "error" not in frame else frame

        return [write_frame(None, complete(frame)) for frame in frames]

    def fold_stream(self, frames: list[SseFrame]) -> FoldedStream:
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
        return FoldedStream(body, tuple(violations))

    def history_turns(self, body: Object) -> list[Json]:
        return [body["candidates"][0]["content"]]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        return {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}

    def write_tools(self, tools: Sequence[ScenarioTool]) -> list[Json]:
        declared = [{**to_builtins(tool), "parameters": _write_schema(tool.parameters)} for tool in tools]
        return [{"functionDeclarations": declared}]

    def write_answer(self, answer: ModelAnswer) -> Object:
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

    def expect_tool(self, tool: ScenarioTool) -> Json:
        schema = expect_properties(tool)
        return {"name": tool.name, "$either": [{"parameters": schema}, {"parametersJsonSchema": schema}]}

    def expect_tools(self, tools: Sequence[ScenarioTool]) -> Json:
        options = grouping_options([self.expect_tool(tool) for tool in tools])
        return {"$either": [{"$contains": [{"functionDeclarations": group} for group in groups]} for groups in options]}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"functionCall": {"name": name, "args": {"$is": arguments}, "id": {"$either": ["$absent", id]}}}

    def expect_answer(self, answer: ModelAnswer) -> Json:
        parts = exactly_these(self.expect_calls(answer, "c"), {"functionCall": "$any"}, answer.text)
        return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}

    def expect_model_turns(self, answer: ModelAnswer, calls: list[Json]) -> list[Json]:
        if answer.is_sealed:
            calls = [{**calls[0], "thoughtSignature": SEAL_SPELLINGS}, *calls[1:]]
        return [{"role": "model", "parts": {"$contains": calls}}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        ids = {"$either": ["$absent", id]}
        return {"functionResponse": {"name": name, "id": ids, "response": {"$within": text}}}

    def result_turn_options(self, results: list[Json]) -> list[list[Json]]:
        return [[{"parts": {"$contains": group}} for group in groups] for groups in grouping_options(results)]
