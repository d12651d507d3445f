"""What one side of an exchange has sent and got, read from the captured bytes, and written as the messages of
OpenTelemetry's conventions for generative AI.

Their shape: opentelemetry.io/docs/specs/semconv/gen-ai (input and output messages), looked up in November 2026."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from toolwire.core import ir
from toolwire.core.codec import Codec
from toolwire.core.json_values import Json, Malformed, Object, decode, encode_text, expect_object
from toolwire.gateway.telemetry.log import read_captured_response

MAX_TEXT = 50_000
"""Characters of one text in a span: collectors refuse what is too large."""


class Side(Struct, frozen=True):
    """In the internal form. Instructions are the first turn, of the role `system`."""

    protocol: str
    turns: Sequence[ir.Turn]
    choices: Sequence[ir.Choice]

    @property
    def answers(self) -> Sequence[ir.Turn]:
        """More than one if several were asked for."""
        return [ir.Turn("assistant", choice.parts) for choice in self.choices]


def read_side(codec: Codec, request: bytes, response: bytes, status: int) -> Side | None:
    try:
        read = codec.read_request(expect_object(decode(request), None))
    except (Malformed, RecursionError):
        return None
    system = (ir.Turn("system", read.system),) if read.system else ()
    answer = read_captured_response(codec, response) if status < 400 else None
    return Side(codec.name, (*system, *read.turns), answer.choices if answer is not None else ())


def full_name(part: ir.Call | ir.Result | ir.ProviderCall | ir.ProviderResult) -> str:
    if isinstance(part, ir.ProviderCall | ir.ProviderResult):
        return part.tool
    return f"{part.namespace}.{part.name}" if part.namespace else part.name


def result_text(result: ir.Result | ir.ProviderResult) -> str:
    if isinstance(result, ir.ProviderResult):
        return "\n".join(filter(None, (result.error, result.text, *(source.url for source in result.sources))))
    texts = [part.text if isinstance(part, ir.Text) else f"[{type(part).__name__.lower()}]" for part in result.content]
    return "\n".join(texts)


FINISH_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "sequence": "stop",
    "length": "length",
    "context": "length",
    "calls": "tool_call",
    "filter": "content_filter",
    "refusal": "content_filter",
    "malformed": "error",
}


def write_messages(side: Side, clean: Callable[[str], str]) -> dict[str, str]:
    """The attributes of a span, as JSON."""
    found = {
        "gen_ai.system_instructions": [
            part for turn in side.turns if turn.role == "system" for part in _write_parts(turn.parts, clean)
        ],
        "gen_ai.input.messages": [
            {"role": turn.role, "parts": _write_parts(turn.parts, clean)}
            for turn in side.turns
            if turn.role != "system"
        ],
        "gen_ai.output.messages": [
            {
                "role": "assistant",
                "parts": _write_parts(choice.parts, clean),
                "finish_reason": FINISH_REASONS.get(choice.finish.kind if choice.finish else "malformed", "stop"),
            }
            for choice in side.choices
        ],
    }
    return {name: encode_text(value) for name, value in found.items() if value}


def _write_parts(parts: Iterable[ir.Part], clean: Callable[[str], str]) -> list[Json]:
    return [_write_part(part, lambda text: clean(text)[:MAX_TEXT]) for part in parts]


def _write_part(part: ir.Part, clean: Callable[[str], str]) -> Object:
    match part:
        case ir.Text() | ir.Refusal() | ir.Summary():
            return {"type": "text", "content": clean(part.text)}
        case ir.Reasoning():
            return {"type": "reasoning", "content": clean(part.text)}
        case ir.Call() | ir.ProviderCall():
            arguments = clean(part.arguments)
            return {"type": "tool_call", "id": part.id, "name": full_name(part), "arguments": _read_json(arguments)}
        case ir.Result() | ir.ProviderResult():
            return {"type": "tool_call_response", "id": part.id, "response": clean(result_text(part))}
        case ir.Media():
            # Its bytes stay here: a trace is not the place for them.
            place: Object = {"uri": clean(part.url)} if part.url else {"file_id": part.file_id or part.name}
            return {"type": "uri" if part.url else "file", "modality": part.kind, "mime_type": part.mime, **place}
        case ir.Opaque():
            return {"type": part.kind}
    return {"type": type(part).__name__.lower()}


def _read_json(text: str) -> Json:
    try:
        return decode(text)
    except (Malformed, RecursionError):
        return text
