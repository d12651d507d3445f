"""The order of a history: results beside their calls, neighbours joined, nothing without its counterpart.

Works on whole turns: first the results are taken out of wherever the source keeps them, then they are put back where
the target wants them, each batch directly behind the turn that made the calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from toolwire.ir import Call, Origin, Part, Request, Result, Role, Text, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.room import Rules

UNAVAILABLE = "The result of this call is not available."
CONTINUE = "Continue."


class _Batch:
    """What an assistant says in one go, its calls, and their results."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.calls: dict[str, Call] = {}
        self.results: dict[str, Result] = {}

    def waits(self) -> bool:
        return len(self.results) < len(self.calls)


def ordered(request: Request, rules: Rules, ledger: Ledger) -> Request:
    """The request with every result where the target wants it."""
    same = ledger.source == ledger.target
    if lawful(request.turns, rules, same) or (same and request.continues):
        return request
    return _anew(request, rules, ledger, same)


def alternating(request: Request, rules: Rules, ledger: Ledger) -> Request:
    """The same for a request without calls: only turns side by side may have to be one."""
    return _anew(request, rules, ledger, False) if _has_neighbours(request.turns, rules.joins) else request


def _anew(request: Request, rules: Rules, ledger: Ledger, same: bool) -> Request:
    turns = _mended(request.turns, rules, ledger) if same else _regular(request.turns, rules, ledger)
    if turns is None:
        turns = _placed(_gathered(request.turns, ledger), rules, ledger)
    return changed(request, turns=tuple(turns))


def _has_neighbours(turns: tuple[Turn, ...], joins: frozenset[str]) -> bool:
    """Do turns of one role stand side by side that must be one?"""
    last = ""
    for turn in turns:
        role = turn.role
        if role == last and role in joins:
            return True
        last = role
    return False


def _mended(turns: tuple[Turn, ...], rules: Rules, ledger: Ledger) -> list[Turn]:
    """A history of the target's own protocol: only those steps are placed anew in which something is wrong, so that
    all others go out as they came, and as they went out before."""
    mended: list[Turn] = []
    for step in _steps(turns):
        whole = lawful(step, rules, True) or _unnamed(step)
        mended += step if whole else _placed(_gathered(step, ledger), rules, ledger)
    return mended


def _steps(turns: tuple[Turn, ...]) -> list[tuple[Turn, ...]]:
    """What the assistant said in one go, and all up to what it said next. Steps that a late result ties together count
    as one."""
    steps: list[tuple[Turn, ...]] = [()]
    owners: dict[str, int] = {}
    for number, turn in enumerate(turns):
        if turn.role == "assistant" and number and turns[number - 1].role != "assistant":
            steps.append(())
        for part in turn.parts:
            if type(part) is Call:
                owners[part.id] = len(steps) - 1
            elif type(part) is Result and owners.get(part.id, len(steps)) < len(steps) - 1:
                first = owners[part.id]
                steps[first:] = [tuple(one for step in steps[first:] for one in step)]
                owners.update({id: first for id, owner in owners.items() if owner > first})
        steps[-1] += (turn,)
    return steps


def _unnamed(turns: tuple[Turn, ...]) -> bool:
    """Are there calls or results without an id, which a wire pairs by their order?"""
    return any(isinstance(part, (Call, Result)) and not part.id for turn in turns for part in turn.parts)


def _regular(turns: tuple[Turn, ...], rules: Rules, ledger: Ledger) -> list[Turn] | None:
    """The history placed anew when it is a regular one: every batch of calls directly followed by all its results.

    Most are, so this way is short; None when anything is out of the ordinary.
    """
    placed: list[Turn] = []
    batch: list[str] = []
    results: dict[str, Result] = {}
    role: Role = "user" if rules.results == "user" else "tool"
    for turn in turns:
        if not batch:
            if not _take_calls(turn, batch):
                return None
            _append(turn, placed, rules, ledger)
            continue
        if len(batch) == len(turn.parts) == 1 and _answers_one(turn, batch[0]):
            placed.append(turn if turn.role == role else Turn(role, turn.parts, origin=turn.origin))
            batch = []
            continue
        found = _take_results(turn, results)
        rest = turn.parts[found:]
        if not found or turn.role == "assistant" or (rest and len(results) < len(batch)):
            return None
        if len(results) < len(batch):
            continue
        if results.keys() != set(batch) or any(type(part) is Result for part in rest):
            return None
        _place_results(tuple([results[id] for id in batch]), rest, turn, placed, rules)
        batch, results = [], {}
    return None if batch else placed


def _take_calls(turn: Turn, batch: list[str]) -> bool:
    """Gather the calls of a turn; False when something stands there that a regular history does not have."""
    for part in turn.parts:
        if type(part) is Call:
            batch.append(part.id)
        elif type(part) is Result:
            return False
    return len(batch) < 2 or len(set(batch)) == len(batch)


def _answers_one(turn: Turn, id: str) -> bool:
    """Is the one part of this turn the result of the one call that waits?"""
    part = turn.parts[0]
    return type(part) is Result and part.id == id and turn.role != "assistant"


def _take_results(turn: Turn, results: dict[str, Result]) -> int:
    """Gather the results that stand first in a turn, and say how many they are."""
    found = 0
    for part in turn.parts:
        if type(part) is not Result:
            break
        results[part.id] = part
        found += 1
    return found


def _place_results(
    results: tuple[Part, ...], rest: tuple[Part, ...], turn: Turn, placed: list[Turn], rules: Rules
) -> None:
    if rules.results == "user":
        placed.append(Turn("user", results + rest, origin=turn.origin))
        return
    placed.extend([Turn("tool", (result,), origin=turn.origin) for result in results])
    if rest:
        placed.append(Turn("user", rest, turn.name, origin=turn.origin))


def lawful(turns: tuple[Turn, ...], rules: Rules, same: bool) -> bool:
    """Does the history already stand as the target wants it? Told in one pass, because most do."""
    waiting: dict[str, None] = {}
    seen: set[str] = set()
    last = ""
    wanted = "tool" if rules.results == "turns" else "user"
    joins: frozenset[str] = frozenset() if same else rules.joins
    for turn in turns:
        role, parts = turn.role, turn.parts
        if role == last and role in joins:
            return False
        if role == "assistant":
            if waiting and last != "assistant":
                return False
            for part in parts:
                if type(part) is Call and not part.later:
                    if part.id in seen:
                        return False
                    seen.add(part.id)
                    waiting[part.id] = None
        elif not _answers(parts, waiting, same, same or (role == wanted and (role != "tool" or len(parts) == 1))):
            return False
        last = role
    return not waiting


def _answers(parts: tuple[Part, ...], waiting: dict[str, None], any_order: bool, placed: bool) -> bool:
    """Do results stand first, each for a call that waits? A turn without any must not come while calls wait."""
    results = 0
    for position, part in enumerate(parts):
        if type(part) is Result:
            if position != results or not placed or part.id not in waiting:
                return False
            if not any_order and part.id != next(iter(waiting)):
                return False
            del waiting[part.id]
            results += 1
    return bool(results) or not waiting


def _gathered(turns: Iterable[Turn], ledger: Ledger) -> list[_Batch | Turn]:
    """The history without its results, each result in the batch of its call; those without a call become text."""
    history: list[_Batch | Turn] = []
    owners: dict[str, _Batch] = {}
    for turn in turns:
        if turn.role == "assistant":
            _add_assistant(turn, history, owners)
            continue
        results = [part for part in turn.parts if isinstance(part, Result)]
        if not results:
            history.append(turn)
            continue
        orphans = [result for result in results if not _claimed(result, owners, history, ledger)]
        words: list[Part] = [part for result in orphans for part in _as_text(result, ledger)]
        rest = (*words, *(part for part in turn.parts if not isinstance(part, Result)))
        if rest:
            history.append(changed(turn, parts=rest, role="user"))
    return history


def _add_assistant(turn: Turn, history: list[_Batch | Turn], owners: dict[str, _Batch]) -> None:
    calls = {part.id: part for part in turn.parts if isinstance(part, Call)}
    last = history[-1] if history else None
    # What an assistant says between its calls and their results belongs to the turn of the calls.
    goes_on = isinstance(last, _Batch) and (not last.results or (last.waits() and not calls))
    batch = last if goes_on and isinstance(last, _Batch) else _Batch()
    if batch is not last:
        history.append(batch)
    batch.turns.append(turn)
    batch.calls.update(calls)
    owners.update(dict.fromkeys(calls, batch))


def _claimed(result: Result, owners: dict[str, _Batch], history: list[_Batch | Turn], ledger: Ledger) -> bool:
    batch = owners.get(result.id)
    if batch is None or result.id in batch.results:
        return False
    batch.results[result.id] = result
    if history[-1] is not batch:
        ledger.note(
            "turn-moved", place(result), f"the result of `{result.name or result.id}` was moved behind its call"
        )
    return True


def _as_text(result: Result, ledger: Ledger) -> tuple[Part, ...]:
    """A result that has no call any more, as something the model can still read."""
    ledger.note("result-as-text", place(result), f"the result `{result.name or result.id}` has no call, it became text")
    label = (
        f"[Result of an earlier call of `{result.name}`]"
        if result.name
        else f"[Result of the earlier call {result.id}]"
    )
    return (Text(label, origin=None), *result.content)


def _placed(history: list[_Batch | Turn], rules: Rules, ledger: Ledger) -> list[Turn]:
    turns: list[Turn] = []
    for entry in history:
        if isinstance(entry, Turn):
            _append(entry, turns, rules, ledger)
            continue
        for turn in entry.turns:
            _append(turn, turns, rules, ledger)
        results = tuple(_complete(entry, rules, ledger))
        if rules.results == "turns":
            turns.extend(_result_turn("tool", (result,)) for result in results)
        elif results:
            turns.append(_result_turn("user", results))
    return turns


def _append(turn: Turn, turns: list[Turn], rules: Rules, ledger: Ledger) -> None:
    if turns and turn.role in rules.joins and turns[-1].role == turn.role and ledger.source != ledger.target:
        turns[-1] = joined(turns[-1], turn, ledger)
    else:
        turns.append(turn)


def _complete(batch: _Batch, rules: Rules, ledger: Ledger) -> list[Result]:
    """The results of a batch in the order of its calls, with one made up for every call that has none."""
    results = []
    for id, call in batch.calls.items():
        result = batch.results.get(id)
        if result is None:
            if not rules.fills_orphans or call.later:
                continue
            ledger.note(
                "result-added", place(call), f"the call of `{call.name}` had no result, it got one that says so"
            )
            failed = True if rules.result_error == "flag" else None
            result = Result(id, (Text(UNAVAILABLE),), failed, call.name, call.kind, call.namespace)
        results.append(result)
    return results


def _result_turn(role: Role, results: tuple[Result, ...]) -> Turn:
    origin = results[0].origin
    at = Origin(origin.protocol, origin.path, None, intact=False) if origin is not None else None
    return Turn(role, results, origin=at)


def joined(first: Turn, second: Turn, ledger: Ledger) -> Turn:
    """Two neighbours of one role as one turn."""
    if second.name and second.name != first.name:
        ledger.note("no-counterpart", place(second), f"the name `{second.name}` of a joined turn was left out")
    origin = first.origin
    bare = replace(origin, wire=None, intact=False) if origin is not None else None
    return replace(first, parts=first.parts + second.parts, origin=bare, phase=first.phase or second.phase)


def begun(request: Request, ledger: Ledger) -> Request:
    """The request with a user's turn first, for targets that demand one."""
    turns = request.turns
    if not turns or turns[0].role == "user" or ledger.source == ledger.target:
        return request
    position = next((n for n, turn in enumerate(turns) if turn.role not in ("system", "developer")), None)
    if position is None or turns[position].role == "user":
        return request
    ledger.note("turn-added", place(turns[position]), "a user's turn was put before the first turn of the assistant")
    begin = Turn("user", (Text(CONTINUE),))
    return changed(request, turns=(*turns[:position], begin, *turns[position:]))
