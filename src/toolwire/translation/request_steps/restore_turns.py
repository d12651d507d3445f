"""What was kept of a model's turns, put back into a client's request in the order in which the model made it.

What the client says stands: its words, its calls, and what it left out. Kept is only what it could not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    Call,
    Media,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Request,
    Result,
    Seal,
    Text,
    Turn,
    replace_fields,
    source_path,
)
from toolwire.core.losses import Ledger
from toolwire.translation import hidden_calls, seals
from toolwire.translation.signature_memory import (
    ClientCallPiece,
    HiddenCallPiece,
    HiddenResultPiece,
    Piece,
    PrefixDigests,
    ReasoningPiece,
    TextPiece,
    TurnRecord,
    decode_record,
    fingerprinted_key,
    turn_fingerprint,
    unsealed_calls,
)


def restore_turns(
    request: Request,
    prefix_digests: PrefixDigests,
    records: Mapping[str, bytes],
    maker: str,
    constraints: Constraints,
    ledger: Ledger,
) -> Request:
    """The request with what is kept for this maker put back where the model made it. What becomes of a turn depends on
    nothing behind it, so that it stays the same while the conversation goes on."""
    restoring = _TurnRestorer(prefix_digests, records, maker, constraints.needs_part_after_reasoning, ledger)
    turns: list[Turn] = []
    for asked, run in hidden_calls.group_assistant_runs(request.turns):
        if run[0].role == "assistant":
            turns += restoring.restore_run(run, asked)
        else:
            turns.append(restoring.rename_results(run[0]))
        restoring.turn_index += len(run)
    if restoring.mixed_results:
        turns = merge_results(turns, restoring.mixed_results, constraints)
    same = len(turns) == len(request.turns) and all(new is old for new, old in zip(turns, request.turns, strict=True))
    return request if same else replace_fields(request, turns=tuple(turns))


class _TurnRestorer:
    def __init__(
        self,
        prefix_digests: PrefixDigests,
        records: Mapping[str, bytes],
        maker: str,
        needs_part_after_reasoning: bool,
        ledger: Ledger,
    ) -> None:
        self.prefix_digests = prefix_digests
        self.turn_index = 0
        """How many turns stand before this run."""
        self.records = records
        self.maker = maker
        self.needs_part_after_reasoning = needs_part_after_reasoning
        """Must thinking be followed by what it led to?"""
        self.ledger = ledger
        self.seen_ids: set[str] = set()
        """Ids of calls so far."""
        self.provider_ids: dict[str, str] = {}
        """The provider's own ids, by those that the client has."""
        self.mixed_results: list[Turn] = []
        """Results of calls beside which the client has calls of its own to answer."""

    def restore_run(self, run: list[Turn], user_text: str) -> list[Turn]:
        """What an assistant said in one go. Some clients make several messages of it: they become one again where all
        of it is known."""
        rounds = self._restore_rounds(run, user_text)
        if rounds is not None:
            return rounds
        if len(run) > 1 and all(
            not part.seal for turn in run for part in turn.parts if isinstance(part, _SEALABLE_PARTS)
        ):
            whole = replace_fields(run[-1], parts=tuple(part for turn in run for part in turn.parts))
            template = self._find_template(whole)
            if template and _matches_template(whole, template):
                return self._weave_turn(whole, template)
        return [restored for turn in run for restored in self._restore_turn(turn)]

    def _restore_turn(self, turn: Turn) -> list[Turn]:
        template = self._find_template(turn)
        if template:
            return self._weave_turn(turn, template)
        for part in turn.parts:
            if isinstance(part, Call):
                self._find_provider_id(ClientCallPiece(part.id))
        return [turn]

    def _restore_rounds(self, run: list[Turn], user_text: str) -> list[Turn] | None:
        """An answer of which the client saw only a part, whole; None where nothing of the kind is kept."""
        shown = hidden_calls.visible_answer(run, user_text)
        ids = [fingerprinted_key(shown.calls, run), *(call.id for call in shown.calls)] if shown.calls else [shown.key]
        found = (decode_record(data) for id in ids if (data := self.records.get(id)) is not None)
        kept = next(
            (
                one
                for one in found
                if one is not None and any(isinstance(piece, HiddenCallPiece) for piece in one.pieces)
            ),
            None,
        )
        if kept is None or (kept.fingerprint and kept.fingerprint != turn_fingerprint(shown.calls, shown.text)):
            return None
        rejoining = RejoinedAnswer(run, kept, self._is_from_maker(kept), self._find_provider_id)
        if rejoining.has_lost_seals:
            what = (
                "another maker's and stays here"
                if rejoining.matches_client
                else "of words that were edited, and stays here"
            )
            self._note_dropped_seal(run[0], f"what is kept of this turn is {what}")
        turns = rejoining.turns()
        self.seen_ids.update(piece.id for piece in kept.pieces if isinstance(piece, HiddenCallPiece))
        if turns[-1].role == "tool":
            self.mixed_results.append(turns[-1])
        return turns

    def _is_from_maker(self, record: TurnRecord) -> bool:
        return record.maker == self.maker or seals.is_made_by(Seal(record.maker, ""), self.maker)

    def _find_template(self, turn: Turn) -> list[tuple[Piece, str]]:
        """The pieces that a turn was made of, with their maker; none where nothing is kept that fits."""
        calls = unsealed_calls(turn)
        pieces: list[tuple[Piece, str]] = []
        own = self.records.get(fingerprinted_key(calls, [turn]))
        for call in calls:
            data = own if own is not None and call is calls[0] else self.records.get(call.id)
            found = self._check_record(call, turn, calls, data) if data is not None else None
            if found is not None:
                pieces += ((piece, found.maker) for piece in found.pieces)
        return pieces

    def _check_record(self, call: Call, turn: Turn, calls: list[Call], data: bytes) -> TurnRecord | None:
        kept = decode_record(data)
        if kept is None:
            self._note_dropped_seal(turn, "what is kept of this turn was written by another version and cannot be read")
            return None
        if kept.fingerprint and kept.fingerprint != turn_fingerprint(
            calls, "".join(part.text for part in _text_parts(turn))
        ):
            self._note_dropped_seal(
                turn, f"what is kept for the id `{call.id}` belongs to another turn, or this one was edited"
            )
            return None
        if not self._is_from_maker(kept):
            self._note_dropped_seal(turn, "what is kept of this turn is another maker's and stays here")
            return None
        if kept.context_digest and kept.context_digest != self.prefix_digests.digest_before(self.turn_index):
            self._note_dropped_seal(
                turn, "what is kept of this turn is bound to what stood before it, and that has changed"
            )
            return None
        return kept

    def _note_dropped_seal(self, turn: Turn, what: str) -> None:
        self.ledger.note("seal-dropped", source_path(turn), what)

    def _weave_turn(self, turn: Turn, template: list[tuple[Piece, str]]) -> list[Turn]:
        weaving = _TurnWeaver(turn, template)
        for piece, maker in template:
            if isinstance(piece, ReasoningPiece):
                if weaving.has_stale_reasoning:
                    # Two thoughts that were apart must not become one row.
                    self._drop_idle_reasoning(weaving, turn, "words that are")
                weaving.add_reasoning(piece, maker)
            elif isinstance(piece, TextPiece):
                if not weaving.add_text(piece, maker) and self.needs_part_after_reasoning:
                    self._drop_idle_reasoning(weaving, turn, "words that are")
            elif isinstance(piece, ClientCallPiece) and not weaving.add_call(
                piece, maker, self._find_provider_id(piece)
            ):
                self._drop_idle_reasoning(weaving, turn, f"the call `{piece.id}`, which is")
        return [replace_fields(turn, parts=weaving.finish())]

    def _drop_idle_reasoning(self, weaver: _TurnWeaver, turn: Turn, what: str) -> None:
        if weaver.drop_reasoning():
            self.ledger.note("reasoning-dropped", source_path(turn), f"thinking was left out that led to {what} gone")

    def _find_provider_id(self, piece: ClientCallPiece) -> str:
        """The provider's own id of a call, unless there was such a call before."""
        fresh = bool(piece.provider_id) and self.seen_ids.isdisjoint((piece.id, piece.provider_id))
        id = piece.provider_id if fresh else piece.id
        self.seen_ids.update((piece.id, id))
        if fresh:
            self.provider_ids[piece.id] = id
        else:
            self.provider_ids.pop(piece.id, None)
        return id

    def rename_results(self, turn: Turn) -> Turn:
        """A turn whose results name the calls as the provider does."""
        if not self.provider_ids or not any(
            isinstance(part, Result) and part.id in self.provider_ids for part in turn.parts
        ):
            return turn
        parts = tuple(
            replace_fields(part, id=self.provider_ids[part.id])
            if isinstance(part, Result) and part.id in self.provider_ids
            else part
            for part in turn.parts
        )
        return replace_fields(turn, parts=parts)


_SEALABLE_PARTS = (Call, Text, Reasoning)


def _has_hidden_calls(record: TurnRecord) -> bool:
    return any(isinstance(piece, HiddenCallPiece) for piece in record.pieces)


def _text_parts(turn: Turn) -> Iterator[Text]:
    return (part for part in turn.parts if isinstance(part, Text))


def _matches_template(turn: Turn, template: list[tuple[Piece, str]]) -> bool:
    """Is all that the turn shows in the template, and the other way round?"""
    length = sum(piece.length for piece, _ in template if isinstance(piece, TextPiece))
    calls = [piece.id for piece, _ in template if isinstance(piece, ClientCallPiece)]
    shown = [part.id for part in turn.parts if isinstance(part, Call)]
    return sorted(calls) == sorted(shown) and sum(len(part.text) for part in _text_parts(turn)) == length


class _TurnWeaver:
    """Puts the parts of a turn, as the client has them, into the order in which they were made."""

    def __init__(self, turn: Turn, template: list[tuple[Piece, str]]) -> None:
        self._path = source_path(turn)
        self._texts: list[Text] = []
        self._calls: dict[str, Call] = {}
        self._unplaced_calls: list[Part] = []
        """Calls that have not found their place."""
        self._other_parts: list[Part] = []
        echoed: list[Reasoning] = []
        for part in turn.parts:
            if isinstance(part, Call):
                self._calls.setdefault(part.id, part)
                self._unplaced_calls.append(part)
            elif isinstance(part, Text):
                if part.text:
                    self._texts.append(part)
            elif isinstance(part, Reasoning):
                echoed.append(part)
            else:
                self._other_parts.append(part)
        self._original_texts = _split_texts(
            self._texts, [piece.length for piece, _ in template if isinstance(piece, TextPiece)]
        )
        """The texts as they were; None where the client has changed them."""
        self._woven_parts: list[Part] = list(_echoed_reasoning_to_keep(echoed, template)) if echoed else []
        self._has_echoed_reasoning = bool(self._woven_parts)
        self._pending_reasoning: list[Part] = []
        self.has_stale_reasoning = False
        """Did the latest thoughts lead to words that are gone?"""

    def add_reasoning(self, piece: ReasoningPiece, maker: str) -> None:
        if self._has_echoed_reasoning:
            return
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        # It comes from nowhere in the request, but it is its maker's own.
        origin = Origin(maker.partition("/")[0], self._path, None, intact=False)
        self._pending_reasoning.append(Reasoning(piece.text, piece.form, piece.hidden, seal, piece.id, origin))

    def add_text(self, piece: TextPiece, maker: str) -> bool:
        """False where the words are gone, or stand at another place."""
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        text = (
            Text("") if not piece.length else self._original_texts.pop(0) if self._original_texts is not None else None
        )
        if text is None:
            self.has_stale_reasoning = not self._flush_edited_text()
            return not self.has_stale_reasoning
        if text.text or seal is not None:
            self._flush_reasoning()
            self._woven_parts.append(text if seal is text.seal else replace_fields(text, seal=seal))
        return True

    def add_call(self, piece: ClientCallPiece, maker: str, id: str) -> bool:
        """False where the call is gone."""
        call = self._calls.pop(piece.id, None)
        if call is None:
            return False
        self._flush_edited_text()
        self._flush_reasoning()
        self._woven_parts += self._other_parts
        self._other_parts = []
        self._unplaced_calls = [part for part in self._unplaced_calls if part is not call]
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        same = seal is None and id == call.id and piece.item == call.item
        self._woven_parts.append(call if same else replace_fields(call, seal=seal, id=id, item=piece.item))
        return True

    def _flush_reasoning(self) -> None:
        self._woven_parts += self._pending_reasoning
        self._pending_reasoning, self.has_stale_reasoning = [], False

    def drop_reasoning(self) -> bool:
        """Thinking that leads to nothing any more is left out; was there any?"""
        led, self._pending_reasoning, self.has_stale_reasoning = bool(self._pending_reasoning), [], False
        return led

    def _flush_edited_text(self) -> bool:
        """All text at one place, where it is not known which of it stood where."""
        if self._original_texts is not None or not self._texts:
            return False
        self._flush_reasoning()
        self._woven_parts += self._texts
        self._texts = []
        return True

    def finish(self) -> tuple[Part, ...]:
        self._flush_edited_text()
        self._flush_reasoning()
        return (*self._woven_parts, *self._other_parts, *self._unplaced_calls)


def _echoed_reasoning_to_keep(echoed: list[Reasoning], template: list[tuple[Piece, str]]) -> list[Reasoning]:
    """Thinking that the client gave back, unless what is kept has it too, with its seals or in the same words."""
    kept = [piece for piece, _ in template if isinstance(piece, ReasoningPiece)]
    if any(thought.seal is not None for thought in kept):
        return []
    same = "".join(part.text for part in echoed) == "".join(thought.text for thought in kept)
    return [] if same else echoed


def _split_texts(texts: list[Text], lengths: list[int]) -> list[Text] | None:
    """Texts cut anew at these lengths; None where they do not add up."""
    lengths = [length for length in lengths if length]
    if [len(part.text) for part in texts] == lengths:
        return list(texts)
    if sum(len(part.text) for part in texts) != sum(lengths):
        return None
    whole, at = "".join(part.text for part in texts), 0
    cut: list[Text] = []
    for length in lengths:
        cut.append(replace_fields(texts[0], text=whole[at : at + length], citations=(), cache=None))
        at += length
    if cut:
        cut[-1] = replace_fields(cut[-1], cache=texts[-1].cache)
    return cut


FindProviderId = Callable[[ClientCallPiece], str]


class RejoinedAnswer:
    """One answer: what the client shows of it, and what is kept."""

    def __init__(
        self, run: Sequence[Turn], record: TurnRecord, is_from_maker: bool, find_provider_id: FindProviderId
    ) -> None:
        parts = [part for turn in run for part in turn.parts]
        self._calls = {part.id: part for part in parts if isinstance(part, Call)}
        self._texts = [part for part in parts if isinstance(part, Text) and part.text]
        protocol = record.maker.partition("/")[0]
        others = (part for part in parts if not isinstance(part, (Call, Text, Reasoning)))
        # A search that the client was shown was a call that the model made: it is told as that, not twice.
        self._other_parts = [part for part in others if not _is_substituted_call(part, protocol, record)]
        self._record = record
        self._find_provider_id = find_provider_id
        self.matches_client = self._has_same_text() and self._has_same_calls()
        """Does the client show what it saw? Then all is as it was; else its words stand, and nothing is sealed."""
        self._can_use_seals = is_from_maker and self.matches_client
        """Can the model use its seals and its thinking?"""

    @property
    def has_lost_seals(self) -> bool:
        """Does thinking or a seal stay behind?"""
        return not self._can_use_seals and any(
            isinstance(piece, ReasoningPiece) or (not isinstance(piece, HiddenResultPiece) and piece.seal is not None)
            for piece in self._record.pieces
        )

    def _has_same_text(self) -> bool:
        said = "".join(piece.text for piece in self._record.pieces if isinstance(piece, TextPiece))
        return said == "".join(part.text for part in self._texts)

    def _has_same_calls(self) -> bool:
        return sorted(piece.id for piece in self._record.pieces if isinstance(piece, ClientCallPiece)) == sorted(
            self._calls
        )

    def turns(self) -> list[Turn]:
        """The rounds: what the model said and did, and what it was told."""
        parts = [*self._parts()]
        return [
            Turn("tool" if results else "assistant", tuple(group))
            for results, group in groupby(parts, lambda part: isinstance(part, Result))
        ]

    def _parts(self) -> Iterator[Part]:
        if not self.matches_client:
            yield from (replace_fields(part, seal=None) if part.seal is not None else part for part in self._texts)
        ends = _first_client_call(self._record.pieces)
        for number, piece in enumerate(self._record.pieces):
            if number == ends:
                # What is not the model's words stands where its last round begins to act.
                yield from self._other_parts
            yield from self._parts_from_piece(piece)
        yield from (replace_fields(call, seal=None) if call.seal is not None else call for call in self._calls.values())

    def _parts_from_piece(self, piece: Piece) -> Iterator[Part]:
        if isinstance(piece, ReasoningPiece):
            if self._can_use_seals:
                origin = Origin(self._record.maker.partition("/")[0], None, None, intact=False)
                yield Reasoning(piece.text, piece.form, piece.hidden, self._make_seal(piece.seal), piece.id, origin)
        elif isinstance(piece, TextPiece):
            seal = self._make_seal(piece.seal)
            if self.matches_client and (piece.text or seal is not None):
                yield Text(piece.text, seal=seal)
        elif isinstance(piece, HiddenCallPiece):
            item = piece.item if self._can_use_seals else ""
            yield Call(piece.id, piece.name, piece.arguments, item=item, seal=self._make_seal(piece.seal))
        elif isinstance(piece, HiddenResultPiece):
            name = "" if piece.id else piece.name
            yield Result(piece.id, tuple(map(_decode_content, piece.content)), piece.error, name, value=piece.value)
        else:
            yield from self._restore_client_call(piece)

    def _restore_client_call(self, piece: ClientCallPiece) -> Iterator[Part]:
        call = self._calls.pop(piece.id, None)
        if call is not None:
            id, seal = self._find_provider_id(piece), self._make_seal(piece.seal)
            item = piece.item if self._can_use_seals else ""
            same = seal is None and call.seal is None and (id, item) == (call.id, call.item)
            yield call if same else replace_fields(call, seal=seal, id=id, item=item)

    def _make_seal(self, value: str | None) -> Seal | None:
        return Seal(self._record.maker, value) if value is not None and self._can_use_seals else None


def _is_substituted_call(part: Part, protocol: str, record: TurnRecord) -> bool:
    if not isinstance(part, (ProviderCall, ProviderResult)):
        return False
    foreign = part.origin is None or part.origin.protocol != protocol
    return foreign or any(isinstance(piece, HiddenCallPiece) and piece.id == part.id for piece in record.pieces)


def _first_client_call(pieces: Sequence[Piece]) -> int:
    """Where the first call of the client stands, or the end."""
    return next((number for number, piece in enumerate(pieces) if isinstance(piece, ClientCallPiece)), len(pieces))


def _decode_content(encoded: tuple[str, str, str, str]) -> Part:
    kind, mime, data, name = encoded
    return Text(data) if kind == "text" else Media(kind, mime, data, name=name)  # type: ignore[arg-type]


def merge_results(turns: Iterable[Turn], result_turns: Sequence[Turn], constraints: Constraints) -> list[Turn]:
    """The turns with the results of each of these beside those that the client gives, in the order of their calls."""
    out: list[Turn] = []
    waiting = list(turns)
    while waiting:
        turn = waiting.pop(0)
        if not any(turn is one for one in result_turns):
            out.append(turn)
            continue
        results = list(turn.parts)
        rest: tuple[Part, ...] = ()
        while waiting and not rest and waiting[0].role != "assistant" and _starts_with_result(waiting[0]):
            parts = waiting.pop(0).parts
            results += [part for part in parts if isinstance(part, Result)]
            rest = tuple(part for part in parts if not isinstance(part, Result))
        out += _results_as_turns(_sort_by_calls(results, out[-1]), rest, constraints)
    return out


def _starts_with_result(turn: Turn) -> bool:
    return bool(turn.parts) and isinstance(turn.parts[0], Result)


def _sort_by_calls(results: list[Part], calling: Turn) -> tuple[Part, ...]:
    order = {part.id: number for number, part in enumerate(calling.parts) if isinstance(part, Call)}
    return tuple(sorted(results, key=lambda part: order.get(part.id, len(order))))  # type: ignore[union-attr]


def _results_as_turns(results: tuple[Part, ...], rest: tuple[Part, ...], constraints: Constraints) -> list[Turn]:
    if constraints.result_placement == "user":
        return [Turn("user", (*results, *rest))]
    turns = [Turn("tool", (result,)) for result in results]
    return [*turns, Turn("user", rest)] if rest else turns
