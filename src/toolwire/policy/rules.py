"""Policy rules: what each applies to, and what it does. The configuration of the gateway checks them."""

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
    """The properties of an exchange that rules can match."""

    client: str = ""
    """The client's protocol."""
    agent: str = ""
    """The name of the agent, such as `claude-code`; "" for an unknown one."""
    provider: str = ""
    model: str = ""
    """The model's name at the provider."""
    requested_model: str = ""
    """The model as the client asked for it."""
    user_agent_product: str = ""
    """The first product of the `user-agent` header, in lower case and without its version."""
    key: str = ""
    """The name of the client key; "" without one."""
    team: str = ""
    """The team of the client key; "" without one."""


class Match(Struct, frozen=True, kw_only=True):
    """Conditions that must all hold. Each is a list of names or globs, of which one must match; empty matches all."""

    client: Globs = ()
    agent: Globs = ()
    provider: Globs = ()
    model: Globs = ()
    tool: Globs = ()
    type: Globs = ()
    namespace: Globs = ()
    key: Globs = ()
    team: Globs = ()


class Reshape(Struct, frozen=True, kw_only=True):
    """Another name and another form for one parameter."""

    conversion: str = field(name="as")
    """The name of a conversion, such as `shell-text`."""
    to: str = ""
    """The parameter's name for the model; the same name when left out."""


class Rule(Struct, frozen=True, kw_only=True):
    """One rule of an operator. It applies to the exchanges and tools that it matches; where several rules set the same
    field for the same tool, the last one counts."""

    name: str = ""
    """Its name in losses and logs; `policy 1` and so on when left out."""
    client: Globs = ()
    """Protocols of clients."""
    key: Globs = ()
    """Client keys by their names."""
    team: Globs = ()
    """Teams of client keys."""
    agent: Globs = ()
    """Agents, recognised by the `user-agent` header: a name from the guide's table, or the header's first product. Any
    client can claim to be any agent. With client keys, a rule with `agent` and without `key` or `team` therefore cannot
    undo what an earlier rule forbids."""
    provider: Globs = ()
    """Providers by their names in this file."""
    model: Globs = ()
    """Models, by the name at the provider or the name that the client asked for."""
    tool: Globs = ()
    """Names of tools; all tools when left out."""
    type: Globs = ()
    """Kinds of tools: `function`, `custom`, or a tool that the provider runs, such as `web_search`."""
    namespace: Globs = ()
    """Namespaces of tools."""
    drop: bool | None = None
    """Remove the tool; `false` keeps a tool that an earlier rule removes."""
    rename: str = ""
    """The tool's name for the model; `{name}` is replaced by the old one."""
    parameters: Mapping[str, str] = EMPTY_MAPPING
    """New names of parameters: `{ client_name = "model_name" }`."""
    reshape: Mapping[str, Reshape] = EMPTY_MAPPING
    """Parameters to convert: `{ command = { to = "cmd", as = "shell-text" } }`."""
    hide: tuple[str, ...] = ()
    """Parameters of the client that the model does not see."""
    defaults: Mapping[str, Json] = EMPTY_MAPPING
    """Values for parameters that the model did not give."""
    description: str | None = None
    """The tool's description for the model; `{description}` is replaced by the old one."""
    describe_at_most: Annotated[int, Meta(ge=1)] | None = None
    """The maximum length of the description, which is cut at the end of a sentence."""
    schema: Mapping[str, Json] | None = None
    """The JSON Schema of the parameters for the model."""
    guidance: str = ""
    """Text that is added to the instructions when this rule removes a tool; `{tool}` is replaced by its name, `{shell}`
    by the name of the tool that runs shell commands."""
    clean: bool = False
    """Replace the names of removed and renamed tools in the instructions and in descriptions of other tools."""
    choice: Literal["", "weaken", "refuse"] = ""
    """A required call that the model cannot be forced to make: `weaken` to `auto`, or `refuse` the request."""
    validate: Literal["", "off", "report", "retry", "refuse"] = ""
    """Check the arguments of calls against the client's schema, and `report` problems, let the model `retry` once, or
    `refuse` the answer."""
    max_tools: Annotated[int, Meta(ge=0)] | None = None
    """The maximum number of the tools that the rule matches."""
    keep: Globs = ()
    """The tools that are kept first, by priority."""
    strict: bool | None = None
    """Set the tool's `strict`: arguments must match the schema exactly."""
    parallel: bool | None = None
    """May the model make several calls in one turn?"""
    within: tuple[Match, ...] = ()
    """Further conditions: a preset's rule gets those of the rule that uses the preset."""

    @property
    def can_refuse_calls(self) -> bool:
        """Can the rule refuse a call, so that the model must be asked again?"""
        return bool(self.drop) or self.max_tools is not None or self.validate == "retry"


MATCH_FIELDS = Match.__struct_fields__
EFFECT_FIELDS = tuple(name for name in Rule.__struct_fields__ if name not in (*MATCH_FIELDS, "name", "within"))
HIDDEN_EFFECTS = frozenset({"defaults", "choice", "validate", "parallel"})
"""Effects that the model does not see."""
VISIBLE_EFFECTS = tuple(name for name in EFFECT_FIELDS if name not in HIDDEN_EFFECTS)


# --- matching ---------------------------------------------------------------------------------------------------------

CACHE_SIZE = 2048
_DIGEST_LENGTH = 8
_VISIBLE_DEFAULTS = {name: getattr(Rule(), name) for name in VISIBLE_EFFECTS}


@lru_cache(maxsize=CACHE_SIZE)
def _compile_glob(glob: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in glob)
    return re.compile("".join(parts), re.DOTALL)


def is_glob(name: str) -> bool:
    return "*" in name or "?" in name


def matches_globs(name: str, globs: Sequence[str]) -> bool:
    """Does one of these names or globs match? `*` matches any characters, `?` one character."""
    return any(glob == name or (is_glob(glob) and _compile_glob(glob).fullmatch(name) is not None) for glob in globs)


def _any_matches_globs(names: Sequence[str], globs: Sequence[str]) -> bool:
    return not globs or any(name and matches_globs(name, globs) for name in names)


def matches_exchange(match: Match | Rule, subject: RuleSubject) -> bool:
    return (
        _any_matches_globs((subject.client,), match.client)
        and _any_matches_globs((subject.key,), match.key)
        and _any_matches_globs((subject.team,), match.team)
        and _any_matches_globs((subject.provider,), match.provider)
        and _any_matches_globs((subject.agent, subject.user_agent_product), [glob.lower() for glob in match.agent])
        and _any_matches_globs((subject.model, subject.requested_model), match.model)
    )


def rules_in_force(rules: Sequence[Rule], subject: RuleSubject) -> tuple[Rule, ...]:
    return tuple(
        rule
        for rule in rules
        if matches_exchange(rule, subject) and all(matches_exchange(further, subject) for further in rule.within)
    )


def _selections(matches: Sequence[Match]) -> list[dict[str, Globs]]:
    """What matches select, without `key` and `team` where they select nothing: digests of versions without them stay
    the same."""
    return [
        {name: globs for name in MATCH_FIELDS if (globs := getattr(match, name)) or name not in ("key", "team")}
        for match in matches
    ]


def rules_digest(rules: Sequence[Rule]) -> str:
    """A digest of what the rules change in the tools that the model sees; "" where that is nothing."""
    visible = [
        [
            rule.tool,
            rule.type,
            rule.namespace,
            _selections(rule.within),
            {name: getattr(rule, name) for name in VISIBLE_EFFECTS},
        ]
        for rule in rules
        if any(getattr(rule, name) != _VISIBLE_DEFAULTS[name] for name in VISIBLE_EFFECTS)
    ]
    return hex_digest(json.encode(visible, enc_hook=dict).decode(), _DIGEST_LENGTH) if visible else ""


class Policy:
    """All rules of an operator. Which of them apply to a subject is cached."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._cache: dict[RuleSubject, tuple[tuple[Rule, ...], str]] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def active_rules(self, subject: RuleSubject) -> tuple[Rule, ...]:
        return self._look_up(subject)[0] if self.rules else ()

    def active_digest(self, subject: RuleSubject) -> str:
        """Their digest. It is part of a seal's maker, because seals are bound to the tools that the model saw."""
        return self._look_up(subject)[1] if self.rules else ""

    def _look_up(self, subject: RuleSubject) -> tuple[tuple[Rule, ...], str]:
        found = self._cache.get(subject)
        if found is None:
            if len(self._cache) >= CACHE_SIZE:  # clients can send any number of names
                self._cache.clear()
            rules = rules_in_force(self.rules, subject)
            found = self._cache[subject] = (rules, rules_digest(rules))
        return found


def tool_name(tool: AnyTool) -> ToolName:
    """The name by which rules match a tool. A provider tool without a name is matched by its kind."""
    if isinstance(tool, Tool):
        return ToolName(tool.name, tool.kind, tool.namespace)
    if isinstance(tool, ProviderTool):
        return ToolName(tool.name or tool.tool, tool.tool)
    return ToolName(tool.kind, tool.kind)


_OTHER_KINDS: Mapping[str, str] = {
    "mcp_toolset": "mcp",  # Anthropic
    "mcpServers": "mcp",  # Gemini, and the three below
    "enterpriseWebSearch": "web_search",
    "parallelAiSearch": "web_search",
    "exaAiSearch": "web_search",
    "openrouter:web_search": "web_search",
    "openrouter:web_fetch": "web_fetch",
}
"""Tools that only one vendor has, and the kind that they are. Rules can name both."""


def _covers_tool(match: Match | Rule, tool: ToolName) -> bool:
    flat_name = flatten_tool_name(tool.namespace, tool.name) if tool.namespace else ""
    return (
        _any_matches_globs((tool.name, flat_name), match.tool)
        and _any_matches_globs((tool.kind, _OTHER_KINDS.get(tool.kind, "")), match.type)
        and (not match.namespace or matches_globs(tool.namespace, match.namespace))
    )


def matches_tool(rule: Rule, tool: ToolName) -> bool:
    return _covers_tool(rule, tool) and all(_covers_tool(further, tool) for further in rule.within)
