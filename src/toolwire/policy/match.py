"""Which rules are in force for an exchange, and which tools a rule speaks of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import json

from toolwire.ids import digest, flat
from toolwire.ir import AnyTool, HostedTool, Tool, ToolName
from toolwire.policy.rules import SEEN, Match, Rule, Subject

REMEMBERED = 2048
_MARK = 8
_NOTHING = {name: getattr(Rule(), name) for name in SEEN}


@lru_cache(maxsize=REMEMBERED)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in glob)
    return re.compile("".join(parts), re.DOTALL)


def is_glob(name: str) -> bool:
    return "*" in name or "?" in name


def fits(name: str, globs: Sequence[str]) -> bool:
    """Is it one of these names, or does a pattern among them fit? `*` stands for any characters, `?` for one."""
    return any(glob == name or (is_glob(glob) and _pattern(glob).fullmatch(name) is not None) for glob in globs)


def _one_fits(names: Sequence[str], globs: Sequence[str]) -> bool:
    return not globs or any(name and fits(name, globs) for name in names)


def speaks_of(match: Match | Rule, subject: Subject) -> bool:
    """Is the exchange one that it speaks of? Nothing said about something fits all of it."""
    return (
        _one_fits((subject.client,), match.client)
        and _one_fits((subject.provider,), match.provider)
        and _one_fits((subject.agent, subject.product), [glob.lower() for glob in match.agent])
        and _one_fits((subject.model, subject.asked), match.model)
    )


def in_force(rules: Sequence[Rule], subject: Subject) -> tuple[Rule, ...]:
    """The rules for this exchange, in their order."""
    return tuple(
        rule
        for rule in rules
        if speaks_of(rule, subject) and all(speaks_of(further, subject) for further in rule.within)
    )


def mark_of(rules: Sequence[Rule]) -> str:
    """What tells these rules from others, by what the model sees of its tools; "" where it sees nothing of them."""
    said = [
        [rule.tool, rule.type, rule.namespace, rule.within, {name: getattr(rule, name) for name in SEEN}]
        for rule in rules
        if any(getattr(rule, name) != _NOTHING[name] for name in SEEN)
    ]
    return digest(json.encode(said, enc_hook=dict).decode(), _MARK) if said else ""


class Policy:
    """All rules of an operator. What is in force for a subject is worked out once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._found: dict[Subject, tuple[tuple[Rule, ...], str]] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def active(self, subject: Subject) -> tuple[Rule, ...]:
        """The rules for this exchange, in the order of the file."""
        return self._known(subject)[0] if self.rules else ()

    def mark(self, subject: Subject) -> str:
        """What tells the rules for this exchange from others. Seals are bound to what their maker saw."""
        return self._known(subject)[1] if self.rules else ""

    def _known(self, subject: Subject) -> tuple[tuple[Rule, ...], str]:
        found = self._found.get(subject)
        if found is None:
            if len(self._found) >= REMEMBERED:  # names come from clients, so there is no end of them
                self._found.clear()
            rules = in_force(self.rules, subject)
            found = self._found[subject] = (rules, mark_of(rules))
        return found


# --- tools ------------------------------------------------------------------------------------------------------------


def named(tool: AnyTool) -> ToolName:
    """A tool as rules speak of it. One that the provider runs goes by its kind where it has no name."""
    if isinstance(tool, Tool):
        return ToolName(tool.name, tool.kind, tool.namespace)
    if isinstance(tool, HostedTool):
        return ToolName(tool.name or tool.tool, tool.tool)
    return ToolName(tool.kind, tool.kind)


def _means(match: Match | Rule, tool: ToolName) -> bool:
    return (
        _one_fits((tool.name, flat(tool.namespace, tool.name) if tool.namespace else ""), match.tool)
        and _one_fits((tool.kind,), match.type)
        and (not match.namespace or fits(tool.namespace, match.namespace))
    )


def means(rule: Rule, tool: ToolName) -> bool:
    """Does a rule speak of this tool?"""
    return _means(rule, tool) and all(_means(further, tool) for further in rule.within)
