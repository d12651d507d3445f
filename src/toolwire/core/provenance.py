"""Helpers of all readers and writers: where a node was read (`ir.Origin`), and how origins are written back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Sequence
from itertools import repeat
from typing import TypeGuard, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from toolwire.core.ir import NO_SETTINGS, Origin, Response, Seal, Settings, UnknownField
from toolwire.core.json_values import INT_OR_NULL, Json, Object, Path, can_be_counted, read_count, without_keys


class ReadContext(Struct):
    """The state of one reader: it makes the origins of nodes and collects the unknown fields."""

    protocol: str
    unknown_fields: list[UnknownField] = []

    def read_origin(self, node: Object, path: Path, known: frozenset[str]) -> Origin:
        """The origin of an object whose reader knows these keys. Others are kept in `extra`, and noted unless empty."""
        if known.issuperset(node):
            return Origin(self.protocol, path, node)
        extra = {key: value for key, value in node.items() if key not in known}
        lost = [UnknownField(path, key) for key, value in extra.items() if value or is_nonempty(value)]
        self.unknown_fields += lost
        return Origin(self.protocol, path, node, extra)

    def read_counts(self, node: Object, keys: Sequence[str], path: Path) -> list[int | None]:
        """The counts of tokens of several keys. What says nothing is noted: it does not make an answer unreadable."""
        values = [*map(node.get, keys)]
        if INT_OR_NULL.issuperset(map(type, values)) and all(map(can_be_counted, filter(None, values))):
            return values
        counts = [*map(read_count, values)]
        for key, value, count in zip(keys, values, counts, strict=True):
            if count is None and value is not None:
                self.note_unknown_field(path, key, "usage-dropped")
        return counts

    def get_counted(self, node: Object, key: str, path: Path) -> Object | None:
        """An object with counts of tokens. Another value is noted in the same way."""
        value = node.get(key)
        if value is None or value.__class__ is dict:
            return value
        self.note_unknown_field(path, key, "usage-dropped")
        return None

    def whole_origin(self, value: Json, path: Path) -> Origin:
        """The origin of a value without unknown keys."""
        return Origin(self.protocol, path, value)

    def note_unknown_field(self, path: Path, key: str, code: str = "unknown-field") -> None:
        """Note a key that the reader knows but the internal form has no field for."""
        self.unknown_fields.append(UnknownField(path, key, code))


def odd_shape(path: Path, key: str, what: str) -> UnknownField:
    """A note that something was written in a shape that the protocol does not have, and what it was read as."""
    return UnknownField(path, key, "shape-repaired", what)


def loosen_response(response: Response) -> Response:
    """The answer, not to be written back as it came if something in it has an odd shape."""
    if not any(field.what for field in response.unknown_fields):
        return response
    choices = tuple([replace(choice, origin=not_verbatim(choice.origin)) for choice in response.choices])
    return replace(response, choices=choices, origin=not_verbatim(response.origin))


def not_verbatim(origin: Origin | None) -> Origin | None:
    """An origin that is kept for its place and its unknown keys."""
    return replace(origin, intact=False) if origin is not None and origin.intact else origin


def is_nonempty(value: Json) -> bool:
    """Is there anything to lose? Not in null and empty containers."""
    return value is not None and value != [] and value != {}


def is_verbatim(origin: Origin | None, protocol: str) -> bool:
    """May the writer of `protocol` write `origin.wire` back as it is?"""
    return origin is not None and origin.protocol == protocol and origin.intact


class OriginChecks(Struct, frozen=True):
    """What the codec of a protocol asks about its nodes."""

    protocol: str

    def intact_wire(self, origin: Origin | None) -> Object | None:
        """The JSON object of a node that was read from this protocol and has not been changed since."""
        if origin is None or origin.protocol != self.protocol or not origin.intact:
            return None
        return origin.wire if isinstance(origin.wire, dict) else None

    def is_own(self, origin: Origin | None) -> TypeGuard[Origin]:
        """Was the node read from this protocol?"""
        return origin is not None and origin.protocol == self.protocol

    def is_foreign(self, origin: Origin | None) -> bool:
        """Was the node read from another protocol? One without an origin was made by Toolwire's caller."""
        return origin is not None and origin.protocol != self.protocol

    def unknown_keys(self, origin: Origin | None, key: str, known: Container[str]) -> Object:
        """The unknown keys of the object under a key of a node of this protocol, to be written back."""
        inner = origin.wire.get(key) if self.is_own(origin) and isinstance(origin.wire, dict) else None
        return without_keys(inner, known) if isinstance(inner, dict) else {}

    def is_own_seal(self, seal: Seal | None) -> TypeGuard[Seal]:
        """Did a provider of this protocol make the seal, also if that carries the seal of another vendor (`@`)?"""
        name = self.protocol
        return seal is not None and (seal.maker == name or seal.maker.startswith((f"{name}/", f"{name}@")))


def restore_original_keys(out: Object, origin: Origin | None, protocol: str) -> Object:
    """A written object in the key order of its origin, and with its unknown keys, if it is of this protocol."""
    if origin is None or origin.protocol != protocol or not isinstance(origin.wire, dict):
        return out
    values = {**origin.extra, **out}
    return {key: values[key] for key in origin.wire if key in values} | out


def items_with_paths(items: list[Json], path: Path) -> Iterator[tuple[Json, Path]]:
    for number, item in enumerate(items):
        yield item, (path, number)


def present_settings(settings: Settings) -> Collection[str]:
    if settings is NO_SETTINGS:
        return ()
    values, where = astuple(settings), settings.where
    # Readers fill `where` for each setting, so it usually lists exactly those that are set.
    is_listed = len(values) - values.count(None) - 1 == len(where)
    if is_listed and None not in map(getattr, repeat(settings), where, repeat(None)):
        return where
    fields = settings.__struct_fields__
    return [field for field, value in zip(fields, values, strict=True) if value is not None and field != "where"]


Partial = TypeVar("Partial")


def partial_decoder(shape: type[Partial]) -> Callable[[bytes | msgspec.Raw], Partial | None]:
    """A decoder of a few keys of a body, or of a value in it; it returns None for a body of another shape."""
    decode = msgspec.json.Decoder(shape).decode

    def decode_partial(data: bytes | msgspec.Raw) -> Partial | None:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None

    return decode_partial
