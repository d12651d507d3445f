"""Rules as values: what each speaks of, and what it does. Checked by whoever reads them, so they are believed here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct, field, json

from toolwire.core.ids import flatten_tool_name, hex_digest
from toolwire.core.ir import EMPTY_MAPPING, AnyTool, ProviderTool, Tool, ToolName
from toolwire.core.json_values import Json

Globs = tuple[str, ...]


class RuleSubject(Struct, frozen=True):
    """One exchange as rules see it."""

    client: str = ""
    """The client's protocol."""
    agent: str = ""
    """The agent, by the name that it is known under; "" for one that nobody knows."""
    provider: str = ""
    model: str = ""
    """As the provider knows it."""
    requested_model: str = ""
    """The model as the client asked for it."""
    user_agent_product: str = ""
    """The first product of the user agent, in small letters and without its version."""


class Match(Struct, frozen=True, kw_only=True):
    """What something speaks of. All that is said must hold; of several names, one."""

    client: Globs = ()
    agent: Globs = ()
    provider: Globs = ()
    model: Globs = ()
    tool: Globs = ()
    type: Globs = ()
    namespace: Globs = ()


class Reshape(Struct, frozen=True, kw_only=True):
    """Another name and another form for one parameter."""

    conversion: str = field(name="as")
    """How it is reshaped, such as `shell-text`."""
    to: str = ""
    """The parameter's name for the model; its own when left out."""


class Rule(Struct, frozen=True, kw_only=True):
    """What an operator does to tools on their way. A rule holds for the exchanges and the tools that it speaks of; of
    several that say the same thing of the same tool, the last one counts."""

    name: str = ""
    """What reports call it; `policy 1` and so on when left out."""
    client: Globs = ()
    """Protocols of clients."""
    agent: Globs = ()
    """Agents, recognised by their user agent: a name of the table in the guide, or the first product as it is sent."""
    provider: Globs = ()
    """Providers by their names in this file."""
    model: Globs = ()
    """Models, as the provider knows them or as the client asked for them."""
    tool: Globs = ()
    """Names of tools; all tools when left out."""
    type: Globs = ()
    """Kinds of tools: `function`, `custom`, or one that the provider runs, such as `web_search`."""
    namespace: Globs = ()
    """Namespaces of tools."""
    drop: bool | None = None
    """Take the tool away; `false` keeps it where an earlier rule takes it."""
    rename: str = ""
    """The tool's name for the model; `{name}` stands for the old one."""
    parameters: Mapping[str, str] = EMPTY_MAPPING
    """Other names for parameters: the client's name, and the model's."""
    reshape: Mapping[str, Reshape] = EMPTY_MAPPING
    """Other forms for parameters: `{ command = { to = "cmd", as = "shell-text" } }`."""
    hide: tuple[str, ...] = ()
    """Parameters of the client that the model does not see."""
    defaults: Mapping[str, Json] = EMPTY_MAPPING
    """What the client gets for parameters of its own that the model gave nothing for."""
    description: str | None = None
    """What the model reads about it; `{description}` stands for what the client wrote."""
    describe_at_most: Annotated[int, Meta(ge=1)] | None = None
    """The most characters of a description; cut behind a sentence."""
    schema: Mapping[str, Json] | None = None
    """The parameters as the model sees them."""
    guidance: str = ""
    """Told in the instructions when this rule took a tool away; `{tool}` stands for it, `{shell}` for the tool that
    runs commands."""
    clean: bool = False
    """Put right what the instructions, and the descriptions of other tools, say of tools that were taken away or
    renamed."""
    choice: Literal["", "weaken", "refuse"] = ""
    """A demand for a call that the model cannot be given: weakened and reported, or refused."""
    validate: Literal["", "off", "report", "retry", "refuse"] = ""
    """Check the arguments of calls against the schema that the client declared: say what is wrong, let the model try
    once more, or refuse the answer."""
    max_tools: Annotated[int, Meta(ge=0)] | None = None
    """The most tools of those that the rule speaks of."""
    keep: Globs = ()
    """Which of them stay first, by priority."""
    strict: bool | None = None
    """Hold the model to the schema, where it can be."""
    parallel: bool | None = None
    """May the model make several calls at once?"""
    within: tuple[Match, ...] = ()
    """Further matches that must hold too: a preset's rule, where a rule of the file says when."""

    @property
    def can_refuse_calls(self) -> bool:
        """Can it be that the model is told to call something else, or otherwise?"""
        return bool(self.drop) or self.max_tools is not None or self.validate == "retry"


MATCH_FIELDS = Match.__struct_fields__
EFFECT_FIELDS = tuple(name for name in Rule.__struct_fields__ if name not in (*MATCH_FIELDS, "name", "within"))
HIDDEN_EFFECTS = frozenset({"defaults", "choice", "validate", "parallel"})
"""Effects that change nothing in what the model reads of its tools."""
VISIBLE_EFFECTS = tuple(name for name in EFFECT_FIELDS if name not in HIDDEN_EFFECTS)


# --- Which rules are in force for an exchange, and which tools a rule speaks of ---


CACHE_SIZE = 2048
_DIGEST_LENGTH = 8
_SEEN_DEFAULTS = {name: getattr(Rule(), name) for name in VISIBLE_EFFECTS}


@lru_cache(maxsize=CACHE_SIZE)
def _compile_glob(glob: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in glob)
    return re.compile("".join(parts), re.DOTALL)


def is_glob(name: str) -> bool:
    return "*" in name or "?" in name


def matches_globs(name: str, globs: Sequence[str]) -> bool:
    """Is it one of these names, or does a pattern among them fit? `*` stands for any characters, `?` for one."""
    return any(glob == name or (is_glob(glob) and _compile_glob(glob).fullmatch(name) is not None) for glob in globs)


def _any_matches_globs(names: Sequence[str], globs: Sequence[str]) -> bool:
    return not globs or any(name and matches_globs(name, globs) for name in names)


def matches_exchange(match: Match | Rule, subject: RuleSubject) -> bool:
    """Is the exchange one that it speaks of? Nothing said about something fits all of it."""
    return (
        _any_matches_globs((subject.client,), match.client)
        and _any_matches_globs((subject.provider,), match.provider)
        and _any_matches_globs((subject.agent, subject.user_agent_product), [glob.lower() for glob in match.agent])
        and _any_matches_globs((subject.model, subject.requested_model), match.model)
    )


def rules_in_force(rules: Sequence[Rule], subject: RuleSubject) -> tuple[Rule, ...]:
    """The rules for this exchange, in their order."""
    return tuple(
        rule
        for rule in rules
        if matches_exchange(rule, subject) and all(matches_exchange(further, subject) for further in rule.within)
    )


def rules_digest(rules: Sequence[Rule]) -> str:
    """What tells these rules from others, by what the model sees of its tools; "" where it sees nothing of them."""
    said = [
        [rule.tool, rule.type, rule.namespace, rule.within, {name: getattr(rule, name) for name in VISIBLE_EFFECTS}]
        for rule in rules
        if any(getattr(rule, name) != _SEEN_DEFAULTS[name] for name in VISIBLE_EFFECTS)
    ]
    return hex_digest(json.encode(said, enc_hook=dict).decode(), _DIGEST_LENGTH) if said else ""


class Policy:
    """All rules of an operator. What is in force for a subject is worked out once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._cache: dict[RuleSubject, tuple[tuple[Rule, ...], str]] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def active_rules(self, subject: RuleSubject) -> tuple[Rule, ...]:
        """The rules for this exchange, in the order of the file."""
        return self._look_up(subject)[0] if self.rules else ()

    def active_digest(self, subject: RuleSubject) -> str:
        """What tells the rules for this exchange from others. Seals are bound to what their maker saw."""
        return self._look_up(subject)[1] if self.rules else ""

    def _look_up(self, subject: RuleSubject) -> tuple[tuple[Rule, ...], str]:
        found = self._cache.get(subject)
        if found is None:
            if len(self._cache) >= CACHE_SIZE:  # names come from clients, so there is no end of them
                self._cache.clear()
            rules = rules_in_force(self.rules, subject)
            found = self._cache[subject] = (rules, rules_digest(rules))
        return found


# --- tools ------------------------------------------------------------------------------------------------------------


def tool_name(tool: AnyTool) -> ToolName:
    """A tool as rules speak of it. One that the provider runs goes by its kind where it has no name."""
    if isinstance(tool, Tool):
        return ToolName(tool.name, tool.kind, tool.namespace)
    if isinstance(tool, ProviderTool):
        return ToolName(tool.name or tool.tool, tool.tool)
    return ToolName(tool.kind, tool.kind)


def _covers_tool(match: Match | Rule, tool: ToolName) -> bool:
    return (
        _any_matches_globs(
            (tool.name, flatten_tool_name(tool.namespace, tool.name) if tool.namespace else ""), match.tool
        )
        and _any_matches_globs((tool.kind,), match.type)
        and (not match.namespace or matches_globs(tool.namespace, match.namespace))
    )


def matches_tool(rule: Rule, tool: ToolName) -> bool:
    """Does a rule speak of this tool?"""
    return _covers_tool(rule, tool) and all(_covers_tool(further, tool) for further in rule.within)
