"""The JSON lines of exchanges. What others wrote can neither forge a line nor show a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from toolwire import loss
from toolwire.gateway.telemetry.clean import LIMIT, clean, clean_body, redact, short_agent
from toolwire.gateway.telemetry.record import Record
from toolwire.loss import Ledger, Told
from toolwire.wire import Json, pointer


def level_of(record: Record) -> str:
    if record.status >= 500 or (record.failure and record.status < 400):
        return "error"
    return "warn" if record.status >= 400 or record.losses or record.gone else "info"


def path_of(record: Record) -> str:
    """Without its query, which may hold a key."""
    return clean(record.path.partition("?")[0])


Tries = Sequence[tuple[str, str, float]]


def attempts_of(tries: Tries) -> Tries:
    """Tries are worth telling when the first one was not the last."""
    if not tries or (len(tries) == 1 and tries[0][1] == "ok"):
        return ()
    return [(provider, clean(outcome), _ms(seconds)) for provider, outcome, seconds in tries]


def _ms(seconds: float) -> float:
    return int(seconds * 1e5) / 1e2


class Repeated(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False, rename={"source": "from", "target": "to"}):
    """The first part of a JSON line, written once and kept; what does not apply is left out."""

    level: str
    key: str = ""
    agent: str = ""
    peer: str = ""
    verb: str
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
    losses: tuple[str, ...] = ()
    """Each code once."""
    lost: int = 0
    """How many losses there were."""


class Line(msgspec.Struct, omit_defaults=True, gc=False):
    """A JSON line: the part that is repeated rides in `event`, the rest is this exchange's own."""

    time: str
    event: msgspec.Raw
    id: str
    first_byte_ms: float | None
    ms: float
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    estimated: bool = False
    attempts: Tries = ()
    calls: Sequence[tuple[str, str]] = ()
    """Calls that were run here, and what came of them."""
    upstream_id: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    note: str = ""
    details: Sequence[Told] = ()
    """Every loss: its code, its place in the request or the answer, and what happened."""
    request: str = ""
    response: str = ""


_encoder = msgspec.json.Encoder()
encode, _encode_lines = _encoder.encode, _encoder.encode_lines
DETAILS = 100
"""Losses that a line tells in full; `lost` counts them all."""


def json_repeated(record: Record) -> msgspec.Raw:
    line = Repeated(
        level=level_of(record),
        key=clean(record.key),
        agent=short_agent(record.agent),
        peer=clean(record.peer),
        verb=record.verb,
        method=clean(record.method, 16),
        path=path_of(record),
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
        losses=tuple(dict.fromkeys(record.losses)),
        lost=len(record.losses),
    )
    return msgspec.Raw(b'"exchange",' + encode(line)[1:-1])


def _details(ledgers: Iterable[Ledger | None]) -> Sequence[Told]:
    """Not looked through: see `json_lines`."""
    details: list[Told] = []
    for ledger in ledgers:
        if ledger is not None:
            for code, where, what in ledger.notes:
                place = pointer(where)
                if len(place) > LIMIT or len(what) > LIMIT:
                    return _long_details(ledgers)
                details.append((code, place, what))
    count = len(details)
    if count > 1 and (count > DETAILS or len(set(details)) < count):
        return _long_details(ledgers)
    return details or ()


def _long_details(ledgers: Iterable[Ledger | None]) -> Sequence[Told]:
    """Where some are too long, too many, or the same."""
    return [(code, _short(place), _short(what)) for code, place, what in loss.told(ledgers)[:DETAILS]]


def _short(text: str) -> str:
    return clean(text) if len(text) > LIMIT else text


def json_line(record: Record, stamp: str, repeated: msgspec.Raw, bodies: bool) -> Line:
    started, first, tries, usage = record.started, record.first_byte, record.attempts, record.usage
    id, theirs = record.request_id, record.upstream_id
    if len(id) > LIMIT or len(theirs) > LIMIT:
        id, theirs = _short(id), _short(theirs)
    first_ms = (first - started) * 1e5 // 1.0 / 1e2 if first else None
    ms = (record.ended - started) * 1e5 // 1.0 / 1e2
    size, sent, details = record.bytes_in, record.bytes_out, _details(record.ledgers) if record.ledgers else ()
    if usage is None:
        line = Line(
            stamp, repeated, id, first_ms, ms, None, None, None, None, None, False, (), (), theirs, size, sent,
            "", details,
        )  # fmt: skip
    else:
        line = Line(
            stamp, repeated, id, first_ms, ms, usage.input, usage.output, usage.cache_read, usage.cache_write,
            usage.reasoning, record.estimated, (), (), theirs, size, sent, "", details,
        )  # fmt: skip
    if len(tries) != 1 or tries[0][1] != "ok":
        line.attempts = attempts_of(tries)
    if record.calls:
        line.calls = record.calls[:DETAILS]
    if record.note:
        line.note = clean(redact(record.note), 500)
    if bodies:
        line.request, line.response = clean_body(record.request_body), clean_body(record.response_body)
    return line


def _looked_through(line: Line) -> Line:
    line.id, line.upstream_id = _printable(line.id), _printable(line.upstream_id)
    line.details = tuple([(code, _printable(place), _printable(what)) for code, place, what in line.details])
    return line


def _printable(text: str) -> str:
    return text if text.isprintable() else clean(text)


def json_lines(lines: Sequence[Line | dict[str, Json]]) -> str:
    """What others wrote is looked through only where the whole shows that something is not printable."""
    try:
        text = _encode_lines(lines).decode()
        # Of ASCII, JSON escapes all control characters but one.
        if text.isascii() and text.find("\\") < 0 and text.find("\x7f") < 0:
            return text
    except UnicodeEncodeError:
        pass  # half a pair of surrogates, which is not printable either
    return _encode_lines([_looked_through(line) if type(line) is Line else line for line in lines]).decode()
