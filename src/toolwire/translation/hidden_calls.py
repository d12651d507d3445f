"""Answers of which a client saw only a part: calls were run for it in between. What it did not see is kept for it, and
told to the model again when the client goes on.

It is kept under the id of the client's first call. An answer without one is known by the first seal that the client was
given, which comes back with it; where there is none, by its words and those that it answers.
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
"""A call as whoever runs it knows it."""


class VisibleAnswer(Struct, frozen=True):
    """What the client saw of an answer: its own calls, the words, and a seal; and what it had asked."""

    calls: Sequence[Call]
    text: str = ""
    seal: str = ""
    user_text: str = ""

    @property
    def key(self) -> str:
        """What the answer is kept under; "" where nothing would bring it back."""
        if self.calls:
            return self.calls[0].id
        if self.seal:
            return f"seal_{hex_digest(_normalise_base64(self.seal), 32)}"
        said = "\0".join((self.user_text, self.text))
        return f"said_{hex_digest(said, 32)}" if self.text.strip() else ""


def collect_hidden_records(
    rounds: Sequence[Round],
    last_round: tuple[Sequence[Part], Sequence[Result]],
    maker: str,
    visible: VisibleAnswer,
    to_runner_call: ToRunnerCall,
) -> dict[str, bytes]:
    """What to keep of an answer. `last` is the last round: its parts, and the results of those of its calls that are
    not the client's."""
    if not visible.key:
        return {}
    pieces: list[Piece] = []
    for one in rounds:
        pieces += _pieces_of_round(one.parts, one.results, (), to_runner_call)
    pieces += _pieces_of_round(*last_round, visible.calls, to_runner_call)
    common = bool(visible.calls) and has_common_id(visible.calls[0])
    return records_by_key(
        visible.key, TurnRecord(maker, tuple(pieces), turn_fingerprint(visible.calls, visible.text) if common else "")
    )


def _pieces_of_round(
    parts: Sequence[Part], results: Sequence[Result], client_calls: Sequence[Call], to_runner_call: ToRunnerCall
) -> Iterator[Piece]:
    hidden = {result.id for result in results}
    known = iter(client_calls)
    names: dict[str, str] = {}
    for part in parts:
        if isinstance(part, Call) and part.id in hidden:
            call = to_runner_call(part)
            names[part.id] = call.name
            yield HiddenCallPiece(part.id, call.name, call.arguments, seal_value(part.seal), part.item)
        elif isinstance(part, Call):
            client = next(known, None)
            if client is not None:
                yield piece_from_call(part, client.id)
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


# --- requests: what may be kept for them ------------------------------------------------------------------------------


def hidden_call_keys(request: Request) -> tuple[str, ...]:
    """All under which something may be kept for a request."""
    found: dict[str, None] = {}
    for asked, run in group_assistant_runs(request.turns):
        if run[0].role == "assistant":
            calls = [call for turn in run for call in calls_with_ids(turn)]
            for key in (
                [*(call.id for call in calls), fingerprinted_key(calls, run)]
                if calls
                else [visible_answer(run, asked).key]
            ):
                found[key] = None
    found.pop("", None)
    return tuple(found)


def group_assistant_runs(turns: Sequence[Turn]) -> Iterator[tuple[str, list[Turn]]]:
    """A conversation in pieces: what an assistant said in one go, each with the last words of the user before it, and
    the turns between, one by one."""
    run: list[Turn] = []
    asked = ""
    for turn in turns:
        if turn.role == "assistant":
            run.append(turn)
            continue
        if run:
            yield asked, run
            run = []
        if turn.role == "user":
            asked = plain_text(turn.parts) or asked
        yield asked, [turn]
    if run:
        yield asked, run


def last_user_text(turns: Sequence[Turn]) -> str:
    """The last words of the user."""
    return next((said for turn in reversed(turns) if turn.role == "user" and (said := plain_text(turn.parts))), "")


def visible_answer(run: Sequence[Turn], user_text: str) -> VisibleAnswer:
    """What a client shows of an answer."""
    parts = [part for turn in run for part in turn.parts]
    seal = next((found for part in parts if (found := _identifying_seal(getattr(part, "seal", None)))), "")
    return VisibleAnswer(
        [part for part in parts if isinstance(part, Call) and part.id], plain_text(parts), seal, user_text
    )


def seal_of_event(event: Event) -> str:
    """The seal that a client gets with an event, where it is one of a kind."""
    if isinstance(event, SealDelta):
        return _identifying_seal(event.seal)
    return _identifying_seal(getattr(event.part, "seal", None)) if isinstance(event, PartStart) else ""


def make_placeholder_seal(client: Codec) -> Seal | None:
    """A seal for thinking that no provider shall get back."""
    entry = EnvelopeEntry("reasoning", TOOLWIRE_MAKER, "")
    return Seal(client.name, write_envelope([entry])) if "reasoning" in client.constraints.seal_slots else None


def first_seal(response: Response) -> str:
    """The first seal that a client gets with an answer."""
    parts = (part for choice in response.choices for part in choice.parts)
    return next((found for part in parts if (found := _identifying_seal(getattr(part, "seal", None)))), "")


def _identifying_seal(seal: Seal | None) -> str:
    """A seal by which an answer can be known. Envelopes that only name a maker are all the same."""
    if seal is None:
        return ""
    entries = read_envelope(seal.value)
    return seal.value if entries is None or any(entry.value for entry in entries) else ""


def _normalise_base64(seal: str) -> str:
    """Some clients spell what they hold as bytes in another alphabet."""
    return seal.rstrip("=").replace("-", "+").replace("_", "/")
