"""Records of answers of which the client saw only a part, because the server ran some calls (`tool_rounds.py`).

The model must see these calls again in the next request. A record is stored under the id of the client's first call. An
answer without calls is identified by the first seal that the client got, or else by its text and the user's question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec
from toolwire.core.envelopes import TOOLWIRE_MAKER, EnvelopeEntry, read_envelope, write_envelope
from toolwire.core.events import Event, PartStart, SealDelta
from toolwire.core.ids import hex_digest
from toolwire.core.ir import Call, Media, Part, Reasoning, Request, Response, Result, Seal, Text, Turn, plain_text
from toolwire.translation.signature_memory import (
    HiddenCallPiece,
    HiddenResultPiece,
    Piece,
    TurnRecord,
    calls_with_ids,
    fingerprinted_key,
    has_common_id,
    piece_from_call,
    piece_from_part,
    records_by_key,
    seal_value,
    turn_fingerprint,
)
from toolwire.translation.tool_rounds import Round

ToRunnerCall: TypeAlias = Callable[[Call], Call]
"""Converts a provider's call to the name and arguments of the tool that the server runs."""


class VisibleAnswer(Struct, frozen=True):
    """What the client saw of an answer."""

    calls: Sequence[Call]
    text: str = ""
    seal: str = ""
    """The first seal."""
    user_text: str = ""
    """The question."""

    @property
    def key(self) -> str:
        """The key of its record; "" where nothing identifies the answer."""
        if self.calls:
            return self.calls[0].id
        if self.seal:
            return f"seal_{hex_digest(_normalise_base64(self.seal), 32)}"
        words = "\0".join((self.user_text, self.text))
        return f"said_{hex_digest(words, 32)}" if self.text.strip() else ""


def collect_hidden_records(
    rounds: Sequence[Round],
    last_round: tuple[Sequence[Part], Sequence[Result]],
    maker: str,
    visible: VisibleAnswer,
    to_runner_call: ToRunnerCall,
) -> dict[str, bytes]:
    """The record of an answer, by key. `last_round` is its parts, and the results of the calls that the server ran."""
    if not visible.key:
        return {}
    pieces: list[Piece] = []
    for finished in rounds:
        pieces += _pieces_of_round(finished.parts, finished.results, (), to_runner_call)
    pieces += _pieces_of_round(*last_round, visible.calls, to_runner_call)
    has_common = bool(visible.calls) and has_common_id(visible.calls[0])
    fingerprint = turn_fingerprint(visible.calls, visible.text) if has_common else ""
    return records_by_key(visible.key, TurnRecord(maker, tuple(pieces), fingerprint))


def _pieces_of_round(
    parts: Sequence[Part], results: Sequence[Result], client_calls: Sequence[Call], to_runner_call: ToRunnerCall
) -> Iterator[Piece]:
    hidden = {result.id for result in results}
    remaining = iter(client_calls)
    names: dict[str, str] = {}
    for part in parts:
        if isinstance(part, Call) and part.id in hidden:
            call = to_runner_call(part)
            names[part.id] = call.name
            yield HiddenCallPiece(part.id, call.name, call.arguments, seal_value(part.seal), part.item_id)
        elif isinstance(part, Call):
            client_call = next(remaining, None)
            if client_call is not None:
                yield piece_from_call(part, client_call.id)
        elif isinstance(part, Text):
            yield replace(piece_from_part(part), text=part.text)
        elif isinstance(part, Reasoning):
            yield piece_from_part(part)
    for result in results:
        content = tuple(_encode_content(part) for part in result.content if isinstance(part, (Text, Media)))
        yield HiddenResultPiece(result.id, names.get(result.id, result.name), result.error, content, result.value)


def _encode_content(part: Text | Media) -> tuple[str, str, str, str]:
    if isinstance(part, Text):
        return "text", "", part.text, ""
    return part.kind, part.mime, part.data, part.name


# --- requests: what may be in the store -------------------------------------------------------------------------------


def hidden_call_keys(request: Request) -> tuple[str, ...]:
    """The keys under which records of hidden calls may be stored for a request."""
    found: dict[str, None] = {}
    for question, run in group_assistant_runs(request.turns):
        if run[0].role == "assistant":
            calls = [call for turn in run for call in calls_with_ids(turn)]
            keys = [*(call.id for call in calls), fingerprinted_key(calls, run)]
            found |= dict.fromkeys(keys if calls else [visible_answer(run, question).key])
    found.pop("", None)
    return tuple(found)


def group_assistant_runs(turns: Sequence[Turn]) -> Iterator[tuple[str, list[Turn]]]:
    """The turns in groups: consecutive turns of the assistant together, all others alone. Each group comes with the
    last text of the user before it."""
    run: list[Turn] = []
    question = ""
    for turn in turns:
        if turn.role == "assistant":
            run.append(turn)
            continue
        if run:
            yield question, run
            run = []
        if turn.role == "user":
            question = plain_text(turn.parts) or question
        yield question, [turn]
    if run:
        yield question, run


def last_user_text(turns: Sequence[Turn]) -> str:
    return next((text for turn in reversed(turns) if turn.role == "user" and (text := plain_text(turn.parts))), "")


def visible_answer(run: Sequence[Turn], user_text: str) -> VisibleAnswer:
    """What a client sends back of an answer."""
    parts = [part for turn in run for part in turn.parts]
    seal = next((found for part in parts if (found := _identifying_seal(getattr(part, "seal", None)))), "")
    return VisibleAnswer(
        [part for part in parts if isinstance(part, Call) and part.id], plain_text(parts), seal, user_text
    )


def seal_of_event(event: Event) -> str:
    """The seal of an event that can identify the answer, "" for none."""
    if isinstance(event, SealDelta):
        return _identifying_seal(event.seal)
    return _identifying_seal(getattr(event.part, "seal", None)) if isinstance(event, PartStart) else ""


def make_placeholder_seal(client: Codec) -> Seal | None:
    """A seal for thinking that Toolwire made up, so that it goes back to no provider; None where there is no slot."""
    entry = EnvelopeEntry("reasoning", TOOLWIRE_MAKER, "")
    return Seal(client.name, write_envelope([entry])) if "reasoning" in client.constraints.seal_slots else None


def first_seal(response: Response) -> str:
    """The first seal of an answer that can identify it."""
    parts = (part for choice in response.choices for part in choice.parts)
    return next((found for part in parts if (found := _identifying_seal(getattr(part, "seal", None)))), "")


def _identifying_seal(seal: Seal | None) -> str:
    """The value of a seal that is unique. Envelopes that only name a maker are not."""
    if seal is None:
        return ""
    entries = read_envelope(seal.value)
    return seal.value if entries is None or any(entry.value for entry in entries) else ""


def _normalise_base64(seal: str) -> str:
    """Gemini's SDKs decode seals and encode them again, with another base64 alphabet."""
    return seal.rstrip("=").replace("-", "+").replace("_", "/")
