"""One look over a request: what is in it, so that only those steps run that have something to do."""

from __future__ import annotations

from toolwire.ir import Call, Media, Opaque, Part, Reasoning, Request, Result, Text, ToolReference, ToolsAdded


class Survey:
    """What the parts of a request hold."""

    __slots__ = ("blank_text", "calls", "kinds", "loaded_tools", "marked_results", "media_results", "namespaces", "results", "seals", "system_turns")

    def __init__(self, request: Request) -> None:
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.kinds: set[str] = set()
        self.namespaces = False
        self.seals = False
        self.blank_text = False
        self.media_results = False
        self.marked_results = False
        self.system_turns = False
        self.loaded_tools = False
        for turn in request.turns:
            if turn.role in ("system", "developer"):
                self.system_turns = True
            for part in turn.parts:
                self._look(part)

    def _look(self, part: Part) -> None:
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
        elif kind is Reasoning:
            if part.seal is not None:  # type: ignore[union-attr]
                self.seals = True
        elif kind is ToolsAdded:
            self.loaded_tools = True

    def _call(self, call: Call) -> None:
        self.calls.append(call)
        self.kinds.add(call.kind)
        if call.namespace:
            self.namespaces = True
        if call.seal is not None:
            self.seals = True

    def _result(self, result: Result) -> None:
        self.results.append(result)
        self.kinds.add(result.kind)
        if result.error is not None:
            self.marked_results = True
        for part in result.content:
            if isinstance(part, (ToolsAdded, ToolReference)):
                self.loaded_tools = True
            elif isinstance(part, (Media, Opaque)):
                self.media_results = True
            elif isinstance(part, Text) and (not part.text or part.text.isspace()):
                self.blank_text = True
