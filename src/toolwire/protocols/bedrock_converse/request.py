"""Requests: the system prompt, the turns and the settings. The model and whether it streams are in the path."""

from __future__ import annotations

from typing import Any, NoReturn

from msgspec.structs import replace

from toolwire.core.ir import (
    NO_SETTINGS,
    Call,
    Format,
    Media,
    Origin,
    Request,
    Settings,
    Turn,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Number,
    Object,
    Path,
    decode_object_or_none,
    encode_text,
    expect_object,
    expect_text,
    get_int,
    get_list,
    get_number,
    get_object,
    get_text,
    require_text,
    to_float,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, present_settings, restore_original_keys
from toolwire.core.response_format import ONLY_JSON_INSTRUCTION
from toolwire.protocols.bedrock_converse import names
from toolwire.protocols.bedrock_converse.cache_points import place_cache_points
from toolwire.protocols.bedrock_converse.content import Writing, read_content, write_content
from toolwire.protocols.bedrock_converse.models import UNKNOWN, Family, family
from toolwire.protocols.bedrock_converse.names import NAME, intact_wire, is_own, unknown_keys
from toolwire.protocols.bedrock_converse.thinking import MODEL_FIELDS_PATH, read_thinking, write_thinking
from toolwire.protocols.bedrock_converse.tools import read_tool_config, write_tool_config

CONTINUE_TEXT = "Continue."
MEDIA_LEFT_OUT = "[Media that cannot be sent were left out.]"
BESIDE_DOCUMENT = "See the document."
SUPPORTED_SETTINGS = frozenset(
    "max_tokens temperature top_p top_k stop thinking format metadata tier stream_usage cache parallel".split()
)
"""The settings that Converse has. Its streams always report the usage."""

_INFERENCE: Path = (None, "inferenceConfig")

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = ReadContext(NAME)
    tools, choice = read_tool_config(body, reading)
    turns = _read_turns(body, reading)
    system = body.get("system")
    parts = () if system is None else read_content(system, (None, "system"), reading)
    settings = _read_settings(body, reading)
    origin = reading.read_origin(body, None, names.REQUEST_KEYS)
    has_changed_turn = any(turn.origin is not None and not turn.origin.intact for turn in turns)
    return Request(
        "",
        parts,
        turns,
        tools,
        choice,
        None,
        settings,
        body.get("promptVariables") is not None,  # the prompt is stored, and has turns of its own
        replace(origin, intact=False) if has_changed_turn else origin,
        tuple(reading.unknown_fields),
    )


def _read_turns(body: Object, reading: ReadContext) -> tuple[Turn, ...]:
    messages = get_list(body, "messages", None)
    if messages is None:
        if body.get("promptVariables") is not None:
            return ()
        raise Malformed(None, "`messages` is missing")
    turns: list[Turn] = []
    for node, path in items_with_paths(messages, (None, "messages")):
        message = expect_object(node, path)
        word = require_text(message, "role", path)
        role = names.ROLES.get(word)
        if role is None:
            _refuse_role(word, path)
        parts = read_content(message.get("content"), (path, "content"), reading)
        origin = reading.read_origin(message, path, names.TURN_KEYS)
        if any(type(part) is Call and part.origin is not None and not part.origin.intact for part in parts):
            origin = replace(origin, intact=False)
        turns.append(Turn(role, parts, origin=origin))
    return tuple(turns)


def _refuse_role(word: str, path: Path) -> NoReturn:
    raise Malformed((path, "role"), f"expected one of {', '.join(names.ROLES)}, got `{word}`")


def _read_settings(body: Object, reading: ReadContext) -> Settings:
    config = get_object(body, "inferenceConfig", None) or {}
    reading.read_origin(config, _INFERENCE, names.INFERENCE_KEYS)
    stop = get_list(config, "stopSequences", _INFERENCE)
    fields = get_object(body, "additionalModelRequestFields", None) or {}
    output = get_object(body, "outputConfig", None) or {}
    reading.read_origin(output, (None, "outputConfig"), names.OUTPUT_CONFIG_KEYS)
    thinking, top_k, known = read_thinking(fields, get_text(output, "effort", (None, "outputConfig")), reading)
    reading.read_origin(fields, MODEL_FIELDS_PATH, known)
    tier = get_object(body, "serviceTier", None) or {}
    reading.read_origin(tier, (None, "serviceTier"), names.TIER_KEYS)
    paths = body.get("additionalModelResponseFieldPaths")
    if paths and paths != [STOP_SEQUENCE_PATH]:
        reading.note_unknown_field(None, "additionalModelResponseFieldPaths")
    values: dict[str, tuple[Any, Path]] = {
        "max_tokens": (get_int(config, "maxTokens", _INFERENCE), (_INFERENCE, "maxTokens")),
        "temperature": (get_number(config, "temperature", _INFERENCE), (_INFERENCE, "temperature")),
        "top_p": (get_number(config, "topP", _INFERENCE), (_INFERENCE, "topP")),
        "top_k": (top_k, MODEL_FIELDS_PATH),
        "stop": (_read_stop(stop), (_INFERENCE, "stopSequences")),
        "thinking": (thinking, None if thinking is None else source_path(thinking)),
        "format": (_read_format(output, reading), ((None, "outputConfig"), "textFormat")),
        "metadata": (get_object(body, "requestMetadata", None), (None, "requestMetadata")),
        "tier": (get_text(tier, "type", (None, "serviceTier")), (None, "serviceTier")),
        "parallel": _read_parallel(fields),
    }
    given = {field: value for field, (value, _) in values.items() if value is not None}
    return Settings(**given, where={field: values[field][1] for field in given}) if given else NO_SETTINGS


STOP_SEQUENCE_PATH = "/stop_sequence"
"""What Claude says of the stop sequence that was met, in `additionalModelResponseFields`."""


def _read_stop(stop: list[Json] | None) -> tuple[str, ...] | None:
    if stop is None:
        return None
    return tuple(expect_text(text, here) for text, here in items_with_paths(stop, (_INFERENCE, "stopSequences")))


def _read_parallel(fields: Object) -> tuple[bool | None, Path]:
    """Claude's own choice has the flag, since Converse has none."""
    choice = fields.get("tool_choice")
    disabled = choice.get("disable_parallel_tool_use") if isinstance(choice, dict) else None
    return (None if not isinstance(disabled, bool) else not disabled), (MODEL_FIELDS_PATH, "tool_choice")


def _read_format(output: Object, reading: ReadContext) -> Format | None:
    """The schema of the answer, which is a text with JSON."""
    path: Path = ((None, "outputConfig"), "textFormat")
    node = get_object(output, "textFormat", (None, "outputConfig"))
    if node is None:
        return None
    at: Path = ((path, "structure"), "jsonSchema")
    structure = get_object(node, "structure", path) or {}
    inner = get_object(structure, "jsonSchema", (path, "structure"))
    if node.get("type") != "json_schema" or inner is None:
        reading.note_unknown_field(path, "type")
        return None
    reading.read_origin(inner, at, names.JSON_SCHEMA_KEYS)
    schema = decode_object_or_none(require_text(inner, "schema", at))
    if schema is None:
        raise Malformed((at, "schema"), "expected a JSON Schema as a string with a JSON object")
    origin = reading.read_origin(node, path, names.TEXT_FORMAT_KEYS)
    name, description = get_text(inner, "name", at) or "", get_text(inner, "description", at) or ""
    return Format("schema", schema, name, description, origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    if (wire := intact_wire(origin)) is not None:
        return wire
    own = origin if is_own(origin) else None
    # A client of the protocol knows its model.
    facts = UNKNOWN if own is not None else family(request.model)
    writing = Writing(ledger, facts)
    out: Object = {"messages": _write_turns(request, own, writing)}
    system = write_content(request.system, writing)
    if system or (own is not None and own.wire.get("system") == []):
        out["system"] = system
    if origin is not None and own is None and request.turns:
        out["messages"] = _join_neighbours(out["messages"], ledger)
        _fit_ends(out["messages"], facts, ledger)
    tools = write_tool_config(request, facts, own, ledger)
    if tools.config is not None:
        out["toolConfig"] = tools.config
    _write_settings(request, facts, own, out, ledger)
    if tools.model_choice is not None:
        out.setdefault("additionalModelRequestFields", {})["tool_choice"] = tools.model_choice
    if own is not None:
        return restore_original_keys(out, own, NAME)
    return out if origin is None else place_cache_points(out, request, writing)


def _join_neighbours(messages: list[Object], ledger: Ledger) -> list[Object]:
    """Roles alternate: where nothing is left of a turn, those around it become one."""
    joined: list[Object] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {"role": message["role"], "content": [*joined[-1]["content"], *message["content"]]}
            ledger.note("turns-joined", None, "two messages became one: nothing is left of the one between them")
        else:
            joined.append(message)
    return joined


def _fit_ends(messages: list[Object], facts: Family, ledger: Ledger) -> None:
    """A conversation starts with the user, and newer models do not continue a turn of the assistant."""
    if not messages or messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": [{"text": CONTINUE_TEXT}]})
        ledger.note("turn-added", None, f"a user turn `{CONTINUE_TEXT}` was added at the start")
    last = messages[-1]
    if last["role"] != "assistant":
        return
    if not facts.prefill:
        messages.append({"role": "user", "content": [{"text": CONTINUE_TEXT}]})
        ledger.note("turn-added", None, f"a user turn `{CONTINUE_TEXT}` was added at the end")
    elif (text := last["content"][-1].get("text")) and text != text.rstrip():
        last["content"][-1] = {"text": text.rstrip()}
        ledger.note("empty-omitted", None, "white space at the end of the last turn was left out")


def _write_turns(request: Request, own: Origin | None, writing: Writing) -> list[Object]:
    """The messages. A turn without content gives none: empty messages are refused."""
    messages: list[Object] = []
    for turn in request.turns:
        origin = turn.origin if is_own(turn.origin) else None
        if origin is not None and origin.intact:
            messages.append(origin.wire)
            continue
        writing.ledger.note_turn_fields(turn)
        role = turn.role if origin is not None else names.WIRE_ROLES[turn.role]
        parts = turn.parts
        if origin is None and role == "assistant" and Media in map(type, parts):
            parts = writing.ledger.drop_media(turn)
        content = write_content(parts, writing)
        if origin is None and role == "user":
            content = _fit_user_content(turn, content, writing.ledger)
        if content:
            message: Object = {"role": role, "content": content}
            messages.append(message if origin is None else restore_original_keys(message, origin, NAME))
    return messages


def _fit_user_content(turn: Turn, content: list[Object], ledger: Ledger) -> list[Object]:
    """A document needs a text in its message, and a turn whose media were all left out still must be there."""
    if not content and Media in map(type, turn.parts):
        ledger.note("turn-added", source_path(turn), "a line of text stands for the media of a user turn")
        return [{"text": MEDIA_LEFT_OUT}]
    if any("document" in block for block in content) and not any("text" in block for block in content):
        what, why = "a line of text was added", "Converse refuses a document without text in its message"
        ledger.note("default-added", source_path(turn), what, why)
        after = next((number for number, block in enumerate(content) if "toolResult" not in block), len(content))
        return [*content[:after], {"text": BESIDE_DOCUMENT}, *content[after:]]
    return content


def _write_settings(request: Request, facts: Family, own: Origin | None, out: Object, ledger: Ledger) -> None:
    settings = request.settings
    fields = unknown_keys(own, "additionalModelRequestFields", names.MODEL_FIELDS)
    effort = write_thinking(request, facts, _forces_call(out), fields, out, ledger)
    config = unknown_keys(own, "inferenceConfig", names.INFERENCE_KEYS) | out.pop("inferenceConfig", {})
    _write_inference(request, facts, own, config, fields, ledger)
    if config:
        out["inferenceConfig"] = config
    output = unknown_keys(own, "outputConfig", names.OUTPUT_CONFIG_KEYS)
    text_format = _write_format(settings, out, ledger)
    if text_format is not None:
        output["textFormat"] = text_format
    if effort is not None:
        output["effort"] = effort
    if output:
        out["outputConfig"] = output
    if own is not None:
        kept = own.wire.get("additionalModelRequestFields") or {}
        fields |= {key: kept[key] for key in ("tool_choice", "inferenceConfig") if key in kept and key not in fields}
        paths = own.wire.get("additionalModelResponseFieldPaths")
        if paths is not None:
            out["additionalModelResponseFieldPaths"] = paths
    elif settings.stop and facts.vendor == "anthropic":
        out["additionalModelResponseFieldPaths"] = [STOP_SEQUENCE_PATH]
    if fields:
        out["additionalModelRequestFields"] = fields
    _write_metadata(settings, own, out, ledger)
    _write_tier(settings, own, out, ledger)
    ledger.note_unwritten_settings(settings, present_settings(settings), SUPPORTED_SETTINGS)


def _forces_call(out: Object) -> bool:
    config = out.get("toolConfig") or {}
    return not {"any", "tool"}.isdisjoint(config.get("toolChoice") or {})


MAX_STOP_SEQUENCES = 2500


def _write_inference(
    request: Request, facts: Family, own: Origin | None, config: Object, fields: Object, ledger: Ledger
) -> None:
    settings, where = request.settings, request.settings.where
    limit = settings.max_tokens
    if limit is not None:
        if own is None and facts.max_tokens and limit > facts.max_tokens:
            what = f"the limit of {limit} tokens became {facts.max_tokens}"
            ledger.note("setting-clamped", where.get("max_tokens"), what)
            limit = facts.max_tokens
        config.setdefault("maxTokens", limit)
    thinks = "thinking" in fields
    for field, key in (("temperature", "temperature"), ("top_p", "topP")):
        value: Number | None = getattr(settings, field)
        if value is None:
            continue
        why = "" if own is not None else _sampling_refusal(field, settings, facts, thinks)
        if why:
            ledger.note("no-counterpart", where.get(field), f"`{field}` was left out", why)
        elif own is None and to_float(value) > 1:
            ledger.note("setting-clamped", where.get(field), f"`{field}` became 1")
            config[key] = 1
        else:
            config[key] = value
    _write_top_k(settings, facts, own, thinks, fields, ledger)
    if settings.stop is not None:
        stop = [text for text in settings.stop if text.strip() or own is not None][:MAX_STOP_SEQUENCES]
        if len(stop) < len(settings.stop):
            ledger.note("no-counterpart", where.get("stop"), "empty stop sequences were left out")
        if stop or own is not None:
            config["stopSequences"] = stop


def _sampling_refusal(field: str, settings: Settings, facts: Family, thinks: bool) -> str:
    if not facts.sampling:
        return "this model refuses it"
    if thinks and facts.vendor == "anthropic":
        return "Claude refuses it together with thinking"
    if field == "top_p" and settings.temperature is not None and facts.one_sampling:
        return "this model refuses it together with a temperature"
    return ""


def _write_top_k(
    settings: Settings, facts: Family, own: Origin | None, thinks: bool, fields: Object, ledger: Ledger
) -> None:
    if settings.top_k is None:
        return
    if own is not None:
        if "top_k" in (own.wire.get("additionalModelRequestFields") or {}):
            fields["top_k"] = settings.top_k
        return
    if not facts.has_top_k or (thinks and facts.vendor == "anthropic"):
        what, why = "`top_k` was left out", "this model has no such setting here"
        ledger.note("no-counterpart", settings.where.get("top_k"), what, why)
    elif facts.has_top_k == "nova":
        fields["inferenceConfig"] = {"topK": settings.top_k}
    else:
        fields["top_k"] = settings.top_k


def _write_format(settings: Settings, out: Object, ledger: Ledger) -> Object | None:
    """The schema of the answer as text with JSON. JSON without a schema is asked for in the instructions."""
    asked = settings.format
    if asked is None or asked.kind == "text":
        return None
    where = settings.where.get("format")
    if (wire := intact_wire(asked.origin)) is not None:
        return wire
    if asked.kind != "schema" or asked.schema is None:
        out["system"] = [*out.get("system", []), {"text": ONLY_JSON_INSTRUCTION}]
        ledger.note("format-mapped", where, "JSON mode became an instruction", "Converse needs a schema for it")
        return None
    if asked.strict is not None:
        ledger.note("format-mapped", where, "the strictness of the schema was left out")
    inner: Object = {"schema": encode_text(asked.schema)}
    inner |= {key: value for key, value in (("name", asked.name), ("description", asked.description)) if value}
    return {"type": "json_schema", "structure": {"jsonSchema": inner}}


_MAX_METADATA = 16


def _write_metadata(settings: Settings, own: Origin | None, out: Object, ledger: Ledger) -> None:
    """Notes for the operator's logs: up to 16 texts."""
    given = settings.metadata
    if given is None:
        return
    if own is not None:
        out["requestMetadata"] = given
        return
    usable = {
        key: value
        for key, value in (given.items() if isinstance(given, dict) else ())
        if isinstance(value, str) and _is_metadata(key, 1) and _is_metadata(value, 0)
    }
    kept = dict([*usable.items()][:_MAX_METADATA])
    if not isinstance(given, dict) or len(kept) < len(given):
        what = "metadata were left out"
        ledger.note("no-counterpart", settings.where.get("metadata"), what, "Converse takes 16 short texts")
    if kept:
        out["requestMetadata"] = kept


def _is_metadata(text: str, least: int) -> bool:
    return least <= len(text) <= 256 and all(
        letter.isascii() and (letter.isalnum() or letter in " :_@$#=/+,-.") for letter in text
    )


def _write_tier(settings: Settings, own: Origin | None, out: Object, ledger: Ledger) -> None:
    tier = settings.tier
    if tier is None:
        return
    if own is not None:
        out["serviceTier"] = unknown_keys(own, "serviceTier", names.TIER_KEYS) | {"type": tier}
    elif tier in names.SERVICE_TIERS:
        out["serviceTier"] = {"type": tier}
    elif tier != "auto":
        ledger.note("no-counterpart", settings.where.get("tier"), f"the service tier `{tier}` was left out")
