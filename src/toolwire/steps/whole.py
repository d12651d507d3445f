"""A whole answer on its way back to the client: unfolded into events and folded again, unless it is a plain one."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from toolwire.fold import fold, unfold
from toolwire.ids import legal
from toolwire.ir import Call, Choice, Finish, Origin, Response, Text
from toolwire.policy.back import UNDONE
from toolwire.room import Rules
from toolwire.steps.answers import AnswerSteps, Way
from toolwire.wire import is_object_text

_UNSAID = ("stop", "other")
"""Endings that do not say that there are calls."""
_TOLD_ANEW = frozenset({*_UNSAID, "length", "context"})
"""These, and those that may have cut a call off."""


def stays(response: Response, rules: Rules, taken: frozenset[str]) -> bool:
    """Is it for this client as it came, where names stay? One answer of text and calls of functions, whole and without
    seals, with ids that it can have. Told in one pass, because most answers are such."""
    choices = response.choices
    if len(choices) != 1:
        return False
    choice = choices[0]
    called: list[str] = []
    for part in choice.parts:
        if type(part) is Call:
            id = part.id
            if part.kind != "function" or part.seal is not None or part.incomplete or id in taken:
                return False
            if not legal(id, rules.id_pattern, rules.id_limit):
                return False
            called.append(id)
        elif type(part) is not Text or part.seal is not None:
            return False
    if not called:
        return True
    finish = choice.finish
    return (finish is None or finish.kind not in _TOLD_ANEW) and (len(called) == 1 or len(set(called)) == len(called))


def answered(response: Response, steps: AnswerSteps) -> Response:
    """A whole answer as the client shall have it."""
    calls = _plain_calls(response, steps.way) if steps.slots.crossing else None
    if calls is None:
        return _taken_apart(response, steps)
    # Most answers are so: only names, ids and endings may differ, and mostly do not.
    made: list[Call] = []
    alike = True
    for choice, call in calls:
        one = steps.plainly(call, choice.index)
        made.append(one)
        if one is not call or (choice.finish is not None and choice.finish.kind in _UNSAID):
            alike = False
    return response if alike else _recalled(response, iter(made))


def _taken_apart(response: Response, steps: AnswerSteps) -> Response:
    events = [out for event in unfold(response) for out in steps.step(event)]
    folded = fold(events)
    origins = {choice.index: _loosened(choice.origin) for choice in response.choices}
    choices = tuple(replace(choice, origin=origins.get(choice.index)) for choice in folded.choices)
    return replace(folded, choices=choices, origin=_loosened(response.origin), strays=response.strays)


def _plain_calls(response: Response, way: Way) -> list[tuple[Choice, Call]] | None:
    """The calls of an answer of text and calls of functions, whole and without seals, in which nothing but a name or an
    id needs another look; None for any other."""
    calls: list[tuple[Choice, Call]] = []
    for choice in response.choices:
        for part in choice.parts:
            kind = type(part)
            if kind is Text and part.seal is None:  # type: ignore[union-attr]
                continue
            if kind is not Call or not _is_plain(part, way):  # type: ignore[arg-type]
                return None
            calls.append((choice, part))  # type: ignore[arg-type]
    return calls


def _is_plain(call: Call, way: Way) -> bool:
    if call.kind != "function" or call.seal is not None or call.incomplete or not is_object_text(call.arguments):
        return False
    plan = way.plan
    if plan.names:
        original = plan.original(call.name)
        if original is not None and original.kind != "function":
            return False
    return call.name not in plan.shapes and (way.undo is UNDONE or not way.undo)


def _recalled(response: Response, calls: Iterator[Call]) -> Response:
    """The answer with these calls. Its origins may stay as they are: only its own protocol would write them again."""
    choices: list[Choice] = []
    for choice in response.choices:
        parts = tuple([next(calls) if type(part) is Call else part for part in choice.parts])
        finish = choice.finish
        if finish is not None and finish.kind in _UNSAID and Call in map(type, parts):
            # An ending with calls is told so, whatever the provider calls it.
            finish = Finish("calls", finish.raw, origin=finish.origin)
        choices.append(Choice(choice.index, parts, finish, choice.origin))
    return replace(response, choices=tuple(choices))


def _loosened(origin: Origin | None) -> Origin | None:
    """An origin that is kept for its place and its unknown keys, no longer verbatim."""
    return replace(origin, intact=False) if origin is not None and origin.intact else origin
