"""Calls whose arguments come in pieces, each with its JSON path (the cloud platform streams them so)."""

from __future__ import annotations

import re

from toolwire.protocols.gemini.names import PARTIAL
from toolwire.wire import Json, Malformed, Object, Path, as_list, as_object, decode, encode_text, take_text

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_MAX_INDEX = 100_000


class Fragments:
    """The arguments of one open call, put together from its pieces."""

    __slots__ = ("_leaves", "_whole")

    def __init__(self) -> None:
        self._whole: Object = {}
        self._leaves: dict[str, list[str] | tuple[Json]] = {}

    def add(self, call: Object, path: Path) -> None:
        """Take the pieces that one `functionCall` (in camelCase) brings."""
        args = call.get("args")
        if isinstance(args, dict):
            self._whole.update(args)
        for number, item in enumerate(as_list(call.get("partialArgs") or [], (path, "partialArgs"))):
            here = ((path, "partialArgs"), number)
            self._piece(PARTIAL(as_object(item, here)), here)

    def _piece(self, piece: Object, path: Path) -> None:
        where = take_text(piece, "jsonPath", path) or "$"
        text = take_text(piece, "stringValue", path)
        if text is None:
            found = [piece[key] for key in ("numberValue", "boolValue") if piece.get(key) is not None]
            self._leaves[where] = (found[0] if found else None,)
            return
        leaf = self._leaves.get(where)
        if isinstance(leaf, list):
            leaf.append(text)
        else:
            self._leaves[where] = [text]

    @property
    def empty(self) -> bool:
        return not self._whole and not self._leaves

    def text(self, path: Path) -> str:
        """The arguments so far as JSON text."""
        if self.empty:
            return ""
        root: Object = decode(encode_text(self._whole)) if self._whole else {}
        for where, leaf in self._leaves.items():
            steps = _steps(where, path)
            _put(root, steps, "".join(leaf) if isinstance(leaf, list) else leaf[0], where, path)
        return encode_text(root)


def _steps(where: str, path: Path) -> list[str | int]:
    steps: list[str | int] = []
    at = 1 if where.startswith("$") else 0
    if at == 0:
        where = f".{where}"
    while at < len(where):
        found = _STEP.match(where, at)
        if found is None:
            raise Malformed(path, f"the JSON path {where!r} cannot be read")
        name, index, single, double = found.groups()
        if index is not None:
            steps.append(min(int(index), _MAX_INDEX))
        else:
            quoted = single if single is not None else double
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return steps


def _put(root: Object, steps: list[str | int], value: Json, where: str, path: Path) -> None:
    if not steps:
        raise Malformed(path, f"the JSON path {where!r} names no argument")
    node: Json = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last = following is None
        fresh: Json = value if last else [] if isinstance(following, int) else {}
        if isinstance(step, int) and isinstance(node, list):
            node.extend([None] * (step + 1 - len(node)))
        elif not (isinstance(step, str) and isinstance(node, dict)):
            raise Malformed(path, f"the JSON path {where!r} does not fit what came before it")
        held = node[step] if isinstance(step, int) else node.get(step)
        if last or held is None:
            node[step] = held = fresh
        node = held
