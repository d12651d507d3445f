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

from toolwire import ids
from toolwire.ir import Call, Part, Request, Result, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.room import Rules
from toolwire.steps.survey import Survey


class _Pairing:
    """Walks a history and gives every call its id and every result the id of its call."""

    def __init__(self, rules: Rules, ledger: Ledger) -> None:
        self.rules = rules
        self.ledger = ledger
        self.used: set[str] = set()
        self.latest: dict[str, str] = {}
        self.waiting: dict[str, Call] = {}
        """Calls that have no result yet, by the ids given to them."""
        self.count = 0
        self.same = ledger.source == ledger.target
        # Another protocol's writer never gives a node back verbatim, so its origin need not be let go of.
        self.change: Callable[..., Any] = changed if self.same else replace

    def call(self, call: Call) -> Call:
        self.count += 1
        if self.same and not call.id:
            # A wire that leaves ids out pairs in its own way, and need not be told.
            return call
        given = self._id(call)
        self.used.add(given)
        self.waiting[given] = call
        if call.id:
            self.latest[call.id] = given
        if given == call.id:
            return call
        code = "id-rewritten" if call.id else "id-added"
        self.ledger.note(code, place(call), f"the call has the id `{given}`")
        altered: Call = self.change(call, id=given)
        return altered

    def _id(self, call: Call) -> str:
        rules = self.rules
        if not call.id:
            # Its number in the conversation: stable while the history grows.
            return self._unique(self._legal(f"call_{self.count:04d}"))
        if call.id in self.used and ids.legal(call.id, rules.id_pattern, rules.id_limit):
            return self._unique(ids.rewritten(call.id, rules.id_pattern, rules.id_limit, f"#{self.count}"))
        return self._unique(self._legal(call.id))

    def _legal(self, id: str) -> str:
        """The id, or another one. What was spelled for a client is its provider's own again, or as good as any."""
        rules = self.rules
        own = ids.unspelled(id)
        if own and ids.legal(own, rules.id_pattern, rules.id_limit):
            return own
        if ids.legal(id, rules.id_pattern, rules.id_limit):
            return id
        return ids.rewritten(id, rules.id_pattern, rules.id_limit)

    def _unique(self, id: str) -> str:
        number = 0
        unique = id
        while unique in self.used:
            number += 1
            unique = ids.rewritten(id, self.rules.id_pattern, self.rules.id_limit, str(number))
        return unique

    def result(self, result: Result) -> Result:
        if self.same and not result.id:
            return result
        given = self.latest.get(result.id, "") if result.id else self._claim(result.name)
        self.waiting.pop(given, None)
        if not given:
            given = self._legal(result.id or ids.rewritten("result"))
        if given == result.id:
            return result
        code = "id-rewritten" if result.id else "id-added"
        self.ledger.note(code, place(result), f"the result belongs to the call `{given}`")
        altered: Result = self.change(result, id=given)
        return altered

    def _claim(self, name: str) -> str:
        """The call that a result without an id belongs to: first one without an id, then any of that name."""
        if len(self.waiting) == 1:
            ((given, call),) = self.waiting.items()
            return given if not name or call.name == name else ""
        fitting = [(given, call) for given, call in self.waiting.items() if not name or call.name == name]
        return next((given for given, call in fitting if not call.id), fitting[0][0] if fitting else "")


class Identified(Struct, frozen=True):
    request: Request
    used: frozenset[str]


def identified(request: Request, rules: Rules, ledger: Ledger, survey: Survey) -> Identified:
    """The request with legal and unique call ids, and the ids that are now taken."""
    calls, results = survey.calls, survey.results
    if not calls and not results:
        return Identified(request, frozenset())
    if ledger.source == ledger.target:
        calls = [call for call in calls if call.id]
        results = [result for result in results if result.id]
    taken = {call.id for call in calls}
    if len(taken) == len(calls) and _all_stay(taken, rules) and taken.issuperset([one.id for one in results]):
        return Identified(request, frozenset(taken))
    pairing = _Pairing(rules, ledger)
    turns = tuple([_turn(turn, pairing) for turn in _batched(request.turns, pairing)])
    same = all(new is old for new, old in zip(turns, request.turns, strict=True))
    return Identified(request if same else changed(request, turns=turns), frozenset(pairing.used))


def _batched(turns: tuple[Turn, ...], pairing: _Pairing) -> Iterator[Turn]:
    """The turns; calls that nobody answered are no longer waited for when the next ones are made, so that a result
    without an id never goes to a call that was given up long ago."""
    fresh = True
    for turn in turns:
        if turn.role != "assistant":
            fresh = True
        elif fresh and any(type(part) is Call for part in turn.parts):
            pairing.waiting.clear()
            fresh = False
        yield turn


_is_spelled = re.compile(ids.SPELLED).match


def _all_stay(taken: set[str], rules: Rules) -> bool:
    if not taken:
        return True
    fit = "" not in taken and max(map(len, taken)) <= rules.id_limit
    return fit and all(map(rules.id_pattern.fullmatch, taken)) and not any(map(_is_spelled, taken))


def _turn(turn: Turn, pairing: _Pairing) -> Turn:
    parts: list[Part] = []
    altered = False
    for part in turn.parts:
        kind = type(part)
        new = part
        if kind is Call:
            new = pairing.call(part)  # type: ignore[arg-type]
        elif kind is Result:
            new = pairing.result(part)  # type: ignore[arg-type]
        altered = altered or new is not part
        parts.append(new)
    if not altered:
        return turn
    paired: Turn = pairing.change(turn, parts=tuple(parts))
    return paired
