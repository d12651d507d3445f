"""The items of an answer, written from parts. The stream's writer opens and closes the same items one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from toolwire.ids import EMPTY_ENVELOPE, made
from toolwire.ir import (
    NOTHING,
    Call,
    Finish,
    HostedCall,
    HostedResult,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.hosted import HOSTED_TYPES, can_write_hosted, write_hosted
from toolwire.protocols.openai_responses.details.items import write_call, write_reasoning
from toolwire.protocols.openai_responses.details.ordinary import is_plain
from toolwire.protocols.openai_responses.names import CALLS, CONTENT, ENDINGS, MESSAGE_ITEM, NAME
from toolwire.protocols.openai_responses.parts import own, write_annotations
from toolwire.reading import verbatim
from toolwire.wire import Json, Object

CUT = frozenset(kind for kind, (status, _) in ENDINGS.items() if status == "incomplete")
"""Endings that leave the last item incomplete."""


def stem(answer: str) -> str:
    """What the ids of an answer's items are made of: its own, without the prefix. Nothing where there would be no room
    left for every prefix and number."""
    return answer[5:] if len(answer) <= 50 else ""


def item_id(prefix: str, answer: str, number: int) -> str:
    """The id of an item that has none, made of its place."""
    return Names(answer, stem(answer)).name(prefix, "", number)


class Names(Struct, eq=False):
    """The ids of the items of one answer: a legal one is kept, another is made of its place; none comes twice."""

    answer: str = ""
    within: str = ""
    """Its stem."""
    used: set[str] = set()

    def name(self, prefix: str, given: str, number: int) -> str:
        if not given or not given.startswith(prefix) or given in self.used:
            given = f"{prefix}{self.within}_{number}" if self.within else made(prefix, self.answer, number)
        self.used.add(given)
        return given


def write_output(
    parts: tuple[Part, ...], finish: Finish | None, answer: str, think: bool, ledger: Ledger
) -> list[Object]:
    items: list[Object] = []
    if think and Reasoning not in map(type, parts):
        items.append(empty_reasoning(item_id("rs_", answer, 0)))
        ledger.note("reasoning-added", None, "an empty reasoning item was put first")
    within = stem(answer)
    if not within or not _write_ordinary(parts, within, items):
        names = Names(answer, within)
        for run in _runs(parts):
            item = write_item(run, names, len(items), ledger)
            if item is not None:
                items.append(item)
    cut = finish is not None and finish.kind in CUT and parts and not verbatim(parts[-1].origin, NAME)
    if cut and items and items[-1].get("type") == "message":
        items[-1]["status"] = "incomplete"
    return items


def _write_ordinary(parts: tuple[Part, ...], within: str, items: list[Object]) -> bool:
    """The short way for an answer of plain texts and calls that came from elsewhere; False, with nothing written, for
    any other. `within`: the stem of its ids."""
    before = len(items)
    said: list[Object] | None = None
    for part in parts:
        origin = part.origin
        if origin is not None and origin.protocol == NAME:
            break
        if part.__class__ is Text and not part.citations and part.seal is None:
            if said is None:
                said = []
                items.append(_message(f"msg_{within}_{len(items)}", "completed", said))
            said.append({"type": "output_text", "text": part.text, "annotations": [], "logprobs": []})
            continue
        if part.__class__ is not Call or not is_plain(part):
            break
        said = None
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{within}_{len(items)}",
                "status": "completed",
                "call_id": part.id,
                "name": part.name,
                "arguments": part.arguments,
            }
        )
    else:
        return True
    del items[before:]
    return False


def _runs(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """Parts that share an item: neighbouring texts, or a provider's tool and what it found."""
    run: list[Part] = []
    for part in parts:
        if run and not joins(run[-1], part):
            yield tuple(run)
            run = []
        run.append(part)
    if run:
        yield tuple(run)


def in_text(part: Part) -> bool:
    kind = part.__class__
    # Asked of every part: `isinstance` costs ten times as much for all but the right type.
    return kind is Text or kind is Refusal or (part.__class__ is Opaque and part.kind.startswith(CONTENT))


def joins(before: Part, part: Part) -> bool:
    if part.__class__ is HostedResult:
        return isinstance(before, HostedCall) and before.id == part.id
    if not in_text(before) or not in_text(part):
        return False
    if own(before.origin) and own(part.origin) and not isinstance(part, Opaque) and not isinstance(before, Opaque):
        return before.origin.wire is part.origin.wire  # type: ignore[union-attr]
    return True


def empty_reasoning(id: str) -> Object:
    """Made up for a client that waits for one; what it holds is an empty envelope, so it never reaches a provider."""
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": EMPTY_ENVELOPE}


def write_item(run: tuple[Part, ...], names: Names, number: int, ledger: Ledger) -> Object | None:
    part = run[0]
    if in_text(part):
        return _write_message(run, names, number, ledger)
    if verbatim(part.origin, NAME) and isinstance(part.origin.wire, dict):  # type: ignore[union-attr]
        wire: Object = part.origin.wire  # type: ignore[union-attr]
        return wire
    match part:
        case Call():
            shape = CALLS.get(part.kind, CALLS["function"])
            status = "incomplete" if part.incomplete else "completed"
            return write_call(part, ledger, names.name(shape.prefix, part.item, number), status)
        case Reasoning():
            return write_reasoning(part, ledger, names.name("rs_", part.id, number))
        case HostedCall(tool=tool) if can_write_hosted(tool):
            result = run[1] if len(run) > 1 and isinstance(run[1], HostedResult) else None
            return write_hosted(part, result, ledger, names.name(hosted_prefix(tool), part.id, number))
        case Media(kind="image") if part.data:
            return write_picture(part, names.name("ig_", "", number))
        case _:
            drop(part, ledger)
    return None


def hosted_prefix(tool: str) -> str:
    return HOSTED_TYPES.get(tool, HOSTED_TYPES["web_search"])[1]


def write_picture(part: Media, id: str) -> Object:
    form = part.mime.partition("/")[2] or "png"
    return {
        "type": "image_generation_call",
        "id": id,
        "status": "completed",
        "output_format": form,
        "result": part.data,
    }


def drop(part: Part, ledger: Ledger) -> None:
    if isinstance(part, Opaque):
        ledger.opaque(part)
    elif isinstance(part, Media):
        ledger.note("media-dropped", place(part), f"{part.kind} was left out of an answer")
    else:
        ledger.note("part-dropped", place(part), f"a part of type {type(part).__name__} was left out of an answer")


def _write_message(run: tuple[Part, ...], names: Names, number: int, ledger: Ledger) -> Object:
    wire = message_of(run[0])
    if (
        wire is not None
        and len(run) == len(wire.get("content") or ())
        and all(verbatim(part.origin, NAME) for part in run)
    ):
        return wire
    content = [one for part in run if (one := content_part(part, ledger)) is not None]
    given = "" if wire is None else str(wire.get("id") or "")
    return message_item(names.name("msg_", given, number), "completed", content, run[0])


def message_of(part: Part) -> Object | None:
    """The message that a part was read from, where it was one of this protocol."""
    origin = part.origin
    if origin is None or origin.protocol != NAME:
        return None
    wire = origin.wire
    return wire if isinstance(wire, dict) and wire.get("type") == "message" else None


def content_part(part: Part, ledger: Ledger) -> Object | None:
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    if isinstance(part, Text):
        if part.seal is not None:
            ledger.note("seal-dropped", place(part), "the seal of a text was left out")
        return {
            "type": "output_text",
            "text": part.text,
            "annotations": write_annotations(part, ledger),
            "logprobs": [],
        }
    if isinstance(part, Opaque) and own(part.origin):
        wire: Object = part.origin.wire
        return wire
    drop(part, ledger)
    return None


def _message(id: str, status: str, content: list[Object]) -> Object:
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": content}


def message_item(id: str, status: str, content: list[Object], first: Part) -> Object:
    return {**_message(id, status, content), **said_beyond(first)}


def said_beyond(first: Part) -> Mapping[str, Json]:
    """What the item of a message said beyond our words (`phase`) where it came from this protocol."""
    origin = first.origin
    if origin is None or origin.protocol != NAME or message_of(first) is None:
        return NOTHING
    return {key: value for key, value in origin.extra.items() if key not in MESSAGE_ITEM}
