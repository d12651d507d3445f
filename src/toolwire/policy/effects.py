"""What all rules together do to one tool, and how they change its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, ToolName
from toolwire.core.json_values import Json, Object
from toolwire.policy.reshape import CONVERSIONS, Conversion, convert_schema
from toolwire.policy.rules import EFFECT_FIELDS, Reshape, Rule, matches_tool
from toolwire.schema.combine import escape_reference_key, move_references

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
        """The tool's name for the model."""
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
