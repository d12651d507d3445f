"""An answer of which the client saw only a part, told to the model as it was: with the calls that were run for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from toolwire.ir import (
    Call,
    HostedCall,
    HostedResult,
    Media,
    Origin,
    Part,
    Reasoning,
    Result,
    Seal,
    Text,
    Turn,
    changed,
)
from toolwire.memory import Called, Kept, Piece, Ran, Said, Thought, Told
from toolwire.room import Rules

OwnId = Callable[[Called], str]


class Rejoining:
    """One answer: what the client shows of it, and what is kept."""

    def __init__(self, run: Sequence[Turn], kept: Kept, own: bool, own_id: OwnId) -> None:
        parts = [part for turn in run for part in turn.parts]
        self._calls = {part.id: part for part in parts if isinstance(part, Call)}
        self._texts = [part for part in parts if isinstance(part, Text) and part.text]
        protocol = kept.maker.partition("/")[0]
        others = (part for part in parts if not isinstance(part, (Call, Text, Reasoning)))
        # A search that the client was shown was a call that the model made: it is told as that, not twice.
        self._others = [part for part in others if not _stands_in(part, protocol, kept)]
        self._kept = kept
        self._own_id = own_id
        self.fits = self._same_words() and self._same_calls()
        """Does the client show what it saw? Then all is as it was; else its words stand, and nothing is sealed."""
        self._sealed = own and self.fits
        """Can the model use its seals and its thinking?"""

    @property
    def lost(self) -> bool:
        """Does thinking or a seal stay behind?"""
        return not self._sealed and any(
            isinstance(piece, Thought) or (not isinstance(piece, Told) and piece.seal is not None)
            for piece in self._kept.pieces
        )

    def _same_words(self) -> bool:
        said = "".join(piece.text for piece in self._kept.pieces if isinstance(piece, Said))
        return said == "".join(part.text for part in self._texts)

    def _same_calls(self) -> bool:
        return sorted(piece.id for piece in self._kept.pieces if isinstance(piece, Called)) == sorted(self._calls)

    def turns(self) -> list[Turn]:
        """The rounds: what the model said and did, and what it was told."""
        parts = [*self._parts()]
        return [
            Turn("tool" if results else "assistant", tuple(group))
            for results, group in groupby(parts, lambda part: isinstance(part, Result))
        ]

    def _parts(self) -> Iterator[Part]:
        if not self.fits:
            yield from (changed(part, seal=None) if part.seal is not None else part for part in self._texts)
        ends = _ends(self._kept.pieces)
        for number, piece in enumerate(self._kept.pieces):
            if number == ends:
                # What is not the model's words stands where its last round begins to act.
                yield from self._others
            yield from self._part(piece)
        yield from (changed(call, seal=None) if call.seal is not None else call for call in self._calls.values())

    def _part(self, piece: Piece) -> Iterator[Part]:
        if isinstance(piece, Thought):
            if self._sealed:
                origin = Origin(self._kept.maker.partition("/")[0], None, None, intact=False)
                yield Reasoning(piece.text, piece.form, piece.hidden, self._seal(piece.seal), piece.id, origin)
        elif isinstance(piece, Said):
            seal = self._seal(piece.seal)
            if self.fits and (piece.text or seal is not None):
                yield Text(piece.text, seal=seal)
        elif isinstance(piece, Ran):
            item = piece.item if self._sealed else ""
            yield Call(piece.id, piece.name, piece.arguments, item=item, seal=self._seal(piece.seal))
        elif isinstance(piece, Told):
            name = "" if piece.id else piece.name
            yield Result(piece.id, tuple(map(_content, piece.content)), piece.error, name, value=piece.value)
        else:
            yield from self._called(piece)

    def _called(self, piece: Called) -> Iterator[Part]:
        call = self._calls.pop(piece.id, None)
        if call is not None:
            id, seal = self._own_id(piece), self._seal(piece.seal)
            item = piece.item if self._sealed else ""
            same = seal is None and call.seal is None and (id, item) == (call.id, call.item)
            yield call if same else changed(call, seal=seal, id=id, item=item)

    def _seal(self, value: str | None) -> Seal | None:
        return Seal(self._kept.maker, value) if value is not None and self._sealed else None


def _stands_in(part: Part, protocol: str, kept: Kept) -> bool:
    if not isinstance(part, (HostedCall, HostedResult)):
        return False
    foreign = part.origin is None or part.origin.protocol != protocol
    return foreign or any(isinstance(piece, Ran) and piece.id == part.id for piece in kept.pieces)


def _ends(pieces: Sequence[Piece]) -> int:
    """Where the first call of the client stands, or the end."""
    return next((number for number, piece in enumerate(pieces) if isinstance(piece, Called)), len(pieces))


def _content(held: tuple[str, str, str, str]) -> Part:
    kind, mime, data, name = held
    return Text(data) if kind == "text" else Media(kind, mime, data, name=name)  # type: ignore[arg-type]


def together(turns: Iterable[Turn], mixed: Sequence[Turn], rules: Rules) -> list[Turn]:
    """The turns with the results of each of these beside those that the client gives, in the order of their calls."""
    out: list[Turn] = []
    waiting = list(turns)
    while waiting:
        turn = waiting.pop(0)
        if not any(turn is one for one in mixed):
            out.append(turn)
            continue
        results = list(turn.parts)
        rest: tuple[Part, ...] = ()
        while waiting and not rest and waiting[0].role != "assistant" and _answers(waiting[0]):
            parts = waiting.pop(0).parts
            results += [part for part in parts if isinstance(part, Result)]
            rest = tuple(part for part in parts if not isinstance(part, Result))
        out += _beside(_sorted(results, out[-1]), rest, rules)
    return out


def _answers(turn: Turn) -> bool:
    return bool(turn.parts) and isinstance(turn.parts[0], Result)


def _sorted(results: list[Part], calling: Turn) -> tuple[Part, ...]:
    order = {part.id: number for number, part in enumerate(calling.parts) if isinstance(part, Call)}
    return tuple(sorted(results, key=lambda part: order.get(part.id, len(order))))  # type: ignore[union-attr]


def _beside(results: tuple[Part, ...], rest: tuple[Part, ...], rules: Rules) -> list[Turn]:
    if rules.results == "user":
        return [Turn("user", (*results, *rest))]
    turns = [Turn("tool", (result,)) for result in results]
    return [*turns, Turn("user", rest)] if rest else turns
