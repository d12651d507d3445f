"""One proxied call: a client's request to a provider and the answer back, with what must be remembered between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire import memory, unseen
from toolwire.bodies import Body, object_of, parsed
from toolwire.events import Checker, Event, ResponseFailed
from toolwire.fold import fold, unfold
from toolwire.ir import (
    NOTHING,
    Call,
    Failure,
    HostedTool,
    Request,
    Response,
    Result,
    Usage,
    changed,
    plain_text,
)
from toolwire.loss import Ledger, Loss
from toolwire.options import Options
from toolwire.policy.back import UNDONE
from toolwire.policy.out import applied
from toolwire.room import Context, Room
from toolwire.rounds import Rounds
from toolwire.steps import heeding, hosted, restoring, taking
from toolwire.steps.answers import AnswerSteps
from toolwire.steps.naming import AS_DECLARED
from toolwire.steps.outward import NONE_TAKEN, outbound
from toolwire.steps.slots import slots_between
from toolwire.steps.way import Way
from toolwire.steps.whole import answered
from toolwire.streaming import StreamTranslation
from toolwire.wire import Malformed, Object, decode, encode

_REFUSES = attrgetter("refuses")
_NOBODY: frozenset[str] = frozenset()


class Translation(Struct, frozen=True):
    """What came out: the body as bytes, and what the wire keeps outside of it."""

    body: bytes
    ledger: Ledger
    model: str = ""
    stream: bool = False
    status: int = 200
    headers: Mapping[str, str] = NOTHING
    usage: Usage | None = None
    finishes: tuple[str, ...] = ()
    """Why the answers ended."""
    failure: Failure | None = None
    """Why there is no answer in it, where there is none."""
    kept: Mapping[str, bytes] = NOTHING
    """What to keep of it for the client, by id."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What could not be carried over unchanged."""
        return self.ledger.losses

    def json(self) -> Any:
        """The body, parsed."""
        return decode(self.body) if self.body else None


class Exchange:
    """Joins a client's room and a provider's room for one call. No I/O: bodies and bytes in, bodies and bytes out."""

    # Most exchanges need nothing of this, so that it stands here and not in each of them.
    _request: Request | None = None
    _seals = False
    """Seals, and what else its protocol has no slot for?"""
    _hides = False
    """Calls that it may not see?"""
    _sent: Request | None = None
    continues = False
    """Does the request build on turns that only a provider of the client's own protocol could hold?"""
    _may_pause = False
    """Can the provider's answer pause in a way that this client's protocol cannot say? Only one that has tools of its
    own to run pauses."""
    _came: Request | None = None
    _before: memory.Before | None = None
    _plan = AS_DECLARED
    _taken = NONE_TAKEN
    _told: tuple[Event, ...] = ()
    _left: tuple[Result, ...] = ()
    _standing: Mapping[str, str] = NOTHING

    def __init__(self, client: Room, provider: Room, options: Options | None = None) -> None:
        self.client = client
        self.provider = provider
        self.options = options = options or Options()
        self.now, self.seed = options.now, options.seed
        self.crossing = client.name != provider.name
        self._ahead: tuple[Body, Request] | None = None
        self._limit: tuple[int, str] | None = None
        """What the limit of the output became, and why, where it did not stay."""
        self._undo = UNDONE
        self._added = _NOBODY
        self._rounds: Rounds | None = None
        self.keeps = False
        """Is there anything to keep for the client?"""
        if options.keeps:
            if options.unseen or options.tools or options.policy:
                self._hides = options.unseen or bool(options.tools) or any(map(_REFUSES, options.policy))
            self._seals = memory.needed(client, provider)
            self.keeps = self._seals or self._hides

    def wanted(self, body: Body) -> tuple[str, ...]:
        """The ids under which something may be kept for this request. The body is read here, and not again."""
        if not self.keeps:
            return ()
        request = self._read(body)
        self._ahead = (body, request)
        wanted = memory.wanted(request)
        return tuple(dict.fromkeys((*wanted, *unseen.keys(request)))) if self._hides else wanted

    def request(self, body: Body, kept: Mapping[str, bytes] = NOTHING) -> Translation:
        """The client's request in the provider's protocol, with what was kept for it put back."""
        provider, options = self.provider, self.options
        ledger = Ledger(self.client.name, provider.name)
        self._came = request = self._read(body) if self._ahead is None else self._read_before(body)
        if request.strays:
            ledger.foreign(request)
        if self._limit is not None:
            heeding.told(self._limit, request, ledger)
        if kept:
            self._before = before = memory.Before(request)
            request = restoring.restored(request, before, kept, self._maker, provider.rules, ledger)
        runs_some = _has_hosted(request)
        if runs_some or options.policy:
            request = self._arranged(request, ledger)
            runs_some = _has_hosted(request)
        arranged = request.tools
        request, self._plan, self._taken = outbound(request, provider, ledger, options)
        self._sent, self.continues = request, request.continues
        self._may_pause = self.crossing and (runs_some if request.tools is arranged else _has_hosted(request))
        return Translation(encode(provider.write_request(request, ledger)), ledger, request.model, bool(request.stream))

    @property
    def _maker(self) -> str:
        return self.options.maker or self.provider.name

    @property
    def unread(self) -> bool:
        """Is it only a summary that makes it go on from such turns, one that nobody but its maker can read?"""
        return self.continues and self._request is not None and not self._request.continues

    # --- answers in several rounds ---

    @property
    def goes_on(self) -> bool:
        """Can an answer take several rounds?"""
        if self._may_pause or self._added:
            return True
        return self._undo is not UNDONE and self._undo.refusing

    def started(self) -> Rounds | None:
        if not self.goes_on:
            return None
        judge = taking.Judge(self._plan, self._undo, self._added) if self._added or self._undo.refusing else None
        sealed = self.options.keeps or not self._added
        mark = None if self.crossing else unseen.nobodys(self.client)
        return Rounds(judge, self._may_pause, self.options.shown, sealed, self._standing, mark)

    def hears(self, body: Body, streamed: bool = False) -> Rounds | None:
        """A whole answer, however the provider sent it. Not None: it took rounds, and where `paused` the model must be
        asked again (`go_on`)."""
        if self._rounds is None:
            self._rounds = self.started()
        if self._rounds is None:
            return None
        if streamed and isinstance(body, bytes):
            response = self._gathered(body)
        else:
            response = self.provider.read_response(object_of(body, self.options))
        if response.failure is not None:
            self._rounds = None  # it failed, whatever was said before
            return None
        self._told += tuple(self._rounds.through(list(unfold(changed(response, origin=None)))))
        return self._rounds if self._rounds.paused or self._rounds.taken or self._rounds.resumptions else None

    def settle(self, results: tuple[Result, ...]) -> None:
        """The results of those calls of the last round that are not the client's: kept for its next request."""
        self._left = results

    def go_on(self, heard: Rounds, results: Sequence[Result]) -> bytes:
        """The request with which the model goes on after a round."""
        if self._sent is None:
            raise ValueError("only an exchange whose request was translated can go on")
        heard.resumed(results)
        if self._added:
            self._sent = taking.unforced(self._sent, self._plan, self._undo, self._added)
        request = taking.continued(self._sent, heard, self.provider.rules, self.options, self.provider.name)
        return encode(self.provider.write_request(request, Ledger(self.client.name, self.provider.name)))

    def remember(self, body: Body) -> None:
        """Know the client's request without translating it anew: for an answer that comes alone."""
        scratch = Ledger(self.client.name, self.provider.name)
        request = self._arranged(self._read(body), scratch)
        _, self._plan, self._taken = outbound(request, self.provider, scratch, self.options)

    def _arranged(self, request: Request, ledger: Ledger) -> Request:
        """The request as the operator's rules want it, and with functions in place of tools that the provider does not
        run."""
        options = self.options
        if options.policy:
            request, self._undo = applied(request, options.policy, ledger, self.provider.rules.forces)
        if HostedTool not in map(type, request.tools):
            return request
        substitutes = options.substitutes if (request.settings.count or 1) == 1 else NOTHING
        found = hosted.substituted(request, substitutes, self.provider, ledger)
        self._standing = found.names
        self._added |= found.names.keys()
        return found.request

    def _read(self, body: Body) -> Request:
        options = self.options
        try:
            request = self.client.read_request(object_of(body, options))
        except RecursionError:
            raise Malformed(None, "the JSON is nested too deeply") from None
        self._request = request
        model = options.model or request.model
        stream = request.stream if options.stream is None else options.stream
        if model != request.model or stream != request.stream:
            # Another protocol's writer gives no node back verbatim, so its origin need not be let go of.
            change = replace if self.crossing else changed
            request = change(request, model=model, stream=stream)
        limit = options.most_tokens if options.max_output_tokens is None else options.max_output_tokens
        if limit is None and options.cache_breakpoints and not options.tools:
            return request
        return self._heeded(request)

    def _read_before(self, body: Body) -> Request:
        """What `wanted` has read, where it was the same."""
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] is body else self._read(body)

    def _heeded(self, request: Request) -> Request:
        """The request with what the options ask for besides another model."""
        options = self.options
        changes: dict[str, Any] = {}
        if options.most_tokens is not None or options.max_output_tokens is not None:
            self._limit = heeding.limited(request.settings.max_tokens, options)
        uncached = not options.cache_breakpoints and request.settings.cache is None and self.crossing
        if uncached or self._limit is not None:
            changes["settings"] = heeding.settled(request.settings, self._limit, uncached)
        if options.tools and (request.settings.count or 1) == 1:
            tools = heeding.lacking(request, options.tools)
            self._added = frozenset(tool.name for tool in tools)
            changes["tools"] = (*request.tools, *tools)
        return changed(request, **changes) if changes else request

    def response(self, body: Body) -> Translation:
        """The provider's whole answer in the client's protocol."""
        return self._answer(self.provider.read_response(object_of(body, self.options)))

    def streamed_response(self, data: bytes) -> Translation:
        """A whole answer for the client where the provider sent a stream though none was asked for."""
        response = self._gathered(data)
        if response.failure is not None:
            return self._refused(response.failure, Ledger(self.provider.name, self.client.name))
        return self._answer(changed(response, origin=None))

    def _gathered(self, data: bytes) -> Response:
        """A stream that came whole, as the answer that it tells."""
        reader, checker = self.provider.stream_reader(), Checker()
        events: list[Event] = []
        for event in (*reader.feed(data), *reader.close()):
            fault = checker.check(event)
            events.append(event if fault is None else ResponseFailed(fault))
            if fault is not None:
                break
        return fold(events)

    def _answer(self, response: Response) -> Translation:
        client, crossing, rounds = self.client, self.crossing, self._rounds
        ledger = Ledger(self.provider.name, client.name)
        if response.strays:
            ledger.foreign(response)
        if crossing and response.failure is not None:
            return self._refused(response.failure, ledger)
        if rounds is not None and (rounds.taken or rounds.resumptions):
            response = fold(self._told)
        steps, shown, seed, keeps = None, response, self.seed or response.id, self.keeps
        if self.alters:
            steps = self._steps(seed, ledger)
            shown = answered(response, steps)
            if steps.failure is not None:
                return self._refused(steps.failure, ledger)
            keeps = keeps and (shown is not response or rounds is not None)
        seal = ""
        if rounds is not None:
            self.forgets(rounds, ledger)
            seal = unseen.first_seal(shown)
        wire = client.write_response(shown, ledger, Context(self._request, self.now, seed))
        error = wire.get("error")
        return Translation(
            encode(wire),
            ledger,
            response.model,
            False,
            502 if error and crossing and isinstance(error, dict) else 200,
            NOTHING,
            response.usage,
            _endings(response),
            response.failure,
            self.kept(response, steps, rounds, True, seal) if keeps else NOTHING,
        )

    def kept(
        self, response: Response, steps: AnswerSteps | None, taking: Rounds | None, ended: bool = True, seal: str = ""
    ) -> Mapping[str, bytes]:
        if taking is not None and (taking.done or self._left):
            parts = response.choices[0].parts if response.choices else ()
            calls = [part for part in parts if isinstance(part, Call)] if steps is None else steps.calls.get(0, ())
            asked = unseen.asked_last(self._request.turns) if self._request is not None else ""
            shown = unseen.Shown(calls, plain_text(parts), seal, asked)
            return unseen.kept_unseen(taking.done, (taking.parts, self._left), self._maker, shown, taking.named)
        if not self._seals:
            return NOTHING
        return memory.kept_of(response, self.provider, self._maker, steps, ended, self._bound)

    def _bound(self) -> str:
        """What stood before the answer, where the model's thoughts are bound to it."""
        sent, came = self._sent, self._came
        if sent is None or came is None or not self.provider.rules.binds_reasoning(sent.model):
            return ""
        return (self._before or memory.Before(came)).end()

    def forgets(self, heard: Rounds | None, ledger: Ledger) -> None:
        """Calls of which nobody will remind the model."""
        if heard is not None and not self.options.keeps:
            for call in heard.hidden:
                ledger.note("call-forgotten", None, f"the call of `{call.name}` is not in the client's next request")

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
        return Translation(encode(sent.body), ledger, status=sent.status, headers=sent.headers, failure=failure)

    def stream(self) -> StreamTranslation:
        """A translator for the provider's stream."""
        ledger = Ledger(self.provider.name, self.client.name)
        steps = self._steps("", ledger) if self.crossing or self.alters else None
        return StreamTranslation(self, ledger, steps)

    def _steps(self, seed: str, ledger: Ledger) -> AnswerSteps:
        """The way of an answer back to the client."""
        client, provider, options, undo = self.client, self.provider, self.options, self._undo
        way = Way(
            client,
            provider,
            self._plan,
            self._taken,
            self.seed or seed,
            options.maker,
            self._request is not None,
            self.keeps,
            options.stamps,
            undo if undo is UNDONE else undo.settled,
        )
        return AnswerSteps(way, ledger, slots_between(client, provider))

    @property
    def alters(self) -> bool:
        """Must answers be written anew?"""
        return self.crossing or self._plan.active or self.options.stamps or self.undoes

    @property
    def undoes(self) -> bool:
        """Did the operator's rules change tools, so that calls of them must be changed back?"""
        return bool(self._undo)

    def context(self, seed: str) -> Context:
        return Context(self._request, self.now, self.seed or seed)


def _has_hosted(request: Request) -> bool:
    found = False
    for tool in request.tools:
        found = found or type(tool) is HostedTool
    return found


def _endings(response: Response) -> tuple[str, ...]:
    found: list[str] = []
    for choice in response.choices:
        if choice.finish is not None:
            found.append(choice.finish.kind)
    return tuple(found)


__all__ = ["Body", "Exchange", "Object", "StreamTranslation", "Translation", "outbound", "parsed"]
