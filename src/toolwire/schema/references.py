"""Local references (`$ref`): their targets, inlining with a limit on copies, and rewriting."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from toolwire.core.json_values import Json, Object, Path, encode
from toolwire.schema.combine import UNSATISFIABLE_TYPE, intersect_schemas
from toolwire.schema.keywords import (
    ANNOTATION_KEYWORDS,
    REFERENCE_KEYWORDS,
    ChangeLog,
    convert_inner_schemas,
    inner_schemas,
    short_json,
)

COPY_BUDGET = 400_000
"""Maximum number of characters that references copy into one schema. Without a limit, a few definitions that refer to
each other could turn a kilobyte into gigabytes."""
COPY_FEE = 300
"""The fixed cost of a copy, so that the number of small copies is limited, too."""


_PERCENT_ESCAPE = re.compile(rb"%([0-9a-fA-F]{2})")


def _unquote_fragment(fragment: str) -> str:
    """Decode a URI fragment. `urllib.parse` would take longer to import than this whole package."""
    if "%" not in fragment:
        return fragment
    raw = fragment.encode("utf-8", "surrogatepass")
    return _PERCENT_ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), raw).decode("utf-8", "replace")


class ReferenceLookup:
    """Finds the targets of references in one schema, and limits how much is copied from them."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.remaining_budget = COPY_BUDGET
        self._sizes: dict[int, int] = {}
        self._anchors: dict[str, tuple[Json, Path]] | None = None

    def spend_budget(self, cost: int) -> bool:
        """Subtract the cost of a copy; False if the budget is used up."""
        self.remaining_budget -= cost
        return self.remaining_budget >= 0

    def copy_cost(self, target: Json) -> int:
        size = self._sizes.get(id(target))
        if size is None:
            try:
                size = len(encode(target))
            except (RecursionError, UnicodeError, TypeError, msgspec.EncodeError):
                size = COPY_BUDGET
            self._sizes[id(target)] = size
        return size + COPY_FEE

    def find_target(self, reference: Json) -> tuple[Json, Path] | None:
        """The schema that a reference points at, with its path; None if it is not in this schema."""
        if not isinstance(reference, str):
            return None
        base, _, fragment = reference.partition("#")
        if base and not (isinstance(self.root, dict) and self.root.get("$id") in (base, base + "#")):
            return self.find_anchors().get(reference)
        if not fragment:
            return self.root, None
        if not fragment.startswith("/"):
            return self.find_anchors().get(f"#{fragment}")
        return self._walk_pointer(_unquote_fragment(fragment))

    def _walk_pointer(self, fragment: str) -> tuple[Json, Path] | None:
        node: Json = self.root
        path: Path = None
        for key in fragment.split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node, path = node[key], (path, key)
            elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 7 and int(key) < len(node):
                node, path = node[int(key)], (path, int(key))
            else:
                return None
        return (node, path) if isinstance(node, (dict, bool)) else None

    def find_anchors(self) -> dict[str, tuple[Json, Path]]:
        """The schemas with an `$anchor` (as `#name`) or an `$id`."""
        if self._anchors is None:
            self._anchors = {}
            todo: list[tuple[Json, Path]] = [(self.root, None)]
            while todo:
                node, path = todo.pop()
                if not isinstance(node, dict):
                    continue
                for key in ("$anchor", "$dynamicAnchor", "$id", "id"):
                    name = node.get(key)
                    if isinstance(name, str) and name:
                        self._anchors.setdefault(name if "nchor" not in key else f"#{name}", (node, path))
                todo.extend(inner_schemas(node, path))
        return self._anchors


_IDENTITY_KEYWORDS = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema"})


def inline_references(
    lookup: ReferenceLookup,
    node: Object,
    path: Path,
    expanding: frozenset[int],
    notes: ChangeLog,
    stub_for: Callable[[Json], Object],
) -> tuple[Object, Path, frozenset[int]]:
    """A copy of the node with its references replaced by their targets, until none is left; its path, which is the
    target's if the node had only annotations; and the schemas being expanded. `stub_for` gives the replacement for a
    target that contains itself, or that would copy too much."""
    out = dict(node)
    while (key := next((key for key in REFERENCE_KEYWORDS if key in out), None)) is not None:
        reference = out.pop(key)
        note = notes.adder_at((path, key))
        found = lookup.find_target(reference)
        if found is None:
            note(f"{short_json(reference, 100)} has no target and was left out")
            continue
        target, place = found
        if id(target) in expanding:
            note("the schema refers to itself; the recursion was cut off")
            out = dict(intersect_schemas(out, stub_for(target), note))
        elif not lookup.spend_budget(lookup.copy_cost(target)):
            note("the references copy too much; the rest was cut off")
            out = dict(intersect_schemas(out, stub_for(target), note))
        elif target is False:
            out["type"] = UNSATISFIABLE_TYPE
        elif isinstance(target, dict):
            expanding |= {id(target)}
            path = place if ANNOTATION_KEYWORDS.issuperset(out) else path
            out = dict(
                intersect_schemas(
                    out, {name: value for name, value in target.items() if name not in _IDENTITY_KEYWORDS}, note
                )
            )
    return out, path, expanding


def find_references(schema: Json) -> set[str]:
    """All references in a schema."""
    found: set[str] = set()
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            found.update(node[key] for key in REFERENCE_KEYWORDS if isinstance(node.get(key), str))
            todo.extend(child for child, _ in inner_schemas(node))
    return found


def move_references(schema: Json, move: Callable[[str], str]) -> Json:
    """The schema with its references rewritten by `move`; the same object if none changed."""

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict):
            return node
        out: Object = convert_inner_schemas(node, path, convert)
        for key in REFERENCE_KEYWORDS:
            old = node.get(key)
            if isinstance(old, str) and (new := move(old)) != old:
                out = dict(out) if out is node else out
                out[key] = new
        return out

    return convert(schema, None)


def escape_reference_key(key: str) -> str:
    """A key as one segment of a reference."""
    return key.replace("~", "~0").replace("/", "~1").replace("%", "%25")
