"""The answers of models that call tools badly, with their calls as calls.

`AnswerRepair` takes the events of the provider's stream and gives the events of an answer in which calls that the model
wrote as text are calls, thinking that it wrote as text is thinking, and names and arguments are those of the tools that
were offered, where there is one sure reading. Every repair is in the ledger. A whole answer goes the same way, as
events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.call_repair.argument_stream import ArgumentMender
from toolwire.call_repair.calls import repair_call
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core import events as ev
from toolwire.core import ids
from toolwire.core.errors import bad_call_failure
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Finish,
    Part,
    Reasoning,
    Request,
    Response,
    Text,
    TokenLogprob,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import Path
from toolwire.core.losses import Ledger
from toolwire.core.tool_choice import callable_tools, must_call
from toolwire.tool_formats.families import AUTO, EAGER, OFF, formats_for_model
from toolwire.tool_formats.frame import Piece, ReasoningText, TextCall, ToolFormat
from toolwire.tool_formats.text_reader import TextReader
from toolwire.translation.answer_steps import CUTS
from toolwire.translation.options import Options

MAX_REASONING = 1_000_000
"""How many characters of thinking are searched for a call that a server has put there."""


class RepairPlan(Struct, frozen=True):
    """What can be repaired in the answers to one request."""

    tools: OfferedTools
    formats: tuple[ToolFormat, ...]
    """The formats in which the text is searched for calls; () for none."""
    repair_calls: bool
    """Are the names and arguments of calls repaired?"""
    is_call_required: bool
    expects_json: bool
    on_bad_call: str
    """As `Options.on_bad_call`."""

    def find_problem(self, call: Call) -> str:
        """Why a call cannot be run, for the model; "" if it can, or if that is not known."""
        name = self.tools.find_tool(call.name)
        if name is None or call.kind != "function":
            return ""
        return repair_call(name, call.arguments, self.tools, is_cut=call.incomplete).problem


def plan_repair(
    request: Request, options: Options, other_names: Mapping[str, str] = EMPTY_MAPPING
) -> RepairPlan | None:
    """`other_names` as for `OfferedTools`. None where nothing shall be repaired. In an answer to a request without
    tools, text is searched only for thinking and for marks of the model's format."""
    tools = OfferedTools(callable_tools(request.tools, request.choice), other_names)
    # A model that has its tools in the prompt can call them in no other way, and may choose another format.
    form = AUTO if options.tool_prompt and tools and options.tool_format != EAGER else options.tool_format
    if form == OFF and not (options.repair_calls and tools):
        return None
    formats = () if form == OFF else formats_for_model(request.model, form)
    expects_json = request.settings.format is not None
    is_call_required = must_call(request.choice)
    return RepairPlan(tools, formats, options.repair_calls, is_call_required, expects_json, options.on_bad_call)


class _OpenCall(Struct, eq=False):
    """A call of the provider that has started and not ended."""

    index: int
    call: Call
    mender: ArgumentMender
    has_ended: bool = False
    """The provider has ended it, but whether it was cut off is known only from what follows."""


class _ChoiceRepair(Struct, eq=False):
    """The state of one choice."""

    choice: int
    reader: TextReader | None
    text_part: Text = Text("")
    """The provider's part that the text is from."""
    is_text_announced: bool = False
    """Has that part started, and nothing was written of it?"""
    open_part: int = -1
    """The index of the part that is being written from text, -1 for none."""
    open_kind: type = Text
    open_calls: dict[int, _OpenCall] = {}
    reasoning: list[str] = []
    """Thinking of the provider, as long as there is nothing else."""
    reasoning_size: int = 0
    logprobs: list[TokenLogprob] = []
    """Of text that is held back."""
    has_content: bool = False
    has_text_calls: bool = False
    unsent_size: int = 0
    """Characters of the provider's text that are not sent as text."""


class AnswerRepair:
    """Repairs one answer. The indexes of its events are new."""

    def __init__(self, plan: RepairPlan, ledger: Ledger, seed: str, used_call_ids: frozenset[str]) -> None:
        self._plan, self._ledger, self._seed = plan, ledger, seed
        self._used_call_ids = set(used_call_ids)
        self._choices: dict[int, _ChoiceRepair] = {}
        self._choice_by_part: dict[int, _ChoiceRepair] = {}
        self._indexes: dict[int, int] = {}
        """The new index of each of the provider's parts, -1 for text."""
        self._next_index = 0
        self.take_repeat: Callable[[str], str | None] | None = None
        """Takes one more text of the part that the last delta belonged to, and gives what can be sent of it now. It
        gives None, and takes nothing, where the text may begin something else."""
        self.repeat_index = -1
        """The new index of that part."""
        self.has_changes = False
        """Has anything been repaired?"""
        self._has_mention = False
        """Is it reported that a call is only mentioned?"""
        self.repairs_by_call: dict[int, list[str]] = {}
        """What was repaired in each call, in their order."""

    def repair_events(self, events: Iterable[ev.Event]) -> list[ev.Event]:
        out: list[ev.Event] = []
        for event in events:
            self.take_repeat = None
            REPAIR_STEPS[type(event)](self, event, out)
        return out

    def _pass_event(self, event: ev.Event, out: list[ev.Event]) -> None:
        out.append(event)

    def _start_response(self, event: ev.ResponseStart, out: list[ev.Event]) -> None:
        self._seed += event.id
        out.append(event)

    # --- parts ---

    def _start_part(self, event: ev.PartStart, out: list[ev.Event]) -> None:
        part = event.part
        choice = self._choices.get(event.choice)
        if choice is None:
            plan = self._plan
            reader = TextReader(
                plan.tools, plan.formats, is_call_required=plan.is_call_required, expects_json=plan.expects_json
            )
            choice = self._choices[event.choice] = _ChoiceRepair(event.choice, reader if plan.formats else None)
        self._choice_by_part[event.index] = choice
        self._close_ended_calls(choice, False, out)
        if isinstance(part, Text) and choice.reader is not None:
            choice.text_part, choice.is_text_announced, self._indexes[event.index] = part, True, -1
            if part.text:
                self._feed_text(choice, part.text, out)
            return
        if isinstance(part, Call):
            choice.is_text_announced = False
            if choice.reader is not None:
                self._write_pieces(choice, choice.reader.discard_calls(), out)
                self._end_text(choice, out)
            part = self._start_call(choice, event.index, part)
        elif not isinstance(part, Reasoning):
            choice.has_content = True
        self._indexes[event.index] = self._open_part(part, event.choice, out)

    def _open_part(self, part: Part, choice: int, out: list[ev.Event]) -> int:
        index = self._next_index
        self._next_index += 1
        if isinstance(part, Call):
            self.repairs_by_call.setdefault(index, [])
        out.append(ev.PartStart(index, part, choice))
        return index

    def _start_call(self, choice: _ChoiceRepair, source_index: int, call: Call) -> Call:
        choice.has_content = True
        if not self._plan.repair_calls or call.kind != "function":
            return call
        name = self._plan.tools.find_tool(call.name)
        if name is None:
            return call
        if name != call.name:
            what = f"the call of `{call.name}` was read as one of `{name}`"
            self._note_repair("name-repaired", source_path(call), what, self._next_index)
        call = replace_fields(call, name=name)
        mender = ArgumentMender(self._plan.tools.parameters(name))
        open_call = _OpenCall(self._next_index, call, mender)
        choice.open_calls[source_index] = open_call
        return call

    def _end_part(self, event: ev.PartEnd, out: list[ev.Event]) -> None:
        choice, index = self._choice_by_part[event.index], self._indexes[event.index]
        open_call = choice.open_calls.get(event.index)
        if open_call is not None:
            open_call.has_ended = True
            if event.incomplete:
                self._close_call(choice, event.index, True, out)
        elif index >= 0:
            out.append(ev.PartEnd(index, event.incomplete))
        elif not choice.unsent_size:
            if choice.is_text_announced:
                self._open_text(choice, Text, out)
            self._end_text(choice, out)
        # Otherwise the text goes on: the end of the choice tells what the text that is held back means.

    def _add_to_part(self, event: ev.SealDelta | ev.CitationDelta, out: list[ev.Event]) -> None:
        out.append(replace(event, index=self._target_part(event.index, out), frame=None))

    def _target_part(self, source_index: int, out: list[ev.Event]) -> int:
        """The part that a seal or citation belongs to."""
        index = self._indexes[source_index]
        if index >= 0:
            return index
        choice = self._choice_by_part[source_index]
        self._open_text(choice, Text, out)
        return choice.open_part

    # --- text ---

    def _add_text(self, event: ev.TextDelta, out: list[ev.Event]) -> None:
        choice, index = self._choice_by_part[event.index], self._indexes[event.index]
        if index < 0:
            choice.logprobs += event.logprobs
            self._feed_text(choice, event.text, out)
            if choice.reader is not None and choice.open_kind is Text:
                self.take_repeat, self.repeat_index = choice.reader.take_plain_text, choice.open_part
            return
        if not choice.has_content and choice.reasoning_size < MAX_REASONING:
            choice.reasoning.append(event.text)
            choice.reasoning_size += len(event.text)
        out.append(event if event.index == index and event.frame is None else replace(event, index=index, frame=None))

    def _feed_text(self, choice: _ChoiceRepair, text: str, out: list[ev.Event]) -> None:
        assert choice.reader is not None
        choice.unsent_size += len(text)
        self._write_pieces(choice, choice.reader.feed(text), out)

    def _write_pieces(self, choice: _ChoiceRepair, pieces: list[Piece], out: list[ev.Event]) -> None:
        for piece in pieces:
            if isinstance(piece, TextCall):
                self._end_text(choice, out)
                self._write_call(choice, piece, out)
            elif isinstance(piece, ReasoningText):
                if choice.open_part < 0 or choice.open_kind is not Reasoning:
                    self._note("reasoning-in-text", source_path(choice.text_part), "thinking was found in the text")
                self._open_text(choice, Reasoning, out)
                out.append(ev.TextDelta(choice.open_part, piece.text))
            else:
                choice.has_content = choice.has_content or not piece.isspace()
                choice.unsent_size -= len(piece)
                self._open_text(choice, Text, out)
                out.append(ev.TextDelta(choice.open_part, piece, None, tuple(choice.logprobs)))
                choice.logprobs.clear()

    def _open_text(self, choice: _ChoiceRepair, kind: type[Text | Reasoning], out: list[ev.Event]) -> None:
        if choice.open_part >= 0 and choice.open_kind is kind:
            return
        self._end_text(choice, out)
        choice.is_text_announced = False
        part: Part = Reasoning() if kind is Reasoning else replace_fields(choice.text_part, text="")
        choice.open_part, choice.open_kind = self._open_part(part, choice.choice, out), kind

    def _end_text(self, choice: _ChoiceRepair, out: list[ev.Event]) -> None:
        if choice.open_part >= 0:
            out.append(ev.PartEnd(choice.open_part))
            choice.open_part = -1

    def _write_call(self, choice: _ChoiceRepair, found: TextCall, out: list[ev.Event]) -> None:
        choice.has_content = choice.has_text_calls = True
        id = found.id
        if not id or id in self._used_call_ids:
            id = ids.derive_id("call_", self._seed, id, len(self._used_call_ids), found.name)
        self._used_call_ids.add(id)
        path = source_path(choice.text_part)
        what = f"text in the format `{found.format}` became the call `{id}` of `{found.name}`"
        self._note_repair("call-in-text", path, what, self._next_index)
        for repair in found.repairs:
            self._note_repair("arguments-repaired", path, f"`{found.name}`: {repair}", self._next_index)
        call = Call(id, found.name, found.arguments)
        out += ev.unfold_part(self._next_index, call, choice.choice)
        self._next_index += 1
        self._refuse_bad_call(call, out)

    # --- calls of the provider ---

    def _add_arguments(self, event: ev.ArgumentsDelta, out: list[ev.Event]) -> None:
        index = self._indexes[event.index]
        open_call = self._choice_by_part[event.index].open_calls.get(event.index)
        text = event.text
        if open_call is not None:
            text = open_call.mender.feed(text)
            self.take_repeat, self.repeat_index = open_call.mender.feed, index
        if text:
            out.append(ev.ArgumentsDelta(index, text))

    def _close_call(self, choice: _ChoiceRepair, source_index: int, is_cut: bool, out: list[ev.Event]) -> None:
        open_call = choice.open_calls.pop(source_index)
        rest, repairs = open_call.mender.close(is_cut)
        if rest:
            out.append(ev.ArgumentsDelta(open_call.index, rest))
        for repair in repairs:
            what = f"`{open_call.call.name}`: {repair}"
            self._note_repair("arguments-repaired", source_path(open_call.call), what, open_call.index)
        out.append(ev.PartEnd(open_call.index, is_cut))
        if open_call.mender.problem and not is_cut:
            self._refuse_call(open_call.call.name, open_call.mender.problem, out)

    def _close_ended_calls(self, choice: _ChoiceRepair, is_cut: bool, out: list[ev.Event]) -> None:
        for source_index in [at for at, one in choice.open_calls.items() if one.has_ended]:
            self._close_call(choice, source_index, is_cut, out)

    # --- ends ---

    def _end_event_choice(self, event: ev.ChoiceEnd, out: list[ev.Event]) -> None:
        out.append(ev.ChoiceEnd(self._end_choice(event.choice, event.finish, out), event.choice))

    def _fail_response(self, event: ev.ResponseFailed, out: list[ev.Event]) -> None:
        for number in [*self._choices]:
            self._end_choice(number, Finish("length"), out)
        out.append(event)

    def _end_choice(self, number: int, finish: Finish, out: list[ev.Event]) -> Finish:
        """Write what is still held back. Gives the finish reason, which is one for calls if there are any."""
        choice = self._choices.pop(number, None)
        if choice is None:
            return finish
        was_cut = finish.kind in CUTS
        self._close_ended_calls(choice, was_cut, out)
        if choice.reader is not None:
            self._write_pieces(choice, choice.reader.close(was_cut), out)
            if not choice.has_content and choice.reasoning and not was_cut:
                self._find_calls_in_reasoning(choice, out)
            if choice.unsent_size and not self.has_changes:
                what = f"{choice.unsent_size:,} characters of marks were left out of the text"
                self._note("marks-dropped", source_path(choice.text_part), what)
            if choice.reader.has_mention and not self._has_mention:
                self._has_mention = True
                self._ledger.note(
                    "call-mentioned", source_path(choice.text_part), "a call that the text mentions is text"
                )
            if choice.logprobs:
                self._ledger.note_logprobs(tuple(choice.logprobs))
        self._end_text(choice, out)
        is_stop = finish.kind in ("stop", "sequence", "other")
        return Finish("calls", detail=finish.detail) if choice.has_text_calls and is_stop else finish

    def _find_calls_in_reasoning(self, choice: _ChoiceRepair, out: list[ev.Event]) -> None:
        """A server that separates thinking may put a call into it (vLLM with a reasoning parser only). The thinking
        stays as it is."""
        reader = TextReader(self._plan.tools, self._plan.formats, is_call_required=self._plan.is_call_required)
        pieces = [*reader.feed("".join(choice.reasoning)), *reader.close(False)]
        self._write_pieces(choice, [piece for piece in pieces if isinstance(piece, TextCall)], out)

    def _refuse_bad_call(self, call: Call, out: list[ev.Event]) -> None:
        if self._plan.on_bad_call == "refuse" and (problem := self._plan.find_problem(call)):
            self._refuse_call(call.name, problem, out)

    def _refuse_call(self, name: str, problem: str, out: list[ev.Event]) -> None:
        if self._plan.on_bad_call == "refuse":
            self.has_changes = True
            out.append(ev.ResponseFailed(bad_call_failure(name, problem, '`on_bad_call = "refuse"`')))

    # --- reports ---

    def _note(self, code: str, path: Path, what: str) -> None:
        self.has_changes = True
        self._ledger.note(code, path, what)

    def _note_repair(self, code: str, path: Path, what: str, call_index: int) -> None:
        self._note(code, path, what)
        self.repairs_by_call.setdefault(call_index, []).append(what)


REPAIR_STEPS: Mapping[type, Callable[[AnswerRepair, Any, list[ev.Event]], None]] = {
    ev.ResponseStart: AnswerRepair._start_response,
    ev.PartStart: AnswerRepair._start_part,
    ev.TextDelta: AnswerRepair._add_text,
    ev.ArgumentsDelta: AnswerRepair._add_arguments,
    ev.SealDelta: AnswerRepair._add_to_part,
    ev.CitationDelta: AnswerRepair._add_to_part,
    ev.PartEnd: AnswerRepair._end_part,
    ev.UsageUpdate: AnswerRepair._pass_event,
    ev.ChoiceEnd: AnswerRepair._end_event_choice,
    ev.ResponseEnd: AnswerRepair._pass_event,
    ev.ResponseFailed: AnswerRepair._fail_response,
    ev.OpaqueEvent: AnswerRepair._pass_event,
}


def repair_response(response: Response, repair: AnswerRepair) -> Response:
    """A whole answer; the same one if there is nothing to repair."""
    events = repair.repair_events(ev.unfold(response))
    return ev.fold_changes(events, response) if repair.has_changes else response
