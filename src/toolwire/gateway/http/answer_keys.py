"""Keeps a provider's own keys out of its answer, also those that it spells in several events of a stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from toolwire.gateway.http.redact import HIDDEN_KEY, KeyFilter

MAX_LINE = 16 * 1024
"""Bytes of an event in which pieces of a key are searched for: events with a few letters are short."""
MAX_BODY = 128 * 1024
"""The same for a whole body, of which all strings are read at once."""
MAX_HELD = 512 * 1024
"""Bytes of events that wait for the rest of a key, at most."""
EVENTS_PER_LETTER = 4
"""How many events without a piece of a key may stand between two pieces, for each letter that is there: pings, empty
deltas, other choices. What ends like one letter of a key must not wait for long."""

_LABELS = frozenset(
    b"type object status role phase id item_id call_id response_id responseId model modelVersion provider service_tier "
    b"system_fingerprint finish_reason finishReason stop_reason native_finish_reason obfuscation p".split()
)
"""Members that hold ids and the words of a protocol. Clients put no text together of them, and they must not wait: a
`status` that is `in_progress` ends like the first letter of many keys. Converse fills its events up with `p`."""
_EVENT_START = b"data:"
_EVENT_LINE = re.compile(rb"(?:\A|[\r\n])data:")
_STRING = re.compile(
    rb"""(?<!\\) "((?:[^"\\]|\\.)*+)" \s*+ (?: :\s*+ (?: "((?:[^"\\]|\\.)*+)" )? | () )""", re.DOTALL | re.VERBOSE
)
"""A member, of which the second group is a string, or a string of a list, with the third group. No opening quotation
mark stands behind a backslash."""
_INDEX = re.compile(rb'[iI]ndex"\s*:\s*(\d+)')
_LETTERS = re.compile(rb"\\{1,4}u00[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+", re.DOTALL)
_SHORT_ESCAPES = {b"\\n": b"\n", b"\\t": b"\t", b"\\r": b"\r", b"\\b": b"\b", b"\\f": b"\f", b"\\\\": b""}

_Slot = tuple[tuple[bytes, ...], bytes, int]
"""What is the same for all pieces of one text: the indexes in its events, the member's name, and which of the members
with that name it is."""


class _Letters(NamedTuple):
    """The letters of a string, and where each of them is in its line. Backslashes are left out: arguments are JSON
    within JSON, and their letters may be escaped once more."""

    text: bytes
    places: Sequence[int]
    begin: int
    end: int


class _String(NamedTuple):
    name: bytes
    """Of the member; empty in a list."""
    text: bytes
    begin: int


class _Piece(NamedTuple):
    """Letters of a string that may belong to a key."""

    line: int
    letters: _Letters
    first: int
    """Its letters from this one on."""


class _Start(NamedTuple):
    """The start of a key at the end of a text."""

    text: bytes
    pieces: list[_Piece]
    event: int
    """The number of the event that brought the last piece."""
    number: int = 0
    """Counts the starts, the latest last."""


class _Starts:
    """The starts of keys that wait for more, by their texts' slots. An event can have thousands of them, but only as
    many different texts as keys have starts: a search looks at each of these once."""

    def __init__(self) -> None:
        self._by_slot: dict[_Slot, _Start] = {}
        self._slots: dict[bytes, dict[_Slot, None]] = {}
        """The slots of each text of a start, the latest last."""
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._by_slot)

    def __iter__(self) -> Iterator[_Start]:
        return iter(self._by_slot.values())

    def put(self, slot: _Slot, start: _Start) -> None:
        """A slot that has none."""
        self._count += 1
        self._by_slot[slot] = start._replace(number=self._count)
        self._slots.setdefault(start.text, {})[slot] = None

    def pop(self, slot: _Slot) -> _Start | None:
        start = self._by_slot.pop(slot, None)
        if start is not None:
            slots = self._slots[start.text]
            del slots[slot]
            if not slots:
                del self._slots[start.text]
        return start

    def clear(self) -> None:
        self._by_slot.clear()
        self._slots.clear()

    def find_latest(self, goes_on: Callable[[bytes], bool]) -> _Start | None:
        """The latest of those whose text goes on."""
        found = [self._by_slot[next(reversed(slots))] for text, slots in self._slots.items() if goes_on(text)]
        return max(found, key=lambda start: start.number, default=None)

    def forget_old(self, events: int) -> None:
        old = [
            slot for slot, start in self._by_slot.items() if events - start.event > EVENTS_PER_LETTER * len(start.text)
        ]
        for slot in old:
            self.pop(slot)


class AnswerKeys:
    """Removes the keys from one answer. What may be the start of a key waits until the rest of it is there, or is known
    not to come."""

    def __init__(self, known: KeyFilter) -> None:
        self.known = known
        self.is_waiting = False
        self._rest = b""
        """The start of a line, or as much of its end as may be the start of a key."""
        self._is_line_cut = False
        """Was the start of the line in `_rest` already shown?"""
        self._lines: list[bytes] = []
        """Lines that wait for the rest of a key."""
        self._cuts: dict[int, list[tuple[int, int, bytes]]] = {}
        """What to replace in them, by the number of the line."""
        self._first_line = 0
        """The number of the first one."""
        self._held_size = 0
        self._events = 0
        self._starts = _Starts()
        self._last_texts: dict[_Slot, bytes] = {}
        """The strings of the last event that was searched."""

    def feed(self, data: bytes) -> bytes:
        """A piece of the body without keys; less of it, if its end must wait."""
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        out, rest = self._pass_lines(data[:end]) if end else b"", data[end:]
        must_wait = self._lines or rest.startswith(_EVENT_START) or _EVENT_START.startswith(rest)
        if rest and (self._is_line_cut or len(rest) > MAX_LINE or not must_wait):
            rest = self.known.clean(rest)
            shown = len(rest) - self.known.count_open(rest)
            if shown:
                self._is_line_cut = True
                self._starts.clear()
                out += self._release() + rest[:shown]
            rest = rest[shown:]
        self._rest = rest
        self.is_waiting = bool(rest or self._lines)
        return out

    def clean_body(self, data: bytes) -> bytes:
        """A whole body without keys, also those that several of its strings spell. Large ones are searched in slices:
        a search holds up the event loop also where it runs in a thread."""
        slices = [data[at : at + MAX_BODY] for at in range(0, len(data), MAX_BODY)]
        data = b"".join([*map(self.feed, slices), self.close()])
        if len(data) > MAX_BODY or self.known.is_clean(data) or _EVENT_LINE.search(data) is not None:
            return data
        strings = sorted(_find_strings(data), key=lambda one: not one.name)  # those of lists last
        if self.known.find_key(_read_letters(b"".join([one.text for one in strings]), 0).text) is None:
            return data
        pieces = [_Piece(self._first_line, _read_letters(one.text, one.begin), 0) for one in strings]
        self._lines.append(data)
        self._cut_keys(pieces, b"".join([piece.letters.text for piece in pieces]))
        return self._release()

    def close(self) -> bytes:
        """What still waits."""
        rest, self._rest = self._rest, b""
        out = self._pass_lines(rest) if rest else b""
        self._starts.clear()
        self.is_waiting = False
        return out + self._release()

    def _pass_lines(self, data: bytes) -> bytes:
        """Whole lines: what can be shown now."""
        if not self._starts:
            is_clean = self.known.is_clean(data)
            if is_clean or data.find(_EVENT_START) < 0:
                self._is_line_cut = False
                return data if is_clean else self.known.clean(data)
        return b"".join(map(self._pass_line, data.splitlines(keepends=True)))

    def _pass_line(self, line: bytes) -> bytes:
        is_cut, self._is_line_cut = self._is_line_cut, False
        is_clean = self.known.is_clean(line)
        if is_clean and not self._starts:
            return line
        line = line if is_clean else self.known.clean(line)
        self._lines.append(line)
        self._held_size += len(line)
        if len(line) > MAX_LINE or self._held_size > MAX_HELD:
            self._starts.clear()
        elif not is_cut and line.startswith(_EVENT_START):
            self._events += 1
            self._search_event(line)
            self._starts.forget_old(self._events)
        return self._release()

    def _release(self) -> bytes:
        """The lines that no start of a key waits in, without the keys that were found in them."""
        end = self._first_line + len(self._lines)
        end = min((start.pieces[0].line for start in self._starts), default=end)
        count = end - self._first_line
        lines, self._lines = self._lines[:count], self._lines[count:]
        self._held_size -= sum(map(len, lines))
        for number in range(self._first_line, end) if self._cuts else ():
            line = lines[number - self._first_line]
            shown = len(line)
            for begin, stop, instead in sorted(self._cuts.pop(number, ()), reverse=True):
                if stop <= shown:  # not a second time
                    line, shown = line[:begin] + instead + line[stop:], begin
            lines[number - self._first_line] = line
        self._first_line = end
        return b"".join(lines)

    def _search_event(self, line: bytes) -> None:
        indexes, counts, texts = tuple(_INDEX.findall(line)), dict[bytes, int](), dict[_Slot, bytes]()
        for name, text, place in _find_strings(line):
            counts[name] = counts.get(name, -1) + 1
            slot = (indexes, name, counts[name])
            texts[slot] = text
            # What every event says is no text that goes on.
            is_repeated = self._last_texts.get(slot) == text
            begin = 0 if text.find(b"\\") >= 0 else self.known.find_start(text)
            if text and (self._starts or begin < (1 if is_repeated else len(text))):
                self._search_text(slot, _read_letters(text, place), is_repeated)
        self._last_texts = texts

    def _search_text(self, slot: _Slot, letters: _Letters, is_repeated: bool) -> None:
        start = self._take_start(slot, letters.text)
        before = start.text if start is not None else b""
        pieces = [
            *(start.pieces if start is not None else ()),
            _Piece(self._first_line + len(self._lines) - 1, letters, 0),
        ]
        pieces, text = self._cut_keys(pieces, before + letters.text)
        begin = self.known.find_start(text)
        if begin < len(text) and not (is_repeated and len(text) - begin < len(letters.text)):
            self._starts.put(slot, _Start(text[begin:], _skip_letters(pieces, begin), self._events))

    def _take_start(self, slot: _Slot, text: bytes) -> _Start | None:
        """The start of a key before a text. Clients also put the texts of several parts together, so it may be the end
        of another text, if the key goes on here; perhaps it also goes on there."""
        own = self._starts.pop(slot)
        if own is not None and self.known.goes_on(own.text, text):
            return own
        return self._starts.find_latest(lambda start: self.known.goes_on(start, text)) or own

    def _cut_keys(self, pieces: list[_Piece], text: bytes) -> tuple[list[_Piece], bytes]:
        """Hide the keys in the text of these pieces. What follows the last one."""
        while (found := self.known.find_key(text)) is not None:
            begin, end = found
            self._cut_key(_skip_letters(pieces, begin), end - begin)
            pieces, text = _skip_letters(pieces, end), text[end:]
        return pieces, text

    def _cut_key(self, pieces: list[_Piece], size: int) -> None:
        instead = HIDDEN_KEY
        for at, (line, letters, first) in enumerate(pieces):
            begin = letters.places[first] if at == 0 else letters.begin
            count = len(letters.text) - first
            end = letters.places[first + size] if size < count else letters.end
            self._cuts.setdefault(line, []).append((begin, end, instead))
            size, instead = size - count, b""
            if size <= 0:
                return


def _find_strings(data: bytes) -> Iterator[_String]:
    """Those of which a client may make a text, of members and of lists."""
    for found in _STRING.finditer(data):
        if found.lastindex == 3:
            yield _String(b"", found[1], found.start(1))
        elif found.lastindex == 2 and found[1] not in _LABELS:
            yield _String(found[1], found[2], found.start(2))


def _read_letters(text: bytes, begin: int) -> _Letters:
    end = begin + len(text)
    if text.find(b"\\") < 0:
        return _Letters(text, range(begin, end), begin, end)
    letters, places = bytearray(), list[int]()
    for found in _LETTERS.finditer(text):
        at, run = begin + found.start(), found[0]
        if run.startswith(b"\\"):
            run = _unescape(run)
            places += [at] * len(run)
        else:
            places += range(at, at + len(run))
        letters += run
    return _Letters(bytes(letters), places, begin, end)


def _unescape(letter: bytes) -> bytes:
    if len(letter) > len(b"\\u"):
        letter = chr(int(letter[-4:], 16)).encode("utf-8", "surrogatepass")
        return b"" if letter == b"\\" else letter
    return _SHORT_ESCAPES.get(letter, letter[1:])


def _skip_letters(pieces: list[_Piece], count: int) -> list[_Piece]:
    """The pieces without so many letters at their start."""
    for at, piece in enumerate(pieces):
        size = len(piece.letters.text) - piece.first
        if count < size:
            return [piece._replace(first=piece.first + count), *pieces[at + 1 :]]
        count -= size
    return []
