"""Requests: the system prompt, the turns, the settings and thinking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from msgspec.structs import replace

from toolwire.core.ir import (
    NO_SETTINGS,
    Call,
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Request,
    Result,
    Settings,
    Text,
    Thinking,
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
from toolwire.core.known_tools import write_known_tools
from toolwire.core.losses import OFF, Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, items_with_paths, present_settings, restore_original_keys
from toolwire.core.response_format import ONLY_JSON_INSTRUCTION, schema_instruction
from toolwire.core.tokens import budget_for_effort, effort_for_budget, nearest_effort
from toolwire.core.tool_choice import list_called_names
from toolwire.protocols.anthropic import names
from toolwire.protocols.anthropic.content import collapse_single_text, read_content, write_content, write_parts
from toolwire.protocols.anthropic.models import (
    AS_GIVEN,
    UNKNOWN_FAMILY,
    Family,
    family,
    place_breakpoints,
    read_cache,
    write_cache,
)
from toolwire.protocols.anthropic.names import NAME, intact_wire, is_foreign, is_own, is_own_seal, unknown_keys
from toolwire.protocols.anthropic.tools import (
    NO_PARAMETERS,
    disown_unsealed_parts,
    drop_unused_servers,
    make_strict_schema,
    read_tool_choice,
    read_tools,
    select_allowed_tools,
    write_tool_choice,
    write_tools,
)
from toolwire.schema.standard import convert_to_standard

CONTINUE_TEXT = "Continue."
MEDIA_LEFT_OUT = "[Media that cannot be sent were left out.]"

SUPPORTED_SETTINGS = frozenset(
    "max_tokens temperature top_p top_k stop parallel thinking format user tier cache stream_usage".split()
)
"""The settings that Anthropic has. Its streams always report the usage."""

_SETTING_KEYS = {
    "stop": "stop_sequences",
    "parallel": "tool_choice",
    "user": "metadata",
    "tier": "service_tier",
    "cache": "cache_control",
}
"""The keys of settings that are called differently here; `format` has two."""
_MAX_TOKENS_PLACE: Mapping[str, Path] = {"max_tokens": (None, "max_tokens")}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = ReadContext(NAME)
    choice, parallel = read_tool_choice(body, reading)
    turns, intact = read_turns(body, reading)
    system, tools = _read_system(body, reading), read_tools(body, reading)
    settings = _read_settings(body, parallel, reading)
    origin = reading.read_origin(body, None, names.REQUEST_KEYS)
    thread = body.get("thread")
    return Request(
        get_text(body, "model", None) or "",
        system,
        turns,
        tools,
        choice,
        get_bool(body, "stream", None),
        settings,
        isinstance(thread, dict) and thread.get("type") == "continue",
        origin if intact else replace(origin, intact=False),
        tuple(reading.unknown_fields),
    )


def _read_system(body: Object, reading: ReadContext) -> tuple[Part, ...]:
    system = body.get("system")
    if system is None:
        return ()
    parts = read_content(system, (None, "system"), reading)
    first = parts[0] if parts and isinstance(system, list) else None
    if type(first) is Text and first.origin and first.text.startswith(names.BILLING_HEADER_PREFIX):
        # It changes with every call, which would defeat the prompt caches of other providers.
        return (Opaque("billing-header", first.origin), *parts[1:])
    return parts


def _read_settings(body: Object, parallel: bool | None, reading: ReadContext) -> Settings:
    if parallel is None and names.STRUCTURE_KEYS.issuperset(body):
        limit = get_int(body, "max_tokens", None)
        return NO_SETTINGS if limit is None else Settings(limit, where=_MAX_TOKENS_PLACE)
    config = _take_known_object(body, "output_config", names.OUTPUT_CONFIG_KEYS, reading)
    metadata = _take_known_object(body, "metadata", names.METADATA_KEYS, reading)
    tier = get_text(body, "service_tier", None)
    stop = get_list(body, "stop_sequences", None)
    values: dict[str, Any] = {
        "max_tokens": get_int(body, "max_tokens", None),
        "temperature": get_number(body, "temperature", None),
        "top_p": get_number(body, "top_p", None),
        "top_k": get_number(body, "top_k", None),
        "stop": None
        if stop is None
        else tuple(expect_text(text, here) for text, here in items_with_paths(stop, (None, "stop_sequences"))),
        "parallel": parallel,
        "thinking": read_reasoning_settings(body, get_text(config, "effort", (None, "output_config")), reading),
        "format": (found := _read_response_format(body, config, reading))[0],
        "user": get_text(metadata, "user_id", (None, "metadata")),
        "tier": None if tier is None else names.SERVICE_TIERS.get(tier, tier),
        "cache": read_cache(body, None, reading),
    }
    given = {field: value for field, value in values.items() if value is not None}
    keys = _SETTING_KEYS | {"format": found[1]}
    where: dict[str, Path] = {field: (None, keys.get(field, field)) for field in given}
    if "thinking" in given and config.get("effort") is not None:
        effort_path = ((None, "output_config"), "effort")
        is_alone = body.get("thinking") is None
        where["thinking"] = (None, "output_config") if is_alone else Paths(((None, "thinking"), effort_path))
    return Settings(**given, where=where)


def _take_known_object(body: Object, key: str, known: frozenset[str], reading: ReadContext) -> Object:
    """An object of the body. Its unknown keys are noted here and written back with `unknown_keys`."""
    node = get_object(body, key, None) or {}
    reading.read_origin(node, (None, key), known)
    return node


def _read_response_format(body: Object, config: Object, reading: ReadContext) -> tuple[Format | None, str]:
    """The schema of the answer, and the key of the body that holds it: the beta had `output_format`."""
    key = "output_config"
    path: Path = ((None, key), "format")
    node = get_object(config, "format", (None, key))
    if node is None:
        key, path = "output_format", (None, "output_format")
        node = get_object(body, key, None)
    if node is None:
        return None, key
    if node.get("type") != "json_schema":
        reading.note_unknown_field(path, "type")
        return None, key
    origin = reading.read_origin(node, path, names.FORMAT_KEYS)
    return Format("schema", get_object(node, "schema", path), origin=origin), key


# --- writing ----------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    if (wire := intact_wire(origin)) is not None and not _has_refused_thinking(request):
        return wire
    own = origin if is_own(origin) else None
    facts = _model_family(request, own)
    out: Object = {"model": request.model, "max_tokens": _write_max_tokens(request, facts, ledger)}
    system = _write_system(request, own, ledger)
    if system or _was_empty(own, "system"):
        out["system"] = system
    out["messages"] = write_turns(request.turns, ledger)
    if origin is not None and own is None and request.turns and not request.continues_last_turn:
        _begin_with_user(out["messages"], ledger)
        _end_with_user(out["messages"], facts, ledger)
    _write_tools_and_choice(request, facts, own, out, ledger)
    if own is not None or (request.settings is not NO_SETTINGS and _has_more_settings(request.settings)):
        _write_settings(request, facts, out, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    cache = request.settings.cache
    if cache is not None and cache != OFF:
        write_cache(out, cache, ledger, request.settings.where.get("cache"))
    if own is not None:
        return drop_unused_servers(restore_original_keys(out, own, NAME), own)
    return out if origin is None else place_breakpoints(out, cache is None, facts is not UNKNOWN_FAMILY, ledger)


def _model_family(request: Request, own: Origin | None) -> Family:
    """What the model can do. A client of Anthropic knows its model, unless the request goes to another one."""
    if own is None and request.origin is not None:
        return family(request.model)
    is_other_model = own is not None and isinstance(own.wire, dict) and own.wire.get("model") != request.model
    facts = family(request.model) if is_other_model else AS_GIVEN
    return AS_GIVEN if facts is UNKNOWN_FAMILY else facts


def _write_tools_and_choice(request: Request, facts: Family, own: Origin | None, out: Object, ledger: Ledger) -> None:
    offered = select_allowed_tools(request, facts, ledger)
    if own is None:
        tools = write_known_tools(write_tools, offered, ledger)
    else:
        tools = write_tools(offered, ledger, own.wire.get("tools"))
    choice = write_tool_choice(request, facts, bool(tools), ledger)
    if not tools and (called := list_called_names(request)):
        tools, choice = _declare_called_tools(called, ledger), {"type": "none"}
    if tools or _was_empty(own, "tools"):
        out["tools"] = tools
    if choice is not None:
        out["tool_choice"] = choice


def _declare_called_tools(called: list[str], ledger: Ledger) -> list[Object]:
    """Anthropic refuses calls in the conversation when no tools are declared. Agents leave all tools out when they want
    a summary of it, so the tools that were called are declared, and calls are forbidden."""
    what = f"{len(called)} tools that were called before are declared, and calls are forbidden"
    ledger.note("tools-added", None, what)
    return [{"name": name, "input_schema": dict(NO_PARAMETERS)} for name in called]


def _was_empty(own: Origin | None, key: str) -> bool:
    """Did the client send an empty value? Then it is written back."""
    return own is not None and own.wire.get(key) in ("", [])


def _has_more_settings(settings: Settings) -> bool:
    """Is anything set that `_write_settings` writes or reports as lost?"""
    return settings != Settings(
        settings.max_tokens,
        parallel=settings.parallel,
        cache=settings.cache,
        stream_usage=settings.stream_usage,
        where=settings.where,
    )


def _write_system(request: Request, own: Origin | None, ledger: Ledger) -> str | list[Object]:
    if own is None:
        return write_content(request.system, None, ledger) or ""
    blocks = write_parts(request.system, ledger, False)
    return blocks if isinstance(own.wire.get("system"), list) else collapse_single_text(blocks) or ""


def _begin_with_user(messages: list[Object], ledger: Ledger) -> None:
    """Add a user's turn where nothing is left of the first one."""
    if not messages or messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": CONTINUE_TEXT})
        ledger.note("turn-added", None, f"a user turn `{CONTINUE_TEXT}` was added at the start")


def _end_with_user(messages: list[Object], facts: Family, ledger: Ledger) -> None:
    """Newer models refuse an assistant turn at the end; older ones continue it, unless it ends with white space."""
    if not messages or messages[-1]["role"] != "assistant":
        return
    content = messages[-1]["content"]
    if not facts.prefill:
        messages.append({"role": "user", "content": CONTINUE_TEXT})
        ledger.note("turn-added", None, f"a user turn `{CONTINUE_TEXT}` was added at the end")
        return
    if (content if isinstance(content, str) else content[-1].get("text") or "")[-1:].isspace():
        what = "white space at the end of the last turn was left out"
        ledger.note("empty-omitted", None, what, "Anthropic refuses it there")
    if isinstance(content, str):
        messages[-1]["content"] = content.rstrip()
    elif content[-1]["type"] == "text":
        content[-1]["text"] = content[-1]["text"].rstrip()


def _write_max_tokens(request: Request, facts: Family, ledger: Ledger) -> int:
    """`max_tokens`, which Anthropic requires: a default if there is none, clamped to what the model allows."""
    limit = request.settings.max_tokens
    where = request.settings.where.get("max_tokens")
    if limit is None:
        limit = facts.default_tokens or family(request.model).default_tokens
        ledger.note("max-tokens-added", where, f"`max_tokens` was set to {limit}")
    elif facts.max_tokens and limit > facts.max_tokens:
        ledger.note("setting-clamped", where, f"the limit of {limit} tokens became {facts.max_tokens}")
        return facts.max_tokens
    return limit


def _write_settings(request: Request, facts: Family, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    forced = out.get("tool_choice", {}).get("type") in ("any", "tool")
    thinking, effort = write_reasoning_settings(request, facts, out["max_tokens"], forced, ledger)
    if thinking is not None:
        out["thinking"] = thinking
    config = unknown_keys(request.origin, "output_config", names.OUTPUT_CONFIG_KEYS)
    if effort is not None:
        config["effort"] = effort
    response_format = _write_response_format(settings, facts, out, ledger)
    if response_format is not None:
        config["format"] = response_format
    if config:
        out["output_config"] = config
    budgeted = thinking is not None and thinking.get("type") == "enabled"
    _write_sampling(request, facts, budgeted, out, ledger)
    if settings.stop is not None:
        _write_stop_sequences(request, out, ledger)
    metadata = unknown_keys(request.origin, "metadata", names.METADATA_KEYS)
    if settings.user is not None:
        metadata["user_id"] = settings.user
    if metadata:
        out["metadata"] = metadata
    _write_service_tier(request, out, ledger)
    ledger.note_unwritten_settings(settings, present_settings(settings), SUPPORTED_SETTINGS)


def _write_response_format(settings: Settings, facts: Family, out: Object, ledger: Ledger) -> Object | None:
    """The format of the answer. One that Anthropic cannot enforce becomes an instruction at the end of the system
    prompt: the client waits for JSON, and would get prose without a word about it."""
    asked = settings.format
    if asked is None or asked.kind == "text":
        return None
    where = settings.where.get("format")
    if asked.kind == "json" or asked.schema is None:
        _add_instruction(ONLY_JSON_INSTRUCTION, out)
        ledger.note("format-mapped", where, "JSON mode became an instruction", "Anthropic needs a schema for it")
        return None
    if facts is AS_GIVEN and (wire := intact_wire(asked.origin)) is not None:
        return wire
    if asked.name or asked.description or asked.strict is not None:
        ledger.note("format-mapped", where, "the name, description and strictness of the schema were left out")
    schema, problem = asked.schema, "" if facts.formats else "this model accepts no schema"
    if facts is not AS_GIVEN and not problem:
        schema, problem = make_strict_schema(schema, where, "the answer", ledger)
    if problem:
        _add_instruction(schema_instruction(convert_to_standard(schema).schema), out)
        ledger.note("format-mapped", where, "the schema of the answer became an instruction", problem)
        return None
    return restore_original_keys({"type": "json_schema", "schema": schema}, asked.origin, NAME)


def _add_instruction(text: str, out: Object) -> None:
    system = out.get("system")
    if isinstance(system, list):
        out["system"] = [*system, {"type": "text", "text": text}]
    else:
        out["system"] = f"{system}\n\n{text}" if system else text


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
        return "Anthropic refuses it together with thinking"
    if field == "top_p" and "temperature" in given and facts.one_sampling:
        return "this model refuses it together with a temperature"
    return ""


def _write_stop_sequences(request: Request, out: Object, ledger: Ledger) -> None:
    asked = request.settings.stop or ()
    accepted = [text for text in asked if text.strip() or not is_foreign(request.origin)]
    if len(accepted) < len(asked):
        where = request.settings.where.get("stop")
        ledger.note("no-counterpart", where, "stop sequences of only white space were left out")
    if accepted or not asked:
        out["stop_sequences"] = accepted


def _write_service_tier(request: Request, out: Object, ledger: Ledger) -> None:
    tier = request.settings.tier
    if tier is None:
        return
    word = names.WIRE_SERVICE_TIERS.get(tier, None if is_foreign(request.origin) else tier)
    if word is None:
        ledger.note("no-counterpart", request.settings.where.get("tier"), f"the service tier `{tier}` was left out")
    else:
        out["service_tier"] = word


# --- turns ------------------------------------------------------------------------------------------------------------


def read_turns(body: Object, reading: ReadContext) -> tuple[tuple[Turn, ...], bool]:
    """The turns, and whether all can be written back verbatim: see `disown_unsealed_parts` and `_is_repaired`."""
    messages = get_list(body, "messages", None)
    if messages is None:
        raise Malformed(None, "`messages` is missing")
    root = (None, "messages")
    turns: list[Turn] = []
    intact = True
    for number, node in enumerate(messages):
        path = (root, number)
        try:
            role, content = names.ROLES[node["role"]], node["content"]
        except (KeyError, TypeError):
            _refuse_turn(node, path)
        at = (path, "content")
        if content.__class__ is str and content:
            parts: tuple[Part, ...] = (Text(content, (), None, None, Origin(NAME, at, content)),)
        else:
            parts = read_content(content, at, reading)
        origin = Origin(NAME, path, node) if len(node) == 2 else reading.read_origin(node, path, names.TURN_KEYS)
        if role == "assistant" and (disowned := disown_unsealed_parts(parts)) is not None:
            parts, origin, intact = disowned, replace(origin, intact=False), False
        elif role == "assistant" and any(type(part) is Call and _is_repaired(part.origin) for part in parts):
            origin, intact = replace(origin, intact=False), False
        turns.append(Turn(role, parts, "", "", origin))
    return tuple(turns), intact


def _is_repaired(origin: Origin | None) -> bool:
    """Did the reader take something that Anthropic refuses, such as arguments that are not an object?"""
    return origin is not None and not origin.intact


def _refuse_turn(message: Json, path: Path) -> NoReturn:
    node = expect_object(message, path)
    word = require_text(node, "role", path)
    if word not in names.ROLES:
        raise Malformed((path, "role"), f"expected one of {', '.join(names.ROLES)}, got `{word}`")
    raise Malformed(path, "`content` is missing")


def write_turns(turns: tuple[Turn, ...], ledger: Ledger) -> list[Object]:
    """The messages. A turn without content gives none, because Anthropic refuses empty messages."""
    messages: list[Object] = []
    for turn in turns:
        own = turn.origin if is_own(turn.origin) else None
        if own is not None and own.intact:
            messages.append(own.wire)
            continue
        if turn.name or turn.phase:
            ledger.note_turn_fields(turn)
        parts = turn.parts
        if own is None and turn.role == "assistant" and Media in map(type, parts):
            parts = ledger.drop_media(turn)
        content = write_content(parts, own, ledger)
        if not content and own is None and turn.role == "user" and Media in map(type, parts):
            # Without the turn the roles of its neighbours would be wrong.
            content = MEDIA_LEFT_OUT
            ledger.note("turn-added", source_path(turn), "a line of text stands for the media of a user turn")
        if content:
            message: Object = {"role": names.WIRE_ROLES[turn.role], "content": content}
            messages.append(message if own is None else restore_original_keys(message, own, NAME))
    return messages


# --- Thinking settings: `thinking` (off, a budget, or adaptive) and `output_config.effort` ---


ReasoningSettings: TypeAlias = tuple[Object | None, str | None]
"""`thinking`, and the effort in `output_config`."""

MIN_BUDGET = 1024

_THINKING_MODES: Mapping[str, Literal["", "off", "on", "auto"]] = {
    "adaptive": "auto",
    "enabled": "on",
    "disabled": "off",
    "between_tools": "off",
}
_WIRE_THINKING_MODES = names.invert_table(_THINKING_MODES)


def read_reasoning_settings(body: Object, effort: str | None, reading: ReadContext) -> Thinking | None:
    wire = get_object(body, "thinking", None)
    path: Path = (None, "thinking")
    if wire is None:
        return Thinking(effort=effort, origin=reading.whole_origin(None, path)) if effort else None
    kind = get_text(wire, "type", path) or ""
    if kind not in _THINKING_MODES:
        reading.note_unknown_field(path, "type")
    display = get_text(wire, "display", path) or ""
    return Thinking(
        _THINKING_MODES.get(kind, ""),
        effort or "",
        get_int(wire, "budget_tokens", path),
        names.THINKING_DISPLAYS.get(display, display),
        reading.read_origin(wire, path, names.THINKING_KEYS),
    )


def write_reasoning_settings(
    request: Request, facts: Family, max_tokens: int, forced: bool, ledger: Ledger
) -> ReasoningSettings:
    """`thinking` and the effort, as the model's family accepts them."""
    thinking = request.settings.thinking
    if thinking is None:
        return None, None
    where = request.settings.where.get("thinking")
    if facts.thinking == "given" and not _has_refused_thinking(request):
        return _write_as_given(thinking, where, ledger), thinking.effort or None
    if facts.thinking == "given":
        facts = family(request.model)
        what = f"thinking of type `{_WIRE_THINKING_MODES.get(thinking.mode, '')}` was fitted to the model"
        ledger.note("thinking-mapped", where, what, "this model refuses that type")
    if not facts.thinking:
        if not _is_off(thinking):
            ledger.note("no-counterpart", where, "the thinking setting was left out", "this model does not think")
        return None, None
    if _is_off(thinking):
        return _write_off(thinking, facts, where, ledger)
    if facts.thinking != "budget" and not (facts.thinking == "either" and (thinking.budget or 0) > 0):
        return _write_adaptive(thinking, facts, where, ledger)
    why = _budget_obstacle(request, max_tokens, forced)
    if why:
        ledger.note("thinking-mapped", where, "thinking was switched off", why)
        return None, None
    out: Object = {"type": "enabled", "budget_tokens": _write_budget(thinking, max_tokens, where, ledger)}
    return restore_original_keys(_add_display(out, thinking, where, ledger), thinking.origin, NAME), None


_ACCEPTED_BY: Mapping[str, frozenset[str]] = {
    "enabled": frozenset({"budget", "either"}),
    "adaptive": frozenset({"adaptive", "either"}),
}
"""What a model's family must accept (`Family.thinking`) for each `thinking.type`."""


def _has_refused_thinking(request: Request) -> bool:
    """Does Anthropic's own client ask for thinking in a way that this model is known to refuse? Older agents send a
    budget to models that only think adaptively."""
    thinking = request.settings.thinking
    wire = thinking.origin.wire if thinking is not None and is_own(thinking.origin) else None
    kind = wire.get("type") if isinstance(wire, dict) else None
    facts = family(request.model)
    if facts is UNKNOWN_FAMILY or kind is None:
        return False
    if kind in _ACCEPTED_BY:
        return facts.thinking not in _ACCEPTED_BY[kind]
    return kind == "disabled" and bool(facts.thinking) and facts.off != "disabled"


def _write_as_given(thinking: Thinking, where: Path, ledger: Ledger) -> Object | None:
    if thinking.origin is not None and is_verbatim(thinking.origin, NAME):
        wire: Object | None = thinking.origin.wire
        return wire
    if thinking.budget is not None:
        out: Object = {"type": "enabled", "budget_tokens": thinking.budget}
    elif mode := _WIRE_THINKING_MODES.get(thinking.mode):
        out = {"type": mode}
    else:
        return None
    return restore_original_keys(_add_display(out, thinking, where, ledger), thinking.origin, NAME)


def _is_off(thinking: Thinking) -> bool:
    return thinking.mode == "off" or thinking.effort == "none" or (thinking.budget == 0 and not thinking.effort)


def _write_off(thinking: Thinking, facts: Family, where: Path, ledger: Ledger) -> ReasoningSettings:
    if facts.off != "disabled":
        instead = facts.off or "the lowest effort"
        ledger.note("thinking-mapped", where, f"switched-off thinking became {instead}", "this model always thinks")
        return ({"type": facts.off}, None) if facts.off else (None, facts.efforts[0])
    effort: str | None = None
    if thinking.effort not in ("", "none") and facts.efforts:
        effort = nearest_effort(thinking.effort, tuple(one for one in facts.efforts if one in facts.off_efforts))
    return {"type": "disabled"}, effort


def _write_adaptive(thinking: Thinking, facts: Family, where: Path, ledger: Ledger) -> ReasoningSettings:
    asked = thinking.effort
    if thinking.budget is not None and thinking.budget > 0 and not asked:
        asked = effort_for_budget(thinking.budget)
        effort: str | None = nearest_effort(asked, facts.efforts)
        ledger.note("thinking-mapped", where, f"a budget of {thinking.budget} tokens became the effort `{effort}`")
    else:
        effort = nearest_effort(asked, facts.efforts) if asked else None
        if effort != (asked or None):
            ledger.note("thinking-mapped", where, f"the effort `{asked}` became `{effort}`")
    if not thinking.mode and not thinking.summary and thinking.budget is None and facts.thinks_unasked:
        return None, effort
    if not thinking.mode and thinking.budget is None:
        ledger.note("thinking-mapped", where, f"thinking was switched on for the effort `{effort}`")
    out = _add_display({"type": "adaptive"}, thinking, where, ledger)
    return restore_original_keys(out, thinking.origin, NAME), effort


def _add_display(out: Object, thinking: Thinking, where: Path, ledger: Ledger) -> Object:
    if thinking.summary:
        display = names.WIRE_THINKING_DISPLAYS.get(thinking.summary)
        if display is None:
            display = "summarized"
            ledger.note("thinking-mapped", where, f"the summary `{thinking.summary}` became `{display}`")
        out["display"] = display
    return out


def _write_budget(thinking: Thinking, max_tokens: int, where: Path, ledger: Ledger) -> int:
    """The budget in tokens. Gemini's negative budget leaves it to the model."""
    budget = thinking.budget or 0
    if budget <= 0:
        budget = budget_for_effort(thinking.effort or "medium")
        what = f"`{thinking.effort or thinking.mode}` became a budget of {budget} tokens"
        ledger.note("thinking-mapped", where, what)
    accepted = max(budget, MIN_BUDGET)
    if accepted >= max_tokens:
        # Half for thinking and half for the answer: with less the answer would be cut off.
        accepted = max(MIN_BUDGET, max_tokens // 2)
    if accepted != budget:
        ledger.note("setting-clamped", where, f"the budget of {budget} tokens became {accepted}")
    return accepted


def _budget_obstacle(request: Request, max_tokens: int, forced: bool) -> str:
    """Why Anthropic would refuse a thinking budget; "" if it would not."""
    if forced:
        return "Anthropic refuses it together with a forced call"
    if max_tokens <= MIN_BUDGET:
        return f"the limit of {max_tokens} tokens is too low for it"
    if _has_calls_without_reasoning(request):
        return "the turn with the calls does not begin with thinking that Anthropic signed"
    return ""


def _has_calls_without_reasoning(request: Request) -> bool:
    for turn in reversed(request.turns):
        if turn.role == "assistant":
            first = turn.parts[0] if turn.parts else None
            signed = isinstance(first, Reasoning) and is_own_seal(first.seal)
            return not signed and any(isinstance(part, Call) for part in turn.parts)
        if not any(isinstance(part, Result) for part in turn.parts):
            return False
    return False
