"""What a request contains, found in one pass, so that only those steps run that have something to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.core.ir import (
    Call,
    Media,
    Opaque,
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
"""The start of a failed result where the protocol has no error flag (see `turn_content.mark_failed_results`)."""


RareFeature: TypeAlias = Literal[
    "seals", "blank text", "media results", "failed results", "loaded tools", "summaries", "phases"
]


_RARE_PARTS: Mapping[type, RareFeature] = {
    Reasoning: "seals",
    ToolsAdded: "loaded tools",
    Summary: "summaries",
}


class RequestFeatures(Struct):
    """What the turns of a request contain."""

    calls: list[Call] = []
    results: list[Result] = []
    names: set[str] = set()
    """Tool names of calls and results."""
    kinds: set[str] = set()
    """Kinds of calls and results."""
    has_namespaces: bool = False
    rare: set[RareFeature] = set()
    """What some step must handle; most requests have none of it."""
    phased_turns: list[Turn] = []

    def add_turns(self, turns: tuple[Turn, ...]) -> None:
        for turn in turns:
            if turn.phase:
                self.rare.add("phases")
                self.phased_turns.append(turn)
            for part in turn.parts:
                kind = type(part)
                if kind is Text:
                    text = part.text  # type: ignore[union-attr]
                    if not text or text.isspace():
                        self.rare.add("blank text")
                    if part.seal is not None:  # type: ignore[union-attr]
                        self.rare.add("seals")
                elif kind is Call:
                    self._add_call(part)  # type: ignore[arg-type]
                elif kind is Result:
                    self._add_result(part)  # type: ignore[arg-type]
                elif kind in _RARE_PARTS:
                    self.rare.add(_RARE_PARTS[kind])

    def _add_call(self, call: Call) -> None:
        self.calls.append(call)
        self.names.add(call.name)
        self.kinds.add(call.kind)
        if call.namespace:
            self.has_namespaces = True
        if call.seal is not None:
            self.rare.add("seals")

    def _add_result(self, result: Result) -> None:
        self.results.append(result)
        self.kinds.add(result.kind)
        if result.name:
            self.names.add(result.name)
        if result.error:
            self.rare.add("failed results")
        for part in result.content:
            kind = type(part)
            if kind is Text:
                text = part.text  # type: ignore[union-attr]
                if not text or text.isspace():
                    self.rare.add("blank text")
                elif text.startswith(ERROR_MARK):
                    self.rare.add("failed results")
            elif kind is Media or kind is Opaque:
                self.rare.add("media results")
            elif kind is ToolsAdded or kind is ToolReference:
                self.rare.add("loaded tools")


def request_features(request: Request) -> RequestFeatures:
    features = RequestFeatures()
    features.add_turns(request.turns)
    return features
