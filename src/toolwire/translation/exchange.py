"""One proxied call: a client's request to a provider and the answer back, with what must be remembered between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec, WriteContext
from toolwire.core.events import Event, ResponseFailed, StreamChecker
from toolwire.core.fold import fold, unfold
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Failure,
    ProviderTool,
    Request,
    Response,
    Result,
    Usage,
    plain_text,
    replace_fields,
)
from toolwire.core.json_values import Malformed, Object, decode, encode
from toolwire.core.losses import Ledger, Loss
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.undo import NOTHING_TO_UNDO
from toolwire.translation import hidden_calls, signature_memory, tool_rounds
from toolwire.translation import options as heeding
from toolwire.translation.answer_steps import AnswerContext, AnswerSteps, seal_slots_between, translate_whole_answer
from toolwire.translation.body import Body, parse_body, parse_object
from toolwire.translation.options import Options
from toolwire.translation.request_steps import restore_turns, tool_substitutes
from toolwire.translation.request_steps.prepare_request import NO_CALL_IDS, prepare_request
from toolwire.translation.request_steps.tool_names import UNCHANGED_NAMES
from toolwire.translation.streaming import StreamTranslation
from toolwire.translation.tool_rounds import Rounds

_CAN_REFUSE_CALLS = attrgetter("can_refuse_calls")
_NO_TOOL_NAMES: frozenset[str] = frozenset()


class Translation(Struct, frozen=True):
    """What came out: the body as bytes, and what the wire keeps outside of it."""

    body: bytes
    ledger: Ledger
    model: str = ""
    stream: bool = False
    status: int = 200
    headers: Mapping[str, str] = EMPTY_MAPPING
    usage: Usage | None = None
    finishes: tuple[str, ...] = ()
    """Why the answers ended."""
    failure: Failure | None = None
    """Why there is no answer in it, where there is none."""
    memory_records: Mapping[str, bytes] = EMPTY_MAPPING
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
    _client_request: Request | None = None
    _remembers_seals = False
    """Seals, and what else its protocol has no slot for?"""
    _remembers_hidden_calls = False
    """Calls that it may not see?"""
    _provider_request: Request | None = None
    needs_provider_state = False
    """Does the request build on turns that only a provider of the client's own protocol could hold?"""
    _may_pause = False
    """Can the provider's answer pause in a way that this client's protocol cannot say? Only one that has tools of its
    own to run pauses."""
    _received_request: Request | None = None
    _prefix_digests: signature_memory.PrefixDigests | None = None
    _tool_names = UNCHANGED_NAMES
    _used_call_ids = NO_CALL_IDS
    _joined_events: tuple[Event, ...] = ()
    _pending_results: tuple[Result, ...] = ()
    _substituted_tools: Mapping[str, str] = EMPTY_MAPPING

    def __init__(self, client: Codec, provider: Codec, options: Options | None = None) -> None:
        self.client = client
        self.provider = provider
        self.options = options = options or Options()
        self.now, self.seed = options.now, options.seed
        self.is_cross_protocol = client.name != provider.name
        self._request_read_early: tuple[Body, Request] | None = None
        self._output_limit: tuple[int, str] | None = None
        """What the limit of the output became, and why, where it did not stay."""
        self._policy_undo = NOTHING_TO_UNDO
        self._added_tool_names = _NO_TOOL_NAMES
        self._rounds: Rounds | None = None
        self.uses_memory = False
        """Is there anything to keep for the client?"""
        if options.has_memory:
            if options.expect_hidden_calls or options.tools or options.policy:
                self._remembers_hidden_calls = (
                    options.expect_hidden_calls or bool(options.tools) or any(map(_CAN_REFUSE_CALLS, options.policy))
                )
            self._remembers_seals = signature_memory.needs_memory(client, provider)
            self.uses_memory = self._remembers_seals or self._remembers_hidden_calls

    def memory_keys(self, body: Body) -> tuple[str, ...]:
        """The ids under which something may be kept for this request. The body is read here, and not again."""
        if not self.uses_memory:
            return ()
        request = self._read_request(body)
        self._request_read_early = (body, request)
        wanted = signature_memory.memory_keys(request)
        return (
            tuple(dict.fromkeys((*wanted, *hidden_calls.hidden_call_keys(request))))
            if self._remembers_hidden_calls
            else wanted
        )

    def translate_request(self, body: Body, records: Mapping[str, bytes] = EMPTY_MAPPING) -> Translation:
        """The client's request in the provider's protocol, with what was kept for it put back."""
        provider, options = self.provider, self.options
        ledger = Ledger(self.client.name, provider.name)
        self._received_request = request = (
            self._read_request(body) if self._request_read_early is None else self._read_request_once(body)
        )
        if request.unknown_fields:
            ledger.note_foreign_fields(request)
        if self._output_limit is not None:
            heeding.note_output_limit(self._output_limit, request, ledger)
        if records:
            self._prefix_digests = before = signature_memory.PrefixDigests(request)
            request = restore_turns.restore_turns(request, before, records, self._maker, provider.constraints, ledger)
        runs_some = _has_provider_tools(request)
        if runs_some or options.policy:
            request = self._apply_policy_and_substitutes(request, ledger)
            runs_some = _has_provider_tools(request)
        arranged = request.tools
        request, self._tool_names, self._used_call_ids = prepare_request(request, provider, ledger, options)
        self._provider_request, self.needs_provider_state = request, request.continues
        self._may_pause = self.is_cross_protocol and (
            runs_some if request.tools is arranged else _has_provider_tools(request)
        )
        return Translation(encode(provider.write_request(request, ledger)), ledger, request.model, bool(request.stream))

    @property
    def _maker(self) -> str:
        return self.options.maker or self.provider.name

    @property
    def has_unreadable_summary(self) -> bool:
        """Is it only a summary that makes it go on from such turns, one that nobody but its maker can read?"""
        return self.needs_provider_state and self._client_request is not None and not self._client_request.continues

    # --- answers in several rounds ---

    @property
    def can_take_rounds(self) -> bool:
        """Can an answer take several rounds?"""
        if self._may_pause or self._added_tool_names:
            return True
        return self._policy_undo is not NOTHING_TO_UNDO and self._policy_undo.can_refuse

    def start_rounds(self) -> Rounds | None:
        if not self.can_take_rounds:
            return None
        judge = (
            tool_rounds.ServerCallInterceptor(self._tool_names, self._policy_undo, self._added_tool_names)
            if self._added_tool_names or self._policy_undo.can_refuse
            else None
        )
        sealed = self.options.has_memory or not self._added_tool_names
        mark = None if self.is_cross_protocol else hidden_calls.make_placeholder_seal(self.client)
        return Rounds(judge, self._may_pause, self.options.shown_tools, sealed, self._substituted_tools, mark)

    def add_round(self, body: Body, is_stream: bool = False) -> Rounds | None:
        """A whole answer, however the provider sent it. Not None: it took rounds, and where `paused` the model must be
        asked again (`go_on`)."""
        if self._rounds is None:
            self._rounds = self.start_rounds()
        if self._rounds is None:
            return None
        if is_stream and isinstance(body, bytes):
            response = self._fold_stream(body)
        else:
            response = self.provider.read_response(parse_object(body, self.options))
        if response.failure is not None:
            self._rounds = None  # it failed, whatever was said before
            return None
        self._joined_events += tuple(self._rounds.join_events(list(unfold(replace_fields(response, origin=None)))))
        return self._rounds if self._rounds.is_paused or self._rounds.intercepted or self._rounds.resumptions else None

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """The results of those calls of the last round that are not the client's: kept for its next request."""
        self._pending_results = results

    def next_request(self, rounds: Rounds, results: Sequence[Result]) -> bytes:
        """The request with which the model goes on after a round."""
        if self._provider_request is None:
            raise ValueError("only an exchange whose request was translated can go on")
        rounds.resume(results)
        if self._added_tool_names:
            self._provider_request = tool_rounds.relax_tool_choice(
                self._provider_request, self._tool_names, self._policy_undo, self._added_tool_names
            )
        request = tool_rounds.next_round_request(
            self._provider_request, rounds, self.provider.constraints, self.options, self.provider.name
        )
        return encode(self.provider.write_request(request, Ledger(self.client.name, self.provider.name)))

    def remember_request(self, body: Body) -> None:
        """Know the client's request without translating it anew: for an answer that comes alone."""
        scratch = Ledger(self.client.name, self.provider.name)
        request = self._apply_policy_and_substitutes(self._read_request(body), scratch)
        _, self._tool_names, self._used_call_ids = prepare_request(request, self.provider, scratch, self.options)

    def _apply_policy_and_substitutes(self, request: Request, ledger: Ledger) -> Request:
        """The request as the operator's rules want it, and with functions in place of tools that the provider does not
        run."""
        options = self.options
        if options.policy:
            request, self._policy_undo = apply_rules(
                request, options.policy, ledger, self.provider.constraints.can_force_tools
            )
        if ProviderTool not in map(type, request.tools):
            return request
        substitutes = options.substitutes if (request.settings.count or 1) == 1 else EMPTY_MAPPING
        found = tool_substitutes.substitute_provider_tools(request, substitutes, self.provider, ledger)
        self._substituted_tools = found.names
        self._added_tool_names |= found.names.keys()
        return found.request

    def _read_request(self, body: Body) -> Request:
        options = self.options
        try:
            request = self.client.read_request(parse_object(body, options))
        except RecursionError:
            raise Malformed(None, "the JSON is nested too deeply") from None
        self._client_request = request
        model = options.model or request.model
        stream = request.stream if options.stream is None else options.stream
        if model != request.model or stream != request.stream:
            # Another protocol's writer gives no node back verbatim, so its origin need not be let go of.
            change = replace if self.is_cross_protocol else replace_fields
            request = change(request, model=model, stream=stream)
        limit = options.model_output_limit if options.max_output_tokens is None else options.max_output_tokens
        if limit is None and options.cache_breakpoints and not options.tools:
            return request
        return self._apply_options(request)

    def _read_request_once(self, body: Body) -> Request:
        """What `wanted` has read, where it was the same."""
        ahead, self._request_read_early = self._request_read_early, None
        return ahead[1] if ahead is not None and ahead[0] is body else self._read_request(body)

    def _apply_options(self, request: Request) -> Request:
        """The request with what the options ask for besides another model."""
        options = self.options
        changes: dict[str, Any] = {}
        if options.model_output_limit is not None or options.max_output_tokens is not None:
            self._output_limit = heeding.choose_output_limit(request.settings.max_tokens, options)
        uncached = not options.cache_breakpoints and request.settings.cache is None and self.is_cross_protocol
        if uncached or self._output_limit is not None:
            changes["settings"] = heeding.change_settings(request.settings, self._output_limit, uncached)
        if options.tools and (request.settings.count or 1) == 1:
            tools = heeding.missing_tools(request, options.tools)
            self._added_tool_names = frozenset(tool.name for tool in tools)
            changes["tools"] = (*request.tools, *tools)
        return replace_fields(request, **changes) if changes else request

    def translate_response(self, body: Body) -> Translation:
        """The provider's whole answer in the client's protocol."""
        return self._write_answer(self.provider.read_response(parse_object(body, self.options)))

    def translate_streamed_response(self, data: bytes) -> Translation:
        """A whole answer for the client where the provider sent a stream though none was asked for."""
        response = self._fold_stream(data)
        if response.failure is not None:
            return self._write_failure(response.failure, Ledger(self.provider.name, self.client.name))
        return self._write_answer(replace_fields(response, origin=None))

    def _fold_stream(self, data: bytes) -> Response:
        """A stream that came whole, as the answer that it tells."""
        reader, checker = self.provider.make_stream_reader(), StreamChecker()
        events: list[Event] = []
        for event in (*reader.feed(data), *reader.close()):
            fault = checker.check_event(event)
            events.append(event if fault is None else ResponseFailed(fault))
            if fault is not None:
                break
        return fold(events)

    def _write_answer(self, response: Response) -> Translation:
        client, crossing, rounds = self.client, self.is_cross_protocol, self._rounds
        ledger = Ledger(self.provider.name, client.name)
        if response.unknown_fields:
            ledger.note_foreign_fields(response)
        if crossing and response.failure is not None:
            return self._write_failure(response.failure, ledger)
        if rounds is not None and (rounds.intercepted or rounds.resumptions):
            response = fold(self._joined_events)
        steps, shown, seed, keeps = None, response, self.seed or response.id, self.uses_memory
        if self.needs_answer_rewrite:
            steps = self._make_answer_steps(seed, ledger)
            shown = translate_whole_answer(response, steps)
            if steps.failure is not None:
                return self._write_failure(steps.failure, ledger)
            keeps = keeps and (shown is not response or rounds is not None)
        seal = ""
        if rounds is not None:
            self.note_forgotten_calls(rounds, ledger)
            seal = hidden_calls.first_seal(shown)
        wire = client.write_response(shown, ledger, WriteContext(self._client_request, self.now, seed))
        error = wire.get("error")
        return Translation(
            encode(wire),
            ledger,
            response.model,
            False,
            502 if error and crossing and isinstance(error, dict) else 200,
            EMPTY_MAPPING,
            response.usage,
            _finish_kinds(response),
            response.failure,
            self.collect_records(response, steps, rounds, True, seal) if keeps else EMPTY_MAPPING,
        )

    def collect_records(
        self, response: Response, steps: AnswerSteps | None, rounds: Rounds | None, ended: bool = True, seal: str = ""
    ) -> Mapping[str, bytes]:
        if rounds is not None and (rounds.finished_rounds or self._pending_results):
            parts = response.choices[0].parts if response.choices else ()
            calls = [part for part in parts if isinstance(part, Call)] if steps is None else steps.calls.get(0, ())
            asked = hidden_calls.last_user_text(self._client_request.turns) if self._client_request is not None else ""
            shown = hidden_calls.VisibleAnswer(calls, plain_text(parts), seal, asked)
            return hidden_calls.collect_hidden_records(
                rounds.finished_rounds, (rounds.parts, self._pending_results), self._maker, shown, rounds.to_runner_call
            )
        if not self._remembers_seals:
            return EMPTY_MAPPING
        return signature_memory.collect_records(
            response, self.provider, self._maker, steps, ended, self._context_digest
        )

    def _context_digest(self) -> str:
        """What stood before the answer, where the model's thoughts are bound to it."""
        sent, came = self._provider_request, self._received_request
        if sent is None or came is None or not self.provider.constraints.binds_reasoning_to_tools(sent.model):
            return ""
        return (self._prefix_digests or signature_memory.PrefixDigests(came)).digest_of_all()

    def note_forgotten_calls(self, rounds: Rounds | None, ledger: Ledger) -> None:
        """Calls of which nobody will remind the model."""
        if rounds is not None and not self.options.has_memory:
            for call in rounds.hidden_calls:
                ledger.note("call-forgotten", None, f"the call of `{call.name}` is not in the client's next request")

    def translate_error(
        self, body: Body | None, status: int = 0, headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> Translation:
        """The provider's refusal in the client's protocol. Anything can stand in such a body, so nothing is refused."""
        try:
            value = parse_body(body, self.options) if body is not None else None
        except Malformed:
            value = bytes(body).decode("utf-8", "replace") if isinstance(body, (bytes, bytearray, memoryview)) else body
        failure = self.provider.read_error(value, status or self.options.status, headers)
        return self._write_failure(failure, Ledger(self.provider.name, self.client.name))

    def _write_failure(self, failure: Failure, ledger: Ledger) -> Translation:
        sent = self.client.write_error(failure)
        return Translation(encode(sent.body), ledger, status=sent.status, headers=sent.headers, failure=failure)

    def start_stream(self) -> StreamTranslation:
        """A translator for the provider's stream."""
        ledger = Ledger(self.provider.name, self.client.name)
        steps = self._make_answer_steps("", ledger) if self.is_cross_protocol or self.needs_answer_rewrite else None
        return StreamTranslation(self, ledger, steps)

    def _make_answer_steps(self, seed: str, ledger: Ledger) -> AnswerSteps:
        """The way of an answer back to the client."""
        client, provider, options, undo = self.client, self.provider, self.options, self._policy_undo
        way = AnswerContext(
            client,
            provider,
            self._tool_names,
            self._used_call_ids,
            self.seed or seed,
            options.maker,
            self._client_request is not None,
            self.uses_memory,
            options.stamp_seals,
            undo if undo is NOTHING_TO_UNDO else undo.without_retries,
        )
        return AnswerSteps(way, ledger, seal_slots_between(client, provider))

    @property
    def needs_answer_rewrite(self) -> bool:
        """Must answers be written anew?"""
        return (
            self.is_cross_protocol or self._tool_names.has_changes or self.options.stamp_seals or self.has_policy_undo
        )

    @property
    def has_policy_undo(self) -> bool:
        """Did the operator's rules change tools, so that calls of them must be changed back?"""
        return bool(self._policy_undo)

    def writer_context(self, seed: str) -> WriteContext:
        return WriteContext(self._client_request, self.now, self.seed or seed)


def _has_provider_tools(request: Request) -> bool:
    found = False
    for tool in request.tools:
        found = found or type(tool) is ProviderTool
    return found


def _finish_kinds(response: Response) -> tuple[str, ...]:
    found: list[str] = []
    for choice in response.choices:
        if choice.finish is not None:
            found.append(choice.finish.kind)
    return tuple(found)


__all__ = ["Body", "Exchange", "Object", "StreamTranslation", "Translation", "parse_body", "prepare_request"]
