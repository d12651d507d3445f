"""Which tools the embedded model calls, and with which arguments, by simple rules.

Tools are chosen by the words of the user's text. Arguments are values in the text: `name: value` pairs, JSON objects,
quoted text, paths and addresses, capitalised names and numbers. Missing values are made up to match the schema.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING, Tool
from toolwire.core.json_values import Json, Malformed, Object, is_number, to_float
from toolwire.schema.combine import Intersection, ReferenceLookup, inline_references, intersect_schemas
from toolwire.schema.keywords import REFERENCE_KEYWORDS, ChangeLog
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.validate import value_problems

# --- values in a text ---

MAX_TEXT_LENGTH = 4_000
"""Values are searched in the first characters only, because some patterns take quadratic time."""
_STOP_WORDS = frozenset(
    "a about all also am an and any are as at be been both but by call calls can could did do does each for from get "
    "give had has have hello hey hi how i if in into is it its just let like may me my no not now of on or our out "
    "parallel please say should so some tell than thank thanks that the their them then there these they this to tool "
    "tools up us use used using very want was we were what when where which while who why will with would you your"
    "".split()
)
_CAMEL_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_PAIR = re.compile(r"(?<![\w/])(?<!\w-)(?<!\w--)([A-Za-z_][\w-]*)\s*[=:]\s*(?!//)(\"[^\"]*\"|'[^']*'|`[^`]*`|[^\s,;]+)")
# A word is tried at its beginning only, or one of 4,000 letters would be read 4,000 times.
_VALUE_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "fenced": re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL),
    "quoted": re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^“”]+)”|(?<!\w)'([^'\n]+)'(?!\w)"),
    "token": re.compile(
        r"https?://[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:!?]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?"
        r"|(?:(?<![\w/.@+-])(?:(?:~|\.{1,2})?/[\w.@+-][\w./@+-]*|(?:[\w@+-]+/)+[\w@+-]*\.?\w+)"
        r"|(?<![\w/.-])[\w-]+\.[A-Za-z]\w{0,4})(?![\w/])"
    ),
    "name": re.compile(  # with the letters of its state or country: `San Francisco, CA` is one place
        r"(?<=[a-z,:;] )([A-ZÀ-ÖØ-Þ][\w'’-]*(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*(?:, [A-Z]{2,3}\b)?)"
    ),
    "number": re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,10})?(?!\w|\.\d)"),
}
"""Each value is masked when it is found, so that the following patterns do not find it again."""
_QUOTED_PROMPT = re.compile(r'\s*"[^"`]*`[^"]*"\s*')
"""opencode puts quotation marks around a prompt of several words: the code in it is meant, not all of it."""


class TextValues(Struct, frozen=True):
    text: str = ""
    pairs: Mapping[str, Json] = EMPTY_MAPPING
    """The values of `name: value`, `name=value` and JSON objects, by the letters of the name."""
    values: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
    """The other values, by the keys of `_VALUE_PATTERNS`."""

    def get_values(self, kind: str) -> tuple[str, ...]:
        return self.values.get(kind, ())


def find_values(text: str) -> TextValues:
    text = text[:MAX_TEXT_LENGTH]
    if _QUOTED_PROMPT.fullmatch(text):
        text = text.strip()[1:-1]
    pairs, rest = _read_json_objects(text)
    for match in _PAIR.finditer(rest):
        value = match[2]
        pairs.setdefault(_letters(match[1]), value[1:-1] if value[0] in "\"'`" else value.rstrip(".,;!?)"))
    values: dict[str, tuple[str, ...]] = {}
    for kind, pattern in _VALUE_PATTERNS.items():
        found = [next((group for group in match.groups() if group), match[0]) for match in pattern.finditer(rest)]
        wanted = (value for value in found if kind != "name" or _letters(value) not in _STOP_WORDS)
        values[kind] = tuple(dict.fromkeys(wanted))
        rest = pattern.sub(lambda match: "_" * len(match[0]), rest)
    return TextValues(text, pairs, values)


def _read_json_objects(text: str) -> tuple[dict[str, Json], str]:
    pairs: dict[str, Json] = {}
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(8):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        pairs |= {_letters(key): inner for key, inner in value.items()}
        text = f"{text[:start]} {text[end:]}"
        start = text.find("{", start)
    return pairs, text


def _split_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_CAMEL_BORDER.sub(" ", text))]


def _letters(name: str) -> str:
    return "".join(_split_words(name))


# --- which tools ---

MAX_CALLS = 16
_DESCRIPTION_LIMIT = 300
"""Only the start of a description is compared: agents write pages, which resemble every text."""
_MIN_POINTS = 2
_CONJUNCTION = re.compile(r"\b(?:and|both|then|also)\b|[,;]|[.?!]\s+\w", re.IGNORECASE)
_RUN_CODE = re.compile(r"\b(?:run|execute)\b[^`\n]*`[^`\n]+`", re.IGNORECASE)
"""Run `date`: a tool that takes a command is meant, whatever it is called."""
_ALL_TOOLS = re.compile(r"\b(?:both|all) (?:the |of the )?tools\b", re.IGNORECASE)


class PlannedCall(Struct, frozen=True):
    """A tool to call, and the values for its arguments."""

    tool: Tool
    values: TextValues


def plan_calls(tools: Sequence[Tool], values: TextValues, is_required: bool, is_parallel: bool) -> list[PlannedCall]:
    """The calls that a text asks for; none if it resembles no tool, unless a call is required."""
    chosen = _choose_tools(tools, values.text, is_required, is_parallel)
    if not is_parallel:
        return [PlannedCall(tool, values) for tool in chosen[:1]]
    return [PlannedCall(tool, part) for tool in chosen for part in _split_values(tool, values)][:MAX_CALLS]


def _choose_tools(tools: Sequence[Tool], text: str, is_required: bool, is_parallel: bool) -> list[Tool]:
    """The tools that the text names, or else those that share most words with it."""
    usable = [tool for tool in tools if tool.name.lower() not in _STOP_WORDS]
    lower = text.lower()
    named = [tool for tool in usable if _has_word(lower, tool.name.lower())]
    if _RUN_CODE.search(text):  # before the names: what agents add to a prompt can have a tool's name, such as Agent
        named = ([tool for tool in named if _takes_command(tool)] or list(filter(_takes_command, usable)) or named)[:1]
    if named or not tools:
        return named
    if _ALL_TOOLS.search(text):
        return list(tools)
    said = _stems(text)
    shared = [_stems(f"{tool.namespace} {tool.name}") & said for tool in tools]
    described = [len(_stems((tool.description or "")[:_DESCRIPTION_LIMIT]) & said) for tool in tools]
    points = [3 * len(words) + count for words, count in zip(shared, described, strict=True)]
    ranked = sorted(range(len(tools)), key=lambda index: -points[index])
    best = ranked[0]
    if points[best] < _MIN_POINTS:
        return [tools[best]] if is_required else []
    chosen, words = {best}, set(shared[best])
    for index in ranked if is_parallel and _CONJUNCTION.search(text) else ():
        if shared[index] - words:  # the text has a word for this tool that no better tool has
            chosen.add(index)
            words |= shared[index]
    return [tools[index] for index in sorted(chosen)]


def _takes_command(tool: Tool) -> bool:
    return any(_COMMAND_NAME.search(name) for name in _required_names(_as_object(_read_schema(tool.parameters))))


def _has_word(text: str, name: str) -> bool:
    """Does the text contain the name, and not as a part of a longer one?"""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _stems(text: str) -> frozenset[str]:
    words = (word for word in _split_words(text) if word not in _STOP_WORDS)
    return frozenset(word.removesuffix("s").removesuffix("e")[:6] for word in words)


def _split_values(tool: Tool, values: TextValues) -> list[TextValues]:
    """For each of several values, the values of one call, if one parameter of the tool takes them one at a time."""
    schema = _read_schema(tool.parameters)
    lookup = ReferenceLookup(schema)
    root = resolve_schema(lookup, schema)
    known = _as_object(root.get("properties"))
    nodes = {name: resolve_schema(lookup, known.get(name)) for name in _required_names(root)}
    texts = [name for name, node in nodes.items() if _schema_types(node)[0] == "string" and "enum" not in node]
    kinds = _value_kinds(texts[0], nodes[texts[0]]) if len(texts) == 1 else ()
    if len(nodes) == 1 and {"integer", "number"} & set(_schema_types(*nodes.values())):
        kinds = ("number",)
    kind = next((kind for kind in kinds if values.get_values(kind)), "")
    found = values.get_values(kind)
    return [replace(values, values={**values.values, kind: (value,)}) for value in found] or [values]


# --- arguments ---

MaybeValue = Json | UnsetType
"""UNSET for an optional parameter that the text does not mention."""
_MAX_DEPTH = 40
_MAX_OPTIONAL_DEPTH = 12
"""Deeper optional parameters are left out, so that recursive schemas come to an end."""
_SAFE_COMMAND = "echo hello"
"""The command when the text quotes none: an agent may run it."""
_COMMAND_NAME = re.compile(r"command|cmd|script(?!ion)|shell|argv", re.IGNORECASE)
_TOKEN_NAME = re.compile(r"path|file|folder|dir|ur[il]|link|mail|date", re.IGNORECASE)
_FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "uri": (r"[A-Za-z][\w+.-]*:\S+", "https://example.com/"),
    "url": (r"https?://\S+", "https://example.com/"),
    "email": (r"\S+@\S+", "user@example.com"),
    "date": (r"\d{4}-\d{2}-\d{2}", "2026-01-01"),
    "date-time": (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})", "2026-01-01T12:00:00Z"),
    "time": (r"\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?", "12:00:00Z"),
    "uuid": (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "00000000-0000-4000-8000-000000000000"),
    "ipv4": (r"\d+(\.\d+){3}", "127.0.0.1"),
}
"""By format: how a value looks, and an example."""
_PATTERN_SAMPLES: Final = (
    "example a A abc ABC a1 1 00 42 123456 1.0.0 v1.0.0 #000000 en-US a/b a.b a_b @a owner/repo https://example.com/ "
    "user@example.com 2026-01-01 2026-01-01T12:00:00Z 12:00 1h +10000000000 00000000-0000-4000-8000-000000000000 "
    "0000000000000000000000000000000000000000 {} [] USD 1:1"
).split()
"""Texts to try for a parameter with a `pattern`."""
_BOOLEAN_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_TYPE_KEYWORDS: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "multipleOf", "exclusiveMinimum")),
)
"""Keywords that imply a type where the schema names none."""


def make_arguments(schema: Json, values: TextValues) -> Object:
    """The arguments of a call: required parameters always, optional ones only if the text mentions them."""
    return _as_object(make_value(schema, values))


def make_value(schema: Json, values: TextValues) -> Json:
    root = _read_schema(schema)
    made = _ValueMaker(root, values).make(root, "", True, 0)
    return {} if made is UNSET else made


def resolve_schema(lookup: ReferenceLookup, schema: Json) -> Object:
    """A schema without `$ref` and `allOf` at its top level."""
    node, changes = _as_object(schema), ChangeLog()
    for _ in range(_MAX_OPTIONAL_DEPTH):
        if any(key in node for key in REFERENCE_KEYWORDS):
            node, _path, _opened = inline_references(lookup, node, None, frozenset(), changes, lambda target: {})
        parts = node.get("allOf")
        if not isinstance(parts, list):
            break
        node = {key: value for key, value in node.items() if key != "allOf"}
        merged = Intersection(node)
        for part in parts:
            if isinstance(part, dict):
                merged.add(part, changes.adder_at(None))
        node = merged.finish()
    return node


def _read_schema(schema: Json) -> Json:
    try:
        return convert_to_standard(schema).schema
    except Malformed:
        return {}


def _as_object(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def _required_names(node: Object) -> list[str]:
    listed = node.get("required")
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def _schema_types(node: Object) -> list[str]:
    named = node.get("type")
    types = [named] if isinstance(named, str) else [one for one in named or () if isinstance(one, str)]
    return types or [next((kind for kind, keys in _TYPE_KEYWORDS if any(key in node for key in keys)), "string")]


def _value_kinds(name: str, node: Object) -> tuple[str, ...]:
    """The kinds of values that a string parameter takes from the text, in order."""
    if _COMMAND_NAME.search(name):
        return ("quoted", "fenced")
    if node.get("format") in _FORMATS or _TOKEN_NAME.search(name):
        return ("token", "quoted")
    return ("quoted", "fenced", "name", "token")


def _is_valid(value: Json, node: Object) -> bool:
    look, _ = _FORMATS.get(str(node.get("format", "")), ("", ""))
    if look and isinstance(value, str) and not re.fullmatch(look, value):
        return False
    return not value_problems(value, node)


def _read_int(value: Json, default: int) -> int:
    return int(min(to_float(value), 100_000.0)) if is_number(value) else default


def _fit_length(text: str, node: Object) -> str:
    minimum, maximum = _read_int(node.get("minLength"), 0), _read_int(node.get("maxLength"), len(text))
    if len(text) < minimum:
        return ((text or "example ") * (minimum // max(len(text), 1) + 1))[:minimum]
    return text[:maximum]


def _fit_number(number: float, node: Object, is_integer: bool) -> int | float:
    gap = 1.0 if is_integer else 0.5
    for key, distance in (("minimum", 0.0), ("exclusiveMinimum", gap), ("maximum", 0.0), ("exclusiveMaximum", -gap)):
        if is_number(node.get(key)):
            bound = to_float(node[key]) + distance
            number = max(number, bound) if key.lower().endswith("minimum") else min(number, bound)
    multiple: Json = node.get("multipleOf", 0)
    if is_number(multiple) and (factor := to_float(multiple)) > 0:
        number = -(-number // factor) * factor
    return int(number) if is_integer or number.is_integer() else number


class _ValueMaker:
    """Makes values for one schema; each value of the text is used once."""

    def __init__(self, root: Json, values: TextValues) -> None:
        self._lookup = ReferenceLookup(root)
        self._values = values
        self._words = frozenset(_split_words(values.text))
        self._used: set[str] = set()

    def make(self, schema: Json, name: str, is_required: bool, depth: int) -> MaybeValue:
        if depth > _MAX_DEPTH or (depth > _MAX_OPTIONAL_DEPTH and not is_required):
            return UNSET
        node = resolve_schema(self._lookup, schema)
        given = self._values.pairs.get(_letters(name), UNSET) if name else UNSET
        if given is not UNSET and not isinstance(given, str) and _is_valid(given, node):
            return given
        if "const" in node:
            return node["const"] if is_required else UNSET
        if isinstance(node.get("enum"), list) and node["enum"]:
            return self._make_enum(node, given, is_required)
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list) and node[key]:
                return self._make_branch(node, key, name, is_required, depth)
        types = [one for one in _schema_types(node) if one != "null"]
        made = self._make_type(types[0], node, name, given, False, depth) if types else None
        if made is not UNSET or not is_required:
            return made if types or is_required else UNSET
        examples = node.get("examples")
        for value in [node.get("default", UNSET), *(examples if isinstance(examples, list) else ())]:
            if value is not UNSET and "string" not in types and _is_valid(value, node):
                return value
        return None if "null" in _schema_types(node) else self._make_type(types[0], node, name, given, True, depth)

    def _make_type(
        self, kind: str, node: Object, name: str, given: MaybeValue, is_required: bool, depth: int
    ) -> MaybeValue:
        if kind == "object":
            return self._make_object(node, is_required, depth)
        if kind == "array":
            return self._make_array(node, name, given, is_required, depth)
        if kind == "boolean":
            return _BOOLEAN_WORDS.get(str(given).lower(), False if is_required else UNSET)
        if kind in ("integer", "number"):
            return self._make_number(node, given, is_required, kind == "integer")
        return self._make_string(node, name, given, is_required)

    def _make_branch(self, node: Object, key: str, name: str, is_required: bool, depth: int) -> MaybeValue:
        """The first alternative that the text has a value for; else null if allowed, else the first one."""
        rest = {word: inner for word, inner in node.items() if word != key}
        note = ChangeLog().adder_at(None)
        resolved = [resolve_schema(self._lookup, one) for one in node[key] if isinstance(one, dict)]
        branches = [intersect_schemas(rest, one, note) for one in resolved]
        not_null = [one for one in branches if one.get("type") != "null" and one.get("const", 0) is not None]
        for branch in not_null:
            made = self.make(branch, name, False, depth + 1)
            if made is not UNSET:
                return made
        if not is_required:
            return UNSET
        return None if len(not_null) < len(branches) or not not_null else self.make(not_null[0], name, True, depth + 1)

    def _make_enum(self, node: Object, given: MaybeValue, is_required: bool) -> MaybeValue:
        """The value that the text mentions, else the default, else the first."""
        choices: list[Json] = [one for one in node["enum"] if _is_valid(one, node)]
        for choice in choices:
            if given is not UNSET and str(choice).lower() == str(given).lower():
                return choice
        mentioned = [one for one in choices if isinstance(one, str) and self._is_mentioned(one)]
        if mentioned:
            return max(mentioned, key=len)
        if not is_required:
            return UNSET
        default = node.get("default", UNSET)
        return default if default in choices else (choices or node["enum"])[0]

    def _is_mentioned(self, value: str) -> bool:
        words = _split_words(value)
        return bool(words) and self._words.issuperset(words) and not _STOP_WORDS.issuperset(words)

    def _make_string(self, node: Object, name: str, given: MaybeValue, is_required: bool) -> MaybeValue:
        tries: list[str] = [] if given is UNSET else [given if isinstance(given, str) else json.dumps(given)]
        if is_required:
            tries += self._string_candidates(node, name)
        elif _COMMAND_NAME.search(name):  # Anthropic's bash tool has no required parameter
            tries += self._values.get_values("quoted")
        for text in tries:
            fitted = _fit_length(text, node)
            if _is_valid(fitted, node):
                self._used.add(text)
                return fitted
        return _fit_length(tries[0], node) if is_required else UNSET

    def _string_candidates(self, node: Object, name: str) -> Iterator[str]:
        kinds = _value_kinds(name, node)
        found = [value for kind in kinds for value in self._values.get_values(kind)]
        yield from (value for value in found if value not in self._used)
        examples = node.get("examples")
        suggested = [node.get("default"), *(examples if isinstance(examples, list) else ())]
        yield from (one for one in suggested if isinstance(one, str))
        if node.get("format") in _FORMATS:
            yield _FORMATS[str(node["format"])][1]
        yield from found
        yield _SAFE_COMMAND if _COMMAND_NAME.search(name) else self._values.text.strip()[:200] or "example"
        yield from _PATTERN_SAMPLES

    def _make_number(self, node: Object, given: MaybeValue, is_required: bool, is_integer: bool) -> MaybeValue:
        numbers = [one for one in self._values.get_values("number") if one not in self._used] if is_required else []
        if isinstance(given, str) and _VALUE_PATTERNS["number"].fullmatch(given):
            numbers = [given]
        if not numbers and not is_required:
            return UNSET
        self._used.update(numbers[:1])
        return _fit_number(float(numbers[0]) if numbers else 1.0, node, is_integer)

    def _make_array(self, node: Object, name: str, given: MaybeValue, is_required: bool, depth: int) -> MaybeValue:
        if not is_required and not isinstance(given, str):
            return UNSET
        first = node.get("prefixItems")
        if isinstance(first, list) and first:
            return [self._make_required(one, name, depth) for one in first]
        schema = node.get("items")
        made = self._make_items(resolve_schema(self._lookup, schema), name, given)
        if not made and schema is not False:
            made = [self._make_required(schema, name, depth)]
        while made and len(made) < min(_read_int(node.get("minItems"), 0), 64):
            made.append(_vary_value(made[0], len(made)) if node.get("uniqueItems") else made[0])
        return made[: _read_int(node.get("maxItems"), 64)]

    def _make_items(self, items: Object, name: str, given: MaybeValue) -> list[Json]:
        enum = items.get("enum")
        if isinstance(enum, list):
            return [one for one in enum if isinstance(one, str) and self._is_mentioned(one)]
        kind = "" if {"anyOf", "oneOf", "const"} & items.keys() else _schema_types(items)[0]
        if kind in ("integer", "number"):
            numbers = [one for one in self._values.get_values("number") if one not in self._used]
            self._used.update(numbers)
            return [_fit_number(float(one), items, kind == "integer") for one in numbers]
        if kind != "string":
            return []
        kinds = _value_kinds(name, items)
        texts = next((found for one in kinds if (found := self._values.get_values(one))), ())
        if isinstance(given, str):
            texts = tuple(given.split(","))
        elif _COMMAND_NAME.search(name) and not name.endswith("s"):
            texts = tuple(_split_command(texts[0] if texts else _SAFE_COMMAND))
        return [text for text in texts if _is_valid(text, items)]

    def _make_required(self, schema: Json, name: str, depth: int) -> Json:
        made = self.make(schema, name, True, depth + 1)
        return None if made is UNSET else made

    def _make_object(self, node: Object, is_required: bool, depth: int) -> MaybeValue:
        known, required = _as_object(node.get("properties")), _required_names(node)
        if not is_required and not any(_letters(key) in self._values.pairs for key in known):
            return UNSET
        out: Object = {}
        for key in sorted(known, key=lambda one: one not in required):
            made = self.make(known[key], key, key in required, depth + 1)
            if made is not UNSET:
                out[key] = made
        others = _as_object(node.get("additionalProperties"))
        missing = [key for key in required if key not in out]
        spare = [key for key in known if key not in out and key not in missing]
        missing += spare[: max(0, _read_int(node.get("minProperties"), 0) - len(out) - len(missing))]
        for key in missing:
            out[key] = self._make_required(known.get(key, others), key, depth)
        return {key: out[key] for key in (*known, *out) if key in out}


def _vary_value(value: Json, number: int) -> Json:
    """Another value of the same type, for arrays of unique items."""
    if isinstance(value, str):
        return f"{value} {number + 1}"
    return value + number if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
