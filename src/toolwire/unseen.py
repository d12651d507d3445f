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

from toolwire.envelopes import OURS, Entry, entries_in, envelope
from toolwire.events import Event, PartStart, SealDelta
from toolwire.ids import digest
from toolwire.ir import Call, Media, Part, Reasoning, Request, Response, Result, Seal, Text, Turn, plain_text
from toolwire.memory import (
    Kept,
    Piece,
    Ran,
    Told,
    called,
    calls_of,
    filed,
    is_common,
    own_name,
    piece_of,
    shown_print,
    value_of,
)
from toolwire.room import Room
from toolwire.rounds import Round

Own: TypeAlias = Callable[[Call], Call]
"""A call as whoever runs it knows it."""


class Shown(Struct, frozen=True):
    """What the client saw of an answer: its own calls, the words, and a seal; and what it had asked."""

    calls: Sequence[Call]
    text: str = ""
    seal: str = ""
    asked: str = ""

    @property
    def key(self) -> str:
        """What the answer is kept under; "" where nothing would bring it back."""
        if self.calls:
            return self.calls[0].id
        if self.seal:
            return f"seal_{digest(_plain(self.seal), 32)}"
        said = "\0".join((self.asked, self.text))
        return f"said_{digest(said, 32)}" if self.text.strip() else ""


def kept_unseen(
    rounds: Sequence[Round], last: tuple[Sequence[Part], Sequence[Result]], maker: str, shown: Shown, own: Own
) -> dict[str, bytes]:
    """What to keep of an answer. `last` is the last round: its parts, and the results of those of its calls that are
    not the client's."""
    if not shown.key:
        return {}
    pieces: list[Piece] = []
    for one in rounds:
        pieces += _pieces(one.parts, one.results, (), own)
    pieces += _pieces(*last, shown.calls, own)
    common = bool(shown.calls) and is_common(shown.calls[0])
    return filed(shown.key, Kept(maker, tuple(pieces), shown_print(shown.calls, shown.text) if common else ""))


def _pieces(parts: Sequence[Part], results: Sequence[Result], shown: Sequence[Call], own: Own) -> Iterator[Piece]:
    hidden = {result.id for result in results}
    known = iter(shown)
    names: dict[str, str] = {}
    for part in parts:
        if isinstance(part, Call) and part.id in hidden:
            call = own(part)
            names[part.id] = call.name
            yield Ran(part.id, call.name, call.arguments, value_of(part.seal), part.item)
        elif isinstance(part, Call):
            client = next(known, None)
            if client is not None:
                yield called(part, client.id)
        elif isinstance(part, Text):
            yield replace(piece_of(part), text=part.text)
        elif isinstance(part, Reasoning):
            yield piece_of(part)
    for result in results:
        content = tuple(_content(part) for part in result.content if isinstance(part, (Text, Media)))
        yield Told(result.id, names.get(result.id, result.name), result.error, content, result.value)


def _content(part: Text | Media) -> tuple[str, str, str, str]:
    if isinstance(part, Text):
        return "text", "", part.text, ""
    return part.kind, part.mime, part.data, part.name


# --- requests: what may be kept for them ------------------------------------------------------------------------------


def keys(request: Request) -> tuple[str, ...]:
    """All under which something may be kept for a request."""
    found: dict[str, None] = {}
    for asked, run in runs(request.turns):
        if run[0].role == "assistant":
            calls = [call for turn in run for call in calls_of(turn)]
            for key in [*(call.id for call in calls), own_name(calls, run)] if calls else [shown_of(run, asked).key]:
                found[key] = None
    found.pop("", None)
    return tuple(found)


def runs(turns: Sequence[Turn]) -> Iterator[tuple[str, list[Turn]]]:
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


def asked_last(turns: Sequence[Turn]) -> str:
    """The last words of the user."""
    return next((said for turn in reversed(turns) if turn.role == "user" and (said := plain_text(turn.parts))), "")


def shown_of(run: Sequence[Turn], asked: str) -> Shown:
    """What a client shows of an answer."""
    parts = [part for turn in run for part in turn.parts]
    seal = next((found for part in parts if (found := _telling(getattr(part, "seal", None)))), "")
    return Shown([part for part in parts if isinstance(part, Call) and part.id], plain_text(parts), seal, asked)


def seal_in(event: Event) -> str:
    """The seal that a client gets with an event, where it is one of a kind."""
    if isinstance(event, SealDelta):
        return _telling(event.seal)
    return _telling(getattr(event.part, "seal", None)) if isinstance(event, PartStart) else ""


def nobodys(client: Room) -> Seal | None:
    """A seal for thinking that no provider shall get back."""
    entry = Entry("reasoning", OURS, "")
    return Seal(client.name, envelope([entry])) if "reasoning" in client.rules.seals else None


def first_seal(response: Response) -> str:
    """The first seal that a client gets with an answer."""
    parts = (part for choice in response.choices for part in choice.parts)
    return next((found for part in parts if (found := _telling(getattr(part, "seal", None)))), "")


def _telling(seal: Seal | None) -> str:
    """A seal by which an answer can be known. Envelopes that only name a maker are all the same."""
    if seal is None:
        return ""
    entries = entries_in(seal.value)
    return seal.value if entries is None or any(entry.value for entry in entries) else ""


def _plain(seal: str) -> str:
    """Some clients spell what they hold as bytes in another alphabet."""
    return seal.rstrip("=").replace("-", "+").replace("_", "/")
