"""Gemini generateContent: the provider's answers and the client's reading of them (SDKs and Gemini CLI)."""

from __future__ import annotations

import base64
import binascii
import re

from toolwire.conformance.dialects.dialect import Dialect, Folded, Json, Object, Wire, pieces
from toolwire.conformance.frames import Frame, frame_text

WIRE = Wire(
    path="/v1beta/models/{model}:generateContent",
    stream_path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
    listens=re.compile(r"/models/(?P<model>[^:]+):(?:generate|(?P<stream>streamGenerate))Content$"),
    frames_query="alt=sse",
    asks={"count": "/v1beta/models/{model}:countTokens"},
    counts=":countTokens",
    credential=("x-goog-api-key", "{key}"),
)
USAGE: Object = {"promptTokenCount": 25, "candidatesTokenCount": 12, "totalTokenCount": 37}


def complete(body: Object, model: str) -> Object:
    """An answer with all its fields; a content without a role is the model's."""
    candidates = []
    for index, candidate in enumerate(body.get("candidates", [])):
        if "content" in candidate:
            candidate = {**candidate, "content": {"role": "model", **candidate["content"]}}
        candidates.append({"index": index, **candidate})
    rest = {"candidates": candidates} if candidates else {}
    return {"usageMetadata": dict(USAGE), "modelVersion": model, "responseId": "resp-conformance", **body, **rest}


def stream(body: Object) -> list[str]:
    """Text in pieces and its signature behind it, every other part in a chunk of its own, and an empty last part with
    the finish reason."""
    frames: list[Json] = []
    for candidate in body.get("candidates", []):
        for part in candidate.get("content", {}).get("parts", []):
            for piece in _unfolded(part):
                frames.append({"candidates": [{"index": candidate["index"], "content": {"parts": [piece]}}]})
        last = {key: value for key, value in candidate.items() if key != "content"}
        if "content" in candidate:
            last["content"] = {"parts": [{"text": ""}]}
        frames.append({"candidates": [last], "usageMetadata": body["usageMetadata"]})
    return complete_frames(frames or [body], body["modelVersion"])


def _unfolded(part: Object) -> list[Object]:
    if part.keys() <= {"text", "thought", "thoughtSignature"} and part.get("text"):
        plain = {key: value for key, value in part.items() if key != "thoughtSignature"}
        said = [{**plain, "text": text} for text in pieces(part["text"])]
        return [*said, {**part, "text": ""}] if "thoughtSignature" in part else said
    return [part]


def complete_frames(frames: list[Json], model: str) -> list[str]:
    return [
        frame_text(None, complete(frame, model) if isinstance(frame, dict) and "error" not in frame else frame)
        for frame in frames
    ]


# --- the client -----------------------------------------------------------------------------------------------------


def fold(frames: list[Frame]) -> Folded:
    body: Object = {}
    complaints: list[str] = []
    for frame in frames:
        if frame.event is not None:
            complaints.append(f"an event line ({frame.event}) ends the run")
        if frame.lines:
            complaints.append(f"a line that is no data ends the run: {frame.lines[0][:80]}")
        if not isinstance(frame.data, dict):
            complaints.append(f"a frame that is no JSON object ends the run: {frame.text[:80]}")
        elif "error" in frame.data:
            body["error"] = frame.data["error"]
            break  # nobody reads on
        else:
            _take(frame.data, body, complaints)
    if "error" not in body:
        complaints += _ending(frames, body)
    return Folded(body, tuple(complaints))


def _take(chunk: Object, body: Object, complaints: list[str]) -> None:
    for snake in ("usage_metadata", "model_version", "prompt_feedback"):
        if snake in chunk:
            complaints.append(f"{snake} is not read, answers are camelCase")
    body.update({key: value for key, value in chunk.items() if key != "candidates"})
    whole = body.setdefault("candidates", [])
    for candidate in chunk.get("candidates", []):
        index = candidate.get("index", 0)
        while len(whole) <= index:
            whole.append({"index": len(whole), "content": {"role": "model", "parts": []}})
        parts = whole[index]["content"]["parts"]
        for part in candidate.get("content", {}).get("parts", []):
            complaints += _part_complaints(part)
            _append(parts, part)
        whole[index].update({key: value for key, value in candidate.items() if key != "content"})


def _append(parts: list[Object], part: Object) -> None:
    """Texts of one kind run on; an empty text without a signature says nothing."""
    if part.get("text") == "" and "thoughtSignature" not in part:
        return
    last = parts[-1] if parts else {}
    plain = {"text", "thought"}
    if (
        part.keys() <= plain
        and last.keys() == part.keys()
        and "text" in part
        and last.get("thought") == part.get("thought")
    ):
        last["text"] += part["text"]
        return
    parts.append(dict(part))


def _part_complaints(part: Object) -> list[str]:
    found = []
    signature = part.get("thoughtSignature")
    if signature is not None and not is_base64(signature):
        found.append(f"thoughtSignature is no base64: {signature[:80]!r}")
    call = part.get("functionCall")
    if isinstance(call, dict) and not isinstance(call.get("args", {}), dict):
        found.append("functionCall.args is no object")
    return found


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


def _ending(frames: list[Frame], body: Object) -> list[str]:
    if body.get("promptFeedback", {}).get("blockReason"):
        return []
    if not body.get("candidates"):
        return ["no candidate at all"]
    found = [f"candidate {c['index']} has no finishReason" for c in body["candidates"] if "finishReason" not in c]
    last = frames[-1].data if isinstance(frames[-1].data, dict) else {}
    ends = last.get("candidates") or [{}]
    if ends[0].get("finishReason") in (None, "STOP", "MAX_TOKENS") and not ends[0].get("content", {}).get("parts"):
        found.append("the last chunk has no parts: chats drop the whole turn")
    return found


def history(body: Object) -> list[Json]:
    return [body["candidates"][0]["content"]]


DIALECT = Dialect("gemini", WIRE, complete, stream, complete_frames, fold, history)
