"""What all rules together do to one tool: of several that say the same thing, the last one counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolwire.ir import NOTHING, ToolName
from toolwire.policy.match import means
from toolwire.policy.reshape import WAYS, Way, shown
from toolwire.policy.rules import EFFECTS, Reshape, Rule
from toolwire.schema.refs import repointed, step
from toolwire.wire import Json, Object

_DEFAULTS: Mapping[str, Any] = {name: getattr(Rule(), name) for name in EFFECTS}
PARAMETERS = ("parameters", "reshape", "hide", "defaults")


class Effect(Struct, frozen=True):
    """Each effect of the rules that speak of a tool, with the rule that says it."""

    said: Mapping[str, Rule]

    def value(self, name: str) -> Any:
        rule = self.said.get(name)
        return _DEFAULTS[name] if rule is None else getattr(rule, name)

    @property
    def dropped_by(self) -> Rule | None:
        rule = self.said.get("drop")
        return rule if rule is not None and rule.drop else None

    def name(self, old: str) -> str:
        """The tool's name for the model, as far as the rules go."""
        rule = self.said.get("rename")
        return old if rule is None else rule.rename.replace("{name}", old)

    @property
    def shape(self) -> Shape | None:
        if self.said.keys().isdisjoint(PARAMETERS):
            return None
        reshapes: Mapping[str, Reshape] = self.value("reshape")
        names = dict(self.value("parameters"))
        names.update({old: reshape.to for old, reshape in reshapes.items() if reshape.to and reshape.to != old})
        ways = {old: WAYS[reshape.way] for old, reshape in reshapes.items()}
        return Shape(names, ways, tuple(self.value("hide")), self.value("defaults"))


NOTHING_SAID = Effect(NOTHING)


def effect_of(rules: Sequence[Rule], tool: ToolName) -> Effect:
    said: dict[str, Rule] = {}
    for rule in rules:
        if means(rule, tool):
            said.update({name: rule for name in EFFECTS if getattr(rule, name) != _DEFAULTS[name]})
    return Effect(said) if said else NOTHING_SAID


_PARTS = ("allOf", "anyOf", "oneOf")


def _declared(schema: Json) -> list[str] | None:
    """The names of the parameters, those in parts of the schema too; None where it names none."""
    if not isinstance(schema, dict):
        return None
    levels = [schema, *(part for key in _PARTS if isinstance(schema.get(key), list) for part in schema[key])]
    named = [level["properties"] for level in levels if isinstance(level, dict) and "properties" in level]
    return [name for names in named if isinstance(names, dict) for name in names] if named else None


class Shape(Struct, frozen=True):
    """How the parameters of one tool differ between client and model."""

    names: Mapping[str, str]
    """The client's name of a parameter, and the model's."""
    ways: Mapping[str, Way]
    """By the client's name."""
    hidden: tuple[str, ...]
    """The client's names of those that the model does not see."""
    defaults: Mapping[str, Json]

    def within(self, schema: Json) -> Shape:
        """As far as the client declares the parameters that it speaks of, and without names that another one has."""
        own = _declared(schema)
        if own is None:
            return self
        taken = {name for name in own if name not in self.names and name not in self.hidden}
        names: dict[str, str] = {}
        for old, new in self.names.items():
            if old in own and new not in taken:
                names[old] = new
                taken.add(new)
        return Shape(
            names,
            {name: way for name, way in self.ways.items() if name in own},
            tuple(name for name in self.hidden if name in own),
            {name: value for name, value in self.defaults.items() if name in own},
        )

    def skipped(self, fitting: Shape, schema: Json) -> list[str]:
        """New names of declared parameters that were taken."""
        own = _declared(schema) or ()
        return [new for old, new in self.names.items() if old not in fitting.names and old in own]

    def __bool__(self) -> bool:
        return bool(self.names or self.ways or self.hidden or self.defaults)

    def out(self, arguments: Object) -> Object:
        """The client's arguments as the model would have given them, in their order: caches know the model's own."""
        joined = {way.joins: name for name, way in self.ways.items() if way.joins}
        found: Object = {}
        for name, value in arguments.items():
            name = joined.get(name, name)
            way, new = self.ways.get(name), self.names.get(name, name)
            if name in self.hidden or new in found:
                continue
            if way is None:
                found[new] = value
            elif way.joins:
                found[new] = way.out([arguments.get(name), arguments.get(way.joins)])
            elif way.splits:
                _give(found, way.out(value), new, way.splits)
            else:
                found[new] = way.out(value)
        return found

    def back(self, arguments: Object) -> Object:
        """The model's arguments as the client takes them."""
        own = {new: old for old, new in self.names.items()}
        own.update({way.splits: name for name, way in self.ways.items() if way.splits})
        found: Object = {}
        for name, value in arguments.items():
            old = own.get(name, name)
            way = self.ways.get(old)
            if old in found or (name not in own and name in self.hidden):
                continue
            if way is None:
                found[old] = value
            elif way.splits:
                found[old] = way.back([arguments.get(self.names.get(old, old)), arguments.get(way.splits)])
            elif way.joins:
                _give(found, way.back(value), old, way.joins)
            else:
                found[old] = way.back(value)
        for name, value in self.defaults.items():
            found.setdefault(name, value)
        return found

    @property
    def _joined(self) -> list[str]:
        return [way.joins for way in self.ways.values() if way.joins]

    @property
    def _split(self) -> list[str]:
        return [way.splits for way in self.ways.values() if way.splits]

    # --- schemas ---

    def schema(self, schema: Json) -> Json:
        """The parameters as the model sees them. Only the names at the top are parameters."""
        if not isinstance(schema, dict):
            return schema
        moved = repointed(schema, self._moved)
        out: Object = self._level(moved)
        for key in _PARTS:
            if isinstance(out.get(key), list):
                out[key] = [self._level(part) if isinstance(part, dict) else part for part in out[key]]
        return out

    def _moved(self, reference: str) -> str:
        for old, new in self.names.items():
            head = f"#/properties/{step(old)}"
            if reference == head or reference.startswith(f"{head}/"):
                return f"#/properties/{step(new)}{reference[len(head) :]}"
        return reference

    def _level(self, schema: Object) -> Object:
        out = dict(schema)
        hidden = {*self.hidden, *self._joined}
        for key in ("properties", "dependentSchemas", "dependentRequired"):
            if isinstance(out.get(key), dict):
                out[key] = {
                    self.names.get(name, name): self._value(key, name, value)
                    for name, value in out[key].items()
                    if name not in hidden
                }
        for name, way in self.ways.items():
            if way.splits and isinstance(schema.get("properties"), dict) and name in schema["properties"]:
                out["properties"] = {way.splits: {"type": "string"}, **out["properties"]}
        for key in ("required", "propertyOrdering"):
            if isinstance(out.get(key), list):
                out[key] = self._listed(out[key])
        return out

    def _value(self, key: str, name: str, value: Json) -> Json:
        if key == "properties":
            return shown(value, self.ways[name]) if name in self.ways else value
        return self._listed(value) if isinstance(value, list) else value

    def _listed(self, names: list[Json]) -> list[Json]:
        hidden = {*self.hidden, *self._joined}
        listed: list[Json] = []
        for name in (name for name in names if isinstance(name, str) and name not in hidden):
            way = self.ways.get(name)
            listed += [*([way.splits] if way is not None and way.splits else ()), self.names.get(name, name)]
        return listed


def _give(found: Object, pair: Json, name: str, beside: str) -> None:
    found.update({key: value for key, value in zip((name, beside), pair, strict=True) if value is not None})
