"""Call ids: legal, unique over the whole conversation, the same on a call and its result.

A legal, unique id passes unchanged. Another one is replaced by one that depends on nothing but the history before it,
so that the same history always gives the same bytes. Results without an id are paired by name and order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Constraints
from toolwire.core.ir import Call, Part, Request, Result, Turn, replace_fields, source_path
from toolwire.core.losses import Ledger
from toolwire.translation.request_steps.request_features import RequestFeatures


class _CallIds:
    """Walks a history and gives every call its id and every result the id of its call."""

    def __init__(self, constraints: Constraints, ledger: Ledger) -> None:
        self.constraints = constraints
        self.ledger = ledger
        self.used_ids: set[str] = set()
        self.latest_ids: dict[str, str] = {}
        self.unanswered: dict[str, Call] = {}
        """Calls that have no result yet, by the ids given to them."""
        self.call_count = 0
        self.is_same_protocol = ledger.source == ledger.target
        # Another protocol's writer never gives a node back verbatim, so its origin need not be let go of.
        self.change_node: Callable[..., Any] = replace_fields if self.is_same_protocol else replace

    def normalise_call(self, call: Call) -> Call:
        self.call_count += 1
        if self.is_same_protocol and not call.id:
            # A wire that leaves ids out pairs in its own way, and need not be told.
            return call
        given = self._choose_id(call)
        self.used_ids.add(given)
        self.unanswered[given] = call
        if call.id:
            self.latest_ids[call.id] = given
        if given == call.id:
            return call
        code = "id-rewritten" if call.id else "id-added"
        self.ledger.note(code, source_path(call), f"the call has the id `{given}`")
        altered: Call = self.change_node(call, id=given)
        return altered

    def _choose_id(self, call: Call) -> str:
        rules = self.constraints
        if not call.id:
            # Its number in the conversation: stable while the history grows.
            return self._unique_id(self._legal_id(f"call_{self.call_count:04d}"))
        if call.id in self.used_ids and ids.is_legal_id(call.id, rules.call_id_pattern, rules.max_call_id_length):
            return self._unique_id(
                ids.make_legal_id(call.id, rules.call_id_pattern, rules.max_call_id_length, f"#{self.call_count}")
            )
        return self._unique_id(self._legal_id(call.id))

    def _legal_id(self, id: str) -> str:
        """The id, or another one. What was spelled for a client is its provider's own again, or as good as any."""
        rules = self.constraints
        own = ids.unescape_id(id)
        if own and ids.is_legal_id(own, rules.call_id_pattern, rules.max_call_id_length):
            return own
        if ids.is_legal_id(id, rules.call_id_pattern, rules.max_call_id_length):
            return id
        return ids.make_legal_id(id, rules.call_id_pattern, rules.max_call_id_length)

    def _unique_id(self, id: str) -> str:
        number = 0
        unique = id
        while unique in self.used_ids:
            number += 1
            unique = ids.make_legal_id(
                id, self.constraints.call_id_pattern, self.constraints.max_call_id_length, str(number)
            )
        return unique

    def normalise_result(self, result: Result) -> Result:
        if self.is_same_protocol and not result.id:
            return result
        given = self.latest_ids.get(result.id, "") if result.id else self._find_call_id(result.name)
        self.unanswered.pop(given, None)
        if not given:
            given = self._legal_id(result.id or ids.make_legal_id("result"))
        if given == result.id:
            return result
        code = "id-rewritten" if result.id else "id-added"
        self.ledger.note(code, source_path(result), f"the result belongs to the call `{given}`")
        altered: Result = self.change_node(result, id=given)
        return altered

    def _find_call_id(self, name: str) -> str:
        """The call that a result without an id belongs to: first one without an id, then any of that name."""
        if len(self.unanswered) == 1:
            ((given, call),) = self.unanswered.items()
            return given if not name or call.name == name else ""
        fitting = [(given, call) for given, call in self.unanswered.items() if not name or call.name == name]
        return next((given for given, call in fitting if not call.id), fitting[0][0] if fitting else "")


class NormalisedIds(Struct, frozen=True):
    request: Request
    used_ids: frozenset[str]


def normalise_call_ids(
    request: Request, constraints: Constraints, ledger: Ledger, features: RequestFeatures
) -> NormalisedIds:
    """The request with legal and unique call ids, and the ids that are now taken."""
    calls, results = features.calls, features.results
    if not calls and not results:
        return NormalisedIds(request, frozenset())
    if ledger.source == ledger.target:
        calls = [call for call in calls if call.id]
        results = [result for result in results if result.id]
    taken = {call.id for call in calls}
    if (
        len(taken) == len(calls)
        and _are_all_legal(taken, constraints)
        and taken.issuperset([one.id for one in results])
    ):
        return NormalisedIds(request, frozenset(taken))
    pairing = _CallIds(constraints, ledger)
    turns = tuple([_normalise_turn(turn, pairing) for turn in _clear_unanswered_calls(request.turns, pairing)])
    same = all(new is old for new, old in zip(turns, request.turns, strict=True))
    return NormalisedIds(request if same else replace_fields(request, turns=turns), frozenset(pairing.used_ids))


def _clear_unanswered_calls(turns: tuple[Turn, ...], call_ids: _CallIds) -> Iterator[Turn]:
    """The turns; calls that nobody answered are no longer waited for when the next ones are made, so that a result
    without an id never goes to a call that was given up long ago."""
    fresh = True
    for turn in turns:
        if turn.role != "assistant":
            fresh = True
        elif fresh and any(type(part) is Call for part in turn.parts):
            call_ids.unanswered.clear()
            fresh = False
        yield turn


_is_escaped_id = re.compile(ids.ESCAPE_PREFIX).match


def _are_all_legal(used_ids: set[str], constraints: Constraints) -> bool:
    if not used_ids:
        return True
    fit = "" not in used_ids and max(map(len, used_ids)) <= constraints.max_call_id_length
    return fit and all(map(constraints.call_id_pattern.fullmatch, used_ids)) and not any(map(_is_escaped_id, used_ids))


def _normalise_turn(turn: Turn, call_ids: _CallIds) -> Turn:
    parts: list[Part] = []
    altered = False
    for part in turn.parts:
        kind = type(part)
        new = part
        if kind is Call:
            new = call_ids.normalise_call(part)  # type: ignore[arg-type]
        elif kind is Result:
            new = call_ids.normalise_result(part)  # type: ignore[arg-type]
        altered = altered or new is not part
        parts.append(new)
    if not altered:
        return turn
    paired: Turn = call_ids.change_node(turn, parts=tuple(parts))
    return paired
