"""What rules do to one tool: conversions of its parameters, `ToolEffects` of all rules together, and `PolicyUndo`,
which changes calls in the answer back to the client's tools.

A conversion is a pair of inverse functions between client and model, and the model's schema. Its name has the client's
form first: with `shell-text` the client takes `["bash", "-lc", "ls"]` and the model writes `ls`. A value of an
unexpected form is not changed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.call_repair.names import NameIndex
from toolwire.core.ir import EMPTY_MAPPING, Call, ToolName, replace_fields, source_path
from toolwire.core.json_values import Json, Malformed, Object, decode, decode_object_or_none, encode_text
from toolwire.core.losses import Ledger
from toolwire.policy.rules import EFFECT_FIELDS, Reshape, Rule, matches_tool
from toolwire.schema.combine import escape_reference_key, move_references
from toolwire.schema.validate import fix_whole_numbers, value_problems

DEFAULT_SHELL = ("bash", "-lc")
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"})


class Conversion(Struct, frozen=True):
    to_model: Callable[[Json], Json]
    to_client: Callable[[Json], Json]
    schema: Object
    """The schema of the model's form, without a description."""
    client_form: str
    model_form: str
    """What client and model have, for the reference."""
    joined_parameter: str = ""
    """A second parameter of the client that is joined into the model's one: `to_model` takes a pair."""
    split_parameter: str = ""
    """A second parameter of the model that is split off the client's one: `to_model` gives a pair."""

    @property
    def description(self) -> str:
        return f"the client has {self.client_form}, the model {self.model_form}"


def _is_text_list(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _argv_to_text(value: Json) -> Json:
    """`["bash", "-lc", "ls"]` as `ls`; any other argument vector quoted for a shell."""
    if not _is_text_list(value) or not value:
        return value
    if len(value) == 3 and value[0] in _SHELLS and value[1] in ("-lc", "-c"):
        return value[2]
    return shlex.join(value)


def _text_to_argv(value: Json) -> Json:
    return [*DEFAULT_SHELL, value] if isinstance(value, str) else value


def _join_with(separator: str) -> Callable[[Json], Json]:
    return lambda value: separator.join(value) if _is_text_list(value) else value


def _split_at(separator: str) -> Callable[[Json], Json]:
    def split(value: Json) -> Json:
        if not isinstance(value, str):
            return value
        return [item.strip() if separator == "," else item for item in value.split(separator)] if value else []

    return split


def _wrap_in_list(value: Json) -> Json:
    return value if isinstance(value, list) else [value]


def _unwrap_single(value: Json) -> Json:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _parse_json_text(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return decode(value)
    except Malformed:
        return value


def _to_milliseconds(value: Json) -> Json:
    return value * 1000 if type(value) in (int, float) else value


def _to_seconds(value: Json) -> Json:
    if type(value) not in (int, float):
        return value
    return value // 1000 if isinstance(value, int) and value % 1000 == 0 else value / 1000


_URL = re.compile(r"https?://[^\s<>\"'`]+")
URL_PARAMETER = "url"
_PAGE_FORM = "a question and a `url`"
_PARAGRAPH_BREAK = "\n\n"


def _split_off_url(value: Json) -> Json:
    """A text, and the URL in it."""
    found = _URL.search(value) if isinstance(value, str) else None
    if found is None:
        return [value, None]
    url = found[0].rstrip(".,;:!?)]}")
    return [value.removesuffix(f"{_PARAGRAPH_BREAK}{url}"), url]


def _join_url(pair: Json) -> Json:
    """A question and a URL as one text."""
    question, url = pair
    if not isinstance(url, str) or (isinstance(question, str) and url in question):
        return question
    return f"{question}{_PARAGRAPH_BREAK}{url}" if isinstance(question, str) and question else url


_STEP_STATES = ["pending", "in_progress", "completed"]
_CONTENT_KEY, _ACTIVE_FORM_KEY = "content", "activeForm"
"""Claude Code's `TodoWrite` wants the text of a step twice, the second time in the form "doing it"."""
_TEXT_SCHEMA: Object = {"type": "string"}


def _plan_conversion(client_key: str, model_key: str) -> Conversion:
    """A list of steps, each with a text and a status. The keys are the client's and the model's key of the text."""
    step: Object = {
        "type": "object",
        "properties": {model_key: _TEXT_SCHEMA, "status": {"type": "string", "enum": _STEP_STATES}},
    }
    step["properties"] |= {_ACTIVE_FORM_KEY: _TEXT_SCHEMA} if model_key == _CONTENT_KEY else {}
    step["required"] = [*step["properties"]]
    return Conversion(
        _rename_step_key(client_key, model_key),
        _rename_step_key(model_key, client_key),
        {"type": "array", "items": step},
        f"a plan whose steps have `{client_key}`",
        f"one whose steps have `{model_key}`",
    )


def _rename_step_key(old: str, new: str) -> Callable[[Json], Json]:
    def step(item: Json) -> Json:
        if not isinstance(item, dict) or old not in item:
            return item
        renamed = {new: item[old], **({"status": item["status"]} if "status" in item else {})}
        return {**renamed, _ACTIVE_FORM_KEY: item[old]} if new == _CONTENT_KEY else renamed

    return lambda value: [step(item) for item in value] if isinstance(value, list) else value


_LIST_SCHEMA: Object = {"type": "array", "items": {"type": "string"}}
_NUMBER_SCHEMA: Object = {"type": "number"}
_ANY_SCHEMA: Object = {}

CONVERSIONS: Mapping[str, Conversion] = {
    "shell-text": Conversion(_argv_to_text, _text_to_argv, _TEXT_SCHEMA, '["bash", "-lc", COMMAND]', "COMMAND"),
    "text-shell": Conversion(_text_to_argv, _argv_to_text, _LIST_SCHEMA, "COMMAND", '["bash", "-lc", COMMAND]'),
    "list-text": Conversion(_join_with("\n"), _split_at("\n"), _TEXT_SCHEMA, "a list of texts", "its lines"),
    "text-list": Conversion(_split_at("\n"), _join_with("\n"), _LIST_SCHEMA, "lines", "a list of texts"),
    "csv": Conversion(_join_with(","), _split_at(","), _TEXT_SCHEMA, "a list of texts", "them with commas"),
    "list-one": Conversion(_unwrap_single, _wrap_in_list, _ANY_SCHEMA, "a list", "its only item"),
    "one-list": Conversion(_wrap_in_list, _unwrap_single, {"type": "array"}, "one value", "a list of it"),
    "json-text": Conversion(encode_text, _parse_json_text, _TEXT_SCHEMA, "a value", "its JSON as text"),
    **{
        f"{client_key}-{model_key}": _plan_conversion(client_key, model_key)
        for client_key, model_key in permutations(("step", "content", "description"), 2)
    },
    "request-page": Conversion(
        _split_off_url, _join_url, _TEXT_SCHEMA, "one request", _PAGE_FORM, split_parameter=URL_PARAMETER
    ),
    "page-request": Conversion(
        _join_url, _split_off_url, _TEXT_SCHEMA, _PAGE_FORM, "one request", joined_parameter=URL_PARAMETER
    ),
    "seconds-milliseconds": Conversion(_to_milliseconds, _to_seconds, _NUMBER_SCHEMA, "seconds", "milliseconds"),
    "milliseconds-seconds": Conversion(_to_seconds, _to_milliseconds, _NUMBER_SCHEMA, "milliseconds", "seconds"),
}


def convert_schema(client_schema: Json, conversion: Conversion) -> Json:
    if not isinstance(client_schema, dict):
        return dict(conversion.schema)
    labels = {key: client_schema[key] for key in ("title", "description") if key in client_schema}
    if conversion.schema is _ANY_SCHEMA:
        inner = client_schema.get("items")
        return {**inner, **labels} if isinstance(inner, dict) else labels
    if conversion.schema.keys() == {"type"} and conversion.schema["type"] == "array":
        inner = {key: value for key, value in client_schema.items() if key not in labels}
        return {"type": "array", "items": inner, **labels}
    return {**conversion.schema, **labels}


# --- what all rules together do to one tool ---

_DEFAULTS: Mapping[str, Any] = {name: getattr(Rule(), name) for name in EFFECT_FIELDS}
SHAPE_EFFECTS = ("parameters", "reshape", "hide", "defaults")


class ToolEffects(Struct, frozen=True):
    """The effects of all rules on one tool."""

    rules_by_effect: Mapping[str, Rule]
    """By the name of a field of `Rule`: the last rule that sets it."""

    def value(self, name: str) -> Any:
        rule = self.rules_by_effect.get(name)
        return _DEFAULTS[name] if rule is None else getattr(rule, name)

    @property
    def dropped_by(self) -> Rule | None:
        rule = self.rules_by_effect.get("drop")
        return rule if rule is not None and rule.drop else None

    def model_name(self, old: str) -> str:
        rule = self.rules_by_effect.get("rename")
        return old if rule is None else rule.rename.replace("{name}", old)

    @property
    def shape(self) -> ParameterShape | None:
        if self.rules_by_effect.keys().isdisjoint(SHAPE_EFFECTS):
            return None
        reshapes: Mapping[str, Reshape] = self.value("reshape")
        names = dict(self.value("parameters"))
        names.update({old: reshape.to for old, reshape in reshapes.items() if reshape.to and reshape.to != old})
        conversions = {old: CONVERSIONS[reshape.conversion] for old, reshape in reshapes.items()}
        return ParameterShape(names, conversions, tuple(self.value("hide")), self.value("defaults"))


NO_EFFECTS = ToolEffects(EMPTY_MAPPING)


def tool_effects(rules: Sequence[Rule], tool: ToolName) -> ToolEffects:
    found: dict[str, Rule] = {}
    for rule in rules:
        if matches_tool(rule, tool):
            found.update({name: rule for name in EFFECT_FIELDS if getattr(rule, name) != _DEFAULTS[name]})
    return ToolEffects(found) if found else NO_EFFECTS


_COMBINERS = ("allOf", "anyOf", "oneOf")


def _declared_parameters(schema: Json) -> list[str] | None:
    """The names of the parameters, also in `allOf`, `anyOf` and `oneOf`; None where the schema has no properties."""
    if not isinstance(schema, dict):
        return None
    levels = [schema, *(part for key in _COMBINERS if isinstance(schema.get(key), list) for part in schema[key])]
    found = [level["properties"] for level in levels if isinstance(level, dict) and "properties" in level]
    return [name for properties in found if isinstance(properties, dict) for name in properties] if found else None


class ParameterShape(Struct, frozen=True):
    """How the parameters of one tool differ between client and model."""

    names: Mapping[str, str]
    """The model's name of each renamed parameter, by the client's name."""
    conversions: Mapping[str, Conversion]
    """By the client's name."""
    hidden: tuple[str, ...]
    """The client's names of parameters that the model does not see."""
    defaults: Mapping[str, Json]
    """Values for the client where the model gave none, by the client's name."""

    def restrict_to_schema(self, schema: Json) -> ParameterShape:
        """The same without parameters that the schema does not have, and without new names that are already used."""
        declared = _declared_parameters(schema)
        if declared is None:
            return self
        taken = {name for name in declared if name not in self.names and name not in self.hidden}
        names: dict[str, str] = {}
        for old, new in self.names.items():
            if old in declared and new not in taken:
                names[old] = new
                taken.add(new)
        return ParameterShape(
            names,
            {name: conversion for name, conversion in self.conversions.items() if name in declared},
            tuple(name for name in self.hidden if name in declared),
            {name: value for name, value in self.defaults.items() if name in declared},
        )

    def skipped_names(self, fitting: ParameterShape, schema: Json) -> list[str]:
        """New names that were left out because another parameter has them."""
        declared = _declared_parameters(schema) or ()
        return [new for old, new in self.names.items() if old not in fitting.names and old in declared]

    def __bool__(self) -> bool:
        return bool(self.names or self.conversions or self.hidden or self.defaults)

    def to_model(self, arguments: Object) -> Object:
        """The client's arguments as the model gave them, in the same order (prompts are cached by prefix)."""
        joined = {one.joined_parameter: name for name, one in self.conversions.items() if one.joined_parameter}
        found: Object = {}
        for name, value in arguments.items():
            name = joined.get(name, name)
            conversion, new = self.conversions.get(name), self.names.get(name, name)
            if name in self.hidden or new in found:
                continue
            if conversion is None:
                found[new] = value
            elif conversion.joined_parameter:
                found[new] = conversion.to_model([arguments.get(name), arguments.get(conversion.joined_parameter)])
            elif conversion.split_parameter:
                _set_pair(found, conversion.to_model(value), new, conversion.split_parameter)
            else:
                found[new] = conversion.to_model(value)
        return found

    def to_client(self, arguments: Object) -> Object:
        """The model's arguments as the client's tool takes them."""
        client_names = {new: old for old, new in self.names.items()}
        client_names |= {one.split_parameter: name for name, one in self.conversions.items() if one.split_parameter}
        found: Object = {}
        for name, value in arguments.items():
            old = client_names.get(name, name)
            conversion = self.conversions.get(old)
            if old in found or (name not in client_names and name in self.hidden):
                continue
            if conversion is None:
                found[old] = value
            elif conversion.split_parameter:
                pair = [arguments.get(self.names.get(old, old)), arguments.get(conversion.split_parameter)]
                found[old] = conversion.to_client(pair)
            elif conversion.joined_parameter:
                _set_pair(found, conversion.to_client(value), old, conversion.joined_parameter)
            else:
                found[old] = conversion.to_client(value)
        for name, value in self.defaults.items():
            found.setdefault(name, value)
        return found

    @property
    def _hidden_in_schema(self) -> set[str]:
        """Parameters of the client that are hidden, or joined with another one."""
        return {*self.hidden, *(one.joined_parameter for one in self.conversions.values() if one.joined_parameter)}

    # --- schemas ---

    def model_schema(self, schema: Json) -> Json:
        """The schema of the parameters as the model sees them. Only properties of the root are parameters."""
        if not isinstance(schema, dict):
            return schema
        moved = move_references(schema, self._rename_reference)
        out: Object = self._convert_level(moved)
        for key in _COMBINERS:
            if isinstance(out.get(key), list):
                out[key] = [self._convert_level(part) if isinstance(part, dict) else part for part in out[key]]
        return out

    def _rename_reference(self, reference: str) -> str:
        for old, new in self.names.items():
            head = f"#/properties/{escape_reference_key(old)}"
            if reference == head or reference.startswith(f"{head}/"):
                return f"#/properties/{escape_reference_key(new)}{reference[len(head) :]}"
        return reference

    def _convert_level(self, schema: Object) -> Object:
        """The root of a schema, or one of its alternatives."""
        out = dict(schema)
        hidden = self._hidden_in_schema
        for key in ("properties", "dependentSchemas", "dependentRequired"):
            if isinstance(out.get(key), dict):
                out[key] = {
                    self.names.get(name, name): self._convert_value(key, name, value)
                    for name, value in out[key].items()
                    if name not in hidden
                }
        for name, conversion in self.conversions.items():
            properties = schema.get("properties")
            if conversion.split_parameter and isinstance(properties, dict) and name in properties:
                out["properties"] = {conversion.split_parameter: {"type": "string"}, **out["properties"]}
        for key in ("required", "propertyOrdering"):
            if isinstance(out.get(key), list):
                out[key] = self._rename_list(out[key])
        return out

    def _convert_value(self, key: str, name: str, value: Json) -> Json:
        if key == "properties":
            return convert_schema(value, self.conversions[name]) if name in self.conversions else value
        return self._rename_list(value) if isinstance(value, list) else value

    def _rename_list(self, names: list[Json]) -> list[Json]:
        hidden = self._hidden_in_schema
        listed: list[Json] = []
        for name in (name for name in names if isinstance(name, str) and name not in hidden):
            conversion = self.conversions.get(name)
            if conversion is not None and conversion.split_parameter:
                listed.append(conversion.split_parameter)
            listed.append(self.names.get(name, name))
        return listed


def _set_pair(found: Object, pair: Json, name: str, second_name: str) -> None:
    found.update({key: value for key, value in zip((name, second_name), pair, strict=True) if value is not None})


# --- calls in the answer ---

ToolKey = tuple[str, str]
"""Namespace and name."""
MAX_PROBLEMS = 5
"""The most problems of a call that are listed."""


class RefusedCall(Struct, frozen=True):
    """A call that must not reach the client."""

    call: Call
    reason: str
    """The result that the model gets instead, so that it tries again. For a fatal one, what is wrong."""
    fatal: bool = False
    """The whole answer is refused."""


class ToolUndo(Struct, frozen=True):
    """How calls of one tool are changed back."""

    client_name: str
    """The client's name of the tool."""
    shape: ParameterShape | None = None
    """How its parameters were changed."""
    schema: Json = None
    """The client's schema, where arguments are checked against it."""
    validate: str = "off"
    """As `Rule.validate`."""
    rule: str = ""
    """The rule that says so, for losses."""

    @property
    def can_retry(self) -> bool:
        return self.validate == "retry" and self.schema is not None

    @property
    def needs_whole_call(self) -> bool:
        return self.shape is not None or self.schema is not None


class PolicyUndo(Struct, frozen=True):
    """How calls are changed back, by the namespace and name that the model uses."""

    tools: Mapping[ToolKey, ToolUndo] = EMPTY_MAPPING  # type: ignore[assignment]
    dropped: Mapping[ToolKey, str] = EMPTY_MAPPING  # type: ignore[assignment]
    """Removed tools, each with the result of a call of it."""
    offered: frozenset[str] = frozenset()
    """The names that the model has, where tools are removed: another name may mean one of those."""

    def __bool__(self) -> bool:
        return bool(self.tools or self.dropped)

    def _find_dropped(self, call: Call) -> ToolKey | None:
        """The removed tool that a call means, also by `Bash` or `functions.bash`, which some clients take for it."""
        key = (call.namespace, call.name)
        if key in self.tools or key in self.dropped:
            return key if key not in self.tools else None
        if not self.dropped or call.namespace or call.name in self.offered:
            return None
        names = (*self.offered, *(name for space, name in self.dropped if not space))
        meant = ("", NameIndex({name: name for name in names}).find_meant_name(call.name) or "")
        return meant if meant in self.dropped else None

    def needs_whole_call(self, call: Call) -> bool:
        """Must a call of this tool be held back until it is complete?"""
        found = self.tools.get((call.namespace, call.name))
        return self.is_dropped(call) if found is None else found.needs_whole_call

    @property
    def can_refuse(self) -> bool:
        """Can a call be refused so that the model must be asked again?"""
        return bool(self.dropped) or self._can_retry

    @property
    def _can_retry(self) -> bool:
        return bool(self.tools) and any(tool.can_retry for tool in self.tools.values())

    def is_dropped(self, call: Call) -> bool:
        return self._find_dropped(call) is not None

    def can_refuse_tool(self, call: Call) -> bool:
        found = self.tools.get((call.namespace, call.name))
        return self.is_dropped(call) if found is None else found.can_retry

    @property
    def without_retries(self) -> PolicyUndo:
        """The same for an answer after a retry: invalid arguments are only reported."""
        if not self._can_retry:
            return self
        tools = {key: replace(tool, validate="report") if tool.can_retry else tool for key, tool in self.tools.items()}
        return replace(self, tools=tools)

    def restore_name(self, call: Call) -> Call:
        found = self.tools.get((call.namespace, call.name))
        return call if found is None or found.client_name == call.name else replace_fields(call, name=found.client_name)

    def restore_call(self, call: Call, ledger: Ledger, incomplete: bool = False) -> Call | RefusedCall:
        """A complete call for the client, or why it does not get it. Arguments that were cut off are not changed."""
        found = self.tools.get((call.namespace, call.name))
        if found is None:
            dropped = self._find_dropped(call)
            if dropped is None:
                return call
            ledger.note("policy-call-refused", source_path(call), f"a call of `{call.name}` did not reach the client")
            return RefusedCall(call, self.dropped[dropped])
        named = self.restore_name(call)
        if not found.needs_whole_call or incomplete:
            return named
        arguments = decode_object_or_none(call.arguments)
        if arguments is None:
            return self._report_problems(named, found, ["the arguments are not a JSON object"], ledger)
        restored: Object = arguments if found.shape is None else found.shape.to_client(arguments)
        problems: list[str] = []
        if found.schema is not None:
            restored, fixed = fix_whole_numbers(restored, found.schema)
            if fixed:
                what = f"whole numbers of a call of `{named.name}` were written without a fraction"
                ledger.note("policy-arguments-fixed", source_path(call), what, found.rule)
            problems = value_problems(restored, found.schema)
        if restored is not arguments:
            named = replace_fields(named, arguments=encode_text(restored))
        return self._report_problems(named, found, problems, ledger) if problems else named

    @staticmethod
    def _report_problems(call: Call, tool_undo: ToolUndo, problems: list[str], ledger: Ledger) -> Call | RefusedCall:
        if tool_undo.schema is None or tool_undo.validate == "off":
            return call
        listed = "; ".join(problems[:MAX_PROBLEMS])
        what = f"the arguments of `{call.name}`: {listed}"
        ledger.note("policy-arguments-invalid", source_path(call), what, tool_undo.rule)
        if tool_undo.validate == "report":
            return call
        reason = f"the arguments do not match the tool's parameters: {listed}"
        if tool_undo.validate == "refuse":
            return RefusedCall(call, reason, fatal=True)
        return RefusedCall(call, f"Not run, because {reason}. Call it again with arguments that do.")


NOTHING_TO_UNDO = PolicyUndo()
