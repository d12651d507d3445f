"""One proxied call: a client's request to a provider and the answer back, with what must be remembered between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwire import seals
from toolwire.events import Carried, Checker, Event, ResponseFailed
from toolwire.ir import NOTHING, Failure, Request, changed, place
from toolwire.loss import OFF, Ledger, Loss
from toolwire.options import Options
from toolwire.room import Context, Room, StreamReader, StreamWriter
from toolwire.steps import content, history, identity
from toolwire.steps.answers import AnswerSteps, Way, answered
from toolwire.steps.naming import Plan, planned
from toolwire.steps.survey import Survey
from toolwire.wire import Json, Malformed, Object, as_object, decode, encode

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]


class Translation(Struct, frozen=True):
    """What came out: the body as bytes, and what the wire keeps outside of it."""

    body: bytes
    ledger: Ledger
    model: str = ""
    stream: bool = False
    status: int = 200
    headers: Mapping[str, str] = NOTHING

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What could not be carried over unchanged."""
        return self.ledger.losses

    def json(self) -> Any:
        """The body, parsed."""
        return decode(self.body) if self.body else None


def parsed(body: Body, options: Options) -> Json:
    """A body given as bytes, text or already parsed."""
    if isinstance(body, (dict, list)):
        return body
    return decode(bytes(body) if isinstance(body, (bytearray, memoryview)) else body, max_bytes=options.max_bytes)


def outbound(
    request: Request, provider: Room, ledger: Ledger, options: Options
) -> tuple[Request, Plan, frozenset[str]]:
    """A client's request as the provider can take it, the way back for names, and the ids that are taken."""
    rules = provider.rules
    survey = Survey(request)
    if survey.seals:
        request = seals.opened(request)
    if survey.loaded_tools:
        request = content.gathered(request, rules, ledger)
    request, plan = planned(request, rules, ledger, survey)
    found = identity.identified(request, rules, ledger, survey)
    request = found.request
    if survey.seals or survey.reasoning:
        request = seals.kept(request, options.maker or provider.name, rules, ledger)
    if survey.phases and not rules.phases and ledger.source != ledger.target:
        for turn in survey.phases:
            ledger.note("no-counterpart", (place(turn), "phase"), f"the phase `{turn.phase}` was left out")
    request = content.instructed(request, rules, ledger)
    request = content.worded(request, rules, ledger)
    if survey.blank_text:
        request = content.filled(request, rules, ledger)
    request = history.ordered(request, rules, ledger)
    request = history.begun(request, rules, ledger)
    if survey.failed_results:
        request = content.marked(request, rules, ledger)
    if survey.media_results:
        request = content.housed(request, rules, options, ledger)
    return request, plan, found.used


class Exchange:
    """Joins a client's room and a provider's room for one call. No I/O: bodies and bytes in, bodies and bytes out."""

    def __init__(self, client: Room, provider: Room, options: Options | None = None) -> None:
        self.client = client
        self.provider = provider
        self.options = options or Options()
        self._request: Request | None = None
        self._plan = Plan()
        self._taken: frozenset[str] = frozenset()

    def request(self, body: Body) -> Translation:
        """The client's request in the provider's protocol."""
        options, ledger = self.options, Ledger(self.client.name, self.provider.name)
        request = self._read(body)
        ledger.foreign(request)
        request, self._plan, self._taken = outbound(request, self.provider, ledger, options)
        wire = self.provider.write_request(request, ledger)
        return Translation(encode(wire), ledger, request.model, bool(request.stream))

    def remember(self, body: Body) -> None:
        """Know the client's request without translating it anew: for an answer that comes alone."""
        request = self._read(body)
        scratch = Ledger(self.client.name, self.provider.name)
        _, self._plan, self._taken = outbound(request, self.provider, scratch, self.options)

    def _read(self, body: Body) -> Request:
        try:
            request = self.client.read_request(as_object(parsed(body, self.options), None))
        except RecursionError:
            raise Malformed(None, "the JSON is nested too deeply") from None
        options = self.options
        changes: dict[str, Any] = {}
        self._request = request
        if options.model and options.model != request.model:
            changes["model"] = options.model
        if options.stream is not None and options.stream != request.stream:
            changes["stream"] = options.stream
        if not options.cache_breakpoints and request.settings.cache is None and self.client is not self.provider:
            changes["settings"] = changed(request.settings, cache=OFF)
        return changed(request, **changes) if changes else request

    def response(self, body: Body) -> Translation:
        """The provider's whole answer in the client's protocol."""
        ledger = Ledger(self.provider.name, self.client.name)
        response = self.provider.read_response(as_object(parsed(body, self.options), None))
        ledger.foreign(response)
        crossing = self.client is not self.provider
        if response.failure is not None and crossing:
            return self._refused(response.failure, ledger)
        if crossing or self._plan.active:
            response = answered(response, self._way(response.id), ledger)
        wire = self.client.write_response(response, ledger, self._context(response.id))
        failed = isinstance(wire.get("error"), dict) and bool(wire["error"]) and crossing
        return Translation(encode(wire), ledger, response.model, status=502 if failed else 200)

    def error(self, body: Body | None, status: int = 0, headers: Mapping[str, str] = NOTHING) -> Translation:
        """The provider's refusal in the client's protocol. Anything can stand in such a body, so nothing is refused."""
        try:
            value = parsed(body, self.options) if body is not None else None
        except Malformed:
            value = bytes(body).decode("utf-8", "replace") if isinstance(body, (bytes, bytearray, memoryview)) else body
        failure = self.provider.read_error(value, status or self.options.status, headers)
        return self._refused(failure, Ledger(self.provider.name, self.client.name))

    def _refused(self, failure: Failure, ledger: Ledger) -> Translation:
        sent = self.client.write_error(failure)
        return Translation(encode(sent.body), ledger, status=sent.status, headers=sent.headers)

    def stream(self) -> StreamTranslation:
        """A translator for the provider's stream."""
        return StreamTranslation(self)

    def _way(self, seed: str) -> Way:
        options = self.options
        known = self._request is not None
        return Way(self.client, self.provider, self._plan, self._taken, options.seed or seed, options.maker, known)

    def _context(self, seed: str) -> Context:
        return Context(self._request, self.options.now, self.options.seed or seed)


class StreamTranslation:
    """Bytes of the provider's stream in, bytes of the client's stream out.

    reader → checker → steps → writer. A stream that breaks its grammar or ends early becomes a failure in the client's
    own shape, and nothing follows it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._ledger = Ledger(exchange.provider.name, exchange.client.name)
        self._reader: StreamReader = exchange.provider.stream_reader()
        self._writer: StreamWriter = exchange.client.stream_writer(self._ledger, exchange._context(""))
        self._checker = Checker()
        verbatim = exchange.client is exchange.provider and not exchange._plan.active
        self._steps = None if verbatim else AnswerSteps(exchange._way(""), self._ledger)
        self.failure: Failure | None = None

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._ledger.losses

    def feed(self, data: bytes) -> bytes:
        return self._through(self._reader.feed(data))

    def close(self) -> bytes:
        """The end of the provider's stream: what is still owed to the client."""
        return self._through(self._reader.close()) + self._writer.close()

    def _through(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        write = self._writer.write
        for event in events:
            if self.failure is not None and (self._steps is not None or not isinstance(event, Carried)):
                break
            fault = self._checker.check(event)
            if fault is not None:
                event = ResponseFailed(fault)
            if isinstance(event, ResponseFailed):
                self.failure = event.failure
            if self._steps is None or fault is not None:
                out.append(write(event))
            else:
                out.extend(map(write, self._steps.step(event)))
        return b"".join(out)


__all__ = ["Body", "Exchange", "Object", "StreamTranslation", "Translation", "outbound", "parsed"]
