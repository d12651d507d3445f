"""What all rules together do to one tool: of several that say the same thing, the last one counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, ToolName
from toolwire.core.json_values import Json, Object
from toolwire.policy.reshape import CONVERSIONS, Conversion, convert_schema
from toolwire.policy.rules import EFFECT_FIELDS, Reshape, Rule, matches_tool
from toolwire.schema.references import escape_reference_key, move_references

_DEFAULTS: Mapping[str, Any] = {name: getattr(Rule(), name) for name in EFFECT_FIELDS}
SHAPE_EFFECTS = ("parameters", "reshape", "hide", "defaults")


class ToolEffects(Struct, frozen=True):
    """Each effect of the rules that speak of a tool, with the rule that says it."""

    rules_by_effect: Mapping[str, Rule]

    def value(self, name: str) -> Any:
        rule = self.rules_by_effect.get(name)
        return _DEFAULTS[name] if rule is None else getattr(rule, name)

    @property
    def dropped_by(self) -> Rule | None:
        rule = self.rules_by_effect.get("drop")
        return rule if rule is not None and rule.drop else None

    def model_name(self, old: str) -> str:
        """The tool's name for the model, as far as the rules go."""
        rule = self.rules_by_effect.get("rename")
        return old if rule is None else rule.rename.replace("{name}", old)

    @property
    def shape(self) -> ParameterShape | None:
        if self.rules_by_effect.keys().isdisjoint(SHAPE_EFFECTS):
            return None
        reshapes: Mapping[str, Reshape] = self.value("reshape")
        names = dict(self.value("parameters"))
        names.update({old: reshape.to for old, reshape in reshapes.items() if reshape.to and reshape.to != old})
        ways = {old: CONVERSIONS[reshape.conversion] for old, reshape in reshapes.items()}
        return ParameterShape(names, ways, tuple(self.value("hide")), self.value("defaults"))


NO_EFFECTS = ToolEffects(EMPTY_MAPPING)


def tool_effects(rules: Sequence[Rule], tool: ToolName) -> ToolEffects:
    said: dict[str, Rule] = {}
    for rule in rules:
        if matches_tool(rule, tool):
            said.update({name: rule for name in EFFECT_FIELDS if getattr(rule, name) != _DEFAULTS[name]})
    return ToolEffects(said) if said else NO_EFFECTS


_COMBINERS = ("allOf", "anyOf", "oneOf")


def _declared_parameters(schema: Json) -> list[str] | None:
    """The names of the parameters, those in parts of the schema too; None where it names none."""
    if not isinstance(schema, dict):
        return None
    levels = [schema, *(part for key in _COMBINERS if isinstance(schema.get(key), list) for part in schema[key])]
    named = [level["properties"] for level in levels if isinstance(level, dict) and "properties" in level]
    return [name for names in named if isinstance(names, dict) for name in names] if named else None


class ParameterShape(Struct, frozen=True):
    """How the parameters of one tool differ between client and model."""

    names: Mapping[str, str]
    """The client's name of a parameter, and the model's."""
    conversions: Mapping[str, Conversion]
    """By the client's name."""
    hidden: tuple[str, ...]
    """The client's names of those that the model does not see."""
    defaults: Mapping[str, Json]

    def restrict_to_schema(self, schema: Json) -> ParameterShape:
        """As far as the client declares the parameters that it speaks of, and without names that another one has."""
        own = _declared_parameters(schema)
        if own is None:
            return self
        taken = {name for name in own if name not in self.names and name not in self.hidden}
        names: dict[str, str] = {}
        for old, new in self.names.items():
            if old in own and new not in taken:
                names[old] = new
                taken.add(new)
        return ParameterShape(
            names,
            {name: way for name, way in self.conversions.items() if name in own},
            tuple(name for name in self.hidden if name in own),
            {name: value for name, value in self.defaults.items() if name in own},
        )

    def skipped_names(self, fitting: ParameterShape, schema: Json) -> list[str]:
        """New names of declared parameters that were taken."""
        own = _declared_parameters(schema) or ()
        return [new for old, new in self.names.items() if old not in fitting.names and old in own]

    def __bool__(self) -> bool:
        return bool(self.names or self.conversions or self.hidden or self.defaults)

    def to_model(self, arguments: Object) -> Object:
        """The client's arguments as the model would have given them, in their order: caches know the model's own."""
        joined = {way.joined_parameter: name for name, way in self.conversions.items() if way.joined_parameter}
        found: Object = {}
        for name, value in arguments.items():
            name = joined.get(name, name)
            way, new = self.conversions.get(name), self.names.get(name, name)
            if name in self.hidden or new in found:
                continue
            if way is None:
                found[new] = value
            elif way.joined_parameter:
                found[new] = way.to_model([arguments.get(name), arguments.get(way.joined_parameter)])
            elif way.split_parameter:
                _set_pair(found, way.to_model(value), new, way.split_parameter)
            else:
                found[new] = way.to_model(value)
        return found

    def to_client(self, arguments: Object) -> Object:
        """The model's arguments as the client takes them."""
        own = {new: old for old, new in self.names.items()}
        own.update({way.split_parameter: name for name, way in self.conversions.items() if way.split_parameter})
        found: Object = {}
        for name, value in arguments.items():
            old = own.get(name, name)
            way = self.conversions.get(old)
            if old in found or (name not in own and name in self.hidden):
                continue
            if way is None:
                found[old] = value
            elif way.split_parameter:
                found[old] = way.to_client(
                    [arguments.get(self.names.get(old, old)), arguments.get(way.split_parameter)]
                )
            elif way.joined_parameter:
                _set_pair(found, way.to_client(value), old, way.joined_parameter)
            else:
                found[old] = way.to_client(value)
        for name, value in self.defaults.items():
            found.setdefault(name, value)
        return found

    @property
    def _joined_parameters(self) -> list[str]:
        return [way.joined_parameter for way in self.conversions.values() if way.joined_parameter]

    @property
    def _split_parameters(self) -> list[str]:
        return [way.split_parameter for way in self.conversions.values() if way.split_parameter]

    # --- schemas ---

    def model_schema(self, schema: Json) -> Json:
        """The parameters as the model sees them. Only the names at the top are parameters."""
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
        out = dict(schema)
        hidden = {*self.hidden, *self._joined_parameters}
        for key in ("properties", "dependentSchemas", "dependentRequired"):
            if isinstance(out.get(key), dict):
                out[key] = {
                    self.names.get(name, name): self._convert_value(key, name, value)
                    for name, value in out[key].items()
                    if name not in hidden
                }
        for name, way in self.conversions.items():
            if way.split_parameter and isinstance(schema.get("properties"), dict) and name in schema["properties"]:
                out["properties"] = {way.split_parameter: {"type": "string"}, **out["properties"]}
        for key in ("required", "propertyOrdering"):
            if isinstance(out.get(key), list):
                out[key] = self._rename_list(out[key])
        return out

    def _convert_value(self, key: str, name: str, value: Json) -> Json:
        if key == "properties":
            return convert_schema(value, self.conversions[name]) if name in self.conversions else value
        return self._rename_list(value) if isinstance(value, list) else value

    def _rename_list(self, names: list[Json]) -> list[Json]:
        hidden = {*self.hidden, *self._joined_parameters}
        listed: list[Json] = []
        for name in (name for name in names if isinstance(name, str) and name not in hidden):
            way = self.conversions.get(name)
            listed += [
                *([way.split_parameter] if way is not None and way.split_parameter else ()),
                self.names.get(name, name),
            ]
        return listed


def _set_pair(found: Object, pair: Json, name: str, second_name: str) -> None:
    found.update({key: value for key, value in zip((name, second_name), pair, strict=True) if value is not None})
