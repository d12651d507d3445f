"""Seals (signatures) in requests: `open_envelopes` puts them back onto their parts, `keep_own_seals` removes those of
other makers.

The round trip of Gemini's `thoughtSignature`, Anthropic's `signature` and OpenAI's `encrypted_content`:

1. Answer: the provider's codec reads the value as an `ir.Seal`. If the client's protocol has a field for seals,
   `answer_steps.py` puts it there, in an envelope that names its maker (`core/envelopes.py`).
2. If it has none (OpenAI Chat), `signature_memory.py` makes a record of the turn, and the gateway stores it
   (`SignatureRepository` in `gateway/store/repository.py`), under the id of a tool call.
3. Next request: `gateway/pipeline/prepare.py` loads the stored records and `restore_turns.py` puts them
   back, `open_envelopes` opens the envelopes, and `keep_own_seals` drops what another maker has made.
4. The provider's codec writes the seals, for instance `write_seal` in `protocols/gemini/content_writer.py`. If Gemini
   demands one and there is none, `protocols/gemini/request.py` writes a placeholder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from msgspec.structs import replace

from toolwire.core.codec import Constraints
from toolwire.core.envelopes import ENVELOPE_PREFIX, EnvelopeEntry, EnvelopeKeys, read_envelope
from toolwire.core.ir import (
    Call,
    Part,
    Reasoning,
    Request,
    Seal,
    Summary,
    Text,
    Turn,
    replace_fields,
    source_path,
    with_parts,
    with_turns,
    without_wire,
)
from toolwire.core.losses import Ledger

VENDOR_MARK = "@"
"""Separates a maker from the vendor whose seal it carries: `openai-chat@google`."""
NO_MAKER = "-"
"""A maker that has made no seal, so that all are removed."""


def is_made_by(seal: Seal, maker: str) -> bool:
    """Did this maker make the seal? Makers are the same when the segments that both have are the same."""
    if seal.maker == maker:
        return True
    made = seal.maker.partition(VENDOR_MARK)[0]
    return all(mine == theirs for mine, theirs in zip(made.split("/"), maker.split("/"), strict=False))


def reasoning_from_entry(entry: EnvelopeEntry) -> Reasoning:
    return Reasoning(entry.text, entry.form, entry.hidden, Seal(entry.maker, entry.value), entry.id)


# --- opening envelopes ------------------------------------------------------------------------------------------------


def open_envelopes(request: Request, keys: EnvelopeKeys | None, ledger: Ledger) -> Request:
    """The request with every envelope replaced by its seals. An envelope that was not made here for this client counts
    as empty."""
    if not any(_has_envelope(part) for turn in request.turns for part in turn.parts):
        return request
    turns: list[Turn] = []
    # A seal may belong to a part in the turn before or after its envelope.
    for is_assistant, group in groupby(request.turns, lambda turn: turn.role == "assistant"):
        run = [*group]
        turns += _open_run(run, keys, ledger) if is_assistant else run
    return replace_fields(request, turns=tuple(turns))


def _has_envelope(part: Part) -> bool:
    seal: Seal | None = getattr(part, "seal", None)
    return seal is not None and seal.value.startswith(ENVELOPE_PREFIX)


def _open_run(run: list[Turn], keys: EnvelopeKeys | None, ledger: Ledger) -> list[Turn]:
    opened: list[Turn] = []
    waiting: Seal | None = None
    for turn in run:
        parts: list[Part] = []
        for part in _open_parts(turn, keys, ledger):
            if isinstance(part, EnvelopeEntry):
                seal = Seal(part.maker, part.value)
                if part.position == "next":
                    waiting = seal
                else:
                    _attach_seal_before(parts, opened, seal)
            elif waiting is not None and isinstance(part, (Call, Text)):
                parts.append(replace_fields(part, seal=waiting))
                waiting = None
            else:
                parts.append(part)
        if parts or not turn.parts:
            opened.append(with_parts(turn, parts))
    if waiting is not None:
        opened.append(Turn("assistant", (Text("", seal=waiting),)))
    return opened


def _open_parts(turn: Turn, keys: EnvelopeKeys | None, ledger: Ledger) -> Iterator[Part | EnvelopeEntry]:
    """The parts of a turn, each envelope replaced by its content: reasoning, or the seal of the part beside it."""
    for position, part in enumerate(turn.parts):
        if not _has_envelope(part):
            if not _is_repeated_in_envelope(turn.parts, position, keys):
                yield part
            continue
        entries = read_envelope(part.seal.value, keys)  # type: ignore[union-attr]
        if entries is None:
            _note_refused_envelope(part, turn, ledger)
            entries = []
        if isinstance(part, Reasoning):
            yield from _open_reasoning(part, entries)
        else:
            yield from (reasoning_from_entry(entry) for entry in entries if entry.position == "reasoning")
            own = next((Seal(entry.maker, entry.value) for entry in entries if entry.position == "next"), None)
            if own is not None or not (isinstance(part, Text) and not part.text):
                yield replace_fields(part, seal=own)


def _note_refused_envelope(part: Part, turn: Turn | None, ledger: Ledger) -> None:
    where = source_path(part) or (source_path(turn) if turn is not None else None)
    ledger.note("envelope-refused", where, "an envelope with a seal was left out")


def _is_repeated_in_envelope(parts: tuple[Part, ...], position: int, keys: EnvelopeKeys | None) -> bool:
    """Is this thinking that is also in the envelope on the next part?"""
    if not isinstance(parts[position], Reasoning):
        return False
    following = next((part for part in parts[position:] if not isinstance(part, Reasoning)), None)
    if following is None or not _has_envelope(following):
        return False
    entries = read_envelope(following.seal.value, keys) or []  # type: ignore[union-attr]
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
    """Put a seal on the text before it, in this turn or the last; without such a text, on a new empty one."""
    last = parts[-1] if parts else opened_turns[-1].parts[-1] if opened_turns and opened_turns[-1].parts else None
    if not isinstance(last, Text) or last.seal is not None:
        parts.append(Text("", seal=seal))
    elif parts:
        parts[-1] = replace_fields(last, seal=seal)
    else:
        before = opened_turns[-1]
        opened_turns[-1] = replace_fields(before, parts=(*before.parts[:-1], replace_fields(last, seal=seal)))


# --- removing seals of other makers -----------------------------------------------------------------------------------


def keep_own_seals(request: Request, maker: str, constraints: Constraints, ledger: Ledger) -> Request:
    """The request without seals of other makers, and without thinking that this maker would refuse."""
    turns: list[Turn] = []
    dropped_reasoning = False  # in the current turns of the assistant
    if constraints.keeps_unsealed_reasoning == "stored":
        request = _drop_unstored_reasoning(request, ledger)
    for number, turn in enumerate(request.turns):
        dropped_reasoning = dropped_reasoning and turn.role == "assistant"
        if turn.role == "assistant":
            if constraints.seal_vendor:
                turn = _adopt_vendor_seals(turn, maker, VENDOR_MARK + constraints.seal_vendor)
            is_followed = not constraints.needs_part_after_reasoning or _is_followed(request.turns, number, ledger)
            dropped_reasoning = dropped_reasoning or (
                constraints.needs_part_after_reasoning and any(_has_foreign_seal(part, maker) for part in turn.parts)
            )
            turn = _keep_turn_seals(turn, maker, constraints, is_followed, ledger)
            if not turn.parts and request.turns[number].parts:
                continue
            turn = _drop_item_ids(turn) if dropped_reasoning else turn
        turns.append(turn)
    return with_turns(request, turns)


def _drop_unstored_reasoning(request: Request, ledger: Ledger) -> Request:
    """The request without thinking that is only an id, where the provider is told not to store anything."""
    store = request.settings.store
    if store or (store is None and ledger.is_same_protocol):
        return request
    turns: list[Turn] = []
    has_dropped = False  # in the current turns of the assistant
    for turn in request.turns:
        has_dropped = has_dropped and turn.role == "assistant"
        parts = tuple(part for part in turn.parts if not _is_bare_reasoning(part))
        if len(parts) < len(turn.parts):
            why = "with `store: false` the provider does not know it"
            ledger.note(
                "reasoning-dropped", source_path(turn), "thinking without its encrypted content was left out", why
            )
            has_dropped = True
            if not parts:
                continue
            turn = replace_fields(turn, parts=parts)
        turns.append(_drop_item_ids(turn) if has_dropped else turn)
    return with_turns(request, turns)


def _is_bare_reasoning(part: Part) -> bool:
    """Is it thinking without a seal? Servers that do not encrypt theirs send all of its text (`raw`)."""
    return isinstance(part, Reasoning) and part.seal is None and not (part.form == "raw" and part.text)


def _drop_item_ids(turn: Turn) -> Turn:
    """A turn without item ids, by which OpenAI knows that reasoning belongs before an item, and refuses it without."""
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Call):
            part = replace(part, item_id="", origin=without_wire(part.origin))
        parts.append(replace(part, origin=None) if isinstance(part, Text) else part)
    return replace(turn, parts=tuple(parts), origin=without_wire(turn.origin))


def _is_followed(turns: tuple[Turn, ...], number: int, ledger: Ledger) -> bool:
    """Does output of the assistant follow its reasoning, in this turn or the next? Within one protocol any turn will
    do: OpenAI takes the reasoning of an answer that the user has interrupted, but not at the end of the input."""
    parts = turns[number].parts
    if not parts or not isinstance(parts[-1], Reasoning):
        return True
    return number + 1 < len(turns) and (ledger.is_same_protocol or turns[number + 1].role == "assistant")


def _adopt_vendor_seals(turn: Turn, maker: str, vendor: str) -> Turn:
    """A turn in which seals of this vendor that another protocol carries count as this maker's."""
    parts = [
        replace_fields(part, seal=Seal(maker, part.seal.value))
        if isinstance(part, Call) and part.seal is not None and part.seal.maker.endswith(vendor)
        else part
        for part in turn.parts
    ]
    return with_parts(turn, parts)


def _keep_turn_seals(turn: Turn, maker: str, constraints: Constraints, is_followed: bool, ledger: Ledger) -> Turn:
    parts: list[Part] = []
    foreign = any(_has_foreign_seal(part, maker) for part in turn.parts)
    last = len(turn.parts)
    while not is_followed and last and isinstance(turn.parts[last - 1], Reasoning):
        last -= 1
    for number, part in enumerate(turn.parts):
        why = _reason_to_drop(part, maker, constraints, foreign, number < last) if isinstance(part, Reasoning) else ""
        seal, is_foreign = getattr(part, "seal", None), _has_foreign_seal(part, maker)
        if is_foreign and seal is not None and seal.value:
            ledger.note("seal-dropped", source_path(part) or source_path(turn), "a seal of another maker was left out")
        if why:
            ledger.note("reasoning-dropped", source_path(part) or source_path(turn), f"{why} was left out")
            continue
        if is_foreign and isinstance(part, Text) and not part.text:
            continue
        if is_foreign or (seal is not None and not seal.value):
            part = replace_fields(part, seal=None)
        parts.append(part)
    return with_parts(turn, parts)


def _has_foreign_seal(part: Part, maker: str) -> bool:
    seal: Seal | None = getattr(part, "seal", None)
    return seal is not None and not is_made_by(seal, maker)


def _reason_to_drop(
    part: Reasoning, maker: str, constraints: Constraints, has_foreign_neighbour: bool, is_followed: bool
) -> str:
    """Why to leave it out, or "". A turn has one maker: unsealed thinking beside a foreign seal is foreign, too.
    Servers that want the text of thinking back get it from any maker: they refuse the turn without."""
    seal = part.seal
    is_foreign = _has_foreign_seal(part, maker) or (seal is None and has_foreign_neighbour)
    if is_foreign and not (constraints.needs_reasoning_returned and part.text):
        return "thinking of another maker"
    if not is_followed:
        return "reasoning without output after it"
    if constraints.needs_signed_reasoning and (seal is None or not seal.value):
        return "thinking without a signature"
    return ""


# --- summaries --------------------------------------------------------------------------------------------------------

SUMMARY_INTRO = "Earlier parts of this conversation were left out. This summary stands for them:\n\n"


def summaries_as_text(request: Request, maker: str, keys: EnvelopeKeys | None, ledger: Ledger) -> Request:
    """The request with every summary that the provider cannot read as text of the user. A summary that only another
    maker can read is left out; then `has_provider_history` says that earlier turns are missing. A summary that nobody
    made here for this client is left out, too, but then nothing is missing."""
    texts: dict[int, str] = {}
    is_incomplete = request.has_provider_history
    for part in (part for turn in request.turns for part in turn.parts if isinstance(part, Summary)):
        if _has_envelope(part) and read_envelope(part.seal.value, keys) is None:  # type: ignore[union-attr]
            _note_refused_envelope(part, None, ledger)
            texts[id(part)] = part.text
        elif (text := _summary_text(part, maker, keys, ledger)) is not None:
            texts[id(part)] = text
            is_incomplete = is_incomplete or not text
    if not texts:
        return request
    turns = tuple(piece for turn in request.turns for piece in _split_at_summaries(turn, texts))
    return replace_fields(request, turns=turns, has_provider_history=is_incomplete)


def _split_at_summaries(turn: Turn, summary_texts: Mapping[int, str]) -> Iterator[Turn]:
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


def _summary_text(part: Summary, maker: str, keys: EnvelopeKeys | None, ledger: Ledger) -> str | None:
    """The text of a summary, "" when only its maker can read it; None when the provider can."""
    entries = None if part.seal is None else read_envelope(part.seal.value, keys)
    if entries is None:
        if ledger.is_same_protocol if part.seal is None else is_made_by(part.seal, maker):
            return None
        text = part.text
    else:
        text = "\n\n".join(entry.text for entry in entries if entry.position == "summary")
    if text:
        ledger.note("summary-as-text", source_path(part), "a summary of earlier turns became text of the user")
    else:
        ledger.note("seal-dropped", source_path(part), "a summary that only its maker can read was left out")
    return text
