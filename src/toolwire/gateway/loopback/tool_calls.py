"""Values for a JSON Schema, made of what a text offers: what is required always, the rest only when it is offered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.core.ir import Tool
from toolwire.core.json_values import Json, Malformed, Object, to_float
from toolwire.gateway.loopback.text_values import (
    EXAMPLE_VALUES,
    STOP_WORDS,
    TextValues,
    ValuePicker,
    parameter_kind,
    split_command,
    split_words,
    value_sources,
)
from toolwire.schema import convert_to_standard
from toolwire.schema.combine import intersect_schemas
from toolwire.schema.keywords import REFERENCE_KEYWORDS, ChangeLog, is_number
from toolwire.schema.references import ReferenceLookup, inline_references

MaybeValue = Json | UnsetType
"""UNSET: the text offers nothing, and nothing is needed."""

MAX_OPTIONAL_DEPTH = 12
"""Below this only what is required is made, so that schemas which refer to themselves come to an end."""
MAX_DEPTH = 40


def make_arguments(schema: Json, text_values: TextValues) -> Object:
    """The arguments of a call, for the parameters of its tool."""
    made = make_value(schema, text_values)
    return made if isinstance(made, dict) else {}


def make_value(schema: Json, text_values: TextValues) -> Json:
    """A value that the schema allows."""
    try:
        plain = convert_to_standard(schema).schema
    except Malformed:
        return {}
    made = _ValueMaker(plain, text_values).make_value(plain, "", True, 0)
    return {} if made is UNSET else made


def resolve_schema(lookup: ReferenceLookup, node: Json) -> Object:
    """A schema with its references and its `allOf` written out, at this level."""
    if not isinstance(node, dict):
        return {}
    out: Object = node
    notes = ChangeLog()
    for _ in range(MAX_OPTIONAL_DEPTH):
        if any(key in out for key in REFERENCE_KEYWORDS):
            out, _path, _opened = inline_references(lookup, out, None, frozenset(), notes, lambda target: {})
        parts = out.get("allOf")
        if not isinstance(parts, list):
            break
        out = {key: inner for key, inner in out.items() if key != "allOf"}
        for part in parts:
            if isinstance(part, dict):
                out = intersect_schemas(out, part, notes.adder_at(None))
    return out


# --- leaves ---------------------------------------------------------------------------------------------------------

_FORMAT_EXAMPLES: Final[Mapping[str, str]] = {
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "hostname": "example.com",
    "duration": "P1D",
    "byte": "ZXhhbXBsZQ==",
    "uri": EXAMPLE_VALUES["url"],
    "url": EXAMPLE_VALUES["url"],
    "email": EXAMPLE_VALUES["email"],
    "date": EXAMPLE_VALUES["date"],
    "date-time": EXAMPLE_VALUES["moment"],
    "time": "12:00:00Z",
}
_FORMAT_PATTERNS: Final[Mapping[str, str]] = {
    "uri": r"[A-Za-z][\w+.-]*:\S+",
    "url": r"https?://\S+",
    "email": r"\S+@\S+",
    "date": r"\d{4}-\d{2}-\d{2}",
    "date-time": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})",
    "time": r"\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"\d+(\.\d+){3}",
    "ipv6": r"[0-9a-fA-F:]+",
    "hostname": r"[\w.-]+",
    "duration": r"P\S+",
    "byte": r"[A-Za-z0-9+/=]*",
}
_PATTERN_SAMPLES: Final = (
    "example a A abc Abc ABC a1 A1 abc123 1 0 00 42 123456 1.0.0 v1.0.0 0x0 #000000 en en-US a/b a.b a-b a_b $a @a a: "
    "/a owner/repo https://example.com/ user@example.com 2026-01-01 2026-01-01T12:00:00Z 12:00 12:00:00 1h 1d "
    "+10000000000 00000000-0000-4000-8000-000000000000 0000000000000000000000000000000000000000 12345678901 {} [] "
    "127.0.0.1 USD 1:1 1-00000000-0000-4000-8000-000000000000"
).split()
"""Texts to try where a pattern is demanded: nothing here can read one backwards."""
_NESTED_QUANTIFIER: Final = re.compile(r"[+*}]\)*[+*{]")
"""Patterns that could take for ever are not tried."""


def _compile_pattern(node: Object) -> re.Pattern[str] | None:
    pattern = node.get("pattern")
    if not isinstance(pattern, str) or _NESTED_QUANTIFIER.search(pattern):
        return None
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None


def _fit_text(text: str, node: Object) -> str | None:
    """The text within the bounds of its schema; None when it cannot be brought there."""
    least, most = _read_int(node.get("minLength"), 0), _read_int(node.get("maxLength"), len(text))
    if len(text) < least:
        text = (text or "example ") * (least // max(len(text), 1) + 1)
        text = text[:least]
    text = text[:most]
    look = _FORMAT_PATTERNS.get(str(node.get("format", "")))
    if look is not None and not re.fullmatch(look, text):
        return None
    pattern = _compile_pattern(node)
    return None if pattern is not None and not pattern.search(text[:400]) else text


def _read_int(given: Json, default: int) -> int:
    return int(min(to_float(given), 100_000.0)) if is_number(given) else default


def _clamp_number(number: float, node: Object, is_integer: bool) -> int | float:
    """The number nearest to this one that the schema allows."""
    step = 1.0 if is_integer else 0.5
    bounds: tuple[tuple[str, Callable[[float, float], float], float], ...] = (
        ("minimum", max, 0.0),
        ("exclusiveMinimum", max, step),
        ("maximum", min, 0.0),
        ("exclusiveMaximum", min, -step),
    )
    for key, better, gap in bounds:
        if is_number(node.get(key)):
            number = better(number, to_float(node[key]) + gap)
    multiple: Json = node.get("multipleOf", 0)
    if is_number(multiple) and (factor := to_float(multiple)) > 0:
        number = -(-number // factor) * factor
    return int(number) if is_integer or number.is_integer() else number


def _parse_number(given: Json) -> float | None:
    if isinstance(given, str) and re.fullmatch(r"-?\d{1,15}(\.\d{1,10})?", given):
        return float(given)
    return to_float(given) if is_number(given) else None


# --- schemas --------------------------------------------------------------------------------------------------------

_TYPE_CHECKS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "string": lambda given: isinstance(given, str),
    "integer": lambda given: is_number(given) and to_float(given).is_integer(),
    "number": is_number,
    "boolean": lambda given: isinstance(given, bool),
    "array": lambda given: isinstance(given, list),
    "object": lambda given: isinstance(given, dict),
    "null": lambda given: given is None,
}
_TYPE_KEYWORDS: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "multipleOf", "exclusiveMinimum")),
)
"""Keywords that tell a type where none is named."""


def _schema_types(node: Object) -> list[str]:
    named = node.get("type")
    given = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    known = [kind for kind in given if kind in _TYPE_CHECKS]
    return known or [next((kind for kind, keys in _TYPE_KEYWORDS if any(key in node for key in keys)), "string")]


def _schema_examples(node: Object) -> list[Json]:
    examples = node.get("examples")
    return examples if isinstance(examples, list) else []


class _ValueMaker:
    """Walks through one schema with one offer."""

    def __init__(self, root: Json, text_values: TextValues) -> None:
        self.lookup = ReferenceLookup(root)
        self.picker = ValuePicker(text_values)

    def make_value(self, schema: Json, name: str, is_required: bool, depth: int) -> MaybeValue:
        if depth > MAX_DEPTH or (depth > MAX_OPTIONAL_DEPTH and not is_required):
            return UNSET
        node = resolve_schema(self.lookup, schema)
        if "const" in node:
            return node["const"] if is_required else UNSET
        if isinstance(node.get("enum"), list) and node["enum"]:
            return self._make_enum(node, name, is_required)
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list) and node[key]:
                return self._make_branch(node, key, name, is_required, depth)
        types = _schema_types(node)
        given = self.picker.get_named_value(name)
        if given is not UNSET and not isinstance(given, str) and any(_TYPE_CHECKS[kind](given) for kind in types):
            return given
        return self._make_any_type(types, node, name, is_required, depth)

    def _make_any_type(self, types: list[str], node: Object, name: str, is_required: bool, depth: int) -> MaybeValue:
        """A value of the first type that the text offers one for."""
        real = [kind for kind in types if kind != "null"]
        if not real:
            return None if is_required else UNSET
        for kind in real:
            made = self._make_type(kind, node, name, False, depth)
            if made is not UNSET:
                return made
        if not is_required:
            return UNSET
        told = [node["default"]] if "default" in node else _schema_examples(node) if "string" not in types else []
        fitting = [one for one in told if any(_TYPE_CHECKS[kind](one) for kind in types)]
        if fitting:
            return fitting[0]
        return None if "null" in types else self._make_type(real[0], node, name, True, depth)

    def _make_type(self, kind: str, node: Object, name: str, is_required: bool, depth: int) -> MaybeValue:
        if kind == "object":
            return self._make_object(node, name, is_required, depth)
        if kind == "array":
            return self._make_array(node, name, is_required, depth)
        if kind == "string":
            return self._make_string(node, name, is_required)
        if kind == "boolean":
            return self._make_boolean(name, is_required)
        return self._make_number(node, name, is_required, kind == "integer")

    def _make_branch(self, node: Object, key: str, name: str, is_required: bool, depth: int) -> MaybeValue:
        """The first branch that the text offers something for; null rather than something made up."""
        rest = {word: inner for word, inner in node.items() if word != key}
        note = ChangeLog().adder_at(None)
        branches = [
            intersect_schemas(rest, resolve_schema(self.lookup, one), note)
            for one in node[key]
            if isinstance(one, dict)
        ]
        real = [one for one in branches if one.get("type") != "null" and one.get("const", 0) is not None]
        for one in real if len(branches) > 1 else ():
            made = self.make_value(one, name, False, depth + 1)
            if made is not UNSET:
                return made
        if not is_required:
            return UNSET
        if len(real) < len(branches) or not real:
            return None
        return self.make_value(real[0], name, True, depth + 1)

    def _make_enum(self, node: Object, name: str, is_required: bool) -> MaybeValue:
        """The longest value that is mentioned, else the first."""
        choices: list[Json] = node["enum"]
        if not is_required and "type" in node:
            choices = [one for one in choices if any(_TYPE_CHECKS[kind](one) for kind in _schema_types(node))]
        given = self.picker.get_named_value(name)
        for choice in choices:
            if given is not UNSET and (choice == given or str(choice).lower() == str(given).lower()):
                return choice
        mentioned = [one for one in choices if isinstance(one, str) and self.picker.mentions(one)]
        if mentioned:
            return max(mentioned, key=len)
        if not is_required:
            return UNSET
        default = node.get("default", UNSET)
        return default if default in choices else choices[0]

    def _make_string(self, node: Object, name: str, is_required: bool) -> MaybeValue:
        given = self.picker.get_named_value(name)
        if given is not UNSET and (fitted := _fit_text(_to_text(given), node)) is not None:
            return fitted
        kind = parameter_kind(name, node)
        found = self.picker.pick_text(kind, False) if kind else None
        sure = is_required or "pattern" not in node or _compile_pattern(node) is not None
        if found is not None and sure and (fitted := _fit_text(found, node)) is not None:
            return fitted
        if not is_required:
            return UNSET
        example = _FORMAT_EXAMPLES.get(str(node.get("format", "")))
        tries = (example or self.picker.pick_text(kind, True) or "example", *_schema_examples(node), *_PATTERN_SAMPLES)
        fits = (fitted for one in tries if isinstance(one, str) and (fitted := _fit_text(one, node)) is not None)
        return next(fits, tries[0])

    def _make_number(self, node: Object, name: str, is_required: bool, is_integer: bool) -> MaybeValue:
        given = self.picker.get_named_value(name)
        number = _parse_number(given) if given is not UNSET else None
        if number is None:
            number = _parse_number(self.picker.pick_number(name, is_required))
        if number is None and not is_required:
            return UNSET
        return _clamp_number(1.0 if number is None else number, node, is_integer)

    def _make_boolean(self, name: str, is_required: bool) -> MaybeValue:
        given = self.picker.get_named_value(name)
        if isinstance(given, (str, bool)) and str(given).lower() in _BOOLEAN_WORDS:
            return _BOOLEAN_WORDS[str(given).lower()]
        flag = self.picker.read_flag(name)
        if flag is not None:
            return flag
        return False if is_required else UNSET

    # --- inner schemas ---

    def _make_array(self, node: Object, name: str, is_required: bool, depth: int) -> MaybeValue:
        first = node.get("prefixItems")
        if isinstance(first, list) and first:
            return [self._make_required(one, name, depth) for one in first] if is_required else UNSET
        schema = node.get("items")
        items = resolve_schema(self.lookup, schema)
        least, most = _read_int(node.get("minItems"), 0), _read_int(node.get("maxItems"), 64)
        made = self._make_items(items, name, is_required)
        if not made and not is_required:
            return UNSET
        if not made and schema is not False:
            made = [self._make_required(schema, name, depth)]
        while made and len(made) < min(least, 64):
            made.append(_vary_value(made[0], len(made)) if node.get("uniqueItems") else made[0])
        return made[:most]

    def _make_items(self, items: Object, name: str, is_required: bool) -> list[Json]:
        """The several values that the text offers."""
        choices = items.get("enum")
        if isinstance(choices, list):
            return [one for one in choices if isinstance(one, str) and self.picker.mentions(one)]
        kind = _schema_types(items)[0] if not {"anyOf", "oneOf", "const"} & items.keys() else ""
        given = self.picker.get_named_value(name)
        if kind == "string":
            wanted = parameter_kind(name, items)
            if isinstance(given, str):
                values = given.split(",")
            elif wanted == "command" and not name.lower().endswith("s"):
                command = self.picker.pick_text(wanted, is_required)
                values = split_command(command) if command else []
            else:
                values = self.picker.pick_texts(wanted, is_required) if wanted or is_required else []
            fits = [_fit_text(one, items) for one in values]
            return [one for one in fits if one is not None]
        if kind in ("integer", "number") and is_required:
            return [_clamp_number(float(one), items, kind == "integer") for one in self.picker.pick_numbers()]
        return []

    def _make_required(self, schema: Json, name: str, depth: int) -> Json:
        made = self.make_value(schema, name, True, depth + 1)
        return None if made is UNSET else made

    def _make_object(self, node: Object, name: str, is_required: bool, depth: int) -> MaybeValue:
        properties = node.get("properties")
        known: Object = properties if isinstance(properties, dict) else {}
        listed = node.get("required")
        required = {key for key in listed if isinstance(key, str)} if isinstance(listed, list) else set()
        if not is_required and not self._has_named_value(known, depth):
            return UNSET
        out: Object = {}
        for key in sorted(known, key=lambda one: one not in required):
            made = self.make_value(known[key], key, key in required, depth + 1)
            if made is not UNSET:
                out[key] = made
        more = node.get("additionalProperties")
        for key in sorted(required - out.keys()):
            out[key] = self._make_required(known.get(key, more if isinstance(more, dict) else {}), key, depth)
        for key in known:
            if len(out) >= _read_int(node.get("minProperties"), 0):
                break
            if key not in out:
                out[key] = self._make_required(known[key], key, depth)
        return {key: out[key] for key in (*known, *out) if key in out}

    def _has_named_value(self, properties: Object, depth: int) -> bool:
        """Does the text say something under the very name of one of these?"""
        return depth < MAX_OPTIONAL_DEPTH and any(self.picker.get_named_value(key) is not UNSET for key in properties)


_BOOLEAN_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _to_text(given: Json) -> str:
    return given if isinstance(given, str) else bytes(given).decode() if isinstance(given, Raw) else str(given)


def _vary_value(one: Json, number: int) -> Json:
    """Another value of the same sort, for lists whose members must differ."""
    if isinstance(one, str):
        return f"{one} {number + 1}"
    return one + number if isinstance(one, (int, float)) and not isinstance(one, bool) else one


# --- Which tools a text asks for, and how often: by the words that it shares with them ---


MAX_CALLS = 16
"""Calls in one answer."""

_DESCRIPTION_LIMIT = 300
"""How much of a description is read: agents write pages, and pages resemble everything."""
_MIN_POINTS = 2
_NAMED_POINTS = 100
_CONJUNCTION = re.compile(
    r"\b(?:and|both|each|all|then|also|parallel|as well as|plus)\b|[,&;]|[.?!]\s+\w", re.IGNORECASE
)
_ALL_TOOLS = re.compile(
    r"\b(?:both|all|each|every)\b[\w\s]{0,20}\btools?\b|\btools? in parallel\b|\bcall both\b", re.IGNORECASE
)
_TWO_CALLS = re.compile(r"\btwice\b|\bin parallel\b|\btwo (?:parallel )?calls\b", re.IGNORECASE)


class PlannedCall(Struct, frozen=True):
    """One call to be made: the tool, and what its arguments are made of."""

    tool: Tool
    text_values: TextValues


class _ToolMatch(Struct, frozen=True):
    """How much a tool resembles the text."""

    tool: Tool
    points: int
    weight: float
    is_named: bool
    shared_words: frozenset[str]
    """Words of its name that the text says."""


def plan_calls(
    tools: Sequence[Tool], text_values: TextValues, is_required: bool, is_parallel: bool
) -> list[PlannedCall]:
    """The calls that a text asks for, the first tool where one must be called; none when it resembles no tool."""
    seen = _match_tools(tools, text_values)
    best = max(seen, key=lambda one: one.weight, default=None)
    if best is None or (best.points < _MIN_POINTS and not is_required):
        return []
    if not is_parallel:
        return [PlannedCall(best.tool, text_values)]
    chosen = _choose_tools(seen, best, text_values.text)
    calls = [PlannedCall(tool, part) for tool in chosen for part in _split_values(tool, text_values)]
    if len(calls) == 1 and _TWO_CALLS.search(text_values.text):
        calls *= 2
    return calls[:MAX_CALLS]


def _stem(word: str) -> str:
    for end in ("ing", "ies", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            break
    return word.removesuffix("e")[:6]


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in split_words(text) if word not in STOP_WORDS)


def tool_properties(tool: Tool) -> tuple[Object, frozenset[str]]:
    """The parameters of a tool, written out one level deep, and which of them are required."""
    try:
        schema = convert_to_standard(tool.parameters).schema
    except Malformed:
        schema = {}
    lookup = ReferenceLookup(schema)
    root = resolve_schema(lookup, schema)
    inner, listed = root.get("properties"), root.get("required")
    known = inner if isinstance(inner, dict) else {}
    required = [key for key in listed if isinstance(key, str)] if isinstance(listed, list) else []
    return {name: resolve_schema(lookup, node) for name, node in known.items()}, frozenset(required)


def _match_tools(tools: Sequence[Tool], text_values: TextValues) -> list[_ToolMatch]:
    said = _stems(text_values.text)
    names = [_stems(f"{tool.namespace} {tool.name}") for tool in tools]
    common = Counter(stem for name in names for stem in name)
    return [_match_tool(tool, name, said, common, text_values) for tool, name in zip(tools, names, strict=True)]


def _match_tool(
    tool: Tool, name: frozenset[str], text_stems: frozenset[str], common: Counter[str], text_values: TextValues
) -> _ToolMatch:
    known, required = tool_properties(tool)
    shared = name & text_stems
    about = (_stems((tool.description or "")[:_DESCRIPTION_LIMIT]) - name) & text_stems
    asked = (_stems(" ".join(known)) - name - about) & text_stems
    wanted = [kind for key in required if (kind := parameter_kind(key, known.get(key, {}))) in EXAMPLE_VALUES]
    offered = sum(1 for kind in set(wanted) if any(text_values.of_kind(source) for source in value_sources(kind)))
    named = bool(re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", text_values.text, re.IGNORECASE))
    named = named and tool.name.lower() not in STOP_WORDS
    rest = len(about) + len(asked) + 2 * offered + _NAMED_POINTS * named
    return _ToolMatch(tool, 3 * len(shared) + rest, sum(3 / common[one] for one in shared) + rest, named, shared)


def _choose_tools(matches: list[_ToolMatch], best: _ToolMatch, text: str) -> list[Tool]:
    """The tools that are called in one go: all that are named, or that the text resembles each by a word of its own."""
    named = [one.tool for one in matches if one.is_named]
    if len(named) > 1:
        return named
    if _ALL_TOOLS.search(text):
        return [one.tool for one in matches]
    if named or not _CONJUNCTION.search(text):
        return [best.tool]
    chosen, claimed = {id(best.tool)}, set(best.shared_words)
    for one in sorted(matches, key=lambda one: -one.weight):
        if one.shared_words - claimed:
            chosen.add(id(one.tool))
            claimed |= one.shared_words
    return [one.tool for one in matches if id(one.tool) in chosen]


def _split_values(tool: Tool, text_values: TextValues) -> list[TextValues]:
    """One offer for each of several values that only one parameter can take, one at a time."""
    known, required = tool_properties(tool)
    single = {name: node for name, node in known.items() if not _is_array(node)}
    texts = [name for name in single if name in required and _has_type(single[name], "string")]
    kinds = Counter(parameter_kind(name, single[name]) for name in single if _has_type(single[name], "string"))
    for kind, count in kinds.items():
        for source in value_sources(kind):
            values = text_values.of_kind(source)
            if count == 1 and len(values) > 1 and (source != "quoted" or len(texts) == 1):
                return [text_values.with_only(source, value) for value in values]
    if len(texts) == 1 and len(text_values.of_kind("quoted")) > 1:
        return [text_values.with_only("quoted", value) for value in text_values.of_kind("quoted")]
    numbers = [name for name in required if _has_type(known.get(name, {}), "integer", "number")]
    if len(numbers) == 1 and len(required) == 1 and len(text_values.numbers) > 1:
        return [text_values.with_only("number", one.number) for one in text_values.numbers]
    return [text_values]


def _has_type(node: Object, *types: str) -> bool:
    named = node.get("type", "string")
    return any(one in types for one in (named if isinstance(named, list) else [named])) and "enum" not in node


def _is_array(node: Object) -> bool:
    return node.get("type") == "array" or "items" in node
