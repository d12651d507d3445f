"""What every room's reader and writer do alike: remember origins, gather strays, give an intact origin back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from toolwire.core.ir import EMPTY_MAPPING, NO_SETTINGS, Origin, Settings, UnknownField
from toolwire.core.json_values import Json, Object, Path


class ReadContext(Struct):
    """One pass of a reader: stamps nodes with their origin and gathers the keys that it did not know."""

    protocol: str
    unknown_fields: list[UnknownField] = []

    def read_origin(self, node: Object, path: Path, known: frozenset[str]) -> Origin:
        """The origin of a node whose reader knows these keys; others are kept, and noted when they say something."""
        if known.issuperset(node):
            return Origin(self.protocol, path, node)
        extra: Object = {}
        for key, value in node.items():
            if key not in known:
                extra[key] = value
                if value or is_nonempty(value):
                    self.unknown_fields.append(UnknownField(path, key))
        return Origin(self.protocol, path, node, extra)

    def whole_origin(self, value: Json, path: Path) -> Origin:
        """The origin of a value that is carried whole, or known whole."""
        return Origin(self.protocol, path, value)

    def note_unknown_field(self, path: Path, key: str, code: str = "unknown-field") -> None:
        """Note a key that is known but has no place in the internal form."""
        self.unknown_fields.append(UnknownField(path, key, code))


def is_nonempty(value: Json) -> bool:
    """Null and empty containers hold no leaf."""
    return value is not None and value != [] and value != {}


def is_verbatim(origin: Origin | None, protocol: str) -> bool:
    """May the writer of `protocol` give back `origin.wire` as it stands?"""
    return origin is not None and origin.protocol == protocol and origin.intact


def restore_original_keys(out: Object, origin: Origin | None, protocol: str) -> Object:
    """A rewritten node in its old key order, with the unknown keys that bear the writer's own stamp."""
    if origin is None or origin.protocol != protocol or not isinstance(origin.wire, dict):
        return out
    extra = origin.extra
    ordered: Object = {}
    for key in origin.wire:
        if key in out:
            ordered[key] = out[key]
        elif key in extra:
            ordered[key] = extra[key]
    for key, value in out.items():
        if key not in ordered:
            ordered[key] = value
    return ordered


def items_with_paths(items: list[Json], path: Path) -> Iterator[tuple[Json, Path]]:
    """The items of an array, each with its place."""
    for number, item in enumerate(items):
        yield item, (path, number)


def present_settings(settings: Settings) -> Collection[str]:
    """The names of the settings that are set."""
    if settings is NO_SETTINGS:
        return ()
    values, where = astuple(settings), settings.where
    # A reader tells where each of them stood: if so many are set, it is these.
    if len(values) - values.count(None) - 1 == len(where):
        for field in where:
            if getattr(settings, field, None) is None:
                break
        else:
            return where
    fields = settings.__struct_fields__
    return [field for field, value in zip(fields, values, strict=True) if value is not None and field != "where"]


class OutOfBodyFields(Struct, frozen=True):
    """What a wire keeps outside the body of a request."""

    model: str = ""
    stream: bool | None = None


__all__ = [
    "EMPTY_MAPPING",
    "OutOfBodyFields",
    "ReadContext",
    "is_nonempty",
    "is_verbatim",
    "items_with_paths",
    "present_settings",
    "restore_original_keys",
]


Partial = TypeVar("Partial", bound=Struct)


def partial_decoder(shape: type[Partial]) -> Callable[[bytes], Partial | None]:
    """A reader of a few keys of a body, which skips all others; None for a body that is not of this shape."""
    decode = msgspec.json.Decoder(shape).decode

    def decode_partial(data: bytes) -> Partial | None:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None

    return decode_partial
