"""The turns of a request: by far the most of it, so each way is one loop."""

from __future__ import annotations

from typing import NoReturn

from msgspec.structs import replace

from toolwire.ir import Media, Origin, Part, Text, Turn, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.hosted import disowned
from toolwire.protocols.anthropic.names import NAME, ROLES, TURN, WIRE_ROLES
from toolwire.protocols.anthropic.parts import read_content, write_content
from toolwire.reading import Reading, finished
from toolwire.wire import Json, Malformed, Object, Path, as_object, need_text, take_list


def read_turns(body: Object, reading: Reading) -> tuple[tuple[Turn, ...], bool]:
    """The turns, and whether all are as they came: what nobody here made is not given back so."""
    messages = take_list(body, "messages", None)
    if messages is None:
        raise Malformed(None, "`messages` is missing")
    root = (None, "messages")
    turns: list[Turn] = []
    intact = True
    for number, node in enumerate(messages):
        path = (root, number)
        try:
            role, content = ROLES[node["role"]], node["content"]
        except (KeyError, TypeError):
            _refuse(node, path)
        at = (path, "content")
        if content.__class__ is str and content:
            parts: tuple[Part, ...] = (Text(content, (), None, None, Origin(NAME, at, content)),)
        else:
            parts = read_content(content, at, reading)
        # Two keys are these two, so that none is unknown.
        origin = Origin(NAME, path, node) if len(node) == 2 else reading.origin(node, path, TURN)
        if role == "assistant" and (ours := disowned(parts)) is not None:
            parts, origin, intact = ours, replace(origin, intact=False), False
        turns.append(Turn(role, parts, "", "", origin))
    return tuple(turns), intact


def _refuse(message: Json, path: Path) -> NoReturn:
    node = as_object(message, path)
    word = need_text(node, "role", path)
    if word not in ROLES:
        raise Malformed((path, "role"), f"expected one of {', '.join(ROLES)}, got `{word}`")
    raise Malformed(path, "`content` is missing")


def write_turns(turns: tuple[Turn, ...], ledger: Ledger) -> list[Object]:
    """The messages; turns of which nothing can be sent give none, because empty ones are refused."""
    messages: list[Object] = []
    for turn in turns:
        own = turn.origin
        if own is not None and own.protocol != NAME:
            own = None
        if own is not None and own.intact:
            messages.append(own.wire)
            continue
        if turn.name or turn.phase:
            _note_unsaid(turn, ledger)
        parts = _without_media(turn, ledger) if own is None and turn.role == "assistant" else turn.parts
        content = write_content(parts, own, ledger)
        if content:
            message: Object = {"role": WIRE_ROLES[turn.role], "content": content}
            messages.append(message if own is None else finished(message, own, NAME))
    return messages


def _note_unsaid(turn: Turn, ledger: Ledger) -> None:
    for field, value in (("name", turn.name), ("phase", turn.phase)):
        if value:
            ledger.note("no-counterpart", place(turn), f"the {field} `{value}` of a turn was left out")


def _without_media(turn: Turn, ledger: Ledger) -> tuple[Part, ...]:
    """The model's own turns hold no media here."""
    for part in turn.parts:
        if type(part) is Media:
            break
    else:
        return turn.parts
    kept: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Media):
            what = f"{part.mime or part.kind} in a turn of the model was left out"
            ledger.note("media-dropped", place(part) or place(turn), what)
        else:
            kept.append(part)
    return tuple(kept)
