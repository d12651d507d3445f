"""Plays a case: sends what the client sends, answers as the provider answers, and compares both with what must be.

Pure: how a request travels is the transport's business. `inprocess.py` is the transport that uses the library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET, Struct, structs

from toolwire.conformance.case import Case, Exchange, Sees, Turn
from toolwire.conformance.dialects import DIALECTS
from toolwire.conformance.dialects.dialect import Dialect
from toolwire.conformance.dialects.talks import TALKS
from toolwire.conformance.fill import Unfilled, filled
from toolwire.conformance.frames import Frame, compact, frames_of
from toolwire.conformance.match import Bound, differences, meets, shown
from toolwire.conformance.packing import PACKERS
from toolwire.conformance.strict import complaints, plainly

Json: TypeAlias = Any


class Asked(Struct, frozen=True):
    """A client's call, and which protocol the provider behind it shall speak."""

    protocol: str
    provider: str
    model: str
    stream: bool
    body: Json
    asks: str = ""
    encoding: str = ""
    leaves: str = ""


class Received(Struct, frozen=True):
    """The call as it reached the provider."""

    body: Json
    model: str
    stream: bool


class Given(Struct, frozen=True):
    """The provider's answer: the frames of a stream, or one body."""

    status: int
    headers: Mapping[str, str]
    pieces: tuple[str, ...]
    stream: bool
    awaited: Mapping[int, Callable[[str], bool]] = {}
    """By the number of a frame: has the client seen enough, by now, for the next frame to be sent?"""
    bytewise: bool = False
    cut: bool = False
    """Does the connection break where the answer should end?"""
    endless: bool = False
    """Or is there none, as long as the gateway listens?"""


class Seen(Struct, frozen=True):
    """What reached the client: for a stream one piece of text for each of the provider's frames, and one for its end.

    `losses` are the reported losses as plain objects; None where the transport cannot know them.
    """

    status: int
    headers: Mapping[str, str]
    pieces: tuple[str, ...]
    losses: Sequence[Mapping[str, Json]] | None = None
    trouble: str = ""
    """Why nothing more came, where the answer has no proper end."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


Answerer: TypeAlias = Callable[[Received], Given]


class Transport(Protocol):
    """Carries one call to the provider, which `answer` plays, and its answer back."""

    def send(self, asked: Asked, answer: Answerer) -> Seen: ...


class Outcome(Struct, frozen=True):
    """How a case went. A case that is out of reach was not played, and says why."""

    id: str
    passed: bool
    differences: tuple[str, ...] = ()
    out_of_reach: str = ""
    unsupported: str = ""
    """The gateway says that it has no such thing, and asked nobody."""


NO_SUCH_THING = frozenset({404, 405, 415, 501})
TRY_AGAIN = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Answers after which asking once more is nobody's fault."""
STUMBLES = (AttributeError, IndexError, KeyError, TypeError, ValueError, Unfilled)
"""What comes of data in a shape that nobody thought of; clients fall over it just so."""


def play(
    case: Case, transport: Transport, *, anyway: bool = False, same_mode: bool = True, formal: bool = True
) -> Outcome:
    """Play one case. `anyway` also plays what is out of the library's reach, for a gateway that can do more. Without
    `same_mode` a gateway may ask its provider for a stream or a whole answer as it likes; without `formal` a stream may
    lack what no client misses."""
    if case.out_of_reach and not (anyway and case.turns):
        return Outcome(case.id, False, (), case.out_of_reach)
    for turn in case.turns:
        if turn.client.encoding not in PACKERS:
            return Outcome(case.id, False, (), f"nothing here can pack a body with {turn.client.encoding}")
    run = _Run(transport, same_mode, formal)
    for number, turn in enumerate(case.turns):
        found = run.turn(turn)
        if number == 0 and run.unsupported:
            return Outcome(case.id, False, tuple(found), "", run.unsupported)
        if found:
            prefix = f"turn {number + 1}: " if len(case.turns) > 1 else ""
            return Outcome(case.id, False, tuple(prefix + line for line in found))
        if run.declined:
            break
    return Outcome(case.id, True)


class _Run:
    """One case under way: the names met and the answers seen so far."""

    def __init__(self, transport: Transport, same_mode: bool, formal: bool) -> None:
        self.transport = transport
        self.same_mode = same_mode
        self.formal = formal
        self.unsupported = ""
        self.declined = False
        """Was the client refused, as it may be?"""
        self.bound: Bound = {}
        self.answers: list[tuple[str, Json]] = []

    def turn(self, turn: Turn) -> list[str]:
        client, provider = turn.client, turn.provider
        try:
            body = filled(client.request, self.bound, self._echo)
        except Unfilled as error:
            return [str(error)]
        model = client.model or (body.get("model", "") if isinstance(body, dict) else "")
        about = (client.asks, client.encoding, client.leaves)
        asked = Asked(client.protocol, provider.protocol, model, client.stream, body, *about)
        script = _Script(turn, self.bound, self.same_mode)
        seen = self.transport.send(asked, script.answer)
        wanted = provider.exchanges or client.asks
        if wanted and not (script.calls or seen.trouble) and seen.status in NO_SUCH_THING:
            self.unsupported = f"answered {seen.status}: {shown(seen.text)}"
        # Nobody makes anything of an answer that was not awaited.
        folded, broken = (None, []) if client.leaves else _read(client.protocol, client.stream, seen, self.formal)
        self.declined = script.declined(isinstance(folded, dict) and bool(folded.get("error")))
        found = [*([seen.trouble] if seen.trouble else []), *script.differences(self.declined)]
        self.answers.append((client.protocol, folded))
        return [*found, *broken, *self._compared(turn, seen, folded), *_losses(turn, seen)]

    def _compared(self, turn: Turn, seen: Seen, folded: Json) -> list[str]:
        typed = DIALECTS[turn.client.protocol].typed and not self.formal
        return _compare(turn.client_sees, seen, folded, self.bound, typed)

    def _echo(self, number: int, texts: list[str] | None) -> list[Json]:
        if not 0 <= number < len(self.answers):
            raise Unfilled(f"there is no answer {number} yet")
        protocol, answer = self.answers[number]
        try:
            if texts is not None:
                return TALKS[protocol].results(answer, texts)
            return DIALECTS[protocol].history(answer)
        except STUMBLES:
            raise Unfilled(f"answer {number} cannot be echoed: {shown(answer)}") from None


class _Script:
    """The provider of one turn: answers by its script and notes what it was sent."""

    def __init__(self, turn: Turn, bound: Bound, same_mode: bool) -> None:
        self.scripted = turn
        self.same_mode = same_mode
        self.bound = bound
        self.calls = 0
        self.found: list[str] = []

    def answer(self, received: Received) -> Given:
        try:
            return self._answer(received)
        except STUMBLES as error:
            self.found.append(f"the provider stumbles over what it was sent ({error!r}): {shown(received.body)}")
            return Given(500, {}, ('{"error":{"message":"what is this?"}}',), False)

    def _answer(self, received: Received) -> Given:
        exchanges = self.scripted.provider.exchanges
        number, self.calls = self.calls, self.calls + 1
        if exchanges and number >= len(exchanges) and (exchanges[-1].status in TRY_AGAIN or exchanges[-1].fails):
            return given(exchanges[-1], self.scripted.provider.protocol, received, self.bound)
        if number >= len(exchanges):
            self.found.append(f"the provider was called {self.calls} times, expected {len(exchanges)}")
            return Given(500, {}, ('{"error":{"message":"unexpected call"}}',), False)
        exchange = exchanges[number]
        if exchange.expect is not UNSET:
            self.found += [
                f"provider{line}" for line in differences(exchange.expect, self._heard(received), self.bound)
            ]
        self.found += [f"the provider refuses: {line}" for line in self._refused(received)]
        # What may be left undone is not the client's own call, but one that the gateway makes for it.
        if self.same_mode and not exchange.optional and received.stream != self.scripted.client.stream:
            self.found.append(f"the provider was asked with stream={received.stream}")
        answered = given(exchange, self.scripted.provider.protocol, received, self.bound)
        return structs.replace(answered, awaited=self._awaited())

    def _heard(self, received: Received) -> Json:
        return plainly(self.scripted.provider.protocol, received.body)

    def _awaited(self) -> dict[int, Callable[[str], bool]]:
        return {int(number): partial(self._met, wanted) for number, wanted in self.scripted.client_sees.after.items()}

    def _met(self, wanted: Json, so_far: str) -> bool:
        return meets(wanted, so_far, dict(self.bound))

    def _refused(self, received: Received) -> list[str]:
        lenient = self.scripted.provider.lenient
        said = complaints(self.scripted.provider.protocol, received.body, received.model)
        return [line for line in said if not any(piece in line for piece in lenient)]

    def declined(self, refused: bool) -> bool:
        """Was the client refused where a call was not demanded?"""
        return refused and any(exchange.optional for exchange in self.scripted.provider.exchanges[self.calls :])

    def differences(self, declined: bool) -> list[str]:
        wanted = len(self.scripted.provider.exchanges)
        short = self.calls < wanted and not declined
        missing = [f"the provider was called {self.calls} times, expected {wanted}"] if short else []
        return [*self.found, *missing]


def given(exchange: Exchange, protocol: str, received: Received, bound: Bound) -> Given:
    """The provider's answer as it goes out."""
    answered = _given(exchange, protocol, received, bound)
    ending = {"cut": exchange.fails == "cut", "endless": exchange.fails == "endless"}
    return structs.replace(answered, bytewise=exchange.bytewise, **ending)


def _given(exchange: Exchange, protocol: str, received: Received, bound: Bound) -> Given:
    """Completed, and as a stream where that was asked for."""
    dialect = DIALECTS[protocol]
    model = received.model
    stream = received.stream and exchange.status < 400
    if exchange.sse is not UNSET:
        frames = _frames(exchange.sse, dialect, model, bound)
        if received.stream:
            return Given(exchange.status, exchange.headers, frames, True)
        whole = dialect.fold(frames_of("".join(frames))).body
        return Given(exchange.status, exchange.headers, (compact(whole),), False)
    body = filled(exchange.body, bound, _nothing) if exchange.body is not UNSET else {}
    if not exchange.whole and exchange.status < 400:
        body = dialect.complete(body, model)
    pieces = tuple(dialect.stream(body)) if stream else (body if isinstance(body, str) else compact(body),)
    return Given(exchange.status, exchange.headers, pieces, stream)


def _nothing(_number: int, _texts: list[str] | None) -> list[Json]:
    """Providers echo nothing."""
    return []


def _frames(sse: list[Json] | str, dialect: Dialect, model: str, bound: Bound) -> tuple[str, ...]:
    if isinstance(sse, str):
        return (sse,)
    return tuple(dialect.complete_frames(filled(sse, bound, _nothing), model))


def _read(protocol: str, stream: bool, seen: Seen, formal: bool) -> tuple[Json, list[str]]:
    """What the client makes of what it saw, and what it stumbles over."""
    if stream and seen.status < 400:
        try:
            folded = DIALECTS[protocol].fold(frames_of(seen.text))
        except STUMBLES as error:
            return None, [f"the client stumbles over the stream ({error!r}): {shown(seen.text)}"]
        held = [line for line in folded.complaints if formal or line not in folded.formalities]
        return folded.body, [f"the client stumbles: {line}" for line in held]
    try:
        return json.loads(seen.text), []
    except ValueError as error:
        return None, [f"the client gets no JSON ({error}): {shown(seen.text)}"]


def _compare(sees: Sees, seen: Seen, folded: Json, bound: Bound, typed: bool) -> list[str]:
    """`typed`: a frame without an event line is what its data says."""
    found = [f"client status{line}" for line in differences(sees.status, seen.status, bound)]
    if sees.headers is not UNSET:
        headers = {name.lower(): value for name, value in seen.headers.items()}
        found += [f"client header{line}" for line in differences(sees.headers, headers, bound)]
    if sees.body is not UNSET:
        found += [f"client{line}" for line in differences(sees.body, folded, bound)]
    if sees.events is not UNSET:
        events = [_plain(frame, typed) for frame in frames_of(seen.text)]
        wanted = {"$contains": sees.events} if isinstance(sees.events, list) else sees.events
        found += [f"client events{line}" for line in differences(wanted, events, bound)]
    if sees.text is not UNSET:
        found += [f"client text{line}" for line in differences(sees.text, seen.text, bound)]
    for number, wanted in sees.after.items():
        so_far = "".join(seen.pieces[: int(number) + 1])
        found += [f"client after frame {number}{line}" for line in differences(wanted, so_far, bound)]
    return found


def _plain(frame: Frame, typed: bool) -> Json:
    said = frame.data.get("type") if typed and isinstance(frame.data, dict) else None
    event = frame.event if frame.event is not None else said
    return {**({"event": event} if event is not None else {}), "data": frame.data}


def _losses(turn: Turn, seen: Seen) -> list[str]:
    """Every loss that the case names must be reported; an empty list demands that none was `lost`."""
    if turn.losses is None or seen.losses is None:
        return []
    if not turn.losses:
        lost = [dict(loss) for loss in seen.losses if loss["severity"] == "lost"]
        return [f"losses: expected none, got {shown(lost, 600)}"] if lost else []
    found = []
    for wanted in turn.losses:
        expected = {"code": wanted} if isinstance(wanted, str) else wanted
        if not any(meets(expected, dict(loss), {}) for loss in seen.losses):
            found.append(f"losses: {shown(expected)} is not among {[loss['code'] for loss in seen.losses]}")
    return found
