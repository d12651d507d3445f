"""Seals on their way through foreign protocols: who reads which, and where they belong.

They travel in envelopes, in slots that clients echo. Whatever is no envelope is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from toolwire.envelopes import OURS, PREFIX, Entry, entries_in, envelope
from toolwire.ir import Call, Origin, Part, Reasoning, Request, Seal, Summary, Text, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.room import Rules

__all__ = ["OURS", "PREFIX", "Entry", "entries_in", "envelope", "kept", "made_by", "opened", "reasoning_of", "retold"]


VENDOR = "@"
"""Stands in a maker before the vendor for whom a protocol carries the seal."""


NOBODY = "-"
"""A maker who has made nothing."""


def made_by(seal: Seal, maker: str) -> bool:
    """Did this maker make the seal? Two makers agree when they agree in every segment that both of them tell."""
    if seal.maker == maker:
        return True
    made = seal.maker.partition(VENDOR)[0]
    return all(mine == theirs for mine, theirs in zip(made.split("/"), maker.split("/"), strict=False))


def reasoning_of(entry: Entry) -> Reasoning:
    return Reasoning(entry.text, entry.form, entry.hidden, Seal(entry.maker, entry.value), entry.id)


# --- requests: envelopes opened, foreign seals taken off --------------------------------------------------------------


def opened(request: Request) -> Request:
    """The request with every envelope replaced by what it holds."""
    if not any(_holds_envelope(part) for turn in request.turns for part in turn.parts):
        return request
    return changed(request, turns=tuple(_delivered(request.turns)))


def _holds_envelope(part: Part) -> bool:
    seal: Seal | None = getattr(part, "seal", None)
    return seal is not None and seal.value.startswith(PREFIX)


def _delivered(turns: tuple[Turn, ...]) -> Iterator[Turn]:
    """Every turn with its seals on the parts they belong to; an envelope may stand in the turn before or behind."""
    run: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            run.append(turn)
            continue
        yield from _delivered_run(run)
        run = []
        yield turn
    yield from _delivered_run(run)


def _delivered_run(run: list[Turn]) -> list[Turn]:
    """What an assistant said in one go, in one turn or in several."""
    delivered: list[Turn] = []
    waiting: Seal | None = None
    for turn in run:
        parts: list[Part] = []
        for part in _opened_parts(turn):
            if isinstance(part, Entry):
                seal = Seal(part.maker, part.value)
                if part.place == "next":
                    waiting = seal
                else:
                    _seal_before(parts, delivered, seal)
            elif waiting is not None and isinstance(part, (Call, Text)):
                parts.append(changed(part, seal=waiting))
                waiting = None
            else:
                parts.append(part)
        same = len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True))
        if parts or not turn.parts:
            delivered.append(turn if same else changed(turn, parts=tuple(parts)))
    if waiting is not None:
        delivered.append(Turn("assistant", (Text("", seal=waiting),)))
    return delivered


def _opened_parts(turn: Turn) -> Iterator[Part | Entry]:
    """The parts of a turn; where an envelope stood, what it holds: reasoning, or the seal of a neighbour."""
    for position, part in enumerate(turn.parts):
        entries = entries_in(part.seal.value) if _holds_envelope(part) else None  # type: ignore[union-attr]
        if entries is None:
            if not _is_told_again(turn.parts, position):
                yield part
        elif isinstance(part, Reasoning):
            yield from _opened_reasoning(part, entries)
        else:
            yield from (reasoning_of(entry) for entry in entries if entry.place == "reasoning")
            own = next((Seal(entry.maker, entry.value) for entry in entries if entry.place == "next"), None)
            if own is not None or not (isinstance(part, Text) and not part.text):
                yield changed(part, seal=own)


def _is_told_again(parts: tuple[Part, ...], position: int) -> bool:
    """Is this thinking that the envelope on the part behind it holds whole?"""
    if not isinstance(parts[position], Reasoning):
        return False
    behind = next((part for part in parts[position:] if not isinstance(part, Reasoning)), None)
    if behind is None or not _holds_envelope(behind):
        return False
    entries = entries_in(behind.seal.value) or []  # type: ignore[union-attr]
    return any(entry.place == "reasoning" for entry in entries)


def _opened_reasoning(part: Reasoning, entries: list[Entry]) -> Iterator[Part | Entry]:
    own = [entry for entry in entries if entry.place == "reasoning"]
    if own:
        first = own[0]
        seal = Seal(first.maker, first.value)
        yield changed(part, seal=seal, hidden=first.hidden, id=first.id, form=first.form)
        yield from map(reasoning_of, own[1:])
    elif part.text:
        yield changed(part, seal=None)
    yield from (entry for entry in entries if entry.place != "reasoning")


def _seal_before(parts: list[Part], delivered: list[Turn], seal: Seal) -> None:
    """Put a seal on the text before it, in this turn or the last; where there is none, a text of its own bears it."""
    last = parts[-1] if parts else delivered[-1].parts[-1] if delivered and delivered[-1].parts else None
    if not isinstance(last, Text) or last.seal is not None:
        parts.append(Text("", seal=seal))
    elif parts:
        parts[-1] = changed(last, seal=seal)
    else:
        delivered[-1] = changed(delivered[-1], parts=(*delivered[-1].parts[:-1], changed(last, seal=seal)))


def kept(request: Request, maker: str, rules: Rules, ledger: Ledger) -> Request:
    """The request with only those seals that their own maker will read, and only such thinking as it will take."""
    turns: list[Turn] = []
    left = False
    """Was thinking left out that led to what the assistant says now?"""
    for number, turn in enumerate(request.turns):
        left = left and turn.role == "assistant"
        if turn.role == "assistant":
            if rules.vendor:
                turn = _handed_over(turn, maker, VENDOR + rules.vendor)
            leads = not rules.reasoning_leads or _leads(request.turns, number)
            left = left or (rules.reasoning_leads and any(_is_foreign(part, maker) for part in turn.parts))
            turn = _kept_turn(turn, maker, rules, leads, ledger)
            if not turn.parts and request.turns[number].parts:
                continue
            turn = _nameless(turn) if left else turn
        turns.append(turn)
    same = len(turns) == len(request.turns) and all(new is old for new, old in zip(turns, request.turns, strict=True))
    return request if same else changed(request, turns=tuple(turns))


def _nameless(turn: Turn) -> Turn:
    """A turn without the ids of its items: by these a provider knows which thinking it must find before them."""
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Call):
            part = replace(part, item="", origin=_unwritten(part.origin))
        elif isinstance(part, Text):
            part = replace(part, origin=None)
        parts.append(part)
    return replace(turn, parts=tuple(parts), origin=_unwritten(turn.origin))


def _unwritten(origin: Origin | None) -> Origin | None:
    """An origin that tells the place only."""
    return None if origin is None else replace(origin, wire=None, intact=False)


def _leads(turns: tuple[Turn, ...], number: int) -> bool:
    """Does something that the assistant said or did follow, in this turn or the next?"""
    parts = turns[number].parts
    if not parts or not isinstance(parts[-1], Reasoning):
        return True
    behind = turns[number + 1] if number + 1 < len(turns) else None
    return behind is not None and behind.role == "assistant"


def _handed_over(turn: Turn, maker: str, vendor: str) -> Turn:
    """A turn in which seals that another protocol carries for this vendor are the maker's own."""
    if not any(
        isinstance(part, Call) and part.seal is not None and part.seal.maker.endswith(vendor) for part in turn.parts
    ):
        return turn
    parts = tuple(
        changed(part, seal=Seal(maker, part.seal.value))
        if isinstance(part, Call) and part.seal is not None and part.seal.maker.endswith(vendor)
        else part
        for part in turn.parts
    )
    return changed(turn, parts=parts)


def _kept_turn(turn: Turn, maker: str, rules: Rules, leads: bool, ledger: Ledger) -> Turn:
    parts: list[Part] = []
    foreign = any(_is_foreign(part, maker) for part in turn.parts)
    last = len(turn.parts) if leads else _last_said(turn.parts)
    for number, part in enumerate(turn.parts):
        why = _unwelcome(part, maker, rules, foreign, number < last) if isinstance(part, Reasoning) else ""
        seal: Seal | None = getattr(part, "seal", None)
        strange = seal is not None and not made_by(seal, maker)
        if strange and seal is not None and seal.value:
            ledger.note("seal-dropped", place(part) or place(turn), "a seal of another maker was taken off")
        if why:
            ledger.note("reasoning-dropped", place(part) or place(turn), f"{why} was left out")
            continue
        if strange and isinstance(part, Text) and not part.text:
            continue
        if strange or (seal is not None and not seal.value):
            part = changed(part, seal=None)
        parts.append(part)
    same = len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True))
    return turn if same else changed(turn, parts=tuple(parts))


def _is_foreign(part: Part, maker: str) -> bool:
    seal: Seal | None = getattr(part, "seal", None)
    return seal is not None and not made_by(seal, maker)


def _last_said(parts: tuple[Part, ...]) -> int:
    """How many parts there are up to the last one that is no reasoning."""
    count = len(parts)
    while count and isinstance(parts[count - 1], Reasoning):
        count -= 1
    return count


def _unwelcome(part: Reasoning, maker: str, rules: Rules, foreign: bool, leads: bool) -> str:
    """Why a piece of thinking must stay behind; a turn has one maker, so that thinking without a seal is told by its
    neighbours."""
    seal = part.seal
    if _is_foreign(part, maker) or (seal is None and foreign):
        return "thinking of another maker"
    if not leads:
        return "reasoning that leads to nothing"
    if rules.signed_reasoning and (seal is None or not seal.value):
        return "thinking that bears no seal"
    return ""


# --- summaries --------------------------------------------------------------------------------------------------------

RETOLD = "Earlier parts of this conversation were left out. This summary stands for them:\n\n"


def retold(request: Request, maker: str, ledger: Ledger) -> Request:
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
    turns = tuple(piece for turn in request.turns for piece in _retold_turn(turn, told))
    return changed(request, turns=turns, continues=request.continues or not all(told.values()))


def _retold_turn(turn: Turn, told: Mapping[int, str]) -> Iterator[Turn]:
    """A turn cut at its summaries."""
    run: list[Part] = []
    for part in turn.parts:
        if id(part) not in told:
            run.append(part)
            continue
        if run:
            yield changed(turn, parts=tuple(run))
            run = []
        if told[id(part)]:
            yield Turn("user", (Text(RETOLD + told[id(part)]),))
    if len(run) == len(turn.parts):
        yield turn
    elif run:
        yield changed(turn, parts=tuple(run))


def _summary_text(part: Summary, maker: str, ledger: Ledger) -> str | None:
    """What a summary says, "" when only its maker knows; None when it can stay as it is."""
    entries = None if part.seal is None else entries_in(part.seal.value)
    if entries is None:
        known = ledger.source == ledger.target if part.seal is None else made_by(part.seal, maker)
        if known:
            return None
        text = part.text
    else:
        text = "\n\n".join(entry.text for entry in entries if entry.place == "summary")
    if text:
        ledger.note("summary-as-text", place(part), "a summary of earlier turns became text of the user")
    else:
        ledger.note("seal-dropped", place(part), "a summary that only its maker can read was left out")
    return text
