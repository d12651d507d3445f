"""Puts stored records (`signature_memory.py`) back into a request: thinking, seals, and the order of the parts.

The client's own content always wins: its text, its calls, and what it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby

from msgspec import Struct

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
    plain_text,
    replace_fields,
    source_path,
    with_parts,
    with_turns,
)
from toolwire.core.losses import Ledger
from toolwire.translation import seals, signature_memory
from toolwire.translation.request_steps.history import place_results
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
    """The request with the records of this maker. A turn depends only on what is before it: it stays the same."""
    restorer = _TurnRestorer(prefix_digests, records, maker, constraints, ledger)
    turns: list[Turn] = []
    for question, run in signature_memory.group_assistant_runs(request.turns):
        if run[0].role == "assistant":
            turns += restorer.restore_run(run, question)
        else:
            turns.append(restorer.rename_results(run[0]))
        restorer.turn_index += len(run)
    if restorer.mixed_results:
        turns = merge_results(turns, restorer.mixed_results, constraints)
    return with_turns(request, turns)


class _TurnRestorer(Struct, eq=False):
    prefix_digests: PrefixDigests
    records: Mapping[str, bytes]
    maker: str
    constraints: Constraints
    ledger: Ledger
    turn_index: int = 0
    """The number of turns before the current ones."""
    seen_ids: set[str] = set()
    """Ids of the calls so far."""
    provider_ids: dict[str, str] = {}
    """The provider's call ids, by the client's."""
    mixed_results: list[Turn] = []
    """Restored results of calls that were made together with calls of the client."""

    def restore_run(self, run: list[Turn], user_text: str) -> list[Turn]:
        """Restore turns of the assistant in a row. Those that a client split are joined where one record has all."""
        rounds = self._restore_rounds(run, user_text)
        if rounds is not None:
            return rounds
        if self.constraints.needs_reasoning_returned:
            run = self._without_lost_reasoning(run)
        is_unsealed = not any(part.seal for turn in run for part in turn.parts if isinstance(part, _SEALABLE_PARTS))
        if len(run) > 1 and is_unsealed:
            whole = replace_fields(run[-1], parts=tuple(part for turn in run for part in turn.parts))
            template = self._find_template(whole)
            if template and _matches_template(whole, template):
                return [self._weave_turn(whole, template)]
        # Thinking that the client has sent back in a turn of its own (Responses) must not come a second time.
        is_complete = self.constraints.needs_reasoning_returned and not is_unsealed
        restored: list[Turn] = []
        for turn in run:
            template = [] if is_complete else self._find_template(turn)
            if template:
                turn = self._weave_turn(turn, template)
            else:
                for part in turn.parts:
                    if isinstance(part, Call):
                        self._find_provider_id(ClientCallPiece(part.id))
            restored.append(turn)
        return restored

    def _without_lost_reasoning(self, run: list[Turn]) -> list[Turn]:
        """For servers that want the text of thinking back: the turns without thinking whose text the client has lost,
        if there is a record of it."""
        reasoning = [part for turn in run for part in turn.parts if isinstance(part, Reasoning)]
        if not reasoning or any(part.text for part in reasoning):
            return run
        kept = (tuple(part for part in turn.parts if not isinstance(part, Reasoning)) for turn in run)
        turns = [with_parts(turn, parts) for turn, parts in zip(run, kept, strict=True) if parts or not turn.parts]
        return turns if any(self.records.get(call.id) for turn in turns for call in unsealed_calls(turn)) else run

    def _restore_rounds(self, run: list[Turn], user_text: str) -> list[Turn] | None:
        """The whole answer where the client saw only a part of it; None where there is no such record."""
        visible = signature_memory.visible_answer(run, user_text)
        calls = visible.calls
        keys = [fingerprinted_key(calls, run), *(call.id for call in calls)] if calls else [visible.key]
        found = (decode_record(data) for key in keys if (data := self.records.get(key)) is not None)
        with_hidden_calls = (one for one in found if one is not None and HiddenCallPiece in map(type, one.pieces))
        record = next(with_hidden_calls, None)
        if record is None or (record.fingerprint and record.fingerprint != turn_fingerprint(calls, visible.text)):
            return None
        answer = RejoinedAnswer(run, record, self._is_from_maker(record), self._find_provider_id)
        if answer.has_lost_seals:
            what = "another maker" if answer.matches_client else "text that was edited"
            what = f"the stored record of this turn is of {what}, and was not used"
            self.ledger.note("seal-dropped", source_path(run[0]), what)
        turns = answer.turns()
        self.seen_ids.update(piece.id for piece in record.pieces if isinstance(piece, HiddenCallPiece))
        if turns[-1].role == "tool":
            self.mixed_results.append(turns[-1])
        return turns

    def _is_from_maker(self, record: TurnRecord) -> bool:
        return record.maker == self.maker or seals.is_made_by(Seal(record.maker, ""), self.maker)

    def _find_template(self, turn: Turn) -> list[tuple[Piece, str]]:
        """The recorded pieces of a turn, each with its maker; none where no record fits."""
        calls = unsealed_calls(turn)
        pieces: list[tuple[Piece, str]] = []
        by_fingerprint = self.records.get(fingerprinted_key(calls, [turn]))
        for call in calls:
            data = by_fingerprint if by_fingerprint is not None and call is calls[0] else self.records.get(call.id)
            record = self._check_record(call, turn, calls, data) if data is not None else None
            if record is not None:
                pieces += ((piece, record.maker) for piece in record.pieces)
        return pieces

    def _check_record(self, call: Call, turn: Turn, calls: list[Call], data: bytes) -> TurnRecord | None:
        """The record, or None and a loss where it cannot be used."""
        record = decode_record(data)
        problem = ""
        if record is None:
            problem = "the stored record of this turn is of another version and cannot be read"
        elif record.fingerprint and record.fingerprint != turn_fingerprint(calls, plain_text(turn.parts)):
            problem = f"the stored record for the id `{call.id}` is of another turn, or this turn was edited"
        elif not self._is_from_maker(record):
            problem = "the stored record of this turn is of another maker and was not used"
        elif record.context_digest and record.context_digest != self.prefix_digests.digest_before(self.turn_index):
            problem = "the stored record of this turn was not used, because the turns before it have changed"
        if not problem:
            return record
        self.ledger.note("seal-dropped", source_path(turn), problem)
        return None

    def _weave_turn(self, turn: Turn, template: list[tuple[Piece, str]]) -> Turn:
        weaver = _TurnWeaver(turn, template)
        for piece, maker in template:
            if isinstance(piece, ReasoningPiece):
                if weaver.has_stale_reasoning:
                    # Thinking from two places must not be joined.
                    self._drop_idle_reasoning(weaver, turn, "words that are")
                weaver.add_reasoning(piece, maker)
            elif isinstance(piece, TextPiece):
                if not weaver.add_text(piece, maker) and self.constraints.needs_part_after_reasoning:
                    self._drop_idle_reasoning(weaver, turn, "words that are")
            elif isinstance(piece, ClientCallPiece) and not weaver.add_call(
                piece, maker, self._find_provider_id(piece)
            ):
                self._drop_idle_reasoning(weaver, turn, f"the call `{piece.id}`, which is")
        return replace_fields(turn, parts=weaver.finish())

    def _drop_idle_reasoning(self, weaver: _TurnWeaver, turn: Turn, what: str) -> None:
        if weaver.drop_reasoning():
            self.ledger.note("reasoning-dropped", source_path(turn), f"thinking was left out: it led to {what} gone")

    def _find_provider_id(self, piece: ClientCallPiece) -> str:
        """The provider's id of a call, unless an earlier call has it."""
        is_new = bool(piece.provider_id) and self.seen_ids.isdisjoint((piece.id, piece.provider_id))
        id = piece.provider_id if is_new else piece.id
        self.seen_ids.update((piece.id, id))
        if is_new:
            self.provider_ids[piece.id] = id
        else:
            self.provider_ids.pop(piece.id, None)
        return id

    def rename_results(self, turn: Turn) -> Turn:
        parts = [
            replace_fields(part, id=self.provider_ids[part.id])
            if isinstance(part, Result) and part.id in self.provider_ids
            else part
            for part in turn.parts
        ]
        return with_parts(turn, parts)


_SEALABLE_PARTS = (Call, Text, Reasoning)


def _matches_template(turn: Turn, template: list[tuple[Piece, str]]) -> bool:
    """Does the template have the same calls and as much text as the turn?"""
    length = sum(piece.length for piece, _ in template if isinstance(piece, TextPiece))
    calls = [piece.id for piece, _ in template if isinstance(piece, ClientCallPiece)]
    client_calls = [part.id for part in turn.parts if isinstance(part, Call)]
    return sorted(calls) == sorted(client_calls) and len(plain_text(turn.parts)) == length


class _TurnWeaver:
    """Puts the parts of a turn, as the client sent them, into the order in which the model made them."""

    def __init__(self, turn: Turn, template: list[tuple[Piece, str]]) -> None:
        self._path = source_path(turn)
        parts = turn.parts
        self._texts = [part for part in parts if isinstance(part, Text) and part.text]
        self._unplaced_calls = [part for part in parts if isinstance(part, Call)]
        """Calls that no recorded piece has placed so far."""
        self._calls = {call.id: call for call in reversed(self._unplaced_calls)}
        self._other_parts = [part for part in parts if not isinstance(part, _SEALABLE_PARTS)]
        echoed = [part for part in parts if isinstance(part, Reasoning)]
        self._original_texts = _split_texts(
            self._texts, [piece.length for piece, _ in template if isinstance(piece, TextPiece)]
        )
        """The texts as the model made them; None where the client has changed them."""
        self._woven_parts: list[Part] = list(_echoed_reasoning_to_keep(echoed, template)) if echoed else []
        self._has_echoed_reasoning = bool(self._woven_parts)
        self._pending_reasoning: list[Part] = []
        self.has_stale_reasoning = False
        """Did the latest thinking lead to text that is gone?"""

    def add_reasoning(self, piece: ReasoningPiece, maker: str) -> None:
        if self._has_echoed_reasoning:
            return
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        # The origin says that it is of the maker's protocol, although it is not in the request.
        origin = Origin(maker.partition("/")[0], self._path, None, intact=False)
        self._pending_reasoning.append(Reasoning(piece.text, piece.form, piece.hidden, seal, piece.id, origin))

    def add_text(self, piece: TextPiece, maker: str) -> bool:
        """False where the text is gone, or was placed elsewhere."""
        seal = None if piece.seal is None else Seal(maker, piece.seal)
        text: Text | None = None if piece.length else Text("")
        if piece.length and self._original_texts is not None:
            text = self._original_texts.pop(0)
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
        same = seal is None and id == call.id and piece.item == call.item_id
        self._woven_parts.append(call if same else replace_fields(call, seal=seal, id=id, item_id=piece.item))
        return True

    def _flush_reasoning(self) -> None:
        self._woven_parts += self._pending_reasoning
        self._pending_reasoning, self.has_stale_reasoning = [], False

    def drop_reasoning(self) -> bool:
        """Leave out thinking whose text or call is gone; was there any?"""
        had_any, self._pending_reasoning, self.has_stale_reasoning = bool(self._pending_reasoning), [], False
        return had_any

    def _flush_edited_text(self) -> bool:
        """Place all text here, where the client has changed it."""
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
    """The thinking that the client sent back, unless the record has it with seals, or the same text, or the client's
    has none."""
    recorded = [piece for piece, _ in template if isinstance(piece, ReasoningPiece)]
    if any(piece.seal is not None for piece in recorded) or not any(part.text for part in echoed):
        return []
    same = "".join(part.text for part in echoed) == "".join(piece.text for piece in recorded)
    return [] if same else echoed


def _split_texts(texts: list[Text], lengths: list[int]) -> list[Text] | None:
    """The texts split at these lengths; None where the lengths do not add up."""
    lengths = [length for length in lengths if length]
    if [len(part.text) for part in texts] == lengths:
        return list(texts)
    if sum(len(part.text) for part in texts) != sum(lengths):
        return None
    whole, ends = plain_text(texts), accumulate(lengths)
    split = [
        replace_fields(texts[0], text=whole[end - length : end], citations=(), cache=None)
        for length, end in zip(lengths, ends, strict=True)
    ]
    if split:
        split[-1] = replace_fields(split[-1], cache=texts[-1].cache)
    return split


class RejoinedAnswer:
    """An answer in several rounds, joined from what the client sent back and the record of what it did not see."""

    def __init__(
        self,
        run: Sequence[Turn],
        record: TurnRecord,
        is_from_maker: bool,
        find_provider_id: Callable[[ClientCallPiece], str],
    ) -> None:
        parts = [part for turn in run for part in turn.parts]
        self._calls = {part.id: part for part in parts if isinstance(part, Call)}
        self._texts = [part for part in parts if isinstance(part, Text) and part.text]
        protocol = record.maker.partition("/")[0]
        others = (part for part in parts if not isinstance(part, (Call, Text, Reasoning)))
        # A search that the client was shown is in the record as the call that the model made.
        self._other_parts = [part for part in others if not _is_substituted_call(part, protocol, record)]
        self._record = record
        self._find_provider_id = find_provider_id
        recorded_text = "".join(piece.text for piece in record.pieces if isinstance(piece, TextPiece))
        recorded_ids = [piece.id for piece in record.pieces if isinstance(piece, ClientCallPiece)]
        self.matches_client = recorded_text == plain_text(self._texts) and sorted(recorded_ids) == sorted(self._calls)
        """Did the client send back exactly what it saw? If not, its text is used, and seals are not valid."""
        self._can_use_seals = is_from_maker and self.matches_client

    @property
    def has_lost_seals(self) -> bool:
        return not self._can_use_seals and any(
            isinstance(piece, ReasoningPiece) or (not isinstance(piece, HiddenResultPiece) and piece.seal is not None)
            for piece in self._record.pieces
        )

    def turns(self) -> list[Turn]:
        return [
            Turn("tool" if are_results else "assistant", tuple(group))
            for are_results, group in groupby(self._parts(), lambda part: isinstance(part, Result))
        ]

    def _parts(self) -> Iterator[Part]:
        if not self.matches_client:
            yield from (replace_fields(part, seal=None) if part.seal is not None else part for part in self._texts)
        other_parts = self._other_parts
        for piece in self._record.pieces:
            if isinstance(piece, ClientCallPiece):
                # Other parts of the client go before the calls of the last round.
                yield from other_parts
                other_parts = []
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
            yield Call(piece.id, piece.name, piece.arguments, item_id=item, seal=self._make_seal(piece.seal))
        elif isinstance(piece, HiddenResultPiece):
            name = "" if piece.id else piece.name
            content = tuple(
                Text(data) if kind == "text" else Media(kind, mime, data, name=file)  # type: ignore[arg-type]
                for kind, mime, data, file in piece.content
            )
            yield Result(piece.id, content, piece.error, name, value=piece.value)
        else:
            call = self._calls.pop(piece.id, None)
            if call is None:
                return
            id, seal = self._find_provider_id(piece), self._make_seal(piece.seal)
            item = piece.item if self._can_use_seals else ""
            same = seal is None and call.seal is None and (id, item) == (call.id, call.item_id)
            yield call if same else replace_fields(call, seal=seal, id=id, item_id=item)

    def _make_seal(self, value: str | None) -> Seal | None:
        return Seal(self._record.maker, value) if value is not None and self._can_use_seals else None


def _is_substituted_call(part: Part, protocol: str, record: TurnRecord) -> bool:
    if not isinstance(part, (ProviderCall, ProviderResult)):
        return False
    foreign = part.origin is None or part.origin.protocol != protocol
    return foreign or any(isinstance(piece, HiddenCallPiece) and piece.id == part.id for piece in record.pieces)


def merge_results(turns: Iterable[Turn], result_turns: Sequence[Turn], constraints: Constraints) -> list[Turn]:
    """The turns with the restored results together with the client's results, in the order of their calls."""
    out: list[Turn] = []
    waiting = list(turns)
    while waiting:
        turn = waiting.pop(0)
        if not any(turn is one for one in result_turns):
            out.append(turn)
            continue
        results = list(turn.parts)
        rest: tuple[Part, ...] = ()
        while waiting and not rest and waiting[0].role != "assistant" and Result in map(type, waiting[0].parts[:1]):
            parts = waiting.pop(0).parts
            results += [part for part in parts if isinstance(part, Result)]
            rest = tuple(part for part in parts if not isinstance(part, Result))
        order = {part.id: number for number, part in enumerate(out[-1].parts) if isinstance(part, Call)}
        results.sort(key=lambda part: order.get(part.id, len(order)))  # type: ignore[union-attr]
        out += place_results(tuple(results), rest, constraints)
    return out
