"""Calls and results of the history: legal and unique call ids, every result directly after its call, consecutive turns
of one role merged, the user first.

A legal, unique id stays. Another one is replaced by one that depends only on the history before it, so that the same
history always gives the same bytes. Results without an id (Gemini) are paired with calls by name and order.

Anthropic and Gemini want all results of a batch of calls at the start of one user turn, OpenAI one turn for each. A
call without a result gets one that says so; a result without a call becomes text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise, repeat, takewhile
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    Call,
    Origin,
    Part,
    Request,
    Result,
    Role,
    Text,
    Turn,
    replace_fields,
    source_path,
    with_parts,
    with_turns,
    without_wire,
)
from toolwire.core.losses import Ledger
from toolwire.translation.request_steps.turn_content import CONTINUE, RequestFeatures

_ID_OF = attrgetter("id")


class _CallIds(Struct, eq=False):
    """Goes through a history and gives every call its id and every result the id of its call."""

    constraints: Constraints
    ledger: Ledger
    used_ids: set[str] = set()
    latest_ids: dict[str, str] = {}
    """The new id of the latest call with each old id."""
    unanswered: set[str] = set()
    """The new ids of calls without a result so far."""
    waiting: dict[tuple[str, bool], deque[str]] = {}
    """The new ids of calls in their order, by name (and under "" all of them) and by whether they had an id. Those that
    got a result stay until they are first: there may be thousands of calls."""
    attempts: dict[str, int] = {}
    """How many other ids were tried in place of an id that was taken."""
    call_count: int = 0

    def normalise_part(self, part: Part) -> Part:
        if isinstance(part, Call):
            return self._normalise_call(part)
        return self._normalise_result(part) if isinstance(part, Result) else part

    def _normalise_call(self, call: Call) -> Part:
        self.call_count += 1
        if self.ledger.is_same_protocol and not call.id:
            return call  # a provider whose protocol leaves ids out pairs results itself
        id = self._choose_id(call)
        self.used_ids.add(id)
        self.unanswered.add(id)
        for name in {"", call.name}:
            self.waiting.setdefault((name, bool(call.id)), deque()).append(id)
        if call.id:
            self.latest_ids[call.id] = id
        return self._give_id(call, id, f"the call got the id `{id}`")

    def _give_id(self, part: Call | Result, id: str, what: str) -> Part:
        if id == part.id:
            return part
        self.ledger.note("id-rewritten" if part.id else "id-added", source_path(part), what)
        return replace_fields(part, id=id)

    def _choose_id(self, call: Call) -> str:
        if not call.id:
            # Its number in the conversation, which stays the same while the history grows.
            return self._unique_id(self._legal_id(f"call_{self.call_count:04d}"))
        if call.id in self.used_ids and self._is_legal(call.id):
            return self._unique_id(self._made_id(call.id, f"#{self.call_count}"))
        return self._unique_id(self._legal_id(call.id))

    def _is_legal(self, id: str) -> bool:
        return ids.is_legal_id(id, self.constraints.call_id_pattern, self.constraints.max_call_id_length)

    def _made_id(self, text: str, salt: str = "") -> str:
        return ids.make_legal_id(text, self.constraints.call_id_pattern, self.constraints.max_call_id_length, salt)

    def _legal_id(self, id: str) -> str:
        """The id itself where it is legal. One that was escaped for a client is unescaped: it is the provider's own."""
        original = ids.unescape_id(id)
        if original and self._is_legal(original):
            return original
        return id if self._is_legal(id) else self._made_id(id)

    def _unique_id(self, id: str) -> str:
        unique = id
        while unique in self.used_ids:
            number = self.attempts[id] = self.attempts.get(id, 0) + 1
            unique = self._made_id(id, str(number))
        return unique

    def _normalise_result(self, result: Result) -> Part:
        if self.ledger.is_same_protocol and not result.id:
            return result
        id = self.latest_ids.get(result.id, "") if result.id else self._find_call_id(result.name)
        self.unanswered.discard(id)
        if not id:
            id = self._legal_id(result.id or ids.make_legal_id("result"))
        return self._give_id(result, id, f"the result got the id of its call, `{id}`")

    def _find_call_id(self, name: str) -> str:
        """The call that a result without an id belongs to: a call of that name, preferably one without an id."""
        for has_id in (False, True):
            queue = self.waiting.get((name, has_id), deque())
            while queue:
                if queue[0] in self.unanswered:
                    return queue[0]
                queue.popleft()
        return ""

    def forget_unanswered(self) -> None:
        self.unanswered.clear()
        self.waiting.clear()


def normalise_call_ids(
    request: Request, constraints: Constraints, ledger: Ledger, features: RequestFeatures
) -> tuple[Request, frozenset[str]]:
    """The request with legal and unique call ids, and all ids that are in use."""
    calls, results = features.calls, features.results
    if ledger.is_same_protocol:
        calls, results = [*filter(_ID_OF, calls)], [*filter(_ID_OF, results)]
    used_ids = frozenset(map(_ID_OF, calls))
    if (
        len(used_ids) == len(calls)
        and "" not in used_ids
        and max(map(len, used_ids), default=0) <= constraints.max_call_id_length
        and all(map(constraints.call_id_pattern.fullmatch, used_ids))
        and not any(map(str.startswith, used_ids, repeat(ids.ESCAPE_PREFIX)))
        and used_ids.issuperset(map(_ID_OF, results))
    ):
        return request, used_ids
    call_ids = _CallIds(constraints, ledger)
    turns: list[Turn] = []
    is_new_batch = True
    for turn in request.turns:
        if turn.role != "assistant":
            is_new_batch = True
        elif is_new_batch and any(type(part) is Call for part in turn.parts):
            # A result without an id is never paired with a call that was abandoned earlier.
            call_ids.forget_unanswered()
            is_new_batch = False
        turns.append(with_parts(turn, [*map(call_ids.normalise_part, turn.parts)]))
    return with_turns(request, turns), frozenset(call_ids.used_ids)


# --- the order of turns ---

RESULT_UNAVAILABLE = "The result of this call is not available."
RESULT_PENDING = "The result of this call is not available yet."


class _CallBatch(Struct, eq=False):
    """Consecutive turns of the assistant, their calls, and the results."""

    turns: list[Turn] = []
    calls: dict[str, Call] = {}
    results: dict[str, Result] = {}


def pair_results(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    same = ledger.is_same_protocol
    if is_in_order(request.turns, constraints, same) or (same and request.has_provider_history):
        return request
    return _rebuild_turns(request, constraints, ledger)


def join_neighbours(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with consecutive turns of one role merged, where it is of another protocol and has no calls or
    results."""
    for turn, after in pairwise(request.turns):
        if turn.role == after.role and turn.role in constraints.merged_roles:
            return _rebuild_turns(request, constraints, ledger)
    return request


def _rebuild_turns(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    rebuild = _repair_broken_steps if ledger.is_same_protocol else _place_regular_history
    turns = rebuild(request.turns, constraints, ledger)
    if turns is None:
        turns = _place_batches(_batch_history(request.turns, ledger), constraints, ledger)
    return replace_fields(request, turns=tuple(turns))


def _repair_broken_steps(turns: tuple[Turn, ...], constraints: Constraints, ledger: Ledger) -> list[Turn]:
    """A history of the target's protocol: only broken steps are rebuilt; others stay verbatim for prompt caches."""
    repaired: list[Turn] = []
    for step in _split_steps(turns):
        # Gemini pairs calls and results without an id by their order.
        has_missing_ids = any(isinstance(part, (Call, Result)) and not part.id for turn in step for part in turn.parts)
        is_fine = is_in_order(step, constraints, True) or has_missing_ids
        repaired += step if is_fine else _place_batches(_batch_history(step, ledger), constraints, ledger)
    return repaired


def _split_steps(turns: tuple[Turn, ...]) -> list[tuple[Turn, ...]]:
    """Split before each turn of the assistant after another role. A late result joins the steps since its call."""
    starts = [0]
    call_turns: dict[str, int] = {}
    for number, turn in enumerate(turns):
        if turn.role == "assistant" and number and turns[number - 1].role != "assistant":
            starts.append(number)
        for part in turn.parts:
            if type(part) is Call:
                call_turns[part.id] = number
            elif type(part) is Result:
                called = call_turns.get(part.id, number)
                while starts[-1] > called:
                    starts.pop()
    return [turns[start:end] for start, end in zip(starts, [*starts[1:], len(turns)], strict=True)]


def _place_regular_history(turns: tuple[Turn, ...], constraints: Constraints, ledger: Ledger) -> list[Turn] | None:
    """The turns, if all results directly follow their batch of calls, as in most histories; else None."""
    placed = _PlacedTurns(constraints, ledger)
    batch: list[str] = []
    results: dict[str, Result] = {}
    role: Role = "user" if constraints.result_placement == "user" else "tool"
    for turn in turns:
        if not batch:
            if not _collect_calls(turn, batch):
                return None
            placed.add(turn)
            continue
        first = turn.parts[0] if len(batch) == len(turn.parts) == 1 and turn.role != "assistant" else None
        if type(first) is Result and first.id == batch[0]:
            placed.add_apart(turn if turn.role == role else Turn(role, turn.parts, origin=turn.origin))
            batch = []
            continue
        leading = [
            part for part in takewhile(lambda part: type(part) is Result, turn.parts) if isinstance(part, Result)
        ]
        results.update({result.id: result for result in leading})
        rest = turn.parts[len(leading) :]
        if not leading or turn.role == "assistant" or (rest and len(results) < len(batch)):
            return None
        if len(results) < len(batch):
            continue
        if results.keys() != set(batch) or any(type(part) is Result for part in rest):
            return None
        ordered = tuple([results[id] for id in batch])
        placed.add_apart(*place_results(ordered, rest, constraints, turn.origin, turn.name))
        batch, results = [], {}
    return None if batch else placed.join_runs()


def _collect_calls(turn: Turn, batch: list[str]) -> bool:
    """Add the calls of a turn to the batch; False where there is a result among them, or an id twice."""
    for part in turn.parts:
        if type(part) is Call:
            batch.append(part.id)
        elif type(part) is Result:
            return False
    return len(batch) < 2 or len(set(batch)) == len(batch)


def place_results(
    results: tuple[Part, ...],
    rest: tuple[Part, ...],
    constraints: Constraints,
    origin: Origin | None = None,
    name: str = "",
) -> list[Turn]:
    """The turns of the results, and of the parts after them in the same turn, whose speaker has this name."""
    if constraints.result_placement == "user":
        return [Turn("user", results + rest, origin=origin)]
    turns = [Turn("tool", (result,), origin=origin) for result in results]
    return [*turns, Turn("user", rest, name, origin=origin)] if rest else turns


def is_in_order(turns: tuple[Turn, ...], constraints: Constraints, same_protocol: bool) -> bool:
    """Is the history already as the target requires it? Most are, so this is one quick pass."""
    waiting: dict[str, None] = {}
    later: set[str] = set()
    seen: set[str] = set()
    last = ""
    result_role = "tool" if constraints.result_placement == "turns" else "user"
    joins: frozenset[str] = frozenset() if same_protocol else constraints.merged_roles
    for turn in turns:
        role, parts = turn.role, turn.parts
        if role == last and role in joins:
            return False
        if role == "assistant":
            if waiting and last != "assistant":
                return False
            for part in parts:
                if type(part) is Call:
                    id = part.id
                    if id in seen:
                        return False
                    seen.add(id)
                    if part.is_async and constraints.takes_async_calls:
                        later.add(id)
                    else:
                        waiting[id] = None
        elif not _answers_waiting_calls(
            parts if not later else tuple([part for part in parts if not _is_late_result(part, later)]),
            waiting,
            same_protocol,
            same_protocol or (role == result_role and (role != "tool" or len(parts) == 1)),
        ):
            return False
        last = role
    return not waiting


def _is_late_result(part: Part, later: set[str]) -> bool:
    return type(part) is Result and part.id in later


def _answers_waiting_calls(
    parts: tuple[Part, ...], waiting: dict[str, None], any_order: bool, has_right_role: bool
) -> bool:
    """Are the results at the start, each for an open call? A turn without results must not come before them."""
    has_results = is_behind = False
    for part in parts:
        if type(part) is not Result:
            is_behind = True
            continue
        id = part.id
        if is_behind or not has_right_role or id not in waiting or not (any_order or id == next(iter(waiting))):
            return False
        del waiting[id]
        has_results = True
    return has_results or not waiting


def _batch_history(turns: Iterable[Turn], ledger: Ledger) -> list[_CallBatch | Turn]:
    """The history with each result in the batch of its call; results without a call become text."""
    history: list[_CallBatch | Turn] = []
    owners: dict[str, _CallBatch] = {}
    for turn in turns:
        if turn.role == "assistant":
            _add_assistant_turn(turn, history, owners)
            continue
        results = [part for part in turn.parts if isinstance(part, Result)]
        if not results:
            history.append(turn)
            continue
        orphans = [result for result in results if not _claim_result(result, owners, history, ledger)]
        texts: list[Part] = [part for result in orphans for part in _orphan_as_text(result, ledger)]
        rest = (*texts, *(part for part in turn.parts if not isinstance(part, Result)))
        if rest:
            history.append(replace_fields(turn, parts=rest, role="user"))
    return history


def _add_assistant_turn(turn: Turn, history: list[_CallBatch | Turn], owners: dict[str, _CallBatch]) -> None:
    calls = {part.id: part for part in turn.parts if isinstance(part, Call)}
    last = history[-1] if history else None
    # What the assistant says between its calls and their results belongs to the batch.
    if isinstance(last, _CallBatch) and (not last.results or (len(last.results) < len(last.calls) and not calls)):
        batch = last
    else:
        batch = _CallBatch()
        history.append(batch)
    batch.turns.append(turn)
    batch.calls.update(calls)
    owners.update(dict.fromkeys(calls, batch))


def _claim_result(
    result: Result, owners: dict[str, _CallBatch], history: list[_CallBatch | Turn], ledger: Ledger
) -> bool:
    batch = owners.get(result.id)
    if batch is None or result.id in batch.results:
        return False
    batch.results[result.id] = result
    if history[-1] is not batch:
        what = f"the result of `{result.name or result.id}` was moved after its call"
        ledger.note("turn-moved", source_path(result), what)
    return True


def _orphan_as_text(result: Result, ledger: Ledger) -> tuple[Part, ...]:
    what = f"the result `{result.name or result.id}` has no call and became text"
    ledger.note("result-as-text", source_path(result), what)
    call = f"an earlier call of `{result.name}`" if result.name else f"the earlier call {result.id}"
    return (Text(f"[Result of {call}]"), *result.content)


def _place_batches(history: list[_CallBatch | Turn], constraints: Constraints, ledger: Ledger) -> list[Turn]:
    placed = _PlacedTurns(constraints, ledger)
    for entry in history:
        if isinstance(entry, Turn):
            placed.add(entry)
            continue
        for turn in entry.turns:
            placed.add(turn)
        results = tuple(_complete_results(entry, constraints, ledger))
        if constraints.result_placement == "turns":
            placed.add_apart(*(_make_result_turn("tool", (result,)) for result in results))
        elif results:
            placed.add_apart(_make_result_turn("user", results))
    return placed.join_runs()


class _PlacedTurns:
    """Turns in their order. Neighbours of one role that the target wants as one are joined at the end: to join each
    with those before it would copy their parts again and again."""

    def __init__(self, constraints: Constraints, ledger: Ledger) -> None:
        self._joined_roles = () if ledger.is_same_protocol else constraints.merged_roles
        self._ledger = ledger
        self._runs: list[list[Turn]] = []

    def add(self, turn: Turn) -> None:
        first = self._runs[-1][0] if self._runs else None
        if first is None or turn.role != first.role or turn.role not in self._joined_roles:
            self._runs.append([turn])
            return
        self._runs[-1].append(turn)
        if turn.name and turn.name != first.name:
            what = f"the name `{turn.name}` of a joined turn was left out"
            self._ledger.note("no-counterpart", source_path(turn), what)

    def add_apart(self, *turns: Turn) -> None:
        """Add turns that are not joined with those before them."""
        self._runs.extend([turn] for turn in turns)

    def join_runs(self) -> list[Turn]:
        return [run[0] if len(run) == 1 else _join_turns(run) for run in self._runs]


def _join_turns(run: list[Turn]) -> Turn:
    parts = tuple(part for turn in run for part in turn.parts)
    phase = next((turn.phase for turn in run if turn.phase), run[0].phase)
    return replace(run[0], parts=parts, origin=without_wire(run[0].origin), phase=phase)


def _complete_results(batch: _CallBatch, constraints: Constraints, ledger: Ledger) -> list[Result]:
    """The results of a batch in the order of its calls; a call without a result gets one that says so."""
    results = []
    for id, call in batch.calls.items():
        result = batch.results.get(id)
        if result is None:
            if call.is_async and constraints.takes_async_calls:
                continue
            what = f"the call of `{call.name}` had no result and got one that says so"
            ledger.note("result-added", source_path(call), what)
            text = RESULT_PENDING if call.is_async else RESULT_UNAVAILABLE
            failed = True if constraints.result_error_style == "flag" and not call.is_async else None
            result = Result(id, (Text(text),), failed, call.name, call.kind, call.namespace)
        results.append(result)
    return results


def _make_result_turn(role: Role, results: tuple[Result, ...]) -> Turn:
    origin = results[0].origin
    place = Origin(origin.protocol, origin.path, None, intact=False) if origin is not None else None
    return Turn(role, results, origin=place)


def ensure_user_first(request: Request, ledger: Ledger) -> Request:
    """The request with a user turn first, for targets that require one: OpenAI also answers to instructions alone."""
    turns = request.turns
    if ledger.is_same_protocol or (turns[0].role == "user" if turns else not request.system):
        return request
    position = next((n for n, turn in enumerate(turns) if turn.role not in ("system", "developer")), len(turns))
    if position < len(turns) and turns[position].role == "user":
        return request
    if position < len(turns):
        what = "a user turn was added before the first turn of the assistant"
        ledger.note("turn-added", source_path(turns[position]), what)
    else:
        ledger.note("turn-added", None, f"a user turn `{CONTINUE}` was added, because there are only instructions")
    return replace_fields(request, turns=(*turns[:position], Turn("user", (Text(CONTINUE),)), *turns[position:]))
