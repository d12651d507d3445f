"""How many tokens a request has, where nobody can be asked: an estimate over everything, rather too high than low."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.ir import (
    AnyTool,
    Call,
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Request,
    Result,
    Seal,
    Text,
    ToolReference,
    ToolsAdded,
)
from toolwire.wire import Json, encode_text

_TOKEN = 14
"""Sums are kept in fourteenths of a token: whole numbers, so that no order of adding changes them."""
_CHARACTER = 4
"""Three and a half characters of plain text or code make a token."""
_WIDE = 5
"""Each further byte of a character; so a Chinese character is one token, and a Cyrillic one two thirds."""

REQUEST, TURN, CALL, RESULT, TOOL = 16, 4, 40, 30, 24
"""What the frame around each costs, in tokens, at the provider where it costs most."""
TOOLS = 640
"""What a provider tells its model about tools as soon as there is one."""
HOSTED_TOOL = 500
THINKING, FORMAT = 30, 100
"""What it tells it about thinking, and about the form of the answer."""
SEALED = 5
"""Characters of a seal for a token of what is in it."""

MEDIA: Mapping[str, tuple[int, int, int]] = {
    "image": (1_600, 1_600, 0),
    "file": (3_000, 1_600, 16),
    "audio": (1_600, 256, 400),
    "video": (6_000, 1_600, 400),
}
"""Tokens when the size is not known, the least otherwise, and the bytes of one token (0: the size is no matter)."""


def tokens(request: Request) -> int:
    """The estimate. Linear in the size of the request, and the same for the same request."""
    total = REQUEST * _TOKEN + _parts(request.system)
    for turn in request.turns:
        total += TURN * _TOKEN + _parts(turn.parts)
        if turn.name:
            total += _text(turn.name)
    if request.tools:
        total += TOOLS * _TOKEN + sum(map(_tool, request.tools))
    if request.settings.thinking is not None:
        total += THINKING * _TOKEN
    form = request.settings.format
    if form is not None and form.schema is not None:
        total += FORMAT * _TOKEN + _json(form.schema) + _text(form.name) + _text(form.description)
    return -(-total // _TOKEN)


def _text(text: str) -> int:
    if text.isascii():
        return len(text) * _CHARACTER
    length = len(text)
    return length * _CHARACTER + (len(text.encode("utf-8", "surrogatepass")) - length) * _WIDE


def _json(value: Json) -> int:
    return _text(encode_text(value)) if value is not None else 0


def _parts(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        total += _PARTS[type(part)](part)
    return total


def _said(part: Text) -> int:
    return _text(part.text) + _seal(part.seal)


def _refused(part: Refusal) -> int:
    return _text(part.text)


def _seal(seal: Seal | None) -> int:
    return 0 if seal is None else len(seal.value) * _TOKEN // SEALED


def _reasoning(part: Reasoning) -> int:
    # A summary beside a seal is short; what the seal holds is what costs.
    return max(_text(part.text), _seal(part.seal))


def _media(part: Media) -> int:
    unknown, least, bytes_each = MEDIA[part.kind]
    if not part.data:
        return unknown * _TOKEN
    size = len(part.data) * 3 // 4
    if part.kind == "file" and part.mime.startswith(("text/", "application/json")):
        return size * _CHARACTER
    return max(least, size // bytes_each if bytes_each else 0) * _TOKEN


def _call(part: Call) -> int:
    return CALL * _TOKEN + _text(part.name) + _text(part.arguments) + _seal(part.seal)


def _result(part: Result) -> int:
    return RESULT * _TOKEN + _text(part.name) + _parts(part.content)


def _hosted_call(part: HostedCall) -> int:
    return CALL * _TOKEN + _text(part.arguments)


def _hosted_result(part: HostedResult) -> int:
    told = sum(_text(source.title) + _text(source.url) + _text(source.quote) for source in part.sources)
    # Pages that were found may stand sealed in what the wire carries.
    sealed = _json(part.origin.wire) if part.origin is not None else 0
    return RESULT * _TOKEN + max(told + _text(part.text) + _text(part.error), sealed)


def _tool(tool: AnyTool) -> int:
    if isinstance(tool, HostedTool):
        return HOSTED_TOOL * _TOKEN
    if isinstance(tool, Opaque):
        return TOOL * _TOKEN + _json(tool.origin.wire)
    total = TOOL * _TOKEN + _text(tool.name) + _text(tool.description or "") + _text(tool.namespace_description)
    if tool.grammar is not None:
        total += _text(tool.grammar.definition)
    return total + _json(tool.parameters) + _json(tool.output)


def _added(part: ToolsAdded) -> int:
    return sum(map(_tool, part.tools))


def _reference(part: ToolReference) -> int:
    return TOOL * _TOKEN + _text(part.name)


def _opaque(part: Opaque) -> int:
    return _json(part.origin.wire)


_PARTS: Mapping[type, Callable[[Any], int]] = {
    Text: _said,
    Refusal: _refused,
    Reasoning: _reasoning,
    Media: _media,
    Call: _call,
    Result: _result,
    HostedCall: _hosted_call,
    HostedResult: _hosted_result,
    ToolsAdded: _added,
    ToolReference: _reference,
    Opaque: _opaque,
}
