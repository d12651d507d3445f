"""The assistant's message: one slot each for reasoning, text, refusal and calls, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.ir import (
    Call,
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
from toolwire.protocols.openai_chat.details.calls import read_call, read_calls
from toolwire.protocols.openai_chat.names import REASONED, kept, own, own_seal
from toolwire.protocols.openai_chat.parts import (
    read_citations,
    read_content,
    read_reasoning,
    write_detail,
)
from toolwire.reading import Reading
from toolwire.wire import (
    Object,
    Path,
    as_object,
    take_list,
    take_text,
)


def read_message(node: Object, path: Path, reading: Reading, answer: bool = False) -> tuple[Part, ...]:
    """The parts of an assistant's message. In an answer empty text says nothing; in a history it is kept."""
    parts = read_reasoning(node, path, reading) if any(map(node.get, REASONED)) else []
    said = node.get("content")
    content = read_content(said, (path, "content"), reading)
    if answer and (not said or type(said) is list):
        content = [part for part in content if not isinstance(part, Text) or part.text]
    if node.get("annotations"):
        content = _cited(content, node, path, reading)
    parts += content
    refusal = node.get("refusal")
    if refusal is not None and take_text(node, "refusal", path):
        parts.append(Refusal(refusal, origin=reading.whole(refusal, (path, "refusal"))))
    if node.get("images"):
        parts += read_content(node["images"], (path, "images"), reading)
    old = node.get("function_call")
    if old is not None and as_object(old, (path, "function_call")).get("name"):
        parts.append(read_call(old, (path, "function_call"), reading))
    calls = take_list(node, "tool_calls", path)
    if calls:
        parts += read_calls(calls, (path, "tool_calls"), reading)
    return tuple(parts)


def _cited(content: list[Part], node: Object, path: Path, reading: Reading) -> list[Part]:
    citations = read_citations(node, path, reading)
    for number, part in enumerate(content):
        if isinstance(part, Text):
            return [*content[:number], replace(part, citations=citations), *content[number + 1 :]]
    return [*content, Text("", citations)] if citations else content


_RANKS: Mapping[type, int] = MappingProxyType({Reasoning: 0, Text: 1, Media: 1, Refusal: 2, Call: 3})
"""The wire has one slot for each of these, in this order."""


class Spoken:
    """An assistant's parts, sorted into the slots that a message has for them. The wire has no other order."""

    __slots__ = ("calls", "content", "media", "reasoning", "refusals")

    def __init__(self, parts: tuple[Part, ...], where: Path, ledger: Ledger) -> None:
        self.reasoning: list[Reasoning] = []
        self.content: list[Text | Opaque | Reasoning] = []
        self.media: list[Media] = []
        self.refusals: list[str] = []
        self.calls: list[Call] = []
        highest = 0
        for part in parts:
            rank = _RANKS.get(type(part), highest)
            if rank > highest:
                highest = rank
            elif rank < highest and ledger.source != ledger.target:
                ledger.note(
                    "order-changed", where, "text, thinking and calls no longer stand in the order they were made"
                )
            if type(part) is Text:
                self.content.append(part)
            elif type(part) is Call:
                self.calls.append(part)
            else:
                self._sort(part, ledger)

    def _sort(self, part: Part, ledger: Ledger) -> None:
        match part:
            case Reasoning(origin=origin) if (kept(origin) or {}).get("type") == "thinking":
                self.content.append(part)
            case Reasoning():
                self.reasoning.append(part)
            case Refusal(text):
                self.refusals.append(text)
            case Media():
                self.media.append(part)
            case Opaque(origin=origin) if own(origin):
                self.content.append(part)
            case _:
                note_part(part, ledger)

    def write_reasoning(self, out: Object, ledger: Ledger) -> None:
        """The text for all readers; details beside it where a seal of our own must come back."""
        if not self.reasoning:
            return
        text = "".join(part.text for part in self.reasoning)
        if text:
            out["reasoning_content"] = text
        for part in self.reasoning:
            if part.seal is not None and not own_seal(part.seal):
                ledger.note("seal-dropped", place(part), "the seal of a piece of reasoning was left out")
            elif part.hidden and part.seal is None:
                ledger.note("reasoning-dropped", place(part), "a hidden piece of reasoning was left out")
        if any(own_seal(part.seal) or (part.origin and kept(part.origin)) for part in self.reasoning):
            details = [write_detail(part, number) for number, part in enumerate(self.reasoning)]
            # All entries of a message are of one format; those without a seal cannot tell it themselves.
            form = next(({"format": entry["format"]} for entry in details if "format" in entry), {})
            out["reasoning_details"] = [entry if "format" in entry else entry | form for entry in details]


def note_part(part: Part, ledger: Ledger) -> None:
    """A part that this wire has no place for."""
    if isinstance(part, Opaque):
        ledger.opaque(part)
    elif isinstance(part, (HostedCall, HostedResult)):
        ledger.note("part-dropped", place(part), f"what the provider's own tool `{part.tool}` did was left out")
    else:
        ledger.note("part-dropped", place(part), f"a part of kind `{type(part).__name__}` was left out")
