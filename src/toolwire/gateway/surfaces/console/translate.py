"""The view "Translate": a pasted request, answer, stream or error in all protocols, with what each cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from toolwire.core.codec import Codec
from toolwire.core.events import OpaqueEvent, ResponseFailed
from toolwire.core.json_values import Malformed, Object, parse_object
from toolwire.gateway.surfaces.console.api import MessageKind, TranslateAnswer, TranslateQuestion, TranslateResult
from toolwire.gateway.surfaces.console.rows import loss_row
from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

KINDS: tuple[MessageKind, ...] = get_args(MessageKind)


class Reading(msgspec.Struct, frozen=True):
    """One way to read a text. The one with the highest score is right."""

    kind: MessageKind
    codec: Codec
    score: float


def translate_to_all(question: TranslateQuestion, now: int) -> TranslateAnswer:
    """The text in every protocol; its kind and protocol are guessed where they are not given."""
    codecs = [CODECS[question.source]] if question.source in CODECS else list(CODECS.values())
    kinds = [question.kind] if question.kind else guess_kinds(question.text)
    data = question.text.encode("utf-8", "replace")
    readings = [reading for kind in kinds for codec in codecs if (reading := read_text(data, kind, codec)) is not None]
    if not readings:
        return TranslateAnswer(kind=kinds[0], source="", results=[], error=describe_problem(data, kinds, codecs))
    best = max(readings, key=lambda reading: reading.score)
    results = [translate_text(data, best.kind, best.codec, target, now) for target in CODECS.values()]
    return TranslateAnswer(kind=best.kind, source=best.codec.name, results=results, error="")


def guess_kinds(text: str) -> list[MessageKind]:
    is_stream = text.lstrip().startswith(("data:", "event:", ":"))
    return ["stream"] if is_stream else [kind for kind in KINDS if kind != "stream"]


def read_text(data: bytes, kind: MessageKind, codec: Codec) -> Reading | None:
    """Read the text as this kind of this protocol; None if it is not that at all."""
    try:
        if kind == "stream":
            reader = codec.make_stream_reader()
            events = [*reader.feed(codec.http.framing.read_text(data.decode("utf-8", "replace"))), *reader.close()]
            strange = sum(isinstance(event, OpaqueEvent | ResponseFailed) for event in events)
            return Reading(kind, codec, -strange) if len(events) > strange else None
        body = parse_object(data)
        if kind == "error":
            failure = codec.read_error(body, 0, {})
            return Reading(kind, codec, -1.0) if "error" in body and failure.message else None
        if kind == "request":
            request = codec.read_request(body)
            return Reading(kind, codec, -len(request.unknown_fields)) if request.turns or request.system else None
        response = codec.read_response(body)
        has_answer = any(choice.parts for choice in response.choices)
        return Reading(kind, codec, -len(response.unknown_fields)) if has_answer else None
    except (Malformed, RecursionError):
        return None


def describe_problem(data: bytes, kinds: Sequence[MessageKind], codecs: Sequence[Codec]) -> str:
    """Why a text cannot be read, with the place where that is known."""
    if kinds[0] == "stream":
        return "this is not a stream of one of the protocols, or it has no event that says something"
    try:
        body = parse_object(data)
        problems = [
            (bad, codec)
            for kind in kinds
            if kind != "error"
            for codec in codecs
            if (bad := find_malformed(body, kind, codec)) is not None
        ]
    except Malformed as bad:
        return str(bad)
    except RecursionError:
        return "the JSON is nested too deeply"
    # The protocol that could read most of it is the one that was meant.
    deepest = max(problems, key=lambda one: one[0].path.count("/"), default=None)
    if deepest is not None and len(kinds) == len(codecs) == 1:
        return str(deepest[0])
    if deepest is not None and deepest[0].path.count("/") > 1:
        return f"{deepest[0]} (read as {deepest[1].name})"
    return "this is JSON, but not a request, an answer or an error of one of the protocols"


def find_malformed(body: Object, kind: MessageKind, codec: Codec) -> Malformed | None:
    try:
        codec.read_request(body) if kind == "request" else codec.read_response(body)
    except Malformed as bad:
        return bad
    return None


def translate_text(data: bytes, kind: MessageKind, source: Codec, target: Codec, now: int) -> TranslateResult:
    options = Options(now=now)
    try:
        if kind == "request":
            translation = Exchange(source, target, options).translate_request(data)
            text, losses = format_json(translation.body), translation.losses
        elif kind == "stream":
            stream = StreamTranslation(Exchange(target, source, options))
            sent = stream.feed(source.http.framing.read_text(data.decode("utf-8", "replace"))) + stream.close()
            text = target.http.framing.write_text(sent)
            losses = stream.losses
        else:
            exchange = Exchange(target, source, options)
            translation = exchange.translate_response(data) if kind == "response" else exchange.translate_error(data, 0)
            text, losses = format_json(translation.body), translation.losses
    except Malformed as bad:
        return TranslateResult(protocol=target.name, text="", losses=[], error=str(bad))
    rows = [loss_row(loss, kind != "request") for loss in losses]
    return TranslateResult(protocol=target.name, text=text, losses=rows, error="")


def format_json(body: bytes) -> str:
    return msgspec.json.format(body, indent=2).decode("utf-8", "replace")
