"""`[[policy]]`: reads and checks the rules for tools, and replaces presets by their rules. The presets are in
`policy/presets.toml`, the catalogue of agents' tools in `policy/catalogue.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.core.json_values import Json
from toolwire.gateway.settings.client_keys import NO_CLIENTS, ClientNames
from toolwire.gateway.settings.problems import ProblemCollector, TomlTable, suggest_name
from toolwire.policy.effects import CONVERSIONS
from toolwire.policy.rules import EFFECT_FIELDS, MATCH_FIELDS, Match, Reshape, Rule, is_glob, matches_globs
from toolwire.protocols import CODECS
from toolwire.schema.validate import schema_problems

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
    return {name: tuple(_expand_preset(name, preset)) for name, preset in load_presets().items()}


def _expand_preset(name: str, preset: Preset) -> Iterator[Rule]:
    tools = load_catalogue().tools
    keep_tools = [name for tool in preset.keep_tools for name in (tool, *(row.name for row in tools[tool].known))]
    for table in preset.rules:
        rule = msgspec.convert(table, Rule)
        keep = tuple(dict.fromkeys(keep_tools)) if rule.max_tools is not None else ()
        yield replace(rule, name=rule.name or ", ".join((name, *rule.tool)), keep=keep)
    if preset.mapping is not None:
        yield from map_agent_tools(preset.mapping.client, preset.mapping.model)


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
    # A conversion is named after the two forms of the value, the client's first.
    reshaped = {
        name: f"{forms[name] or DEFAULT_FORM}-{pair.form or DEFAULT_FORM}"
        for name, pair in pairs.items()
        if forms[name] != pair.form
    }
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


# --- rules of the file ------------------------------------------------------------------------------------------------

Presets = Mapping[str, tuple[Rule, ...]]

SECTION = "policy"
_LIST_KEYS = (*MATCH_FIELDS, "keep")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_ALLOWED_PLACEHOLDERS = {"rename": ("name",), "description": ("description",), "guidance": ("tool", "shell")}
_MAX_RENAMES = 20
"""Renames of one tool that are followed to find a circle."""
_EFFECTS_ON_KEPT_TOOLS = tuple(
    "rename parameters reshape hide defaults description describe_at_most schema strict validate".split()
)
"""Effects that make no sense for a dropped tool."""


class PolicyTable(Rule, frozen=True, kw_only=True):
    """A rule for tools: the keys of its first group select requests and tools, the others change them."""

    preset: str = ""
    """Apply the rules of a preset, limited to what this rule selects."""


class ReshapeTable(Struct, frozen=True, kw_only=True):
    conversion: str = field(name="as")
    to: str = ""


def read_policies(
    value: object,
    collector: ProblemCollector,
    providers: Collection[str],
    presets: Presets,
    clients: ClientNames = NO_CLIENTS,
) -> tuple[Rule, ...]:
    """The rules of the file, in order, with each preset replaced by its rules."""
    if not isinstance(value, list):
        collector.at(SECTION).add(f"`{SECTION}` must be a list of tables", f"write `[[{SECTION}]]`")
        return ()
    own: list[tuple[ProblemCollector, Rule]] = []
    found: list[Rule] = []
    for number, table in enumerate(value):
        place = collector.at(SECTION, number)
        rule = _read_policy(place.expect_table(table), place, providers, presets)
        if rule is None:
            continue
        named = replace(rule, name=rule.name or f"policy {number + 1}")
        clients.check_globs("client key", clients.keys, rule.key, place.at("key"))
        clients.check_globs("team", clients.teams, rule.team, place.at("team"))
        if rule.preset:
            added = expand_preset(named, presets.get(rule.preset, ()))
        else:
            added = (Rule(**{name: getattr(named, name) for name in Rule.__struct_fields__}),)
            own.append((place, named))
        found += [_without_agent_grants(each, found, place) for each in added] if clients.need_keys else added
    _check_renames(own)
    return tuple(found)


def _read_policy(
    table: TomlTable, place: ProblemCollector, providers: Collection[str], presets: Presets
) -> PolicyTable | None:
    """One rule, checked by itself. None if there are errors."""
    before = len(place.problems)
    listed = {key: [value] if key in _LIST_KEYS and isinstance(value, str) else value for key, value in table.items()}
    values = place.read_fields(listed, PolicyTable, ("within", "reshape"))
    if "within" in table:
        place.at("within").add("unknown key `within`")  # only presets set it
    if values is None:
        return None
    rule = PolicyTable(**values, reshape=_read_reshapes(table.get("reshape", {}), place.at("reshape")))
    rule = replace(rule, client=tuple(name.replace("_", "-") for name in rule.client))
    _check_rule(rule, table, place, providers, presets)
    return rule if len(place.problems) == before else None


def expand_preset(rule: Rule, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules of a preset, limited to what the file's rule selects."""
    match = Match(**{name: getattr(rule, name) for name in MATCH_FIELDS})
    within = () if match == Match() else (match,)
    return tuple(replace(each, name=f"{rule.name}: {each.name}", within=(*each.within, *within)) for each in rules)


_STRICTNESS = ("", "off", "report", "retry", "refuse")
_GRANTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "drop": lambda new, old: new is False and old is True,
    "validate": lambda new, old: bool(new) and _STRICTNESS.index(new) < _STRICTNESS.index(old or "off"),
    "strict": lambda new, old: new is False and old is True,
    "parallel": lambda new, old: new is True and old is False,
}
"""Effects by which a rule can undo what an earlier rule forbids, and when it does."""


def _without_agent_grants(rule: Rule, earlier: Sequence[Rule], place: ProblemCollector) -> Rule:
    """The rule without what a client would gain by claiming to be another agent, which any client can do."""
    selecting: tuple[Match | Rule, ...] = (rule, *rule.within)
    if not any(match.agent for match in selecting) or any(match.key or match.team for match in selecting):
        return rule
    for name, is_grant in _GRANTS.items():
        new = getattr(rule, name)
        if any(is_grant(new, getattr(other, name)) and _can_overlap(rule, other) for other in earlier):
            hint = "add `key` or `team`: any client can claim to be any agent"
            place.at(name).add(
                f"ignored: `{name}` would allow by the agent what an earlier rule forbids", hint, "warning"
            )
            rule = replace(rule, **{name: _DEFAULTS[name]})
    return rule


# --- one rule ---------------------------------------------------------------------------------------------------------

_DEFAULTS = {name: getattr(Rule(), name) for name in Rule.__struct_fields__}


def _check_rule(
    rule: PolicyTable, table: TomlTable, place: ProblemCollector, providers: Collection[str], presets: Presets
) -> None:
    _check_names(rule, place, providers)
    effects = [name for name in EFFECT_FIELDS if getattr(rule, name) != _DEFAULTS[name]]
    if rule.preset:
        if rule.preset not in presets:
            place.at("preset").add(f"unknown preset `{rule.preset}`", suggest_name(rule.preset, presets))
        for name in effects:
            place.at(name).add(f"`{name}` cannot be combined with a preset", "write a second rule for it")
        return
    if not effects and table.keys().isdisjoint(EFFECT_FIELDS):  # a wrong value has its own error
        place.add("this rule has no effect", f"add one of: {', '.join((*EFFECT_FIELDS, 'preset'))}")
    for name, allowed in _ALLOWED_PLACEHOLDERS.items():
        for word in _PLACEHOLDER.findall(getattr(rule, name) or ""):
            if word not in allowed:
                hint = f"choose from: {', '.join(f'{{{each}}}' for each in allowed)}"
                place.at(name).add(f"unknown placeholder `{{{word}}}`", hint)
    _check_drop(rule, effects, place)
    if rule.rename:
        _check_rename(rule, place.at("rename"))
    _check_parameters(rule, place)
    if rule.schema is not None:
        _check_schema(rule, rule.schema, place.at("schema"))


def _check_names(rule: Rule, place: ProblemCollector, providers: Collection[str]) -> None:
    for key in _LIST_KEYS:
        for number, name in enumerate(getattr(rule, key)):
            wrong = ""
            if not name or name.isspace():
                wrong = "an empty name never matches"
            elif key != "model" and any(char in "[]{}()|^$\\," or char.isspace() for char in name):
                wrong = f"`{name}` is not a valid name or pattern"
            if wrong:
                place.at(key, number).add(f"`{key}`: {wrong}", "`*` matches any characters, `?` one")
    for known, key, what in ((CODECS, "client", "protocol"), (providers, "provider", "provider")):
        for number, name in enumerate(getattr(rule, key)):
            if name and not any(matches_globs(each, (name,)) for each in known):
                place.at(key, number).add(f"unknown {what} `{name}`", suggest_name(name, known))


def _check_drop(rule: Rule, effects: Sequence[str], place: ProblemCollector) -> None:
    for name in effects if rule.drop else ():
        if name in _EFFECTS_ON_KEPT_TOOLS:
            hint = "a dropped tool cannot be changed as well"
            place.at(name).add(f"`{name}` cannot be combined with `drop`", hint)
    if rule.guidance and not rule.drop and rule.max_tools is None:
        place.at("guidance").add("`guidance` without `drop`", "guidance is given when a tool is dropped")
    if rule.keep and rule.max_tools is None:
        place.at("keep").add("`keep` without `max_tools`", "add `max_tools = …`")


def _check_rename(rule: Rule, place: ProblemCollector) -> None:
    fixed = "{name}" not in rule.rename
    if not _TOOL_NAME.fullmatch(_PLACEHOLDER.sub("x", rule.rename)):
        place.add(f"`{rule.rename}` is not a valid tool name", "use at most 128 letters, digits, `_` and `-`")
    elif rule.rename == "{name}" or (fixed and rule.rename in rule.tool):
        place.add(f"`{rule.rename}` is already its name", "remove it")
    elif fixed and (not rule.tool or any(map(is_glob, rule.tool))):
        hint = "use `{name}` for the old name, or list the tools"
        place.add(f"several tools would be named `{rule.rename}`", hint)


def _check_parameters(rule: Rule, place: ProblemCollector) -> None:
    taken: dict[str, str] = {}
    for key, pairs in (("parameters", rule.parameters), ("reshape", _reshape_targets(rule))):
        for old, new in pairs.items():
            where = place.at(key, old)
            if not old or not new:
                where.add("the name of a parameter is empty")
            elif key == "parameters" and old == new:
                where.add(f"`{old}` is already its name", "remove it")
            elif key == "reshape" and old in rule.parameters:
                where.add(f"`{old}` is in `parameters` too", "`to` renames it here")
            elif new in taken:
                where.add(f"`{taken[new]}` and `{old}` would both be named `{new}`")
            elif old in rule.hide:
                where.add(f"`{old}` is in `hide` too", "a hidden parameter cannot be renamed")
            taken.setdefault(new, old)


def _reshape_targets(rule: Rule) -> dict[str, str]:
    return {old: reshape.to or old for old, reshape in rule.reshape.items()}


def _read_reshapes(value: object, place: ProblemCollector) -> dict[str, Reshape]:
    found: dict[str, Reshape] = {}
    for name, table in place.expect_table(value).items():
        before = len(place.problems)
        values = place.at(name).read_fields({"as": table} if isinstance(table, str) else table, ReshapeTable)
        if values is None or len(place.problems) > before:
            continue
        if values["conversion"] not in CONVERSIONS:
            hint = suggest_name(values["conversion"], CONVERSIONS)
            place.at(name, "as").add(f"unknown conversion `{values['conversion']}`", hint)
        else:
            found[name] = Reshape(**values)
    return found


def _check_schema(rule: Rule, schema: Mapping[str, Any], place: ProblemCollector) -> None:
    for pointer, what in schema_problems(dict(schema)):
        steps = (int(step) if step.isdecimal() else step for step in pointer.split("/")[1:])
        place.at(*steps).add(f"invalid JSON Schema at {pointer or 'its root'}: {what}")
    properties = schema.get("properties")
    if schema.get("type") != "object":
        place.add("the parameters of a tool must be an object", 'add `type = "object"`')
    elif isinstance(properties, dict):
        for new in (*rule.parameters.values(), *_reshape_targets(rule).values()):
            if new not in properties:
                place.at("properties").add(f"the schema has no parameter `{new}`", suggest_name(new, properties))


# --- rules together ---------------------------------------------------------------------------------------------------


def _check_renames(rules: Sequence[tuple[ProblemCollector, Rule]]) -> None:
    """Check that no two tools get the same name, and that renames form no circle."""
    by_new: dict[str, list[tuple[Rule, str]]] = {}
    by_old: dict[str, list[tuple[Rule, str]]] = {}
    for place, rule in rules:
        for tool in rule.tool if rule.rename else ():
            if is_glob(tool):
                continue
            new = rule.rename.replace("{name}", tool)
            for other, sooner in by_new.get(new, ()):
                if other is not rule and sooner != tool and _can_overlap(rule, other):
                    hint = f"see the rule `{other.name}`"
                    place.at("rename").add(f"`{sooner}` and `{tool}` would both be named `{new}`", hint)
                    break
            by_new.setdefault(new, []).append((rule, tool))
            by_old.setdefault(tool, []).append((rule, new))
            path = _follow_renames(rule, tool, by_old)
            if len(path) > 1 and path[-1] == tool:
                place.at("rename").add(f"renames form a circle: {' → '.join(path)}", "change one of the names")


def _follow_renames(rule: Rule, tool: str, by_old: Mapping[str, Sequence[tuple[Rule, str]]]) -> list[str]:
    """The names that a tool gets one after the other, by rules that can apply together with this one; up to the first
    name that comes again, or the limit."""
    path = [tool]
    while path[-1] not in path[:-1] and len(path) <= _MAX_RENAMES:
        onward = [new for other, new in by_old.get(path[-1], ()) if _can_overlap(other, rule)]
        if not onward:
            break
        path.append(onward[-1])
    return path


def _can_overlap(one: Rule, other: Rule) -> bool:
    """Can both rules apply to one request? Two patterns are assumed to overlap."""
    for key in MATCH_FIELDS:
        pairs = [(first, second) for first in getattr(one, key) for second in getattr(other, key)]
        if key != "tool" and pairs and not any(_globs_overlap(first, second) for first, second in pairs):
            return False
    return True


def _globs_overlap(one: str, other: str) -> bool:
    return (is_glob(one) and is_glob(other)) or matches_globs(one, (other,)) or matches_globs(other, (one,))
