"""Fill in what a case leaves to the run: values met before (`$same:name`, without its last character `$clipped:name`),
the model's turns as the client saw them (`$echo`), results of their calls (`$results`), repetitions (`$repeat`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from toolwire.conformance.match import SAME, Bound

Json: TypeAlias = Any
Echo: TypeAlias = Callable[[int, list[str] | None], list[Json]]
"""The turns to append to the history, from the number of the turn that they answered; with texts, the results of the
calls in that answer."""


CLIPPED = "$clipped:"


class Unfilled(Exception):
    """A request names a value that no earlier turn brought."""


def filled(template: Json, bound: Bound, echo: Echo) -> Json:
    """The template with everything filled in; new values throughout, the template is not touched."""
    if isinstance(template, str) and template.startswith((SAME, CLIPPED)):
        word, _, name = template.partition(":")
        if name not in bound:
            raise Unfilled(f"`{name}` was not met in an earlier turn")
        return bound[name] if f"{word}:" == SAME else bound[name][:-1]
    if isinstance(template, dict):
        if template.keys() == {"$is"}:
            return template["$is"]
        return {key: filled(value, bound, echo) for key, value in template.items()}
    if isinstance(template, list):
        return [element for item in template for element in _elements(item, bound, echo)]
    return template


def _elements(item: Json, bound: Bound, echo: Echo) -> list[Json]:
    """One element of an array, or those that it stands for."""
    if isinstance(item, dict) and "$echo" in item:
        return echo(item["$echo"], None)
    if isinstance(item, dict) and "$results" in item:
        return echo(item["$results"], item["of"])
    if isinstance(item, dict) and "$repeat" in item:
        return [filled(_numbered(item["of"], number), bound, echo) for number in range(item["$repeat"])]
    return [filled(item, bound, echo)]


def _numbered(template: Json, number: int) -> Json:
    """The template with `{n}` in its texts replaced."""
    if isinstance(template, str):
        return template.replace("{n}", str(number))
    if isinstance(template, dict):
        return {key: _numbered(value, number) for key, value in template.items()}
    if isinstance(template, list):
        return [_numbered(value, number) for value in template]
    return template
