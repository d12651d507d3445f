"""Local references: what they point at, how much may be copied from there, and how they follow what moves."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from toolwire.schema.combine import NOTHING_FITS, both
from toolwire.schema.words import ANNOTATIONS, REFERENCES, Notes, below, mapped, spelled
from toolwire.wire import Json, Object, Path, encode

BUDGET = 400_000
"""Characters that references may copy into one schema; a few definitions that point at each other could else make
gigabytes out of a kilobyte."""
FEE = 300
"""What a copy costs besides its length, so that tiny ones end too."""


_QUOTED = re.compile(rb"%([0-9a-fA-F]{2})")


def _unquoted(fragment: str) -> str:
    """A fragment of a URI without its escapes; urllib's own would cost more to import than all of this package."""
    if "%" not in fragment:
        return fragment
    raw = fragment.encode("utf-8", "surrogatepass")
    return _QUOTED.sub(lambda found: bytes([int(found[1], 16)]), raw).decode("utf-8", "replace")


class Lookup:
    """Finds what a reference inside one schema points at."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.left = BUDGET
        self._sizes: dict[int, int] = {}
        self._anchors: dict[str, tuple[Json, Path]] | None = None

    def spend(self, cost: int) -> bool:
        """Pay for a copy; False when the budget is used up."""
        self.left -= cost
        return self.left >= 0

    def price(self, target: Json) -> int:
        size = self._sizes.get(id(target))
        if size is None:
            try:
                size = len(encode(target))
            except (RecursionError, UnicodeError, TypeError, msgspec.EncodeError):
                size = BUDGET
            self._sizes[id(target)] = size
        return size + FEE

    def find(self, reference: Json) -> tuple[Json, Path] | None:
        """The schema that a reference points at, with its place; None when there is none here."""
        if not isinstance(reference, str):
            return None
        base, _, fragment = reference.partition("#")
        if base and not (isinstance(self.root, dict) and self.root.get("$id") in (base, base + "#")):
            return self.anchors().get(reference)
        if not fragment:
            return self.root, None
        if not fragment.startswith("/"):
            return self.anchors().get(f"#{fragment}")
        return self._walk(_unquoted(fragment))

    def _walk(self, fragment: str) -> tuple[Json, Path] | None:
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

    def anchors(self) -> dict[str, tuple[Json, Path]]:
        """Named places: `$anchor` as `#name`, and embedded schemas by their `$id`."""
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
                todo.extend(below(node, path))
        return self._anchors


_IDENTITY = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema"})


def resolved(
    lookup: Lookup, node: Object, path: Path, opened: frozenset[int], notes: Notes, again: Callable[[Json], Object]
) -> tuple[Object, Path, frozenset[int]]:
    """A copy of the node in which what its reference points at stands beside its own keywords, again and again until no
    reference is left; the place it mostly stands at; and what is open now. `again` is written for a target that is
    open already, or that would copy too much."""
    out = dict(node)
    while (key := next((key for key in REFERENCES if key in out), None)) is not None:
        reference = out.pop(key)
        note = notes.there((path, key))
        found = lookup.find(reference)
        if found is None:
            note(f"{spelled(reference, 100)} points nowhere and was left out")
            continue
        target, place = found
        if id(target) in opened:
            note("the schema refers to itself; the repetition was cut off")
            out = dict(both(out, again(target), note))
        elif not lookup.spend(lookup.price(target)):
            note("the references copy too much; what is more was cut off")
            out = dict(both(out, again(target), note))
        elif target is False:
            out["type"] = NOTHING_FITS
        elif isinstance(target, dict):
            opened |= {id(target)}
            path = place if ANNOTATIONS.issuperset(out) else path
            out = dict(both(out, {name: value for name, value in target.items() if name not in _IDENTITY}, note))
    return out, path, opened


def references(schema: Json) -> set[str]:
    """Every reference that stands inside a schema."""
    found: set[str] = set()
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            found.update(node[key] for key in REFERENCES if isinstance(node.get(key), str))
            todo.extend(child for child, _ in below(node))
    return found


def repointed(schema: Json, move: Callable[[str], str]) -> Json:
    """The schema with its references spelled anew; the same object when none moved."""

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict):
            return node
        out: Object = mapped(node, path, convert)
        for key in REFERENCES:
            old = node.get(key)
            if isinstance(old, str) and (new := move(old)) != old:
                out = dict(out) if out is node else out
                out[key] = new
        return out

    return convert(schema, None)


def step(key: str) -> str:
    """A key as one step of a reference."""
    return key.replace("~", "~0").replace("/", "~1").replace("%", "%25")
