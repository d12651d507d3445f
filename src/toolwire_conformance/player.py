"""Plays a case: sends the client's requests, answers as the provider, and compares what both sides received.

How a request gets to the provider is up to a transport: see `transports.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, structs

from toolwire_conformance import Json
from toolwire_conformance.case import Case, CaseTurn, Client, ClientExpectation, ProviderExchange
from toolwire_conformance.expectations import (
    Bindings,
    MissingValue,
    fill_template,
    find_differences,
    meets_expectation,
    show_value,
)
from toolwire_conformance.peers import PEERS, find_violations
from toolwire_conformance.peers.peer import COMPRESSORS, SseFrame, encode_json, read_frames
from toolwire_conformance.targets import Router


class ClientCall(Struct, frozen=True):
    """A client's call, and the protocol of the provider that must receive it."""

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
    """By the number of a frame: a check whether the client has received enough for the next frame to be sent."""
    bytewise: bool = False
    cut: bool = False
    """Break the connection instead of ending the answer."""
    endless: bool = False
    """Repeat the last frame until the gateway disconnects."""


class ClientView(Struct, frozen=True):
    """What the client received: for a stream one text per frame of the provider, and one for the rest.

    `losses` are the reported losses as objects; None if the transport cannot know them.
    """

    status: int
    headers: Mapping[str, str]
    pieces: tuple[str, ...]
    losses: Sequence[Mapping[str, Json]] | None = None
    problem: str = ""
    """Why the answer is incomplete, if it is."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


AnswerCall: TypeAlias = Callable[[ReceivedCall], ProviderAnswer]


class Transport(Protocol):
    """Sends one call to the provider, played by `answer`, and gives back what the client received."""

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView: ...


class CaseOutcome(Struct, frozen=True):
    """The result of a case. `out_of_reach` says why it was not played."""

    id: str
    passed: bool
    differences: tuple[str, ...] = ()
    out_of_reach: str = ""
    unsupported: str = ""
    """The gateway refused the request as unsupported, without calling the provider."""


UNSUPPORTED_STATUSES = frozenset({404, 405, 415, 501})
RETRY_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses after which a gateway may retry."""
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, MissingValue)
"""Raised by data of an unexpected shape; real clients fail in the same way."""


def play_case(
    case: Case,
    transport: Transport,
    *,
    include_out_of_reach: bool = False,
    same_mode: bool = True,
    is_formal: bool = True,
) -> CaseOutcome:
    """Play one case.

    `include_out_of_reach` also plays cases that only a configured gateway can pass. Without `same_mode` a gateway may
    ask its provider for a stream or a whole answer as it likes. Without `is_formal` minor violations are ignored.
    """
    if case.out_of_reach and not (include_out_of_reach and case.turns):
        return CaseOutcome(case.id, False, (), case.out_of_reach)
    for turn in case.turns:
        if turn.client.encoding not in COMPRESSORS:
            return CaseOutcome(case.id, False, (), f"{turn.client.encoding} compression is not available here")
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
    """One case while it is played: the bindings and answers so far."""

    def __init__(self, transport: Transport, same_mode: bool, is_formal: bool) -> None:
        self.transport, self.same_mode, self.is_formal = transport, same_mode, is_formal
        self.unsupported = ""
        self.was_declined = False
        """Did the gateway refuse an optional exchange?"""
        self.bindings: Bindings = {}
        self.answers: list[tuple[str, Json]] = []

    def play_turn(self, turn: CaseTurn) -> list[str]:
        client, provider = turn.client, turn.provider
        try:
            body = fill_template(client.request, self.bindings, self._echo_turns)
        except MissingValue as error:
            return [str(error)]
        model = client.model or (body.get("model", "") if isinstance(body, dict) else "")
        details = (client.asks, client.encoding, client.leaves)
        call = ClientCall(client.protocol, provider.protocol, model, client.stream, body, *details)
        script = _ScriptedProvider(turn, self.bindings, self.same_mode)
        view = self.transport.send_call(call, script.answer_call)
        wanted = provider.exchanges or client.asks
        if wanted and not (script.calls or view.problem) and view.status in UNSUPPORTED_STATUSES:
            self.unsupported = f"answered {view.status}: {show_value(view.text)}"
        # A client that disconnects does not read the answer.
        folded, broken = (None, []) if client.leaves else _read_client_answer(client, view, self.is_formal)
        self.was_declined = script.was_declined(isinstance(folded, dict) and bool(folded.get("error")))
        found = [*([view.problem] if view.problem else []), *script.list_problems(self.was_declined)]
        self.answers.append((client.protocol, folded))
        typed = PEERS[client.protocol].uses_data_type and not self.is_formal
        different = _compare_expectation(turn.client_sees, view, folded, self.bindings, typed)
        return [*found, *broken, *different, *_compare_losses(turn, view)]

    def _echo_turns(self, number: int, texts: list[str] | None) -> list[Json]:
        if not 0 <= number < len(self.answers):
            raise MissingValue(f"there is no answer {number} yet")
        protocol, answer = self.answers[number]
        peer = PEERS[protocol]
        try:
            return peer.history_turns(answer) if texts is None else peer.write_results(answer, texts)
        except SHAPE_ERRORS:
            raise MissingValue(f"answer {number} cannot be sent back: {show_value(answer)}") from None


class _ScriptedProvider:
    """The provider of one turn: answers by the case, and collects the problems of the requests it receives."""

    def __init__(self, turn: CaseTurn, bindings: Bindings, same_mode: bool) -> None:
        self.turn, self.bindings, self.same_mode = turn, bindings, same_mode
        self.calls = 0
        self.problems: list[str] = []

    def answer_call(self, received: ReceivedCall) -> ProviderAnswer:
        try:
            return self._answer_scripted(received)
        except SHAPE_ERRORS as error:
            self.problems.append(f"the provider cannot read the request ({error!r}): {show_value(received.body)}")
            return ProviderAnswer(500, {}, ('{"error":{"message":"unreadable request"}}',), False)

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
            body = PEERS[self.turn.provider.protocol].normalise_body(received.body)
            found = find_differences(exchange.expect, body, self.bindings)
            self.problems += [f"provider{line}" for line in found]
        refused = find_violations(self.turn.provider.protocol, received.body, received.model)
        lenient = self.turn.provider.lenient
        strict = [line for line in refused if not any(piece in line for piece in lenient)]
        self.problems += [f"the provider refuses: {line}" for line in strict]
        # An optional call is not the client's own, but one that the gateway makes for it.
        if self.same_mode and not exchange.optional and received.stream != self.turn.client.stream:
            self.problems.append(f"the provider was asked with stream={received.stream}")
        answered = make_provider_answer(exchange, self.turn.provider.protocol, received, self.bindings)
        after = self.turn.client_sees.after.items()
        return structs.replace(answered, awaited={int(frame): partial(self._is_met, text) for frame, text in after})

    def _is_met(self, wanted: Json, so_far: str) -> bool:
        return meets_expectation(wanted, so_far, dict(self.bindings))

    def was_declined(self, refused: bool) -> bool:
        """Was the client refused although only optional calls were missing?"""
        return refused and any(exchange.optional for exchange in self.turn.provider.exchanges[self.calls :])

    def list_problems(self, declined: bool) -> list[str]:
        wanted = len(self.turn.provider.exchanges)
        if declined or self.calls >= wanted:
            return self.problems
        return [*self.problems, f"the provider was called {self.calls} times, expected {wanted}"]


def make_provider_answer(
    exchange: ProviderExchange, protocol: str, received: ReceivedCall, bindings: Bindings
) -> ProviderAnswer:
    """The provider's answer to one call, with its usual fields filled in, as a stream if the call asked for one."""
    peer = PEERS[protocol]
    stream = received.stream and (exchange.status < 400 or exchange.sse is not UNSET)
    if isinstance(exchange.sse, str):
        pieces = [exchange.sse]
    elif isinstance(exchange.sse, list):
        pieces = peer.complete_frames(fill_template(exchange.sse, bindings, _echo_nothing), received.model)
    else:
        body = fill_template(exchange.body, bindings, _echo_nothing) if exchange.body is not UNSET else {}
        if not exchange.whole and exchange.status < 400:
            body = peer.complete_answer(body, received.model)
        pieces = peer.write_stream(body) if stream else [body if isinstance(body, str) else encode_json(body)]
    if exchange.sse is not UNSET and not stream:
        pieces = [encode_json(peer.fold_stream(read_frames("".join(pieces))).body)]
    return ProviderAnswer(
        exchange.status,
        exchange.headers,
        tuple(pieces),
        stream,
        bytewise=exchange.bytewise,
        cut=exchange.fails == "cut",
        endless=exchange.fails == "endless",
    )


def _echo_nothing(_number: int, _texts: list[str] | None) -> list[Json]:
    return []  # only clients send earlier answers back


def _read_client_answer(client: Client, view: ClientView, is_formal: bool) -> tuple[Json, list[str]]:
    """The answer as the client reads it, and what is wrong with it."""
    if client.stream and view.status < 400:
        try:
            folded = PEERS[client.protocol].fold_stream(read_frames(view.text))
        except SHAPE_ERRORS as error:
            return None, [f"the client cannot read the stream ({error!r}): {show_value(view.text)}"]
        violations = [line for line in folded.violations if is_formal or line not in folded.minor_violations]
        return folded.body, [f"the client fails: {line}" for line in violations]
    try:
        return json.loads(view.text), []
    except ValueError as error:
        return None, [f"the client gets invalid JSON ({error}): {show_value(view.text)}"]


def _compare_expectation(
    expectation: ClientExpectation, view: ClientView, folded: Json, bindings: Bindings, uses_data_type: bool
) -> list[str]:
    """With `uses_data_type`, the event of a frame without an event line is the type in its data."""
    frames = read_frames(view.text) if expectation.events is not UNSET else []
    in_order = {"$contains": expectation.events} if isinstance(expectation.events, list) else expectation.events
    compared = [
        ("client status", expectation.status, view.status),
        ("client header", expectation.headers, {name.lower(): value for name, value in view.headers.items()}),
        ("client", expectation.body, folded),
        ("client events", in_order, [_frame_as_object(frame, uses_data_type) for frame in frames]),
        ("client text", expectation.text, view.text),
    ]
    for number, wanted in expectation.after.items():
        compared.append((f"client after frame {number}", wanted, "".join(view.pieces[: int(number) + 1])))
    return [
        what + line
        for what, wanted, actual in compared
        if wanted is not UNSET
        for line in find_differences(wanted, actual, bindings)
    ]


def _frame_as_object(frame: SseFrame, uses_data_type: bool) -> Json:
    data_type = frame.data.get("type") if uses_data_type and isinstance(frame.data, dict) else None
    event = frame.event if frame.event is not None else data_type
    return {**({"event": event} if event is not None else {}), "data": frame.data}


def _compare_losses(turn: CaseTurn, view: ClientView) -> list[str]:
    """Every loss that the case names must be reported; an empty list means that nothing may be lost."""
    if turn.losses is None or view.losses is None:
        return []
    if not turn.losses:
        lost = [dict(loss) for loss in view.losses if loss["severity"] == "lost"]
        return [f"losses: expected none, got {show_value(lost, 600)}"] if lost else []
    codes = [loss["code"] for loss in view.losses]
    return [
        f"losses: {show_value(expected)} is not among {codes}"
        for expected in ({"code": wanted} if isinstance(wanted, str) else wanted for wanted in turn.losses)
        if not any(meets_expectation(expected, dict(loss), {}) for loss in view.losses)
    ]


# --- a run of many cases: a verdict on each play (one case in one variant and one stream mode) ----------------------

Verdict: TypeAlias = Literal["pass", "wrong", "unsupported", "not played"]
VERDICTS: tuple[Verdict, ...] = ("pass", "wrong", "unsupported", "not played")
PARTS = ("grid", "cases")


class PlayResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one play. `client` and `provider` are short names of protocols."""

    id: str
    title: str
    client: str
    provider: str
    stream: bool
    verdict: Verdict
    differences: tuple[str, ...] = ()
    why: str = ""
    """Why it is unsupported or was not played."""

    @property
    def part(self) -> str:
        return "grid" if self.id.startswith("grid:") else "cases"

    @property
    def kind(self) -> str:
        """The kind of conversation, for a play of the grid."""
        return self.id.split(":", 2)[2]

    @property
    def main_difference(self) -> str:
        """The most important difference, or why there was no play."""
        return self.why or (self.differences[0] if self.differences else "")


def select_cases(cases: Iterable[Case], patterns: Sequence[str] = (), only: str = "") -> list[Case]:
    """The cases of a part whose id begins with a match of one of the patterns."""
    return [
        case
        for case in cases
        if only in ("", "grid" if case.number == 0 else "cases")
        and (not patterns or any(fnmatchcase(case.id, pattern + "*") for pattern in patterns))
    ]


def asked_models(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Each protocol of a provider with each model that it is asked for."""
    pairs = {(turn.provider.protocol, _turn_model(turn)) for case in cases for turn in case.turns}
    return sorted(pair for pair in pairs if pair[1])


def _turn_model(turn: CaseTurn) -> str:
    return turn.client.model or str(turn.client.request.get("model", ""))


def run_cases(
    cases: Sequence[Case], transport: Transport, router: Router, is_configured: Callable[[str], bool]
) -> Iterator[PlayResult]:
    """Play the cases in order. `is_configured` takes an id without the mode: is the gateway set up for that case?"""
    for case in cases:
        routes = (router(turn.client.protocol, turn.provider.protocol, _turn_model(turn)) for turn in case.turns)
        obstacle = next((route for route in routes if isinstance(route, str)), None)
        if obstacle is None:
            include = not case.configured or is_configured(case.id.removesuffix(":whole").removesuffix(":stream"))
            outcome = play_case(case, transport, include_out_of_reach=include, same_mode=False, is_formal=False)
        else:
            outcome = CaseOutcome(case.id, False, unsupported=obstacle)
        yield _make_play_result(case, outcome)


def _make_play_result(case: Case, outcome: CaseOutcome) -> PlayResult:
    verdict: Verdict = "pass"
    if not outcome.passed:
        verdict = "unsupported" if outcome.unsupported else "not played" if outcome.out_of_reach else "wrong"
    first = case.turns[0] if case.turns else None
    return PlayResult(
        id=case.id,
        title=case.title,
        client=PEERS[first.client.protocol].short_name if first else "",
        # several if a session changes its provider
        provider=", ".join(dict.fromkeys(PEERS[turn.provider.protocol].short_name for turn in case.turns)),
        stream=bool(first and first.client.stream),
        verdict=verdict,
        differences=outcome.differences if verdict == "wrong" else (),
        why=outcome.out_of_reach or outcome.unsupported,
    )
