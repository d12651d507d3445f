"""Policy rules: what each applies to, and what it does. The configuration of the gateway checks them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct, field, json

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.ids import flatten_tool_name, hex_digest
from toolwire.core.ir import EMPTY_MAPPING, AnyTool, Opaque, ProviderTool, Tool, ToolName
from toolwire.core.json_values import Json, Object

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
        return self.removes_tools or self.validate == "retry"

    @property
    def removes_tools(self) -> bool:
        """Can the rule take a tool away? Then what declares tools without being read must not pass."""
        return bool(self.drop) or self.max_tools is not None


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
    return re.compile(translate(glob.replace("[", "[[]")))  # brackets are part of some names ("…[1m]"), not sets


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
        self._cache: dict[RuleSubject, tuple[tuple[Rule, ...], str]] = BoundedDict(CACHE_SIZE)

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


def _covers_kind(match: Match | Rule, kind: str) -> bool:
    return _any_matches_globs((kind, kind.casefold(), _OTHER_KINDS.get(kind, "")), match.type)


def _covers_tool(match: Match | Rule, tool: ToolName) -> bool:
    flat_name = flatten_tool_name(tool.namespace, tool.name) if tool.namespace else ""
    return (
        _any_matches_globs((tool.name, flat_name), match.tool)
        and _covers_kind(match, tool.kind)
        and _covers_namespace(match, tool.namespace)
    )


def _covers_namespace(match: Match | Rule, namespace: str) -> bool:
    return not match.namespace or matches_globs(namespace, match.namespace)


def matches_tool(rule: Rule, tool: ToolName) -> bool:
    return _covers_tool(rule, tool) and all(_covers_tool(further, tool) for further in rule.within)


# --- tools that bring others ------------------------------------------------------------------------------------------

_FREELY_NAMED = frozenset({"function", "custom"})
_VERSION = re.compile(r"(?:_preview)?(?:_\d{8}|_\d{4}_\d\d_\d\d)?$")
"""What a type of Anthropic or OpenAI has behind its name: `bash_20250124`, `web_search_preview_2025_03_11`."""
_NAMING_KEYS = re.compile("(?i)name|tool|function")
"""Keys under which a tool's JSON has names of tools."""
_SCHEMA_KEYS = frozenset(
    """parameters parametersJsonSchema parameters_json_schema input_schema output_schema response responseJsonSchema
    response_json_schema format""".split()
)
"""What a tool takes and gives."""


def find_dropping_rule(rules: Sequence[Rule], tool: AnyTool) -> tuple[Rule, str] | None:
    """The rule that drops a tool because of what it is or brings, though not by its name, and why."""
    wire = tool.origin.wire if tool.origin is not None else None
    if not isinstance(wire, dict):
        return None
    own, label, is_opaque = tool_name(tool), group_label(tool), isinstance(tool, Opaque)
    if is_opaque and "mcp" in (own.kind.casefold(), _OTHER_KINDS.get(own.kind)):
        listed = _list_server_tools(wire)
        if listed is None:
            return _drop_by_name(rules, own, label, _find_names(wire, False)) or _drop_server(rules, own, label)
        return _drop_by_name(rules, own, label, listed)
    # A type that is not known may be any server's word for a function.
    kinds = ("function", "custom") if is_opaque else ()
    return _drop_by_name(rules, own, label, _find_names(wire, not is_opaque), kinds) or _drop_by_kind(rules, own, wire)


def _drop_by_name(
    rules: Sequence[Rule], own: ToolName, label: str, names: Iterable[str], other_kinds: Sequence[str] = ()
) -> tuple[Rule, str] | None:
    """The JSON of a tool names another one."""
    for name in dict.fromkeys(names):
        for kind in (own.kind, *other_kinds) if name != own.name else ():
            rule = _last_rule_on_drop(rules, ToolName(name, kind, label))
            if rule is not None and rule.drop and (kind == own.kind or rule.tool):
                return rule, f"it brings `{name}`"
    return None


def _drop_by_kind(rules: Sequence[Rule], own: ToolName, wire: Object) -> tuple[Rule, str] | None:
    """A vendor's own tool has one name there, whatever the client calls it. Rules can use the vendor's word for it, too
    (`code_interpreter`), as name and as type."""
    if own.kind in _FREELY_NAMED or _last_rule_on_drop(rules, own) is not None:
        return None
    for kind in (own.kind, str(wire.get("type", own.kind))):
        for name in (kind, _VERSION.sub("", kind), _OTHER_KINDS.get(kind, kind)):
            for tool in (ToolName(name, own.kind), ToolName(name, name)):
                rule = _last_rule_on_drop(rules, tool)
                if rule is not None and rule.drop:
                    return rule, f"it is `{name}`"
    return None


def _drop_server(rules: Sequence[Rule], own: ToolName, label: str) -> tuple[Rule, str] | None:
    """Nobody knows which tools an MCP server brings: any rule may be about one of them."""
    for rule in reversed(rules):
        matches: tuple[Match | Rule, ...] = (rule, *rule.within)
        if rule.drop is not None and all(
            _covers_kind(match, own.kind) and _covers_namespace(match, label) for match in matches
        ):
            if rule.drop:
                return rule, "it brings all tools of its server, and the rule cannot be applied to them"
            if matches_tool(rule, own):
                return None
    return None


_LABEL_KEYS = ("server_label", "mcp_server_name", "name")
"""Where a tool has the name of what groups its tools: OpenAI's and Anthropic's MCP servers, a namespace."""


def group_label(tool: AnyTool) -> str:
    """The namespace of a tool, or the server or namespace that it is."""
    if isinstance(tool, Opaque) and isinstance(wire := tool.origin.wire, dict):
        return next((label for key in _LABEL_KEYS if isinstance(label := wire.get(key), str)), "")
    return tool.namespace if isinstance(tool, Tool) else ""


def _last_rule_on_drop(rules: Sequence[Rule], tool: ToolName) -> Rule | None:
    return next((rule for rule in reversed(rules) if rule.drop is not None and matches_tool(rule, tool)), None)


def _list_server_tools(wire: Object) -> list[str] | None:
    """The tools of an MCP server that a tool brings; None where it brings all, or where that is not certain."""
    allowed, default, configs = wire.get("allowed_tools"), wire.get("default_config"), wire.get("configs")
    if isinstance(allowed, dict):  # OpenAI; the list alone is the same
        allowed = allowed.get("tool_names")
    if allowed is None and isinstance(default, dict) and default.get("enabled") is False and isinstance(configs, dict):
        allowed = [*configs]  # Anthropic: none but these
    if not isinstance(allowed, list) or not allowed:
        return None
    names = [name for name in allowed if isinstance(name, str)]
    return names if len(names) == len(allowed) else None


def _find_names(tool: Object, is_read: bool) -> Iterator[str]:
    """All texts in a tool's JSON that may name a tool. Schemas of a tool that was read have names of users' own."""
    pending: list[tuple[Json, bool]] = [(tool, False)]
    while pending:
        node, is_named = pending.pop()
        if isinstance(node, str):
            if is_named:
                yield node
        elif isinstance(node, list):
            pending += [(value, is_named) for value in node]
        elif isinstance(node, dict):
            for key, value in node.items():
                if not (is_read and key in _SCHEMA_KEYS):
                    pending.append((value, _NAMING_KEYS.search(key) is not None))
