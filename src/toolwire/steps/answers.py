"""An answer on its way back to the client: names, kinds and ids restored, endings told truly, seals put into envelopes.

Works on events; a whole answer takes the same way (`whole`), so that both give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire import ids, seals
from toolwire.events import (
    ArgumentsDelta,
    Carried,
    ChoiceEnd,
    CitationDelta,
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
from toolwire.ir import Call, Failure, Finish, Part, Reasoning, Seal, Text, changed, place
from toolwire.loss import Ledger
from toolwire.policy.back import UNDONE, Refused
from toolwire.steps.growing import Growing
from toolwire.steps.naming import FREEFORM
from toolwire.steps.slots import Slots
from toolwire.steps.way import Way

CUTS = ("length", "context")
"""Endings that may have cut a call off."""


def told_of_calls(finish: Finish) -> Finish:
    """The ending of a choice that has calls says so: some providers call it `stop`, or by a word of their own."""
    return Finish("calls", finish.raw, origin=finish.origin) if finish.kind in ("stop", "other") else finish


class AnswerSteps(Struct, eq=False):
    """Takes the provider's events one by one and gives those that the client's writer shall write."""

    way: Way
    ledger: Ledger
    slots: Slots
    next_index: int = 0
    open: dict[int, Growing] = {}
    called: list[int] = []
    """Choices that have calls."""
    cut: Growing | None = None
    """A call that ended with broken arguments; what follows tells whether it was cut off."""
    waiting: list[seals.Entry] = []
    given: list[Growing] = []
    """All calls, as the client has them."""
    refused: list[Refused] = []
    """Calls that must not reach the client."""
    failure: Failure | None = None
    """Why the answer was refused, where it was."""
    unslotted: list[tuple[int, Any]] = []
    """Sealed parts whose choice has not ended: only then it is known whether there is a call to keep them by."""
    used: dict[str, None] = {}
    """Ids of the calls so far."""
    renamed: bool = False
    """Did a call have another id?"""

    @property
    def calls(self) -> dict[int, list[Call]]:
        """The calls of each choice as the client has them."""
        found: dict[int, list[Call]] = {}
        for growing in self.given:
            found.setdefault(growing.choice, []).append(replace(growing.part, arguments="".join(growing.pieces)))
        return found

    def ids(self, choice: int) -> list[str]:
        """Those of a choice's calls as the client has them."""
        return [growing.part.id for growing in self.given if growing.choice == choice]

    def step(self, event: Event) -> list[Event]:
        return [] if self.failure is not None else STEPS[type(event)](self, event)

    def onward(self, event: ResponseStart | UsageUpdate | Carried) -> list[Event]:
        anew = not self.slots.crossing and event.frame is not None and self._anew
        return [replace(event, frame=None) if anew else event]

    @property
    def stamping(self) -> bool:
        """Must seals name their maker at their own place?"""
        return self.way.stamps and not self.slots.crossing

    @property
    def _anew(self) -> bool:
        """Is an answer in the client's own protocol written anew?"""
        return self.way.plan.active or self.stamping or bool(self.way.undo)

    # --- parts ---

    def start(self, event: PartStart) -> list[Event]:
        out: list[Event] = [] if self.cut is None else self._uncut(self.cut, False)
        part, choice, slots = event.part, event.choice, self.slots
        seal: Seal | None = None
        if slots.crossing:
            seal = getattr(part, "seal", None)
            if seal is not None:
                part = replace(part, seal=None)
        elif self.way.stamps and isinstance(part, (Reasoning, Text, Call)):
            part = changed(part, seal=None if part.seal is None else self._in_place(part, part.seal))
        if type(part) is Call:
            growing = self._call(part, choice, seal)
        else:
            if self.waiting and type(part) is Text:
                out += self._carrier(Text(""), self.waiting, choice)
                self.waiting = []
            # Of thinking that is hidden the client could see nothing but its seal.
            mute = slots.no_slot and type(part) is Reasoning and part.hidden and self.way.keeps
            growing = Growing(part, -1, choice, [], seal, False, False, mute)
        self.open[event.index] = growing
        return out if growing.held or growing.mute else out + self._begin(growing)

    def _call(self, call: Call, choice: int, seal: Seal | None) -> Growing:
        """A call that begins, as the client knows it."""
        plan, undo = self.way.plan, self.way.undo
        part = self._restored(call, choice)
        freeform = part.kind == FREEFORM and call.kind != FREEFORM
        shape = plan.shapes.get(call.name) if plan.shapes else None
        ruled = False
        if undo is not UNDONE and undo:
            ruled = undo.holds(part)
            part = part if ruled else undo.named(part)
        held = freeform or self.slots.hold_calls or shape is not None or ruled
        pieces: list[str] = []
        if call.arguments:
            pieces.append(call.arguments)
            part = replace(part, arguments="")
        growing = Growing(part, -1, choice, pieces, seal, held, freeform, False, ruled, shape)
        self.given.append(growing)
        return growing

    def _begin(self, growing: Growing) -> list[Event]:
        growing.index = index = self.next_index
        self.next_index = index + 1
        events: list[Event] = [PartStart(index, growing.part, growing.choice)]
        if growing.pieces:
            events.append(ArgumentsDelta(index, "".join(growing.pieces)))
        return events

    def text(self, event: TextDelta) -> list[Event]:
        growing = self.open[event.index]
        if self.slots.on_next and type(growing.part) is Reasoning:
            growing.pieces.append(event.text)
        if growing.mute:
            return []
        index = growing.index
        return [event if event.index == index and event.frame is None else TextDelta(index, event.text)]

    def citation(self, event: CitationDelta) -> list[Event]:
        growing = self.open[event.index]
        return [] if growing.mute else [CitationDelta(growing.index, event.citation)]

    def arguments(self, event: ArgumentsDelta) -> list[Event]:
        growing = self.open[event.index]
        growing.pieces.append(event.text)
        return [] if growing.held else [ArgumentsDelta(growing.index, event.text)]

    def grown(self, event: TextDelta | ArgumentsDelta) -> tuple[int, tuple[Callable[[str], None], ...]]:
        """How this delta went on, and how all like it will until the part ends: the client's number of the part (-1
        where it is held back), and who keeps the text."""
        growing = self.open[event.index]
        kept = type(event) is ArgumentsDelta or (self.slots.on_next and type(growing.part) is Reasoning)
        return growing.index, (growing.pieces.append,) if kept else ()

    def seal(self, event: SealDelta) -> list[Event]:
        growing = self.open[event.index]
        if not self.slots.crossing:
            seal = self._in_place(growing.part, event.seal) if self.stamping else event.seal
            if not growing.held:
                return [SealDelta(growing.index, seal)]
            growing.seal = seal
            return []
        growing.seal = event.seal
        return []

    def end(self, event: PartEnd) -> list[Event]:
        growing, slots = self.open.pop(event.index), self.slots
        out: list[Event] = self._release(growing, event.incomplete) if growing.held else []
        if growing.index < 0 and not growing.mute:
            return out  # it was refused
        kind, seal = type(growing.part), growing.seal
        if seal is not None:
            out += self._sealed(growing) if slots.crossing else [SealDelta(growing.index, seal)]
        elif kind is Reasoning and (slots.beside or slots.on_next):
            # Nobody else shall be told that these were his thoughts.
            out += self._told(growing, Seal(self.way.maker or self.way.provider.name, ""))
        if self.waiting and (kind is Call or kind is Text):
            out.append(self._letter(growing.index))
        if growing.mute:
            return out
        if kind is Call and slots.crossing and not growing.freeform and growing.broken:
            self.cut = growing
            return out
        out.append(PartEnd(growing.index, event.incomplete))
        if seal is not None and slots.beside and kind is Text:
            out += self._beside("before", seal, growing.choice)
        return out

    def _release(self, growing: Growing, cut: bool) -> list[Event]:
        """A held call, whole: what seals it goes before it, what wrapped it comes off."""
        out: list[Event] = []
        growing.unwrap()
        if growing.ruled and (refused := self._ruled(growing, cut)) is not None:
            return refused
        if growing.seal is not None and self.slots.beside:
            out = self._beside("next", growing.seal, growing.choice)
            growing.seal = None
        return out + self._begin(growing)

    def _ruled(self, growing: Growing, cut: bool) -> list[Event] | None:
        """A whole call as the rules want it; what is sent instead where it must not reach the client, else None."""
        found = self.way.undo.back(replace(growing.part, arguments="".join(growing.pieces)), self.ledger, cut)
        if isinstance(found, Call):
            growing.pieces = [found.arguments] if found.arguments else []
            growing.part = replace(found, arguments="")
            return None
        self.refused.append(found)
        self.given.remove(growing)
        if growing.choice in self.called and not any(other.choice == growing.choice for other in self.given):
            self.called.remove(growing.choice)
        if not found.fatal:
            return []
        self.failure = Failure("upstream", f"the model's call of `{found.call.name}` was refused: {found.why}", 502)
        return [ResponseFailed(self.failure)]

    def _uncut(self, cut: Growing, incomplete: bool) -> list[Event]:
        self.cut = None
        return [PartEnd(cut.index, incomplete)]

    # --- names and ids ---

    def _restored(self, call: Call, choice: int) -> Call:
        if choice not in self.called:
            self.called.append(choice)
        way = self.way
        fields: dict[str, Any] = {}
        original = way.plan.original(call.name) if way.plan.names else None
        if original is not None:
            fields = {"name": original.name, "kind": original.kind, "namespace": original.namespace}
            if call.name not in way.plan.names:
                self.ledger.note("name-rewritten", place(call), f"`{call.name}` was taken for `{original.name}`")
        if self.slots.crossing:
            id = self._id(call)
            if id != call.id:
                fields["id"] = id
            if not way.known_request:
                self.ledger.note("request-missing", place(call), f"`{call.name}` is given as the provider called it")
        if not fields:
            return call
        # Another protocol's writer gives no node back verbatim, so its origin need not be let go of.
        return replace(call, **fields) if self.slots.crossing else changed(call, **fields)

    def plainly(self, call: Call, choice: int) -> Call:
        """A whole call of which only the name and the id may differ."""
        restored = self._restored(call, choice)
        if self.way.keeps:
            self.given.append(Growing(restored, -1, choice, [restored.arguments]))
        return restored

    def _id(self, call: Call) -> str:
        way, id = self.way, call.id
        rules = way.client.rules
        known = id in way.taken or id in self.used
        if not id:
            id = ids.made("call_", f"{way.seed}|{len(way.taken.union(self.used))}|{call.name}")
            self.ledger.note("id-added", place(call), f"the call of `{call.name}` has the id `{id}`")
        elif known or not ids.legal(id, rules.id_pattern, rules.id_limit):
            self.renamed = True
            salt = f"#{len(way.taken.union(self.used))}" if known else ""
            spelled = "" if salt else ids.spelled(id, rules.id_pattern, rules.id_limit)
            id = spelled or ids.rewritten(id, rules.id_pattern, min(rules.id_limit, ids.SAFE_LENGTH), salt)
            self.ledger.note("id-rewritten", place(call), f"the call `{call.id}` has the id `{id}`")
        self.used[id] = None
        return id

    # --- seals ---

    def _stamped(self, seal: Seal) -> Seal:
        return Seal(self.way.maker, seal.value) if self.way.maker else seal

    def _sealed(self, growing: Growing) -> list[Event]:
        """What becomes of the seal of a part that ends here."""
        seal = self._stamped(growing.seal or Seal("", ""))
        part = growing.part
        if self.slots.no_slot:
            self.unslotted.append((growing.choice, part))
            return []
        self.ledger.note("seal-wrapped", place(part), "a seal travels in an envelope")
        if isinstance(part, Reasoning):
            return self._told(growing, seal)
        if self.slots.on_next:
            self.waiting.append(seals.Entry("next", seal.maker, seal.value))
        return []

    def _told(self, growing: Growing, seal: Seal) -> list[Event]:
        """Whose thinking it is, with the seal where there is one: in its own slot, or on what comes next."""
        part = growing.part
        text = part.text + "".join(growing.pieces) if self.slots.on_next else ""
        entry = seals.Entry("reasoning", seal.maker, seal.value, text, part.form, part.hidden, part.id)
        if self.slots.beside:
            return [SealDelta(growing.index, self._envelope([entry]))]
        self.waiting.append(entry)
        return []

    def _in_place(self, part: Any, seal: Seal) -> Seal:
        """The seal in an envelope at its own place, for a client that speaks the provider's protocol."""
        self.ledger.note("seal-wrapped", place(part), "a seal travels in an envelope that names its maker")
        maker = self._stamped(seal).maker
        if isinstance(part, Reasoning):
            entry = seals.Entry("reasoning", maker, seal.value, "", part.form, part.hidden, part.id)
        else:
            entry = seals.Entry("next", maker, seal.value)
        return self._envelope([entry])

    def _envelope(self, entries: list[seals.Entry]) -> Seal:
        return Seal(self.way.client.name, seals.envelope(entries))

    def _letter(self, index: int) -> Event:
        entries, self.waiting = self.waiting, []
        return SealDelta(index, self._envelope(entries))

    def _beside(self, where: Any, seal: Seal, choice: int) -> list[Event]:
        """An empty piece of reasoning that carries the seal of its neighbour."""
        stamped = self._stamped(seal)
        self.ledger.note("seal-wrapped", None, "a seal travels in an envelope beside its part")
        return self._carrier(Reasoning(), [seals.Entry(where, stamped.maker, stamped.value)], choice)

    def _carrier(self, part: Part, entries: list[seals.Entry], choice: int) -> list[Event]:
        index = self.next_index
        self.next_index += 1
        return [PartStart(index, part, choice), SealDelta(index, self._envelope(entries)), PartEnd(index)]

    # --- endings ---

    def _settle(self, choice: int | None) -> None:
        """What became of seals that have no slot, told when their choice is complete (None: all of them)."""
        for number, part in [pair for pair in self.unslotted if choice is None or pair[0] == choice]:
            if not self.way.keeps:
                code, what = "seal-dropped", "a seal has no slot here; a gateway's store can keep it"
            elif number in self.called and isinstance(part, (Call, Reasoning, Text)):
                code, what = "seal-kept", "a seal is kept until its turn comes back"
            else:
                code, what = "seal-dropped", "a seal has no slot here, and nothing in its turn to keep it by"
            self.ledger.note(code, place(part), what)
        self.unslotted = [pair for pair in self.unslotted if choice is not None and pair[0] != choice]

    def choice_end(self, event: ChoiceEnd) -> list[Event]:
        finish = event.finish
        if self.unslotted:
            self._settle(event.choice)
        out: list[Event] = [] if self.cut is None else self._uncut(self.cut, finish.kind in CUTS)
        if self.waiting:
            out += self._carrier(Text(""), self.waiting, event.choice)
            self.waiting = []
        if self.slots.crossing and event.choice in self.called:
            finish = told_of_calls(finish)
        elif self.refused and event.choice not in self.called and finish.kind == "calls":
            finish = Finish("stop")
        out.append(ChoiceEnd(finish, event.choice))
        return out

    def response_end(self, event: ResponseEnd) -> list[Event]:
        if event.strays and (self.slots.crossing or self._anew):
            self.ledger.strays(event.strays)
        if self.unslotted:
            self._settle(None)
        out: list[Event] = [] if self.cut is None else self._uncut(self.cut, False)
        out.append(ResponseEnd(event.strays))
        return out

    def failed(self, event: ResponseFailed) -> list[Event]:
        self.called.clear()
        self._settle(None)
        return [ResponseFailed(event.failure)]


STEPS: Mapping[type, Callable[[AnswerSteps, Any], list[Event]]] = {
    ResponseStart: AnswerSteps.onward,
    PartStart: AnswerSteps.start,
    TextDelta: AnswerSteps.text,
    CitationDelta: AnswerSteps.citation,
    ArgumentsDelta: AnswerSteps.arguments,
    SealDelta: AnswerSteps.seal,
    PartEnd: AnswerSteps.end,
    UsageUpdate: AnswerSteps.onward,
    ChoiceEnd: AnswerSteps.choice_end,
    ResponseEnd: AnswerSteps.response_end,
    ResponseFailed: AnswerSteps.failed,
    Carried: AnswerSteps.onward,
}
"""What is done to an event, as long as the answer has not failed."""
