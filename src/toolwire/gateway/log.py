"""One line an exchange, as JSON or for a terminal. What others wrote can neither forge a line nor show a key."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from toolwire.gateway.record import Record
from toolwire.wire import Json

BODY_LIMIT = 65536
"""Characters of a body that are logged where bodies are asked for."""
_BESIDE = 4096
"""Read beyond the limit, so that a key that lies across it is seen as one."""
_SHORTEST_SECRET = 12
"""Shorter ones are placeholders such as `ollama`, and hiding them would hide names."""
HIDDEN = "[hidden]"

_KEYS = re.compile(
    r"""(?ix)
    \b(?: sk | pk | rk | gsk | xai | pplx | hf | ghp | gho | github_pat | xox[abp] | AKIA | AIza | ya29 )
        (?: [-_.] | (?<=AKIA) | (?<=AIza) ) [\w\-.]{12,}
    | (?<=bearer\s) [\w\-.~+/=]{8,}
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.DOTALL,
)
_FIELDS = re.compile(
    r"""(?ix)
    ( \\*" (?: (?:[\w-]*[-_])? api[-_]?key | authorization(?:_token)? | password | client_secret | private_key
        | (?:access|refresh)_token ) \\*" \s*:\s* \\*" ) [^"\\]*
    """
)


def redact(text: str) -> str:
    """The text without what looks like a credential: known shapes of keys, and fields that hold one by their name."""
    return _KEYS.sub(HIDDEN, _FIELDS.sub(rf"\g<1>{HIDDEN}", text))


def clean(text: str, limit: int = 120) -> str:
    """A string of a peer's as it may stand in a line: printable and short, everything else escaped."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short_agent(agent: str) -> str:
    return clean(agent.partition(" (")[0], 40)


def to_stderr(line: str) -> None:
    """In one write. Nobody reads any more, or nothing was ever open: the exchange goes on."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(line)
        except (OSError, ValueError):
            return


def _body(body: bytes) -> str:
    """What is shown of a body: its start, without credentials."""
    text = redact(body[: 4 * (BODY_LIMIT + _BESIDE)].decode(errors="replace")[: BODY_LIMIT + _BESIDE])
    return text if len(text) <= BODY_LIMIT else f"{text[:BODY_LIMIT]}… ({len(body)} bytes)"


def _level(record: Record) -> str:
    if record.status >= 500 or (record.failure and record.status < 400):
        return "error"
    return "warn" if record.status >= 400 or record.losses or record.gone else "info"


class Line(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False, rename={"source": "from", "target": "to"}):
    """An exchange as a JSON line; what does not apply is left out."""

    time: str
    level: str
    event: str
    id: str
    key: str = ""
    agent: str = ""
    peer: str = ""
    verb: str = ""
    method: str = ""
    path: str = ""
    source: str = ""
    target: str = ""
    provider: str = ""
    asked: str = ""
    model: str = ""
    stream: bool = False
    passed: bool = False
    status: int = 0
    failure: str = ""
    gone: bool = False
    first_byte_ms: float | None = None
    ms: float = -1.0
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    estimated: bool = False
    losses: tuple[str, ...] = ()
    attempts: list[tuple[str, str, float]] = []
    upstream_id: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    note: str = ""
    request: str = ""
    response: str = ""


_encode = msgspec.json.Encoder().encode


def _attempts(record: Record) -> list[tuple[str, str, float]]:
    """Tries are worth telling when the first one was not the last."""
    if len(record.attempts) < 2 and all(outcome == "ok" for _, outcome, _ in record.attempts):
        return []
    return [(provider, clean(outcome), round(seconds * 1000, 1)) for provider, outcome, seconds in record.attempts]


def json_line(record: Record, stamp: str, bodies: bool) -> str:
    usage, started = record.usage, record.started
    line = Line(
        time=stamp,
        level=_level(record),
        event="exchange",
        id=clean(record.request_id),
        key=record.key,
        agent=short_agent(record.agent),
        peer=record.peer,
        verb=record.verb,
        method=clean(record.method, 16),
        path=clean(record.path.partition("?")[0]),
        source=record.source,
        target=record.target,
        provider=record.provider,
        asked=clean(record.asked),
        model=clean(record.model),
        stream=record.stream,
        passed=record.passed,
        status=record.status,
        failure=record.failure,
        gone=record.gone,
        first_byte_ms=round((record.first_byte - started) * 1000, 2) if record.first_byte else None,
        ms=round((record.ended - started) * 1000, 2),
        estimated=record.estimated,
        losses=record.losses,
        attempts=_attempts(record) if record.attempts else [],
        upstream_id=clean(record.upstream_id),
        bytes_in=record.bytes_in,
        bytes_out=record.bytes_out,
        note=clean(redact(record.note), 500) if record.note else "",
    )
    if usage is not None:
        line.input, line.output, line.reasoning = usage.input, usage.output, usage.reasoning
        line.cache_read, line.cache_write = usage.cache_read, usage.cache_write
    if bodies:
        line.request, line.response = _body(record.request_body), _body(record.response_body)
    return _encode(line).decode()


_PLAIN = re.compile(r"[\w./:@+,%~-]+")
_COLOURS = {"error": "31", "warn": "33", "info": "32"}


def _told(value: object) -> str:
    """A value in a readable line: in quotes where it could be taken for something else."""
    text = value if type(value) is str else str(value)
    return text if _PLAIN.fullmatch(text) else _encode(text).decode()


def _pairs(fields: Iterable[tuple[str, object]]) -> str:
    return "".join(f"  {name}={_told(value)}" for name, value in fields if value)


def _tokens(record: Record) -> str:
    usage = record.usage
    if usage is None:
        return ""
    cached = f" ({usage.cache_read} cached)" if usage.cache_read else ""
    return f"{'~' if record.estimated else ''}{usage.input} in{cached}, {usage.output} out"


def text_line(record: Record, stamp: str, bodies: bool, colour: bool) -> str:
    level = _level(record)
    status = f"{record.status or '---':>3}"
    if colour:
        status = f"\x1b[{_COLOURS[level]}m{status}\x1b[0m"
    took = f"{record.ended - record.started:8.3f}s"
    first = f"{record.first_byte - record.started:8.3f}s" if record.first_byte else "        -"
    route = f"{record.source or '-'} → {record.target or '-'}"
    where = _told(clean(f"{record.provider}/{record.model}")) if record.provider else record.verb
    fields: list[tuple[str, object]] = [
        ("failure", record.failure),
        ("gone", record.gone and "client"),
        ("losses", ",".join(record.losses)),
        ("asked", clean(record.asked) if record.asked != record.model else ""),
        ("path", clean(record.path.partition("?")[0]) if not record.provider else ""),
        ("attempts", ",".join(f"{p}:{clean(what)}" for p, what, _ in _attempts(record))),
        ("key", record.key),
        ("agent", short_agent(record.agent)),
        ("id", clean(record.request_id)),
        ("note", clean(redact(record.note), 500)),
    ]
    if bodies:
        fields += [("request", _body(record.request_body)), ("response", _body(record.response_body))]
    kind = "passed" if record.passed else "stream" if record.stream else ""
    return f"{stamp} {status} {took} {first}  {route:<36} {where:<36} {kind:<6} {_tokens(record):<28}{_pairs(fields)}"


def _colours() -> bool:
    stderr = sys.stderr
    return stderr is not None and not stderr.closed and stderr.isatty() and not os.environ.get("NO_COLOR")


class Log:
    """Where lines go and how they look. `none` writes no exchanges, but still the events."""

    def __init__(
        self, form: str, out: Callable[[str], None] = to_stderr, clock: Callable[[], float] = time.time
    ) -> None:
        self._out, self._clock = out, clock
        self._colour = _colours() if out is to_stderr else False
        self._second, self._stamp = -1, ""
        self._secrets: tuple[str, ...] = ()
        self._form = form
        self._bodies = False

    def configure(self, form: str, bodies: bool, secrets: Iterable[str] = ()) -> None:
        """How lines look from now on, and the keys that no line may show."""
        if form != self._form:
            self._second = -1
        self._form, self._bodies = form, bodies
        exact = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        escaped = {_encode(secret).decode()[1:-1] for secret in exact}
        self._secrets = tuple(sorted(exact | escaped, key=len, reverse=True))

    def _time(self, wall: float) -> str:
        second = int(wall)
        if second != self._second:
            moment = time.gmtime(second) if self._form == "json" else time.localtime(second)
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S" if self._form == "json" else "%H:%M:%S", moment)
            self._second = second
        return f"{self._stamp}.{int((wall - second) * 1000):03d}{'Z' if self._form == 'json' else ''}"

    def _write(self, line: str) -> None:
        for secret in self._secrets:
            if secret in line:
                line = line.replace(secret, HIDDEN)
        self._out(line + "\n")

    def exchange(self, record: Record) -> None:
        if self._form == "none":
            return
        stamp = self._time(record.wall)
        if self._form == "json":
            self._write(json_line(record, stamp, self._bodies))
        else:
            self._write(text_line(record, stamp, self._bodies, self._colour))

    def event(self, kind: str, fields: Mapping[str, object], level: str = "info") -> None:
        stamp = self._time(self._clock())
        shown = {name: _shown(value) for name, value in fields.items()}
        if self._form == "json":
            self._write(_encode({"time": stamp, "level": level, "event": kind, **shown}).decode())
            return
        word = f"\x1b[{_COLOURS[level]}m{kind}\x1b[0m" if self._colour else kind
        self._write(f"{stamp} {word}{_pairs(shown.items())}")


def _shown(value: object) -> Json:
    """A field of an event: numbers as they are, all else as clean text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return clean(redact(str(value)), 500)
