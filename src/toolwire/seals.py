"""Seals on their way through foreign protocols: an envelope that names its maker, in a slot that clients echo.

An envelope is text of the URL-safe base64 alphabet, because one of the slots is a field of bytes, whose clients decode
and encode it again. Opening one gives the entries back exactly; whatever is no envelope is left alone.
"""

from __future__ import annotations

import base64
import binascii
from typing import Literal

import msgspec

from toolwire.ir import Call, Part, Reasoning, Request, Seal, Text, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.room import Rules

_MAGIC = b"toolwire:"
_PREFIX = base64.urlsafe_b64encode(_MAGIC).decode()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One seal: of the reasoning it stands for, of the part after it, or of the part before it."""

    place: Literal["reasoning", "next", "before"]
    maker: str
    value: str
    text: str = ""
    form: Literal["", "summary", "raw"] = ""
    hidden: bool = False
    id: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Entry]).decode


def envelope(entries: list[Entry]) -> str:
    return base64.urlsafe_b64encode(_MAGIC + _encode(entries)).decode().rstrip("=")


def entries_in(value: str) -> list[Entry] | None:
    """The entries of an envelope; None when the value is something else."""
    if not value.startswith(_PREFIX):
        return None
    text = value.replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return _decode(data[len(_MAGIC) :])
    except (binascii.Error, msgspec.DecodeError, UnicodeError):
        return None


def made_by(seal: Seal, maker: str) -> bool:
    """Did this maker make the seal? Two makers agree when they agree in every segment that both of them tell."""
    return all(mine == theirs for mine, theirs in zip(seal.maker.split("/"), maker.split("/"), strict=False))


def reasoning_of(entry: Entry) -> Reasoning:
    return Reasoning(entry.text, entry.form, entry.hidden, Seal(entry.maker, entry.value), entry.id)


# --- requests: envelopes opened, foreign seals taken off --------------------------------------------------------------


def opened(request: Request) -> Request:
    """The request with every envelope replaced by what it holds."""
    turns = tuple(_opened_turn(turn) if turn.role == "assistant" else turn for turn in request.turns)
    same = all(new is old for new, old in zip(turns, request.turns, strict=True))
    # An envelope that seals the part after it may stand in a turn of its own.
    if same:
        return request
    settled = tuple(turn for turn in _carry_over(turns) if turn.parts or turn.role != "assistant")
    return changed(request, turns=settled)


def _opened_turn(turn: Turn) -> Turn:
    if not any(getattr(part, "seal", None) is not None and _PREFIX in part.seal.value[:12] for part in turn.parts):  # type: ignore[union-attr]
        return turn
    parts: list[Part] = []
    for part in turn.parts:
        seal = getattr(part, "seal", None)
        entries = entries_in(seal.value) if seal is not None else None
        if entries is None:
            parts.append(part)
        elif isinstance(part, Reasoning):
            _open_reasoning(part, entries, parts)
        else:
            while parts and isinstance(parts[-1], Reasoning) and parts[-1].seal is None:
                parts.pop()
            parts.extend(reasoning_of(entry) for entry in entries if entry.place == "reasoning")
            own = next((Seal(entry.maker, entry.value) for entry in entries if entry.place == "next"), None)
            if own is not None or not (isinstance(part, Text) and not part.text):
                parts.append(changed(part, seal=own))
    return changed(turn, parts=tuple(_settled(parts)))


class _Pending(msgspec.Struct, frozen=True):
    """A seal that still waits for the part it belongs to."""

    entry: Entry


def _open_reasoning(part: Reasoning, entries: list[Entry], parts: list[Part]) -> None:
    own = [entry for entry in entries if entry.place == "reasoning"]
    if own:
        parts.append(
            changed(part, seal=Seal(own[0].maker, own[0].value), hidden=own[0].hidden, id=own[0].id, form=own[0].form)
        )
        parts.extend(map(reasoning_of, own[1:]))
    elif part.text:
        parts.append(changed(part, seal=None))
    for entry in entries:
        if entry.place == "next":
            parts.append(_Pending(entry))  # type: ignore[arg-type]
        elif entry.place == "before":
            _seal_before(parts, Seal(entry.maker, entry.value))


def _seal_before(parts: list[Part], seal: Seal) -> None:
    if parts and isinstance(parts[-1], Text) and parts[-1].seal is None:
        parts[-1] = changed(parts[-1], seal=seal)
    else:
        parts.append(Text("", seal=seal))


def _settled(parts: list[Part]) -> list[Part]:
    settled: list[Part] = []
    waiting: Seal | None = None
    for part in parts:
        if isinstance(part, _Pending):
            waiting = Seal(part.entry.maker, part.entry.value)
        elif waiting is not None and isinstance(part, (Call, Text)):
            settled.append(changed(part, seal=waiting))
            waiting = None
        else:
            settled.append(part)
    if waiting is not None:
        settled.append(Text("", seal=waiting))
    return settled


def _carry_over(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Move a seal that waits at the end of one assistant turn to the first call or text of the next one."""
    result: list[Turn] = []
    waiting: Seal | None = None
    for turn in turns:
        if turn.role == "assistant" and turn.parts:
            first, last = turn.parts[0], turn.parts[-1]
            if waiting is not None and isinstance(first, (Call, Text)):
                turn = changed(turn, parts=(changed(first, seal=waiting), *turn.parts[1:]))
                waiting = None
            elif _is_letter(turn, last):
                waiting = last.seal  # type: ignore[union-attr]
                if len(turn.parts) == 1:
                    continue
                turn = changed(turn, parts=turn.parts[:-1])
        result.append(turn)
    if waiting is not None:
        result.append(Turn("assistant", (Text("", seal=waiting),)))
    return tuple(result)


def _is_letter(turn: Turn, part: Part) -> bool:
    """Is this nothing but a seal that came out of an envelope and still waits for its part?"""
    opened_here = turn.origin is not None and not turn.origin.intact and getattr(part, "origin", None) is None
    return opened_here and isinstance(part, Text) and not part.text and part.seal is not None


def kept(request: Request, maker: str, rules: Rules, ledger: Ledger) -> Request:
    """The request with only those seals that their own maker will read, and only such thinking as it will take."""
    turns: list[Turn] = []
    for number, turn in enumerate(request.turns):
        if turn.role == "assistant":
            leads = not rules.reasoning_leads or _leads(request.turns, number)
            turn = _kept_turn(turn, maker, rules, leads, ledger)
            if not turn.parts and request.turns[number].parts:
                continue
        turns.append(turn)
    same = len(turns) == len(request.turns) and all(new is old for new, old in zip(turns, request.turns, strict=True))
    return request if same else changed(request, turns=tuple(turns))


def _leads(turns: tuple[Turn, ...], number: int) -> bool:
    """Does something that the assistant said or did follow, in this turn or the next?"""
    parts = turns[number].parts
    if not parts or not isinstance(parts[-1], Reasoning):
        return True
    behind = turns[number + 1] if number + 1 < len(turns) else None
    return behind is not None and behind.role == "assistant"


def _kept_turn(turn: Turn, maker: str, rules: Rules, leads: bool, ledger: Ledger) -> Turn:
    parts: list[Part] = []
    for part in turn.parts:
        seal: Seal | None = getattr(part, "seal", None)
        thinking = isinstance(part, Reasoning)
        if seal is not None and not made_by(seal, maker):
            ledger.note("seal-dropped", place(part) or place(turn), "a seal of another maker was taken off")
            if isinstance(part, (Text, Reasoning)) and not part.text:
                continue
            part, seal = changed(part, seal=None), None
        if thinking and not leads:
            ledger.note("reasoning-dropped", place(part), "reasoning that leads to nothing was left out")
            continue
        if thinking and rules.signed_reasoning and (seal is None or not seal.value):
            ledger.note("reasoning-dropped", place(part), "thinking that bears no seal was left out")
            continue
        parts.append(part)
    same = len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True))
    return turn if same else changed(turn, parts=tuple(parts))
