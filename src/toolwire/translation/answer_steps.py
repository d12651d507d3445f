"""What is known of an answer before it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import is_
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Codec
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.fold import fold, unfold
from toolwire.core.ir import (
    Call,
    Choice,
    Failure,
    Finish,
    Origin,
    Part,
    Reasoning,
    Response,
    Seal,
    Text,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import is_object_text
from toolwire.core.losses import Ledger
from toolwire.policy.undo import NOTHING_TO_UNDO, PolicyUndo, RefusedCall
from toolwire.schema import ConvertedSchema, restore_arguments
from toolwire.translation import seals
from toolwire.translation.request_steps.tool_names import (
    FREEFORM,
    ToolNameMap,
    convert_argument_text,
    unwrap_freeform_input,
)


class AnswerContext(Struct, frozen=True):
    """What the way back needs to know."""

    client: Codec
    provider: Codec
    tool_names: ToolNameMap
    used_call_ids: frozenset[str]
    """Call ids that the conversation already has."""
    seed: str = ""
    maker: str = ""
    has_request: bool = True
    uses_memory: bool = False
    """Is what the client has no slot for kept, by the id of a call?"""
    stamp_seals: bool = False
    """Must seals name their maker even where the client speaks the provider's protocol?"""
    policy_undo: PolicyUndo = NOTHING_TO_UNDO
    """What an operator's rules did to the tools."""


# --- Where seals of a provider's answer go in the client's protocol ---


class SealSlots(Struct, frozen=True):
    """What is the same for all answers between two rooms."""

    is_cross_protocol: bool = False
    """Are they of different protocols? Within one, seals stay where they are."""
    has_no_slot: bool = False
    """There is none."""
    in_reasoning_beside: bool = False
    """Only thinking has one: what seals a call or a text goes into thinking beside it."""
    on_next_part: bool = False
    """Calls have one: what seals thinking goes on the next part that has one too."""
    hold_calls: bool = False
    """Must a call wait until its seal is known, which goes before it?"""


SAME_PROTOCOL = SealSlots()


@lru_cache(maxsize=256)
def seal_slots_between(client: Codec, provider: Codec) -> SealSlots:
    if client.name == provider.name:
        return SAME_PROTOCOL
    seals = client.constraints.seal_slots
    beside = "reasoning" in seals and "call" not in seals
    return SealSlots(True, not seals, beside, "call" in seals, beside and "call" in provider.constraints.seal_slots)


# --- A part of an answer that is under way ---


class OpenPart(Struct, eq=False):
    """What is known of it so far, and how it goes on to the client."""

    part: Any
    index: int
    choice: int
    pieces: list[str] = []
    seal: Seal | None = None
    is_held: bool = False
    is_freeform: bool = False
    is_hidden: bool = False
    needs_policy: bool = False
    """Must the rules see it whole?"""
    schema_conversion: ConvertedSchema | None = None

    def unwrap_arguments(self) -> None:
        """The arguments of a whole call as the client's tool has them."""
        if self.is_freeform:
            self.pieces = [unwrap_freeform_input("".join(self.pieces))]
        elif self.schema_conversion is not None:
            self.pieces = [convert_argument_text("".join(self.pieces), self.schema_conversion, restore_arguments)]

    @property
    def has_broken_arguments(self) -> bool:
        """Are the arguments of a call that ended no JSON object?"""
        text = "".join(self.pieces)
        return self.part.kind != FREEFORM and bool(text.strip()) and not is_object_text(text)


CUTS = ("length", "context")
"""Endings that may have cut a call off."""


def told_of_calls(finish: Finish) -> Finish:
    """The ending of a choice that has calls says so: some providers call it `stop`, or by a word of their own."""
    return Finish("calls", finish.raw, origin=finish.origin) if finish.kind in ("stop", "other") else finish


class AnswerSteps(Struct, eq=False):
    """Takes the provider's events one by one and gives those that the client's writer shall write."""

    context: AnswerContext
    ledger: Ledger
    seal_slots: SealSlots
    next_index: int = 0
    open_parts: dict[int, OpenPart] = {}
    choices_with_calls: list[int] = []
    """Choices that have calls."""
    broken_call: OpenPart | None = None
    """A call that ended with broken arguments; what follows tells whether it was cut off."""
    pending_entries: list[seals.EnvelopeEntry] = []
    client_calls: list[OpenPart] = []
    """All calls, as the client has them."""
    refused_calls: list[RefusedCall] = []
    """Calls that must not reach the client."""
    failure: Failure | None = None
    """Why the answer was refused, where it was."""
    unslotted_parts: list[tuple[int, Any]] = []
    """Sealed parts whose choice has not ended: only then it is known whether there is a call to keep them by."""
    used_ids: dict[str, None] = {}
    """Ids of the calls so far."""
    has_renamed_ids: bool = False
    """Did a call have another id?"""

    @property
    def calls(self) -> dict[int, list[Call]]:
        """The calls of each choice as the client has them."""
        found: dict[int, list[Call]] = {}
        for growing in self.client_calls:
            found.setdefault(growing.choice, []).append(replace(growing.part, arguments="".join(growing.pieces)))
        return found

    def call_ids(self, choice: int) -> list[str]:
        """Those of a choice's calls as the client has them."""
        return [growing.part.id for growing in self.client_calls if growing.choice == choice]

    def translate_event(self, event: Event) -> list[Event]:
        return [] if self.failure is not None else EVENT_STEPS[type(event)](self, event)

    def pass_event(self, event: ResponseStart | UsageUpdate | OpaqueEvent) -> list[Event]:
        anew = not self.seal_slots.is_cross_protocol and event.frame is not None and self._is_rewritten
        return [replace(event, frame=None) if anew else event]

    @property
    def needs_stamps(self) -> bool:
        """Must seals name their maker at their own place?"""
        return self.context.stamp_seals and not self.seal_slots.is_cross_protocol

    @property
    def _is_rewritten(self) -> bool:
        """Is an answer in the client's own protocol written anew?"""
        return self.context.tool_names.has_changes or self.needs_stamps or bool(self.context.policy_undo)

    # --- parts ---

    def start_part(self, event: PartStart) -> list[Event]:
        out: list[Event] = [] if self.broken_call is None else self._end_broken_call(self.broken_call, False)
        part, choice, slots = event.part, event.choice, self.seal_slots
        seal: Seal | None = None
        if slots.is_cross_protocol:
            seal = getattr(part, "seal", None)
            if seal is not None:
                part = replace(part, seal=None)
        elif self.context.stamp_seals and isinstance(part, (Reasoning, Text, Call)):
            part = replace_fields(part, seal=None if part.seal is None else self._wrap_seal_in_place(part, part.seal))
        if type(part) is Call:
            growing = self._start_call(part, choice, seal)
        else:
            if self.pending_entries and type(part) is Text:
                out += self._make_carrier_part(Text(""), self.pending_entries, choice)
                self.pending_entries = []
            # Of thinking that is hidden the client could see nothing but its seal.
            mute = slots.has_no_slot and type(part) is Reasoning and part.hidden and self.context.uses_memory
            growing = OpenPart(part, -1, choice, [], seal, False, False, mute)
        self.open_parts[event.index] = growing
        return out if growing.is_held or growing.is_hidden else out + self._emit_part_start(growing)

    def _start_call(self, call: Call, choice: int, seal: Seal | None) -> OpenPart:
        """A call that begins, as the client knows it."""
        plan, undo = self.context.tool_names, self.context.policy_undo
        part = self._restore_call(call, choice)
        freeform = part.kind == FREEFORM and call.kind != FREEFORM
        shape = plan.schema_conversions.get(call.name) if plan.schema_conversions else None
        ruled = False
        if undo is not NOTHING_TO_UNDO and undo:
            ruled = undo.needs_whole_call(part)
            part = part if ruled else undo.restore_name(part)
        held = freeform or self.seal_slots.hold_calls or shape is not None or ruled
        pieces: list[str] = []
        if call.arguments:
            pieces.append(call.arguments)
            part = replace(part, arguments="")
        growing = OpenPart(part, -1, choice, pieces, seal, held, freeform, False, ruled, shape)
        self.client_calls.append(growing)
        return growing

    def _emit_part_start(self, open_part: OpenPart) -> list[Event]:
        open_part.index = index = self.next_index
        self.next_index = index + 1
        events: list[Event] = [PartStart(index, open_part.part, open_part.choice)]
        if open_part.pieces:
            events.append(ArgumentsDelta(index, "".join(open_part.pieces)))
        return events

    def add_text(self, event: TextDelta) -> list[Event]:
        growing = self.open_parts[event.index]
        if self.seal_slots.on_next_part and type(growing.part) is Reasoning:
            growing.pieces.append(event.text)
        if growing.is_hidden:
            return []
        index = growing.index
        return [event if event.index == index and event.frame is None else TextDelta(index, event.text)]

    def add_citation(self, event: CitationDelta) -> list[Event]:
        growing = self.open_parts[event.index]
        return [] if growing.is_hidden else [CitationDelta(growing.index, event.citation)]

    def add_arguments(self, event: ArgumentsDelta) -> list[Event]:
        growing = self.open_parts[event.index]
        growing.pieces.append(event.text)
        return [] if growing.is_held else [ArgumentsDelta(growing.index, event.text)]

    def delta_target(self, event: TextDelta | ArgumentsDelta) -> tuple[int, tuple[Callable[[str], None], ...]]:
        """How this delta went on, and how all like it will until the part ends: the client's number of the part (-1
        where it is held back), and who keeps the text."""
        growing = self.open_parts[event.index]
        kept = type(event) is ArgumentsDelta or (self.seal_slots.on_next_part and type(growing.part) is Reasoning)
        return growing.index, (growing.pieces.append,) if kept else ()

    def add_seal(self, event: SealDelta) -> list[Event]:
        growing = self.open_parts[event.index]
        if not self.seal_slots.is_cross_protocol:
            seal = self._wrap_seal_in_place(growing.part, event.seal) if self.needs_stamps else event.seal
            if not growing.is_held:
                return [SealDelta(growing.index, seal)]
            growing.seal = seal
            return []
        growing.seal = event.seal
        return []

    def end_part(self, event: PartEnd) -> list[Event]:
        growing, slots = self.open_parts.pop(event.index), self.seal_slots
        out: list[Event] = self._release_call(growing, event.incomplete) if growing.is_held else []
        if growing.index < 0 and not growing.is_hidden:
            return out  # it was refused
        kind, seal = type(growing.part), growing.seal
        if seal is not None:
            out += self._place_seal(growing) if slots.is_cross_protocol else [SealDelta(growing.index, seal)]
        elif kind is Reasoning and (slots.in_reasoning_beside or slots.on_next_part):
            # Nobody else shall be told that these were his thoughts.
            out += self._place_reasoning_seal(growing, Seal(self.context.maker or self.context.provider.name, ""))
        if self.pending_entries and (kind is Call or kind is Text):
            out.append(self._take_pending_envelope(growing.index))
        if growing.is_hidden:
            return out
        if kind is Call and slots.is_cross_protocol and not growing.is_freeform and growing.has_broken_arguments:
            self.broken_call = growing
            return out
        out.append(PartEnd(growing.index, event.incomplete))
        if seal is not None and slots.in_reasoning_beside and kind is Text:
            out += self._make_seal_carrier("before", seal, growing.choice)
        return out

    def _release_call(self, open_part: OpenPart, incomplete: bool) -> list[Event]:
        """A held call, whole: what seals it goes before it, what wrapped it comes off."""
        out: list[Event] = []
        open_part.unwrap_arguments()
        if open_part.needs_policy and (refused := self._apply_policy(open_part, incomplete)) is not None:
            return refused
        if open_part.seal is not None and self.seal_slots.in_reasoning_beside:
            out = self._make_seal_carrier("next", open_part.seal, open_part.choice)
            open_part.seal = None
        return out + self._emit_part_start(open_part)

    def _apply_policy(self, open_part: OpenPart, incomplete: bool) -> list[Event] | None:
        """A whole call as the rules want it; what is sent instead where it must not reach the client, else None."""
        found = self.context.policy_undo.restore_call(
            replace(open_part.part, arguments="".join(open_part.pieces)), self.ledger, incomplete
        )
        if isinstance(found, Call):
            open_part.pieces = [found.arguments] if found.arguments else []
            open_part.part = replace(found, arguments="")
            return None
        self.refused_calls.append(found)
        self.client_calls.remove(open_part)
        if open_part.choice in self.choices_with_calls and not any(
            other.choice == open_part.choice for other in self.client_calls
        ):
            self.choices_with_calls.remove(open_part.choice)
        if not found.fatal:
            return []
        self.failure = Failure("upstream", f"the model's call of `{found.call.name}` was refused: {found.reason}", 502)
        return [ResponseFailed(self.failure)]

    def _end_broken_call(self, cut: OpenPart, incomplete: bool) -> list[Event]:
        self.broken_call = None
        return [PartEnd(cut.index, incomplete)]

    # --- names and ids ---

    def _restore_call(self, call: Call, choice: int) -> Call:
        if choice not in self.choices_with_calls:
            self.choices_with_calls.append(choice)
        way = self.context
        fields: dict[str, Any] = {}
        original = way.tool_names.client_tool(call.name) if way.tool_names.names else None
        if original is not None:
            fields = {"name": original.name, "kind": original.kind, "namespace": original.namespace}
            if call.name not in way.tool_names.names:
                self.ledger.note("name-rewritten", source_path(call), f"`{call.name}` was taken for `{original.name}`")
        if self.seal_slots.is_cross_protocol:
            id = self._client_call_id(call)
            if id != call.id:
                fields["id"] = id
            if not way.has_request:
                self.ledger.note(
                    "request-missing", source_path(call), f"`{call.name}` is given as the provider called it"
                )
        if not fields:
            return call
        # Another protocol's writer gives no node back verbatim, so its origin need not be let go of.
        return replace(call, **fields) if self.seal_slots.is_cross_protocol else replace_fields(call, **fields)

    def restore_whole_call(self, call: Call, choice: int) -> Call:
        """A whole call of which only the name and the id may differ."""
        restored = self._restore_call(call, choice)
        if self.context.uses_memory:
            self.client_calls.append(OpenPart(restored, -1, choice, [restored.arguments]))
        return restored

    def _client_call_id(self, call: Call) -> str:
        way, id = self.context, call.id
        rules = way.client.constraints
        known = id in way.used_call_ids or id in self.used_ids
        if not id:
            id = ids.derive_id("call_", f"{way.seed}|{len(way.used_call_ids.union(self.used_ids))}|{call.name}")
            self.ledger.note("id-added", source_path(call), f"the call of `{call.name}` has the id `{id}`")
        elif known or not ids.is_legal_id(id, rules.call_id_pattern, rules.max_call_id_length):
            self.has_renamed_ids = True
            salt = f"#{len(way.used_call_ids.union(self.used_ids))}" if known else ""
            spelled = "" if salt else ids.escape_id(id, rules.call_id_pattern, rules.max_call_id_length)
            id = spelled or ids.make_legal_id(
                id, rules.call_id_pattern, min(rules.max_call_id_length, ids.MAX_SAFE_ID_LENGTH), salt
            )
            self.ledger.note("id-rewritten", source_path(call), f"the call `{call.id}` has the id `{id}`")
        self.used_ids[id] = None
        return id

    # --- seals ---

    def _with_maker(self, seal: Seal) -> Seal:
        return Seal(self.context.maker, seal.value) if self.context.maker else seal

    def _place_seal(self, open_part: OpenPart) -> list[Event]:
        """What becomes of the seal of a part that ends here."""
        seal = self._with_maker(open_part.seal or Seal("", ""))
        part = open_part.part
        if self.seal_slots.has_no_slot:
            self.unslotted_parts.append((open_part.choice, part))
            return []
        self.ledger.note("seal-wrapped", source_path(part), "a seal travels in an envelope")
        if isinstance(part, Reasoning):
            return self._place_reasoning_seal(open_part, seal)
        if self.seal_slots.on_next_part:
            self.pending_entries.append(seals.EnvelopeEntry("next", seal.maker, seal.value))
        return []

    def _place_reasoning_seal(self, open_part: OpenPart, seal: Seal) -> list[Event]:
        """Whose thinking it is, with the seal where there is one: in its own slot, or on what comes next."""
        part = open_part.part
        text = part.text + "".join(open_part.pieces) if self.seal_slots.on_next_part else ""
        entry = seals.EnvelopeEntry("reasoning", seal.maker, seal.value, text, part.form, part.hidden, part.id)
        if self.seal_slots.in_reasoning_beside:
            return [SealDelta(open_part.index, self._make_envelope([entry]))]
        self.pending_entries.append(entry)
        return []

    def _wrap_seal_in_place(self, part: Any, seal: Seal) -> Seal:
        """The seal in an envelope at its own place, for a client that speaks the provider's protocol."""
        self.ledger.note("seal-wrapped", source_path(part), "a seal travels in an envelope that names its maker")
        maker = self._with_maker(seal).maker
        if isinstance(part, Reasoning):
            entry = seals.EnvelopeEntry("reasoning", maker, seal.value, "", part.form, part.hidden, part.id)
        else:
            entry = seals.EnvelopeEntry("next", maker, seal.value)
        return self._make_envelope([entry])

    def _make_envelope(self, entries: list[seals.EnvelopeEntry]) -> Seal:
        return Seal(self.context.client.name, seals.write_envelope(entries))

    def _take_pending_envelope(self, index: int) -> Event:
        entries, self.pending_entries = self.pending_entries, []
        return SealDelta(index, self._make_envelope(entries))

    def _make_seal_carrier(self, where: Any, seal: Seal, choice: int) -> list[Event]:
        """An empty piece of reasoning that carries the seal of its neighbour."""
        stamped = self._with_maker(seal)
        self.ledger.note("seal-wrapped", None, "a seal travels in an envelope beside its part")
        return self._make_carrier_part(Reasoning(), [seals.EnvelopeEntry(where, stamped.maker, stamped.value)], choice)

    def _make_carrier_part(self, part: Part, entries: list[seals.EnvelopeEntry], choice: int) -> list[Event]:
        index = self.next_index
        self.next_index += 1
        return [PartStart(index, part, choice), SealDelta(index, self._make_envelope(entries)), PartEnd(index)]

    # --- endings ---

    def _note_unslotted_seals(self, choice: int | None) -> None:
        """What became of seals that have no slot, told when their choice is complete (None: all of them)."""
        for number, part in [pair for pair in self.unslotted_parts if choice is None or pair[0] == choice]:
            if not self.context.uses_memory:
                code, what = "seal-dropped", "a seal has no slot here; a gateway's store can keep it"
            elif number in self.choices_with_calls and isinstance(part, (Call, Reasoning, Text)):
                code, what = "seal-kept", "a seal is kept until its turn comes back"
            else:
                code, what = "seal-dropped", "a seal has no slot here, and nothing in its turn to keep it by"
            self.ledger.note(code, source_path(part), what)
        self.unslotted_parts = [pair for pair in self.unslotted_parts if choice is not None and pair[0] != choice]

    def end_choice(self, event: ChoiceEnd) -> list[Event]:
        finish = event.finish
        if self.unslotted_parts:
            self._note_unslotted_seals(event.choice)
        out: list[Event] = (
            [] if self.broken_call is None else self._end_broken_call(self.broken_call, finish.kind in CUTS)
        )
        if self.pending_entries:
            out += self._make_carrier_part(Text(""), self.pending_entries, event.choice)
            self.pending_entries = []
        if self.seal_slots.is_cross_protocol and event.choice in self.choices_with_calls:
            finish = told_of_calls(finish)
        elif self.refused_calls and event.choice not in self.choices_with_calls and finish.kind == "calls":
            finish = Finish("stop")
        out.append(ChoiceEnd(finish, event.choice))
        return out

    def end_response(self, event: ResponseEnd) -> list[Event]:
        if event.unknown_fields and (self.seal_slots.is_cross_protocol or self._is_rewritten):
            self.ledger.note_unknown_fields(event.unknown_fields)
        if self.unslotted_parts:
            self._note_unslotted_seals(None)
        out: list[Event] = [] if self.broken_call is None else self._end_broken_call(self.broken_call, False)
        out.append(ResponseEnd(event.unknown_fields))
        return out

    def fail_response(self, event: ResponseFailed) -> list[Event]:
        self.choices_with_calls.clear()
        self._note_unslotted_seals(None)
        return [ResponseFailed(event.failure)]


EVENT_STEPS: Mapping[type, Callable[[AnswerSteps, Any], list[Event]]] = {
    ResponseStart: AnswerSteps.pass_event,
    PartStart: AnswerSteps.start_part,
    TextDelta: AnswerSteps.add_text,
    CitationDelta: AnswerSteps.add_citation,
    ArgumentsDelta: AnswerSteps.add_arguments,
    SealDelta: AnswerSteps.add_seal,
    PartEnd: AnswerSteps.end_part,
    UsageUpdate: AnswerSteps.pass_event,
    ChoiceEnd: AnswerSteps.end_choice,
    ResponseEnd: AnswerSteps.end_response,
    ResponseFailed: AnswerSteps.fail_response,
    OpaqueEvent: AnswerSteps.pass_event,
}
"""What is done to an event, as long as the answer has not failed."""


def translate_whole_answer(response: Response, steps: AnswerSteps) -> Response:
    """A whole answer as the client shall have it."""
    if steps.seal_slots.is_cross_protocol and _has_only_text_and_functions(response, steps.context):
        # Only names, ids and endings may differ. As events the answer would take twice as long (15 µs more), and two
        # choices with the same index, or one with neither parts nor a finish reason, would not stay as they are.
        recalled = tuple([_restore_choice_calls(choice, steps) for choice in response.choices])
        alike = all(map(is_, recalled, response.choices))
        return response if alike else replace(response, choices=recalled)
    events = [out for event in unfold(response) for out in steps.translate_event(event)]
    folded = fold(events)
    origins = {choice.index: _origin_not_verbatim(choice.origin) for choice in response.choices}
    choices = tuple(replace(choice, origin=origins.get(choice.index)) for choice in folded.choices)
    return replace(
        folded, choices=choices, origin=_origin_not_verbatim(response.origin), unknown_fields=response.unknown_fields
    )


def _has_only_text_and_functions(response: Response, context: AnswerContext) -> bool:
    """Is it an answer of text and calls of functions, whole and without seals, in which nothing but a name or an id
    needs another look?"""
    choices, ruled = response.choices, context.policy_undo is not NOTHING_TO_UNDO and bool(context.policy_undo)
    for choice in choices:
        # Only an ending that cuts tells anything of arguments that are no object.
        uncut = len(choices) == 1 and choice.finish is not None and choice.finish.kind not in CUTS
        for part in choice.parts:
            if type(part) is Call:
                if part.seal is not None or part.incomplete or not (uncut or is_object_text(part.arguments)):
                    return False
                if ruled or not _is_client_function(part, context.tool_names):
                    return False
            elif type(part) is not Text or part.seal is not None:
                return False
    return True


def _is_client_function(call: Call, tool_names: ToolNameMap) -> bool:
    """Is it one to the client too, with the same parameters?"""
    if call.kind != "function" or call.name in tool_names.schema_conversions:
        return False
    original = tool_names.client_tool(call.name) if tool_names.names else None
    return original is None or original.kind == "function"


def _restore_choice_calls(choice: Choice, steps: AnswerSteps) -> Choice:
    """A choice with its calls as the client knows them. Its origins may stay as they are: only its own protocol would
    write them again."""
    parts: list[Part] = []
    called, alike = False, True
    for part in choice.parts:
        if type(part) is Call:
            call = steps.restore_whole_call(part, choice.index)
            called, alike = True, alike and call is part
            part = call
        parts.append(part)
    finish = choice.finish if choice.finish is None or not called else told_of_calls(choice.finish)
    if alike and finish is choice.finish:
        return choice
    return Choice(choice.index, tuple(parts), finish, choice.origin)


def _origin_not_verbatim(origin: Origin | None) -> Origin | None:
    """An origin that is kept for its place and its unknown keys, no longer verbatim."""
    return replace(origin, intact=False) if origin is not None and origin.intact else origin
