"""The settings of a Responses request: how they are read, and how those of other protocols are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from toolwire.core.ids import hex_digest
from toolwire.core.ir import NO_SETTINGS, Format, Origin, Request, Settings, Thinking
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    get_bool,
    get_int,
    get_list,
    get_number,
    get_object,
    get_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, present_settings, restore_original_keys
from toolwire.core.tokens import EFFORTS, asked_effort, effort_for_budget, find_fixed_sampling, nearest_effort
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.models import SAMPLING_MEMBERS, family
from toolwire.protocols.openai_responses.names import NAME, intact_wire, is_own
from toolwire.protocols.openai_responses.tools import INCLUDE_SOURCES, write_provider_tool_settings

COPIED_SETTINGS = {
    "max_output_tokens": ("max_tokens", get_int),
    "temperature": ("temperature", get_number),
    "top_p": ("top_p", get_number),
    "top_logprobs": ("top_logprobs", get_int),
    "parallel_tool_calls": ("parallel", get_bool),
    "service_tier": ("tier", get_text),
    "store": ("store", get_bool),
    "metadata": ("metadata", get_object),
    "safety_identifier": ("user", get_text),
    "prompt_cache_key": ("cache_key", get_text),
}
"""Keys with one setting each: the field of `Settings`, and its reader."""

STRUCTURED_KEYS = frozenset({"include", "user", "reasoning", "text"})

SUPPORTED_SETTINGS = frozenset(
    {field for field, _ in COPIED_SETTINGS.values()} | {"thinking", "format", "verbosity", "logprobs", "stream_usage"}
)

REASONING_KEYS = frozenset({"effort", "summary", "generate_summary"})
TEXT_KEYS = frozenset({"format", "verbosity"})
FORMAT_KEYS = frozenset({"type", "name", "description", "schema", "strict"})
INCLUDE_LOGPROBS = "message.output_text.logprobs"
SUMMARY_MODES = frozenset({"auto", "concise", "detailed"})
MIN_OUTPUT_TOKENS = 16
MAX_IDENTIFIER_LENGTH = 64


def read_settings(body: Object, reading: ReadContext) -> tuple[Settings, frozenset[str]]:
    """The settings, and the keys outside REQUEST_KEYS that were read completely."""
    found: _Found = {}
    for key in filter(body.__contains__, COPIED_SETTINGS):
        field, take = COPIED_SETTINGS[key]
        if body[key] is not None:
            found[field] = take(body, key, None), (None, key)
    read_keys: frozenset[str] = frozenset()
    if not STRUCTURED_KEYS.isdisjoint(body):
        read_keys = _read_include(body, found, reading)
        user = get_text(body, "user", None)
        if user is not None and "user" not in found:
            found["user"] = user, (None, "user")
            read_keys |= {"user"}
        thinking = get_object(body, "reasoning", None)
        if thinking is not None:
            at = (None, "reasoning")
            summary = get_text(thinking, "summary", at) or get_text(thinking, "generate_summary", at) or ""
            effort, origin = get_text(thinking, "effort", at) or "", reading.read_origin(thinking, at, REASONING_KEYS)
            found["thinking"] = Thinking(effort=effort, summary=summary, origin=origin), at
        _read_text_settings(body, found, reading)
    if not found:
        return NO_SETTINGS, read_keys
    where = {field: path for field, (_, path) in found.items()}
    return Settings(**{field: value for field, (value, _) in found.items()}, where=where), read_keys


_Found = dict[str, tuple[Json, Path]]
"""Fields of `Settings` with their value and where it was."""


def _read_include(body: Object, found: _Found, reading: ReadContext) -> frozenset[str]:
    """Encrypted reasoning and sources are always sent, and logprobs have a setting. Other values are OpenAI's only."""
    values = get_list(body, "include", None) or []
    if INCLUDE_LOGPROBS in values:
        found["logprobs"] = True, (None, "include")
    if not all(value in (names.INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, INCLUDE_SOURCES) for value in values):
        return frozenset()
    if names.INCLUDE_ENCRYPTED_REASONING in values or INCLUDE_SOURCES in values:
        reading.note_unknown_field(None, "include", "setting-mapped")
    return frozenset({"include"})


def _read_text_settings(body: Object, found: _Found, reading: ReadContext) -> None:
    node, path = get_object(body, "text", None), (None, "text")
    if node is None:
        return
    reading.read_origin(node, path, TEXT_KEYS)
    verbosity, form = get_text(node, "verbosity", path), get_object(node, "format", path)
    if verbosity is not None:
        found["verbosity"] = verbosity, (path, "verbosity")
    if form is not None:
        at = (path, "format")
        found["format"] = _read_response_format(form, at, reading), at


FORMAT_KINDS: Mapping[str, Literal["text", "json", "schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "schema",
}
FORMAT_TYPES: Mapping[str, str] = {kind: word for word, kind in FORMAT_KINDS.items()}


def _read_response_format(node: Object, path: Path, reading: ReadContext) -> Format:
    word = get_text(node, "type", path) or "text"
    kind = FORMAT_KINDS.get(word)
    if kind is None:
        raise Malformed((path, "type"), f"unknown format {word!r}; known are {', '.join(FORMAT_KINDS)}")
    schema, strict = get_object(node, "schema", path), get_bool(node, "strict", path)
    name, description = get_text(node, "name", path) or "", get_text(node, "description", path) or ""
    return Format(kind, schema, name, description, strict, reading.read_origin(node, path, FORMAT_KEYS))


def write_settings(request: Request, out: Object, ledger: Ledger) -> None:
    settings, origin = request.settings, request.origin
    present = present_settings(settings)
    for key, (field, _) in COPIED_SETTINGS.items():
        if field in present:
            out[key] = getattr(settings, field)
    _drop_refused_settings(request, out, ledger)
    if ledger.source != NAME:
        _fit_settings(request, out, ledger)
    if settings.thinking is not None:
        _write_reasoning_settings(request, settings.thinking, out, ledger)
    _write_text_settings(request, out, ledger)
    if ledger.source != NAME and _reasons(request):
        # Without it, thinking could not be sent back: there is nothing at OpenAI that its id would stand for.
        out["include"] = [names.INCLUDE_ENCRYPTED_REASONING]
        ledger.note("default-added", (None, "include"), "encrypted reasoning was asked for")
    if settings.logprobs and not (is_own(origin) and "include" in origin.wire):
        out["include"] = [*out.get("include", ()), INCLUDE_LOGPROBS]
        if ledger.source != NAME:
            where = settings.where.get("logprobs")
            ledger.note("setting-mapped", where, "log probabilities are asked for with `include`")
    if ledger.source != NAME:
        write_provider_tool_settings(request, out, ledger)
    used_old_key = is_own(origin) and "user" in origin.extra and origin.wire.get("safety_identifier") is None
    if used_old_key and "safety_identifier" in out:
        out["user"] = out.pop("safety_identifier")
    ledger.note_unwritten_settings(settings, present, SUPPORTED_SETTINGS)


def find_refused_settings(request: Request) -> tuple[str, ...]:
    """The settings of a request that its model refuses."""
    settings, thinking = request.settings, request.settings.thinking
    if settings.temperature is None and settings.top_p is None:
        return ()
    given = [key for key in SAMPLING_MEMBERS if getattr(settings, key) is not None]
    if not family(request.model).sampling:
        return tuple(given)
    fixed = find_fixed_sampling(settings, request.model, "" if thinking is None else asked_effort(thinking))
    return tuple(filter(given.__contains__, fixed))


def _drop_refused_settings(request: Request, out: Object, ledger: Ledger) -> None:
    for field in find_refused_settings(request):
        out.pop(field, None)
        where, why = request.settings.where.get(field), f"{request.model} refuses it"
        ledger.note("no-counterpart", where, f"`{field}` was left out", why)


def _reasons(request: Request) -> bool:
    """Does the model reason? Models that do not refuse to be asked for encrypted reasoning."""
    facts, thinking = family(request.model), request.settings.thinking
    return bool(facts.efforts) and (facts.is_known or (thinking is not None and thinking.mode != "off"))


def _fit_settings(request: Request, out: Object, ledger: Ledger) -> None:
    """Fit another protocol's values into OpenAI's limits, and add its defaults where OpenAI's differ."""
    where = request.settings.where
    tokens = request.settings.max_tokens
    if tokens is not None and tokens < MIN_OUTPUT_TOKENS:
        out["max_output_tokens"] = MIN_OUTPUT_TOKENS
        what = f"a limit of {tokens} tokens became {MIN_OUTPUT_TOKENS}"
        ledger.note("setting-clamped", where.get("max_tokens"), what)
    for key, field in (("safety_identifier", "user"), ("prompt_cache_key", "cache_key")):
        value = out.get(key)
        if isinstance(value, str) and len(value) > MAX_IDENTIFIER_LENGTH:
            out[key] = hex_digest(value, MAX_IDENTIFIER_LENGTH)
            ledger.note("setting-clamped", where.get(field), f"a `{field}` of {len(value)} characters was hashed")
    if "store" not in out:
        out["store"] = False
        ledger.note("default-added", (None, "store"), "`store: false` was set")


def _write_reasoning_settings(request: Request, thinking: Thinking, out: Object, ledger: Ledger) -> None:
    if (wire := intact_wire(thinking.origin)) is not None:
        out["reasoning"] = wire
        return
    where = request.settings.where.get("thinking")
    efforts = family(request.model).efforts if ledger.source != NAME else EFFORTS
    if not efforts:
        why = f"{request.model} does not reason"
        ledger.note("no-counterpart", where, "the reasoning settings were left out", why)
        return
    node: Object = {}
    effort = _reasoning_effort(thinking, where, ledger)
    if effort:
        node["effort"] = nearest_effort(effort, efforts) if effort in EFFORTS else effort
        if node["effort"] != effort:
            ledger.note("thinking-mapped", where, f"the effort {effort!r} became {node['effort']!r}")
    summary = thinking.summary
    if summary and summary not in SUMMARY_MODES and ledger.source != NAME:
        what = "`none` is the default and was left out" if summary == "none" else f"{summary!r} became 'auto'"
        ledger.note("thinking-mapped", where, f"the summary mode {what}")
        summary = "" if summary == "none" else "auto"
    if summary:
        node["summary"] = summary
    if node or ledger.source == NAME:
        out["reasoning"] = restore_original_keys(node, thinking.origin, NAME)


def _reasoning_effort(thinking: Thinking, where: Path, ledger: Ledger) -> str:
    if thinking.effort:
        return thinking.effort
    if thinking.mode == "off":
        return "none"
    if thinking.budget is not None and thinking.budget >= 0:
        effort = effort_for_budget(thinking.budget)
        ledger.note("thinking-mapped", where, f"a budget of {thinking.budget} tokens became the effort {effort!r}")
        return effort
    if thinking.mode:
        ledger.note("thinking-mapped", where, f"the reasoning mode {thinking.mode!r} became the model's default")
    return ""


def _write_text_settings(request: Request, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    node: Object = {}
    if settings.format is not None:
        node["format"] = _write_response_format(settings.format, settings.where.get("format"), ledger)
    if settings.verbosity is not None:
        node["verbosity"] = settings.verbosity
    wire = request.origin.wire.get("text") if is_own(request.origin) else None
    if isinstance(wire, dict):
        extra = {key: value for key, value in wire.items() if key not in TEXT_KEYS}
        node = restore_original_keys(node, Origin(NAME, None, wire, extra), NAME)
    if node:
        out["text"] = node


def _write_response_format(form: Format, where: Path, ledger: Ledger) -> Object:
    if (wire := intact_wire(form.origin)) is not None:
        return wire
    out: Object = {"type": FORMAT_TYPES[form.kind]}
    if form.kind == "schema":
        out["name"] = form.name
        if not form.name and ledger.source != NAME:
            out["name"] = "answer"
            ledger.note("name-added", where, "the schema of the answer was named 'answer'")
        if form.description:
            out["description"] = form.description
        out["schema"] = form.schema if form.schema is not None else {"type": "object"}
        if form.strict is not None:
            out["strict"] = form.strict
    return restore_original_keys(out, form.origin, NAME)
