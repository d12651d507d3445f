"""What a request sets, and how others' measures are told here."""

from __future__ import annotations

from operator import attrgetter

from toolwire.ids import digest
from toolwire.ir import UNSET, Format, Origin, Request, Settings, Thinking
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.hosted_tools import SOURCES, write_limits
from toolwire.protocols.openai_responses.models import family_of
from toolwire.protocols.openai_responses.names import NAME
from toolwire.protocols.openai_responses.parts import own
from toolwire.reading import Reading, finished, set_fields, verbatim
from toolwire.thinking import EFFORTS, effort_for, nearest
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    take_bool,
    take_int,
    take_list,
    take_number,
    take_object,
    take_text,
)

PLAIN = {
    "max_output_tokens": ("max_tokens", take_int),
    "temperature": ("temperature", take_number),
    "top_p": ("top_p", take_number),
    "top_logprobs": ("top_logprobs", take_int),
    "parallel_tool_calls": ("parallel", take_bool),
    "service_tier": ("tier", take_text),
    "store": ("store", take_bool),
    "metadata": ("metadata", take_object),
    "safety_identifier": ("user", take_text),
    "prompt_cache_key": ("cache_key", take_text),
}
"""Keys that hold one setting each: our field, and how to take it."""

_KEYS = frozenset(PLAIN)
OTHER = frozenset({"include", "user", "reasoning", "text"})
NONE: frozenset[str] = frozenset()

SAID = frozenset(
    {field for field, _ in PLAIN.values()} | {"thinking", "format", "verbosity", "logprobs", "stream_usage"}
)

REASONING = frozenset({"effort", "summary", "generate_summary"})
TEXT = frozenset({"format", "verbosity"})
SCHEMA = frozenset({"type", "name", "description", "schema", "strict"})
SEALS = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
LEAST_TOKENS = 16
LONGEST_NAME = 64

# --- reading --------------------------------------------------------------------------------------------------------


def read_settings(body: Object, reading: Reading) -> tuple[Settings, frozenset[str]]:
    """The settings, and the keys beside the plain ones that they have understood whole."""
    fields: dict[str, Json] = {}
    where: dict[str, Path] = {}
    found = _KEYS.intersection(body)
    for key in found if len(found) < 2 else filter(found.__contains__, PLAIN):
        field, take = PLAIN[key]
        value = take(body, key, None)
        if value is not None:
            fields[field] = value
            where[field] = (None, key)
    said = NONE if OTHER.isdisjoint(body) else _read_other(body, fields, where, reading)
    if not fields:
        return UNSET, said
    fields["where"] = where
    return Settings(**fields), said


def _read_other(body: Object, fields: dict[str, Json], where: dict[str, Path], reading: Reading) -> frozenset[str]:
    said = _read_include(body, fields, where, reading) | _read_user(body, fields, where)
    thinking = take_object(body, "reasoning", None)
    if thinking is not None:
        fields["thinking"] = _read_thinking(thinking, (None, "reasoning"), reading)
        where["thinking"] = (None, "reasoning")
    text = take_object(body, "text", None)
    if text is not None:
        _read_text(text, (None, "text"), fields, where, reading)
    return said


def _read_include(body: Object, fields: dict[str, Json], where: dict[str, Path], reading: Reading) -> frozenset[str]:
    """Sealed reasoning comes anyway and log probabilities have a setting; sources are always told. Other wishes
    only this protocol knows."""
    wanted = take_list(body, "include", None)
    if wanted is None:
        return NONE
    if LOGPROBS in wanted:
        fields["logprobs"] = True
        where["logprobs"] = (None, "include")
    if not all(one in (SEALS, LOGPROBS, SOURCES) for one in wanted):
        return NONE
    if SEALS in wanted or SOURCES in wanted:
        reading.stray(None, "include", "setting-mapped")
    return frozenset({"include"})


def _read_user(body: Object, fields: dict[str, Json], where: dict[str, Path]) -> frozenset[str]:
    user = take_text(body, "user", None)
    if user is None or "user" in fields:
        return NONE
    fields["user"] = user
    where["user"] = (None, "user")
    return frozenset({"user"})


def _read_thinking(node: Object, path: Path, reading: Reading) -> Thinking:
    show = take_text(node, "summary", path) or take_text(node, "generate_summary", path) or ""
    return Thinking(
        effort=take_text(node, "effort", path) or "", show=show, origin=reading.origin(node, path, REASONING)
    )


def _read_text(node: Object, path: Path, fields: dict[str, Json], where: dict[str, Path], reading: Reading) -> None:
    reading.origin(node, path, TEXT)
    verbosity = take_text(node, "verbosity", path)
    if verbosity is not None:
        fields["verbosity"] = verbosity
        where["verbosity"] = (path, "verbosity")
    form = take_object(node, "format", path)
    if form is not None:
        fields["format"] = _read_format(form, (path, "format"), reading)
        where["format"] = (path, "format")


FORMATS = {"text": "text", "json_object": "json", "json_schema": "schema"}
FORMAT_TYPES = {kind: word for word, kind in FORMATS.items()}


def _read_format(node: Object, path: Path, reading: Reading) -> Format:
    word = take_text(node, "type", path) or "text"
    kind = FORMATS.get(word)
    if kind is None:
        raise Malformed((path, "type"), f"{word!r} is no format of text; one of {', '.join(FORMATS)} is")
    return Format(
        kind,  # type: ignore[arg-type]
        take_object(node, "schema", path),
        take_text(node, "name", path) or "",
        take_text(node, "description", path) or "",
        take_bool(node, "strict", path),
        reading.origin(node, path, SCHEMA),
    )


# --- writing --------------------------------------------------------------------------------------------------------


_FIELDS = frozenset({field for field, _ in PLAIN.values()})
_plain = attrgetter(*[field for field, _ in PLAIN.values()])


def write_settings(request: Request, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    foreign = ledger.source != NAME
    said = set_fields(settings)
    if not _FIELDS.isdisjoint(said):
        out.update({key: value for key, value in zip(PLAIN, _plain(settings), strict=True) if value is not None})
    if foreign:
        _fit(request, out, ledger)
    if settings.thinking is not None:
        write_thinking(request, settings.thinking, out, ledger)
    _write_text(request, out, ledger)
    if settings.logprobs and not (own(request.origin) and "include" in request.origin.wire):  # type: ignore[union-attr]
        out["include"] = [LOGPROBS]
        if foreign:
            ledger.note(
                "setting-mapped", settings.where.get("logprobs"), "log probabilities are asked for by `include`"
            )
    if foreign:
        write_limits(request, out, ledger)
    _keep_user(request, out)
    ledger.unsaid(settings, said, SAID)


def _keep_user(request: Request, out: Object) -> None:
    """A user told under the old key goes out under the old key."""
    if own(request.origin) and "user" in request.origin.extra:  # type: ignore[union-attr]
        was = request.origin.wire  # type: ignore[union-attr]
        if was.get("safety_identifier") is None and "safety_identifier" in out:
            out["user"] = out.pop("safety_identifier")


def _fit(request: Request, out: Object, ledger: Ledger) -> None:
    """Another protocol's values within this one's limits, and its defaults where ours differ."""
    where = request.settings.where
    tokens = request.settings.max_tokens
    if tokens is not None and tokens < LEAST_TOKENS:
        out["max_output_tokens"] = LEAST_TOKENS
        ledger.note("setting-clamped", where.get("max_tokens"), f"a limit of {tokens} tokens became {LEAST_TOKENS}")
    for key, field in (("safety_identifier", "user"), ("prompt_cache_key", "cache_key")):
        value = out.get(key)
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            out[key] = digest(value, LONGEST_NAME)
            ledger.note("setting-clamped", where.get(field), f"a `{field}` of {len(value)} characters was hashed")
    if "store" not in out:
        out["store"] = False
        ledger.note("default-added", (None, "store"), "`store: false` was set")
    if not family_of(request.model).sampling:
        for field in ("temperature", "top_p"):
            if out.pop(field, None) is not None:
                ledger.note(
                    "no-counterpart", where.get(field), f"`{field}` was left out", f"{request.model} refuses it"
                )


def write_thinking(request: Request, thinking: Thinking, out: Object, ledger: Ledger) -> None:
    if verbatim(thinking.origin, NAME):
        out["reasoning"] = thinking.origin.wire  # type: ignore[union-attr]
        return
    where = request.settings.where.get("thinking")
    efforts = family_of(request.model).efforts if ledger.source != NAME else EFFORTS
    if not efforts:
        ledger.note("no-counterpart", where, "the wish to think was left out", f"{request.model} does not reason")
        return
    node: Object = {}
    effort = _effort(thinking, where, ledger)
    if effort:
        fitting = nearest(effort, efforts) if effort in EFFORTS else effort
        if fitting != effort:
            ledger.note("thinking-mapped", where, f"the effort {effort!r} became {fitting!r}")
        node["effort"] = fitting
    show = _show(thinking, where, ledger)
    if show:
        node["summary"] = show
    if node or ledger.source == NAME:
        out["reasoning"] = finished(node, thinking.origin, NAME)


def _effort(thinking: Thinking, where: Path, ledger: Ledger) -> str:
    if thinking.effort:
        return thinking.effort
    if thinking.mode == "off":
        return "none"
    if thinking.budget is not None and thinking.budget >= 0:
        effort = effort_for(thinking.budget)
        ledger.note("thinking-mapped", where, f"a budget of {thinking.budget} tokens became the effort {effort!r}")
        return effort
    if thinking.mode:
        ledger.note("thinking-mapped", where, f"thinking {thinking.mode!r} became the model's own default")
    return ""


SUMMARIES = frozenset({"auto", "concise", "detailed"})


def _show(thinking: Thinking, where: Path, ledger: Ledger) -> str:
    show = thinking.show
    if not show or show in SUMMARIES or ledger.source == NAME:
        return show
    if show == "none":
        ledger.note("thinking-mapped", where, "no summary is asked for by asking for none")
        return ""
    ledger.note("thinking-mapped", where, f"the summary {show!r} became 'auto'")
    return "auto"


def _write_text(request: Request, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    node: Object = {}
    if settings.format is not None:
        node["format"] = _write_format(settings.format, settings.where.get("format"), ledger)
    if settings.verbosity is not None:
        node["verbosity"] = settings.verbosity
    was = request.origin.wire.get("text") if own(request.origin) else None  # type: ignore[union-attr]
    if isinstance(was, dict):
        extra = {key: value for key, value in was.items() if key not in TEXT}
        node = finished(node, Origin(NAME, None, was, extra), NAME)
    if node:
        out["text"] = node


def _write_format(form: Format, where: Path, ledger: Ledger) -> Object:
    if verbatim(form.origin, NAME):
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
    return finished(out, form.origin, NAME)
