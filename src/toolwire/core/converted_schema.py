"""The report of a conversion of a JSON Schema: the schema in another dialect, and what it has lost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.json_values import Json, Path, json_pointer, path_keys


class SchemaChange(Struct, frozen=True):
    """One change of a conversion, or one finding of a check, with its place in the original schema."""

    path: Path
    what: str

    @property
    def pointer(self) -> str:
        return json_pointer(self.path)

    def path_from(self, root: Path) -> Path:
        """The place in the body that contains the schema at `root`."""
        return reduce(lambda parent, key: (parent, key), path_keys(self.path), root)


class ConvertedSchema(Struct, frozen=True):
    """A schema in another dialect. If there is nothing to convert, it is the same object. Exact equivalents (`STRING`
    for `string`) are not reported as changes. `restore_arguments` uses `renames` and `wrapper_property`."""

    schema: Json
    changes: tuple[SchemaChange, ...] = ()
    renames: Mapping[str, str] = EMPTY_MAPPING
    """The original name of each renamed property, by its new name."""
    wrapper_property: str = ""
    """The property that contains the whole value, if the root of the schema was not an object."""
    optional_in: Json = None
    """The schema in which some properties are still optional, if they became required ones that may be null."""

    @property
    def changes_arguments(self) -> bool:
        """Must arguments for this schema be restored?"""
        return bool(self.renames or self.wrapper_property) or self.optional_in is not None
