"""Requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from msgspec.structs import replace

from toolwire.core.ir import (
    EMPTY_MAPPING,
    NO_SETTINGS,
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    Request,
    Settings,
    Text,
    Turn,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Number,
    Object,
    Path,
    Paths,
    expect_object,
    expect_text,
    get_bool,
    get_int,
    get_list,
    get_number,
    get_object,
    get_text,
    require_text,
    to_float,
)
from toolwire.core.losses import OFF, Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, items_with_paths, present_settings, restore_original_keys
from toolwire.protocols.anthropic.cache import place_breakpoints, read_cache, write_cache
from toolwire.protocols.anthropic.content import collapse_single_text, read_content, write_content, write_parts
from toolwire.protocols.anthropic.models import AS_GIVEN, UNKNOWN_FAMILY, Family, family
from toolwire.protocols.anthropic.names import (
    BILLING_HEADER_PREFIX,
    FORMAT_KEYS,
    METADATA_KEYS,
    NAME,
    OUTPUT_CONFIG_KEYS,
    REQUEST_KEYS,
    ROLES,
    SERVICE_TIERS,
    TURN_KEYS,
    WIRE_ROLES,
    WIRE_SERVICE_TIERS,
    is_foreign,
    is_own,
)
from toolwire.protocols.anthropic.provider_tools import disown_unsealed_parts
from toolwire.protocols.anthropic.reasoning import read_reasoning_settings, write_reasoning_settings
from toolwire.protocols.anthropic.tools import (
    make_strict_schema,
    read_tool_choice,
    read_tools,
    select_allowed_tools,
    write_tool_choice,
    write_tools,
)

__all__ = ["read_request", "write_request"]

CONTINUE_TEXT = "Continue."

SUPPORTED_SETTINGS = frozenset(
    "max_tokens temperature top_p top_k stop parallel thinking format user tier cache stream_usage".split()
)
"""The settings that this wire can say; usage stands in its streams anyway."""

_SETTING_KEYS = REQUEST_KEYS - frozenset("model max_tokens messages system tools tool_choice stream".split())
"""The keys of all settings but the one that every request has."""
_STRUCTURE_KEYS = REQUEST_KEYS - _SETTING_KEYS
_MAX_TOKENS_PLACE: Mapping[str, Path] = {"max_tokens": (None, "max_tokens")}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = ReadContext(NAME)
    ordinary = _STRUCTURE_KEYS.issuperset(body)
    choice, parallel = read_tool_choice(body, reading)
    turns, intact = read_turns(body, reading)
    return Request(
        get_text(body, "model", None) or "",
        _read_system(body, reading),
        turns,
        read_tools(body, reading),
        choice,
        get_bool(body, "stream", None) if "stream" in body else None,
        _read_max_tokens(body) if ordinary and parallel is None else _read_settings(body, parallel, reading),
        "thread" in body and _continues_thread(body["thread"]),
        Origin(NAME, None, body, EMPTY_MAPPING, intact) if ordinary else _request_origin(body, intact, reading),
        tuple(reading.unknown_fields),
    )


def _request_origin(body: Object, intact: bool, reading: ReadContext) -> Origin:
    origin = reading.read_origin(body, None, REQUEST_KEYS)
    return origin if intact else replace(origin, intact=False)


def _read_max_tokens(body: Object) -> Settings:
    """The setting that every request has, where there is no other."""
    limit = get_int(body, "max_tokens", None)
    return NO_SETTINGS if limit is None else Settings(limit, where=_MAX_TOKENS_PLACE)


def _continues_thread(thread: Json) -> bool:
    """A thread that goes on keeps its earlier turns with the provider."""
    return isinstance(thread, dict) and thread.get("type") == "continue"


def _read_system(body: Object, reading: ReadContext) -> tuple[Part, ...]:
    system = body.get("system")
    if system is None:
        return ()
    if system.__class__ is str:
        return (Text(system, (), None, None, Origin(NAME, (None, "system"), system)),) if system else ()
    parts = read_content(system, (None, "system"), reading)
    first = parts[0] if parts and isinstance(system, list) else None
    if isinstance(first, Text) and first.origin and first.text.startswith(BILLING_HEADER_PREFIX):
        # Changes with every call: carried for this wire alone, so that nobody else's prompt cache suffers.
        return (Opaque("billing-header", first.origin), *parts[1:])
    return parts


def _read_settings(body: Object, parallel: bool | None, reading: ReadContext) -> Settings:
    if parallel is None and _SETTING_KEYS.isdisjoint(body):
        return _read_max_tokens(body)
    config = _take_known_object(body, "output_config", OUTPUT_CONFIG_KEYS, reading)
    metadata = _take_known_object(body, "metadata", METADATA_KEYS, reading)
    tier = get_text(body, "service_tier", None)
    stop = get_list(body, "stop_sequences", None)
    read: dict[str, tuple[Any, str]] = {
        "max_tokens": (get_int(body, "max_tokens", None), "max_tokens"),
        "temperature": (get_number(body, "temperature", None), "temperature"),
        "top_p": (get_number(body, "top_p", None), "top_p"),
        "top_k": (get_number(body, "top_k", None), "top_k"),
        "stop": (None if stop is None else _read_texts(stop, (None, "stop_sequences")), "stop_sequences"),
        "parallel": (parallel, "tool_choice"),
        "thinking": (
            read_reasoning_settings(body, get_text(config, "effort", (None, "output_config")), reading),
            "thinking" if body.get("thinking") is not None else "output_config",
        ),
        "format": _read_response_format(body, config, reading),
        "user": (get_text(metadata, "user_id", (None, "metadata")), "metadata"),
        "tier": (SERVICE_TIERS.get(tier, tier) if tier is not None else None, "service_tier"),
        "cache": (read_cache(body, None, reading) if "cache_control" in body else None, "cache_control"),
    }
    given: dict[str, Any] = {}
    where: dict[str, Path] = {}
    for field, (value, key) in read.items():
        if value is not None:
            given[field] = value
            where[field] = (None, key)
    if "thinking" in given and config.get("effort") is not None and body.get("thinking") is not None:
        where["thinking"] = Paths(((None, "thinking"), ((None, "output_config"), "effort")))
    return Settings(**given, where=where)


def _take_known_object(body: Object, key: str, known: frozenset[str], reading: ReadContext) -> Object:
    """An object of which some keys are known; the others are noted, and `_with_unknown` gives them back."""
    node = get_object(body, key, None) or {}
    reading.read_origin(node, (None, key), known)
    return node


def _read_texts(values: list[Json], path: Path) -> tuple[str, ...]:
    return tuple(expect_text(value, here) for value, here in items_with_paths(values, path))


def _read_response_format(body: Object, config: Object, reading: ReadContext) -> tuple[Format | None, str]:
    """The schema of the answer, and the key below which it stood: older clients had it at the top."""
    top = "output_config"
    path: Path = ((None, top), "format")
    node = get_object(config, "format", (None, "output_config"))
    if node is None:
        top = "output_format"
        path = (None, top)
        node = get_object(body, "output_format", None)
    if node is None:
        return None, top
    if node.get("type") != "json_schema":
        reading.note_unknown_field(path, "type")
        return None, top
    return Format("schema", get_object(node, "schema", path), origin=reading.read_origin(node, path, FORMAT_KEYS)), top


# --- writing ----------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    own = origin if origin is not None and origin.protocol == NAME else None
    if own is not None and own.intact:
        wire: Object = own.wire
        return wire
    facts = _model_family(request, own)
    out: Object = {"model": request.model, "max_tokens": _write_max_tokens(request, facts, ledger)}
    system = _write_system(request, own, ledger)
    if system or _was_empty(own, "system"):
        out["system"] = system
    out["messages"] = write_turns(request.turns, ledger)
    if origin is not None and own is None:
        _end_with_user(out["messages"], facts, ledger)
    tools = write_tools(select_allowed_tools(request, facts, ledger), ledger)
    if tools or _was_empty(own, "tools"):
        out["tools"] = tools
    choice = write_tool_choice(request, facts, bool(tools), ledger)
    if choice is not None:
        out["tool_choice"] = choice
    if own is not None or (request.settings is not NO_SETTINGS and _has_more_settings(request.settings)):
        _write_settings(request, facts, out, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    out = _write_cache_breakpoints(request, facts, out, ledger)
    return out if own is None else restore_original_keys(out, own, NAME)


def _model_family(request: Request, own: Origin | None) -> Family:
    """What the model can do. A client of this wire knows its model, unless its request goes to another one."""
    if own is None and request.origin is not None:
        return family(request.model)
    sent_on = own is not None and isinstance(own.wire, dict) and own.wire.get("model") != request.model
    facts = family(request.model) if sent_on else AS_GIVEN
    return AS_GIVEN if facts is UNKNOWN_FAMILY else facts


def _was_empty(own: Origin | None, key: str) -> bool:
    """Did this wire say that there is nothing? Then it is said again."""
    return own is not None and own.wire.get(key) in ("", [])


def _has_more_settings(settings: Settings) -> bool:
    """Is anything set that `_write_settings` writes or misses?"""
    return settings != Settings(
        settings.max_tokens,
        parallel=settings.parallel,
        cache=settings.cache,
        stream_usage=settings.stream_usage,
        where=settings.where,
    )


def _write_cache_breakpoints(request: Request, facts: Family, out: Object, ledger: Ledger) -> Object:
    settings = request.settings
    if settings.cache not in (None, OFF):
        write_cache(out, settings.cache, ledger, settings.where.get("cache"))
    if not is_foreign(request.origin):
        return out
    return place_breakpoints(out, settings.cache is None, facts is not UNKNOWN_FAMILY, ledger)


def _write_system(request: Request, own: Origin | None, ledger: Ledger) -> str | list[Object]:
    if own is None:
        return write_content(request.system, None, ledger) or ""
    blocks = write_parts(request.system, ledger, False)
    return blocks if isinstance(own.wire.get("system"), list) else collapse_single_text(blocks) or ""


def _end_with_user(messages: list[Object], facts: Family, ledger: Ledger) -> None:
    """Newer models refuse a turn of their own at the end; older ones go on from it, if no white space ends it."""
    if not messages or messages[-1]["role"] != "assistant":
        return
    last = messages[-1]
    content = last["content"]
    if not facts.prefill:
        messages.append({"role": "user", "content": CONTINUE_TEXT})
        ledger.note("turn-added", None, f"the user says `{CONTINUE_TEXT}` at the end")
        return
    ends_blank = (content if isinstance(content, str) else content[-1].get("text") or "")[-1:].isspace()
    if ends_blank:
        ledger.note(
            "empty-omitted", None, "white space at the end of the last turn was left out", "it is refused there"
        )
    if isinstance(content, str):
        last["content"] = content.rstrip()
    elif content[-1]["type"] == "text":
        content[-1]["text"] = content[-1]["text"].rstrip()


def _write_max_tokens(request: Request, facts: Family, ledger: Ledger) -> int:
    given = request.settings.max_tokens
    where = request.settings.where.get("max_tokens")
    if given is None:
        most = facts.default_tokens or family(request.model).default_tokens
        ledger.note("max-tokens-added", where, f"the limit was set to {most} tokens")
        return most
    most = facts.most_tokens or given
    if given > most:
        ledger.note("setting-clamped", where, f"the limit of {given} tokens became {most}")
        return most
    return given


def _write_settings(request: Request, facts: Family, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    forced = out.get("tool_choice", {}).get("type") in ("any", "tool")
    thinking, effort = write_reasoning_settings(request, facts, out["max_tokens"], forced, ledger)
    if thinking is not None:
        out["thinking"] = thinking
    config = _unknown_keys(request, "output_config", OUTPUT_CONFIG_KEYS)
    if effort is not None:
        config["effort"] = effort
    shape = _write_response_format(settings, facts, ledger)
    if shape is not None:
        config["format"] = shape
    if config:
        out["output_config"] = config
    budgeted = thinking is not None and thinking.get("type") == "enabled"
    _write_sampling(request, facts, budgeted, out, ledger)
    if settings.stop is not None:
        _write_stop_sequences(request, out, ledger)
    metadata = _unknown_keys(request, "metadata", METADATA_KEYS)
    if settings.user is not None:
        metadata["user_id"] = settings.user
    if metadata:
        out["metadata"] = metadata
    _write_service_tier(request, out, ledger)
    ledger.note_unwritten_settings(settings, present_settings(settings), SUPPORTED_SETTINGS)


def _unknown_keys(request: Request, key: str, known: frozenset[str]) -> Object:
    """The unknown keys of an object of this wire, to be given back."""
    origin = request.origin
    node = origin.wire.get(key) if origin is not None and is_own(origin) else None
    return {name: value for name, value in (node or {}).items() if name not in known}


def _write_response_format(settings: Settings, facts: Family, ledger: Ledger) -> Object | None:
    shape = settings.format
    if shape is None or shape.kind == "text":
        return None
    where = settings.where.get("format")
    if shape.kind == "json" or shape.schema is None:
        ledger.note("no-counterpart", where, "the wish for JSON without a schema was left out")
        return None
    if facts is AS_GIVEN and shape.origin is not None and is_verbatim(shape.origin, NAME):
        wire: Object = shape.origin.wire
        return wire
    if not facts.formats and facts is not AS_GIVEN:
        ledger.note("no-counterpart", where, "the schema of the answer was left out", "this model takes none")
        return None
    if shape.name or shape.description or shape.strict is not None:
        ledger.note("format-mapped", where, "the schema goes without its name, description and strictness")
    schema = shape.schema
    if facts is not AS_GIVEN:
        schema, hindrance = make_strict_schema(schema, where, "the answer", ledger)
        if hindrance:
            ledger.note("no-counterpart", where, "the schema of the answer was left out", hindrance)
            return None
    return restore_original_keys({"type": "json_schema", "schema": schema}, shape.origin, NAME)


def _write_sampling(request: Request, facts: Family, budgeted: bool, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    given: dict[str, Number] = {
        field: value for field in ("temperature", "top_p", "top_k") if (value := getattr(settings, field)) is not None
    }
    if facts is AS_GIVEN:
        out |= given
        return
    for field, value in given.items():
        why = _sampling_refusal(field, value, given, facts, budgeted)
        where = settings.where.get(field)
        if why:
            ledger.note("no-counterpart", where, f"`{field}` was left out", why)
        elif field == "temperature" and to_float(value) > 1:
            ledger.note("setting-clamped", where, "the temperature became 1")
            out[field] = 1
        else:
            out[field] = value


def _sampling_refusal(field: str, value: Number, given: Mapping[str, Number], facts: Family, budgeted: bool) -> str:
    if not facts.sampling:
        return "this model refuses it"
    if budgeted and (field == "top_k" or to_float(value) < (1 if field == "temperature" else 0.95)):
        return "it is refused beside thinking"
    if field == "top_p" and "temperature" in given and facts.one_sampling:
        return "this model refuses it beside a temperature"
    return ""


def _write_stop_sequences(request: Request, out: Object, ledger: Ledger) -> None:
    given = request.settings.stop or ()
    kept = [text for text in given if text.strip() or not is_foreign(request.origin)]
    if len(kept) < len(given):
        where = request.settings.where.get("stop")
        ledger.note("no-counterpart", where, "stop sequences of white space alone were left out")
    if kept or not given:
        out["stop_sequences"] = kept


def _write_service_tier(request: Request, out: Object, ledger: Ledger) -> None:
    tier = request.settings.tier
    if tier is None:
        return
    word = WIRE_SERVICE_TIERS.get(tier, None if is_foreign(request.origin) else tier)
    if word is None:
        ledger.note("no-counterpart", request.settings.where.get("tier"), f"the service tier `{tier}` was left out")
    else:
        out["service_tier"] = word


# --- The turns of a request: by far the most of it, so each way is one loop ---


def read_turns(body: Object, reading: ReadContext) -> tuple[tuple[Turn, ...], bool]:
    """The turns, and whether all are as they came: what nobody here made is not given back so."""
    messages = get_list(body, "messages", None)
    if messages is None:
        raise Malformed(None, "`messages` is missing")
    root = (None, "messages")
    turns: list[Turn] = []
    intact = True
    for number, node in enumerate(messages):
        path = (root, number)
        try:
            role, content = ROLES[node["role"]], node["content"]
        except (KeyError, TypeError):
            _refuse_turn(node, path)
        at = (path, "content")
        if content.__class__ is str and content:
            parts: tuple[Part, ...] = (Text(content, (), None, None, Origin(NAME, at, content)),)
        else:
            parts = read_content(content, at, reading)
        # Two keys are these two, so that none is unknown.
        origin = Origin(NAME, path, node) if len(node) == 2 else reading.read_origin(node, path, TURN_KEYS)
        if role == "assistant" and (ours := disown_unsealed_parts(parts)) is not None:
            parts, origin, intact = ours, replace(origin, intact=False), False
        turns.append(Turn(role, parts, "", "", origin))
    return tuple(turns), intact


def _refuse_turn(message: Json, path: Path) -> NoReturn:
    node = expect_object(message, path)
    word = require_text(node, "role", path)
    if word not in ROLES:
        raise Malformed((path, "role"), f"expected one of {', '.join(ROLES)}, got `{word}`")
    raise Malformed(path, "`content` is missing")


def write_turns(turns: tuple[Turn, ...], ledger: Ledger) -> list[Object]:
    """The messages; turns of which nothing can be sent give none, because empty ones are refused."""
    messages: list[Object] = []
    for turn in turns:
        own = turn.origin
        if own is not None and own.protocol != NAME:
            own = None
        if own is not None and own.intact:
            messages.append(own.wire)
            continue
        if turn.name or turn.phase:
            _note_dropped_fields(turn, ledger)
        parts = _drop_media(turn, ledger) if own is None and turn.role == "assistant" else turn.parts
        content = write_content(parts, own, ledger)
        if content:
            message: Object = {"role": WIRE_ROLES[turn.role], "content": content}
            messages.append(message if own is None else restore_original_keys(message, own, NAME))
    return messages


def _note_dropped_fields(turn: Turn, ledger: Ledger) -> None:
    for field, value in (("name", turn.name), ("phase", turn.phase)):
        if value:
            ledger.note("no-counterpart", source_path(turn), f"the {field} `{value}` of a turn was left out")


def _drop_media(turn: Turn, ledger: Ledger) -> tuple[Part, ...]:
    """The model's own turns hold no media here."""
    for part in turn.parts:
        if type(part) is Media:
            break
    else:
        return turn.parts
    kept: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Media):
            what = f"{part.mime or part.kind} in a turn of the model was left out"
            ledger.note("media-dropped", source_path(part) or source_path(turn), what)
        else:
            kept.append(part)
    return tuple(kept)
