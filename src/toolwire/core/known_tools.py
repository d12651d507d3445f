"""Remembers what was read from a list of tools, and what was worked out about it: agents send the same tools with every
turn, and reading, checking and writing them takes about 35 calls of functions for each.

The key is the JSON of the list, so equal lists have equal results. A `KnownTools` is never changed, nor is anything in
it: whoever needs other tools makes another tuple, and about that nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar, cast

from toolwire.core.ir import AnyTool, UnknownField
from toolwire.core.json_values import Json, Path, decode, encode
from toolwire.core.losses import Ledger, LossNote
from toolwire.core.provenance import ReadContext

MAX_LISTS = 64
MAX_LIST_BYTES = 512 * 1024
"""Longer lists are read each time."""
MAX_BYTES = 4 * 1024 * 1024
"""Of the JSON of all lists that are remembered."""
MAX_RESULTS = 32
"""For each list: some for each model that it is sent to."""

Context = TypeVar("Context", bound=ReadContext)
Value = TypeVar("Value")
ReadTools = Callable[[Json, Path, Context], tuple[AnyTool, ...]]


class KnownTools(tuple[AnyTool, ...]):
    """Tools as they were read."""

    path: Path
    value: Json
    """The list that they were read from, and its place. Nobody may change it."""
    unknown_fields: tuple[UnknownField, ...]
    """What the reader noted."""
    results: dict[Hashable, object]
    """What was worked out about them, by the function and its other arguments."""


_lists: dict[Hashable, KnownTools] = {}
_sizes: dict[Hashable, int] = {}


def read_known_tools(read: ReadTools[Context], value: Json, path: Path, reading: Context) -> tuple[AnyTool, ...]:
    """`read(value, path, reading)`, which makes only tools and unknown fields of a list."""
    if not value:
        return read(value, path, reading)
    source = encode(value)
    key = (read, path, source)
    known = _lists.get(key)
    if known is None:
        if len(source) > MAX_LIST_BYTES:
            return read(value, path, reading)
        noted = len(reading.unknown_fields)
        # From a value of its own: the caller may change the one that it has.
        own = decode(source)
        known = KnownTools(read(own, path, reading))
        known.path, known.value = path, own
        known.unknown_fields, known.results = tuple(reading.unknown_fields[noted:]), {}
        _remember(key, known, len(source))
    elif known.unknown_fields:
        reading.unknown_fields += known.unknown_fields
    return known


def _remember(key: Hashable, known: KnownTools, size: int) -> None:
    if len(_lists) >= MAX_LISTS or sum(_sizes.values()) + size > MAX_BYTES:
        forget_tools()
    _lists[key], _sizes[key] = known, size


def forget_tools() -> None:
    """Read all lists again."""
    _lists.clear()
    _sizes.clear()


def work_out(function: Callable[..., Value], tools: tuple[AnyTool, ...], *arguments: Hashable) -> Value:
    """`function(tools, *arguments)`, which is pure and never None. Nobody may change what it returns."""
    if type(tools) is not KnownTools:
        return function(tools, *arguments)
    results, key = tools.results, (function, *arguments)
    found = cast("Value | None", results.get(key))
    if found is None:
        if len(results) >= MAX_RESULTS:
            results.clear()
        found = results[key] = function(tools, *arguments)
    return found


def write_known_tools(
    write: Callable[..., Value], tools: tuple[AnyTool, ...], ledger: Ledger, *arguments: Hashable
) -> Value:
    """`write(tools, ledger, *arguments)`, with its notes in the ledger. Nobody may change what it returns."""
    if type(tools) is not KnownTools:
        return write(tools, ledger, *arguments)
    written, notes = work_out(_write_apart, tools, write, ledger.source, ledger.target, *arguments)
    for note, why in notes.items():
        ledger.notes.setdefault(note, why)
    return cast("Value", written)


def _write_apart(
    tools: tuple[AnyTool, ...], write: Callable[..., object], source: str, target: str, *arguments: Hashable
) -> tuple[object, Mapping[LossNote, str]]:
    ledger = Ledger(source, target)
    return write(tools, ledger, *arguments), ledger.notes
