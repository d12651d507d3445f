"""Answers that are not the model's own making: begun and not there yet, ended badly, or told again as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType

from toolwire.ids import made
from toolwire.ir import Failure, Origin, Request
from toolwire.keeping import Wants
from toolwire.protocols.openai_responses.details.stream_frames import Sequence
from toolwire.protocols.openai_responses.errors import stream_error
from toolwire.protocols.openai_responses.names import CALL_ITEMS, NAME, UNFINISHED
from toolwire.protocols.openai_responses.response import opened
from toolwire.room import Context
from toolwire.wire import Json, Object

UNKEPT: Mapping[str, Json] = MappingProxyType({"store": False, "conversation": None})
"""What an answer says that could not be kept."""

_PREFIXES: Mapping[str, str] = MappingProxyType({"response": "resp_", "conversation": "conv_"})


def new(kind: str, seed: str) -> str:
    return made(_PREFIXES[kind], seed)


def begun(body: Object, now: int, status: str) -> Object:
    model = body.get("model")
    asked = {**body, "tools": body.get("tools") if isinstance(body.get("tools"), list) else []}
    request = Request(model if isinstance(model, str) else "", origin=Origin(NAME, None, asked))
    out = opened("", "", now, Context(request, now))
    out["id"], out["status"] = "", status
    talk = body.get("conversation")
    if talk:
        out["conversation"] = talk if isinstance(talk, dict) else {"id": talk}
    return out


def ended(response: Object, status: str, failure: Failure | None) -> Object:
    error = None if failure is None else stream_error(failure)
    return {**response, "status": status, "error": error, "completed_at": None}


def told(wanted: Wants, id: str, now: int) -> dict[str, Json]:
    said: dict[str, Json] = {"id": id, "created_at": now if id else None, "previous_response_id": wanted.previous}
    said["background"] = wanted.background
    said["conversation"] = {"id": wanted.conversation} if wanted.conversation else None
    return {key: value for key, value in said.items() if value}


def name(response: Object) -> str:
    return _word(response, "id")


def status(response: Object) -> str:
    return _word(response, "status")


def _word(response: Object, key: str) -> str:
    value = response.get(key)
    return value if isinstance(value, str) else ""


def output(response: Object) -> list[Object]:
    items = response.get("output")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


# --- a whole answer as a stream ---------------------------------------------------------------------------------------

_FRESH = MappingProxyType({"completed_at": None, "error": None, "incomplete_details": None, "usage": None})
_ENDS: Mapping[str, str] = MappingProxyType({"incomplete": "incomplete", "failed": "failed", "cancelled": "failed"})
"""The last event by the answer's status; there is none of its own for an answer that was cancelled."""


def frames(response: Object) -> bytes:
    out = Sequence()
    word = status(response)
    waits = word == "queued"
    before = {**response, **_FRESH, "status": "queued" if waits else "in_progress", "output": []}
    events = [out.event("response.created", {"response": before})]
    events.append(out.event("response.queued" if waits else "response.in_progress", {"response": before}))
    for number, item in enumerate(output(response)):
        events += _item(item, number, out)
    if word not in UNFINISHED:
        events.append(last(response, next(out.numbers)))
    return b"".join(events)


def last(response: Object, number: int) -> bytes:
    return Sequence(count(number)).event(f"response.{_ENDS.get(status(response), 'completed')}", {"response": response})


def _item(item: Object, number: int, out: Sequence) -> Iterator[bytes]:
    """An item opened, told and closed; one whose growth has no events is told whole."""
    bare, tell = _TOLD.get(str(item.get("type")), (_whole, _nothing))
    yield out.event("response.output_item.added", {"output_index": number, "item": bare(item)})
    yield from tell(item, {"item_id": item.get("id") or "", "output_index": number}, out)
    yield out.event("response.output_item.done", {"output_index": number, "item": item})


def _whole(item: Object) -> Object:
    return item


def _nothing(item: Object, at: Object, out: Sequence) -> Iterator[bytes]:
    return iter(())


def _bare_message(item: Object) -> Object:
    return {**item, "status": "in_progress", "content": []}


def _tell_message(item: Object, at: Object, out: Sequence) -> Iterator[bytes]:
    for number, part in enumerate(_parts(item, "content")):
        yield from _tell_part(part, {**at, "content_index": number}, out)


def _parts(item: Object, key: str) -> list[Object]:
    parts = item.get(key)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "output_text": ("response.output_text", "text"),
        "refusal": ("response.refusal", "refusal"),
        "reasoning_text": ("response.reasoning_text", "text"),
    }
)
"""The events of a part that grows, and the key of its text."""


def _tell_part(part: Object, at: Object, out: Sequence) -> Iterator[bytes]:
    stem, key = _WORDS.get(str(part.get("type")), ("", ""))
    bare = {**part, key: ""} if stem else part
    if "annotations" in bare:
        bare = {**bare, "annotations": []}
    yield out.event("response.content_part.added", {**at, "part": bare})
    if stem:
        more: Object = {"logprobs": part.get("logprobs") or []} if key == "text" and "output" in stem else {}
        if part.get(key):
            yield out.event(f"{stem}.delta", {**at, "delta": part[key], **more})
        for number, annotation in enumerate(_parts(part, "annotations")):
            about = {**at, "annotation_index": number, "annotation": annotation}
            yield out.event("response.output_text.annotation.added", about)
        yield out.event(f"{stem}.done", {**at, key: part.get(key) or "", **more})
    yield out.event("response.content_part.done", {**at, "part": part})


def _bare_call(item: Object) -> Object:
    return {**item, CALL_ITEMS[item["type"]].payload: "", "status": "in_progress"}


def _tell_call(item: Object, at: Object, out: Sequence) -> Iterator[bytes]:
    shape = CALL_ITEMS[item["type"]]
    text = item.get(shape.payload) or ""
    if text:
        yield out.event(f"{shape.event}.delta", {**at, "delta": text})
    name: Object = {"name": item.get("name") or ""} if shape.kind == "function" else {}
    yield out.event(f"{shape.event}.done", {**at, **name, shape.payload: text})


def _bare_thought(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("content", "encrypted_content")} | {"summary": []}


def _tell_thought(item: Object, at: Object, out: Sequence) -> Iterator[bytes]:
    for number, part in enumerate(_parts(item, "summary")):
        here = {**at, "summary_index": number}
        text = part.get("text") or ""
        yield out.event("response.reasoning_summary_part.added", {**here, "part": {**part, "text": ""}})
        if text:
            yield out.event("response.reasoning_summary_text.delta", {**here, "delta": text})
        yield out.event("response.reasoning_summary_text.done", {**here, "text": text})
        yield out.event("response.reasoning_summary_part.done", {**here, "part": part})
    yield from _tell_message(item, at, out)


_Bare = Callable[[Object], Object]
_Tell = Callable[[Object, Object, Sequence], Iterator[bytes]]

_TOLD: Mapping[str, tuple[_Bare, _Tell]] = MappingProxyType(
    {
        "message": (_bare_message, _tell_message),
        "reasoning": (_bare_thought, _tell_thought),
        **{kind: (_bare_call, _tell_call) for kind, shape in CALL_ITEMS.items() if shape.event},
    }
)
