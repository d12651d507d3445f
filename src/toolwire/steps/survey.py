"""One look over a request: what is in it, so that only those steps run that have something to do."""

from __future__ import annotations

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


class Survey(Struct):
    """What the parts of a request hold."""

    request: Request
    calls: list[Call] = []
    results: list[Result] = []
    names: set[str] = set()
    """Names of calls and results."""
    kinds: set[str] = set()
    namespaces: bool = False
    seals: bool = False
    blank_text: bool = False
    media_results: bool = False
    failed_results: bool = False
    loaded_tools: bool = False
    reasoning: bool = False
    summaries: bool = False
    phases: list[Turn] = []

    def __post_init__(self) -> None:
        for turn in self.request.turns:
            if turn.phase:
                self.phases.append(turn)
            for part in turn.parts:
                kind = type(part)
                if kind is Text:
                    text = part.text  # type: ignore[union-attr]
                    if not text or text.isspace():
                        self.blank_text = True
                    if part.seal is not None:  # type: ignore[union-attr]
                        self.seals = True
                elif kind is Call:
                    self._call(part)  # type: ignore[arg-type]
                elif kind is Result:
                    self._result(part)  # type: ignore[arg-type]
                else:
                    self._rarer(part)

    def _rarer(self, part: Part) -> None:
        kind = type(part)
        if kind is Reasoning:
            self.reasoning = True
            self.seals |= part.seal is not None  # type: ignore[union-attr]
        elif kind is ToolsAdded:
            self.loaded_tools = True
        elif kind is Summary:
            self.summaries = True

    def _call(self, call: Call) -> None:
        self.calls.append(call)
        self.names.add(call.name)
        self.kinds.add(call.kind)
        if call.namespace:
            self.namespaces = True
        if call.seal is not None:
            self.seals = True

    def _result(self, result: Result) -> None:
        self.results.append(result)
        self.kinds.add(result.kind)
        if result.name:
            self.names.add(result.name)
        if result.error:
            self.failed_results = True
        for part in result.content:
            kind = type(part)
            if kind is Text:
                text = part.text  # type: ignore[union-attr]
                if not text or text.isspace():
                    self.blank_text = True
                elif text.startswith(ERROR_MARK):
                    self.failed_results = True
            elif kind is Media or kind is Opaque:
                self.media_results = True
            elif kind is ToolsAdded or kind is ToolReference:
                self.loaded_tools = True
