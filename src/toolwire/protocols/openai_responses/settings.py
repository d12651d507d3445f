"""The settings of a request, and how those of other protocols are written."""

from __future__ import annotations

from operator import attrgetter

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
from toolwire.core.provenance import ReadContext, is_verbatim, present_settings, restore_original_keys
from toolwire.core.reasoning_effort import EFFORTS, effort_for_budget, nearest_effort
from toolwire.protocols.openai_responses.models import family
from toolwire.protocols.openai_responses.names import NAME, is_own
from toolwire.protocols.openai_responses.provider_tools import INCLUDE_SOURCES, write_provider_tool_settings

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

_COPIED_KEYS = frozenset(COPIED_SETTINGS)
STRUCTURED_KEYS = frozenset({"include", "user", "reasoning", "text"})
NO_KEYS: frozenset[str] = frozenset()

SUPPORTED_SETTINGS = frozenset(
    {field for field, _ in COPIED_SETTINGS.values()} | {"thinking", "format", "verbosity", "logprobs", "stream_usage"}
)

REASONING_KEYS = frozenset({"effort", "summary", "generate_summary"})
TEXT_KEYS = frozenset({"format", "verbosity"})
FORMAT_KEYS = frozenset({"type", "name", "description", "schema", "strict"})
INCLUDE_ENCRYPTED_REASONING = "reasoning.encrypted_content"
INCLUDE_LOGPROBS = "message.output_text.logprobs"
MIN_OUTPUT_TOKENS = 16
MAX_IDENTIFIER_LENGTH = 64

# --- reading --------------------------------------------------------------------------------------------------------


def read_settings(body: Object, reading: ReadContext) -> tuple[Settings, frozenset[str]]:
    """The settings, and the keys outside REQUEST_KEYS that were read completely."""
    fields: dict[str, Json] = {}
    where: dict[str, Path] = {}
    found = _COPIED_KEYS.intersection(body)
    for key in found if len(found) < 2 else filter(found.__contains__, COPIED_SETTINGS):
        field, take = COPIED_SETTINGS[key]
        value = take(body, key, None)
        if value is not None:
            fields[field] = value
            where[field] = (None, key)
    said = NO_KEYS if STRUCTURED_KEYS.isdisjoint(body) else _read_structured_settings(body, fields, where, reading)
    if not fields:
        return NO_SETTINGS, said
    fields["where"] = where
    return Settings(**fields), said


def _read_structured_settings(
    body: Object, fields: dict[str, Json], where: dict[str, Path], reading: ReadContext
) -> frozenset[str]:
    said = _read_include(body, fields, where, reading) | _read_user(body, fields, where)
    thinking = get_object(body, "reasoning", None)
    if thinking is not None:
        fields["thinking"] = _read_reasoning_settings(thinking, (None, "reasoning"), reading)
        where["thinking"] = (None, "reasoning")
    text = get_object(body, "text", None)
    if text is not None:
        _read_text_settings(text, (None, "text"), fields, where, reading)
    return said


def _read_include(
    body: Object, fields: dict[str, Json], where: dict[str, Path], reading: ReadContext
) -> frozenset[str]:
    """Encrypted reasoning and sources are always sent, and logprobs have a setting. Other values are OpenAI's only."""
    wanted = get_list(body, "include", None)
    if wanted is None:
        return NO_KEYS
    if INCLUDE_LOGPROBS in wanted:
        fields["logprobs"] = True
        where["logprobs"] = (None, "include")
    if not all(one in (INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, INCLUDE_SOURCES) for one in wanted):
        return NO_KEYS
    if INCLUDE_ENCRYPTED_REASONING in wanted or INCLUDE_SOURCES in wanted:
        reading.note_unknown_field(None, "include", "setting-mapped")
    return frozenset({"include"})


def _read_user(body: Object, fields: dict[str, Json], where: dict[str, Path]) -> frozenset[str]:
    user = get_text(body, "user", None)
    if user is None or "user" in fields:
        return NO_KEYS
    fields["user"] = user
    where["user"] = (None, "user")
    return frozenset({"user"})


def _read_reasoning_settings(node: Object, path: Path, reading: ReadContext) -> Thinking:
    show = get_text(node, "summary", path) or get_text(node, "generate_summary", path) or ""
    return Thinking(
        effort=get_text(node, "effort", path) or "", show=show, origin=reading.read_origin(node, path, REASONING_KEYS)
    )


def _read_text_settings(
    node: Object, path: Path, fields: dict[str, Json], where: dict[str, Path], reading: ReadContext
) -> None:
    reading.read_origin(node, path, TEXT_KEYS)
    verbosity = get_text(node, "verbosity", path)
    if verbosity is not None:
        fields["verbosity"] = verbosity
        where["verbosity"] = (path, "verbosity")
    form = get_object(node, "format", path)
    if form is not None:
        fields["format"] = _read_response_format(form, (path, "format"), reading)
        where["format"] = (path, "format")


FORMAT_KINDS = {"text": "text", "json_object": "json", "json_schema": "schema"}
FORMAT_TYPES = {kind: word for word, kind in FORMAT_KINDS.items()}


def _read_response_format(node: Object, path: Path, reading: ReadContext) -> Format:
    word = get_text(node, "type", path) or "text"
    kind = FORMAT_KINDS.get(word)
    if kind is None:
        raise Malformed((path, "type"), f"unknown format {word!r}; known are {', '.join(FORMAT_KINDS)}")
    return Format(
        kind,  # type: ignore[arg-type]
        get_object(node, "schema", path),
        get_text(node, "name", path) or "",
        get_text(node, "description", path) or "",
        get_bool(node, "strict", path),
        reading.read_origin(node, path, FORMAT_KEYS),
    )


# --- writing --------------------------------------------------------------------------------------------------------


_COPIED_FIELDS = frozenset({field for field, _ in COPIED_SETTINGS.values()})
_copied_settings = attrgetter(*[field for field, _ in COPIED_SETTINGS.values()])


def write_settings(request: Request, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    foreign = ledger.source != NAME
    said = present_settings(settings)
    if not _COPIED_FIELDS.isdisjoint(said):
        out.update(
            {
                key: value
                for key, value in zip(COPIED_SETTINGS, _copied_settings(settings), strict=True)
                if value is not None
            }
        )
    if foreign:
        _fit_settings(request, out, ledger)
    if settings.thinking is not None:
        write_reasoning_settings(request, settings.thinking, out, ledger)
    _write_text_settings(request, out, ledger)
    if settings.logprobs and not (is_own(request.origin) and "include" in request.origin.wire):
        out["include"] = [INCLUDE_LOGPROBS]
        if foreign:
            ledger.note(
                "setting-mapped", settings.where.get("logprobs"), "log probabilities are asked for with `include`"
            )
    if foreign:
        write_provider_tool_settings(request, out, ledger)
    _restore_user_key(request, out)
    ledger.note_unwritten_settings(settings, said, SUPPORTED_SETTINGS)


def _restore_user_key(request: Request, out: Object) -> None:
    """A user that came under the old key `user` is written under it again."""
    if is_own(request.origin) and "user" in request.origin.extra:
        was = request.origin.wire
        if was.get("safety_identifier") is None and "safety_identifier" in out:
            out["user"] = out.pop("safety_identifier")


def _fit_settings(request: Request, out: Object, ledger: Ledger) -> None:
    """Fit another protocol's values into OpenAI's limits, and add its defaults where OpenAI's differ."""
    where = request.settings.where
    tokens = request.settings.max_tokens
    if tokens is not None and tokens < MIN_OUTPUT_TOKENS:
        out["max_output_tokens"] = MIN_OUTPUT_TOKENS
        ledger.note(
            "setting-clamped", where.get("max_tokens"), f"a limit of {tokens} tokens became {MIN_OUTPUT_TOKENS}"
        )
    for key, field in (("safety_identifier", "user"), ("prompt_cache_key", "cache_key")):
        value = out.get(key)
        if isinstance(value, str) and len(value) > MAX_IDENTIFIER_LENGTH:
            out[key] = hex_digest(value, MAX_IDENTIFIER_LENGTH)
            ledger.note("setting-clamped", where.get(field), f"a `{field}` of {len(value)} characters was hashed")
    if "store" not in out:
        out["store"] = False
        ledger.note("default-added", (None, "store"), "`store: false` was set")
    if not family(request.model).sampling:
        for field in ("temperature", "top_p"):
            if out.pop(field, None) is not None:
                ledger.note(
                    "no-counterpart", where.get(field), f"`{field}` was left out", f"{request.model} refuses it"
                )


def write_reasoning_settings(request: Request, thinking: Thinking, out: Object, ledger: Ledger) -> None:
    if is_verbatim(thinking.origin, NAME):
        out["reasoning"] = thinking.origin.wire  # type: ignore[union-attr]
        return
    where = request.settings.where.get("thinking")
    efforts = family(request.model).efforts if ledger.source != NAME else EFFORTS
    if not efforts:
        ledger.note("no-counterpart", where, "the reasoning settings were left out", f"{request.model} does not reason")
        return
    node: Object = {}
    effort = _reasoning_effort(thinking, where, ledger)
    if effort:
        fitting = nearest_effort(effort, efforts) if effort in EFFORTS else effort
        if fitting != effort:
            ledger.note("thinking-mapped", where, f"the effort {effort!r} became {fitting!r}")
        node["effort"] = fitting
    show = _summary_mode(thinking, where, ledger)
    if show:
        node["summary"] = show
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


SUMMARY_MODES = frozenset({"auto", "concise", "detailed"})


def _summary_mode(thinking: Thinking, where: Path, ledger: Ledger) -> str:
    show = thinking.show
    if not show or show in SUMMARY_MODES or ledger.source == NAME:
        return show
    if show == "none":
        ledger.note("thinking-mapped", where, "the summary mode `none` is the default and was left out")
        return ""
    ledger.note("thinking-mapped", where, f"the summary mode {show!r} became 'auto'")
    return "auto"


def _write_text_settings(request: Request, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    node: Object = {}
    if settings.format is not None:
        node["format"] = _write_response_format(settings.format, settings.where.get("format"), ledger)
    if settings.verbosity is not None:
        node["verbosity"] = settings.verbosity
    was = request.origin.wire.get("text") if is_own(request.origin) else None
    if isinstance(was, dict):
        extra = {key: value for key, value in was.items() if key not in TEXT_KEYS}
        node = restore_original_keys(node, Origin(NAME, None, was, extra), NAME)
    if node:
        out["text"] = node


def _write_response_format(form: Format, where: Path, ledger: Ledger) -> Object:
    if is_verbatim(form.origin, NAME):
        wire: Object = form.origin.wire  # type: ignore[union-attr]
        return wire
    out: Object = {"type": FORMAT_TYPES[form.kind]}
    if form.kind == "schema":
        if form.name or ledger.source == NAME:
            out["name"] = form.name
        else:
            out["name"] = "answer"
            ledger.note("name-added", where, "the schema of the answer was named 'answer'")
        if form.description:
            out["description"] = form.description
        out["schema"] = form.schema if form.schema is not None else {"type": "object"}
        if form.strict is not None:
            out["strict"] = form.strict
    return restore_original_keys(out, form.origin, NAME)
