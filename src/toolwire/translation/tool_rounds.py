"""Answers in several rounds: the model is asked again before the client sees the end of the answer.

Anthropic may pause an answer while it runs tools itself (`pause_turn`). And some calls must not reach the client: calls
of tools that the server added, of tools that the policy removed, or with arguments that the policy refuses or that no
tool could take. Such calls are intercepted, the model gets their results, and all rounds are joined to one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core import ids
from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Part,
    Reasoning,
    Request,
    Result,
    Seal,
    Text,
    Tool,
    ToolChoice,
    Turn,
    Usage,
    replace_fields,
    without_wire,
)
from toolwire.core.losses import Ledger
from toolwire.core.provider_tools import as_provider_call
from toolwire.core.tool_choice import must_call
from toolwire.policy.effects import PolicyUndo, RefusedCall
from toolwire.schema.repair import restore_arguments
from toolwire.translation.options import Options
from toolwire.translation.request_steps import history, turn_content
from toolwire.translation.request_steps.tools import ToolNameMap, convert_argument_text
from toolwire.translation.tool_search import ToolSearch

PAUSE = "pause"
MAX_SHOWN_ARGUMENTS = 200
"""The most characters of a call's arguments that the client is shown."""
NO_MORE_CALLS = "no more calls can be made for this answer; say what you have found so far"
"""The result of calls after the last round that is allowed."""


class InterceptedCall(Struct, frozen=True):
    """A call that does not reach the client."""

    call: Call
    """As the provider made it."""
    refusal: str = ""
    """Why it is refused; "" where the server runs it."""


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """The tokens of both: every round is billed."""
    if first is None or second is None:
        return first or second
    counts: dict[str, int] = {}
    for name in _COUNTED_FIELDS:
        given = [count for count in (getattr(first, name), getattr(second, name)) if count is not None]
        if given:
            counts[name] = sum(given)
    return replace(Usage(service_tier=first.service_tier or second.service_tier), **counts)


_COUNTED_FIELDS = tuple(name for name in Usage.__struct_fields__ if name not in ("origin", "service_tier"))


class Round(Struct, frozen=True):
    """A finished round: the parts of the model, and the results of its calls."""

    parts: tuple[Part, ...]
    results: tuple[Result, ...]


class Rounds(Struct, eq=False):
    """Joins the events of several answers of the provider to those of one answer."""

    interceptor: ServerCallInterceptor | None = None
    provider_pauses: bool = False
    shown_tools: frozenset[str] = frozenset()
    keep_seals: bool = True
    """Without a store the intercepted calls are forgotten, and seals that cover them would be refused later."""
    substituted_tools: Mapping[str, str] = EMPTY_MAPPING
    """The provider tool that each substitute function replaces, by the function's name."""
    placeholder_seal: Seal | None = None
    """The seal of thinking that Toolwire made up, for a client that sends thinking back."""
    tool_search: ToolSearch | None = None
    """Runs the calls of the search tool, where not all tools are declared."""
    needs_next_round: bool = False
    """Must the model be asked again?"""
    intercepted: list[InterceptedCall] = []
    """The calls of this round that do not reach the client."""
    finished_rounds: list[Round] = []
    resumptions: int = 0
    removed_rounds: int = 0
    """How many rounds in a row had only calls of tools that the policy removed."""
    rounds_before_load: int = 0
    """How many of the finished rounds were made before a search has loaded tools for the last time."""
    _reasoning_indexes: set[int] = set()
    _hidden_indexes: set[int] = set()
    _call_ids: set[str] = set()
    _inserted_events: list[ev.Event] = []
    _fold: ev.Fold = field(default_factory=ev.Fold)
    _held_events: dict[int, list[ev.Event]] = {}
    _has_client_call: bool = False
    _earlier_usage: Usage | None = None
    _index_offset: int = 0
    _next_index: int = 0
    _has_started: bool = False

    @property
    def round_usage(self) -> Usage | None:
        """What this round alone has used: the calls of a provider are billed one by one."""
        return self._fold.usage

    @property
    def parts(self) -> tuple[Part, ...]:
        choices = self._fold.response.choices
        return choices[0].parts if choices else ()

    def join_events(self, events: list[ev.Event]) -> list[ev.Event]:
        out, self._inserted_events = self._inserted_events, []
        for event in events:
            kind = type(event)
            if self.interceptor is not None and event.frame is not None:
                event = replace(event, frame=None)  # parts are left out and renumbered
            if kind is ev.ResponseStart:
                self._fold.add_event(event)
                if not self._has_started:
                    out.append(event)
                self._has_started = True
            elif isinstance(event, (ev.ResponseFailed, ev.OpaqueEvent)) and event.failure is not None:
                self.needs_next_round = False
                out.append(event if isinstance(event, ev.ResponseFailed) else ev.ResponseFailed(event.failure))
            elif kind is ev.ChoiceEnd or kind is ev.ResponseEnd:
                if kind is ev.ChoiceEnd:
                    paused = self.provider_pauses and event.finish.kind == PAUSE  # type: ignore[union-attr]
                    self.needs_next_round = paused or (bool(self.intercepted) and not self._has_client_call)
                if not self.needs_next_round:
                    self._fold.add_event(event)
                    out.append(event)
            else:
                out += self._hold_or_pass(self._renumber_event(event))
        return out if self.keep_seals else [stripped for event in out for stripped in self._strip_seals(event)]

    def _renumber_event(self, event: ev.Event) -> ev.Event:
        """The event as part of the joined answer: its index continues, and its usage includes earlier rounds."""
        if type(event) is ev.UsageUpdate:
            self._fold.add_event(event)
            usage = add_usage(self._earlier_usage, event.usage)
            return event if self._earlier_usage is None or usage is None else ev.UsageUpdate(usage)
        index: int | None = getattr(event, "index", None)
        if index is None:
            return event
        if type(event) is ev.PartStart:
            self._next_index = max(self._next_index, self._index_offset + index + 1)
            call = event.part
            if self.interceptor is not None and isinstance(call, Call):
                # Some servers send no ids, or the same ones in every answer; the next request needs unique ones.
                if not call.id or call.id in self._call_ids:
                    id = ids.derive_id("call_", self._fold.response.id, call.id, len(self._call_ids), call.name)
                    call = replace(call, id=id)
                    event = replace(event, part=call, frame=None)
                self._call_ids.add(call.id)
        if self._index_offset:
            event = replace(event, index=self._index_offset + index, frame=None)
        self._fold.add_event(event)
        return event

    def _strip_seals(self, event: ev.Event) -> list[ev.Event]:
        """An event without seals, and without ids that refer to sealed parts."""
        index: int | None = getattr(event, "index", None)
        if type(event) is ev.PartStart:
            part = event.part
            if isinstance(part, Reasoning) and not part.hidden:
                self._reasoning_indexes.add(event.index)
                return [replace(event, part=replace_fields(part, seal=None, id=""))]
            if isinstance(part, Reasoning):
                self._hidden_indexes.add(event.index)
                return []
            if isinstance(part, Call):
                return [replace(event, part=replace_fields(part, seal=None, item_id=""))]
            return [replace(event, part=replace_fields(part, seal=None))] if isinstance(part, Text) else [event]
        if type(event) is ev.SealDelta or index in self._hidden_indexes:
            return []
        if type(event) is ev.PartEnd and event.index in self._reasoning_indexes and self.placeholder_seal is not None:
            return [ev.SealDelta(event.index, self.placeholder_seal), event]
        return [event]

    def _hold_or_pass(self, event: ev.Event) -> list[ev.Event]:
        """Hold back the events of a call that may be intercepted."""
        index: int | None = getattr(event, "index", None)
        held = self._held_events.get(index) if index is not None else None
        if held is not None and index is not None:
            held.append(event)
            if type(event) is not ev.PartEnd:
                return []
            call, interceptor = self._fold.current_part(index), self.interceptor
            refusal = interceptor.decide(call) if interceptor is not None and isinstance(call, Call) else None
            del self._held_events[index]
            if refusal is None or not isinstance(call, Call):
                self._has_client_call = True
                return held
            self.intercepted.append(InterceptedCall(call, refusal))
            return []
        if type(event) is ev.PartStart and isinstance(event.part, Call):
            if self.interceptor is not None and self.interceptor.may_intercept(event.part.name):
                self._held_events[event.index] = [event]
                return []
            self._has_client_call = True
        return [event]

    def resume(self, results: Sequence[Result] = ()) -> None:
        """Start the next round: after these results, or, after a pause, in the same turn."""
        self.needs_next_round = False
        self.resumptions += 1
        self.removed_rounds = self.removed_rounds + 1 if self.removed_tool else 0
        self._earlier_usage = add_usage(self._earlier_usage, self._fold.usage)
        self._insert_shown_calls(results)
        self._index_offset = self._next_index
        if results:
            self.finished_rounds.append(Round(self.parts, tuple(results)))
            self._fold, self.intercepted, self._has_client_call = ev.Fold(), [], False
        self._fold.usage = None

    def _insert_shown_calls(self, results: Sequence[Result]) -> None:
        """Show calls to the client: those of substitute functions as the provider's tool, others as thinking (every
        client shows it, and none sends it to a provider as its own)."""
        lines: list[str] = []
        for intercepted, result in zip(self.intercepted, results, strict=False):
            call = self.to_runner_call(intercepted.call)
            if call.name in self.substituted_tools:
                for part in as_provider_call(call, result, self.substituted_tools[call.name]):
                    self._insert_part(part)
            elif call.name in self.shown_tools:
                lines.append(summarise_call(call, result))
        if lines:
            self._insert_part(Reasoning("\n".join(lines), seal=self.placeholder_seal if self.keep_seals else None))

    def _insert_part(self, part: Part) -> None:
        self._inserted_events += ev.unfold_part(self._next_index, part)
        self._next_index += 1

    @property
    def removed_tool(self) -> str:
        """The tool that this round calls, if it calls only tools that the policy removed; else ""."""
        interceptor = self.interceptor
        names = [interceptor.removed_tool(one.call) for one in self.intercepted] if interceptor is not None else []
        return names[0] if names and all(names) else ""

    @property
    def hidden_calls(self) -> list[Call]:
        answered = {result.id for finished in self.finished_rounds for result in finished.results}
        calls = [part for finished in self.finished_rounds for part in finished.parts if isinstance(part, Call)]
        return [call for call in calls if call.id in answered] + [one.call for one in self.intercepted]

    def to_runner_call(self, call: Call) -> Call:
        """A call with the name and arguments of the tool that the server runs."""
        return call if self.interceptor is None else self.interceptor.to_runner_call(call)

    def calls_to_run(self) -> list[Call]:
        """The calls that the caller must run. A search for tools is run by `complete_results`."""
        return [
            self.to_runner_call(one.call)
            for one in self.intercepted
            if not one.refusal and not self._is_tool_search(one.call)
        ]

    def _is_tool_search(self, call: Call) -> bool:
        return self.tool_search is not None and call.name == self.tool_search.name and not call.namespace

    def complete_results(self, results: Sequence[Result], over_limit: bool = False) -> tuple[Result, ...]:
        """One result for each intercepted call of this round: the results of `calls_to_run`, in order, and refusals."""
        remaining = iter(results)
        out: list[Result] = []
        for one in self.intercepted:
            call = one.call
            if one.refusal or over_limit:
                result = Result(call.id, (Text(one.refusal or NO_MORE_CALLS),), True)
            elif self.tool_search is not None and self._is_tool_search(call):
                result = self._search_tools(call, self.tool_search)
            else:
                result = next(remaining)
            name = "" if call.id else call.name  # only a result without an id needs the tool's name
            out.append(replace(result, id=call.id, name=name, kind=call.kind, namespace=call.namespace))
        return tuple(out)

    def _search_tools(self, call: Call, search: ToolSearch) -> Result:
        loads = search.loads
        result = search.run(call)
        if search.loads > loads:
            self.rounds_before_load = len(self.finished_rounds) + 1
        return result

    def turns(self, is_reasoning_bound: bool = False) -> tuple[Turn, ...]:
        """The turns since the request, for the next one; each result in a turn of its own. Thinking that is bound to
        the tools of its time is left out if tools were loaded since."""
        out: list[Turn] = []
        for number, finished in enumerate(self.finished_rounds):
            is_stale = is_reasoning_bound and number < self.rounds_before_load
            parts = [part for part in finished.parts if not (is_stale and isinstance(part, Reasoning))]
            out.append(Turn("assistant", tuple(map(_without_wire, parts))))
            out += [Turn("tool", (result,)) for result in finished.results]
        if self.parts:
            out.append(Turn("assistant", self.parts))
        return tuple(out)


def _without_wire(part: Part) -> Part:
    """A part as the store will restore it: both must give the same bytes, because prompts are cached by prefix."""
    if isinstance(part, Text):
        return replace(part, citations=(), origin=None)
    if isinstance(part, (Call, Reasoning)) and part.origin is not None:
        return replace(part, origin=without_wire(part.origin))
    return part


def summarise_call(call: Call, result: Result) -> str:
    """A call and its result in one line."""
    size = sum(len(part.text) for part in result.content if isinstance(part, Text))
    media = sum(not isinstance(part, Text) for part in result.content)
    outcome = "failed" if result.error else f"{size:,} characters" + (f" and {media} media" if media else "")
    more = "…" if len(call.arguments) > MAX_SHOWN_ARGUMENTS else ""
    return f"{call.name}({call.arguments[:MAX_SHOWN_ARGUMENTS]}{more}): {outcome}"


class ServerCallInterceptor(Struct, eq=False):
    """Intercepts calls of tools that the server added, and calls that the policy refuses. Names are the provider's."""

    tool_names: ToolNameMap
    policy_undo: PolicyUndo
    added_tool_names: frozenset[str]
    warned_tools: set[str] = set()
    """Tools whose arguments were refused once. The second time the client gets the call, and a loss reports it."""
    find_problem: Callable[[Call], str] | None = None
    """Says why a call cannot be run, where the model shall be asked again; "" if it can."""

    def may_intercept(self, name: str) -> bool:
        """Could a call of this tool be intercepted? Then it is held back until its arguments are complete."""
        if self.find_problem is not None:
            return True
        call = self.restore_call(Call("", name))
        return self.is_added_tool(call) or self.policy_undo.can_refuse_tool(call)

    def is_added_tool(self, call: Call) -> bool:
        """Is it a call of a tool that the server added, and that the policy did not remove?"""
        undo = self.policy_undo
        is_added = undo.restore_name(call).name in self.added_tool_names
        return is_added and not call.namespace and not undo.is_dropped(call)

    def removed_tool(self, call: Call) -> str:
        """The client's name of the tool that a call names, if the policy removed it; else ""."""
        call = self.restore_call(call)
        return call.name if self.policy_undo.is_dropped(call) else ""

    def decide(self, call: Call) -> str | None:
        """None: the client gets it. "": the server runs it. A text: it is refused, and the model gets this text."""
        problem = self._find_problem(call)
        if problem:
            return problem
        call = self.restore_call(call)
        if self.is_added_tool(call):
            return ""
        if not self.policy_undo.can_refuse_tool(call):
            return None
        restored = self.policy_undo.restore_call(call, Ledger("", ""))
        if not isinstance(restored, RefusedCall) or restored.fatal or call.name in self.warned_tools:
            return None
        if not self.policy_undo.is_dropped(call):
            self.warned_tools.add(call.name)
        return restored.reason

    def _find_problem(self, call: Call) -> str:
        if self.find_problem is None or call.name in self.warned_tools or not (problem := self.find_problem(call)):
            return ""
        self.warned_tools.add(call.name)
        return f"this call was not run: {problem}. Call the tool again with arguments that fit its schema."

    def to_runner_call(self, call: Call) -> Call:
        """The call with the name and arguments of the tool that the server runs."""
        restored = self.policy_undo.restore_call(self.restore_call(call), Ledger("", ""))
        return replace(restored.call if isinstance(restored, RefusedCall) else restored, origin=None)

    def restore_call(self, call: Call) -> Call:
        """The call with the tool name and parameters from before `rename_tools`."""
        names = self.tool_names
        conversion, original = names.schema_conversions.get(call.name), names.client_tool(call.name)
        if conversion is not None and call.arguments:
            call = replace(call, arguments=convert_argument_text(call.arguments, conversion, restore_arguments))
        if original is None:
            return call
        return replace(call, name=original.name, kind=original.kind, namespace=original.namespace)


def relax_tool_choice(
    sent: Request, tool_names: ToolNameMap, policy_undo: PolicyUndo, added_tool_names: frozenset[str]
) -> Request:
    """The request without a required call, which was made in this round, unless only the client has such a tool."""
    choice, interceptor = sent.choice, ServerCallInterceptor(tool_names, policy_undo, added_tool_names)
    if choice is None or not must_call(choice):
        return sent
    names = [Call("", tool.name, namespace=tool.namespace) for tool in choice.tools]
    names = names or [Call("", tool.name, namespace=tool.namespace) for tool in sent.tools if isinstance(tool, Tool)]
    if any(not interceptor.is_added_tool(interceptor.restore_call(call)) for call in names):
        return sent
    return replace_fields(sent, choice=ToolChoice("auto"))


def declare_found_tools(sent: Request, search: ToolSearch, rounds: Rounds, constraints: Constraints) -> Request:
    """The request that was sent, with the tools that searches have found since."""
    if not rounds.rounds_before_load:
        return sent
    turns = sent.turns
    if constraints.binds_reasoning_to_tools(sent.model):
        turns = tuple(turn_content.drop_reasoning_of(turns, turns, Ledger("", "")))
    return replace_fields(sent, tools=search.declared_tools(), turns=turns)


def next_round_request(
    sent: Request, rounds: Rounds, constraints: Constraints, options: Options, target: str
) -> Request:
    """The request that was sent, with the turns of all rounds since. A paused turn is the last one, as it came."""
    ledger, is_reasoning_bound = Ledger("", target), constraints.binds_reasoning_to_tools(sent.model)
    added = turn_content.mark_failed_results(Request(turns=rounds.turns(is_reasoning_bound)), constraints, ledger)
    added = turn_content.move_result_media(added, constraints, options, ledger)
    added = history.pair_results(added, constraints, ledger)
    return replace_fields(sent, turns=(*sent.turns, *added.turns), continues_last_turn=bool(rounds.parts))
