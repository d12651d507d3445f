"""What was kept of a model's turns, put back into a client's request in the order in which the model made it.

What the client says stands: its words, its calls, and what it left out. Kept is only what it could not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolwire import seals, unseen
from toolwire.ir import Call, Origin, Part, Reasoning, Request, Result, Seal, Text, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.memory import (
    Before,
    Called,
    Kept,
    Piece,
    Ran,
    Said,
    Thought,
    own_name,
    shown_print,
    unpacked,
    unsealed_calls,
)
from toolwire.room import Rules
from toolwire.steps.rejoining import Rejoining, together


def restored(
    request: Request, before: Before, kept: Mapping[str, bytes], maker: str, rules: Rules, ledger: Ledger
) -> Request:
    """The request with what is kept for this maker put back where the model made it. What becomes of a turn depends on
    nothing behind it, so that it stays the same while the conversation goes on."""
    restoring = _Restoring(before, kept, maker, rules.reasoning_leads, ledger)
    turns: list[Turn] = []
    for asked, run in unseen.runs(request.turns):
        if run[0].role == "assistant":
            turns += restoring.run(run, asked)
        else:
            turns.append(restoring.answering(run[0]))
        restoring.at += len(run)
    if restoring.mixed:
        turns = together(turns, restoring.mixed, rules)
    same = len(turns) == len(request.turns) and all(new is old for new, old in zip(turns, request.turns, strict=True))
    return request if same else changed(request, turns=tuple(turns))


class _Restoring:
    def __init__(self, before: Before, kept: Mapping[str, bytes], maker: str, leads: bool, ledger: Ledger) -> None:
        self.before = before
        self.at = 0
        """How many turns stand before this run."""
        self.kept = kept
        self.maker = maker
        self.leads = leads
        """Must thinking be followed by what it led to?"""
        self.ledger = ledger
        self.seen: set[str] = set()
        """Ids of calls so far."""
        self.renamed: dict[str, str] = {}
        """The provider's own ids, by those that the client has."""
        self.mixed: list[Turn] = []
        """Results of calls beside which the client has calls of its own to answer."""

    def run(self, run: list[Turn], asked: str) -> list[Turn]:
        """What an assistant said in one go. Some clients make several messages of it: they become one again where all
        of it is known."""
        rounds = self._rounds(run, asked)
        if rounds is not None:
            return rounds
        if len(run) > 1 and all(not part.seal for turn in run for part in turn.parts if isinstance(part, _SEALED)):
            whole = changed(run[-1], parts=tuple(part for turn in run for part in turn.parts))
            template = self._template(whole)
            if template and _fits(whole, template):
                return self._woven(whole, template)
        return [restored for turn in run for restored in self._turn(turn)]

    def _turn(self, turn: Turn) -> list[Turn]:
        template = self._template(turn)
        if template:
            return self._woven(turn, template)
        for part in turn.parts:
            if isinstance(part, Call):
                self._own_id(Called(part.id))
        return [turn]

    def _rounds(self, run: list[Turn], asked: str) -> list[Turn] | None:
        """An answer of which the client saw only a part, whole; None where nothing of the kind is kept."""
        shown = unseen.shown_of(run, asked)
        ids = [own_name(shown.calls, run), *(call.id for call in shown.calls)] if shown.calls else [shown.key]
        found = (unpacked(data) for id in ids if (data := self.kept.get(id)) is not None)
        kept = next(
            (one for one in found if one is not None and any(isinstance(piece, Ran) for piece in one.pieces)), None
        )
        if kept is None or (kept.print and kept.print != shown_print(shown.calls, shown.text)):
            return None
        rejoining = Rejoining(run, kept, self._is_own(kept), self._own_id)
        if rejoining.lost:
            what = "another maker's and stays here" if rejoining.fits else "of words that were edited, and stays here"
            self._lost(run[0], f"what is kept of this turn is {what}")
        turns = rejoining.turns()
        self.seen.update(piece.id for piece in kept.pieces if isinstance(piece, Ran))
        if turns[-1].role == "tool":
            self.mixed.append(turns[-1])
        return turns

    def _is_own(self, kept: Kept) -> bool:
        return kept.maker == self.maker or seals.made_by(Seal(kept.maker, ""), self.maker)

    def _template(self, turn: Turn) -> list[tuple[Piece, str]]:
        """The pieces that a turn was made of, with their maker; none where nothing is kept that fits."""
        calls = unsealed_calls(turn)
        pieces: list[tuple[Piece, str]] = []
        own = self.kept.get(own_name(calls, [turn]))
        for call in calls:
            data = own if own is not None and call is calls[0] else self.kept.get(call.id)
            found = self._known(call, turn, calls, data) if data is not None else None
            if found is not None:
                pieces += ((piece, found.maker) for piece in found.pieces)
        return pieces

    def _known(self, call: Call, turn: Turn, calls: list[Call], data: bytes) -> Kept | None:
        kept = unpacked(data)
        if kept is None:
            self._lost(turn, "what is kept of this turn was written by another version and cannot be read")
            return None
        if kept.print and kept.print != shown_print(calls, "".join(part.text for part in _texts(turn))):
            self._lost(turn, f"what is kept for the id `{call.id}` belongs to another turn, or this one was edited")
            return None
        if not self._is_own(kept):
            self._lost(turn, "what is kept of this turn is another maker's and stays here")
            return None
        if kept.bound and kept.bound != self.before.turn(self.at):
            self._lost(turn, "what is kept of this turn is bound to what stood before it, and that has changed")
            return None
        return kept

    def _lost(self, turn: Turn, what: str) -> None:
        self.ledger.note("seal-dropped", place(turn), what)

    def _woven(self, turn: Turn, template: list[tuple[Piece, str]]) -> list[Turn]:
        weaving = _Weaving(turn, template)
        for piece, maker in template:
            if isinstance(piece, Thought):
                if weaving.stale:
                    # Two thoughts that were apart must not become one row.
                    self._idle(weaving, turn, "words that are")
                weaving.thought(piece, maker)
            elif isinstance(piece, Said):
                if not weaving.said(piece, maker) and self.leads:
                    self._idle(weaving, turn, "words that are")
            elif isinstance(piece, Called) and not weaving.called(piece, maker, self._own_id(piece)):
                self._idle(weaving, turn, f"the call `{piece.id}`, which is")
        return [changed(turn, parts=weaving.parts())]

    def _idle(self, weaving: _Weaving, turn: Turn, what: str) -> None:
        if weaving.idle():
            self.ledger.note("reasoning-dropped", place(turn), f"thinking was left out that led to {what} gone")

    def _own_id(self, piece: Called) -> str:
        """The provider's own id of a call, unless there was such a call before."""
        fresh = bool(piece.own) and self.seen.isdisjoint((piece.id, piece.own))
        id = piece.own if fresh else piece.id
        self.seen.update((piece.id, id))
        if fresh:
            self.renamed[piece.id] = id
        else:
            self.renamed.pop(piece.id, None)
        return id

    def answering(self, turn: Turn) -> Turn:
        """A turn whose results name the calls as the provider does."""
        if not self.renamed or not any(isinstance(part, Result) and part.id in self.renamed for part in turn.parts):
            return turn
        parts = tuple(
            changed(part, id=self.renamed[part.id]) if isinstance(part, Result) and part.id in self.renamed else part
            for part in turn.parts
        )
        return changed(turn, parts=parts)


_SEALED = (Call, Text, Reasoning)


def _in_rounds(kept: Kept) -> bool:
    return any(isinstance(piece, Ran) for piece in kept.pieces)


def _texts(turn: Turn) -> Iterator[Text]:
    return (part for part in turn.parts if isinstance(part, Text))


def _fits(turn: Turn, template: list[tuple[Piece, str]]) -> bool:
    """Is all that the turn shows in the template, and the other way round?"""
    length = sum(piece.length for piece, _ in template if isinstance(piece, Said))
    calls = [piece.id for piece, _ in template if isinstance(piece, Called)]
    shown = [part.id for part in turn.parts if isinstance(part, Call)]
    return sorted(calls) == sorted(shown) and sum(len(part.text) for part in _texts(turn)) == length


class _Weaving:
    """Puts the parts of a turn, as the client has them, into the order in which they were made."""

    def __init__(self, turn: Turn, template: list[tuple[Piece, str]]) -> None:
        self._place = place(turn)
        self._texts: list[Text] = []
        self._calls: dict[str, Call] = {}
        self._later: list[Part] = []
        """Calls that have not found their place."""
        self._others: list[Part] = []
        echoed: list[Reasoning] = []
        for part in turn.parts:
            if isinstance(part, Call):
                self._calls.setdefault(part.id, part)
                self._later.append(part)
            elif isinstance(part, Text):
                if part.text:
                    self._texts.append(part)
            elif isinstance(part, Reasoning):
                echoed.append(part)
            else:
                self._others.append(part)
        self._cut = _cut(self._texts, [piece.length for piece, _ in template if isinstance(piece, Said)])
        """The texts as they were; None where the client has changed them."""
        self._out: list[Part] = list(_own_words(echoed, template)) if echoed else []
        self._told = bool(self._out)
        self._thoughts: list[Part] = []
        self.stale = False
        """Did the latest thoughts lead to words that are gone?"""

    def thought(self, piece: Thought, maker: str) -> None:
        if self._told:
            return
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        # It comes from nowhere in the request, but it is its maker's own.
        origin = Origin(maker.partition("/")[0], self._place, None, intact=False)
        self._thoughts.append(Reasoning(piece.text, piece.form, piece.hidden, seal, piece.id, origin))

    def said(self, piece: Said, maker: str) -> bool:
        """False where the words are gone, or stand at another place."""
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        text = Text("") if not piece.length else self._cut.pop(0) if self._cut is not None else None
        if text is None:
            self.stale = not self._edited()
            return not self.stale
        if text.text or seal is not None:
            self._led()
            self._out.append(text if seal is text.seal else changed(text, seal=seal))
        return True

    def called(self, piece: Called, maker: str, id: str) -> bool:
        """False where the call is gone."""
        call = self._calls.pop(piece.id, None)
        if call is None:
            return False
        self._edited()
        self._led()
        self._out += self._others
        self._others = []
        self._later = [part for part in self._later if part is not call]
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        same = seal is None and id == call.id and piece.item == call.item
        self._out.append(call if same else changed(call, seal=seal, id=id, item=piece.item))
        return True

    def _led(self) -> None:
        self._out += self._thoughts
        self._thoughts, self.stale = [], False

    def idle(self) -> bool:
        """Thinking that leads to nothing any more is left out; was there any?"""
        led, self._thoughts, self.stale = bool(self._thoughts), [], False
        return led

    def _edited(self) -> bool:
        """All text at one place, where it is not known which of it stood where."""
        if self._cut is not None or not self._texts:
            return False
        self._led()
        self._out += self._texts
        self._texts = []
        return True

    def parts(self) -> tuple[Part, ...]:
        self._edited()
        self._led()
        return (*self._out, *self._others, *self._later)


def _own_words(echoed: list[Reasoning], template: list[tuple[Piece, str]]) -> list[Reasoning]:
    """Thinking that the client gave back, unless what is kept has it too, with its seals or in the same words."""
    kept = [piece for piece, _ in template if isinstance(piece, Thought)]
    if any(thought.seal is not None for thought in kept):
        return []
    same = "".join(part.text for part in echoed) == "".join(thought.text for thought in kept)
    return [] if same else echoed


def _cut(texts: list[Text], lengths: list[int]) -> list[Text] | None:
    """Texts cut anew at these lengths; None where they do not add up."""
    lengths = [length for length in lengths if length]
    if [len(part.text) for part in texts] == lengths:
        return list(texts)
    if sum(len(part.text) for part in texts) != sum(lengths):
        return None
    whole, at = "".join(part.text for part in texts), 0
    cut: list[Text] = []
    for length in lengths:
        cut.append(changed(texts[0], text=whole[at : at + length], citations=(), cache=None))
        at += length
    if cut:
        cut[-1] = changed(cut[-1], cache=texts[-1].cache)
    return cut
