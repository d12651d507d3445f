"""Settings: `generationConfig` with `thinkingConfig` and the response format, and `serviceTier`."""

from __future__ import annotations

from typing import Any

from toolwire.core.ir import Format, Settings, Thinking, source_path
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    Paths,
    expect_list,
    expect_object,
    expect_text,
    get_bool,
    get_int,
    get_number,
    get_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import present_settings, restore_original_keys
from toolwire.core.tokens import budget_for_effort, effort_for_budget, nearest_effort
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import PartReadContext
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import NAME, intact_wire, is_foreign, to_snake_case
from toolwire.protocols.gemini.tools import read_schema, write_schema

FORMAT_SLOTS = ("responseSchema", "responseJsonSchema")


class SettingsCollector:
    """Settings from the body, `generationConfig` and the SDKs' `config`. The first value of a field counts."""

    __slots__ = ("fields", "where")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.where: dict[str, Path] = {}

    def add(self, field: str, value: Json, path: Path) -> None:
        if value is not None and field not in self.fields:
            self.fields[field] = value
            self.where[field] = path

    def build_settings(self) -> Settings:
        return Settings(**self.fields, where=self.where)


# --- reading --------------------------------------------------------------------------------------------------------


def _take_stop_sequences(node: Object, key: str, path: Path) -> tuple[str, ...] | None:
    stops = node.get(key)
    if stops is None:
        return None
    here = (path, key)
    return tuple(expect_text(stop, (here, number)) for number, stop in enumerate(expect_list(stops, here)))


_FIELD_READERS: dict[str, Any] = {
    "max_tokens": get_int,
    "stop": _take_stop_sequences,
    "seed": get_int,
    "count": get_int,
    "logprobs": get_bool,
    "top_logprobs": get_int,
}


def read_generation_config(raw: Object, path: Path, reading: PartReadContext, collector: SettingsCollector) -> None:
    """Read the settings of one object. The caller notes unknown keys."""
    node = names.GENERATION_CONFIG_KEYS(raw)
    for field, key in names.SETTING_KEYS.items():
        if key in node:
            collector.add(field, _FIELD_READERS.get(field, get_number)(node, key, path), (path, key_as_sent(raw, key)))
    if node.get("thinkingConfig") is not None:
        thinking = read_reasoning_settings(node["thinkingConfig"], (path, "thinkingConfig"), reading)
        collector.add("thinking", thinking, (path, key_as_sent(raw, "thinkingConfig")))
    if any(node.get(key) is not None for key in names.FORMAT_KEYS):
        where = Paths((path, key_as_sent(raw, key)) for key in names.FORMAT_KEYS if node.get(key) is not None)
        collector.add("format", read_response_format(node, path, reading), where)


def key_as_sent(raw: Object, key: str) -> str:
    """A key as the client wrote it, in camelCase or in snake_case."""
    return key if key in raw else to_snake_case(key)


def read_service_tier(node: Object, path: Path, collector: SettingsCollector) -> None:
    tier = get_text(node, "serviceTier", path)
    collector.add("tier", tier and tier.lower().removeprefix("service_tier_"), (path, "serviceTier"))


def read_reasoning_settings(value: Json, path: Path, reading: PartReadContext) -> Thinking:
    raw = expect_object(value, path)
    node = names.THINKING_KEYS(raw)
    origin = reading.read_origin(raw, path, names.THINKING_KEYS.all_keys)
    budget = get_int(node, "thinkingBudget", path)
    level = (get_text(node, "thinkingLevel", path) or "").lower().removeprefix("thinking_level_")
    shown = get_bool(node, "includeThoughts", path)
    show = "" if shown is None else "auto" if shown else "none"
    effort = "" if level == "unspecified" else level
    if budget is None:
        return Thinking(effort=effort, summary=show, origin=origin)
    if budget <= 0:
        return Thinking("off" if budget == 0 else "auto", effort, summary=show, origin=origin)
    return Thinking("on", effort, budget, show, origin)


def read_response_format(node: Object, path: Path, reading: PartReadContext) -> Format | None:
    mime = get_text(node, "responseMimeType", path)
    schema = read_schema(node, FORMAT_SLOTS, path)
    media_type = (mime or "application/json").lower()
    if media_type not in ("application/json", "text/plain"):
        for key in names.FORMAT_KEYS:
            if node.get(key) is not None:
                reading.note_unknown_field(path, key)
        return None
    origin = reading.whole_origin(
        {key: node[key] for key in names.FORMAT_KEYS if key in node}, (path, "responseMimeType")
    )
    if schema is not None:
        return Format("schema", schema, origin=origin)
    return Format("json" if media_type == "application/json" else "text", origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------

SUPPORTED_SETTINGS = frozenset({*names.SETTING_KEYS, "thinking", "format", "tier", "stream_usage"})


def write_generation_config(settings: Settings, family: Family, has_functions: bool, ledger: Ledger) -> Object:
    present = present_settings(settings)
    if not present:
        return {}
    fields = filter(present.__contains__, names.SETTING_KEYS)
    out: Object = {names.SETTING_KEYS[field]: getattr(settings, field) for field in fields}
    if settings.stop is not None:
        out["stopSequences"] = list(settings.stop[: names.MAX_STOP_SEQUENCES])
        if len(settings.stop) > names.MAX_STOP_SEQUENCES:
            what = f"only the first {names.MAX_STOP_SEQUENCES} of {len(settings.stop)} stop sequences were sent"
            ledger.note("setting-clamped", settings.where.get("stop"), what)
    if settings.format is not None:
        out.update(write_response_format(settings.format, family, has_functions, ledger))
    if settings.thinking is not None:
        thinking = write_reasoning_settings(settings.thinking, family, settings.where.get("thinking"), ledger)
        if thinking:
            out["thinkingConfig"] = thinking
    # Gemini always may make parallel calls.
    supported = SUPPORTED_SETTINGS | {"parallel"} if settings.parallel else SUPPORTED_SETTINGS
    ledger.note_unwritten_settings(settings, present, supported)
    return out


def write_service_tier(asked: str, where: Path, ledger: Ledger) -> str | None:
    if asked == "auto":
        ledger.note("setting-mapped", where, "the tier `auto` was left out, because it is the default")
        return None
    tier = names.SERVICE_TIERS.get(asked)
    if tier is None:
        ledger.note("no-counterpart", where, f"the tier `{asked}` was left out")
    elif tier != asked:
        ledger.note("setting-mapped", where, f"the tier `{asked}` became `{tier}`")
    return tier


def write_response_format(format: Format, family: Family, has_functions: bool, ledger: Ledger) -> Object:
    if (wire := intact_wire(format.origin)) is not None:
        return wire
    if format.kind == "text":
        return {"responseMimeType": "text/plain"} if not is_foreign(format.origin) else {}
    if has_functions and family.is_known and not family.is_gemini_3 and is_foreign(format.origin):
        why = "before Gemini 3 a format cannot be combined with functions"
        ledger.note("no-counterpart", source_path(format), "the format of the answer was left out", why)
        return {}
    lost = [field for field in ("name", "description", "strict") if getattr(format, field)]
    if lost:
        ledger.note("format-mapped", source_path(format), f"of the format {', '.join(lost)} was left out")
    out: Object = {"responseMimeType": "application/json"}
    if format.kind == "schema" and format.schema is not None:
        out |= write_schema(format.schema, FORMAT_SLOTS, family, ledger, source_path(format))
    return out


def write_reasoning_settings(thinking: Thinking, family: Family, where: Path, ledger: Ledger) -> Object:
    if (wire := intact_wire(thinking.origin)) is not None:
        return wire
    if not family.thinking_measure:
        ledger.note("no-counterpart", where, "the setting `thinking` was left out", "this model does not think")
        return {}
    out: Object = {}
    if thinking.summary:
        out["includeThoughts"] = thinking.summary != "none"
    elif thinking.mode == "on" and is_foreign(thinking.origin):
        out["includeThoughts"] = True
    amount = _AMOUNT_WRITERS[family.thinking_measure](thinking, family)
    out |= amount
    requested = {"thinkingBudget": thinking.budget, "thinkingLevel": thinking.effort.upper()}
    changed = any(requested[key] != value for key, value in amount.items() if value not in (0, -1))
    if changed or is_foreign(thinking.origin):
        asked = thinking.effort or (f"a budget of {thinking.budget}" if thinking.budget is not None else thinking.mode)
        became = ", ".join(f"{key} {value}" for key, value in out.items()) or "the default"
        ledger.note("thinking-mapped", where, f"{asked or 'thinking'} became {became}")
    return restore_original_keys(out, thinking.origin, NAME)


def _thinking_either(thinking: Thinking, family: Family) -> Object:
    """For an unknown model: a budget or a level, whichever the client sent."""
    if thinking.mode == "off" or thinking.effort == "none":
        return {"thinkingBudget": 0}
    if thinking.budget is not None:
        return {"thinkingBudget": thinking.budget}
    if thinking.effort:
        return {"thinkingLevel": nearest_effort(thinking.effort, family.thinking_levels).upper()}
    return {"thinkingBudget": -1} if thinking.mode == "auto" else {}


def _thinking_level(thinking: Thinking, family: Family) -> Object:
    asked = "none" if thinking.mode == "off" else thinking.effort
    if not asked and thinking.budget is not None:
        asked = effort_for_budget(thinking.budget)
    return {"thinkingLevel": nearest_effort(asked, family.thinking_levels).upper()} if asked else {}


def _thinking_budget(thinking: Thinking, family: Family) -> Object:
    least, most = family.budget_range
    if thinking.mode == "off" or thinking.effort == "none":
        return {"thinkingBudget": 0 if family.can_disable_thinking else least}
    budget = thinking.budget
    if budget is None and thinking.effort:
        budget = budget_for_effort(thinking.effort)
    if budget is not None:
        return {"thinkingBudget": min(max(budget, least), most)}
    return {"thinkingBudget": -1} if thinking.mode == "auto" else {}


_AMOUNT_WRITERS = {"either": _thinking_either, "level": _thinking_level, "budget": _thinking_budget}
