"""Lists of tools that came before, known by their bytes.

An agent sends the same tools with every request. What such a list was decoded to, read to and written as is kept, so
that it need not be worked out again. All of that is told by the bytes alone, and nobody changes what was made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from msgspec import Raw

from toolwire.ir import AnyTool, Opaque, Stray
from toolwire.loss import Ledger, Notes
from toolwire.reading import Reading
from toolwire.wire import Json, Object, decode, encode

MOST = 2 * 1024 * 1024
"""Bytes of all that is kept, as it is sent; with one more all is forgotten."""
LONGEST = MOST // 4
_BEGINNING = 24
"""Bytes of a list by which it is looked for: a longer word is found faster, up to here."""

Tools = tuple[AnyTool, ...]
R = TypeVar("R", bound=Reading)
W = TypeVar("W", list[Object], list[Object] | None)


def _bears_mark(tool: AnyTool) -> bool:
    return not isinstance(tool, Opaque) and tool.cache is not None


class Memory:
    """One for all: what it keeps is the same for everybody."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._size = 0
        self._tail = 0
        """Bytes from the beginning of a list to the end of its request, the last time: an agent ends all alike."""
        self._last: tuple[bytes, list[Json] | None] = (b"", None)
        self._lists: dict[bytes, list[Json]] = {}
        # The rest goes by the identity of what it was made of, which is kept with it.
        self._kept: dict[int, Any] = {}
        self._read: dict[tuple[int, str], tuple[list[Json], Tools, list[Stray]]] = {}
        self._fitting: dict[tuple[int, Hashable], tuple[Tools, object, frozenset[str]]] = {}
        self._written: dict[tuple[int, Hashable], tuple[Tools, Any, Notes]] = {}
        self._spelled: dict[tuple[int, str], tuple[Json, Raw]] = {}

    def found(self, body: bytes, data: bytes) -> int:
        """Where these bytes stand in a body, or -1 for nowhere."""
        start = len(body) - self._tail
        if start < 0 or not body.startswith(data, start):
            start = body.rfind(data[:_BEGINNING])
            if start < 0 or not body.startswith(data, start):
                return -1
            self._tail = len(body) - start
        return start

    def decoded(self, data: bytes) -> list[Json] | None:
        """The list that these bytes spell, always the same one; None where they are no list, or too long to keep."""
        if data == self._last[0]:  # comparing costs less than a digest
            return self._last[1]
        found = self._lists.get(data)
        if found is None and data.startswith(b"[") and len(data) <= LONGEST:
            found = decode(data)
            if self._size + len(data) > MOST:
                self._forget()
            self._size += len(data)
            self._lists[data] = self._kept[id(found)] = found
        self._last = (data, found)
        return found

    def _keeps(self, thing: object) -> bool:
        return self._kept.get(id(thing)) is thing

    def read(self, wire: list[Json], reading: R, read: Callable[[list[Json], R], list[AnyTool]]) -> Tools:
        """What a room reads a list to, and the strays in it."""
        key = (id(wire), reading.protocol)
        known = self._read.get(key)
        if known is not None and known[0] is wire:
            reading.strays += known[2]
            return known[1]
        before = len(reading.strays)
        tools = tuple(read(wire, reading))
        if tools and self._keeps(wire):
            self._read[key] = wire, tools, reading.strays[before:]
            self._kept[id(tools)] = tools
        return tools

    def fitting(self, tools: Tools, target: Hashable, rules: object) -> frozenset[str] | None:
        """The names of tools that have all stayed as they are under these rules."""
        known = self._fitting.get((id(tools), target))
        return known[2] if known is not None and known[0] is tools and known[1] is rules else None

    def fits(self, tools: Tools, target: Hashable, rules: object, names: frozenset[str]) -> None:
        if self._keeps(tools):
            self._fitting[id(tools), target] = tools, rules, names

    def write(self, tools: Tools, way: Hashable, ledger: Ledger, write: Callable[[], W]) -> W:
        """What a room writes tools as, in one of its ways, and what there is to tell about it. Marks may be taken away
        again later, so that tools which bear some are not kept."""
        key = (id(tools), way)
        known = self._written.get(key)
        if known is not None and known[0] is tools:
            if known[2]:
                ledger.again(known[2])
            kept: W = known[1]
            return kept
        before = ledger.count
        wire = write()
        if wire and self._keeps(tools) and not any(map(_bears_mark, tools)):
            self._written[key] = tools, wire, ledger.after(before)
            self._kept[id(wire)] = wire
        return wire

    def spelled(self, wire: Json) -> Raw | None:
        """The bytes of a list that is kept."""
        known = self._spelled.get((id(wire), ""))
        if known is not None and known[0] is wire:
            return known[1]
        return self._spell(wire, "", wire) if self._keeps(wire) else None

    def told(self, wire: list[Json], room: str, tell: Callable[[list[Json]], list[Json]]) -> Json:
        """A list as a room tells it back to its client; its bytes, if it is kept."""
        known = self._spelled.get((id(wire), room))
        if known is not None and known[0] is wire:
            return known[1]
        told = tell(wire)
        return self._spell(wire, room, told) if self._keeps(wire) else told

    def _spell(self, wire: Json, room: str, told: Json) -> Raw:
        data = Raw(encode(told))
        self._size += len(bytes(data))
        self._spelled[id(wire), room] = wire, data
        return data


MEMORY = Memory()
found, decoded, read, fitting, fits = MEMORY.found, MEMORY.decoded, MEMORY.read, MEMORY.fitting, MEMORY.fits
write, spelled, told = MEMORY.write, MEMORY.spelled, MEMORY.told
