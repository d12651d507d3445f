"""Applies policy rules to a request, and prepares how the answer is changed back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolwire.core.envelopes import read_envelope
from toolwire.core.ids import flatten_tool_name
from toolwire.core.ir import (
    AnyTool,
    Call,
    Opaque,
    Part,
    Reasoning,
    Request,
    Result,
    Seal,
    Settings,
    Text,
    Tool,
    ToolChoice,
    ToolName,
    ToolReference,
    ToolsAdded,
    Turn,
    is_same,
    list_declared_tools,
    replace_fields,
    source_path,
    with_fields,
    with_parts,
)
from toolwire.core.json_values import Malformed, decode_object_or_none, encode_text
from toolwire.core.losses import Ledger
from toolwire.core.tool_choice import must_call
from toolwire.policy.effects import (
    NOTHING_TO_UNDO,
    SHAPE_EFFECTS,
    ParameterShape,
    PolicyUndo,
    ToolEffects,
    ToolKey,
    ToolUndo,
    tool_effects,
)
from toolwire.policy.guidance import (
    ToolMentions,
    append_instructions,
    clean_mentions,
    fill_guidance,
    find_named_tools,
    find_shell_tool,
    list_first_instructions,
    shorten_description,
)
from toolwire.policy.rules import Rule, find_dropping_rule, group_label, is_glob, matches_globs, matches_tool, tool_name
from toolwire.schema.standard import convert_to_standard

FUNCTION = "function"


def apply_rules(
    request: Request,
    rules: Sequence[Rule],
    ledger: Ledger,
    can_force_tools: Callable[[str, bool | None], bool] | None = None,
) -> tuple[Request, PolicyUndo]:
    """The request as the model sees it, and how calls in the answer are changed back. Raises `Malformed` where a rule
    refuses the request. `can_force_tools` is that of the provider's constraints."""
    if not rules:
        return request, NOTHING_TO_UNDO
    application = _RuleApplication(request, rules, ledger)
    tools = application.change_tools(request.tools)
    turns = tuple(application.change_turn(turn) for turn in request.turns)
    if not is_same(tools, request.tools) or not is_same(turns, request.turns):
        turns = tuple(with_parts(turn, [*map(_mark_unruled_seal, turn.parts)]) for turn in turns)
    choice = adjust_tool_choice(request, tools, rules, application.rename_chosen_tool, ledger, can_force_tools)
    settings = application.change_settings(request.settings)
    changed = with_fields(request, tools=tools, turns=turns, choice=choice, settings=settings)
    return application.change_instructions(changed), application.build_undo()


class _RuleApplication:
    """The rules, applied to one request."""

    def __init__(self, request: Request, rules: Sequence[Rule], ledger: Ledger) -> None:
        self.request = request
        self.rules = rules
        self.ledger = ledger
        self.effects: dict[ToolName, ToolEffects] = {}
        self.declared_tools = list_declared_tools(request)
        self.dropped_tools: dict[ToolKey, Rule] = {}
        """Removed tools, each with the rule that removed it."""
        self._removed_opaque: set[int] = set()
        """Tools that only their protocol knows have no names of their own: these are removed, by their identity."""
        self._removed_groups: set[tuple[str, str]] = set()
        """Type and label of those that bring other tools, by which a tool choice names them."""
        self.model_names: dict[ToolKey, str] = {}
        """New names, by the client's namespace and name."""
        self.declared_keys: set[ToolKey] = set()
        """Namespace and name of every declared tool."""
        self.model_keys: set[ToolKey] = set()
        """Namespace and new name of every tool that is left."""
        self.named_tools: list[ToolName] = []
        """Tools that rules remove and the instructions name, although nobody declares them."""
        self._drop_tools()
        self._drop_named_tools()
        self._assign_names()

    def note_loss(self, code: str, where: Any, what: str, rule: Rule | None) -> None:
        self.ledger.note(code, where, what, _rule_label(rule))

    def effects_on(self, tool: ToolName) -> ToolEffects:
        if tool not in self.effects:
            self.effects[tool] = tool_effects(self.rules, tool)
        return self.effects[tool]

    def change_settings(self, settings: Settings) -> Settings:
        """The settings with the `parallel` of the last rule that matches one of the tools."""
        names = [tool_name(tool) for tool in self.declared_tools]
        setting = (rule for rule in reversed(self.rules) if rule.parallel is not None)
        rule = next((rule for rule in setting if any(matches_tool(rule, name) for name in names)), None)
        if rule is None or rule.parallel is settings.parallel:
            return settings
        what = "several calls in one turn were allowed" if rule.parallel else "only one call in a turn was allowed"
        self.note_loss("policy-setting", settings.where.get("parallel"), what, rule)
        return replace_fields(settings, parallel=rule.parallel)

    # --- which tools are left, and their names ---

    def _drop_tools(self) -> None:
        drops_some = any(rule.drop for rule in self.rules)
        for tool in self.declared_tools:
            name = tool_name(tool)
            rule = self.effects_on(name).dropped_by
            if rule is not None:
                self._drop_tool(tool, name, rule, f"`{name.name}` was removed")
            elif drops_some and (found := find_dropping_rule(self.rules, tool)):
                self._drop_tool(tool, name, found[0], f"`{name.name}` was removed: {found[1]}")
        for rule in self.rules:
            if rule.max_tools is not None:
                left = [tool for tool in self.declared_tools if not self._is_dropped(tool)]
                for tool in tools_over_limit(left, rule, self.request.choice):
                    what = f"`{tool_name(tool).name}` was removed: the limit is {rule.max_tools} tools"
                    self._drop_tool(tool, tool_name(tool), rule, what)

    def _drop_tool(self, tool: AnyTool, name: ToolName, rule: Rule, what: str) -> None:
        self.dropped_tools[_tool_key(name)] = rule
        if isinstance(tool, Opaque):
            self._removed_opaque.add(id(tool))
            self._removed_groups.add((tool.kind, group_label(tool)))
        self.note_loss("policy-dropped", source_path(tool), what, rule)

    def _drop_named_tools(self) -> None:
        """Codex's instructions for a model that it does not know demand `apply_patch` and declare no such tool. The
        model is told about it as about a removed one. Without any tools it has nothing to be told."""
        names = [tool_name(tool) for tool in self.declared_tools]
        declared = {word for name in names for word in (name.name, flatten_tool_name(name.namespace, name.name))}
        speaking = [rule for rule in self.rules if rule.drop and (rule.guidance or rule.clean)] if names else []
        absent = [
            ToolName(word, kind)
            for rule in speaking
            for word in rule.tool
            if not is_glob(word) and word not in declared
            for kind in (FUNCTION, *rule.type)
        ]
        dropped = {name.name: name for name in reversed(absent) if self.effects_on(name).dropped_by is not None}
        if not dropped:
            return
        said = "\n".join(list_first_instructions(self.request))
        described = "\n".join([tool.description or "" for tool in self.declared_tools if isinstance(tool, Tool)])
        for word in find_named_tools(said, sorted(dropped)):
            rule = self.effects_on(dropped[word]).dropped_by
            # Codex's `exec` runs programs, and declares what they can call in its description.
            if rule is not None and f"{word}(" not in described:
                self.dropped_tools[_tool_key(dropped[word])] = rule
                self.named_tools.append(dropped[word])

    def _is_dropped(self, tool: AnyTool) -> bool:
        return (
            id(tool) in self._removed_opaque
            if isinstance(tool, Opaque)
            else _tool_key(tool_name(tool)) in self.dropped_tools
        )

    def _assign_names(self) -> None:
        """Rename all tools at once, so that one can get the old name of another. A name in use is skipped."""
        remaining = dict.fromkeys(
            name for tool in self.declared_tools if _tool_key(name := tool_name(tool)) not in self.dropped_tools
        )
        named = {name: self.effects_on(name).model_name(name.name) for name in remaining}
        wanted = {_tool_key(name): new for name, new in named.items() if new != name.name}
        while (clash := _find_clash([_tool_key(name) for name in remaining], wanted)) is not None:
            tool = next(name for name in remaining if _tool_key(name) == clash)
            rule = self.effects_on(tool).rules_by_effect["rename"]
            what = f"`{clash[1]}` keeps its name: another tool is called `{wanted.pop(clash)}`"
            self.note_loss("policy-skipped", None, what, rule)
        self.model_names = wanted
        self.declared_keys = {_tool_key(tool_name(tool)) for tool in self.declared_tools}
        self.model_keys = {(space, wanted.get((space, name), name)) for space, name in map(_tool_key, remaining)}

    def rename_chosen_tool(self, tool: ToolName) -> ToolName | None:
        """A tool of the tool choice with its new name; None where it was removed."""
        key = (tool.namespace, tool.name)
        if key in self.dropped_tools or (tool.kind, tool.namespace) in self._removed_groups:
            return None
        return ToolName(self.model_names[key], tool.kind, tool.namespace) if key in self.model_names else tool

    # --- tools ---

    def change_tools(self, tools: tuple[AnyTool, ...]) -> tuple[AnyTool, ...]:
        return tuple(self._change_tool(tool) for tool in tools if not self._is_dropped(tool))

    def _change_tool(self, tool: AnyTool) -> AnyTool:
        if not isinstance(tool, Tool):
            return tool
        name = tool_name(tool)
        effect, changes = self.effects_on(name), dict[str, Any]()
        if not effect.rules_by_effect:
            return tool
        new = self.model_names.get(_tool_key(name))
        if new is not None:
            changes["name"] = new
            what = f"`{tool.name}` was renamed to `{new}`"
            self.note_loss("policy-renamed", source_path(tool), what, effect.rules_by_effect["rename"])
        changes |= self._description_changes(tool, effect)
        changes |= self._parameter_changes(tool, effect)
        strict = effect.value("strict")
        if strict is not None and strict is not tool.strict and tool.kind == FUNCTION:
            changes["strict"] = strict
            what = f"`strict` of `{tool.name}` was set to {'true' if strict else 'false'}"
            self.note_loss("policy-setting", source_path(tool), what, effect.rules_by_effect["strict"])
        return replace_fields(tool, **changes) if changes else tool

    def _description_changes(self, tool: Tool, effect: ToolEffects) -> dict[str, Any]:
        old = tool.description or ""
        template, limit = effect.value("description"), effect.value("describe_at_most")
        text = old if template is None else template.replace("{description}", old)
        if limit is not None:
            text = shorten_description(text, limit)
        if text == old:
            return {}
        rule = effect.rules_by_effect.get("description") or effect.rules_by_effect.get("describe_at_most")
        self.note_loss("policy-described", source_path(tool), f"the description of `{tool.name}` was changed", rule)
        return {"description": text}

    def _parameter_changes(self, tool: Tool, effect: ToolEffects) -> dict[str, Any]:
        if tool.kind != FUNCTION:
            return {}
        shape, schema = effect.shape, effect.value("schema")
        if schema is not None:
            what = f"the schema of `{tool.name}` was replaced"
            self.note_loss("policy-reshaped", source_path(tool), what, effect.rules_by_effect["schema"])
            return {"parameters": dict(schema)}
        if shape is None:
            return {}
        fitting = shape.restrict_to_schema(tool.parameters)
        rule = next(effect.rules_by_effect[name] for name in SHAPE_EFFECTS if name in effect.rules_by_effect)
        skipped = ", ".join(f"`{new}`" for new in shape.skipped_names(fitting, tool.parameters))
        if skipped:
            what = f"parameters of `{tool.name}` are called {skipped} already"
            self.note_loss("policy-skipped", source_path(tool), what, rule)
        schema = fitting.model_schema(tool.parameters)
        if schema == tool.parameters:
            return {}
        hidden = ", ".join(f"`{name}`" for name in fitting.hidden)
        what = f"the parameters of `{tool.name}` were changed{f'; hidden are {hidden}' if hidden else ''}"
        self.note_loss("policy-reshaped", source_path(tool), what, rule)
        return {"parameters": schema}

    # --- turns ---

    def change_turn(self, turn: Turn) -> Turn:
        parts = map(self._change_part, turn.parts)
        return with_parts(turn, [part for part in parts if not (isinstance(part, ToolsAdded) and not part.tools)])

    def _change_part(self, part: Part) -> Part:
        step = _PART_STEPS.get(type(part))
        return part if step is None else step(self, part)

    def change_call(self, call: Call) -> Part:
        """An earlier call as the model made it. A call of a removed tool stays, because it has a result."""
        name = ToolName(call.name, call.kind, call.namespace)
        effect = self.effects_on(name)
        if not effect.rules_by_effect or _tool_key(name) in self.dropped_tools or effect.dropped_by is not None:
            return call
        changes = self._name_changes(name)
        shape = self._parameter_shape(name, effect) if call.kind == FUNCTION else None
        arguments = decode_object_or_none(call.arguments) if shape is not None else None
        if shape is not None and arguments is not None:
            converted = shape.to_model(arguments)
            if converted != arguments or list(converted) != list(arguments):
                changes["arguments"] = encode_text(converted)
        if not changes:
            return call
        if _tool_key(name) not in self.declared_keys:  # a declared tool is reported where it is declared
            what = f"a call of `{call.name}` was sent as a call of `{changes.get('name', call.name)}`"
            rule = effect.rules_by_effect.get("rename")
            self.note_loss("policy-renamed" if "name" in changes else "policy-reshaped", source_path(call), what, rule)
        return replace_fields(call, **changes)

    def _name_changes(self, name: ToolName) -> dict[str, Any]:
        """The new name for an earlier call or result. A tool that is no longer declared gets the name it would have."""
        key = _tool_key(name)
        new = self.model_names.get(key)
        if new is None and key not in self.declared_keys:
            wanted = self.effects_on(name).model_name(name.name)
            new = wanted if (name.namespace, wanted) not in self.model_keys else None
        return {} if new is None or new == name.name else {"name": new}

    def _parameter_shape(self, name: ToolName, effect: ToolEffects) -> ParameterShape | None:
        shape = effect.shape
        if shape is None:
            return None
        declared = (tool for tool in self.declared_tools if isinstance(tool, Tool) and tool_name(tool) == name)
        tool = next(declared, None)
        return shape if tool is None else shape.restrict_to_schema(tool.parameters)

    def change_result(self, result: Result) -> Part:
        changes = self._name_changes(ToolName(result.name, result.kind, result.namespace)) if result.name else {}
        return with_fields(result, **changes, content=tuple(map(self._change_part, result.content)))

    def change_reference(self, part: ToolReference) -> Part:
        return with_fields(part, **self._name_changes(ToolName(part.name)))

    def change_added_tools(self, part: ToolsAdded) -> Part:
        return with_fields(part, tools=self.change_tools(part.tools))

    # --- instructions ---

    def change_instructions(self, request: Request) -> Request:
        shell = self._shell_tool()
        request = self._clean_instructions(request, shell)
        paragraphs: dict[str, Rule] = {}
        for rule in self.rules:
            dropped = [name for (_, name), dropped_by in self.dropped_tools.items() if dropped_by is rule]
            if dropped and rule.guidance:
                paragraphs.setdefault(fill_guidance(rule.guidance, dropped, shell), rule)
        if not paragraphs:
            return request
        for rule in paragraphs.values():
            self.note_loss("policy-guidance", None, "guidance was added to the instructions", rule)
        return append_instructions(request, "\n\n".join(paragraphs))

    def _shell_tool(self) -> str:
        return find_shell_tool(
            (name.name, name.kind, self.model_names.get(_tool_key(name), name.name))
            for tool in self.declared_tools
            if _tool_key(name := tool_name(tool)) not in self.dropped_tools
        )

    def _clean_instructions(self, request: Request, shell: str) -> Request:
        replacements: dict[str, str | None] = {}
        rules: dict[str, Rule] = {}
        for name in (*map(tool_name, self.declared_tools), *self.named_tools):
            rule = self.effects_on(name).rules_by_effect.get("clean")
            if rule is None:
                continue
            rules[name.name] = rule
            if _tool_key(name) in self.dropped_tools:
                dropped_by = self.dropped_tools[_tool_key(name)]
                replacements[name.name] = shell or None if "{shell}" in dropped_by.guidance else None
            elif _tool_key(name) in self.model_names:
                replacements[name.name] = self.model_names[_tool_key(name)]
        if not replacements:
            return request
        removed = [name for _, name in self.dropped_tools if name in replacements]
        mentions = ToolMentions(replacements, removed)
        cleaned = clean_mentions(request, mentions)
        for word in sorted(mentions.found_names):
            new = f"now mention `{replacements[word]}` instead of" if replacements[word] else "no longer mention"
            self.note_loss("policy-cleaned", None, f"the instructions {new} `{word}`", rules[word])
        return cleaned

    # --- undoing the changes in the answer ---

    def build_undo(self) -> PolicyUndo:
        tools = dict[ToolKey, ToolUndo]()
        dropped = {_tool_key(name): self._refusal(name) for name in self.named_tools}
        for tool in self.declared_tools:
            if not isinstance(tool, Tool):
                continue
            name = tool_name(tool)
            if _tool_key(name) in self.dropped_tools:
                dropped[_tool_key(name)] = self._refusal(name)
                if name.namespace:
                    dropped["", flatten_tool_name(name.namespace, name.name)] = self._refusal(name)
                continue
            undo = self._build_tool_undo(tool, name)
            model_name = self.model_names.get(_tool_key(name), name.name)
            if undo.needs_whole_call or undo.client_name != model_name:
                tools[name.namespace, model_name] = undo
        offered = {flatten_tool_name(space, name) if space else name for space, name in self.model_keys}
        return PolicyUndo(tools, dropped, frozenset(offered)) if tools or dropped else NOTHING_TO_UNDO

    def _refusal(self, name: ToolName) -> str:
        """The result of a call of a removed tool."""
        rule = self.dropped_tools[_tool_key(name)]
        guidance = f" {fill_guidance(rule.guidance, [name.name], self._shell_tool())}" if rule.guidance else ""
        return f"The tool `{name.name}` is not available.{guidance}"

    def _build_tool_undo(self, tool: Tool, name: ToolName) -> ToolUndo:
        effect = self.effects_on(name)
        if tool.kind != FUNCTION or not effect.rules_by_effect:
            return ToolUndo(name.name)
        validate = effect.value("validate") or "off"
        is_checked = validate != "off" and isinstance(tool.parameters, dict)
        schema = convert_to_standard(tool.parameters).schema if is_checked else None
        shape = effect.shape
        return ToolUndo(
            name.name,
            (shape.restrict_to_schema(tool.parameters) or None) if shape is not None else None,
            schema,
            validate,
            _rule_label(effect.rules_by_effect.get("validate")),
        )


def _rule_label(rule: Rule | None) -> str:
    return f"the rule `{rule.name}`" if rule is not None and rule.name else "a policy rule"


def _tool_key(name: ToolName) -> ToolKey:
    return name.namespace, name.name


def _find_clash(keys: Sequence[ToolKey], wanted: Mapping[ToolKey, str]) -> ToolKey | None:
    """The first tool whose new name is already used."""
    taken = {key for key in keys if key not in wanted}
    for key in keys:
        if key in wanted:
            if (key[0], wanted[key]) in taken:
                return key
            taken.add((key[0], wanted[key]))
    return None


_PART_STEPS: dict[type, Callable[..., Part]] = {
    Call: _RuleApplication.change_call,
    Result: _RuleApplication.change_result,
    ToolReference: _RuleApplication.change_reference,
    ToolsAdded: _RuleApplication.change_added_tools,
}


# --- the limit of tools, and the tool choice ----------------------------------------------------------------------

RenameTool = Callable[[ToolName], ToolName | None]


def tools_over_limit(tools: Sequence[AnyTool], rule: Rule, choice: ToolChoice | None) -> list[AnyTool]:
    """The tools over the limit of a rule. Kept are the required tool, then those in `keep`, then the first ones."""
    matching = [tool for tool in tools if matches_tool(rule, tool_name(tool))]
    if rule.max_tools is None or len(matching) <= rule.max_tools:
        return []
    required = {_tool_key(tool) for tool in choice.tools} if choice is not None and choice.mode == "one" else ()

    def priority(tool: AnyTool) -> int:
        name = tool_name(tool)
        if _tool_key(name) in required:
            return -1
        return next((n for n, glob in enumerate(rule.keep) if matches_globs(name.name, (glob,))), len(rule.keep))

    kept = sorted(matching, key=priority)[: rule.max_tools]
    return [tool for tool in matching if not any(tool is one for one in kept)]


def adjust_tool_choice(
    request: Request,
    tools: Sequence[AnyTool],
    rules: Sequence[Rule],
    rename_tool: RenameTool,
    ledger: Ledger,
    can_force_tools: Callable[[str, bool | None], bool] | None,
) -> ToolChoice | None:
    """The tool choice with new names, without removed tools, and weakened where the model cannot be forced."""
    choice = request.choice
    if choice is None:
        return None
    if request.tools and not tools:
        ledger.note("policy-choice", source_path(choice), "the tool choice was left out: no tools are left")
        return None
    if choice.tools:
        choice = _rename_choice(choice, rename_tool, ledger)
    rule = next((rule for rule in reversed(rules) if rule.choice), None)
    if (
        rule is None
        or can_force_tools is None
        or not must_call(choice)
        or can_force_tools(request.model, _is_thinking(request))
    ):
        return choice
    condition = " while it thinks" if can_force_tools(request.model, False) else ""
    why = f"this model cannot be forced to call a tool{condition}"
    if rule.choice == "refuse":
        raise Malformed(source_path(request.choice), f"{why}; the rule `{rule.name}` refuses such a choice")
    ledger.note("policy-choice", source_path(choice), "the model may call a tool, but need not", why)
    if choice.mode == "allowed":
        return replace_fields(choice, required=False)
    return replace_fields(choice, mode="auto", tools=())


def _is_thinking(request: Request) -> bool | None:
    thinking = request.settings.thinking
    if thinking is None:
        return None
    if thinking.mode == "off" or thinking.effort == "none":
        return False
    return thinking.budget != 0 or bool(thinking.effort)


def _rename_choice(choice: ToolChoice, rename_tool: RenameTool, ledger: Ledger) -> ToolChoice:
    tools = tuple(new for tool in choice.tools if (new := rename_tool(tool)) is not None)
    if tools == choice.tools:
        return choice
    removed = ", ".join(f"`{tool.name}`" for tool in choice.tools if rename_tool(tool) is None)
    changes: dict[str, Any] = {"tools": tools}
    if not removed:
        what = f"the tool choice names {', '.join(tool.name for tool in tools)}"
    elif tools:
        what = f"{removed} was removed from the tool choice"
    elif choice.mode == "allowed":
        what = f"no call is allowed: only {removed} was, and it was removed"
        changes |= {"mode": "none", "required": False}
    else:
        what = f"the tool choice of {removed} became `auto`"
        changes["mode"] = "auto"
    ledger.note("policy-choice", source_path(choice), what)
    return replace_fields(choice, **changes)


_UNRULED_MARK = "-"
_DETAILED_MAKER = re.compile("[/@]")
"""Matches makers that say more than the protocol."""


def _mark_unruled_seal(part: Part) -> Part:
    """Mark a seal without an envelope as made without rules, before the rules changed the tools. A gateway, which knows
    the digest of its rules, then does not send it; the library alone does."""
    seal = part.seal if isinstance(part, (Call, Reasoning, Text)) else None
    if seal is None or not seal.value or _DETAILED_MAKER.search(seal.maker) or read_envelope(seal.value) is not None:
        return part
    return replace_fields(part, seal=Seal(f"{seal.maker}/{_UNRULED_MARK}", seal.value))
