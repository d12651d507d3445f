"""Where servers differ: bodies bent to what they take. A body is never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.loss import Ledger
from toolwire.room import Quirk
from toolwire.wire import Json, Object

CALL = ("functionCall", "function_call")
RESULT = ("functionResponse", "function_response")


def no_ids(body: Object, _model: str, ledger: Ledger) -> Object:
    """Calls and results without ids: such a server pairs them by their order, so results follow their calls'."""
    contents = body.get("contents")
    if not isinstance(contents, list):
        return body
    order: dict[str, int] = {}
    out: list[Json] = []
    for number, content in enumerate(contents):
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list) or not any(_id(part) for part in parts):
            out.append(content)
            continue
        _learn(parts, order)
        where = ((None, "contents"), number) if ledger.source == ledger.target else None
        ledger.note("no-counterpart", where, "the ids of calls and results were left out", "this server refuses ids")
        out.append(content | {"parts": [_bare(part) for part in _sorted(parts, order)]})
    return body if all(new is old for new, old in zip(out, contents, strict=True)) else body | {"contents": out}


def _inner(part: Json, names: tuple[str, ...]) -> tuple[str, Object] | None:
    if not isinstance(part, dict):
        return None
    return next(((key, part[key]) for key in names if isinstance(part.get(key), dict)), None)


def _id(part: Json) -> bool:
    found = _inner(part, CALL + RESULT)
    return found is not None and "id" in found[1]


def _bare(part: Json) -> Json:
    found = _inner(part, CALL + RESULT)
    if found is None or "id" not in found[1]:
        return part
    key, inner = found
    return part | {key: {name: value for name, value in inner.items() if name != "id"}}


def _learn(parts: list[Json], order: dict[str, int]) -> None:
    for part in parts:
        call = _inner(part, CALL)
        if call is not None and isinstance(call[1].get("id"), str):
            order[call[1]["id"]] = len(order)


def _sorted(parts: list[Json], order: dict[str, int]) -> list[Json]:
    """Results in the order of their calls, at the places where results stand."""
    found = [(place, result[1]) for place, part in enumerate(parts) if (result := _inner(part, RESULT)) is not None]
    ranks = [order.get(inner.get("id"), len(order)) for _, inner in found]  # type: ignore[arg-type]
    out = list(parts)
    by_rank = sorted(range(len(found)), key=ranks.__getitem__)
    for (place, _), chosen in zip(found, by_rank, strict=True):
        out[place] = parts[found[chosen][0]]
    return out


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "no-ids": Quirk(about="`id` is refused in calls and results, as older servers do", body=no_ids),
        "no-hosted-tools": Quirk(about="runs no tools itself: no search, no fetch, no code", rules={"hosted": False}),
    }
)
