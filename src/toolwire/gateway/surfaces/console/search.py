"""Finds words in what the recent exchanges have sent and got: prompts, answers, arguments and results.

It runs in a thread of its own, in slices between which others get their turn. Whole bodies are searched as they are,
with words as JSON may write them; streams are put together once, and kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from toolwire.core import ir
from toolwire.gateway.surfaces.console import api
from toolwire.gateway.surfaces.console.rows import CleanText, exchange_id
from toolwire.gateway.telemetry.log import read_captured_response
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.protocols import CODECS

MAX_WORDS, MAX_WORD = 8, 100
MAX_HITS = 300
"""Exchanges that are found, the newest ones."""
SEARCH_SECONDS = 4.0
"""Of one worker: the others wait for its answer."""
MAX_KEPT = 16 * 1024 * 1024
"""Characters of answers that are kept, of streams that were put together."""
SLICE = 64 * 1024
OVERLAP = 2048
"""Bytes of the slice before: more than the longest word takes."""
AROUND = 4096
"""Bytes around a place that are cleaned with it: half of a credential would not be recognised."""
SHOWN = 80
"""Characters of the excerpt before and after the word."""
MAX_PLACES = 500
"""Places of a body at which a word is, but not where a person would look for it."""
_KEY_AFTER = re.compile(rb'[^"\\]{0,200}\\*"\s*:')
"""What follows a place in the name of a member."""
_CODE_BEFORE = re.compile(
    rb'"(?:role|type|object|model|finish_reason|stop_reason|status)\\*"\s*:\s*\\*"[^"\\]{0,100}\Z'
)
"""What is before a place in a value that the protocol defines."""
_ENCODED = re.compile(rb"[A-Za-z0-9+/=]{200,}")
_ESCAPED = re.compile(r"""\\+(?:u([0-9a-fA-F]{4})|(["\\/nrtbf]))""")

Pattern = re.Pattern[bytes]


def read_words(query: str) -> list[str]:
    return [word[:MAX_WORD].lower() for word in query.split()][:MAX_WORDS]


def compile_word(word: str) -> Pattern:
    """Finds a word in a body in lower case, however JSON writes it."""
    return re.compile(b"".join(map(_spell, word)))


def _spell(char: str) -> bytes:
    if char in '"\\':
        return rb"\\*" + re.escape(char.encode())
    if char in "<>&'/":  # some encoders escape them
        return b"(?:" + re.escape(char.encode()) + rb"|\\+u%04x|\\+/)" % ord(char)
    if char.isascii():
        return re.escape(char.encode())
    forms = dict.fromkeys((char, char.lower(), char.upper()))
    written = [form.encode("utf-8", "surrogatepass") for form in forms]
    units = [form.encode("utf-16-be", "surrogatepass") for form in forms]
    escaped = [b"".join(rb"\\+u%02x%02x" % (unit[at], unit[at + 1]) for at in range(0, len(unit), 2)) for unit in units]
    return b"(?:" + b"|".join([*map(re.escape, written), *escaped]) + b")"


class Searcher:
    """Searches the exchanges of one process, and keeps the texts of streamed answers."""

    def __init__(self, clean_text_of: Callable[[ExchangeRecord], CleanText]) -> None:
        self._clean_text_of = clean_text_of
        self._answers: dict[int, bytes] = {}
        """The texts of streamed answers, by the number of the exchange; what was used last is at the end."""

    def search(self, records: Iterable[ExchangeRecord], worker: int, query: str) -> api.SearchResult:
        """The newest first. `is_complete` is False if there was no time for all, or there are more."""
        patterns = [compile_word(word) for word in read_words(query)]
        hits: list[api.SearchHit] = []
        end = time.monotonic() + SEARCH_SECONDS
        for record in records if patterns else ():
            if len(hits) >= MAX_HITS or time.monotonic() > end:
                return api.SearchResult(hits=hits, is_complete=False)
            excerpt = self._search_record(record, patterns)
            if excerpt is not None:
                hits.append(api.SearchHit(id=exchange_id(worker, record.number), excerpt=excerpt))
        return api.SearchResult(hits=hits, is_complete=True)

    def _search_record(self, record: ExchangeRecord, patterns: Sequence[Pattern]) -> str | None:
        """What is around the first word, if all words are there."""
        bodies, clean = [*self._list_bodies(record)], self._clean_text_of(record)
        excerpts: list[str] = []
        for pattern in patterns:
            found = next((excerpt for body in bodies if (excerpt := find_word(body, pattern, clean)) is not None), None)
            if found is None:
                return None
            excerpts.append(found)
        return excerpts[0]

    def _list_bodies(self, record: ExchangeRecord) -> Iterator[bytes]:
        capture = record.traffic.capture
        if capture is None:
            return
        yield capture.client_request
        yield self._read_answer(record, capture.client_response.data)
        if len(capture.upstream_calls) > 1:  # results of tools that the gateway has run are only there
            yield capture.upstream_calls[-1].body

    def _read_answer(self, record: ExchangeRecord, data: bytes) -> bytes:
        codec = CODECS.get(record.client.protocol)
        if codec is None or not record.asked.stream or record.status >= 400 or data.lstrip()[:1] == b"{":
            return data
        text = self._answers.pop(record.number, None)
        if text is None:
            response = read_captured_response(codec, data)
            parts = [part for choice in response.choices for part in choice.parts] if response is not None else []
            text = "\n".join(list_texts(parts)).encode("utf-8", "replace")
        if record.ended:
            self._answers[record.number] = text
            while len(self._answers) > 1 and sum(map(len, self._answers.values())) > MAX_KEPT:
                del self._answers[next(iter(self._answers))]
        return text


def list_texts(parts: Iterable[ir.Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case ir.Text() | ir.Refusal() | ir.Reasoning() | ir.Summary():
                yield part.text
            case ir.Call():
                yield f"{part.name} {part.arguments}"
            case ir.ProviderCall():
                yield f"{part.tool} {part.arguments}"


def find_word(body: bytes, pattern: Pattern, clean: CleanText) -> str | None:
    """What is around a word in a body, without credentials; None if it is not there, or only in what is hidden, in
    names of the protocol, or in a picture."""
    start, places = 0, 0
    while start < len(body):
        begin = max(0, start - OVERLAP)
        piece = body[begin : start + SLICE].lower()
        at = 0
        while places < MAX_PLACES and (found := pattern.search(piece, at)) is not None:
            places += 1
            place, at = begin + found.start(), max(found.end(), found.start() + 1)
            encoded = _ENCODED.match(piece, max(0, found.start() - 100))
            if encoded is not None:
                at = max(at, encoded.end())
                continue
            excerpt = write_excerpt(body, place, begin + found.end(), pattern, clean)
            if excerpt is not None:
                return excerpt
        start += SLICE
        time.sleep(0)  # others get their turn
    return None


def write_excerpt(body: bytes, start: int, end: int, pattern: Pattern, clean: CleanText) -> str | None:
    before, after = body[max(0, start - AROUND) : start], body[end : end + AROUND]
    if _KEY_AFTER.match(after) is not None or _CODE_BEFORE.search(before[-150:]) is not None:
        return None
    text = clean((before + body[start:end] + after).decode("utf-8", "replace")).encode("utf-8", "replace")
    lower, middle = text.lower(), len(before)
    places = [found.span() for found in pattern.finditer(lower)]
    if not places:
        return None  # it is in what is hidden
    first, last = min(places, key=lambda span: abs(span[0] - middle))
    parts = (text[max(0, first - 4 * SHOWN) : first], text[first:last], text[last : last + 4 * SHOWN])
    left, word, right = (_ESCAPED.sub(_unescape, part.decode("utf-8", "ignore")) for part in parts)
    return f"{left[-SHOWN:]}{word}{right[:SHOWN]}"


def _unescape(found: re.Match[str]) -> str:
    if found[1]:
        code = int(found[1], 16)
        return chr(code) if not 0xD800 <= code < 0xE000 else "�"
    return found[2] if found[2] in '"\\/' else " "
