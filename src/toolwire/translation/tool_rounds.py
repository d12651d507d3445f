"""Answers that take several rounds: the model is asked again before the client sees an end.

A provider that runs tools itself may pause in between and wait to be asked again. And some calls are not for the
client: of tools that somebody else runs, of tools that it does not have, or with arguments that it would refuse. Such
calls are taken out of the answer; with their results the model goes on, and the rounds are joined to one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolwire import schema
from toolwire.core import ids
from toolwire.core.codec import Constraints
from toolwire.core.events import (
    ChoiceEnd,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.fold import Fold
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
)
from toolwire.core.losses import Ledger
from toolwire.core.provider_tools import as_provider_call
from toolwire.policy.undo import PolicyUndo, RefusedCall
from toolwire.translation.options import Options
from toolwire.translation.request_steps import history_order, turn_content
from toolwire.translation.request_steps.tool_names import ToolNameMap, convert_argument_text

PAUSE = "pause"
MAX_SHOWN_ARGUMENTS = 200
"""Characters of a call's arguments that a client is shown."""
NO_MORE_CALLS = "no more calls can be made for this answer; say what you have found so far"
"""What calls are told beyond the last round."""


class InterceptedCall(Struct, frozen=True):
    """A call that does not reach the client, as its provider made it; `why` it was refused, "" where not."""

    call: Call
    refusal: str = ""


class CallInterceptor(Protocol):
    """Which calls are not for the client. Names are the provider's."""

    def may_intercept(self, name: str) -> bool:
        """Could a call of this name be taken? Then its arguments are waited for."""

    def decide(self, call: Call) -> str | None:
        """None: it is the client's. "": it is to be run. A text: it is refused, and the model is told this."""

    def to_runner_call(self, call: Call) -> Call:
        """The call as whoever runs it knows it."""


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """The tokens of both: every round is billed."""
    if one is None or other is None:
        return one or other
    return Usage(
        one.input + other.input,
        one.output + other.output,
        _add_counts(one.cache_read, other.cache_read),
        _add_counts(one.cache_write, other.cache_write),
        _add_counts(one.reasoning, other.reasoning),
        _add_counts(one.total, other.total),
    )


def _add_counts(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


class Round(Struct, frozen=True):
    """One that is over: what the model said and did, and what it was told of its calls."""

    parts: tuple[Part, ...]
    results: tuple[Result, ...]


class Rounds:
    """Takes the events of a stream and of those that continue it, and gives those of one answer."""

    def __init__(
        self,
        interceptor: CallInterceptor | None = None,
        provider_pauses: bool = False,
        shown_tools: frozenset[str] = frozenset(),
        keep_seals: bool = True,
        substituted_tools: Mapping[str, str] = EMPTY_MAPPING,
        placeholder_seal: Seal | None = None,
    ) -> None:
        self.is_paused = False
        """Must the model be asked again before there is an end?"""
        self.intercepted: list[InterceptedCall] = []
        """The calls of this round that are not the client's."""
        self.finished_rounds: list[Round] = []
        self._interceptor = interceptor
        self._provider_pauses = provider_pauses
        self._shown_tools = shown_tools
        self._substituted_tools = substituted_tools
        """The provider's own tools that functions stand in for, by the functions' names."""
        self._keep_seals = keep_seals or interceptor is None
        """Does the client get seals? Not where nobody keeps what they are bound to."""
        self._placeholder_seal = placeholder_seal
        """What stands where a seal should, for a client that would give thinking back to the provider as its own."""
        self._reasoning_indexes: set[int] = set()
        self._hidden_indexes: set[int] = set()
        self._call_ids: set[str] = set()
        self._inserted_events: list[Event] = []
        self._fold = Fold()
        self._held_events: dict[int, list[Event]] = {}
        self._has_client_call = False
        self._earlier_usage: Usage | None = None
        self._index_offset = 0
        self._next_index = 0
        self._has_started = False
        self.resumptions = 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the model said and did in this round so far."""
        choices = self._fold.response.choices
        return choices[0].parts if choices else ()

    def join_events(self, events: list[Event]) -> list[Event]:
        out, self._inserted_events = self._inserted_events, []
        for event in events:
            kind = type(event)
            if self._interceptor is not None and event.frame is not None:
                event = replace(event, frame=None)  # parts are left out and numbered anew
            if kind is ResponseStart:
                self._fold.add_event(event)
                if not self._has_started:
                    out.append(event)
                self._has_started = True
            elif kind is ResponseFailed:
                self.is_paused = False
                out.append(event)
            elif kind is ChoiceEnd or kind is ResponseEnd:
                if kind is ChoiceEnd:
                    self.is_paused = self._is_pause(event)  # type: ignore[arg-type]
                if not self.is_paused:
                    self._fold.add_event(event)
                    out.append(event)
            else:
                out += self._hold_or_pass(self._renumber_event(event))
        return out if self._keep_seals else [bare for event in out for bare in self._strip_seals(event)]

    def _is_pause(self, end: ChoiceEnd) -> bool:
        return (self._provider_pauses and end.finish.kind == PAUSE) or (
            bool(self.intercepted) and not self._has_client_call
        )

    def _renumber_event(self, event: Event) -> Event:
        """The event as one of the whole answer: its part numbered on, its counts with those of earlier rounds."""
        if type(event) is UsageUpdate:
            self._fold.add_event(event)
            usage = add_usage(self._earlier_usage, event.usage)
            return event if self._earlier_usage is None or usage is None else UsageUpdate(usage)
        index: int | None = getattr(event, "index", None)
        if index is None:
            return event
        if type(event) is PartStart:
            self._next_index = max(self._next_index, self._index_offset + index + 1)
            if self._interceptor is not None and isinstance(event.part, Call):
                event = self._ensure_call_id(event, event.part)
        placed = replace(event, index=self._index_offset + index, frame=None) if self._index_offset else event
        self._fold.add_event(placed)
        return placed

    def _ensure_call_id(self, event: PartStart, call: Call) -> PartStart:
        """Some servers give no ids, or the same ones again in every answer; here they are in one request."""
        id = call.id
        if not id or id in self._call_ids:
            id = ids.derive_id("call_", self._fold.response.id, id, len(self._call_ids), call.name)
            event = replace(event, part=replace(call, id=id), frame=None)
        self._call_ids.add(id)
        return event

    def _strip_seals(self, event: Event) -> list[Event]:
        """An event without a seal, and without what only a sealed part is known by."""
        index: int | None = getattr(event, "index", None)
        if type(event) is PartStart:
            return self._strip_part_start(event, event.part)
        if type(event) is SealDelta or index in self._hidden_indexes:
            return []
        if type(event) is PartEnd and event.index in self._reasoning_indexes and self._placeholder_seal is not None:
            return [SealDelta(event.index, self._placeholder_seal), event]
        return [event]

    def _strip_part_start(self, event: PartStart, part: Part) -> list[Event]:
        if isinstance(part, Reasoning):
            if part.hidden:
                self._hidden_indexes.add(event.index)
                return []
            self._reasoning_indexes.add(event.index)
            return [replace(event, part=replace_fields(part, seal=None, id=""))]
        if isinstance(part, Call):
            return [replace(event, part=replace_fields(part, seal=None, item=""))]
        return [replace(event, part=replace_fields(part, seal=None))] if isinstance(part, Text) else [event]

    def _hold_or_pass(self, event: Event) -> list[Event]:
        """Held where the part may be taken, until that is known."""
        index: int | None = getattr(event, "index", None)
        held = self._held_events.get(index) if index is not None else None
        if held is not None and index is not None:
            held.append(event)
            return self._release_or_intercept(index) if type(event) is PartEnd else []
        if type(event) is PartStart and isinstance(event.part, Call):
            if self._interceptor is not None and self._interceptor.may_intercept(event.part.name):
                self._held_events[event.index] = [event]
                return []
            self._has_client_call = True
        return [event]

    def _release_or_intercept(self, index: int) -> list[Event]:
        held, call = self._held_events.pop(index), self._fold.current_part(index)
        why = self._interceptor.decide(call) if self._interceptor is not None and isinstance(call, Call) else None
        if why is None or not isinstance(call, Call):
            self._has_client_call = True
            return held
        self.intercepted.append(InterceptedCall(call, why))
        return []

    def resume(self, results: Sequence[Result] = ()) -> None:
        """What is fed from here on goes on from this round: with these results, or, after a pause, in the same turn."""
        self.is_paused = False
        self.resumptions += 1
        self._earlier_usage = add_usage(self._earlier_usage, self._fold.usage)
        self._insert_shown_calls(results)
        self._index_offset = self._next_index
        if results:
            self.finished_rounds.append(Round(self.parts, tuple(results)))
            self._fold, self.intercepted, self._has_client_call = Fold(), [], False
        self._fold.usage = None

    def _insert_shown_calls(self, results: Sequence[Result]) -> None:
        """Calls that the client wants to see go into the thinking: it is shown everywhere, and comes back nowhere.
        Those that stand in for a tool of the provider's are told as that tool."""
        lines: list[str] = []
        for one, result in zip(self.intercepted, results, strict=False):
            call = self.to_runner_call(one.call)
            if call.name in self._substituted_tools:
                for part in as_provider_call(call, result, self._substituted_tools[call.name]):
                    self._insert_part(part)
            elif call.name in self._shown_tools:
                lines.append(summarise_call(call, result))
        if lines:
            self._insert_part(Reasoning(), "\n".join(lines))

    def _insert_part(self, part: Part, text: str = "") -> None:
        index = self._next_index
        self._next_index += 1
        said = [TextDelta(index, text)] if text else []
        thinks = isinstance(part, Reasoning) and self._keep_seals
        mark = [SealDelta(index, self._placeholder_seal)] if thinks and self._placeholder_seal is not None else []
        self._inserted_events += [PartStart(index, part), *said, *mark, PartEnd(index)]

    @property
    def hidden_calls(self) -> list[Call]:
        """All calls that did not reach the client."""
        before = [{result.id for result in one.results} for one in self.finished_rounds]
        calls = [part for one in self.finished_rounds for part in one.parts if isinstance(part, Call)]
        return [call for call in calls if any(call.id in ids for ids in before)] + [
            one.call for one in self.intercepted
        ]

    def to_runner_call(self, call: Call) -> Call:
        """A call as whoever runs it knows it."""
        return call if self._interceptor is None else self._interceptor.to_runner_call(call)

    def calls_to_run(self) -> list[Call]:
        """The calls of this round that somebody must run."""
        return [self.to_runner_call(one.call) for one in self.intercepted if not one.refusal]

    def complete_results(self, results: Sequence[Result], over_limit: bool = False) -> tuple[Result, ...]:
        """One result for each call of this round, as the provider wants them: those of `to_run` in its order, and why
        the others were refused."""
        ran = iter(results)
        out: list[Result] = []
        for one in self.intercepted:
            call = one.call
            if one.refusal or over_limit:
                out.append(refusal_result(one, one.refusal or NO_MORE_CALLS))
            else:
                found = next(ran)
                out.append(
                    replace(found, id=call.id, name=_result_name(call), kind=call.kind, namespace=call.namespace)
                )
        return tuple(out)

    def turns(self) -> tuple[Turn, ...]:
        """What was said since the request, as the next one tells it: results each in a turn of their own."""
        out: list[Turn] = []
        for one in self.finished_rounds:
            out.append(Turn("assistant", tuple(map(_without_wire, one.parts))))
            out += [Turn("tool", (result,)) for result in one.results]
        if self.parts:
            out.append(Turn("assistant", self.parts))
        return tuple(out)


def _without_wire(part: Part) -> Part:
    """A part as it will be told again when the client goes on from this answer: then nobody has its wire any more, and
    the same words must give the same bytes."""
    if isinstance(part, Text):
        return replace(part, citations=(), origin=None)
    if isinstance(part, (Call, Reasoning)) and part.origin is not None:
        return replace(part, origin=replace(part.origin, wire=None, intact=False))
    return part


def summarise_call(call: Call, result: Result) -> str:
    """A call and what came of it, in a line."""
    size = sum(len(part.text) for part in result.content if isinstance(part, Text))
    media = sum(not isinstance(part, Text) for part in result.content)
    came = "failed" if result.error else f"{size:,} characters" + (f" and {media} media" if media else "")
    arguments = (
        call.arguments if len(call.arguments) <= MAX_SHOWN_ARGUMENTS else f"{call.arguments[:MAX_SHOWN_ARGUMENTS]}…"
    )
    return f"{call.name}({arguments}): {came}"


def refusal_result(intercepted: InterceptedCall, why: str) -> Result:
    """What the model is told of a call that was not run."""
    call = intercepted.call
    return Result(call.id, (Text(why),), True, _result_name(call), call.kind, call.namespace)


def _result_name(call: Call) -> str:
    """A result is known by its id; only one that has none needs the tool's name."""
    return "" if call.id else call.name


# --- Which of a model's calls are not for the client, and how the model goes on after them ---


class ServerCallInterceptor:
    """Takes calls of tools that were added to the client's own, and those that the operator's rules refuse."""

    def __init__(self, tool_names: ToolNameMap, policy_undo: PolicyUndo, added_tool_names: frozenset[str]) -> None:
        self._tool_names = tool_names
        self._policy_undo = policy_undo
        self._added_tool_names = added_tool_names
        self._warned_tools: set[str] = set()
        """Tools whose arguments were refused once: the second time the client gets them, and the report says so."""

    def may_intercept(self, name: str) -> bool:
        call = self.restore_call(Call("", name))
        return self.is_added_tool(call) or self._policy_undo.can_refuse_tool(call)

    def is_added_tool(self, call: Call) -> bool:
        """Is it of a tool that was added, and that no rule took away again?"""
        return (
            not call.namespace
            and self._policy_undo.restore_name(call).name in self._added_tool_names
            and not self._policy_undo.is_dropped(call)
        )

    def decide(self, call: Call) -> str | None:
        known = self.restore_call(call)
        if self.is_added_tool(known):
            return ""
        found = (
            self._policy_undo.restore_call(known, Ledger("", "")) if self._policy_undo.can_refuse_tool(known) else known
        )
        if not isinstance(found, RefusedCall) or found.fatal or known.name in self._warned_tools:
            return None
        if not self._policy_undo.is_dropped(known):
            self._warned_tools.add(known.name)
        return found.reason

    def to_runner_call(self, call: Call) -> Call:
        known = self.restore_call(call)
        found = self._policy_undo.restore_call(known, Ledger("", ""))
        return replace(found.call if isinstance(found, RefusedCall) else found, origin=None)

    def restore_call(self, call: Call) -> Call:
        """The call under the name, and with the parameters, that the provider was not given."""
        shape, original = self._tool_names.schema_conversions.get(call.name), self._tool_names.client_tool(call.name)
        if shape is not None and call.arguments:
            call = replace(call, arguments=convert_argument_text(call.arguments, shape, schema.restore_arguments))
        if original is None:
            return call
        return replace(call, name=original.name, kind=original.kind, namespace=original.namespace)


def relax_tool_choice(
    sent: Request, tool_names: ToolNameMap, policy_undo: PolicyUndo, added_tool_names: frozenset[str]
) -> Request:
    """A call that was demanded has been made: the model may answer now, unless one of the client's is waited for."""
    choice, judge = sent.choice, ServerCallInterceptor(tool_names, policy_undo, added_tool_names)
    if choice is None or not (choice.mode in ("required", "one") or choice.required):
        return sent
    names = [Call("", tool.name, namespace=tool.namespace) for tool in choice.tools]
    names = names or [Call("", tool.name, namespace=tool.namespace) for tool in sent.tools if isinstance(tool, Tool)]
    if any(not judge.is_added_tool(judge.restore_call(call)) for call in names):
        return sent
    return replace_fields(sent, choice=ToolChoice("auto"))


def next_round_request(
    sent: Request, rounds: Rounds, constraints: Constraints, options: Options, target: str
) -> Request:
    """The request with what was said and done since, each thing as the provider takes it."""
    ledger = Ledger("", target)
    said = turn_content.mark_failed_results(Request(turns=rounds.turns()), constraints, ledger)
    said = turn_content.move_result_media(said, constraints, options, ledger)
    said = history_order.pair_results(said, constraints, ledger)
    return replace_fields(sent, turns=(*sent.turns, *said.turns))
