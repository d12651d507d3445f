"""Call ids of a request: legal for the provider, unique in the conversation, the same on a call and its result.

A legal, unique id stays. Another one is replaced by one that depends only on the history before it, so that the same
history always gives the same bytes. Results without an id (Gemini) are paired with calls by name and order.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolwire.core import ids
from toolwire.core.codec import Constraints
from toolwire.core.ir import Call, Part, Request, Result, Turn, replace_fields, source_path, with_parts, with_turns
from toolwire.core.losses import Ledger
from toolwire.translation.request_steps.request_features import RequestFeatures


class _CallIds:
    """Goes through a history and gives every call its id and every result the id of its call."""

    def __init__(self, constraints: Constraints, ledger: Ledger) -> None:
        self.constraints = constraints
        self.ledger = ledger
        self.used_ids: set[str] = set()
        self.latest_ids: dict[str, str] = {}
        """The new id of the latest call with each old id."""
        self.unanswered: dict[str, Call] = {}
        """Calls without a result so far, by their new ids."""
        self.call_count = 0
        self.is_same_protocol = ledger.is_same_protocol

    def normalise_call(self, call: Call) -> Call:
        self.call_count += 1
        if self.is_same_protocol and not call.id:
            return call  # a provider whose protocol leaves ids out pairs results itself
        id = self._choose_id(call)
        self.used_ids.add(id)
        self.unanswered[id] = call
        if call.id:
            self.latest_ids[call.id] = id
        if id == call.id:
            return call
        code = "id-rewritten" if call.id else "id-added"
        self.ledger.note(code, source_path(call), f"the call got the id `{id}`")
        return replace_fields(call, id=id)

    def _choose_id(self, call: Call) -> str:
        rules = self.constraints
        if not call.id:
            # Its number in the conversation, which stays the same while the history grows.
            return self._unique_id(self._legal_id(f"call_{self.call_count:04d}"))
        if call.id in self.used_ids and ids.is_legal_id(call.id, rules.call_id_pattern, rules.max_call_id_length):
            return self._unique_id(
                ids.make_legal_id(call.id, rules.call_id_pattern, rules.max_call_id_length, f"#{self.call_count}")
            )
        return self._unique_id(self._legal_id(call.id))

    def _legal_id(self, id: str) -> str:
        """The id itself where it is legal. One that was escaped for a client is unescaped: it is the provider's own."""
        rules = self.constraints
        original = ids.unescape_id(id)
        if original and ids.is_legal_id(original, rules.call_id_pattern, rules.max_call_id_length):
            return original
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
        id = self.latest_ids.get(result.id, "") if result.id else self._find_call_id(result.name)
        self.unanswered.pop(id, None)
        if not id:
            id = self._legal_id(result.id or ids.make_legal_id("result"))
        if id == result.id:
            return result
        code = "id-rewritten" if result.id else "id-added"
        self.ledger.note(code, source_path(result), f"the result got the id of its call, `{id}`")
        return replace_fields(result, id=id)

    def _find_call_id(self, name: str) -> str:
        """The call that a result without an id belongs to: a call of that name, preferably one without an id."""
        candidates = [(id, call) for id, call in self.unanswered.items() if not name or call.name == name]
        return next((id for id, call in candidates if not call.id), candidates[0][0] if candidates else "")


def normalise_call_ids(
    request: Request, constraints: Constraints, ledger: Ledger, features: RequestFeatures
) -> tuple[Request, frozenset[str]]:
    """The request with legal and unique call ids, and all ids that are in use."""
    calls, results = features.calls, features.results
    if ledger.is_same_protocol:
        calls = [call for call in calls if call.id]
        results = [result for result in results if result.id]
    used_ids = {call.id for call in calls}
    if (
        len(used_ids) == len(calls)
        and _are_all_legal(used_ids, constraints)
        and used_ids.issuperset([result.id for result in results])
    ):
        return request, frozenset(used_ids)
    call_ids = _CallIds(constraints, ledger)
    turns = [_normalise_turn(turn, call_ids) for turn in _clear_unanswered_calls(request.turns, call_ids)]
    return with_turns(request, turns), frozenset(call_ids.used_ids)


def _clear_unanswered_calls(turns: tuple[Turn, ...], call_ids: _CallIds) -> Iterator[Turn]:
    """The turns. Unanswered calls are forgotten when the assistant makes new ones, so that a result without an id is
    never paired with a call that was abandoned earlier."""
    is_new_batch = True
    for turn in turns:
        if turn.role != "assistant":
            is_new_batch = True
        elif is_new_batch and any(type(part) is Call for part in turn.parts):
            call_ids.unanswered.clear()
            is_new_batch = False
        yield turn


def _are_all_legal(used_ids: set[str], constraints: Constraints) -> bool:
    """Can all ids stay as they are?"""
    limit, fits = constraints.max_call_id_length, constraints.call_id_pattern.fullmatch
    return all(0 < len(id) <= limit and fits(id) and not id.startswith(ids.ESCAPE_PREFIX) for id in used_ids)


def _normalise_turn(turn: Turn, call_ids: _CallIds) -> Turn:
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Call):
            part = call_ids.normalise_call(part)
        elif isinstance(part, Result):
            part = call_ids.normalise_result(part)
        parts.append(part)
    return with_parts(turn, parts)
