"""The catalogue of agents' tools (`policy/catalogue.toml`) and the presets (`policy/presets.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.core.json_values import Json
from toolwire.policy.effects import CONVERSIONS
from toolwire.policy.rules import Reshape, Rule

_T = TypeVar("_T")
DEFAULT_FORM = "text"


class Parameter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter of one agent's tool."""

    name: str
    type: str
    of: str = ""
    """The type of a list's items."""
    required: bool = False
    older: bool = False
    meaning: str = field(default="", name="is")
    """The key of its meaning in `CatalogueTool.means`; "" if no other agent has such a parameter."""
    form: str = field(default="", name="as")
    """The form of the value, if it is not plain text."""
    means: str = ""
    default: Json = None
    """The value to use if the client requires it and the model has no such parameter."""


class AgentTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool of one agent."""

    agent: str
    name: str
    parameters: tuple[Parameter, ...]
    older: bool = False
    """Does the agent no longer send it by default?"""
    kind: str = "function"
    namespace: str = ""


class CatalogueTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool with its versions in all agents."""

    about: str
    means: dict[str, str]
    known: tuple[AgentTool, ...]
    alike: bool = True
    """Do all versions do the same, so that one can replace another?"""

    def tools_of(self, agent: str) -> tuple[AgentTool, ...]:
        """The versions of one agent, current ones first."""
        return tuple(sorted((row for row in self.known if row.agent == agent), key=lambda row: row.older))

    def parameter_meaning(self, parameter: Parameter) -> str:
        return parameter.means or self.means[parameter.meaning]


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent; its key in the catalogue is the name that rules use."""

    title: str


class Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    agents: dict[str, Agent]
    tools: dict[str, CatalogueTool]

    def find_tools(self, name: str) -> Iterator[tuple[str, CatalogueTool]]:
        """The tools with a name, their own or an agent's."""
        for key, entry in self.tools.items():
            if key == name or any(row.name == name for row in entry.known):
                yield key, entry


class AgentMapping(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent whose tools the client has, and the agent whose tools the model sees."""

    client: str
    model: str


class Preset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    about: str
    rules: tuple[dict[str, Any], ...] = ()
    keep_tools: tuple[str, ...] = ()
    mapping: AgentMapping | None = None


@cache
def load_catalogue() -> Catalogue:
    return _load_policy_file("catalogue.toml", Catalogue)


@cache
def load_presets() -> Mapping[str, Preset]:
    return _load_policy_file("presets.toml", dict[str, Preset])


def _load_policy_file(name: str, kind: type[_T]) -> _T:
    return msgspec.convert(tomllib.loads(files("toolwire.policy").joinpath(name).read_text("utf-8")), kind)


@cache
def preset_rules() -> Mapping[str, tuple[Rule, ...]]:
    """The rules of each preset."""
    return {name: tuple(_expand_preset(name, preset)) for name, preset in load_presets().items()}


def _expand_preset(name: str, preset: Preset) -> Iterator[Rule]:
    for table in preset.rules:
        rule = msgspec.convert(table, Rule)
        keep = tuple(dict.fromkeys(_tool_names(preset.keep_tools))) if rule.max_tools is not None else ()
        yield replace(rule, name=rule.name or ", ".join((name, *rule.tool)), keep=keep)
    if preset.mapping is not None:
        yield from map_agent_tools(preset.mapping.client, preset.mapping.model)


def _tool_names(tools: tuple[str, ...]) -> Iterator[str]:
    """All names of some tools, in all agents."""
    for tool in tools:
        yield tool
        yield from (row.name for row in load_catalogue().tools[tool].known)


# --- mapping one agent's tools to another's ---------------------------------------------------------------------------


def map_agent_tools(client: str, model: str) -> Iterator[Rule]:
    """Rules that show the model the tools of one agent in place of those of the client."""
    for entry in load_catalogue().tools.values():
        seen = next(iter(entry.tools_of(model)), None)
        if entry.alike and seen is not None:
            rules = (map_tool(own, seen) for own in entry.tools_of(client))
            yield from (rule for rule in rules if rule is not None)


def map_tool(client_tool: AgentTool, model_tool: AgentTool) -> Rule | None:
    """The rule from a client's tool to the one that the model sees; None if a required parameter has no source."""
    if client_tool.kind != "function" or model_tool.kind != "function":
        return None
    by_meaning = {one.meaning: one for one in reversed(model_tool.parameters) if one.meaning and not one.older}
    pairs = {one.name: by_meaning[one.meaning] for one in client_tool.parameters if one.meaning in by_meaning}
    forms = {one.name: one.form for one in client_tool.parameters if one.name in pairs}
    reshaped = {name: _reshape_name(forms[name], pair.form) for name, pair in pairs.items() if forms[name] != pair.form}
    joined = {CONVERSIONS[way].joined_parameter for way in reshaped.values()}
    unpaired = [one for one in client_tool.parameters if one.name not in pairs and one.name not in joined]
    if not pairs or any(one.required and one.default is None for one in unpaired):
        return None
    return Rule(
        name=f"{client_tool.name} as {model_tool.name}",
        tool=(client_tool.name,),
        type=("function",),
        rename=model_tool.name if model_tool.name != client_tool.name else "",
        parameters={name: pair.name for name, pair in pairs.items() if name not in reshaped and pair.name != name},
        reshape={name: Reshape(conversion=way, to=pairs[name].name) for name, way in reshaped.items()},
        hide=tuple(one.name for one in unpaired),
        defaults={one.name: one.default for one in unpaired if one.default is not None},
        clean=True,
    )


def _reshape_name(client_form: str, model_form: str) -> str:
    """The name of the conversion between two forms of a value, the client's first."""
    return f"{client_form or DEFAULT_FORM}-{model_form or DEFAULT_FORM}"
