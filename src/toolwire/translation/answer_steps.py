"""The steps of an answer on its way from the provider to the client.

`AnswerSteps` takes the events of the provider's stream and gives the events for the client's writer: tool names and
call ids as the client knows them, policy changes undone, seals in envelopes. A whole answer goes the same way, as
events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import repeat
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core import ids
from toolwire.core.argument_guard import RAW_ARGUMENTS_KEY, ArgumentGuard
from toolwire.core.codec import Codec
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.envelopes import EnvelopeEntry, EnvelopeKeys, write_envelope
from toolwire.core.errors import bad_call_failure
from toolwire.core.ir import (
    Call,
    Choice,
    Failure,
    Finish,
    Part,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    is_same,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import is_json_text, is_object_text
from toolwire.core.losses import Ledger
from toolwire.policy.effects import NOTHING_TO_UNDO, PolicyUndo, RefusedCall
from toolwire.schema.repair import restore_arguments
from toolwire.translation.request_steps.tools import FREEFORM, ToolNameMap, convert_argument_text, unwrap_freeform_input


class SealSlots(Struct, frozen=True):
    """Where the seals of an answer go in the client's protocol; the same for all answers between two protocols."""

    is_cross_protocol: bool = False
    """Within one protocol seals stay where they are."""
    has_no_slot: bool = False
    """The client's protocol cannot carry seals (Chat)."""
    in_reasoning_beside: bool = False
    """Only thinking can carry one (Anthropic, Responses): that of a call or text goes into reasoning beside it."""
    on_next_part: bool = False
    """Calls can carry one (Gemini): the seal of thinking goes onto the next call or text."""
    hold_calls: bool = False
    """A call is held back until its seal is known, because the seal goes before it."""


SAME_PROTOCOL = SealSlots()


@lru_cache(maxsize=256)
def seal_slots_between(client: Codec, provider: Codec) -> SealSlots:
    if client.name == provider.name:
        return SAME_PROTOCOL
    seals = client.constraints.seal_slots
    beside = "reasoning" in seals and "call" not in seals
    return SealSlots(True, not seals, beside, "call" in seals, beside and "call" in provider.constraints.seal_slots)


class OpenPart(Struct, eq=False):
    """A part of the answer that has started and not ended."""

    part: Any
    index: int
    """Its index in the client's stream, -1 while it is not written."""
    choice: int
    pieces: list[str] = []
    """The text of its deltas, where that is needed later."""
    seal: Seal | None = None
    is_held: bool = False
    """It is written when it is complete."""
    is_freeform: bool = False
    """A call of a custom tool that the provider got as a function: its arguments are unwrapped."""
    is_hidden: bool = False
    """It is not written at all."""
    needs_policy: bool = False
    """The policy changes or checks the complete call."""
    schema_conversion: ConvertedSchema | None = None
    """How parameters were renamed for the provider."""
    guard: ArgumentGuard | None = None
    """Keeps the arguments readable, for clients that need it."""

    def add_arguments(self, text: str) -> str:
        """What of the arguments so far can be sent. `pieces` holds what is sent, and of a held call all that came."""
        if self.guard is not None and not self.is_held:
            text = self.guard.add(text)
        if text:
            self.pieces.append(text)
        return text

    @property
    def arguments(self) -> str:
        """All that the model wrote."""
        text = "".join(self.pieces)
        return text if self.guard is None else text + self.guard.unsent_text


CUTS = ("length", "context")
"""Finish kinds that may have cut off a call."""


def finish_with_calls(finish: Finish) -> Finish:
    """The finish of a choice with calls. Some providers send `stop` or other words; clients run calls after `calls`."""
    if finish.kind not in ("stop", "other"):
        return finish
    return Finish("calls", finish.raw, detail=finish.detail, origin=finish.origin)


class AnswerSteps(Struct, eq=False):
    """Turns each event of the provider into the events for the client's writer."""

    client: Codec
    provider: Codec
    ledger: Ledger
    seal_slots: SealSlots
    tool_names: ToolNameMap
    used_call_ids: frozenset[str]
    """Call ids of the request, which new ids must not repeat."""
    seed: str = ""
    """What made-up ids are derived from."""
    maker: str = ""
    """As `Options.maker`."""
    has_request: bool = True
    """Is the client's request known?"""
    uses_memory: bool = False
    """Does a store keep what the client's protocol cannot carry?"""
    envelope_keys: EnvelopeKeys | None = None
    stamp_seals: bool = False
    """As `Options.stamp_seals`."""
    policy_undo: PolicyUndo = NOTHING_TO_UNDO
    is_repaired: bool = False
    """Are calls repaired, so that the provider's frames cannot be written back?"""
    is_whole: bool = False
    """Is the answer whole, so that all of a call is known at once?"""
    next_index: int = 0
    open_parts: dict[int, OpenPart] = {}
    choices_with_calls: list[int] = []
    broken_call: OpenPart | None = None
    """A call whose arguments are not a JSON object. The next event tells whether it was cut off."""
    pending_entries: list[EnvelopeEntry] = []
    """Seals that go onto the next part."""
    client_calls: list[OpenPart] = []
    """All calls as the client gets them."""
    refused_calls: list[RefusedCall] = []
    """Calls that the policy keeps from the client."""
    failure: Failure | None = None
    """Why the policy refused the answer."""
    unslotted_parts: list[tuple[int, Any]] = []
    """Sealed parts that the client cannot carry, by choice. A store can keep them if the choice ends with a call id."""
    used_ids: set[str] = set()
    """Ids of the calls so far."""
    has_renamed_ids: bool = False
    """Did a call get another id?"""

    @property
    def calls(self) -> dict[int, list[Call]]:
        calls: dict[int, list[Call]] = {}
        for open_part in self.client_calls:
            calls.setdefault(open_part.choice, []).append(replace(open_part.part, arguments="".join(open_part.pieces)))
        return calls

    def call_ids(self, choice: int) -> list[str]:
        return [open_part.part.id for open_part in self.client_calls if open_part.choice == choice]

    def pass_event(self, event: ev.ResponseStart | ev.UsageUpdate | ev.OpaqueEvent) -> list[ev.Event]:
        rewrite = not self.seal_slots.is_cross_protocol and event.frame is not None and self._is_rewritten
        return [replace(event, frame=None) if rewrite else event]

    def pass_opaque_event(self, event: ev.OpaqueEvent) -> list[ev.Event]:
        if event.failure is None:
            return self.pass_event(event)
        self.failure = event.failure
        return [ev.ResponseFailed(event.failure)]

    @property
    def needs_stamps(self) -> bool:
        """Must seals be put into envelopes within one protocol?"""
        return self.stamp_seals and not self.seal_slots.is_cross_protocol

    @property
    def _is_rewritten(self) -> bool:
        """Is an answer in the client's protocol changed, so that its frames cannot be written back verbatim?"""
        return self.tool_names.has_changes or self.needs_stamps or bool(self.policy_undo) or self.is_repaired

    # --- parts ---

    def start_part(self, event: ev.PartStart) -> list[ev.Event]:
        out = self._end_broken_call(False)
        part, choice, slots = event.part, event.choice, self.seal_slots
        seal: Seal | None = None
        if slots.is_cross_protocol:
            seal = getattr(part, "seal", None)
            if seal is not None:
                part = replace(part, seal=None)
        elif self.stamp_seals and isinstance(part, (Reasoning, Text, Call)):
            part = replace_fields(part, seal=None if part.seal is None else self._wrap_seal_in_place(part, part.seal))
        if type(part) is Call:
            open_part = self._start_call(part, choice, seal)
        else:
            if self.pending_entries and type(part) is Text:
                out += self._flush_pending_entries(choice)
            # Hidden thinking is nothing but its seal, which the store keeps.
            hide = slots.has_no_slot and type(part) is Reasoning and part.hidden and self.uses_memory
            open_part = OpenPart(part, -1, choice, [], seal, is_hidden=hide)
        self.open_parts[event.index] = open_part
        return out if open_part.is_held or open_part.is_hidden else out + self._emit_part_start(open_part)

    def _start_call(self, call: Call, choice: int, seal: Seal | None) -> OpenPart:
        conversions, undo = self.tool_names.schema_conversions, self.policy_undo
        part = self.restore_call(call, choice)
        freeform = part.kind == FREEFORM and call.kind != FREEFORM
        conversion = conversions.get(call.name) if conversions else None
        needs_policy = False
        if undo:
            needs_policy = undo.needs_whole_call(part)
            part = part if needs_policy else undo.restore_name(part)
        held = freeform or self.seal_slots.hold_calls or conversion is not None or needs_policy
        is_guarded = self.seal_slots.is_cross_protocol and self.client.constraints.arguments_must_parse
        guard = ArgumentGuard() if is_guarded and part.kind != FREEFORM else None
        held = held or (guard is not None and self.is_whole)
        open_part = OpenPart(part, -1, choice, [], seal, held, freeform, False, needs_policy, conversion, guard)
        if call.arguments:
            open_part.add_arguments(call.arguments)
            open_part.part = replace(part, arguments="")
        self.client_calls.append(open_part)
        return open_part

    def _emit_part_start(self, open_part: OpenPart) -> list[ev.Event]:
        open_part.index = index = self.next_index
        self.next_index = index + 1
        events: list[ev.Event] = [ev.PartStart(index, open_part.part, open_part.choice)]
        text = "".join(open_part.pieces)
        if open_part.schema_conversion is not None and is_json_text(text):
            open_part.guard = None  # the client's own schema may ask for something else than an object
        if open_part.is_held and open_part.guard is not None:
            text = open_part.guard.add_whole(text)
            open_part.pieces, open_part.is_held = [text], False
        if text:
            events.append(ev.ArgumentsDelta(index, text))
        return events

    def add_text(self, event: ev.TextDelta) -> list[ev.Event]:
        open_part = self.open_parts[event.index]
        if self.seal_slots.on_next_part and type(open_part.part) is Reasoning:
            open_part.pieces.append(event.text)
        if open_part.is_hidden:
            return []
        index = open_part.index
        if event.index == index and event.frame is None:
            return [event]
        return [ev.TextDelta(index, event.text, None, event.logprobs)]

    def add_citation(self, event: ev.CitationDelta) -> list[ev.Event]:
        open_part = self.open_parts[event.index]
        return [] if open_part.is_hidden else [ev.CitationDelta(open_part.index, event.citation)]

    def add_arguments(self, event: ev.ArgumentsDelta) -> list[ev.Event]:
        open_part = self.open_parts[event.index]
        text = open_part.add_arguments(event.text)
        return [ev.ArgumentsDelta(open_part.index, text)] if text and not open_part.is_held else []

    def delta_target(self, event: ev.Delta) -> tuple[int, Callable[[str], str | None] | None]:
        """The client's index of a delta's part (-1 while it is held), and a function that takes its texts. If that
        returns a text, it is sent instead."""
        open_part = self.open_parts[event.index]
        if type(event) is ev.ArgumentsDelta:
            return open_part.index, open_part.pieces.append if open_part.guard is None else open_part.add_arguments
        kept = self.seal_slots.on_next_part and type(open_part.part) is Reasoning
        return open_part.index, open_part.pieces.append if kept else None

    def add_seal(self, event: ev.SealDelta) -> list[ev.Event]:
        open_part = self.open_parts[event.index]
        seal = self._wrap_seal_in_place(open_part.part, event.seal) if self.needs_stamps else event.seal
        if not self.seal_slots.is_cross_protocol and not open_part.is_held:
            return [ev.SealDelta(open_part.index, seal)]
        open_part.seal = seal
        return []

    def end_part(self, event: ev.PartEnd) -> list[ev.Event]:
        open_part, slots = self.open_parts.pop(event.index), self.seal_slots
        out: list[ev.Event] = self._release_call(open_part, event.incomplete) if open_part.is_held else []
        if open_part.index < 0 and not open_part.is_hidden:
            return out  # the policy refused it
        kind, seal = type(open_part.part), open_part.seal
        if seal is not None:
            out += self._place_seal(open_part) if slots.is_cross_protocol else [ev.SealDelta(open_part.index, seal)]
        elif kind is Reasoning and (slots.in_reasoning_beside or slots.on_next_part):
            # An empty seal names the maker, so that no other provider gets this thinking as its own.
            out += self._place_reasoning_seal(open_part, Seal(self.maker or self.provider.name, ""))
        if self.pending_entries and (kind is Call or kind is Text):
            out.append(ev.SealDelta(open_part.index, self._make_envelope(self.pending_entries)))
            self.pending_entries = []
        if open_part.is_hidden:
            return out
        if kind is Call and slots.is_cross_protocol and not open_part.is_freeform and open_part.part.kind != FREEFORM:
            arguments = open_part.arguments
            if arguments.strip() and not is_object_text(arguments):
                out += self._end_broken_call(False)  # several calls may end at the end of a choice
                self.broken_call = open_part
                return out
            if open_part.guard is not None:
                self._note_guarded_losses(open_part.part, open_part.guard)
        out.append(ev.PartEnd(open_part.index, event.incomplete))
        if seal is not None and slots.in_reasoning_beside and kind is Text:
            out += self._make_seal_carrier("before", seal, open_part.choice)
        return out

    def _release_call(self, open_part: OpenPart, incomplete: bool) -> list[ev.Event]:
        """Write a held call that is complete: first its seal, then the call with its arguments restored."""
        out: list[ev.Event] = []
        if open_part.is_freeform:
            open_part.pieces = [unwrap_freeform_input("".join(open_part.pieces))]
        elif open_part.schema_conversion is not None:
            arguments = "".join(open_part.pieces)
            open_part.pieces = [convert_argument_text(arguments, open_part.schema_conversion, restore_arguments)]
        if open_part.needs_policy and (refused := self._apply_policy(open_part, incomplete)) is not None:
            return refused
        if open_part.seal is not None and self.seal_slots.in_reasoning_beside:
            out = self._make_seal_carrier("next", open_part.seal, open_part.choice)
            open_part.seal = None
        return out + self._emit_part_start(open_part)

    def _apply_policy(self, open_part: OpenPart, incomplete: bool) -> list[ev.Event] | None:
        """Undo the policy's changes of a complete call. None, or what is written instead of a refused call."""
        restored = self.policy_undo.restore_call(
            replace(open_part.part, arguments="".join(open_part.pieces)), self.ledger, incomplete
        )
        if isinstance(restored, Call):
            open_part.pieces = [restored.arguments] if restored.arguments else []
            open_part.part = replace(restored, arguments="")
            return None
        self.refused_calls.append(restored)
        self.client_calls.remove(open_part)
        if open_part.choice in self.choices_with_calls and not self.call_ids(open_part.choice):
            self.choices_with_calls.remove(open_part.choice)
        if not restored.fatal:
            return []
        self.failure = bad_call_failure(restored.call.name, restored.reason, '`validate = "refuse"`')
        return [ev.ResponseFailed(self.failure)]

    def _end_broken_call(self, incomplete: bool) -> list[ev.Event]:
        """End a call whose arguments are not a JSON object, now that it is known whether it was cut off."""
        broken, self.broken_call = self.broken_call, None
        if broken is None:
            return []
        out: list[ev.Event] = [ev.PartEnd(broken.index, incomplete)]
        guard = broken.guard
        if guard is not None:
            raw = broken.arguments
            text = guard.unsent_text if incomplete else guard.complete(raw)
            if not incomplete:
                what = f"the arguments of `{broken.part.name}` are sent as text under `{RAW_ARGUMENTS_KEY}`"
                self.ledger.note("arguments-wrapped", source_path(broken.part), what)
            self._note_guarded_losses(broken.part, guard)
            broken.pieces, broken.guard = [*broken.pieces, text], None
            out = [ev.ArgumentsDelta(broken.index, text), *out] if text else out
        return out

    def _note_guarded_losses(self, part: Call, guard: ArgumentGuard) -> None:
        if guard.has_trailing_text:
            what, why = f"text after the arguments of `{part.name}` was left out", "arguments are one JSON object"
            self.ledger.note("arguments-dropped", source_path(part), what, why)
        if guard.has_repairs:
            self.ledger.note_repairs([source_path(part)])

    # --- names and ids ---

    def restore_call(self, call: Call, choice: int) -> Call:
        """The call with the client's own name of the tool, if it was renamed for the provider, and a legal id."""
        if choice not in self.choices_with_calls:
            self.choices_with_calls.append(choice)
        fields: dict[str, Any] = {}
        original = self.tool_names.client_tool(call.name) if self.tool_names.names else None
        if original is not None:
            fields = {"name": original.name, "kind": original.kind, "namespace": original.namespace}
            if call.name not in self.tool_names.names:
                self.ledger.note("name-rewritten", source_path(call), f"`{call.name}` was read as `{original.name}`")
        if self.seal_slots.is_cross_protocol:
            id = self._client_call_id(call)
            if id != call.id:
                fields["id"] = id
            if not self.has_request:
                what = f"`{call.name}` keeps the name that the provider used"
                self.ledger.note("request-missing", source_path(call), what)
        return replace_fields(call, **fields) if fields else call

    def _client_call_id(self, call: Call) -> str:
        """The id of a call for the client: legal in its protocol, and unique in the conversation."""
        id, rules = call.id, self.client.constraints
        used = id in self.used_call_ids or id in self.used_ids
        if not id:
            id = ids.derive_id("call_", self.seed, len(self.used_call_ids) + len(self.used_ids), call.name)
            self.ledger.note("id-added", source_path(call), f"the call of `{call.name}` got the id `{id}`")
        elif used or not ids.is_legal_id(id, rules.call_id_pattern, rules.max_call_id_length):
            self.has_renamed_ids = True
            salt = f"#{len(self.used_call_ids) + len(self.used_ids)}" if used else ""
            escaped = "" if used else ids.escape_id(id, rules.call_id_pattern, rules.max_call_id_length)
            limit = min(rules.max_call_id_length, ids.MAX_SAFE_ID_LENGTH)
            id = escaped or ids.make_legal_id(id, rules.call_id_pattern, limit, salt)
            self.ledger.note("id-rewritten", source_path(call), f"the call `{call.id}` got the id `{id}`")
        self.used_ids.add(id)
        return id

    # --- seals ---

    def _with_maker(self, seal: Seal) -> Seal:
        return Seal(self.maker, seal.value) if self.maker else seal

    def _place_seal(self, open_part: OpenPart) -> list[ev.Event]:
        """Put the seal of a part that ends where the client's protocol can carry it."""
        seal = self._with_maker(open_part.seal or Seal("", ""))
        part = open_part.part
        if self.seal_slots.has_no_slot:
            self.unslotted_parts.append((open_part.choice, part))
            return []
        self.ledger.note("seal-wrapped", source_path(part), "a seal was put into an envelope")
        if isinstance(part, Reasoning):
            return self._place_reasoning_seal(open_part, seal)
        if self.seal_slots.on_next_part:
            self.pending_entries.append(EnvelopeEntry("next", seal.maker, seal.value))
        return []

    def _place_reasoning_seal(self, open_part: OpenPart, seal: Seal) -> list[ev.Event]:
        """Put the maker and seal of thinking into an envelope: in the thinking itself, or on the next part."""
        part = open_part.part
        text = part.text + "".join(open_part.pieces) if self.seal_slots.on_next_part else ""
        entry = EnvelopeEntry("reasoning", seal.maker, seal.value, text, part.form, part.hidden, part.id)
        if self.seal_slots.in_reasoning_beside:
            return [ev.SealDelta(open_part.index, self._make_envelope([entry]))]
        self.pending_entries.append(entry)
        return []

    def _wrap_seal_in_place(self, part: Any, seal: Seal) -> Seal:
        """The seal in an envelope, for a client of the provider's protocol."""
        self.ledger.note("seal-wrapped", source_path(part), "a seal was put into an envelope that names its maker")
        maker = self._with_maker(seal).maker
        if isinstance(part, Reasoning):
            entry = EnvelopeEntry("reasoning", maker, seal.value, "", part.form, part.hidden, part.id)
        else:
            entry = EnvelopeEntry("next", maker, seal.value)
        return self._make_envelope([entry])

    def _make_envelope(self, entries: list[EnvelopeEntry]) -> Seal:
        return Seal(self.client.name, write_envelope(entries, self.envelope_keys))

    def _flush_pending_entries(self, choice: int) -> list[ev.Event]:
        """An empty text that carries the seals which wait for a part."""
        entries, self.pending_entries = self.pending_entries, []
        return self._insert_part(Text("", seal=self._make_envelope(entries)), choice)

    def _make_seal_carrier(self, position: Any, seal: Seal, choice: int) -> list[ev.Event]:
        """An empty reasoning part that carries the seal of the part beside it."""
        seal = self._with_maker(seal)
        self.ledger.note("seal-wrapped", None, "a seal was put into an envelope beside its part")
        entry = EnvelopeEntry(position, seal.maker, seal.value)
        return self._insert_part(Reasoning(seal=self._make_envelope([entry])), choice)

    def _insert_part(self, part: Part, choice: int) -> list[ev.Event]:
        index = self.next_index
        self.next_index += 1
        return [*ev.unfold_part(index, part, choice)]

    # --- ends ---

    def _note_unslotted_seals(self, choice: int | None) -> None:
        """Report the seals that the client cannot carry, when their choice has ended (None: all choices)."""
        for number, part in [pair for pair in self.unslotted_parts if choice is None or pair[0] == choice]:
            if not self.uses_memory:
                code, what = "seal-dropped", "a seal was left out; a gateway with a store would keep it"
            elif number in self.choices_with_calls and isinstance(part, (Call, Reasoning, Text)):
                code, what = "seal-kept", "a seal was stored until its turn comes back"
            else:
                code, what = "seal-dropped", "a seal was left out: its turn has no call to store it by"
            self.ledger.note(code, source_path(part), what)
        self.unslotted_parts = [pair for pair in self.unslotted_parts if choice is not None and pair[0] != choice]

    def note_unknown_finish(self, finish: Finish) -> None:
        """Note a finish reason that only the provider knows, where the calls decide instead."""
        if finish.kind == "other" and finish.raw:
            what = f"the finish reason `{finish.raw}` was written as one for calls"
            self.ledger.note("finish-mapped", source_path(finish), what)

    def end_choice(self, event: ev.ChoiceEnd) -> list[ev.Event]:
        finish = event.finish
        if self.unslotted_parts:
            self._note_unslotted_seals(event.choice)
        out = self._end_broken_call(finish.kind in CUTS)
        if self.pending_entries:
            out += self._flush_pending_entries(event.choice)
        if self.seal_slots.is_cross_protocol and event.choice in self.choices_with_calls:
            self.note_unknown_finish(finish)
            finish = finish_with_calls(finish)
        elif finish.detail and _needs_refusal_part(finish, self):
            out += self._insert_part(Refusal(finish.detail), event.choice)
            finish = Finish("stop", finish.raw, origin=finish.origin)
        elif self.refused_calls and event.choice not in self.choices_with_calls and finish.kind == "calls":
            finish = Finish("stop")
        return [*out, ev.ChoiceEnd(finish, event.choice)]

    def end_response(self, event: ev.ResponseEnd) -> list[ev.Event]:
        if event.unknown_fields:
            if self.seal_slots.is_cross_protocol or self._is_rewritten:
                self.ledger.note_unknown_fields(event.unknown_fields)
            else:
                self.ledger.note_foreign_fields(event)
        if self.unslotted_parts:
            self._note_unslotted_seals(None)
        return [*self._end_broken_call(False), ev.ResponseEnd(event.unknown_fields)]

    def fail_response(self, event: ev.ResponseFailed) -> list[ev.Event]:
        self.choices_with_calls.clear()
        self._note_unslotted_seals(None)
        return [ev.ResponseFailed(event.failure)]


EVENT_STEPS: Mapping[type, Callable[[AnswerSteps, Any], list[ev.Event]]] = {
    ev.ResponseStart: AnswerSteps.pass_event,
    ev.PartStart: AnswerSteps.start_part,
    ev.TextDelta: AnswerSteps.add_text,
    ev.CitationDelta: AnswerSteps.add_citation,
    ev.ArgumentsDelta: AnswerSteps.add_arguments,
    ev.SealDelta: AnswerSteps.add_seal,
    ev.PartEnd: AnswerSteps.end_part,
    ev.UsageUpdate: AnswerSteps.pass_event,
    ev.ChoiceEnd: AnswerSteps.end_choice,
    ev.ResponseEnd: AnswerSteps.end_response,
    ev.ResponseFailed: AnswerSteps.fail_response,
    ev.OpaqueEvent: AnswerSteps.pass_opaque_event,
}
"""The step for each event, as long as the answer has not failed."""


def translate_whole_answer(response: Response, steps: AnswerSteps) -> Response:
    if steps.seal_slots.is_cross_protocol and _has_only_text_and_functions(response, steps):
        # Only tool names, call ids and finish reasons can differ. As events this answer would take 15 µs more, and two
        # choices with the same index, or one with neither parts nor a finish reason, would not stay as they are.
        choices = tuple(map(_restore_choice_calls, response.choices, repeat(steps)))
        return response if is_same(choices, response.choices) else replace(response, choices=choices)
    events: list[ev.Event] = []
    steps.is_whole = True
    for event in ev.unfold(response):
        if steps.failure is None:
            events += EVENT_STEPS[type(event)](steps, event)
    return ev.fold_changes(events, response)


def _needs_refusal_part(finish: Finish, steps: AnswerSteps) -> bool:
    """Does the client's protocol have a part for what the finish reason explains?"""
    is_explained = finish.kind == "refusal" and bool(finish.detail)
    return is_explained and steps.seal_slots.is_cross_protocol and steps.client.constraints.has_refusal_parts


def _has_only_text_and_functions(response: Response, steps: AnswerSteps) -> bool:
    """Is the answer only text and complete calls of functions with the client's parameters, without seals or policy?"""
    choices, names, has_policy = response.choices, steps.tool_names, steps.policy_undo is not NOTHING_TO_UNDO
    for choice in choices:
        # Arguments that are not an object matter only where the finish reason says that they may be cut off, and to
        # clients that must be able to parse them.
        if choice.finish is not None and choice.finish.detail and _needs_refusal_part(choice.finish, steps):
            return False
        uncut = len(choices) == 1 and choice.finish is not None and choice.finish.kind not in CUTS
        uncut = uncut and not steps.client.constraints.arguments_must_parse
        for part in choice.parts:
            if type(part) is Call:
                if not part.is_plain or not (uncut or is_object_text(part.arguments)):
                    return False
                if has_policy or part.name in names.schema_conversions:
                    return False
                original = names.client_tool(part.name) if names.names else None
                if original is not None and original.kind != "function":
                    return False
            elif type(part) is not Text or part.seal is not None:
                return False
    return True


def _restore_choice_calls(choice: Choice, steps: AnswerSteps) -> Choice:
    parts: list[Part] = []
    for part in choice.parts:
        if type(part) is Call:
            part = steps.restore_call(part, choice.index)
            if steps.uses_memory:
                steps.client_calls.append(OpenPart(part, -1, choice.index, [part.arguments]))
        parts.append(part)
    finish = choice.finish
    if finish is not None and Call in map(type, parts):
        steps.note_unknown_finish(finish)
        finish = finish_with_calls(finish)
    if finish is choice.finish and is_same(parts, choice.parts):
        return choice
    return Choice(choice.index, tuple(parts), finish, choice.origin)
