"""What a text offers to somebody who looks for values: quoted words, places, paths, addresses, numbers, `key: value`.

Everything is found by its looks. What was found is masked, so that the next look does not find it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from toolwire.wire import Json

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


def words(text: str) -> list[str]:
    """The words of a name or a sentence, in lower case; `camelCase` and `snake_case` fall apart."""
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def plain(name: str) -> str:
    return "".join(words(name))


class Counted(Struct, frozen=True):
    """A number with the words beside it."""

    number: str
    before: str = ""
    after: str = ""


class Offer(Struct, frozen=True):
    text: str = ""
    pairs: Mapping[str, Json] = MappingProxyType({})
    """What `key: value`, `key=value` or a JSON object says, by the key's plain letters."""
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """What was found, by its kind."""
    numbers: tuple[Counted, ...] = ()

    def of(self, kind: str) -> tuple[str, ...]:
        return self.values.get(kind, ())

    def only(self, kind: str, value: str) -> Offer:
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
_TICKED = re.compile(r"`([^`\n]+)`")
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
_JOINT = r"(?:\s*,\s*(?:(?:and|or)\s+)?|\s+(?:and|or|vs\.?|versus)\s+|\s*&\s*)(?:(?:in|for|at|of)\s+)?"
_AFTER = r"\b(?i:in|for|at|near|of|from|to|between|around|about|visit|compare)\s+"
_PLACES = re.compile(rf"{_AFTER}({_NAME}(?:{_JOINT}{_NAME})*)")
_LOWER_PLACES = re.compile(r"\b(?:in|near)\s+([a-z]{3,}(?:(?:\s+and\s+|\s*,\s*)[a-z]{3,})*)")
_LISTED = re.compile(rf"({_NAME}(?:{_JOINT}{_NAME})+)")
_INNER_NAME = re.compile(rf"(?<=[a-z,:] )({_NAME})")
_SPLIT = re.compile(_JOINT)
_COMMA = re.compile(r"\s*,\s*")

_NO_PLACES = frozenset(
    "json xml yaml html csv markdown python javascript typescript rust go celsius fahrenheit kelvin english german "
    "french spanish italian january february march april may june july august september october november december "
    "monday tuesday wednesday thursday friday saturday sunday".split()
)
_REGIONS = frozenset(
    "france germany italy spain portugal england scotland ireland uk usa us austria switzerland belgium netherlands "
    "poland greece turkey japan china india brazil mexico canada australia texas california ontario egypt kenya".split()
)
"""After a comma these belong to the place before it."""

_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("url", _URL),
    ("email", _EMAIL),
    ("moment", _MOMENT),
    ("date", _DATE),
    ("time", _TIME),
    ("path", _PATH),
)
"""Values that are known by their spelling, the more telling first."""


LONGEST = 4_000
"""How much of a text is looked at; some looks take the square of its length."""


def heard(text: str) -> Offer:
    """Everything that a text offers."""
    text = text[:LONGEST]
    found: dict[str, list[str]] = {}
    pairs, rest = _objects(text)
    for match in _PAIR.finditer(rest):
        pairs.setdefault(plain(match[1]), _unquoted(match[2]))
    rest = _taken(_FENCED, "fenced", rest, found)
    rest = _taken(_TICKED, "code", rest, found)
    rest = _taken(_QUOTED, "quoted", rest, found)
    for inner in (*found.get("code", ()), *found.get("quoted", ())):
        kind = next((kind for kind, look in _MARKS if look.fullmatch(inner)), None)
        if kind:
            found.setdefault(kind, []).append(inner)
    for kind, look in _MARKS:
        rest = _taken(look, kind, rest, found)
    found["place"] = list(_places(rest))
    found["named"] = [match[1].strip("\"'“”`") for match in _NAMED.finditer(text)]
    found["topic"] = [topic[1].strip("\"'“”`") for look in _TOPICS for topic in look.finditer(text)][:1]
    found["command"] = found.get("code") or [match[1].strip("\"'“”`") for match in _COMMAND.finditer(text)]
    values = {kind: tuple(dict.fromkeys(values)) for kind, values in found.items() if values}
    return Offer(text, pairs, values, tuple(_numbers(rest)))


def _objects(text: str) -> tuple[dict[str, Json], str]:
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
        pairs |= {plain(key): inner for key, inner in value.items()}
        text = f"{text[:start]} {text[end:]}"
        start = text.find("{", start)
    return pairs, text


def _unquoted(value: str) -> str:
    return value[1:-1] if value[0] in "\"'`" else value.rstrip(".,;!?)")


def _taken(look: re.Pattern[str], kind: str, text: str, found: dict[str, list[str]]) -> str:
    """Keep what looks so, and mask it."""

    def keep(match: re.Match[str]) -> str:
        value = next((group for group in match.groups() if group), match[0])
        found.setdefault(kind, []).append(value)
        return "_" * len(match[0])

    return look.sub(keep, text)


def _numbers(text: str) -> Iterator[Counted]:
    for match in _NUMBER.finditer(text):
        before, after = words(text[: match.start()][-40:]), words(text[match.end() :][:40])
        yield Counted(match[0], before[-1] if before else "", after[0] if after else "")


def _places(text: str) -> Iterator[str]:
    """Names after a preposition; without one, names within a sentence; at last, a small word after "in"."""
    looks = (_PLACES, _LISTED, _INNER_NAME, _LOWER_PLACES)
    for look in looks:
        names = [name for match in look.finditer(text) for name in _apart(match[1])]
        names = [name for name in names if _can_be_place(name)]
        if names:
            yield from names
            return


def _apart(listed: str) -> Iterator[str]:
    """The names of a list; "Paris, France" is one."""
    pieces = _COMMA.split(listed)
    if len(pieces) == 2 and not re.search(r"\s(?:and|or)\s|&", listed):
        town, region = pieces
        if region.lower() in _REGIONS or (region.isupper() and len(region) == 2):
            yield f"{town}, {region}"
            return
    yield from _SPLIT.split(listed)


def _can_be_place(name: str) -> bool:
    first = name.lower().split()[0]
    return first not in STOP_WORDS and name.lower() not in _NO_PLACES
