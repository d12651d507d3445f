"""Which of the values that a text offers fits a parameter, by its name, its description and its format."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import UNSET, UnsetType

from toolwire.gateway.loopback.offered import STOP_WORDS, Counted, Offer, plain, words
from toolwire.wire import Json, Object

_KINDS: tuple[tuple[str, str], ...] = (
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
_BY_WORD: Mapping[str, int] = {
    word: row for row, (_, said) in reversed(list(enumerate(_KINDS))) for word in said.split()
}
_TELLING = frozenset({"url", "email", "command", "path", "place", "date"})
"""Kinds that a description may tell, where the name says nothing."""

_FORMATS: Mapping[str, str] = MappingProxyType(
    {"uri": "url", "url": "url", "email": "email", "date": "date", "date-time": "moment", "time": "time"}
)
_SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "date": ("date", "moment"),
        "moment": ("moment",),
        "code": ("fenced", "code"),
        "query": ("quoted", "fenced", "code", "topic"),
        "named": ("named", "quoted"),
    }
)
"""Where the values of a kind are found, when it is not under the kind's own name."""

EXAMPLES: Mapping[str, str] = MappingProxyType(
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


def kind_of(name: str, node: Object) -> str:
    """What a parameter wants; "" when nothing tells."""
    if (kind := _FORMATS.get(str(node.get("format", "")))) is not None:
        return kind
    rows = [_BY_WORD[word] for word in words(name) if word in _BY_WORD]
    if rows:
        return _KINDS[min(rows)][0]
    about = node.get("description")
    told = [_BY_WORD[word] for word in words(about if isinstance(about, str) else "")[:40] if word in _BY_WORD]
    kinds = [_KINDS[row][0] for row in sorted(told)]
    return next((kind for kind in kinds if kind in _TELLING), "")


def sources(kind: str) -> tuple[str, ...]:
    return _SOURCES.get(kind, (kind,))


class Taking:
    """The values of one offer while the arguments of one call are made of them: each is taken once, then again."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.said = words(offer.text)
        self._known = frozenset(self.said)
        self._used: set[str] = set()
        self._counted: set[Counted] = set()

    def pair(self, name: str) -> Json | UnsetType:
        """What the text says under this very name."""
        return self.offer.pairs.get(plain(name), UNSET) if name else UNSET

    def text(self, kind: str, needed: bool) -> str | None:
        """One value of a kind; when it is needed, whatever comes near."""
        for source in sources(kind):
            for value in self.offer.of(source):
                if value not in self._used:
                    return self._use(value)
        if not needed:
            return None
        if kind in EXAMPLES:
            return next((value for source in sources(kind) for value in self.offer.of(source)), EXAMPLES[kind])
        return self._near()

    def _near(self) -> str:
        for source in ("quoted", "place", "named", "code"):
            for value in self.offer.of(source):
                if value not in self._used:
                    return self._use(value)
        return next(iter(self.offer.of("topic")), "") or self.offer.text.strip()[:200] or "example"

    def texts(self, kind: str, needed: bool) -> list[str]:
        """All values of a kind that are left."""
        for source in (*sources(kind), *(("quoted", "place") if needed and kind not in EXAMPLES else ())):
            values = [value for value in self.offer.of(source) if value not in self._used]
            if values:
                return [self._use(value) for value in values]
        return []

    def _use(self, value: str) -> str:
        self._used.add(value)
        return value

    def number(self, name: str, needed: bool) -> str | None:
        """The number beside the parameter's name ("5 days", "limit 5"); when it is needed, the next one."""
        wanted = {_singular(word) for word in words(name)}
        left = [one for one in self.offer.numbers if one not in self._counted]
        beside = [one for one in left if wanted & {_singular(one.before), _singular(one.after)}]
        chosen = next(iter(beside or (left if needed else ())), None)
        if chosen is None:
            return None
        self._counted.add(chosen)
        return chosen.number

    def numbers(self) -> list[str]:
        left = [one for one in self.offer.numbers if one not in self._counted]
        self._counted.update(left)
        return [one.number for one in left]

    def flag(self, name: str) -> bool | None:
        """Is it mentioned, and not denied?"""
        wanted = [word for word in words(name) if word not in STOP_WORDS]
        if not wanted or not self._known.issuperset(wanted):
            return None
        position = self.said.index(wanted[0])
        return not {"no", "not", "without", "don", "never"} & set(self.said[max(0, position - 2) : position])

    def mentions(self, word: str) -> bool:
        """Does the text say this word, or all words of it?"""
        parts = words(word)
        return bool(parts) and self._known.issuperset(parts) and not STOP_WORDS.issuperset(parts)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def argv(command: str) -> list[str]:
    """A command as its words."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
