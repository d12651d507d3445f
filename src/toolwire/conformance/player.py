"""Plays a case: sends what the client sends, answers as the provider answers, and compares both with what must be.

Pure: how a request travels is the transport's business. `inprocess.py` is the transport that uses the library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from msgspec import UNSET, Struct, structs

from toolwire.conformance.case import Case, CaseTurn, ClientExpectation, ProviderExchange
from toolwire.conformance.expectations import (
    Bindings,
    MissingValue,
    fill_template,
    find_differences,
    meets_expectation,
    show_value,
)
from toolwire.conformance.peers import PEERS, TOOL_SCENARIOS
from toolwire.conformance.peers.peer import COMPRESSORS, ProtocolPeer, SseFrame, encode_json, read_frames
from toolwire.conformance.strict import find_violations, normalise_body
from toolwire.core.json_values import Json


class ClientCall(Struct, frozen=True):
    """A client's call, and which protocol the provider behind it shall speak."""

    protocol: str
    provider: str
    model: str
    stream: bool
    body: Json
    asks: str = ""
    encoding: str = ""
    leaves: str = ""


class ReceivedCall(Struct, frozen=True):
    """The call as it reached the provider."""

    body: Json
    model: str
    stream: bool


class ProviderAnswer(Struct, frozen=True):
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


class ClientView(Struct, frozen=True):
    """What reached the client: for a stream one piece of text for each of the provider's frames, and one for its end.

    `losses` are the reported losses as plain objects; None where the transport cannot know them.
    """

    status: int
    headers: Mapping[str, str]
    pieces: tuple[str, ...]
    losses: Sequence[Mapping[str, Json]] | None = None
    problem: str = ""
    """Why nothing more came, where the answer has no proper end."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


AnswerCall: TypeAlias = Callable[[ReceivedCall], ProviderAnswer]


class Transport(Protocol):
    """Carries one call to the provider, which `answer` plays, and its answer back."""

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView: ...


class CaseOutcome(Struct, frozen=True):
    """How a case went. A case that is out of reach was not played, and says why."""

    id: str
    passed: bool
    differences: tuple[str, ...] = ()
    out_of_reach: str = ""
    unsupported: str = ""
    """The gateway says that it has no such thing, and asked nobody."""


UNSUPPORTED_STATUSES = frozenset({404, 405, 415, 501})
RETRY_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Answers after which asking once more is nobody's fault."""
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, MissingValue)
"""What comes of data in a shape that nobody thought of; clients fall over it just so."""


def play_case(
    case: Case,
    transport: Transport,
    *,
    include_out_of_reach: bool = False,
    same_mode: bool = True,
    is_formal: bool = True,
) -> CaseOutcome:
    """Play one case. `anyway` also plays what is out of the library's reach, for a gateway that can do more. Without
    `same_mode` a gateway may ask its provider for a stream or a whole answer as it likes; without `formal` a stream may
    lack what no client misses."""
    if case.out_of_reach and not (include_out_of_reach and case.turns):
        return CaseOutcome(case.id, False, (), case.out_of_reach)
    for turn in case.turns:
        if turn.client.encoding not in COMPRESSORS:
            return CaseOutcome(case.id, False, (), f"nothing here can pack a body with {turn.client.encoding}")
    run = _CaseRun(transport, same_mode, is_formal)
    for number, turn in enumerate(case.turns):
        found = run.play_turn(turn)
        if number == 0 and run.unsupported:
            return CaseOutcome(case.id, False, tuple(found), "", run.unsupported)
        if found:
            prefix = f"turn {number + 1}: " if len(case.turns) > 1 else ""
            return CaseOutcome(case.id, False, tuple(prefix + line for line in found))
        if run.was_declined:
            break
    return CaseOutcome(case.id, True)


class _CaseRun:
    """One case under way: the names met and the answers seen so far."""

    def __init__(self, transport: Transport, same_mode: bool, is_formal: bool) -> None:
        self.transport = transport
        self.same_mode = same_mode
        self.is_formal = is_formal
        self.unsupported = ""
        self.was_declined = False
        """Was the client refused, as it may be?"""
        self.bindings: Bindings = {}
        self.answers: list[tuple[str, Json]] = []

    def play_turn(self, turn: CaseTurn) -> list[str]:
        client, provider = turn.client, turn.provider
        try:
            body = fill_template(client.request, self.bindings, self._echo_turns)
        except MissingValue as error:
            return [str(error)]
        model = client.model or (body.get("model", "") if isinstance(body, dict) else "")
        about = (client.asks, client.encoding, client.leaves)
        asked = ClientCall(client.protocol, provider.protocol, model, client.stream, body, *about)
        script = _ScriptedProvider(turn, self.bindings, self.same_mode)
        seen = self.transport.send_call(asked, script.answer_call)
        wanted = provider.exchanges or client.asks
        if wanted and not (script.calls or seen.problem) and seen.status in UNSUPPORTED_STATUSES:
            self.unsupported = f"answered {seen.status}: {show_value(seen.text)}"
        # Nobody makes anything of an answer that was not awaited.
        folded, broken = (
            (None, []) if client.leaves else _read_client_answer(client.protocol, client.stream, seen, self.is_formal)
        )
        self.was_declined = script.was_declined(isinstance(folded, dict) and bool(folded.get("error")))
        found = [*([seen.problem] if seen.problem else []), *script.list_problems(self.was_declined)]
        self.answers.append((client.protocol, folded))
        return [*found, *broken, *self._compare_view(turn, seen, folded), *_compare_losses(turn, seen)]

    def _compare_view(self, turn: CaseTurn, view: ClientView, folded: Json) -> list[str]:
        typed = PEERS[turn.client.protocol].uses_data_type and not self.is_formal
        return _compare_expectation(turn.client_sees, view, folded, self.bindings, typed)

    def _echo_turns(self, number: int, texts: list[str] | None) -> list[Json]:
        if not 0 <= number < len(self.answers):
            raise MissingValue(f"there is no answer {number} yet")
        protocol, answer = self.answers[number]
        try:
            if texts is not None:
                return TOOL_SCENARIOS[protocol].write_results(answer, texts)
            return PEERS[protocol].history_turns(answer)
        except SHAPE_ERRORS:
            raise MissingValue(f"answer {number} cannot be echoed: {show_value(answer)}") from None


class _ScriptedProvider:
    """The provider of one turn: answers by its script and notes what it was sent."""

    def __init__(self, turn: CaseTurn, bindings: Bindings, same_mode: bool) -> None:
        self.turn = turn
        self.same_mode = same_mode
        self.bindings = bindings
        self.calls = 0
        self.problems: list[str] = []

    def answer_call(self, received: ReceivedCall) -> ProviderAnswer:
        try:
            return self._answer_scripted(received)
        except SHAPE_ERRORS as error:
            self.problems.append(
                f"the provider stumbles over what it was sent ({error!r}): {show_value(received.body)}"
            )
            return ProviderAnswer(500, {}, ('{"error":{"message":"what is this?"}}',), False)

    def _answer_scripted(self, received: ReceivedCall) -> ProviderAnswer:
        exchanges = self.turn.provider.exchanges
        number, self.calls = self.calls, self.calls + 1
        if exchanges and number >= len(exchanges) and (exchanges[-1].status in RETRY_STATUSES or exchanges[-1].fails):
            return make_provider_answer(exchanges[-1], self.turn.provider.protocol, received, self.bindings)
        if number >= len(exchanges):
            self.problems.append(f"the provider was called {self.calls} times, expected {len(exchanges)}")
            return ProviderAnswer(500, {}, ('{"error":{"message":"unexpected call"}}',), False)
        exchange = exchanges[number]
        if exchange.expect is not UNSET:
            self.problems += [
                f"provider{line}"
                for line in find_differences(exchange.expect, self._normalise_body(received), self.bindings)
            ]
        self.problems += [f"the provider refuses: {line}" for line in self._find_refusals(received)]
        # What may be left undone is not the client's own call, but one that the gateway makes for it.
        if self.same_mode and not exchange.optional and received.stream != self.turn.client.stream:
            self.problems.append(f"the provider was asked with stream={received.stream}")
        answered = make_provider_answer(exchange, self.turn.provider.protocol, received, self.bindings)
        return structs.replace(answered, awaited=self._wait_conditions())

    def _normalise_body(self, received: ReceivedCall) -> Json:
        return normalise_body(self.turn.provider.protocol, received.body)

    def _wait_conditions(self) -> dict[int, Callable[[str], bool]]:
        return {int(number): partial(self._is_met, wanted) for number, wanted in self.turn.client_sees.after.items()}

    def _is_met(self, wanted: Json, so_far: str) -> bool:
        return meets_expectation(wanted, so_far, dict(self.bindings))

    def _find_refusals(self, received: ReceivedCall) -> list[str]:
        lenient = self.turn.provider.lenient
        said = find_violations(self.turn.provider.protocol, received.body, received.model)
        return [line for line in said if not any(piece in line for piece in lenient)]

    def was_declined(self, refused: bool) -> bool:
        """Was the client refused where a call was not demanded?"""
        return refused and any(exchange.optional for exchange in self.turn.provider.exchanges[self.calls :])

    def list_problems(self, declined: bool) -> list[str]:
        wanted = len(self.turn.provider.exchanges)
        short = self.calls < wanted and not declined
        missing = [f"the provider was called {self.calls} times, expected {wanted}"] if short else []
        return [*self.problems, *missing]


def make_provider_answer(
    exchange: ProviderExchange, protocol: str, received: ReceivedCall, bindings: Bindings
) -> ProviderAnswer:
    """The provider's answer as it goes out."""
    answered = _complete_answer(exchange, protocol, received, bindings)
    ending = {"cut": exchange.fails == "cut", "endless": exchange.fails == "endless"}
    return structs.replace(answered, bytewise=exchange.bytewise, **ending)


def _complete_answer(
    exchange: ProviderExchange, protocol: str, received: ReceivedCall, bindings: Bindings
) -> ProviderAnswer:
    """Completed, and as a stream where that was asked for."""
    dialect = PEERS[protocol]
    model = received.model
    stream = received.stream and exchange.status < 400
    if exchange.sse is not UNSET:
        frames = _complete_frames(exchange.sse, dialect, model, bindings)
        if received.stream:
            return ProviderAnswer(exchange.status, exchange.headers, frames, True)
        whole = dialect.fold_stream(read_frames("".join(frames))).body
        return ProviderAnswer(exchange.status, exchange.headers, (encode_json(whole),), False)
    body = fill_template(exchange.body, bindings, _echo_nothing) if exchange.body is not UNSET else {}
    if not exchange.whole and exchange.status < 400:
        body = dialect.complete_answer(body, model)
    pieces = tuple(dialect.write_stream(body)) if stream else (body if isinstance(body, str) else encode_json(body),)
    return ProviderAnswer(exchange.status, exchange.headers, pieces, stream)


def _echo_nothing(_number: int, _texts: list[str] | None) -> list[Json]:
    """Providers echo nothing."""
    return []


def _complete_frames(sse: list[Json] | str, dialect: ProtocolPeer, model: str, bindings: Bindings) -> tuple[str, ...]:
    if isinstance(sse, str):
        return (sse,)
    return tuple(dialect.complete_frames(fill_template(sse, bindings, _echo_nothing), model))


def _read_client_answer(protocol: str, stream: bool, view: ClientView, is_formal: bool) -> tuple[Json, list[str]]:
    """What the client makes of what it saw, and what it stumbles over."""
    if stream and view.status < 400:
        try:
            folded = PEERS[protocol].fold_stream(read_frames(view.text))
        except SHAPE_ERRORS as error:
            return None, [f"the client stumbles over the stream ({error!r}): {show_value(view.text)}"]
        held = [line for line in folded.violations if is_formal or line not in folded.minor_violations]
        return folded.body, [f"the client stumbles: {line}" for line in held]
    try:
        return json.loads(view.text), []
    except ValueError as error:
        return None, [f"the client gets no JSON ({error}): {show_value(view.text)}"]


def _compare_expectation(
    expectation: ClientExpectation, view: ClientView, folded: Json, bindings: Bindings, uses_data_type: bool
) -> list[str]:
    """`typed`: a frame without an event line is what its data says."""
    found = [f"client status{line}" for line in find_differences(expectation.status, view.status, bindings)]
    if expectation.headers is not UNSET:
        headers = {name.lower(): value for name, value in view.headers.items()}
        found += [f"client header{line}" for line in find_differences(expectation.headers, headers, bindings)]
    if expectation.body is not UNSET:
        found += [f"client{line}" for line in find_differences(expectation.body, folded, bindings)]
    if expectation.events is not UNSET:
        events = [_frame_as_object(frame, uses_data_type) for frame in read_frames(view.text)]
        wanted = {"$contains": expectation.events} if isinstance(expectation.events, list) else expectation.events
        found += [f"client events{line}" for line in find_differences(wanted, events, bindings)]
    if expectation.text is not UNSET:
        found += [f"client text{line}" for line in find_differences(expectation.text, view.text, bindings)]
    for number, wanted in expectation.after.items():
        so_far = "".join(view.pieces[: int(number) + 1])
        found += [f"client after frame {number}{line}" for line in find_differences(wanted, so_far, bindings)]
    return found


def _frame_as_object(frame: SseFrame, uses_data_type: bool) -> Json:
    said = frame.data.get("type") if uses_data_type and isinstance(frame.data, dict) else None
    event = frame.event if frame.event is not None else said
    return {**({"event": event} if event is not None else {}), "data": frame.data}


def _compare_losses(turn: CaseTurn, view: ClientView) -> list[str]:
    """Every loss that the case names must be reported; an empty list demands that none was `lost`."""
    if turn.losses is None or view.losses is None:
        return []
    if not turn.losses:
        lost = [dict(loss) for loss in view.losses if loss["severity"] == "lost"]
        return [f"losses: expected none, got {show_value(lost, 600)}"] if lost else []
    found = []
    for wanted in turn.losses:
        expected = {"code": wanted} if isinstance(wanted, str) else wanted
        if not any(meets_expectation(expected, dict(loss), {}) for loss in view.losses):
            found.append(f"losses: {show_value(expected)} is not among {[loss['code'] for loss in view.losses]}")
    return found
