"""One proxied call: a client's request to a provider, the answer back, and what must be remembered between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec, Constraints, WriteContext
from toolwire.core.events import Event, Fold, ResponseFailed, StreamChecker, fold, unfold
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Failure,
    Media,
    ProviderTool,
    Request,
    Response,
    Result,
    Usage,
    plain_text,
    replace_fields,
)
from toolwire.core.json_values import (
    Body,
    Json,
    Malformed,
    Object,
    Path,
    decode,
    encode,
    parse_body,
    parse_object,
    path_keys,
)
from toolwire.core.known_tools import KnownTools
from toolwire.core.losses import Ledger, Loss
from toolwire.core.provenance import loosen_response
from toolwire.core.tokens import estimate_tokens
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.effects import NOTHING_TO_UNDO, PolicyUndo
from toolwire.tool_formats.prompt_table import ToolPrompt
from toolwire.tool_formats.prompts import find_prompt
from toolwire.translation import signature_memory, tool_rounds
from toolwire.translation.answer_repair import AnswerRepair, RepairPlan, plan_repair, repair_response
from toolwire.translation.answer_steps import AnswerSteps, seal_slots_between, translate_whole_answer
from toolwire.translation.mistaken_protocol import read_request, refuse_foreign_members, refuse_foreign_turns
from toolwire.translation.options import Options, apply_options
from toolwire.translation.request_steps.adapt_request import NO_CALL_IDS, adapt_request
from toolwire.translation.request_steps.images import ImageDescription, find_images, replace_images
from toolwire.translation.request_steps.prompted_tools import (
    constraints_for_prompt,
    has_tools_or_calls,
    prepare_tools_for_prompt,
    write_tools_into_prompt,
)
from toolwire.translation.request_steps.tools import UNCHANGED_NAMES, ToolNameMap, substitute_provider_tools
from toolwire.translation.restore_turns import restore_turns
from toolwire.translation.tool_rounds import Rounds, ServerCallInterceptor
from toolwire.translation.tool_search import ToolSearch, plan_tool_search

TOO_DEEP = "the JSON is nested too deeply"


class Translation(Struct, frozen=True):
    """The result of a translation: the body, and what the protocol says outside of it."""

    body: bytes
    ledger: Ledger
    model: str = ""
    """The model's name, which Gemini has in the path."""
    stream: bool = False
    """Is a stream asked for? Gemini says that in the path, too."""
    status: int = 200
    headers: Mapping[str, str] = EMPTY_MAPPING
    usage: Usage | None = None
    finishes: tuple[str, ...] = ()
    """The finish kind of each choice."""
    called_tools: tuple[str, ...] = ()
    """The tools that the answer calls, by the provider's names."""
    failure: Failure | None = None
    """The error, where the body is one."""
    memory_records: Mapping[str, bytes] = EMPTY_MAPPING
    """What a store should keep for the client's next request, by key (see `Exchange.memory_keys`)."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What could not be carried over unchanged."""
        return self.ledger.losses

    def json(self) -> Any:
        """The body, parsed."""
        return decode(self.body) if self.body else None


class RequestChanges(Struct):
    """How the provider's request differs from the client's: the answer is changed back."""

    tool_names: ToolNameMap = UNCHANGED_NAMES
    used_call_ids: frozenset[str] = NO_CALL_IDS
    policy_undo: PolicyUndo = NOTHING_TO_UNDO
    added_tool_names: frozenset[str] = frozenset()
    """Tools that the client does not know: those of the options, and substitutes for tools of the provider."""
    substituted_tools: Mapping[str, str] = EMPTY_MAPPING
    tool_search: ToolSearch | None = None
    """Set where not all tools are declared."""


class WholeRounds(Struct):
    """Whole answers that become one, with calls that the gateway runs between them."""

    state: Rounds
    repairs: Ledger
    """What was repaired in them."""
    events: tuple[Event, ...] = ()
    """Of all rounds so far."""


class Exchange:
    """Joins a client's protocol and a provider's protocol for one call. It does no I/O: bytes in, bytes out.

    First `translate_request`, then one of `translate_response`, `translate_streamed_response`, `start_stream` and
    `translate_error`. Where `can_take_rounds`, `add_round` or the stream says whether the model must be asked again.
    """

    # The request, as it is translated.
    _read_ahead: tuple[Body, Request] | None = None
    """The body that `memory_keys` has read, and the request in it: `translate_request` need not read it again."""
    _client_request: Request | None = None
    _request_repairs: Sequence[Path] = ()
    """The places in the request where U+FFFD replaced half of a surrogate pair."""
    _input_tokens: int | None = None
    """See `WriteContext.input_tokens`."""
    _prefix_digests: signature_memory.PrefixDigests | None = None
    """Digests of what is before each turn: a record is restored only where its context is the same."""
    _request_ledger: Ledger | None = None
    """What was lost of it."""
    _provider_request: Request | None = None
    """As it is sent, but with its tools, where these are written into the prompt."""
    _tool_prompt: ToolPrompt | None = None
    """How the tools are written into the prompt; None if they are sent as tools."""
    _repair_plan: RepairPlan | None = None
    """What can be repaired in the answers."""
    _opened: tuple[Body, Ledger, Request] | None = None
    """What `find_images` has read, with the stored records: `translate_request` need not read it again."""
    image_descriptions: Mapping[str, ImageDescription] = EMPTY_MAPPING
    """Texts for images, by their content, for a model that cannot see."""

    _whole_rounds: WholeRounds | None = None
    """Set where whole answers may take several rounds of tool calls, once the first has come."""
    _pending_results: tuple[Result, ...] = ()
    """See `keep_pending_results`."""

    def __init__(self, client: Codec, provider: Codec, options: Options | None = None) -> None:
        self.client = client
        self.provider = provider
        self.options = options = options or Options()
        self._changes = RequestChanges()
        self.now, self.seed = options.now, options.seed
        self.envelope_keys = options.envelope_keys
        self.is_cross_protocol = client.name != provider.name
        self._maker = options.maker or provider.name
        """Who makes the provider's seals."""
        self._remembers_seals = options.has_memory and signature_memory.needs_memory(client, provider)
        self._remembers_hidden_calls = options.has_memory and (
            options.expect_hidden_calls
            or bool(options.tools)
            or options.tool_search != "off"
            or (options.policy != () and any(rule.can_refuse_calls for rule in options.policy))
        )
        self.uses_memory = self._remembers_seals or self._remembers_hidden_calls
        """Can there be records to keep for the client?"""

    # --- the request ---

    def set_request(self, body: Body, request: Request, repairs: Sequence[Path]) -> None:
        """The request in this body, if somebody has read it already, and where halves of surrogate pairs were
        replaced."""
        self._read_ahead, self._client_request, self._request_repairs = (body, request), request, repairs

    def memory_keys(self, body: Body) -> tuple[str, ...]:
        """The keys under which a store may have records for this request."""
        if not self.uses_memory:
            return ()
        if self._read_ahead is None or self._read_ahead[0] is not body:
            self._read_ahead = (body, self._read_request(body))
        request = self._read_ahead[1]
        keys = signature_memory.memory_keys(request)
        if self._remembers_hidden_calls:
            keys = tuple(dict.fromkeys((*keys, *signature_memory.hidden_call_keys(request))))
        return keys

    def translate_request(
        self, body: Body, records: Mapping[str, bytes] = EMPTY_MAPPING, keeps_unchanged: bool = False
    ) -> Translation:
        """The client's request in the provider's protocol. `records` are what the store has under `memory_keys`. With
        `keeps_unchanged`, the translation of a request that need not be changed has no body."""
        opened, self._opened = self._opened, None
        try:
            if opened is not None and opened[0] is body:
                _, ledger, request = opened
            else:
                ledger = Ledger(self.client.name, self.provider.name)
                request = self._open_request(body, records, ledger)
            if self.image_descriptions:
                request = replace_images(request, self.image_descriptions, ledger)
            self._provider_request = request = self._adapt_request(request, ledger)
            self._request_ledger = ledger
            written = self._write_request(request, ledger)
            if ledger.may_lack_content and self.is_cross_protocol:
                refuse_foreign_turns(self.client, parse_object(body, self.options.max_bytes), ledger)
            is_kept = keeps_unchanged and not records and not ledger.notes and not self.has_tool_search
            return Translation(b"" if is_kept else encode(written), ledger, request.model, bool(request.stream))
        except RecursionError:  # newer Pythons read deeper JSON than the steps can walk
            raise Malformed(None, TOO_DEEP) from None

    def find_images(self, body: Body, records: Mapping[str, bytes] = EMPTY_MAPPING) -> tuple[Media, ...]:
        """The images of a request, and of earlier turns in the records. `image_descriptions` can have texts for them
        when the same body is translated next."""
        ledger = Ledger(self.client.name, self.provider.name)
        try:
            request = self._open_request(body, records, ledger)
            self._opened = (body, ledger, request)
            return find_images(request)
        except RecursionError:
            raise Malformed(None, TOO_DEEP) from None

    def _open_request(self, body: Body, records: Mapping[str, bytes], ledger: Ledger) -> Request:
        """The client's request, with the options applied and the stored records put back."""
        request = self._read_request(body)
        if request.unknown_fields and self.is_cross_protocol:
            refuse_foreign_members(self.client, request)
        if self._request_repairs:
            ledger.note_repairs([*self._request_repairs])
        ledger.note_foreign_fields(request)
        request, self._changes.added_tool_names = apply_options(request, self.options, ledger)
        self._prefix_digests = signature_memory.PrefixDigests(request)
        if records:
            constraints = self.provider.constraints
            request = restore_turns(request, self._prefix_digests, records, self._maker, constraints, ledger)
        return request

    def remember_request(self, body: Body) -> None:
        """Read a request that passed through as bytes, for the tool names, ids and options that its answer needs."""
        unreported = Ledger(self.client.name, self.provider.name)
        try:
            request, self._changes.added_tool_names = apply_options(self._read_request(body), self.options, unreported)
            self._adapt_request(request, unreported)
        except RecursionError:
            raise Malformed(None, TOO_DEEP) from None

    def _read_request(self, body: Body) -> Request:
        ahead, self._read_ahead = self._read_ahead, None
        if ahead is not None and ahead[0] is body:
            return ahead[1]
        repairs: list[Path] = []
        try:
            request = read_request(self.client, parse_object(body, self.options.max_bytes, repairs))
        except RecursionError:
            raise Malformed(None, TOO_DEEP) from None
        self._client_request, self._request_repairs = request, repairs
        return request

    def _adapt_request(self, request: Request, ledger: Ledger) -> Request:
        """Apply the policy, substitute tools that the provider does not run, defer tools if there are too many, and
        adapt the rest to its constraints."""
        provider, options, changes = self.provider, self.options, self._changes
        if options.policy:
            can_force_tools = provider.constraints.can_force_tools
            request, changes.policy_undo = apply_rules(request, options.policy, ledger, can_force_tools)
        if _has_provider_tools(request):
            substitutes = options.substitutes if (request.settings.count or 1) == 1 else EMPTY_MAPPING
            request, changes.substituted_tools = substitute_provider_tools(request, substitutes, provider, ledger)
            changes.added_tool_names |= changes.substituted_tools.keys()
        if options.tool_prompt and has_tools_or_calls(request):
            self._tool_prompt = find_prompt(options.tool_prompt, request.model)
            provider = replace(provider, constraints=self._constraints)
            request = prepare_tools_for_prompt(request, provider.constraints, ledger)
        plan = plan_tool_search(request, self.client.constraints, provider.constraints, options, ledger)
        if plan is not None:
            request = plan.request
            changes.added_tool_names |= {plan.search_name}
        request, changes.tool_names, changes.used_call_ids = adapt_request(
            request,
            provider,
            ledger,
            options,
            self.envelope_keys,
            keep_all_tools=plan is not None,
            stale_turns=plan.stale_turns if plan is not None else 0,
        )
        if options.repairs_answers or options.tool_prompt:
            self._repair_plan = plan_repair(request, options, changes.tool_names.other_names)
        if plan is not None:
            changes.tool_search = search = ToolSearch(plan, request, changes.tool_names, provider.constraints)
            search.note_deferred(ledger)
            request = replace_fields(request, tools=search.declared_tools())
        return request

    @property
    def _constraints(self) -> Constraints:
        """What the provider demands of this request."""
        constraints = self.provider.constraints
        return constraints if self._tool_prompt is None else constraints_for_prompt(constraints)

    def _write_request(self, request: Request, ledger: Ledger) -> Object:
        if self._tool_prompt is not None:
            request = write_tools_into_prompt(request, self._tool_prompt, self.provider.constraints, ledger)
        return self.provider.write_request(request, ledger)

    def forget_turns(self) -> None:
        """Drop the conversation, if the answer needs nothing of it: it is ten thousand objects, and an answer can take
        minutes."""
        asked, sent = self._client_request, self._provider_request
        if asked is None or sent is None or self.can_take_rounds:
            return
        if self.uses_memory and self.provider.constraints.binds_reasoning_to_tools(sent.model):
            return
        if sent.stream and self.client.estimates_input:
            if not self.is_cross_protocol:
                return  # the provider says it where the client's protocol has it: no estimate in advance
            self._input_tokens = estimate_tokens(asked)
        key, self._prefix_digests = self.client.constraints.turns_key, None
        self._client_request, self._provider_request = _without_turns(asked, key), replace(sent, turns=(), origin=None)

    @property
    def needs_provider_state(self) -> bool:
        """Does the request refer to earlier turns that only a provider of the client's protocol can have?"""
        return self._provider_request is not None and self._provider_request.has_provider_history

    @property
    def has_unreadable_summary(self) -> bool:
        """Does it need the provider's state only because of a summary (`ir.Summary`) that its maker has sealed?"""
        asked = self._client_request
        return self.needs_provider_state and asked is not None and not asked.has_provider_history

    @property
    def has_tool_search(self) -> bool:
        """Are tools deferred, or were they loaded by a search?"""
        return self._changes.tool_search is not None

    # --- answers in several rounds ---

    @property
    def _may_pause(self) -> bool:
        """Can the answer end in a pause (Anthropic `pause_turn`)? Only where the provider runs tools itself."""
        sent = self._provider_request
        return self.is_cross_protocol and sent is not None and _has_provider_tools(sent)

    @property
    def can_take_rounds(self) -> bool:
        """Can it be that the model must be asked again before the client gets its answer?"""
        if self._changes.added_tool_names or (self.has_policy_undo and self._changes.policy_undo.can_refuse):
            return True
        return self._may_pause or self._asks_again

    @property
    def _asks_again(self) -> bool:
        """Is the model told about a call that cannot be run?"""
        return self._repair_plan is not None and self.options.on_bad_call == "ask-again"

    def start_rounds(self) -> Rounds | None:
        """The state of an answer in several rounds; None where there can be only one."""
        if not self.can_take_rounds:
            return None
        changes, shown = self._changes, self.options.shown_tools
        undo, added = changes.policy_undo, changes.added_tool_names
        interceptor = None
        if added or undo.can_refuse or self._asks_again:
            interceptor = ServerCallInterceptor(changes.tool_names, undo, added)
            if self._repair_plan is not None and self._asks_again:
                interceptor.find_problem = self._repair_plan.find_problem
        keep_seals = self.options.has_memory or not added
        placeholder = None if self.is_cross_protocol else signature_memory.make_placeholder_seal(self.client)
        return Rounds(
            interceptor,
            self._may_pause,
            shown,
            keep_seals,
            changes.substituted_tools,
            placeholder,
            changes.tool_search,
        )

    def add_round(self, body: Body, is_stream: bool = False) -> Rounds | None:
        """Add a whole answer of the provider. Where the result `needs_next_round`, send `next_request`."""
        rounds = self._whole_rounds
        if rounds is None:
            state = self.start_rounds()
            if state is None:
                return None
            repairs = Ledger(self.provider.name, self.client.name)
            rounds = self._whole_rounds = WholeRounds(state, repairs)
        if is_stream and isinstance(body, bytes):
            response = self._fold_stream(body, [])
        else:
            response = self.provider.read_response(parse_object(body, self.options.max_bytes))
        if response.failure is not None:
            self._whole_rounds = None  # the failure replaces what earlier rounds said
            return None
        response, state = self._repair_response(response, rounds.repairs), rounds.state
        rounds.events += tuple(state.join_events(list(unfold(replace_fields(response, origin=None)))))
        return state if state.needs_next_round or state.intercepted or state.resumptions else None

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """Keep results of the last round for the next request, where the client has calls of its own to run."""
        self._pending_results = results

    def next_request(self, rounds: Rounds, results: Sequence[Result]) -> bytes:
        """The request that continues after a round, with the results of the intercepted calls."""
        if self._provider_request is None:
            raise ValueError("translate_request must come before next_request")
        rounds.resume(results)
        changes = self._changes
        if changes.added_tool_names:
            self._provider_request = tool_rounds.relax_tool_choice(
                self._provider_request,
                changes.tool_names,
                changes.policy_undo,
                changes.added_tool_names,
            )
        if changes.tool_search is not None:
            self._provider_request = tool_rounds.declare_found_tools(
                self._provider_request, changes.tool_search, rounds, self._constraints
            )
        request = tool_rounds.next_round_request(
            self._provider_request, rounds, self._constraints, self.options, self.provider.name
        )
        return encode(self._write_request(request, Ledger(self.client.name, self.provider.name)))

    def last_usage(self, usage: Usage | None) -> Usage | None:
        """What the last round alone has used, of the usage of a whole answer."""
        rounds = self._whole_rounds
        return usage if rounds is None or not rounds.state.resumptions else rounds.state.round_usage

    # --- the answer ---

    def translate_response(self, body: Body) -> Translation:
        """The provider's whole answer in the client's protocol."""
        repairs: list[Path] = []
        try:
            response = self.provider.read_response(parse_object(body, self.options.max_bytes, repairs))
            return self._write_response(response, repairs)
        except RecursionError:
            raise Malformed(None, TOO_DEEP) from None

    def translate_streamed_response(self, data: bytes) -> Translation:
        """A whole answer for the client, from a stream that the provider sent although none was asked for."""
        repairs: list[Path] = []
        response = self._fold_stream(data, repairs)
        if response.failure is not None:
            return self._write_failure(response.failure, Ledger(self.provider.name, self.client.name), response.usage)
        return self._write_response(replace_fields(response, origin=None), repairs)

    def translate_error(
        self, body: Body | None, status: int = 0, headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> Translation:
        """The provider's error in the client's protocol. The body need not be JSON."""
        try:
            value = parse_body(body, self.options.max_bytes) if body is not None else None
        except Malformed:
            value = bytes(body).decode("utf-8", "replace") if isinstance(body, (bytes, bytearray, memoryview)) else body
        failure = self.provider.read_error(value, status or self.options.status, headers)
        return self._write_failure(failure, Ledger(self.provider.name, self.client.name))

    def _fold_stream(self, data: bytes, repairs: list[Path]) -> Response:
        reader, checker, collected = self.provider.make_stream_reader(), StreamChecker(), Fold()
        for event in (*reader.feed(data), *reader.close()):
            failure = checker.check_event(event)
            if failure is not None:
                collected.add_event(ResponseFailed(failure))
                break
            collected.add_event(event)
        repairs += reader.replaced_halves
        return collected.response

    def _write_response(self, response: Response, repairs: list[Path]) -> Translation:
        client, whole_rounds = self.client, self._whole_rounds
        rounds = None if whole_rounds is None else whole_rounds.state
        ledger = Ledger(self.provider.name, client.name)
        if repairs:
            ledger.note_repairs(repairs)
        if response.unknown_fields:
            ledger.note_foreign_fields(response)
            response = loosen_response(response)
        if self.is_cross_protocol and response.failure is not None:
            return self._write_failure(response.failure, ledger, response.usage)
        answered = response
        if whole_rounds is not None and rounds is not None and (rounds.intercepted or rounds.resumptions):
            response = fold(whole_rounds.events)
            ledger.notes.update(whole_rounds.repairs.notes)
        elif self._repair_plan is not None:
            response = self._repair_response(response, ledger)
        is_repaired = response is not answered
        if is_repaired and response.failure is not None:
            return self._write_failure(response.failure, ledger, response.usage)
        steps, visible, seed = None, response, self.seed or response.id
        if self.needs_answer_rewrite or is_repaired:
            steps = self.make_answer_steps(seed, ledger, is_repaired)
            visible = translate_whole_answer(response, steps)
            if steps.failure is not None:
                return self._write_failure(steps.failure, ledger, response.usage)
        seal = ""
        if rounds is not None:
            self.note_forgotten_calls(rounds, ledger)
            seal = signature_memory.first_seal(part for choice in visible.choices for part in choice.parts)
        body = client.write_response(visible, ledger, self.writer_context(seed))
        records = self.collect_records(response, steps, rounds, True, seal) if self.uses_memory else EMPTY_MAPPING
        is_error = self.is_cross_protocol and isinstance(body.get("error"), dict)
        return Translation(
            encode(body),
            ledger,
            response.model,
            status=502 if is_error and body["error"] else 200,
            usage=response.usage,
            finishes=tuple([choice.finish.kind for choice in response.choices if choice.finish is not None]),
            called_tools=response.called_tools,
            failure=response.failure,
            memory_records=records,
        )

    def _write_failure(self, failure: Failure, ledger: Ledger, usage: Usage | None = None) -> Translation:
        """A failure in the client's protocol. `usage` is that of an answer that the client does not get."""
        reply = self.client.write_error(failure)
        return Translation(
            encode(reply.body), ledger, status=reply.status, usage=usage, headers=reply.headers, failure=failure
        )

    @property
    def needs_answer_rewrite(self) -> bool:
        """Must answers be changed for the client, or can they be written back verbatim?"""
        if self.is_cross_protocol or self.options.stamp_seals:
            return True
        return self._changes.tool_names.has_changes or self.has_policy_undo

    @property
    def repairs_answers(self) -> bool:
        """May calls in the answers be repaired?"""
        return self._repair_plan is not None

    def start_repair(self, ledger: Ledger) -> AnswerRepair | None:
        plan = self._repair_plan
        return None if plan is None else AnswerRepair(plan, ledger, self.seed, self._changes.used_call_ids)

    def _repair_response(self, response: Response, ledger: Ledger) -> Response:
        repair = self.start_repair(ledger)
        return response if repair is None else repair_response(response, repair)

    @property
    def has_policy_undo(self) -> bool:
        """Did policy rules change tools, so that calls of them must be changed back?"""
        return self._changes.policy_undo is not NOTHING_TO_UNDO

    def make_answer_steps(self, seed: str, ledger: Ledger, is_repaired: bool = False) -> AnswerSteps:
        undo = self._changes.policy_undo
        return AnswerSteps(
            self.client,
            self.provider,
            ledger,
            seal_slots_between(self.client, self.provider),
            self._changes.tool_names,
            self._changes.used_call_ids,
            seed=self.seed or seed,
            maker=self.options.maker,
            has_request=self._client_request is not None,
            uses_memory=self.uses_memory,
            stamp_seals=self.options.stamp_seals,
            envelope_keys=self.envelope_keys,
            policy_undo=undo if undo is NOTHING_TO_UNDO else undo.without_retries,
            is_repaired=is_repaired,
        )

    def client_tool_name(self, name: str) -> str:
        """The client's own name of a tool that the provider knows by this name."""
        if not self._changes.tool_names.names and not self.has_policy_undo:
            return name
        original = self._changes.tool_names.client_tool(name)
        call = Call("", name) if original is None else Call("", original.name, namespace=original.namespace)
        call = self._changes.policy_undo.restore_name(call)
        return f"{call.namespace}.{call.name}" if call.namespace else call.name

    @property
    def renamed_tools(self) -> Mapping[str, str]:
        """The client's name of each tool that the provider knows by another name."""
        names, renamed = self._changes.tool_names.names, self._changes.policy_undo.tools
        if not names and not renamed:
            return EMPTY_MAPPING
        changed = dict.fromkeys((*names, *(name for _, name in renamed)))
        pairs = ((name, self.client_tool_name(name)) for name in changed)
        return {name: client_name for name, client_name in pairs if client_name != name}

    def writer_context(self, seed: str) -> WriteContext:
        seed = self.seed or seed
        return WriteContext(self._client_request, self.now, seed, self._request_ledger, self._input_tokens)

    # --- what to keep for the client's next request ---

    def collect_records(
        self, response: Response, steps: AnswerSteps | None, rounds: Rounds | None, ended: bool = True, seal: str = ""
    ) -> Mapping[str, bytes]:
        """The records of an answer, by key. `seal` is the first one that the client got."""
        if rounds is not None and (rounds.finished_rounds or self._pending_results):
            parts = response.choices[0].parts if response.choices else ()
            calls = [part for part in parts if isinstance(part, Call)] if steps is None else steps.calls.get(0, ())
            question = signature_memory.last_user_text(self._client_request.turns) if self._client_request else ""
            visible = signature_memory.VisibleAnswer(calls, plain_text(parts), seal, question)
            last_round = (rounds.parts, self._pending_results)
            return signature_memory.collect_hidden_records(
                rounds.finished_rounds, last_round, self._maker, visible, rounds.to_runner_call
            )
        if not self._remembers_seals:
            return EMPTY_MAPPING
        digest = self._context_digest
        return signature_memory.collect_records(response, self.provider, self._maker, steps, ended, digest)

    def _context_digest(self) -> str:
        """A digest of everything before the answer, for models that bind their thinking to it; "" for others."""
        sent, digests = self._provider_request, self._prefix_digests
        if sent is None or digests is None or not self.provider.constraints.binds_reasoning_to_tools(sent.model):
            return ""
        return digests.digest_before(len(digests.request.turns))

    def note_forgotten_calls(self, rounds: Rounds, ledger: Ledger) -> None:
        """Without a store, intercepted calls are missing from the client's next request."""
        if not self.options.has_memory:
            for call in rounds.hidden_calls:
                ledger.note("call-forgotten", None, f"the call of `{call.name}` is not in the client's next request")


def _without_turns(request: Request, turns_key: str) -> Request:
    """The request with what its answer may repeat. Tools that were known keep the JSON that all requests share."""
    tools, origin = request.tools, request.origin
    if origin is not None and isinstance(origin.wire, dict):
        wire = {key: value for key, value in origin.wire.items() if key != turns_key}
        if type(tools) is KnownTools and tools.path is not None:
            _replace_value(wire, path_keys(tools.path), tools.value)
        origin = replace(origin, wire=wire, intact=False)
    return replace(request, turns=(), origin=origin)


def _replace_value(node: Object, keys: Sequence[str | int], value: Json) -> None:
    """Put the value at this place, without a change to what is inside of the node."""
    key, *inner = keys
    if not inner:
        node[str(key)] = value
    elif isinstance(child := node.get(str(key)), dict):
        node[str(key)] = changed = {**child}
        _replace_value(changed, inner, value)


def _has_provider_tools(request: Request) -> bool:
    return ProviderTool in map(type, request.tools)
