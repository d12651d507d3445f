"""`generationConfig` and the few settings beside it."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from toolwire.ir import Format, Settings, Thinking, place
from toolwire.loss import Ledger
from toolwire.protocols.gemini.details.parts_write import foreign
from toolwire.protocols.gemini.details.schemas import read_schema, write_schema
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import (
    FORMAT_KEYS,
    GENERATION,
    MAX_STOPS,
    NAME,
    SETTINGS,
    THINKING,
    TIERS,
)
from toolwire.protocols.gemini.parts import PartReading
from toolwire.reading import finished, set_fields, verbatim
from toolwire.thinking import budget_for, effort_for, nearest
from toolwire.wire import (
    Json,
    Object,
    Path,
    Places,
    as_list,
    as_object,
    as_text,
    take_bool,
    take_int,
    take_number,
    take_text,
)

SHAPE = ("responseSchema", "responseJsonSchema")


class Gathered:
    """Settings from wherever they stand: the body, `generationConfig`, or the SDKs' `config`."""

    __slots__ = ("fields", "where")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.where: dict[str, Path] = {}

    def put(self, field: str, value: Json, path: Path) -> None:
        if value is not None and field not in self.fields:
            self.fields[field] = value
            self.where[field] = path

    def settings(self) -> Settings:
        return Settings(**self.fields, where=self.where)


# --- reading --------------------------------------------------------------------------------------------------------


def _take_stops(node: Object, key: str, path: Path) -> tuple[str, ...] | None:
    stops = node.get(key)
    if stops is None:
        return None
    here = (path, key)
    return tuple(as_text(stop, (here, number)) for number, stop in enumerate(as_list(stops, here)))


_TAKERS: dict[str, Any] = {
    "max_tokens": take_int,
    "stop": _take_stops,
    "seed": take_int,
    "count": take_int,
    "logprobs": take_bool,
    "top_logprobs": take_int,
}


def read_generation(raw: Object, path: Path, reading: PartReading, gathered: Gathered) -> None:
    """Settings of one object; its unknown keys are the caller's to note."""
    node = GENERATION(raw)
    for field, key in SETTINGS.items():
        if key in node:
            gathered.put(field, _TAKERS.get(field, take_number)(node, key, path), (path, spelled(raw, key)))
    if node.get("thinkingConfig") is not None:
        thinking = read_thinking(node["thinkingConfig"], (path, "thinkingConfig"), reading)
        gathered.put("thinking", thinking, (path, spelled(raw, "thinkingConfig")))
    if any(node.get(key) is not None for key in FORMAT_KEYS):
        read = read_format(node, path, reading)
        gathered.put(
            "format", read, Places((path, spelled(raw, key)) for key in FORMAT_KEYS if node.get(key) is not None)
        )


def spelled(raw: Object, key: str) -> str:
    """A key as the client spelled it: the wire takes two spellings of each."""
    return key if key in raw else "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def read_tier(node: Object, path: Path, gathered: Gathered) -> None:
    tier = take_text(node, "serviceTier", path)
    gathered.put("tier", tier and tier.lower().removeprefix("service_tier_"), (path, "serviceTier"))


def read_thinking(value: Json, path: Path, reading: PartReading) -> Thinking:
    raw = as_object(value, path)
    node = THINKING(raw)
    origin = reading.origin(raw, path, THINKING.known)
    budget = take_int(node, "thinkingBudget", path)
    level = (take_text(node, "thinkingLevel", path) or "").lower().removeprefix("thinking_level_")
    shown = take_bool(node, "includeThoughts", path)
    show = "" if shown is None else "auto" if shown else "none"
    effort = "" if level == "unspecified" else level
    if budget is None:
        return Thinking(effort=effort, show=show, origin=origin)
    if budget <= 0:
        return Thinking("off" if budget == 0 else "auto", effort, show=show, origin=origin)
    return Thinking("on", effort, budget, show, origin)


def read_format(node: Object, path: Path, reading: PartReading) -> Format | None:
    mime = take_text(node, "responseMimeType", path)
    schema = read_schema(node, SHAPE, path)
    word = (mime or "application/json").lower()
    if word not in ("application/json", "text/plain"):
        for key in FORMAT_KEYS:
            if node.get(key) is not None:
                reading.stray(path, key)
        return None
    origin = reading.whole({key: node[key] for key in FORMAT_KEYS if key in node}, (path, "responseMimeType"))
    if schema is not None:
        return Format("schema", schema, origin=origin)
    return Format("json" if word == "application/json" else "text", origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------

_PLAIN = frozenset(SETTINGS)
_plain = attrgetter(*SETTINGS)
SAID = frozenset({*SETTINGS, "thinking", "format", "tier", "stream_usage"})


def write_generation(settings: Settings, family: Family, functions: bool, ledger: Ledger) -> Object:
    said = set_fields(settings)
    if not said:
        return {}
    out: Object = {}
    if not _PLAIN.isdisjoint(said):
        out = {key: value for key, value in zip(SETTINGS.values(), _plain(settings), strict=True) if value is not None}
    if settings.stop is not None:
        out["stopSequences"] = list(settings.stop[:MAX_STOPS])
        if len(settings.stop) > MAX_STOPS:
            what = f"only the first {MAX_STOPS} of {len(settings.stop)} stop sequences were kept"
            ledger.note("setting-clamped", settings.where.get("stop"), what)
    if settings.format is not None:
        out.update(write_format(settings.format, family, functions, ledger))
    if settings.thinking is not None:
        thinking = write_thinking(settings.thinking, family, settings.where.get("thinking"), ledger)
        if thinking:
            out["thinkingConfig"] = thinking
    ledger.unsaid(settings, said, SAID | {"parallel"} if settings.parallel else SAID)
    return out


def write_tier(asked: str, where: Path, ledger: Ledger) -> str | None:
    if asked == "auto":
        ledger.note("setting-mapped", where, "the tier `auto` is what this wire does unasked")
        return None
    tier = TIERS.get(asked)
    if tier is None:
        ledger.note("no-counterpart", where, f"the tier `{asked}` was left out")
    elif tier != asked:
        ledger.note("setting-mapped", where, f"the tier `{asked}` became `{tier}`")
    return tier


def write_format(format: Format, family: Family, functions: bool, ledger: Ledger) -> Object:
    if verbatim(format.origin, NAME):
        wire: Object = format.origin.wire  # type: ignore[union-attr]
        return wire
    if format.kind == "text":
        return {"responseMimeType": "text/plain"} if not foreign(format.origin) else {}
    if functions and family.known and not family.third and foreign(format.origin):
        why = "before the third generation a format cannot be combined with functions"
        ledger.note("no-counterpart", place(format), "the format of the answer was left out", why)
        return {}
    unsaid = [word for word in ("name", "description", "strict") if getattr(format, word)]
    if unsaid:
        ledger.note("format-mapped", place(format), f"the format has no {', '.join(unsaid)} here")
    out: Object = {"responseMimeType": "application/json"}
    if format.kind == "schema" and format.schema is not None:
        out |= write_schema(format.schema, SHAPE, family, ledger, place(format))
    return out


def write_thinking(thinking: Thinking, family: Family, where: Path, ledger: Ledger) -> Object:
    if verbatim(thinking.origin, NAME):
        wire: Object = thinking.origin.wire  # type: ignore[union-attr]
        return wire
    if not family.measure:
        ledger.note("no-counterpart", where, "the setting `thinking` was left out", "this model does not think")
        return {}
    out: Object = {}
    if thinking.show:
        out["includeThoughts"] = thinking.show != "none"
    elif thinking.mode == "on" and foreign(thinking.origin):
        out["includeThoughts"] = True
    measured = _MEASURES[family.measure](thinking, family)
    out |= measured
    said = {"thinkingBudget": thinking.budget, "thinkingLevel": thinking.effort.upper()}
    if foreign(thinking.origin) or any(said[key] != value for key, value in measured.items() if value not in (0, -1)):
        asked = thinking.effort or (f"a budget of {thinking.budget}" if thinking.budget is not None else thinking.mode)
        became = ", ".join(f"{key} {value}" for key, value in out.items()) or "the default"
        ledger.note("thinking-mapped", where, f"{asked or 'thinking'} became {became}")
    return finished(out, thinking.origin, NAME)


def _either(thinking: Thinking, family: Family) -> Object:
    """An unknown model is told in the measure that the client used."""
    if thinking.mode == "off" or thinking.effort == "none":
        return {"thinkingBudget": 0}
    if thinking.budget is not None:
        return {"thinkingBudget": thinking.budget}
    if thinking.effort:
        return {"thinkingLevel": nearest(thinking.effort, family.levels).upper()}
    return {"thinkingBudget": -1} if thinking.mode == "auto" else {}


def _level(thinking: Thinking, family: Family) -> Object:
    asked = "none" if thinking.mode == "off" else thinking.effort
    if not asked and thinking.budget is not None:
        asked = effort_for(thinking.budget)
    return {"thinkingLevel": nearest(asked, family.levels).upper()} if asked else {}


def _budget(thinking: Thinking, family: Family) -> Object:
    least, most = family.budgets
    if thinking.mode == "off" or thinking.effort == "none":
        return {"thinkingBudget": 0 if family.can_rest else least}
    budget = thinking.budget
    if budget is None and thinking.effort:
        budget = budget_for(thinking.effort)
    if budget is not None:
        return {"thinkingBudget": min(max(budget, least), most)}
    return {"thinkingBudget": -1} if thinking.mode == "auto" else {}


_MEASURES = {"either": _either, "level": _level, "budget": _budget}
