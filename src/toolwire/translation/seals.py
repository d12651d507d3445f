"""Seals on their way through foreign protocols: who reads which, and where they belong.

They travel in envelopes, in slots that clients echo. Whatever is no envelope is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from toolwire.core.codec import Constraints
from toolwire.core.envelopes import ENVELOPE_PREFIX, TOOLWIRE_MAKER, EnvelopeEntry, read_envelope, write_envelope
from toolwire.core.ir import (
    Call,
    Origin,
    Part,
    Reasoning,
    Request,
    Seal,
    Summary,
    Text,
    Turn,
    replace_fields,
    source_path,
)
from toolwire.core.losses import Ledger

__all__ = [
    "ENVELOPE_PREFIX",
    "TOOLWIRE_MAKER",
    "EnvelopeEntry",
    "is_made_by",
    "keep_own_seals",
    "open_envelopes",
    "read_envelope",
    "reasoning_from_entry",
    "summaries_as_text",
    "write_envelope",
]


VENDOR_MARK = "@"
"""Stands in a maker before the vendor for whom a protocol carries the seal."""


NO_MAKER = "-"
"""A maker who has made nothing."""


def is_made_by(seal: Seal, maker: str) -> bool:
    """Did this maker make the seal? Two makers agree when they agree in every segment that both of them tell."""
    if seal.maker == maker:
        return True
    made = seal.maker.partition(VENDOR_MARK)[0]
    return all(mine == theirs for mine, theirs in zip(made.split("/"), maker.split("/"), strict=False))


def reasoning_from_entry(entry: EnvelopeEntry) -> Reasoning:
    return Reasoning(entry.text, entry.form, entry.hidden, Seal(entry.maker, entry.value), entry.id)


# --- requests: envelopes opened, foreign seals taken off --------------------------------------------------------------


def open_envelopes(request: Request) -> Request:
    """The request with every envelope replaced by what it holds."""
    if not any(_has_envelope(part) for turn in request.turns for part in turn.parts):
        return request
    return replace_fields(request, turns=tuple(_open_turns(request.turns)))


def _has_envelope(part: Part) -> bool:
    seal: Seal | None = getattr(part, "seal", None)
    return seal is not None and seal.value.startswith(ENVELOPE_PREFIX)


def _open_turns(turns: tuple[Turn, ...]) -> Iterator[Turn]:
    """Every turn with its seals on the parts they belong to; an envelope may stand in the turn before or behind."""
    run: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            run.append(turn)
            continue
        yield from _open_run(run)
        run = []
        yield turn
    yield from _open_run(run)


def _open_run(run: list[Turn]) -> list[Turn]:
    """What an assistant said in one go, in one turn or in several."""
    delivered: list[Turn] = []
    waiting: Seal | None = None
    for turn in run:
        parts: list[Part] = []
        for part in _open_parts(turn):
            if isinstance(part, EnvelopeEntry):
                seal = Seal(part.maker, part.value)
                if part.position == "next":
                    waiting = seal
                else:
                    _attach_seal_before(parts, delivered, seal)
            elif waiting is not None and isinstance(part, (Call, Text)):
                parts.append(replace_fields(part, seal=waiting))
                waiting = None
            else:
                parts.append(part)
        same = len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True))
        if parts or not turn.parts:
            delivered.append(turn if same else replace_fields(turn, parts=tuple(parts)))
    if waiting is not None:
        delivered.append(Turn("assistant", (Text("", seal=waiting),)))
    return delivered


def _open_parts(turn: Turn) -> Iterator[Part | EnvelopeEntry]:
    """The parts of a turn; where an envelope stood, what it holds: reasoning, or the seal of a neighbour."""
    for position, part in enumerate(turn.parts):
        entries = read_envelope(part.seal.value) if _has_envelope(part) else None  # type: ignore[union-attr]
        if entries is None:
            if not _is_repeated_in_envelope(turn.parts, position):
                yield part
        elif isinstance(part, Reasoning):
            yield from _open_reasoning(part, entries)
        else:
            yield from (reasoning_from_entry(entry) for entry in entries if entry.position == "reasoning")
            own = next((Seal(entry.maker, entry.value) for entry in entries if entry.position == "next"), None)
            if own is not None or not (isinstance(part, Text) and not part.text):
                yield replace_fields(part, seal=own)


def _is_repeated_in_envelope(parts: tuple[Part, ...], position: int) -> bool:
    """Is this thinking that the envelope on the part behind it holds whole?"""
    if not isinstance(parts[position], Reasoning):
        return False
    behind = next((part for part in parts[position:] if not isinstance(part, Reasoning)), None)
    if behind is None or not _has_envelope(behind):
        return False
    entries = read_envelope(behind.seal.value) or []  # type: ignore[union-attr]
    return any(entry.position == "reasoning" for entry in entries)


def _open_reasoning(part: Reasoning, entries: list[EnvelopeEntry]) -> Iterator[Part | EnvelopeEntry]:
    own = [entry for entry in entries if entry.position == "reasoning"]
    if own:
        first = own[0]
        seal = Seal(first.maker, first.value)
        yield replace_fields(part, seal=seal, hidden=first.hidden, id=first.id, form=first.form)
        yield from map(reasoning_from_entry, own[1:])
    elif part.text:
        yield replace_fields(part, seal=None)
    yield from (entry for entry in entries if entry.position != "reasoning")


def _attach_seal_before(parts: list[Part], opened_turns: list[Turn], seal: Seal) -> None:
    """Put a seal on the text before it, in this turn or the last; where there is none, a text of its own bears it."""
    last = parts[-1] if parts else opened_turns[-1].parts[-1] if opened_turns and opened_turns[-1].parts else None
    if not isinstance(last, Text) or last.seal is not None:
        parts.append(Text("", seal=seal))
    elif parts:
        parts[-1] = replace_fields(last, seal=seal)
    else:
        opened_turns[-1] = replace_fields(
            opened_turns[-1], parts=(*opened_turns[-1].parts[:-1], replace_fields(last, seal=seal))
        )


def keep_own_seals(request: Request, maker: str, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with only those seals that their own maker will read, and only such thinking as it will take."""
    turns: list[Turn] = []
    left = False
    """Was thinking left out that led to what the assistant says now?"""
    for number, turn in enumerate(request.turns):
        left = left and turn.role == "assistant"
        if turn.role == "assistant":
            if constraints.seal_vendor:
                turn = _adopt_vendor_seals(turn, maker, VENDOR_MARK + constraints.seal_vendor)
            leads = not constraints.needs_part_after_reasoning or _is_followed_by_output(request.turns, number)
            left = left or (
                constraints.needs_part_after_reasoning and any(_has_foreign_seal(part, maker) for part in turn.parts)
            )
            turn = _keep_turn_seals(turn, maker, constraints, leads, ledger)
            if not turn.parts and request.turns[number].parts:
                continue
            turn = _drop_item_ids(turn) if left else turn
        turns.append(turn)
    same = len(turns) == len(request.turns) and all(new is old for new, old in zip(turns, request.turns, strict=True))
    return request if same else replace_fields(request, turns=tuple(turns))


def _drop_item_ids(turn: Turn) -> Turn:
    """A turn without the ids of its items: by these a provider knows which thinking it must find before them."""
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Call):
            part = replace(part, item="", origin=_origin_without_wire(part.origin))
        elif isinstance(part, Text):
            part = replace(part, origin=None)
        parts.append(part)
    return replace(turn, parts=tuple(parts), origin=_origin_without_wire(turn.origin))


def _origin_without_wire(origin: Origin | None) -> Origin | None:
    """An origin that tells the place only."""
    return None if origin is None else replace(origin, wire=None, intact=False)


def _is_followed_by_output(turns: tuple[Turn, ...], number: int) -> bool:
    """Does something that the assistant said or did follow, in this turn or the next?"""
    parts = turns[number].parts
    if not parts or not isinstance(parts[-1], Reasoning):
        return True
    behind = turns[number + 1] if number + 1 < len(turns) else None
    return behind is not None and behind.role == "assistant"


def _adopt_vendor_seals(turn: Turn, maker: str, vendor: str) -> Turn:
    """A turn in which seals that another protocol carries for this vendor are the maker's own."""
    if not any(
        isinstance(part, Call) and part.seal is not None and part.seal.maker.endswith(vendor) for part in turn.parts
    ):
        return turn
    parts = tuple(
        replace_fields(part, seal=Seal(maker, part.seal.value))
        if isinstance(part, Call) and part.seal is not None and part.seal.maker.endswith(vendor)
        else part
        for part in turn.parts
    )
    return replace_fields(turn, parts=parts)


def _keep_turn_seals(turn: Turn, maker: str, constraints: Constraints, is_followed: bool, ledger: Ledger) -> Turn:
    parts: list[Part] = []
    foreign = any(_has_foreign_seal(part, maker) for part in turn.parts)
    last = len(turn.parts) if is_followed else _count_before_trailing_reasoning(turn.parts)
    for number, part in enumerate(turn.parts):
        why = _reason_to_drop(part, maker, constraints, foreign, number < last) if isinstance(part, Reasoning) else ""
        seal: Seal | None = getattr(part, "seal", None)
        strange = seal is not None and not is_made_by(seal, maker)
        if strange and seal is not None and seal.value:
            ledger.note("seal-dropped", source_path(part) or source_path(turn), "a seal of another maker was taken off")
        if why:
            ledger.note("reasoning-dropped", source_path(part) or source_path(turn), f"{why} was left out")
            continue
        if strange and isinstance(part, Text) and not part.text:
            continue
        if strange or (seal is not None and not seal.value):
            part = replace_fields(part, seal=None)
        parts.append(part)
    same = len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True))
    return turn if same else replace_fields(turn, parts=tuple(parts))


def _has_foreign_seal(part: Part, maker: str) -> bool:
    seal: Seal | None = getattr(part, "seal", None)
    return seal is not None and not is_made_by(seal, maker)


def _count_before_trailing_reasoning(parts: tuple[Part, ...]) -> int:
    """How many parts there are up to the last one that is no reasoning."""
    count = len(parts)
    while count and isinstance(parts[count - 1], Reasoning):
        count -= 1
    return count


def _reason_to_drop(
    part: Reasoning, maker: str, constraints: Constraints, has_foreign_neighbour: bool, is_followed: bool
) -> str:
    """Why a piece of thinking must stay behind; a turn has one maker, so that thinking without a seal is told by its
    neighbours."""
    seal = part.seal
    if _has_foreign_seal(part, maker) or (seal is None and has_foreign_neighbour):
        return "thinking of another maker"
    if not is_followed:
        return "reasoning that leads to nothing"
    if constraints.needs_signed_reasoning and (seal is None or not seal.value):
        return "thinking that bears no seal"
    return ""


# --- summaries --------------------------------------------------------------------------------------------------------

SUMMARY_INTRO = "Earlier parts of this conversation were left out. This summary stands for them:\n\n"


def summaries_as_text(request: Request, maker: str, ledger: Ledger) -> Request:
    """The request with every summary that its provider does not know as text that the user says. A summary that only
    another maker can read leaves the request without its earlier turns: it goes on from what nobody here holds."""
    told = {
        id(part): text
        for turn in request.turns
        for part in turn.parts
        if isinstance(part, Summary) and (text := _summary_text(part, maker, ledger)) is not None
    }
    if not told:
        return request
    turns = tuple(piece for turn in request.turns for piece in _split_at_summaries(turn, told))
    return replace_fields(request, turns=turns, continues=request.continues or not all(told.values()))


def _split_at_summaries(turn: Turn, summary_texts: Mapping[int, str]) -> Iterator[Turn]:
    """A turn cut at its summaries."""
    run: list[Part] = []
    for part in turn.parts:
        if id(part) not in summary_texts:
            run.append(part)
            continue
        if run:
            yield replace_fields(turn, parts=tuple(run))
            run = []
        if summary_texts[id(part)]:
            yield Turn("user", (Text(SUMMARY_INTRO + summary_texts[id(part)]),))
    if len(run) == len(turn.parts):
        yield turn
    elif run:
        yield replace_fields(turn, parts=tuple(run))


def _summary_text(part: Summary, maker: str, ledger: Ledger) -> str | None:
    """What a summary says, "" when only its maker knows; None when it can stay as it is."""
    entries = None if part.seal is None else read_envelope(part.seal.value)
    if entries is None:
        known = ledger.source == ledger.target if part.seal is None else is_made_by(part.seal, maker)
        if known:
            return None
        text = part.text
    else:
        text = "\n\n".join(entry.text for entry in entries if entry.position == "summary")
    if text:
        ledger.note("summary-as-text", source_path(part), "a summary of earlier turns became text of the user")
    else:
        ledger.note("seal-dropped", source_path(part), "a summary that only its maker can read was left out")
    return text
