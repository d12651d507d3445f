"""The catalogue of tools (`policy/catalogue.toml`), and the presets that are made from it (`policy/presets.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.policy.reshape import WAYS
from toolwire.policy.rules import Reshape, Rule
from toolwire.wire import Json

T = TypeVar("T")
PLAIN = "text"


class Parameter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter as one agent spells it."""

    name: str
    type: str
    of: str = ""
    """The type of the items of a list."""
    required: bool = False
    older: bool = False
    meaning: str = field(default="", name="is")
    """What it means, as a word of its tool; "" when no other agent has the like."""
    form: str = field(default="", name="as")
    """How the value is spelled, where not plainly."""
    means: str = ""
    default: Json = None
    """What is filled in where the client demands it and the model has no such parameter."""


class Known(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool as one agent knows it."""

    agent: str
    name: str
    parameters: tuple[Parameter, ...]
    older: bool = False
    """Is it no longer, or not by itself, what the agent sends?"""
    kind: str = "function"
    namespace: str = ""


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool in nobody's words."""

    about: str
    means: dict[str, str]
    known: tuple[Known, ...]
    alike: bool = True
    """Do all of them do the same, so that one can stand for another?"""

    def by(self, agent: str) -> tuple[Known, ...]:
        """As one agent knows it, today's way first."""
        return tuple(sorted((row for row in self.known if row.agent == agent), key=lambda row: row.older))

    def said(self, parameter: Parameter) -> str:
        """What a parameter means."""
        return parameter.means or self.means[parameter.meaning]


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent, under the name that rules have for it."""

    title: str


class Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    agents: dict[str, Agent]
    tools: dict[str, Entry]

    def named(self, name: str) -> Iterator[tuple[str, Entry]]:
        """The tools that go by a name, their own or an agent's."""
        for key, entry in self.tools.items():
            if key == name or any(row.name == name for row in entry.known):
                yield key, entry


class Mapped(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose tools the client has, and whose the model sees."""

    client: str
    model: str


class Preset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    about: str
    rules: tuple[dict[str, Any], ...] = ()
    keep_tools: tuple[str, ...] = ()
    mapping: Mapped | None = None


@cache
def catalogue() -> Catalogue:
    return _data("catalogue.toml", Catalogue)


@cache
def about_presets() -> Mapping[str, Preset]:
    """The presets as their file has them."""
    return _data("presets.toml", dict[str, Preset])


def _data(name: str, kind: type[T]) -> T:
    return msgspec.convert(tomllib.loads(files("toolwire.policy").joinpath(name).read_text("utf-8")), kind)


@cache
def presets() -> Mapping[str, tuple[Rule, ...]]:
    """Every preset as the rules that it stands for."""
    return {name: tuple(_rules(name, preset)) for name, preset in about_presets().items()}


def _rules(name: str, preset: Preset) -> Iterator[Rule]:
    for table in preset.rules:
        rule = msgspec.convert(table, Rule)
        keep = tuple(dict.fromkeys(_names(preset.keep_tools))) if rule.max_tools is not None else ()
        yield replace(rule, name=rule.name or ", ".join((name, *rule.tool)), keep=keep)
    if preset.mapping is not None:
        yield from mapping(preset.mapping.client, preset.mapping.model)


def _names(tools: tuple[str, ...]) -> Iterator[str]:
    """All names of some tools, those of the first tool first."""
    for tool in tools:
        yield tool
        yield from (row.name for row in catalogue().tools[tool].known)


# --- one agent's tools for another ------------------------------------------------------------------------------------


def mapping(client: str, model: str) -> Iterator[Rule]:
    """Rules that show the model one agent's tools and give the client another's, where there is a counterpart."""
    for entry in catalogue().tools.values():
        seen = next(iter(entry.by(model)), None)
        if entry.alike and seen is not None:
            rules = (mapped(own, seen) for own in entry.by(client))
            yield from (rule for rule in rules if rule is not None)


def mapped(own: Known, seen: Known) -> Rule | None:
    """The rule from a client's tool to the one that the model sees; None where what one demands cannot be had."""
    if own.kind != "function" or seen.kind != "function":
        return None
    theirs = {one.meaning: one for one in reversed(seen.parameters) if one.meaning and not one.older}
    pairs = {one.name: theirs[one.meaning] for one in own.parameters if one.meaning in theirs}
    forms = {one.name: one.form for one in own.parameters if one.name in pairs}
    reshaped = {name: _way(forms[name], pair.form) for name, pair in pairs.items() if forms[name] != pair.form}
    joined = {WAYS[way].joins for way in reshaped.values()}
    alone = [one for one in own.parameters if one.name not in pairs and one.name not in joined]
    if not pairs or any(one.required and one.default is None for one in alone):
        return None
    return Rule(
        name=f"{own.name} as {seen.name}",
        tool=(own.name,),
        type=("function",),
        rename=seen.name if seen.name != own.name else "",
        parameters={name: pair.name for name, pair in pairs.items() if name not in reshaped and pair.name != name},
        reshape={name: Reshape(way=way, to=pairs[name].name) for name, way in reshaped.items()},
        hide=tuple(one.name for one in alone),
        defaults={one.name: one.default for one in alone if one.default is not None},
        clean=True,
    )


def _way(own: str, seen: str) -> str:
    """The reshaping between two forms of a value: the client's first, then the model's."""
    return f"{own or PLAIN}-{seen or PLAIN}"
