"""`[[policy]]` in the file: what is read, and every mistake with its line and what would be right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from configs import load_config
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.telemetry.agents import recognise_agent
from toolwire.policy.rules import Match, Reshape, Rule, RuleSubject, rules_in_force

P = "[[policy]]\n"


def read(text: str, tmp_path: Path) -> tuple[Rule, ...]:
    file = tmp_path / "toolwire.toml"
    file.write_text(text)
    return load_config(file, {}).policy


def test_all_of_a_rule_is_read(tmp_path: Path) -> None:
    text = """
[[policy]]
name = "mine"
client = "openai_responses"
agent = ["codex*", "qwen"]
provider = "anthropic"
model = "claude-*"
tool = "shell"
type = "function"
namespace = "mcp__*"
rename = "Bash"
parameters = { timeout_ms = "timeout" }
description = "Runs. {description}"
describe_at_most = 100
clean = true
choice = "weaken"
validate = "retry"
strict = false
parallel = false
[policy.reshape]
command = { to = "cmd", as = "shell-text" }
paths = "csv"

[[policy]]
max_tools = 3
keep = ["shell"]
"""
    first, second = read(text, tmp_path)
    assert first == Rule(
        name="mine",
        client=("openai-responses",),
        agent=("codex*", "qwen"),
        provider=("anthropic",),
        model=("claude-*",),
        tool=("shell",),
        type=("function",),
        namespace=("mcp__*",),
        rename="Bash",
        parameters={"timeout_ms": "timeout"},
        reshape={"command": Reshape(conversion="shell-text", to="cmd"), "paths": Reshape(conversion="csv")},
        description="Runs. {description}",
        describe_at_most=100,
        clean=True,
        choice="weaken",
        validate="retry",
        strict=False,
        parallel=False,
    )
    assert second == Rule(name="policy 2", max_tools=3, keep=("shell",))


def test_a_preset_holds_where_the_rule_says(tmp_path: Path) -> None:
    rules = read(
        P + 'name = "mine"\npreset = "codex-on-anthropic"\nprovider = "anthropic"\nmodel = "claude-*"', tmp_path
    )
    assert rules
    for rule in rules:
        assert rule.name.startswith("mine: ")
        assert rule.within[-1] == Match(provider=("anthropic",), model=("claude-*",))
    assert rules_in_force(rules, RuleSubject("telex", provider="anthropic", model="claude-9")) == rules
    assert rules_in_force(rules, RuleSubject("telex", provider="anthropic", model="gpt-9")) == ()


MISTAKES = [
    ("tol = 'x'\ndrop = true", (2, "unknown key `tol`", "did you mean `tool`?")),
    ("within = []\ndrop = true", (2, "unknown key `within`", "")),
    ("tool = 'x'", (1, "this rule has no effect", "add one of: ")),
    ("", (1, "this rule has no effect", "add one of: ")),
    ("drop = 'yes'", (2, "`drop`: expected true or false, got a string", "")),
    ("drop = true\nclient = 'telex'", (3, "unknown protocol `telex`", "choose from: ")),
    ("drop = true\nclient = [\n'gemini',\n'openai-caht']", (5, "unknown protocol `openai-caht`", "did you mean `openai-chat`?")),
    ("drop = true\nprovider = 'anthropik'", (3, "unknown provider `anthropik`", "did you mean `anthropic`?")),
    ("preset = 'codex-on-antropic'", (2, "unknown preset `codex-on-antropic`", "did you mean `codex-on-anthropic`?")),
    ("preset = 'small-model'\nstrict = true", (3, "`strict` cannot be combined with a preset", "write a second rule for it")),
    ("tool = ''\ndrop = true", (2, "`tool`: an empty name never matches", "`*` matches any characters, `?` one")),
    ("tool = ['a', '[bc]*']\ndrop = true", (2, "`tool`: `[bc]*` is not a valid name or pattern", "`*` matches any characters, `?` one")),
    ("tool = 'a'\ndrop = true\nrename = 'b'", (4, "`rename` cannot be combined with `drop`", "a dropped tool cannot be changed as well")),
    ("tool = 'a'\ndrop = true\ndescription = 'b'", (4, "`description` cannot be combined with `drop`", "a dropped tool cannot be changed as well")),
    ("tool = 'a'\nclean = true\nguidance = 'b'", (4, "`guidance` without `drop`", "guidance is given when a tool is dropped")),
    ("tool = 'a'\ndrop = true\nguidance = 'Use {shel}.'", (4, "unknown placeholder `{shel}`", "choose from: {tool}, {shell}")),
    ("tool = 'a'\nstrict = true\nkeep = ['a']", (4, "`keep` without `max_tools`", "add `max_tools = …`")),
    ("max_tools = -1", (2, "`max_tools`: expected a whole number >= 0", "")),
    ("tool = 'a'\nrename = 'a'", (3, "`a` is already its name", "remove it")),
    ("tool = 'a'\nrename = 'b c'", (3, "`b c` is not a valid tool name", "use at most 128 letters, digits, `_` and `-`")),
    ("tool = 'a'\nrename = 'b{nam}'", (3, "unknown placeholder `{nam}`", "choose from: {name}")),
    ("rename = 'b'", (2, "several tools would be named `b`", "use `{name}` for the old name, or list the tools")),
    ("tool = 'a*'\nrename = 'b'", (3, "several tools would be named `b`", "use `{name}` for the old name, or list the tools")),
    ("[policy.parameters]\na = 'x'\nb = 'x'", (4, "`a` and `b` would both be named `x`", "")),
    ("parameters = { a = 'a' }", (2, "`a` is already its name", "remove it")),
    ("parameters = { a = 'x' }\nreshape = { a = { as = 'csv' } }", (3, "`a` is in `parameters` too", "`to` renames it here")),
    ("[policy.reshape]\na = { to = 'x', as = 'scv' }", (3, "unknown conversion `scv`", "did you mean `csv`?")),
    ("reshape = { a = { to = 'x' } }", (2, "`as` is missing", "")),
    ("reshape = { a = { two = 'x', as = 'csv' } }", (2, "unknown key `two`", "did you mean `to`?")),
    ("[policy.schema]\ntype = 'object'\n[policy.schema.properties.a]\ntype = 'strng'", (5, 'invalid JSON Schema at /properties/a/type: "strng" is not a type', "")),
    ("schema = { type = 'string' }", (2, "the parameters of a tool must be an object", 'add `type = "object"`')),
    ("parameters = { a = 'x' }\nschema = { type = 'object', properties = { y = {} } }", (3, "the schema has no parameter `x`", "choose from: y")),
    ("hide = ['a']\nparameters = { a = 'x' }", (3, "`a` is in `hide` too", "a hidden parameter cannot be renamed")),
    ("validate = 'retri'", (2, "`validate` has an invalid value", "did you mean `retry`?")),
    ("tool = 'a'\nrename = 'x'\n[[policy]]\ntool = 'b'\nrename = 'x'", (6, "`a` and `b` would both be named `x`", "see the rule `policy 1`")),
    ("tool = 'a'\nrename = 'b'\n[[policy]]\ntool = 'b'\nrename = 'a'", (6, "renames form a circle: b → a → b", "change one of the names")),
    ("tool = ['a', 'b']\nrename = '{name}_x'\n[[policy]]\ntool = 'c'\nrename = 'b_x'", (6, "`b` and `c` would both be named `b_x`", "see the rule `policy 1`")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, expected: tuple[int, str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        read(P + text, tmp_path)
    [found] = raised.value.problems
    line, what, hint = expected
    assert (found.line, found.message) == (line, what)
    assert found.hint.startswith(hint)


@pytest.mark.parametrize(
    "text",
    [
        "tool = 'a'\nrename = 'x'\nclient = 'gemini'\n[[policy]]\ntool = 'b'\nrename = 'x'\nclient = 'anthropic'",
        "tool = ['a', 'b']\nrename = 'x'",
        "tool = 'a'\nrename = 'b'\n[[policy]]\ntool = 'b'\nrename = 'c'",
        "tool = 'a'\nrename = 'x'\n[[policy]]\ntool = 'a'\nrename = 'y'",
        "parameters = { a = 'b', b = 'a' }",
        "model = 'claude-x[1m]'\ndrop = true",
        "max_tools = 2\nguidance = 'Gone: {tool}'",
    ],
)
def test_what_only_looks_like_a_mistake_is_none(tmp_path: Path, text: str) -> None:
    assert read(P + text, tmp_path)


@pytest.mark.parametrize(
    ("agent", "known"),
    [
        ("codex_cli_rs/0.64.0 (Debian 13) xterm", ("codex", "codex_cli_rs")),
        ("codex_exec/0.64.0", ("codex", "codex_exec")),
        ("claude-cli/2.1.0 (external, cli)", ("claude", "claude-cli")),
        ("GeminiCLI/0.20.0 (linux; x64)", ("gemini", "geminicli")),
        ("QwenCode/0.4.0", ("qwen", "qwencode")),
        ("opencode/1.2.3", ("opencode", "opencode")),
        ("OpenAI/Python 3.49.0", ("", "openai")),
        ("", ("", "")),
    ],
)
def test_agents_are_known_by_their_user_agents(agent: str, known: tuple[str, str]) -> None:
    assert recognise_agent(agent) == known


# --- what the documentation shows -------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_is_a_configuration() -> None:
    config = load_config(DOCS / "examples" / "toolwire.toml", {})
    assert config.warnings == ()
    assert config.policy[0].name == "no patching"
    assert [rule.max_tools for rule in config.policy[1:]] == [8]
    assert list(config.section(McpSettings).servers) == ["files"]
    assert config.store.ttl == 7 * 24 * 3600


@pytest.mark.parametrize("page", ["policy", "presets", "mcp"])
def test_what_the_guides_show_is_read(page: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / "guides" / f"{page}.md").read_text())
    assert blocks
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        config = load_config(file, {"ISSUES_TOKEN": "x"})
        assert config.warnings == ()
        assert config.policy or config.section(McpSettings).servers
