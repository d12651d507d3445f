"""What rules do to a request, and what the way back needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolwire.ids import flat
from toolwire.ir import (
    AnyTool,
    Call,
    Part,
    Request,
    Result,
    Tool,
    ToolName,
    ToolReference,
    ToolsAdded,
    Turn,
    changed,
    place,
)
from toolwire.loss import Ledger
from toolwire.policy.back import UNDONE, Key, Undo, Undone
from toolwire.policy.bound import estranged
from toolwire.policy.choosing import Forces, chosen, limited
from toolwire.policy.effects import Effect, effect_of
from toolwire.policy.guidance import Mentions, cleaned, instructed, shell_among, shortened, spoken
from toolwire.policy.match import means, named
from toolwire.policy.rules import Rule
from toolwire.schema import standard
from toolwire.wire import encode_text, object_or_none

FUNCTION = "function"


def applied(
    request: Request, rules: Sequence[Rule], ledger: Ledger, forces: Forces | None = None
) -> tuple[Request, Undo]:
    """The request as the model shall see it, and the way back. Raises `Malformed` where a rule refuses it. `forces`
    says whether a model can be made to call a tool, with thinking or without."""
    if not rules:
        return request, UNDONE
    work = _Work(request, rules, ledger)
    tools = work.tools()
    changes: dict[str, Any] = {}
    if not _same(tools, request.tools):
        changes["tools"] = tools
    turns = tuple(work.turn(turn) for turn in request.turns)
    if changes or not _same(turns, request.turns):
        turns = tuple(map(estranged, turns))
    if not _same(turns, request.turns):
        changes["turns"] = turns
    choice = chosen(request, tools, rules, work.renamed, ledger, forces)
    if choice is not request.choice:
        changes["choice"] = choice
    parallel = _parallel(request, work)
    if parallel is not None:
        changes["settings"] = changed(request.settings, parallel=parallel)
    if changes:
        request = changed(request, **changes)
    return work.instructed(request), work.undo()


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    return len(new) == len(old) and all(one is other for one, other in zip(new, old, strict=True))


def _parallel(request: Request, work: _Work) -> bool | None:
    """What the last rule says that speaks of one of the tools; None where that is nothing new."""
    rule = next((rule for rule in reversed(work.rules) if rule.parallel is not None and work.concerns(rule)), None)
    if rule is None or rule.parallel is request.settings.parallel:
        return None
    what = "several calls at once are allowed" if rule.parallel else "one call at a time"
    work.note("policy-setting", request.settings.where.get("parallel"), what, rule)
    return rule.parallel


class _Work:
    def __init__(self, request: Request, rules: Sequence[Rule], ledger: Ledger) -> None:
        self.request = request
        self.rules = rules
        self.ledger = ledger
        self.effects: dict[ToolName, Effect] = {}
        self.declared = (*request.tools, *(tool for part in _added(request) for tool in part.tools))
        self.gone: dict[Key, Rule] = {}
        """What was taken away, and by which rule."""
        self.names: dict[Key, str] = {}
        """The model's names, by the client's."""
        self.known: set[Key] = set()
        """The client's names of what is declared."""
        self.shown: set[Key] = set()
        """The model's names of what it sees."""
        self._drop()
        self._name()

    def note(self, code: str, where: Any, what: str, rule: Rule | None) -> None:
        self.ledger.note(code, where, what, _by(rule))

    def effect(self, tool: ToolName) -> Effect:
        found = self.effects.get(tool)
        if found is None:
            found = self.effects[tool] = effect_of(self.rules, tool)
        return found

    def concerns(self, rule: Rule) -> bool:
        """Does a rule speak of one of the tools?"""
        return any(means(rule, named(tool)) for tool in self.declared)

    # --- which stay, and under which names ---

    def _drop(self) -> None:
        for tool in self.declared:
            name = named(tool)
            rule = self.effect(name).dropped_by
            if rule is not None:
                self._take(tool, name, rule, f"`{name.name}` is not offered")
        for rule in self.rules:
            if rule.max_tools is not None:
                left = [tool for tool in self.declared if _key(named(tool)) not in self.gone]
                for tool in limited(left, rule, self.request.choice):
                    what = f"`{named(tool).name}` is not offered: {rule.max_tools} tools are the limit"
                    self._take(tool, named(tool), rule, what)

    def _take(self, tool: AnyTool, name: ToolName, rule: Rule, what: str) -> None:
        self.gone[_key(name)] = rule
        self.note("policy-dropped", place(tool), what, rule)

    def _name(self) -> None:
        """Names are given all at once, so that a tool can take one that another leaves, but never one that stays."""
        staying = dict.fromkeys(name for tool in self.declared if _key(name := named(tool)) not in self.gone)
        wanted = {_key(name): new for name in staying if (new := self._wanted(name)) != name.name}
        while (clash := _clash([_key(name) for name in staying], wanted)) is not None:
            rule = self.effect(next(name for name in staying if _key(name) == clash)).said["rename"]
            what = f"`{clash[1]}` keeps its name: `{wanted.pop(clash)}` is another tool's"
            self.note("policy-skipped", None, what, rule)
        self.names = wanted
        self.known = {_key(named(tool)) for tool in self.declared}
        self.shown = {(space, wanted.get((space, name), name)) for space, name in map(_key, staying)}

    def _wanted(self, name: ToolName) -> str:
        return self.effect(name).name(name.name)

    def renamed(self, tool: ToolName) -> ToolName | None:
        """A tool as a choice names it, as the model knows it; None where it is gone."""
        key = (tool.namespace, tool.name)
        if key in self.gone:
            return None
        return ToolName(self.names[key], tool.kind, tool.namespace) if key in self.names else tool

    # --- tools ---

    def tools(self) -> tuple[AnyTool, ...]:
        return self._kept(self.request.tools)

    def _kept(self, tools: tuple[AnyTool, ...]) -> tuple[AnyTool, ...]:
        return tuple(self._tool(tool) for tool in tools if _key(named(tool)) not in self.gone)

    def _tool(self, tool: AnyTool) -> AnyTool:
        if not isinstance(tool, Tool):
            return tool
        name = named(tool)
        effect, changes = self.effect(name), dict[str, Any]()
        if not effect.said:
            return tool
        new = self.names.get(_key(name))
        if new is not None:
            changes["name"] = new
            self.note("policy-renamed", place(tool), f"`{tool.name}` is called `{new}`", effect.said["rename"])
        changes |= self._described(tool, effect)
        changes |= self._parameters(tool, effect)
        strict = effect.value("strict")
        if strict is not None and strict is not tool.strict and tool.kind == FUNCTION:
            changes["strict"] = strict
            what = f"`{tool.name}` is {'held' if strict else 'not held'} to its schema"
            self.note("policy-setting", place(tool), what, effect.said["strict"])
        return changed(tool, **changes) if changes else tool

    def _described(self, tool: Tool, effect: Effect) -> dict[str, Any]:
        old = tool.description or ""
        template, limit = effect.value("description"), effect.value("describe_at_most")
        text = old if template is None else template.replace("{description}", old)
        if limit is not None:
            text = shortened(text, limit)
        if text == old:
            return {}
        rule = effect.said.get("description") or effect.said.get("describe_at_most")
        self.note("policy-described", place(tool), f"`{tool.name}` has another description", rule)
        return {"description": text}

    def _parameters(self, tool: Tool, effect: Effect) -> dict[str, Any]:
        if tool.kind != FUNCTION:
            return {}
        shape, schema = effect.shape, effect.value("schema")
        if schema is not None:
            self.note("policy-reshaped", place(tool), f"`{tool.name}` has another schema", effect.said["schema"])
            return {"parameters": dict(schema)}
        if shape is None:
            return {}
        fitting = shape.within(tool.parameters)
        rule = next(effect.said[name] for name in ("parameters", "reshape", "hide", "defaults") if name in effect.said)
        lost = ", ".join(f"`{new}`" for new in shape.skipped(fitting, tool.parameters))
        if lost:
            self.note("policy-skipped", place(tool), f"parameters of `{tool.name}` are called {lost} already", rule)
        made = fitting.schema(tool.parameters)
        if made == tool.parameters:
            return {}
        unseen = ", ".join(f"`{name}`" for name in fitting.hidden)
        what = f"`{tool.name}` has other parameters{f', and none for {unseen}' if unseen else ''}"
        self.note("policy-reshaped", place(tool), what, rule)
        return {"parameters": made}

    # --- turns ---

    def turn(self, turn: Turn) -> Turn:
        parts = tuple(_PARTS[type(part)](self, part) if type(part) in _PARTS else part for part in turn.parts)
        kept = tuple(part for part in parts if not (isinstance(part, ToolsAdded) and not part.tools))
        return turn if _same(kept, turn.parts) else changed(turn, parts=kept)

    def call(self, call: Call) -> Part:
        """A call as the model would have made it. One of a tool that is gone stays: it was made, and has its result."""
        name = ToolName(call.name, call.kind, call.namespace)
        effect = self.effect(name)
        if not effect.said or _key(name) in self.gone or effect.dropped_by is not None:
            return call
        changes = self._called(name)
        shape = self._shape(name, effect) if call.kind == FUNCTION else None
        arguments = object_or_none(call.arguments) if shape is not None else None
        if shape is not None and arguments is not None:
            made = shape.out(arguments)
            if made != arguments or list(made) != list(arguments):
                changes["arguments"] = encode_text(made)
        if not changes:
            return call
        if _key(name) not in self.known:  # what is declared was told there
            what = f"a call of `{call.name}` goes out as one of `{changes.get('name', call.name)}`"
            rule = effect.said.get("rename")
            self.note("policy-renamed" if "name" in changes else "policy-reshaped", place(call), what, rule)
        return changed(call, **changes)

    def _called(self, name: ToolName) -> dict[str, Any]:
        """The name for something of the past; of a tool that is not declared any more, the one that it would have."""
        key = _key(name)
        new = self.names.get(key)
        if new is None and key not in self.known and self.effect(name).said.get("rename") is not None:
            wanted = self._wanted(name)
            new = wanted if (name.namespace, wanted) not in self.shown else None
        return {} if new is None or new == name.name else {"name": new}

    def _shape(self, name: ToolName, effect: Effect) -> Any:
        shape = effect.shape
        if shape is None:
            return None
        for tool in self.declared:
            if isinstance(tool, Tool) and named(tool) == name:
                return shape.within(tool.parameters)
        return shape

    def result(self, result: Result) -> Part:
        changes = self._called(ToolName(result.name, result.kind, result.namespace)) if result.name else {}
        content = tuple(self.reference(part) if isinstance(part, ToolReference) else part for part in result.content)
        if not _same(content, result.content):
            changes["content"] = content
        return changed(result, **changes) if changes else result

    def reference(self, part: ToolReference) -> Part:
        changes = self._called(ToolName(part.name))
        return changed(part, **changes) if changes else part

    def added(self, part: ToolsAdded) -> Part:
        tools = self._kept(part.tools)
        return part if _same(tools, part.tools) else changed(part, tools=tools)

    # --- instructions ---

    def instructed(self, request: Request) -> Request:
        shell = self._shell()
        request = self._cleaned(request, shell)
        paragraphs: dict[str, Rule] = {}
        for rule in self.rules:
            took = [name for (_, name), by in self.gone.items() if by is rule]
            if took and rule.guidance:
                paragraphs.setdefault(spoken(rule.guidance, took, shell), rule)
        if not paragraphs:
            return request
        for rule in paragraphs.values():
            self.note("policy-guidance", None, "guidance was added to the instructions", rule)
        return instructed(request, "\n\n".join(paragraphs))

    def _shell(self) -> str:
        return shell_among(
            (name.name, name.kind, self.names.get(_key(name), name.name))
            for tool in self.declared
            if _key(name := named(tool)) not in self.gone
        )

    def _cleaned(self, request: Request, shell: str) -> Request:
        instead: dict[str, str | None] = {}
        rules: dict[str, Rule] = {}
        for tool in self.declared:
            name = named(tool)
            rule = self.effect(name).said.get("clean")
            if rule is None:
                continue
            rules[name.name] = rule
            if _key(name) in self.gone:
                by = self.gone[_key(name)]
                instead[name.name] = shell or None if "{shell}" in by.guidance else None
            elif _key(name) in self.names:
                instead[name.name] = self.names[_key(name)]
        if not instead:
            return request
        mentions = Mentions(instead)
        made = cleaned(request, mentions)
        for word in sorted(mentions.met):
            new = f"now speak of `{instead[word]}` instead of" if instead[word] else "no longer speak of"
            self.note("policy-cleaned", None, f"the instructions {new} `{word}`", rules[word])
        return made

    # --- the way back ---

    def undo(self) -> Undo:
        tools: dict[Key, Undone] = {}
        for tool in self.declared:
            name = named(tool)
            if not isinstance(tool, Tool) or _key(name) in self.gone:
                continue
            undone = self._undone(tool, name)
            if undone.holds or undone.name != self.names.get(_key(name), name.name):
                tools[name.namespace, self.names.get(_key(name), name.name)] = undone
        dropped = dict[Key, str]()
        for tool in self.declared:
            name = named(tool)
            if not isinstance(tool, Tool) or _key(name) not in self.gone:
                continue
            why = self._why(name)
            dropped[_key(name)] = why
            if name.namespace:
                dropped["", flat(name.namespace, name.name)] = why
        return Undo(tools, dropped) if tools or dropped else UNDONE

    def _undone(self, tool: Tool, name: ToolName) -> Undone:
        effect = self.effect(name)
        if tool.kind != FUNCTION or not effect.said:
            return Undone(name.name)
        validate = effect.value("validate") or "off"
        schema = standard(tool.parameters).schema if validate != "off" and isinstance(tool.parameters, dict) else None
        shape = effect.shape
        return Undone(
            name.name,
            (shape.within(tool.parameters) or None) if shape is not None else None,
            schema,
            validate,
            _by(effect.said.get("validate")),
        )

    def _why(self, name: ToolName) -> str:
        rule = self.gone[_key(name)]
        shell = self._shell()
        said = f"The tool `{name.name}` is not available."
        return f"{said} {spoken(rule.guidance, [name.name], shell)}" if rule.guidance else said


def _by(rule: Rule | None) -> str:
    return f"the rule `{rule.name}`" if rule is not None and rule.name else "a rule of the operator"


def _key(name: ToolName) -> Key:
    return name.namespace, name.name


def _clash(keys: Sequence[Key], wanted: Mapping[Key, str]) -> Key | None:
    """The first tool that cannot have the name that is meant for it."""
    taken = {key for key in keys if key not in wanted}
    for key in keys:
        if key in wanted:
            if (key[0], wanted[key]) in taken:
                return key
            taken.add((key[0], wanted[key]))
    return None


def _added(request: Request) -> list[ToolsAdded]:
    return [part for turn in request.turns for part in turn.parts if type(part) is ToolsAdded]


_PARTS: dict[type, Callable[..., Part]] = {
    Call: _Work.call,
    Result: _Work.result,
    ToolReference: _Work.reference,
    ToolsAdded: _Work.added,
}
