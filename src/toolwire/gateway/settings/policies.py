"""`[[policy]]`: rules read and checked, each mistake with its line; presets become the rules that they stand for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolwire.gateway.settings.problems import meant
from toolwire.gateway.settings.tables import Findings, Table
from toolwire.gateway.settings.toml_lines import Place
from toolwire.ir import NOTHING
from toolwire.policy.match import fits, is_glob
from toolwire.policy.reshape import WAYS
from toolwire.policy.rules import EFFECTS, MATCHES, Match, Reshape, Rule
from toolwire.protocols import ROOMS
from toolwire.schema import problems

Presets = Mapping[str, tuple[Rule, ...]]

SECTION = "policy"
_LISTS = (*MATCHES, "keep")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PLACEHOLDERS = {"rename": ("name",), "description": ("description",), "guidance": ("tool", "shell")}
_OF_KEPT = tuple("rename parameters reshape hide defaults description describe_at_most schema strict validate".split())
"""What can only be done to a tool that stays."""


class Preset(Rule, frozen=True, kw_only=True):
    """A rule as it stands in the file."""

    preset: str = ""
    """The rules of a preset instead of effects; what this rule speaks of narrows them."""


def read(value: object, findings: Findings, providers: Collection[str], presets: Presets = NOTHING) -> tuple[Rule, ...]:
    """The rules of the file, in order, with presets in their places."""
    if not isinstance(value, list):
        findings.add((SECTION,), f"`{SECTION}` is a list of tables", f"write `[[{SECTION}]]`")
        return ()
    own: list[tuple[Place, Rule]] = []
    found: list[Rule] = []
    for at, table in enumerate(value):
        place: Place = (SECTION, at)
        rule = one(findings.table(table, place), place, findings, providers, presets)
        if rule is None:
            continue
        named = replace(rule, name=rule.name or f"policy {at + 1}")
        if rule.preset:
            found += expanded(named, presets.get(rule.preset, ()))
        else:
            found.append(_bare(named))
            own.append((place, named))
    _together(own, findings)
    return tuple(found)


def one(
    table: Table, place: Place, findings: Findings, providers: Collection[str] | None = None, presets: Presets = NOTHING
) -> Preset | None:
    """One rule, checked by itself; without `providers` any may be named. None where it cannot be used."""
    before = len(findings.all)
    listed = {key: [value] if key in _LISTS and isinstance(value, str) else value for key, value in table.items()}
    values = findings.shaped(listed, Preset, place, ("within", "reshape"))
    if "within" in table:
        findings.add((*place, "within"), "unknown key `within`", meant("within", _known()))
    if values is None:
        return None
    rule = Preset(**values, reshape=_reshapes(table.get("reshape", {}), (*place, "reshape"), findings))
    rule = replace(rule, client=tuple(name.replace("_", "-") for name in rule.client))
    _check(rule, table, place, findings, providers, presets)
    return rule if len(findings.all) == before else None


def expanded(rule: Rule, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules of a preset where a rule of the file speaks of something: both must hold."""
    match = Match(**{name: getattr(rule, name) for name in MATCHES})
    within = () if match == Match() else (match,)
    return tuple(replace(each, name=f"{rule.name}: {each.name}", within=(*each.within, *within)) for each in rules)


def _bare(rule: Preset) -> Rule:
    return Rule(**{name: getattr(rule, name) for name in Rule.__struct_fields__})


def _known() -> tuple[str, ...]:
    return tuple(name for name in Preset.__struct_fields__ if name != "within")


# --- one rule ---------------------------------------------------------------------------------------------------------


def _check(
    rule: Preset, table: Table, place: Place, findings: Findings, providers: Collection[str] | None, presets: Presets
) -> None:
    _check_names(rule, place, findings, providers)
    said = [name for name in EFFECTS if getattr(rule, name) != _default(name)]
    if rule.preset:
        if rule.preset not in presets:
            findings.add((*place, "preset"), f"no preset is called `{rule.preset}`", meant(rule.preset, presets))
        for name in said:
            findings.add(
                (*place, name), f"`{name}` beside a preset", "a preset brings what it does; write a second rule"
            )
        return
    if not said and table.keys().isdisjoint(EFFECTS):  # one that is wrong has been told
        findings.add(place, "this rule does nothing", f"add one of: {', '.join((*EFFECTS, 'preset'))}")
    for name in _PLACEHOLDERS:
        _check_placeholders(name, getattr(rule, name) or "", (*place, name), findings)
    _check_dropping(rule, said, place, findings)
    if rule.rename:
        _check_rename(rule, (*place, "rename"), findings)
    _check_parameters(rule, place, findings)
    if rule.schema is not None:
        _check_schema(rule, rule.schema, (*place, "schema"), findings)


def _default(name: str) -> object:
    return _DEFAULTS[name]


_DEFAULTS = {name: getattr(Rule(), name) for name in Rule.__struct_fields__}


def _check_names(rule: Rule, place: Place, findings: Findings, providers: Collection[str] | None) -> None:
    for key in _LISTS:
        for at, name in enumerate(getattr(rule, key)):
            fault = _glob_fault(key, name)
            if fault:
                findings.add((*place, key, at), f"`{key}`: {fault}", "`*` stands for any characters, `?` for one")
    for known, key, what in ((ROOMS, "client", "protocol"), (providers, "provider", "provider")):
        for at, name in enumerate(getattr(rule, key)):
            if known is not None and name and not any(fits(each, (name,)) for each in known):
                findings.add((*place, key, at), f"no {what} is called `{name}`", meant(name, known))


def _glob_fault(key: str, name: str) -> str:
    if not name or name.isspace():
        return "an empty name fits nothing"
    if key != "model" and any(char in "[]{}()|^$\\," or char.isspace() for char in name):
        return f"`{name}` is no name and no pattern"
    return ""


def _check_placeholders(key: str, text: str, place: Place, findings: Findings) -> None:
    known = _PLACEHOLDERS[key]
    for word in _PLACEHOLDER.findall(text):
        if word not in known:
            hint = f"there is: {', '.join(f'{{{name}}}' for name in known)}"
            findings.add(place, f"nothing is known as `{{{word}}}`", hint)


def _check_dropping(rule: Rule, said: Sequence[str], place: Place, findings: Findings) -> None:
    if rule.drop:
        for name in said:
            if name in _OF_KEPT:
                findings.add((*place, name), f"`{name}` beside `drop`", "a tool that is taken away needs nothing else")
    elif rule.guidance and rule.max_tools is None:
        findings.add((*place, "guidance"), "`guidance` without `drop`", "it is told when a tool was taken away")
    if rule.keep and rule.max_tools is None:
        findings.add((*place, "keep"), "`keep` without `max_tools`", "add `max_tools = …`")


def _check_rename(rule: Rule, place: Place, findings: Findings) -> None:
    fixed = "{name}" not in rule.rename
    if not _NAME.fullmatch(_PLACEHOLDER.sub("x", rule.rename)):
        findings.add(place, f"`{rule.rename}` is no name for a tool", "letters, digits, `_` and `-`; at most 128")
    elif rule.rename == "{name}" or (fixed and rule.rename in rule.tool):
        findings.add(place, f"`{rule.rename}` is what it is called already", "take it out")
    elif fixed and (not rule.tool or any(map(is_glob, rule.tool))):
        hint = "write `{name}` where the old name shall stand, or name the tools"
        findings.add(place, f"several tools would be called `{rule.rename}`", hint)


def _check_parameters(rule: Rule, place: Place, findings: Findings) -> None:
    taken: dict[str, str] = {}
    for key, pairs in (("parameters", rule.parameters), ("reshape", _targets(rule))):
        for old, new in pairs.items():
            where = (*place, key, old)
            if not old or not new:
                findings.add(where, "a parameter needs a name")
            elif key == "parameters" and old == new:
                findings.add(where, f"`{old}` is what it is called already", "take it out")
            elif key == "reshape" and old in rule.parameters:
                findings.add(where, f"`{old}` stands in `parameters` too", "`to` renames it here")
            elif new in taken:
                findings.add(where, f"`{taken[new]}` and `{old}` would both be called `{new}`")
            elif old in rule.hide:
                findings.add(where, f"`{old}` stands in `hide` too", "the model sees it, or it does not")
            taken.setdefault(new, old)


def _targets(rule: Rule) -> dict[str, str]:
    return {old: reshape.to or old for old, reshape in rule.reshape.items()}


def _reshapes(value: object, place: Place, findings: Findings) -> dict[str, Reshape]:
    found: dict[str, Reshape] = {}
    for name, table in findings.table(value, place).items():
        where = (*place, name)
        given = {"as": table} if isinstance(table, str) else findings.table(table, where)
        fine = True
        for key, said in given.items():
            if key not in ("to", "as"):
                findings.add((*where, key), f"unknown key `{key}`", meant(key, ("to", "as")))
                fine = False
            elif not isinstance(said, str):
                findings.add((*where, key), f"`{key}`: expected text in quotes")
                fine = False
        way = given.get("as", "")
        if fine and way not in WAYS:
            wrong = f"no way to reshape is called `{way}`" if way else "`as` is missing"
            findings.add((*where, "as") if way else where, wrong, meant(str(way), WAYS))
        elif fine:
            found[name] = Reshape(way=str(way), to=str(given.get("to", "")))
    return found


def _check_schema(rule: Rule, schema: Mapping[str, Any], place: Place, findings: Findings) -> None:
    for pointer, what in problems(dict(schema)):
        steps = tuple(int(step) if step.isdecimal() else step for step in pointer.split("/")[1:])
        findings.add((*place, *steps), f"no valid JSON Schema at {pointer or 'its root'}: {what}")
    properties = schema.get("properties")
    if schema.get("type") != "object":
        findings.add(place, "the parameters of a tool are an object", 'add `type = "object"`')
    elif isinstance(properties, dict):
        for new in (*rule.parameters.values(), *_targets(rule).values()):
            if new not in properties:
                findings.add((*place, "properties"), f"the parameter `{new}` is not in it", meant(new, properties))


# --- rules together ---------------------------------------------------------------------------------------------------


def _together(rules: Sequence[tuple[Place, Rule]], findings: Findings) -> None:
    """Names that two tools would have, and names that go round in a circle."""
    renames = [
        (place, rule, tool, rule.rename.replace("{name}", tool))
        for place, rule in rules
        for tool in rule.tool
        if rule.rename and not is_glob(tool)
    ]
    for number, (place, rule, tool, new) in enumerate(renames):
        where = (*place, "rename")
        for _, other, sooner, its in renames[:number]:
            if other is not rule and its == new and sooner != tool and _meet(rule, other):
                findings.add(
                    where, f"`{sooner}` and `{tool}` would both be called `{new}`", f"see the rule `{other.name}`"
                )
                break
        circle = next(_circles(tool, renames, number), None)
        if circle is not None:
            findings.add(where, f"names go round in a circle: {' → '.join(circle)}", "one of them needs another name")


def _circles(start: str, renames: Sequence[tuple[Place, Rule, str, str]], number: int) -> Iterator[tuple[str, ...]]:
    """Ways from a name back to it that this rule closes."""
    steps = {old: new for _, rule, old, new in renames[: number + 1] if _meet(rule, renames[number][1])}
    path = [start]
    while (onward := steps.get(path[-1])) is not None:
        path.append(onward)
        if onward == start:
            yield tuple(path)
            return
        if onward in path[:-1]:
            return


def _meet(one: Rule, other: Rule) -> bool:
    """Can both be in force at once? Two patterns are taken to overlap."""
    for key in MATCHES:
        if key == "tool":
            continue
        mine, its = getattr(one, key), getattr(other, key)
        if mine and its and not any(_overlap(first, second) for first in mine for second in its):
            return False
    return True


def _overlap(one: str, other: str) -> bool:
    return (is_glob(one) and is_glob(other)) or fits(one, (other,)) or fits(other, (one,))
