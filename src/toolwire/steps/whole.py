"""A whole answer on its way back to the client: unfolded into events and folded again, unless it is a plain one."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.fold import fold, unfold
from toolwire.ir import Call, Choice, Finish, Origin, Response, Text
from toolwire.steps.answers import AnswerSteps, Way
from toolwire.wire import is_object_text


def answered(response: Response, steps: AnswerSteps) -> Response:
    """A whole answer as the client shall have it."""
    if steps.crossing and _is_plain(response, steps.way):
        # Most answers are so: only names and ids may differ, and no part needs to be taken apart.
        return replace(
            response,
            choices=tuple(_plainly(choice, steps) for choice in response.choices),
            origin=_loosened(response.origin),
        )
    events = [out for event in unfold(response) for out in steps.step(event)]
    folded = fold(events)
    origins = {choice.index: _loosened(choice.origin) for choice in response.choices}
    choices = tuple(replace(choice, origin=origins.get(choice.index)) for choice in folded.choices)
    return replace(folded, choices=choices, origin=_loosened(response.origin), strays=response.strays)


def _is_plain(response: Response, way: Way) -> bool:
    """Text and calls of functions, whole and without seals: does nothing but a name or an id need another look?"""
    shapes = way.plan.shapes
    for choice in response.choices:
        for part in choice.parts:
            kind = type(part)
            if kind is Call:
                if way.undo:
                    return False
                if part.kind != "function" or part.seal is not None or part.incomplete or part.name in shapes:  # type: ignore[union-attr]
                    return False
                original = way.plan.original(part.name)  # type: ignore[union-attr]
                if (original is not None and original.kind != "function") or not is_object_text(part.arguments):  # type: ignore[union-attr]
                    return False
            elif kind is not Text or part.seal is not None:  # type: ignore[union-attr]
                return False
    return True


def _plainly(choice: Choice, steps: AnswerSteps) -> Choice:
    parts = tuple(steps.plainly(part, choice.index) if isinstance(part, Call) else part for part in choice.parts)
    return replace(choice, parts=parts, finish=_told(choice), origin=_loosened(choice.origin))


def _told(choice: Choice) -> Finish | None:
    """An ending with calls is told so, whatever the provider calls it."""
    finish = choice.finish
    if finish is not None and finish.kind in ("stop", "other") and any(type(part) is Call for part in choice.parts):
        return Finish("calls", finish.raw, origin=finish.origin)
    return finish


def _loosened(origin: Origin | None) -> Origin | None:
    """An origin that is kept for its place and its unknown keys, no longer verbatim."""
    return replace(origin, intact=False) if origin is not None and origin.intact else origin
