"""A whole answer on its way back to the client: unfolded into events and folded again, unless it is a plain one."""

from __future__ import annotations

from operator import is_

from msgspec.structs import replace

from toolwire.fold import fold, unfold
from toolwire.ir import Call, Choice, Origin, Part, Response, Text
from toolwire.policy.back import UNDONE
from toolwire.steps.answers import CUTS, AnswerSteps, told_of_calls
from toolwire.steps.naming import Plan
from toolwire.steps.way import Way
from toolwire.wire import is_object_text


def answered(response: Response, steps: AnswerSteps) -> Response:
    """A whole answer as the client shall have it."""
    if steps.slots.crossing and _is_plain(response, steps.way):
        # Only names, ids and endings may differ. As events the answer would take twice as long (15 µs more), and two
        # choices with the same index, or one with neither parts nor a finish reason, would not stay as they are.
        recalled = tuple([_recalled(choice, steps) for choice in response.choices])
        alike = all(map(is_, recalled, response.choices))
        return response if alike else replace(response, choices=recalled)
    events = [out for event in unfold(response) for out in steps.step(event)]
    folded = fold(events)
    origins = {choice.index: _loosened(choice.origin) for choice in response.choices}
    choices = tuple(replace(choice, origin=origins.get(choice.index)) for choice in folded.choices)
    return replace(folded, choices=choices, origin=_loosened(response.origin), strays=response.strays)


def _is_plain(response: Response, way: Way) -> bool:
    """Is it an answer of text and calls of functions, whole and without seals, in which nothing but a name or an id
    needs another look?"""
    choices, ruled = response.choices, way.undo is not UNDONE and bool(way.undo)
    for choice in choices:
        # Only an ending that cuts tells anything of arguments that are no object.
        uncut = len(choices) == 1 and choice.finish is not None and choice.finish.kind not in CUTS
        for part in choice.parts:
            if type(part) is Call:
                if part.seal is not None or part.incomplete or not (uncut or is_object_text(part.arguments)):
                    return False
                if ruled or not _is_function(part, way.plan):
                    return False
            elif type(part) is not Text or part.seal is not None:
                return False
    return True


def _is_function(call: Call, plan: Plan) -> bool:
    """Is it one to the client too, with the same parameters?"""
    if call.kind != "function" or call.name in plan.shapes:
        return False
    original = plan.original(call.name) if plan.names else None
    return original is None or original.kind == "function"


def _recalled(choice: Choice, steps: AnswerSteps) -> Choice:
    """A choice with its calls as the client knows them. Its origins may stay as they are: only its own protocol would
    write them again."""
    parts: list[Part] = []
    called, alike = False, True
    for part in choice.parts:
        if type(part) is Call:
            call = steps.plainly(part, choice.index)
            called, alike = True, alike and call is part
            part = call
        parts.append(part)
    finish = choice.finish if choice.finish is None or not called else told_of_calls(choice.finish)
    if alike and finish is choice.finish:
        return choice
    return Choice(choice.index, tuple(parts), finish, choice.origin)


def _loosened(origin: Origin | None) -> Origin | None:
    """An origin that is kept for its place and its unknown keys, no longer verbatim."""
    return replace(origin, intact=False) if origin is not None and origin.intact else origin
