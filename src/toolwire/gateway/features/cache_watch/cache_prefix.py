"""The prefix of a prompt, as providers cache it: its pieces in the order tools, instructions, messages; the first piece
that differs from the prompt before; and the likely cause. A difference ends what can be read from the cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import eq
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from toolwire.protocols import CODECS

CacheCause: TypeAlias = Literal["model", "account", "tools", "time", "instructions", "history", "expired", "unknown"]
"""Why the cache could not be read: another model or account answers; the tools, the instructions or the history have
changed; a time or an id in them changes from turn to turn; the turn before is too long ago; or nothing is known."""

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_TEXT_PART_START, _TEXT_PART_END = b'[{"type":"text","text":', b'"}]}'
"""Around a message that is one text. Claude Code writes a text with a breakpoint as a part, and the same text without
one as a string."""
_CHANGING_TEXT = re.compile(r"\d{1,4}[-:./]\d{1,2}|\d{10,13}|[0-9a-f]{8}-[0-9a-f]{4}|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)")


class PromptShape(Struct, frozen=True, gc=False):
    """What the pieces of a prompt are: tools, then instructions, then turns."""

    tool_names: tuple[str, ...]
    tools_place: str
    """Where they are in the body, as a JSON Pointer."""
    instructions_key: str
    """"" if there are none, or if they are turns."""
    turns_key: str
    turns: int

    @property
    def first_turn(self) -> int:
        """How many pieces are before the turns."""
        return len(self.tool_names) + bool(self.instructions_key)

    def place(self, number: int) -> str:
        """Where a piece is in the body, as a JSON Pointer."""
        if number < len(self.tool_names):
            return f"{self.tools_place}/{number}"
        turn = number - self.first_turn
        return f"/{self.turns_key}/{turn}" if turn >= 0 else f"/{self.instructions_key}"


class Prompt(Struct, frozen=True, gc=False):
    """The prompt of a request to a provider, in pieces."""

    shape: PromptShape
    pieces: Sequence[bytes]
    """As they were sent, without cache breakpoints."""


def split_prompt(body: bytes, protocol: str) -> Prompt | None:
    """The pieces of a request; None if it cannot be read. Nothing is decoded but the names of tools."""
    codec = CODECS.get(protocol)
    if codec is None or not body:
        return None
    try:
        fields = _decode_fields(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    tools, tools_place = _find_tools(fields, codec.constraints.tools_key)
    turns = _list_items(fields.get(codec.constraints.turns_key))
    instructions = fields.get(codec.constraints.instructions_key)
    shape = PromptShape(
        tool_names=tuple(map(find_tool_name, tools)),
        tools_place=tools_place,
        instructions_key=codec.constraints.instructions_key if instructions is not None else "",
        turns_key=codec.constraints.turns_key,
        turns=len(turns),
    )
    pieces = [*tools, *([bytes(instructions)] if instructions is not None else ()), *turns]
    for name in codec.request_members.cache_breakpoints:
        marker, remove = _breakpoint_pattern(name)
        if body.find(marker) >= 0:
            pieces = [remove(b"", piece) if piece.find(marker) >= 0 else piece for piece in pieces]
    return Prompt(shape, pieces)


@cache
def _breakpoint_pattern(name: str) -> tuple[bytes, Callable[[bytes, bytes], bytes]]:
    """The member as it is written, and what removes it with its value. Agents move breakpoints with every turn."""
    marker = b'"%b"' % name.encode()
    member = marker + rb"\s*:\s*(?:\{[^{}]*\}|null)"
    return marker, re.compile(rb",\s*%b|%b\s*,?" % (member, member)).sub


def _find_tools(fields: Mapping[str, Raw], key: str) -> tuple[list[bytes], str]:
    """The declared tools, and where they are: some protocols have them in an object with their settings (Converse)."""
    value, place = fields.get(key), f"/{key}"
    if value is not None and bytes(value).lstrip().startswith(b"{"):
        try:
            value, place = _decode_fields(value).get("tools"), f"{place}/tools"
        except msgspec.DecodeError:
            value = None
    return _list_items(value), place


def _list_items(value: Raw | None) -> list[bytes]:
    """The items of a list; another value is one item (`input` of Responses can be a text)."""
    if value is None:
        return []
    try:
        return list(map(bytes, _decode_items(value)))
    except msgspec.DecodeError:
        return [bytes(value)]


_find_name = re.compile(rb'"name"\s*:\s*"((?:[^"\\]|\\.){1,128})"').search


def find_tool_name(tool: bytes) -> str:
    """The first name in a declaration, which is that of the tool, or of the first of several (Gemini)."""
    found = _find_name(tool)
    return found[1].decode("utf-8", "replace") if found is not None else ""


def compared_form(piece: bytes) -> bytes:
    """A piece as it is compared: two spellings of one text are the same."""
    if not piece.endswith(_TEXT_PART_END) or piece.find(_TEXT_PART_START) < 0:
        return piece
    return piece.replace(_TEXT_PART_START, b"", 1)[: -len(_TEXT_PART_END)] + b'"}'


def is_continued(before: Sequence[object], after: Sequence[object]) -> bool:
    """Is a prompt with these turns the next one of the same conversation, and not a side request of the agent, or an
    independent one with the same question? It has more turns, and at least half of those before are in their places."""
    return len(after) > len(before) > 0 and 2 * sum(map(eq, before, after)) >= len(before)


def first_difference(before: Sequence[object], after: Sequence[object]) -> int | None:
    """The number of the first piece that has changed; None if the prompt before is a prefix of this one."""
    for number, old in enumerate(before):
        if number >= len(after) or after[number] != old:
            return number
    return None


def common_length(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:  # the longest common start, by halving
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def guess_cause(before: PromptShape, after: PromptShape, number: int, around: str) -> tuple[CacheCause, str]:
    """The likely reason of a difference, also as a sentence. `around` is the new text near the difference."""
    if number < len(before.tool_names) or number < len(after.tool_names):
        return "tools", _describe_tool_changes(before.tool_names, after.tool_names, number)
    if number >= after.first_turn + after.turns:
        return "history", "the history is shorter than before: it was cut or compacted"
    place = after.place(number)
    if _CHANGING_TEXT.search(around):
        return "time", f"a time, a date or an id at {place} changes from turn to turn"
    if number < after.first_turn or number < before.first_turn:
        return "instructions", "the instructions have changed"
    return "history", "an earlier message was rewritten"


def _describe_tool_changes(before: Sequence[str], after: Sequence[str], number: int) -> str:
    old, new = set(before), set(after)
    added = [name for name in after if name not in old]
    removed = [name for name in before if name not in new]
    named = (("added", added), ("removed", removed))
    changes = [f"{word} {', '.join(names[:3])}" for word, names in named if names]
    if changes:
        return f"the list of tools has changed: {' and '.join(changes)}"
    if before != after:
        return "the tools are in another order"
    return f"the declaration of the tool {before[number]} has changed"


def describe_other_maker(before: tuple[str, str, str], after: tuple[str, str, str]) -> tuple[CacheCause, str] | None:
    """Why another cache is used: provider, account and model of two turns. None if they are the same."""
    if before == after:
        return None
    provider, account, model = after
    if (before[0], before[2]) == (provider, model):
        return "account", f"another account answers this turn ({provider}/{account}): it has a cache of its own"
    return "model", f"another model answers this turn ({provider}/{model}): it has a cache of its own"
