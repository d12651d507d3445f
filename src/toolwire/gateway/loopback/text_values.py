"""What a text offers to somebody who looks for values: quoted words, places, paths, addresses, numbers, `key: value`.

Everything is found by its looks. What was found is masked, so that the next look does not find it again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from toolwire.core.json_values import Json, Object

STOP_WORDS = frozenset(
    "a about all also am an and any are as at be been both but by call calls can could did do does each for from get "
    "give had has have hello hey hi how i if in into is it its just let like may me my no not now of on or our out "
    "parallel please say should so some tell than thank thanks that the their them then there these they this to tool "
    "tools up us use used using very want was we were what when where which while who why will with would you your"
    "".split()
)
"""Words that say nothing about what is meant."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")


def split_words(text: str) -> list[str]:
    """The words of a name or a sentence, in lower case; `camelCase` and `snake_case` fall apart."""
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def normalise_name(name: str) -> str:
    return "".join(split_words(name))


class NumberInText(Struct, frozen=True):
    """A number with the words beside it."""

    number: str
    before: str = ""
    after: str = ""


class TextValues(Struct, frozen=True):
    text: str = ""
    named_values: Mapping[str, Json] = MappingProxyType({})
    """What `key: value`, `key=value` or a JSON object says, by the key's plain letters."""
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """What was found, by its kind."""
    numbers: tuple[NumberInText, ...] = ()

    def of_kind(self, kind: str) -> tuple[str, ...]:
        return self.values.get(kind, ())

    def with_only(self, kind: str, value: str) -> TextValues:
        """The same offer with one value of a kind, for one of several calls."""
        if kind == "number":
            return replace(self, numbers=tuple(one for one in self.numbers if one.number == value)[:1])
        return replace(self, values={**self.values, kind: (value,)})


# --- looks ----------------------------------------------------------------------------------------------------------

_URL = re.compile(r"https?://[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:!?]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_MOMENT = re.compile(r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})?")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_TIME = re.compile(r"\b\d{1,2}:\d{2}(?::\d{2})?\b")
_PATH = re.compile(
    r"(?<![\w/.])(?:(?:~|\.{1,2})?/[\w.@+-][\w./@+-]*|(?:[\w@+-]+/)+[\w@+-]*\.?\w+"
    r"|[\w-]+\.[A-Za-z]\w{0,4})(?![\w/])"
)
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_BACKTICKED = re.compile(r"`([^`\n]+)`")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”]+)”|«([^»]+)»|(?<!\w)'([^'\n]+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_PAIR = re.compile(r"(?<![\w/])([A-Za-z_][\w-]*)\s*[=:]\s*(?!//)(\"[^\"]*\"|'[^']*'|`[^`]*`|[^\s,;]+)")
_COMMAND = re.compile(
    r"\b(?:run|execute)\s+(?:the\s+)?(?:shell\s+)?(?:command\s+)?(.+?)"
    r"(?=[.?!:]?\s*$|[.?!]\s|\s+(?:and|then)\s+(?:then|tell|show|report|give|say)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_CLAUSE = r"\s+(.+?)(?=[.?!]?\s*$|[.?!]\s)"
_TOPICS = (
    re.compile(rf"\b(?:for|about){_CLAUSE}", re.IGNORECASE),
    re.compile(rf"\b(?:on|search|find|google){_CLAUSE}", re.IGNORECASE),
)
_NAMED = re.compile(r"\b(?:called|named|titled)\s+([^\s,;.?!]+)", re.IGNORECASE)

_NAME = r"[A-ZÀ-ÖØ-Þ][\w'’-]*(?:\s+[A-ZÀ-ÖØ-Þ][\w'’-]*)*"
_LIST_SEPARATOR = r"(?:\s*,\s*(?:(?:and|or)\s+)?|\s+(?:and|or|vs\.?|versus)\s+|\s*&\s*)(?:(?:in|for|at|of)\s+)?"
_PREPOSITION = r"\b(?i:in|for|at|near|of|from|to|between|around|about|visit|compare)\s+"
_PLACES = re.compile(rf"{_PREPOSITION}({_NAME}(?:{_LIST_SEPARATOR}{_NAME})*)")
_LOWER_PLACES = re.compile(r"\b(?:in|near)\s+([a-z]{3,}(?:(?:\s+and\s+|\s*,\s*)[a-z]{3,})*)")
_NAME_LIST = re.compile(rf"({_NAME}(?:{_LIST_SEPARATOR}{_NAME})+)")
_INNER_NAME = re.compile(rf"(?<=[a-z,:] )({_NAME})")
_SPLIT_LIST = re.compile(_LIST_SEPARATOR)
_COMMA = re.compile(r"\s*,\s*")

_NOT_PLACES = frozenset(
    "json xml yaml html csv markdown python javascript typescript rust go celsius fahrenheit kelvin english german "
    "french spanish italian january february march april may june july august september october november december "
    "monday tuesday wednesday thursday friday saturday sunday".split()
)
_REGIONS = frozenset(
    "france germany italy spain portugal england scotland ireland uk usa us austria switzerland belgium netherlands "
    "poland greece turkey japan china india brazil mexico canada australia texas california ontario egypt kenya".split()
)
"""After a comma these belong to the place before it."""

_VALUE_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("url", _URL),
    ("email", _EMAIL),
    ("moment", _MOMENT),
    ("date", _DATE),
    ("time", _TIME),
    ("path", _PATH),
)
"""Values that are known by their spelling, the more telling first."""


MAX_TEXT_LENGTH = 4_000
"""How much of a text is looked at; some looks take the square of its length."""


def find_values(text: str) -> TextValues:
    """Everything that a text offers."""
    text = text[:MAX_TEXT_LENGTH]
    found: dict[str, list[str]] = {}
    pairs, rest = _read_json_objects(text)
    for match in _PAIR.finditer(rest):
        pairs.setdefault(normalise_name(match[1]), _unquote(match[2]))
    rest = _extract_values(_FENCED, "fenced", rest, found)
    rest = _extract_values(_BACKTICKED, "code", rest, found)
    rest = _extract_values(_QUOTED, "quoted", rest, found)
    for inner in (*found.get("code", ()), *found.get("quoted", ())):
        kind = next((kind for kind, look in _VALUE_PATTERNS if look.fullmatch(inner)), None)
        if kind:
            found.setdefault(kind, []).append(inner)
    for kind, look in _VALUE_PATTERNS:
        rest = _extract_values(look, kind, rest, found)
    found["place"] = list(_find_places(rest))
    found["named"] = [match[1].strip("\"'“”`") for match in _NAMED.finditer(text)]
    found["topic"] = [topic[1].strip("\"'“”`") for look in _TOPICS for topic in look.finditer(text)][:1]
    found["command"] = found.get("code") or [match[1].strip("\"'“”`") for match in _COMMAND.finditer(text)]
    values = {kind: tuple(dict.fromkeys(values)) for kind, values in found.items() if values}
    return TextValues(text, pairs, values, tuple(_find_numbers(rest)))


def _read_json_objects(text: str) -> tuple[dict[str, Json], str]:
    """What the JSON objects in a text say, and the text without them."""
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
        pairs |= {normalise_name(key): inner for key, inner in value.items()}
        text = f"{text[:start]} {text[end:]}"
        start = text.find("{", start)
    return pairs, text


def _unquote(value: str) -> str:
    return value[1:-1] if value[0] in "\"'`" else value.rstrip(".,;!?)")


def _extract_values(pattern: re.Pattern[str], kind: str, text: str, found: dict[str, list[str]]) -> str:
    """Keep what looks so, and mask it."""

    def keep_value(match: re.Match[str]) -> str:
        value = next((group for group in match.groups() if group), match[0])
        found.setdefault(kind, []).append(value)
        return "_" * len(match[0])

    return pattern.sub(keep_value, text)


def _find_numbers(text: str) -> Iterator[NumberInText]:
    for match in _NUMBER.finditer(text):
        before, after = split_words(text[: match.start()][-40:]), split_words(text[match.end() :][:40])
        yield NumberInText(match[0], before[-1] if before else "", after[0] if after else "")


def _find_places(text: str) -> Iterator[str]:
    """Names after a preposition; without one, names within a sentence; at last, a small word after "in"."""
    looks = (_PLACES, _NAME_LIST, _INNER_NAME, _LOWER_PLACES)
    for look in looks:
        names = [name for match in look.finditer(text) for name in _split_names(match[1])]
        names = [name for name in names if _can_be_place(name)]
        if names:
            yield from names
            return


def _split_names(listed: str) -> Iterator[str]:
    """The names of a list; "Paris, France" is one."""
    pieces = _COMMA.split(listed)
    if len(pieces) == 2 and not re.search(r"\s(?:and|or)\s|&", listed):
        town, region = pieces
        if region.lower() in _REGIONS or (region.isupper() and len(region) == 2):
            yield f"{town}, {region}"
            return
    yield from _SPLIT_LIST.split(listed)


def _can_be_place(name: str) -> bool:
    first = name.lower().split()[0]
    return first not in STOP_WORDS and name.lower() not in _NOT_PLACES


_KIND_WORDS: tuple[tuple[str, str], ...] = (
    ("url", "url urls uri uris link links href website webpage endpoint"),
    ("email", "email emails mail recipient recipients"),
    ("command", "command commands cmd cmds argv script shell"),
    ("path", "path paths file files filename filenames filepath dir directory folder cwd workdir"),
    ("place", "city cities location locations place places town country region destination origin where venue airport"),
    ("date", "date dates day when datetime deadline since until"),
    ("code", "code snippet program source"),
    (
        "query",
        "query queries q search question prompt text message input content keyword keywords topic term terms pattern "
        "body subject expression string task thought",
    ),
    ("named", "name names title label user username person people assignee author owner project"),
)
"""The words of a parameter's name that say what it wants; the first row that has one of them counts."""
_KIND_BY_WORD: Mapping[str, int] = {
    word: row for row, (_, said) in reversed(list(enumerate(_KIND_WORDS))) for word in said.split()
}
_DESCRIPTION_KINDS = frozenset({"url", "email", "command", "path", "place", "date"})
"""Kinds that a description may tell, where the name says nothing."""

_KIND_BY_FORMAT: Mapping[str, str] = MappingProxyType(
    {"uri": "url", "url": "url", "email": "email", "date": "date", "date-time": "moment", "time": "time"}
)
_VALUE_SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "date": ("date", "moment"),
        "moment": ("moment",),
        "code": ("fenced", "code"),
        "query": ("quoted", "fenced", "code", "topic"),
        "named": ("named", "quoted"),
    }
)
"""Where the values of a kind are found, when it is not under the kind's own name."""

EXAMPLE_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "url": "https://example.com/",
        "email": "user@example.com",
        "command": "echo hello",
        "path": "example.txt",
        "place": "Paris",
        "date": "2026-01-01",
        "moment": "2026-01-01T12:00:00Z",
        "time": "12:00:00",
    }
)
"""What is said when a value is needed and the text has none. A command is harmless, because somebody may run it."""


def parameter_kind(name: str, node: Object) -> str:
    """What a parameter wants; "" when nothing tells."""
    if (kind := _KIND_BY_FORMAT.get(str(node.get("format", "")))) is not None:
        return kind
    rows = [_KIND_BY_WORD[word] for word in split_words(name) if word in _KIND_BY_WORD]
    if rows:
        return _KIND_WORDS[min(rows)][0]
    about = node.get("description")
    told = [
        _KIND_BY_WORD[word]
        for word in split_words(about if isinstance(about, str) else "")[:40]
        if word in _KIND_BY_WORD
    ]
    kinds = [_KIND_WORDS[row][0] for row in sorted(told)]
    return next((kind for kind in kinds if kind in _DESCRIPTION_KINDS), "")


def value_sources(kind: str) -> tuple[str, ...]:
    return _VALUE_SOURCES.get(kind, (kind,))


class ValuePicker:
    """The values of one offer while the arguments of one call are made of them: each is taken once, then again."""

    def __init__(self, text_values: TextValues) -> None:
        self.text_values = text_values
        self.text_words = split_words(text_values.text)
        self._word_set = frozenset(self.text_words)
        self._used_texts: set[str] = set()
        self._used_numbers: set[NumberInText] = set()

    def get_named_value(self, name: str) -> Json | UnsetType:
        """What the text says under this very name."""
        return self.text_values.named_values.get(normalise_name(name), UNSET) if name else UNSET

    def pick_text(self, kind: str, is_required: bool) -> str | None:
        """One value of a kind; when it is needed, whatever comes near."""
        for source in value_sources(kind):
            for value in self.text_values.of_kind(source):
                if value not in self._used_texts:
                    return self._mark_used(value)
        if not is_required:
            return None
        if kind in EXAMPLE_VALUES:
            return next(
                (value for source in value_sources(kind) for value in self.text_values.of_kind(source)),
                EXAMPLE_VALUES[kind],
            )
        return self._pick_any_text()

    def _pick_any_text(self) -> str:
        for source in ("quoted", "place", "named", "code"):
            for value in self.text_values.of_kind(source):
                if value not in self._used_texts:
                    return self._mark_used(value)
        return next(iter(self.text_values.of_kind("topic")), "") or self.text_values.text.strip()[:200] or "example"

    def pick_texts(self, kind: str, is_required: bool) -> list[str]:
        """All values of a kind that are left."""
        for source in (
            *value_sources(kind),
            *(("quoted", "place") if is_required and kind not in EXAMPLE_VALUES else ()),
        ):
            values = [value for value in self.text_values.of_kind(source) if value not in self._used_texts]
            if values:
                return [self._mark_used(value) for value in values]
        return []

    def _mark_used(self, value: str) -> str:
        self._used_texts.add(value)
        return value

    def pick_number(self, name: str, is_required: bool) -> str | None:
        """The number beside the parameter's name ("5 days", "limit 5"); when it is needed, the next one."""
        wanted = {_singular_form(word) for word in split_words(name)}
        left = [one for one in self.text_values.numbers if one not in self._used_numbers]
        beside = [one for one in left if wanted & {_singular_form(one.before), _singular_form(one.after)}]
        chosen = next(iter(beside or (left if is_required else ())), None)
        if chosen is None:
            return None
        self._used_numbers.add(chosen)
        return chosen.number

    def pick_numbers(self) -> list[str]:
        left = [one for one in self.text_values.numbers if one not in self._used_numbers]
        self._used_numbers.update(left)
        return [one.number for one in left]

    def read_flag(self, name: str) -> bool | None:
        """Is it mentioned, and not denied?"""
        wanted = [word for word in split_words(name) if word not in STOP_WORDS]
        if not wanted or not self._word_set.issuperset(wanted):
            return None
        position = self.text_words.index(wanted[0])
        return not {"no", "not", "without", "don", "never"} & set(self.text_words[max(0, position - 2) : position])

    def mentions(self, word: str) -> bool:
        """Does the text say this word, or all words of it?"""
        parts = split_words(word)
        return bool(parts) and self._word_set.issuperset(parts) and not STOP_WORDS.issuperset(parts)


def _singular_form(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def split_command(command: str) -> list[str]:
    """A command as its words."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
