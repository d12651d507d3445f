"""One look over a request: what is in it, so that only those steps run that have something to do."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.ir import (
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Request,
    Result,
    Summary,
    Text,
    ToolReference,
    ToolsAdded,
    Turn,
)

ERROR_MARK = "[tool error] "
"""How a failed result begins where the wire has no flag for it."""


Seldom: TypeAlias = Literal[
    "seals", "blank text", "media results", "failed results", "loaded tools", "reasoning", "summaries", "phases"
]


class Survey(Struct):
    """What the parts of a request hold."""

    calls: list[Call] = []
    results: list[Result] = []
    names: set[str] = set()
    """Names of calls and results."""
    kinds: set[str] = set()
    namespaces: bool = False
    seldom: set[Seldom] = set()
    """What a step has to do with; most requests have nothing of it."""
    phases: list[Turn] = []

    def look(self, turns: tuple[Turn, ...]) -> None:
        for turn in turns:
            if turn.phase:
                self.seldom.add("phases")
                self.phases.append(turn)
            for part in turn.parts:
                kind = type(part)
                if kind is Text:
                    text = part.text  # type: ignore[union-attr]
                    if not text or text.isspace():
                        self.seldom.add("blank text")
                    if part.seal is not None:  # type: ignore[union-attr]
                        self.seldom.add("seals")
                elif kind is Call:
                    self._call(part)  # type: ignore[arg-type]
                elif kind is Result:
                    self._result(part)  # type: ignore[arg-type]
                else:
                    self._rarer(part)

    def _rarer(self, part: Part) -> None:
        kind = type(part)
        if kind is Reasoning:
            self.seldom.add("reasoning")
            if part.seal is not None:  # type: ignore[union-attr]
                self.seldom.add("seals")
        elif kind is ToolsAdded:
            self.seldom.add("loaded tools")
        elif kind is Summary:
            self.seldom.add("summaries")

    def _call(self, call: Call) -> None:
        self.calls.append(call)
        self.names.add(call.name)
        self.kinds.add(call.kind)
        if call.namespace:
            self.namespaces = True
        if call.seal is not None:
            self.seldom.add("seals")

    def _result(self, result: Result) -> None:
        self.results.append(result)
        self.kinds.add(result.kind)
        if result.name:
            self.names.add(result.name)
        if result.error:
            self.seldom.add("failed results")
        for part in result.content:
            kind = type(part)
            if kind is Text:
                text = part.text  # type: ignore[union-attr]
                if not text or text.isspace():
                    self.seldom.add("blank text")
                elif text.startswith(ERROR_MARK):
                    self.seldom.add("failed results")
            elif kind is Media or kind is Opaque:
                self.seldom.add("media results")
            elif kind is ToolsAdded or kind is ToolReference:
                self.seldom.add("loaded tools")


def surveyed(request: Request) -> Survey:
    turns = request.turns
    if _only_texts(turns):
        return NOTHING_FOUND
    survey = Survey()
    survey.look(turns)
    return survey


NOTHING_FOUND = Survey()


def _only_texts(turns: tuple[Turn, ...]) -> bool:
    """Is nothing in them but text, in which no step has anything to do? So it is until the first call."""
    for turn in turns:
        if turn.phase:
            return False
        for part in turn.parts:
            if type(part) is not Text or part.seal is not None or not part.text or part.text.isspace():
                return False
    return True
