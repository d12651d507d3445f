"""Requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.ir import NOTHING, UNSET, Format, Opaque, Origin, Part, Request, Settings, Text
from toolwire.loss import OFF, Ledger
from toolwire.protocols.anthropic.details.cache import checked_marks, read_cache, write_cache
from toolwire.protocols.anthropic.details.schemas import enforceable
from toolwire.protocols.anthropic.details.stamp import is_foreign, is_own
from toolwire.protocols.anthropic.details.thinking import read_thinking, write_thinking
from toolwire.protocols.anthropic.details.turns import read_turns, write_turns
from toolwire.protocols.anthropic.models import AS_GIVEN, UNKNOWN, Family, family
from toolwire.protocols.anthropic.names import (
    BILLING,
    FORMAT,
    METADATA,
    NAME,
    OUTPUT_CONFIG,
    REQUEST,
    TIERS,
    WIRE_TIERS,
)
from toolwire.protocols.anthropic.parts import read_content, shortened, write_content, write_parts
from toolwire.protocols.anthropic.tools import allowed_tools, read_choice, read_tools, write_choice, write_tools
from toolwire.reading import Reading, finished, numbered, set_fields, verbatim
from toolwire.wire import (
    Json,
    Number,
    Object,
    Path,
    Places,
    as_float,
    as_text,
    take_bool,
    take_int,
    take_list,
    take_number,
    take_object,
    take_text,
)

__all__ = ["read_request", "write_request"]

CONTINUE = "Continue."

SAID = frozenset(
    "max_tokens temperature top_p top_k stop parallel thinking format user tier cache stream_usage".split()
)
"""The settings that this wire can say; usage stands in its streams anyway."""

_SETTINGS = REQUEST - frozenset("model max_tokens messages system tools tool_choice stream".split())
"""The keys of all settings but the one that every request has."""
_ORDINARY = REQUEST - _SETTINGS
_LIMITED: Mapping[str, Path] = {"max_tokens": (None, "max_tokens")}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = Reading(NAME)
    ordinary = _ORDINARY.issuperset(body)
    choice, parallel = read_choice(body, reading)
    turns, intact = read_turns(body, reading)
    return Request(
        take_text(body, "model", None) or "",
        _read_system(body, reading),
        turns,
        read_tools(body, reading),
        choice,
        take_bool(body, "stream", None) if "stream" in body else None,
        _read_limit(body) if ordinary and parallel is None else _read_settings(body, parallel, reading),
        "thread" in body and _continues(body["thread"]),
        Origin(NAME, None, body, NOTHING, intact) if ordinary else _origin(body, intact, reading),
        tuple(reading.strays),
    )


def _origin(body: Object, intact: bool, reading: Reading) -> Origin:
    origin = reading.origin(body, None, REQUEST)
    return origin if intact else replace(origin, intact=False)


def _read_limit(body: Object) -> Settings:
    """The setting that every request has, where there is no other."""
    limit = take_int(body, "max_tokens", None)
    return UNSET if limit is None else Settings(limit, where=_LIMITED)


def _continues(thread: Json) -> bool:
    """A thread that goes on keeps its earlier turns with the provider."""
    return isinstance(thread, dict) and thread.get("type") == "continue"


def _read_system(body: Object, reading: Reading) -> tuple[Part, ...]:
    system = body.get("system")
    if system is None:
        return ()
    if system.__class__ is str:
        return (Text(system, (), None, None, Origin(NAME, (None, "system"), system)),) if system else ()
    parts = read_content(system, (None, "system"), reading)
    first = parts[0] if parts and isinstance(system, list) else None
    if isinstance(first, Text) and first.origin and first.text.startswith(BILLING):
        # Changes with every call: carried for this wire alone, so that nobody else's prompt cache suffers.
        return (Opaque("billing-header", first.origin), *parts[1:])
    return parts


def _read_settings(body: Object, parallel: bool | None, reading: Reading) -> Settings:
    if parallel is None and _SETTINGS.isdisjoint(body):
        return _read_limit(body)
    config = _known(body, "output_config", OUTPUT_CONFIG, reading)
    metadata = _known(body, "metadata", METADATA, reading)
    tier = take_text(body, "service_tier", None)
    stop = take_list(body, "stop_sequences", None)
    read: dict[str, tuple[Any, str]] = {
        "max_tokens": (take_int(body, "max_tokens", None), "max_tokens"),
        "temperature": (take_number(body, "temperature", None), "temperature"),
        "top_p": (take_number(body, "top_p", None), "top_p"),
        "top_k": (take_number(body, "top_k", None), "top_k"),
        "stop": (None if stop is None else _texts(stop, (None, "stop_sequences")), "stop_sequences"),
        "parallel": (parallel, "tool_choice"),
        "thinking": (
            read_thinking(body, take_text(config, "effort", (None, "output_config")), reading),
            "thinking" if body.get("thinking") is not None else "output_config",
        ),
        "format": _read_format(body, config, reading),
        "user": (take_text(metadata, "user_id", (None, "metadata")), "metadata"),
        "tier": (TIERS.get(tier, tier) if tier is not None else None, "service_tier"),
        "cache": (read_cache(body, None, reading) if "cache_control" in body else None, "cache_control"),
    }
    given: dict[str, Any] = {}
    where: dict[str, Path] = {}
    for field, (value, key) in read.items():
        if value is not None:
            given[field] = value
            where[field] = (None, key)
    if "thinking" in given and config.get("effort") is not None and body.get("thinking") is not None:
        where["thinking"] = Places(((None, "thinking"), ((None, "output_config"), "effort")))
    return Settings(**given, where=where)


def _known(body: Object, key: str, known: frozenset[str], reading: Reading) -> Object:
    """An object of which some keys are known; the others are noted, and `_with_unknown` gives them back."""
    node = take_object(body, key, None) or {}
    reading.origin(node, (None, key), known)
    return node


def _texts(values: list[Json], path: Path) -> tuple[str, ...]:
    return tuple(as_text(value, here) for value, here in numbered(values, path))


def _read_format(body: Object, config: Object, reading: Reading) -> tuple[Format | None, str]:
    """The schema of the answer, and the key below which it stood: older clients had it at the top."""
    top = "output_config"
    path: Path = ((None, top), "format")
    node = take_object(config, "format", (None, "output_config"))
    if node is None:
        top = "output_format"
        path = (None, top)
        node = take_object(body, "output_format", None)
    if node is None:
        return None, top
    if node.get("type") != "json_schema":
        reading.stray(path, "type")
        return None, top
    return Format("schema", take_object(node, "schema", path), origin=reading.origin(node, path, FORMAT)), top


# --- writing ----------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    own = origin if origin is not None and origin.protocol == NAME else None
    if own is not None and own.intact:
        wire: Object = own.wire
        return wire
    facts = _facts(request, own)
    out: Object = {"model": request.model, "max_tokens": _max_tokens(request, facts, ledger)}
    system = _write_system(request, own, ledger)
    if system or _was_empty(own, "system"):
        out["system"] = system
    out["messages"] = write_turns(request.turns, ledger)
    if origin is not None and own is None:
        _end_with_user(out["messages"], facts, ledger)
    tools = write_tools(allowed_tools(request, facts, ledger), ledger)
    if tools or _was_empty(own, "tools"):
        out["tools"] = tools
    choice = write_choice(request, facts, bool(tools), ledger)
    if choice is not None:
        out["tool_choice"] = choice
    if own is not None or (request.settings is not UNSET and _says_more(request.settings)):
        _write_settings(request, facts, out, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    out = _cached(request, facts, out, ledger)
    return out if own is None else finished(out, own, NAME)


def _facts(request: Request, own: Origin | None) -> Family:
    """What the model can do. A client of this wire knows its model, unless its request goes to another one."""
    if own is None and request.origin is not None:
        return family(request.model)
    sent_on = own is not None and isinstance(own.wire, dict) and own.wire.get("model") != request.model
    facts = family(request.model) if sent_on else AS_GIVEN
    return AS_GIVEN if facts is UNKNOWN else facts


def _was_empty(own: Origin | None, key: str) -> bool:
    """Did this wire say that there is nothing? Then it is said again."""
    return own is not None and own.wire.get(key) in ("", [])


def _says_more(settings: Settings) -> bool:
    """Is anything set that `_write_settings` writes or misses?"""
    return settings != Settings(
        settings.max_tokens,
        parallel=settings.parallel,
        cache=settings.cache,
        stream_usage=settings.stream_usage,
        where=settings.where,
    )


def _cached(request: Request, facts: Family, out: Object, ledger: Ledger) -> Object:
    settings = request.settings
    if settings.cache not in (None, OFF):
        write_cache(out, settings.cache, ledger, settings.where.get("cache"))
    if not is_foreign(request.origin):
        return out
    return checked_marks(out, settings.cache is None, facts is not UNKNOWN, ledger)


def _write_system(request: Request, own: Origin | None, ledger: Ledger) -> str | list[Object]:
    if own is None:
        return write_content(request.system, None, ledger) or ""
    blocks = write_parts(request.system, ledger, False)
    return blocks if isinstance(own.wire.get("system"), list) else shortened(blocks) or ""


def _end_with_user(messages: list[Object], facts: Family, ledger: Ledger) -> None:
    """Newer models refuse a turn of their own at the end; older ones go on from it, if no white space ends it."""
    if not messages or messages[-1]["role"] != "assistant":
        return
    last = messages[-1]
    content = last["content"]
    if not facts.prefill:
        messages.append({"role": "user", "content": CONTINUE})
        ledger.note("turn-added", None, f"the user says `{CONTINUE}` at the end")
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


def _max_tokens(request: Request, facts: Family, ledger: Ledger) -> int:
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
    thinking, effort = write_thinking(request, facts, out["max_tokens"], forced, ledger)
    if thinking is not None:
        out["thinking"] = thinking
    config = _with_unknown(request, "output_config", OUTPUT_CONFIG)
    if effort is not None:
        config["effort"] = effort
    shape = _write_format(settings, facts, ledger)
    if shape is not None:
        config["format"] = shape
    if config:
        out["output_config"] = config
    budgeted = thinking is not None and thinking.get("type") == "enabled"
    _write_sampling(request, facts, budgeted, out, ledger)
    if settings.stop is not None:
        _write_stop(request, out, ledger)
    metadata = _with_unknown(request, "metadata", METADATA)
    if settings.user is not None:
        metadata["user_id"] = settings.user
    if metadata:
        out["metadata"] = metadata
    _write_tier(request, out, ledger)
    ledger.unsaid(settings, set_fields(settings), SAID)


def _with_unknown(request: Request, key: str, known: frozenset[str]) -> Object:
    """The unknown keys of an object of this wire, to be given back."""
    origin = request.origin
    node = origin.wire.get(key) if origin is not None and is_own(origin) else None
    return {name: value for name, value in (node or {}).items() if name not in known}


def _write_format(settings: Settings, facts: Family, ledger: Ledger) -> Object | None:
    shape = settings.format
    if shape is None or shape.kind == "text":
        return None
    where = settings.where.get("format")
    if shape.kind == "json" or shape.schema is None:
        ledger.note("no-counterpart", where, "the wish for JSON without a schema was left out")
        return None
    if facts is AS_GIVEN and shape.origin is not None and verbatim(shape.origin, NAME):
        wire: Object = shape.origin.wire
        return wire
    if not facts.formats and facts is not AS_GIVEN:
        ledger.note("no-counterpart", where, "the schema of the answer was left out", "this model takes none")
        return None
    if shape.name or shape.description or shape.strict is not None:
        ledger.note("format-mapped", where, "the schema goes without its name, description and strictness")
    schema = shape.schema
    if facts is not AS_GIVEN:
        schema, hindrance = enforceable(schema, where, "the answer", ledger)
        if hindrance:
            ledger.note("no-counterpart", where, "the schema of the answer was left out", hindrance)
            return None
    return finished({"type": "json_schema", "schema": schema}, shape.origin, NAME)


def _write_sampling(request: Request, facts: Family, budgeted: bool, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    given: dict[str, Number] = {
        field: value for field in ("temperature", "top_p", "top_k") if (value := getattr(settings, field)) is not None
    }
    if facts is AS_GIVEN:
        out |= given
        return
    for field, value in given.items():
        why = _refused_sampling(field, value, given, facts, budgeted)
        where = settings.where.get(field)
        if why:
            ledger.note("no-counterpart", where, f"`{field}` was left out", why)
        elif field == "temperature" and as_float(value) > 1:
            ledger.note("setting-clamped", where, "the temperature became 1")
            out[field] = 1
        else:
            out[field] = value


def _refused_sampling(field: str, value: Number, given: Mapping[str, Number], facts: Family, budgeted: bool) -> str:
    if not facts.sampling:
        return "this model refuses it"
    if budgeted and (field == "top_k" or as_float(value) < (1 if field == "temperature" else 0.95)):
        return "it is refused beside thinking"
    if field == "top_p" and "temperature" in given and facts.one_sampling:
        return "this model refuses it beside a temperature"
    return ""


def _write_stop(request: Request, out: Object, ledger: Ledger) -> None:
    given = request.settings.stop or ()
    kept = [text for text in given if text.strip() or not is_foreign(request.origin)]
    if len(kept) < len(given):
        where = request.settings.where.get("stop")
        ledger.note("no-counterpart", where, "stop sequences of white space alone were left out")
    if kept or not given:
        out["stop_sequences"] = kept


def _write_tier(request: Request, out: Object, ledger: Ledger) -> None:
    tier = request.settings.tier
    if tier is None:
        return
    word = WIRE_TIERS.get(tier, None if is_foreign(request.origin) else tier)
    if word is None:
        ledger.note("no-counterpart", request.settings.where.get("tier"), f"the service tier `{tier}` was left out")
    else:
        out["service_tier"] = word
