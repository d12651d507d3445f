"""One line an exchange, as JSON or for a terminal. What others wrote can neither forge a line nor show a key."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor

from toolwire.gateway.telemetry.clean import HIDDEN, SHORTEST_SECRET, clean, clean_body, redact, short_agent
from toolwire.gateway.telemetry.debug import Fields, told
from toolwire.gateway.telemetry.heard import Overheard
from toolwire.gateway.telemetry.lines import (
    DETAILS,
    attempts_of,
    encode,
    json_line,
    json_lines,
    json_repeated,
    level_of,
    path_of,
)
from toolwire.gateway.telemetry.record import Record
from toolwire.wire import Json


def to_stderr(line: str) -> None:
    """In one write. Nobody reads any more, or nothing was ever open: the exchange goes on."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(line)
        except (OSError, ValueError):
            return


LEVELS = ("debug", "info", "warn", "error")

Key = tuple[object, ...]
"""What the next exchange of the same client is likely to repeat."""


def _small(record: Record) -> bool:
    """Is it worth keeping? Clients choose these words, and nobody repeats a megabyte."""
    words = len(record.asked) + len(record.model) + len(record.agent) + len(record.path)
    return words <= 1000 and len(record.losses) <= 50


# --- for a terminal -------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[\w./:@+,%~-]+")
_COLOURS = {"error": "31", "warn": "33", "info": "32", "debug": "2"}


def _told(value: object) -> str:
    """A value in a readable line: in quotes where it could be taken for something else."""
    text = value if isinstance(value, str) else encode(value).decode()
    return text if _PLAIN.fullmatch(text) else encode(text).decode()


def _pairs(fields: Iterable[tuple[str, object]]) -> str:
    return "".join([f"  {name}={_told(value)}" for name, value in fields if value])


def _several(value: object) -> str:
    """A value that may be a list, of words or of what has fields."""
    if not isinstance(value, list):
        return _told(value)
    return f"[{', '.join([one if isinstance(one, str) else _fielded(one) for one in value])}]"


def _fielded(fields: Mapping[str, object]) -> str:
    """Its words, and its numbers with their names."""
    return " ".join([f"{one}" if isinstance(one, str) else f"{name}={one}" for name, one in fields.items()])


def _painted(text: str, level: str, colour: bool) -> str:
    return f"\x1b[{_COLOURS[level]}m{text}\x1b[0m" if colour else text


def text_repeated(record: Record, colour: bool) -> tuple[str, ...]:
    """The status, the columns, and the pairs at the end."""
    status = _painted(f"{record.status or '---':>3}", level_of(record), colour)
    route = f"{record.source or '-'} → {record.target or '-'}"
    where = _told(clean(f"{record.provider}/{record.model}")) if record.provider else record.verb
    kind = "passed" if record.passed else "stream" if record.stream else ""
    fields = (
        ("failure", record.failure),
        ("gone", "client" if record.gone else ""),
        ("losses", ",".join(dict.fromkeys(record.losses))),
        ("asked", clean(record.asked) if record.asked != record.model else ""),
        ("path", "" if record.provider else path_of(record)),
        ("key", clean(record.key)),
        ("agent", short_agent(record.agent)),
    )
    return status, f"{route:<36} {where:<36} {kind:<6}", _pairs(fields)


def _told_tokens(record: Record) -> str:
    usage = record.usage
    if usage is None:
        return ""
    cached = f" ({usage.cache_read} cached)" if usage.cache_read else ""
    return f"{'~' if record.estimated else ''}{usage.input} in{cached}, {usage.output} out"


def text_line(record: Record, stamp: str, repeated: tuple[str, ...], bodies: bool) -> str:
    status, columns, pairs = repeated
    started, first, rest = record.started, record.first_byte, ""
    if record.attempts and (tries := attempts_of(record.attempts)):
        rest = _pairs([("attempts", ",".join([f"{provider}:{outcome}" for provider, outcome, _ in tries]))])
    if record.calls:
        rest += _pairs([("calls", ",".join([f"{name}:{came}" for name, came in record.calls[:DETAILS]]))])
    if record.note:
        rest += _pairs([("note", clean(redact(record.note), 500))])
    if bodies:
        shown = clean_body(record.request_body), clean_body(record.response_body)
        rest += _pairs(zip(("request", "response"), shown, strict=True))
    took = f"{int((record.ended - started) * 1e3):>7} ms {int((first - started) * 1e3) if first else '-':>7} ms"
    tokens, id = _told_tokens(record), _told(clean(record.request_id))
    return f"{stamp} {status} {took}  {columns} {tokens:<28}{pairs}  id={id}{rest}\n"


# --- where lines go -------------------------------------------------------------------------------------------------


def _colours() -> bool:
    stderr = sys.stderr
    return stderr is not None and not stderr.closed and stderr.isatty() and not os.environ.get("NO_COLOR")


_KEPT = 1024
"""First parts of lines that are kept."""


class Log:
    """How lines look and where they go. `none` writes no exchanges, but still the events."""

    def __init__(
        self, form: str, out: Callable[[str], None] = to_stderr, clock: Callable[[], float] = time.time
    ) -> None:
        self._out, self._clock = out, clock
        self._colour = _colours() if out is to_stderr else False
        self._repeated: dict[Key, Json] = {}
        self.configure(form, False)

    def configure(self, form: str, bodies: bool, secrets: Iterable[str] = (), level: str = "info") -> None:
        """How lines look from now on, the keys that no line may show, and the least that is worth a line."""
        self._form, self._bodies = form, bodies
        self._least = LEVELS.index(level)
        self._second, self._stamp = -1.0, ""
        self._fractions = [f".{thousandth:03d}{'Z' if form == 'json' else ''}" for thousandth in range(1000)]
        self._repeated.clear()
        exact = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        escaped = {encode(secret).decode()[1:-1] for secret in exact}
        self._secrets = tuple(sorted(exact | escaped, key=len, reverse=True))

    def _time(self, wall: float) -> str:
        fraction = wall - self._second
        if not 0.0 <= fraction < 1.0:
            second = int(wall)
            utc = self._form == "json"
            moment = time.gmtime(second) if utc else time.localtime(second)
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S" if utc else "%H:%M:%S", moment)
            self._second = float(second)
            fraction = wall - second
        return self._stamp + self._fractions[floor(fraction * 1000)]

    def _write(self, line: str) -> None:
        for secret in self._secrets:
            if secret in line:
                line = line.replace(secret, HIDDEN)
        self._out(line)

    def _parts(self, key: Key, record: Record) -> Json:
        """What is repeated, in the form that the line of this log takes."""
        if len(self._repeated) >= _KEPT:
            self._repeated.clear()
        parts: Json = json_repeated(record) if self._form == "json" else text_repeated(record, self._colour)
        if _small(record):
            self._repeated[key] = parts
        return parts

    def exchanges(self, records: Sequence[Record]) -> None:
        """A line for each, and what was heard of it, in one write."""
        if self._form == "none":
            return
        if self._least > 1:
            records = [record for record in records if LEVELS.index(level_of(record)) >= self._least]
        is_json, bodies, repeated = self._form == "json", self._bodies, self._repeated
        write: Callable[[Record, str, Json, bool], object] = json_line if is_json else text_line
        lines: list[Json] = []
        last: Key = ()
        parts: Json = None
        for record in records:
            key = (
                record.key, record.agent, record.peer, record.verb, record.method, record.path, record.source,
                record.target, record.provider, record.asked, record.model, record.stream, record.passed,
                record.status, record.failure, record.gone, record.losses,
            )  # fmt: skip
            if key != last:  # neighbours are mostly alike
                last, parts = key, repeated.get(key) or self._parts(key, record)
            stamp = self._time(record.wall)
            lines.append(write(record, stamp, parts, bodies))
            if record.heard is not None:
                lines += self._heard(stamp, record, record.heard)
        if lines:
            self._write(json_lines(lines) if is_json else "".join(lines))

    def _heard(self, stamp: str, record: Record, heard: Overheard) -> list[Json]:
        id = clean(record.request_id)
        return [self._debug(stamp, id, fields) for fields in told(record, heard)]

    def _debug(self, stamp: str, id: str, fields: Fields) -> Json:
        said = {name: value for name, value in fields if value not in ("", [], 0)}
        if self._form == "json":
            return {"time": stamp, "event": "debug", "level": "debug", "id": id, **said}
        step = _painted(f"{said.pop('step'):>10}", "debug", self._colour)
        shown = [f"  {name}={_several(value)}" for name, value in said.items()]
        return f"{stamp} {step}{''.join(shown)}  id={_told(id)}\n"

    def event(self, kind: str, fields: Mapping[str, object], level: str = "info") -> None:
        if LEVELS.index(level) < self._least:
            return
        stamp = self._time(self._clock())
        shown = {name: _shown(value) for name, value in fields.items()}
        if self._form == "json":
            line = encode({"time": stamp, "event": kind, "level": level, **shown}).decode()
        else:
            line = f"{stamp} {_painted(kind, level, self._colour)}{_pairs(shown.items())}"
        self._write(line + "\n")


def _shown(value: object) -> Json:
    """A field of an event: numbers as they are, all else as clean text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return clean(redact(str(value)), 500)
