"""Tokens: an estimate for a request, for providers without a count endpoint (it tends to be too high), and conversion
between the two measures of thinking, OpenAI's effort and the token budget of Anthropic and Gemini."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from toolwire.core import ir
from toolwire.core.codec import Codec
from toolwire.core.json_values import Json, Malformed, decode, encode_text, expect_object

_UNITS_PER_TOKEN = 14
"""Sums are in fourteenths of a token: whole numbers, so that the order of adding does not change them."""
_UNITS_PER_CHARACTER = 4
"""Three and a half characters of plain text or code make a token."""
_UNITS_PER_EXTRA_BYTE = 5
"""For each further UTF-8 byte of a character: a Chinese character is one token, a Cyrillic one two thirds."""

REQUEST_TOKENS, TURN_TOKENS, CALL_TOKENS, RESULT_TOKENS, TOOL_TOKENS = 16, 4, 40, 30, 24
"""The overhead of each, at the provider where it is highest."""
_CALL_UNITS, _RESULT_UNITS, _TOOL_UNITS = (
    tokens * _UNITS_PER_TOKEN for tokens in (CALL_TOKENS, RESULT_TOKENS, TOOL_TOKENS)
)
TOOLS_PREAMBLE_TOKENS = 640
"""The provider's own instructions about tools, which are added when there is at least one."""
PROVIDER_TOOL_TOKENS = 500
THINKING_TOKENS, FORMAT_TOKENS = 30, 100
"""The provider's own instructions about thinking, and about the format of the answer."""
SEAL_CHARACTERS_PER_TOKEN = 5
"""Base64 characters of a seal for each token in it."""

MEDIA_TOKENS: Mapping[str, tuple[int, int, int]] = {
    "image": (1_600, 1_600, 0),
    "file": (3_000, 1_600, 16),
    "audio": (1_600, 256, 400),
    "video": (6_000, 1_600, 400),
}
"""Tokens when the size is unknown; else the minimum, and the bytes for each token (0: the size does not matter)."""


def estimate_tokens(request: ir.Request) -> int:
    total = REQUEST_TOKENS * _UNITS_PER_TOKEN + _parts_units(request.system)
    for turn in request.turns:
        total += TURN_TOKENS * _UNITS_PER_TOKEN + _parts_units(turn.parts)
        if turn.name:
            total += _text_units(turn.name)
    if request.tools:
        total += TOOLS_PREAMBLE_TOKENS * _UNITS_PER_TOKEN + sum(map(_tool_units, request.tools))
    if request.settings.thinking is not None:
        total += THINKING_TOKENS * _UNITS_PER_TOKEN
    form = request.settings.format
    if form is not None and form.schema is not None:
        total += FORMAT_TOKENS * _UNITS_PER_TOKEN + _json_units(form.schema)
        total += _text_units(form.name) + _text_units(form.description)
    return -(-total // _UNITS_PER_TOKEN)


def estimate_text_tokens(characters: int) -> int:
    """For text of which only the length is known."""
    return -(-characters * _UNITS_PER_CHARACTER // _UNITS_PER_TOKEN)


MAX_CALL_TOKENS = 10**9
"""No model takes or gives more in one call. A provider that counts more, or nothing, is not believed."""


def is_believable(count: int) -> bool:
    """Can a call that was answered have used so many tokens?"""
    return 0 < count <= MAX_CALL_TOKENS


def is_possible(usage: ir.Usage) -> bool:
    """Is it not so much that it would use up everybody's limits for nothing? Else none of its counts is believed."""
    return max(usage.input, usage.output) <= MAX_CALL_TOKENS


def measure_text(text: str) -> int:
    """How many characters of plain text make as many tokens as this text."""
    return -(-_text_units(text) // _UNITS_PER_CHARACTER)


_ESCAPED_LETTER = b"\\u00"
_MP4 = "AAAA..Z0eX"
"""The name of the first box, `ftyp`, in base64."""
_MEDIA_STARTS: Mapping[str, Callable[[str], object]] = {
    "image": re.compile(f"iVBORw0KGgo|/9j/|R0lGOD|UklGR|SUkqA|TU0AK|{_MP4}").match,
    "file": re.compile("JVBERi|UEsDB").match,
    "audio": re.compile(f"UklGR|SUQz|//[ENksuv]|T2dnUw|ZkxhQw|GkXfo|{_MP4}").match,
    "video": re.compile(f"GkXfo|UklGR|AAABu|AAABs|{_MP4}").match,
}
"""How base64 of the usual formats begins, by the first bytes that their specifications demand: PNG, JPEG, GIF, WebP,
TIFF, HEIC and AVIF; PDF and Office; WAV, MP3, AAC, Ogg, FLAC, WebM and MP4; AVI and MPEG."""


def estimate_body_tokens(body: bytes) -> int:
    """For a body that is not read: less exact than `estimate_tokens`. Everything counts as text."""
    return REQUEST_TOKENS + estimate_text_tokens(len(body))


def _estimate_with_media(body: bytes, media: Iterable[ir.Media]) -> ir.Usage:
    """For a body of which only the media are read. Everything else counts as text, also base64 that says to be an image
    and is not one."""
    length, units_by_kind = len(body), dict.fromkeys(MEDIA_TOKENS, 0)
    for part in media:
        units = _media_units(part)
        if not part.data or _MEDIA_STARTS[part.kind](part.data):
            length -= len(part.data)
            units_by_kind[part.kind] += units
        else:
            units_by_kind[part.kind] += max(0, units - len(part.data) * _UNITS_PER_CHARACTER)
    tokens = {kind: -(-units // _UNITS_PER_TOKEN) for kind, units in units_by_kind.items()}
    input = REQUEST_TOKENS + estimate_text_tokens(max(0, length)) + sum(tokens.values())
    return ir.Usage(input, input_audio=tokens["audio"], input_image=tokens["image"])


def estimate_input(codec: Codec, body: bytes, read: Callable[[], ir.Request] | None = None) -> ir.Usage:
    """The input of a request in a codec's protocol. It is read only if it may have media: what they cost does not
    depend on how long they are in the body. `read` reads it where somebody may have done that already."""
    find = body.find
    for marker in (*codec.http.media_markers, _ESCAPED_LETTER):
        if find(marker) >= 0:
            break
    else:
        return ir.Usage(estimate_body_tokens(body))
    try:
        request = (
            read() if read is not None else codec.read_request(expect_object(decode(body, max_bytes=len(body)), None))
        )
    except Malformed:
        return ir.Usage(estimate_body_tokens(body))
    return _estimate_with_media(body, _find_media(request))


def estimate_answer_tokens(codec: Codec, data: bytes) -> int:
    """For the body of a whole answer; if it cannot be read, all of it counts as text."""
    try:
        answer = codec.read_response(expect_object(decode(data, max_bytes=len(data)), None))
    except Malformed:
        return estimate_text_tokens(len(data))
    return -(-sum(_parts_units(choice.parts) for choice in answer.choices) // _UNITS_PER_TOKEN)


def _find_media(request: ir.Request) -> Iterator[ir.Media]:
    pending = [*request.system, *(part for turn in request.turns for part in turn.parts)]
    while pending:
        part = pending.pop()
        if isinstance(part, ir.Media):
            yield part
        elif isinstance(part, ir.Result):
            pending += part.content


def _text_units(text: str) -> int:
    if text.isascii():
        return len(text) * _UNITS_PER_CHARACTER
    length = len(text)
    return length * _UNITS_PER_CHARACTER + (len(text.encode("utf-8", "surrogatepass")) - length) * _UNITS_PER_EXTRA_BYTE


def _json_units(value: Json) -> int:
    return _text_units(encode_text(value)) if value is not None else 0


def _parts_units(parts: tuple[ir.Part, ...]) -> int:
    return sum([_UNITS_BY_PART_TYPE[type(part)](part) for part in parts])


def _seal_units(seal: ir.Seal | None) -> int:
    return 0 if seal is None else len(seal.value) * _UNITS_PER_TOKEN // SEAL_CHARACTERS_PER_TOKEN


def _sealed_text_units(part: ir.Reasoning | ir.Summary) -> int:
    # The text beside a seal is only a summary; the sealed content is what costs.
    return max(_text_units(part.text), _seal_units(part.seal))


def _media_units(part: ir.Media) -> int:
    unknown, least, bytes_each = MEDIA_TOKENS[part.kind]
    if not part.data:
        return unknown * _UNITS_PER_TOKEN
    size = len(part.data) * 3 // 4
    if part.kind == "file" and part.mime.startswith(("text/", "application/json")):
        return size * _UNITS_PER_CHARACTER
    return max(least, size // bytes_each if bytes_each else 0) * _UNITS_PER_TOKEN


def _provider_result_units(part: ir.ProviderResult) -> int:
    found = [text for source in part.sources for text in (source.title, source.url, source.quote)]
    visible = sum(map(_text_units, [*found, part.text, part.error]))
    # The wire may carry the pages that were found in encrypted form.
    sealed = _json_units(part.origin.wire) if part.origin is not None else 0
    return _RESULT_UNITS + max(visible, sealed)


def _tool_units(tool: ir.AnyTool) -> int:
    if isinstance(tool, ir.ProviderTool):
        return PROVIDER_TOOL_TOKENS * _UNITS_PER_TOKEN
    if isinstance(tool, ir.Opaque):
        return _TOOL_UNITS + _json_units(tool.origin.wire)
    total = _TOOL_UNITS + _text_units(tool.name) + _text_units(tool.description or "")
    total += _text_units(tool.namespace_description)
    if tool.grammar is not None:
        total += _text_units(tool.grammar.definition)
    return total + _json_units(tool.parameters) + _json_units(tool.output)


_UNITS_BY_PART_TYPE: Mapping[type, Callable[[Any], int]] = {
    ir.Text: lambda part: _text_units(part.text) + _seal_units(part.seal),
    ir.Refusal: lambda part: _text_units(part.text),
    ir.Reasoning: _sealed_text_units,
    ir.Summary: _sealed_text_units,
    ir.Media: _media_units,
    ir.Call: lambda part: _CALL_UNITS + _text_units(part.name) + _text_units(part.arguments) + _seal_units(part.seal),
    ir.Result: lambda part: _RESULT_UNITS + _text_units(part.name) + _parts_units(part.content),
    ir.ProviderCall: lambda part: _CALL_UNITS + _text_units(part.arguments),
    ir.ProviderResult: _provider_result_units,
    ir.ToolsAdded: lambda part: sum(map(_tool_units, part.tools)),
    ir.ToolReference: lambda part: _TOOL_UNITS + _text_units(part.name),
    ir.Opaque: lambda part: _json_units(part.origin.wire),
}


# --- thinking ---

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGET_BY_EFFORT = dict(zip(EFFORTS, (0, 1024, 4096, 8192, 16384, 32768, 65536), strict=True))
"""Tokens for each effort. A budget is read as the highest effort that is not above it."""


def budget_for_effort(effort: str) -> int:
    return BUDGET_BY_EFFORT.get(effort, BUDGET_BY_EFFORT["medium"])


def effort_for_budget(budget: int) -> str:
    """The effort for a budget; only a budget of 0 is `none`. (Gemini's -1, "decide yourself", is a mode: see
    `ir.Thinking.mode`.)"""
    found = next((effort for effort in reversed(EFFORTS) if BUDGET_BY_EFFORT[effort] <= budget), "none")
    return "minimal" if found == "none" and budget > 0 else found


def asked_effort(thinking: ir.Thinking) -> str:
    """The effort that a request asks for; "" for the model's default."""
    effort = thinking.effort or ("none" if thinking.mode == "off" else "")
    return effort_for_budget(thinking.budget) if not effort and thinking.budget is not None else effort


def nearest_effort(effort: str, allowed: tuple[str, ...]) -> str:
    """The allowed effort that is closest; of two at the same distance, the lower one. Who asked for some thinking does
    not get none, as long as there is a choice."""
    if effort in allowed:
        return effort
    allowed = tuple(word for word in allowed if word != "none") or allowed
    rank = EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")
    return min(allowed, key=lambda word: (abs(EFFORTS.index(word) - rank), EFFORTS.index(word)))


_LOW_TO_HIGH = ("low", "medium", "high")
_OPENAI_EFFORTS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"gpt-6-astra|gpt-6\.1-sol"), (*_LOW_TO_HIGH, "xhigh", "max")),
    (re.compile(r"gpt-6"), ("none", *_LOW_TO_HIGH, "xhigh", "max")),
    (re.compile(r"gpt-5-chat|o1-(mini|preview)|(chatgpt-)?(gpt-)?4o|gpt-[34]|chatgpt-"), ()),
    (re.compile(r"gpt-5\.\d+-chat"), ("medium",)),
    (re.compile(r"gpt-5-pro"), ("high",)),
    (re.compile(r"gpt-5\.\d+-pro"), ("medium", "high", "xhigh")),
    (re.compile(r"gpt-5\.1-codex-mini"), ("medium", "high")),
    (re.compile(r"gpt-5\.(1-codex-max|([2-9]|\d\d)-codex)"), (*_LOW_TO_HIGH, "xhigh")),
    (re.compile(r"gpt-5(\.1)?-codex|codex-|gpt-oss|o\d(-|$)"), _LOW_TO_HIGH),
    (re.compile(r"gpt-5\.1(?!\d)"), ("none", *_LOW_TO_HIGH)),
    (re.compile(r"gpt-5\."), ("none", *_LOW_TO_HIGH, "xhigh")),
    (re.compile(r"gpt-5"), ("minimal", *_LOW_TO_HIGH)),
)
"""The efforts that OpenAI's models accept; they answer 400 to any other. The first match counts. Source: errors that
name the supported values (opencode#4451 and openai-agents-python#2089 for gpt-5.1) and openai/codex#7449
(`xhigh` of gpt-5.1-codex-max), looked up in November 2026. The other rows were not compared with a page then."""


_OPENAI_REASONS_BY_DEFAULT = re.compile(r"gpt-6|gpt-5\.(?:[5-9]|\d\d)")
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logprobs": False, "top_logprobs": 0,
}  # fmt: skip
"""Settings of the sampling that OpenAI's models take only at these values while they reason: "Only the default (1)
value is supported" (langchaingo#1355 for gpt-5, qwen-code#921 for gpt-5-mini, OpenHands#4131 for o1, vane#1173 for
gpt-5.6); gpt-5.1 takes others with the effort `none` (vercel/ai#10932), gpt-5-chat always (litellm#13781). November
2026."""


def find_fixed_sampling(settings: ir.Settings, model: str, effort: str) -> tuple[str, ...]:
    """The settings that a model refuses at this effort ("" if none is given) because they are not the default."""
    if settings is ir.NO_SETTINGS or not _fixes_sampling(model, effort):
        return ()
    return tuple(key for key, default in SAMPLING_DEFAULTS.items() if getattr(settings, key) not in (None, default))


@lru_cache(maxsize=256)
def _fixes_sampling(model: str, effort: str) -> bool:
    """Does it take only the default values? `vendor/model` is served by a compatible server, such as OpenRouter, which
    has no such limits."""
    efforts = (openai_efforts(model) or ()) if "/" not in model and is_openai_model(model) else ()
    return bool(efforts) and ("none" not in efforts or (effort or openai_default_effort(model)) != "none")


def openai_default_effort(model: str) -> str:
    name = model.lower().rpartition("/")[2]
    reasons = "none" not in (openai_efforts(name) or ("none",)) or _OPENAI_REASONS_BY_DEFAULT.match(name)
    return "medium" if reasons else "none"


OPENAI_MAX_TOOLS = 128


def openai_max_tools(model: str) -> int | None:
    """The number of tools that OpenAI accepts, for its own models: other servers of its protocols may accept more."""
    return OPENAI_MAX_TOOLS if is_openai_model(model) else None


def is_openai_model(model: str) -> bool:
    return _OPENAI_MODEL.match(model.lower().rpartition("/")[2]) is not None


_OPENAI_MODEL = re.compile(r"gpt-(?!oss)|chatgpt-|codex-|o\d(-|$)")


def openai_efforts(model: str) -> tuple[str, ...] | None:
    """The efforts that this model of OpenAI accepts, empty if it does not reason; None for unknown models."""
    name = model.lower().rpartition("/")[2]
    return next((efforts for pattern, efforts in _OPENAI_EFFORTS if pattern.match(name)), None)
