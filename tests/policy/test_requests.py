"""What rules do to a request: tools, names, parameters, tool choice, history and instructions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.core.ir import (
    Call,
    ProviderTool,
    Request,
    Result,
    Settings,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolName,
    ToolsAdded,
    Turn,
    plain_text,
)
from toolwire.core.json_values import Malformed, decode, encode_text
from toolwire.core.losses import LOSS_CODES, Ledger
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.effects import PolicyUndo
from toolwire.policy.rules import Match, Reshape, Rule, RuleSubject, rules_in_force

ARGV = {"type": "array", "items": {"type": "string"}}
SHELL = Tool(
    "shell",
    "Runs a command. Then says what it printed.",
    {
        "type": "object",
        "properties": {"command": {**ARGV, "description": "What to run"}, "timeout_ms": {"type": "integer"}},
        "required": ["command"],
    },
)
PATCH = Tool("apply_patch", "Changes files.", kind="custom")
READ = Tool("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
SEARCH = Tool("search", "Looks.", {"type": "object"}, namespace="mcp__docs__")
WEB = ProviderTool("web_search")
ALL = (SHELL, PATCH, READ, SEARCH, WEB)
HELLO = Turn("user", (Text("Hello"),))


def apply_to_request(*rules: Rule, **fields: Any) -> tuple[Request, PolicyUndo, list[str]]:
    request = Request(**{"model": "m", "turns": (HELLO,), "tools": ALL, **fields})
    ledger = Ledger("telex", "morse")
    made, undo = apply_rules(request, rules, ledger)
    assert {loss.code for loss in ledger.losses} <= LOSS_CODES.keys()
    return made, undo, [loss.code for loss in ledger.losses]


def names(request: Request) -> list[str]:
    return [tool.name or tool.tool if isinstance(tool, ProviderTool) else tool.name for tool in request.tools]  # type: ignore[union-attr]


# --- which rules ------------------------------------------------------------------------------------------------------

WHO = RuleSubject("telex", "codex", "acme", "claude-9", "best", "codex_exec")


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (Rule(), True),
        (Rule(client=("telex",)), True),
        (Rule(client=("morse", "tele*")), True),
        (Rule(client=("morse",)), False),
        (Rule(agent=("codex",)), True),
        (Rule(agent=("Codex_*",)), True),
        (Rule(agent=("cod",)), False),
        (Rule(provider=("acme",), model=("claude-?",)), True),
        (Rule(provider=("acme",), model=("gpt-*",)), False),
        (Rule(model=("best",)), True),
        (Rule(within=(Match(client=("telex",)), Match(provider=("acme",)))), True),
        (Rule(client=("telex",), within=(Match(provider=("other",)),)), False),
    ],
)
def test_a_rule_holds_for_what_it_speaks_of(rule: Rule, holds: bool) -> None:
    assert rules_in_force((rule,), WHO) == ((rule,) if holds else ())


def test_nobody_known_is_no_name() -> None:
    assert rules_in_force((Rule(agent=("*",)),), RuleSubject("telex")) == ()


def test_without_rules_nothing_is_touched() -> None:
    request = Request("m", tools=ALL, turns=(HELLO,))
    made, undo = apply_rules(request, (), Ledger("a", "b"))
    assert made is request
    assert not undo


def test_rules_that_speak_of_nothing_here_leave_the_request_as_it_is() -> None:
    request = Request("m", tools=ALL, turns=(HELLO,))
    ledger = Ledger("a", "b")
    made, undo = apply_rules(request, (Rule(tool=("telegraph",), drop=True, guidance="{tool}", clean=True),), ledger)
    assert made is request
    assert not undo
    assert not ledger.codes


# --- dropping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Rule(tool=("apply_patch",), drop=True), ["shell", "read_file", "search", "web_search"]),
        (Rule(tool=("*_file", "shell"), drop=True), ["apply_patch", "search", "web_search"]),
        (Rule(type=("custom",), drop=True), ["shell", "read_file", "search", "web_search"]),
        (Rule(type=("web_search",), drop=True), ["shell", "apply_patch", "read_file", "search"]),
        (Rule(namespace=("mcp__*",), drop=True), ["shell", "apply_patch", "read_file", "web_search"]),
        (Rule(tool=("mcp__docs__*",), drop=True), ["shell", "apply_patch", "read_file", "web_search"]),
        (Rule(tool=("shell",), type=("custom",), drop=True), names(Request(tools=ALL))),
        (Rule(drop=True), []),
    ],
)
def test_a_tool_is_dropped_by_name_pattern_type_or_namespace(rule: Rule, left: list[str]) -> None:
    assert names(apply_to_request(rule)[0]) == left


def test_a_later_rule_keeps_what_an_earlier_one_takes() -> None:
    made, _, _ = apply_to_request(Rule(drop=True), Rule(tool=("shell",), drop=False))
    assert names(made) == ["shell"]


def test_what_was_called_before_stays_in_the_history() -> None:
    turns = (HELLO, Turn("assistant", (Call("c", "apply_patch", "*** x", "custom"),)), Turn("tool", (Result("c"),)))
    made, undo, codes = apply_to_request(Rule(tool=("apply_patch",), drop=True), turns=turns)
    assert made.turns is turns
    assert codes == ["policy-dropped"]
    assert undo.needs_whole_call(Call("d", "apply_patch"))


def test_tools_that_come_in_the_middle_are_ruled_too() -> None:
    turns = (HELLO, Turn("developer", (ToolsAdded((PATCH, SHELL)),)), Turn("developer", (ToolsAdded((PATCH,)),)))
    made, undo, _ = apply_to_request(
        Rule(tool=("apply_patch",), drop=True), Rule(tool=("shell",), rename="sh"), tools=(), turns=turns
    )
    [added] = made.turns[1].parts
    assert isinstance(added, ToolsAdded)
    assert [tool.name for tool in added.tools if isinstance(tool, Tool)] == ["sh"]
    assert made.turns[2].parts == ()
    assert undo.restore_name(Call("c", "sh")).name == "shell"


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_tool_is_renamed_everywhere() -> None:
    turns = (
        HELLO,
        Turn("assistant", (Call("c", "shell", '{"command":["ls"]}'),)),
        Turn("tool", (Result("c", (Text("x"),), name="shell"),)),
    )
    choice = ToolChoice("one", (ToolName("shell"),))
    made, undo, codes = apply_to_request(Rule(tool=("shell",), rename="my_{name}"), turns=turns, choice=choice)
    assert names(made)[0] == "my_shell"
    assert made.choice == ToolChoice("one", (ToolName("my_shell"),))
    assert [part.name for turn in made.turns for part in turn.parts if isinstance(part, (Call, Result))] == [
        "my_shell"
    ] * 2
    assert undo.restore_name(Call("d", "my_shell")) == Call("d", "shell")
    assert not undo.needs_whole_call(Call("d", "my_shell"))
    assert set(codes) == {"policy-renamed", "policy-choice"}


def test_calls_of_tools_that_are_no_longer_declared_are_renamed_too() -> None:
    turns = (HELLO, Turn("assistant", (Call("c", "shell", "{}"),)), Turn("tool", (Result("c", name="shell"),)))
    made, _, codes = apply_to_request(Rule(tool=("shell",), rename="sh"), turns=turns, tools=())
    assert [part.name for turn in made.turns for part in turn.parts if isinstance(part, (Call, Result))] == ["sh", "sh"]
    assert codes == ["policy-renamed"]


def test_two_tools_can_change_names_but_none_takes_one_that_stays() -> None:
    one, two, three = Tool("one"), Tool("two"), Tool("three")
    swap = (Rule(tool=("one",), rename="two"), Rule(tool=("two",), rename="one"))
    assert names(apply_to_request(*swap, tools=(one, two))[0]) == ["two", "one"]
    chain = (Rule(tool=("one",), rename="two"), Rule(tool=("two",), rename="three"))
    made, undo, codes = apply_to_request(*chain, tools=(one, two, three))
    assert names(made) == ["one", "two", "three"]
    assert codes == ["policy-skipped", "policy-skipped"]
    assert not undo


@given(
    st.lists(st.sampled_from("abcde"), unique=True, min_size=1),
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from("abcdefg")),
)
def test_names_stay_apart_whatever_the_rules_say(declared: list[str], renames: dict[str, str]) -> None:
    rules = [Rule(tool=(old,), rename=new) for old, new in renames.items()]
    made, undo, _ = apply_to_request(*rules, tools=tuple(Tool(name) for name in declared))
    shown = names(made)
    assert len(set(shown)) == len(shown)
    assert [undo.restore_name(Call("c", name)).name for name in shown] == declared


# --- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_are_renamed_and_reshaped_in_schema_and_history() -> None:
    rule = Rule(
        tool=("shell",),
        parameters={"timeout_ms": "timeout"},
        reshape={"command": Reshape(conversion="shell-text", to="cmd")},
    )
    turns = (HELLO, Turn("assistant", (Call("c", "shell", '{"command":["bash","-lc","ls | wc"],"timeout_ms":1.50}'),)))
    made, undo, codes = apply_to_request(rule, turns=turns)
    tool = made.tools[0]
    assert isinstance(tool, Tool)
    assert tool.parameters == {
        "type": "object",
        "properties": {"cmd": {"type": "string", "description": "What to run"}, "timeout": {"type": "integer"}},
        "required": ["cmd"],
    }
    [call] = made.turns[1].parts
    assert isinstance(call, Call)
    assert call.arguments == '{"cmd":"ls | wc","timeout":1.50}'
    assert undo.restore_call(call, Ledger("", "")) == turns[1].parts[0]
    assert codes == ["policy-reshaped"]


def test_a_parameter_does_not_take_the_name_of_another() -> None:
    made, _, codes = apply_to_request(Rule(tool=("shell",), parameters={"command": "timeout_ms"}))
    assert made.tools[0] == SHELL
    assert codes == ["policy-skipped"]


def test_references_within_a_schema_follow_a_renamed_parameter() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    made, _, _ = apply_to_request(Rule(parameters={"a": "x"}), tools=(Tool("t", parameters=schema),))
    assert made.tools[0].parameters == {  # type: ignore[union-attr]
        "type": "object",
        "properties": {"x": {"type": "string"}, "b": {"$ref": "#/properties/x"}},
    }


def test_the_last_rule_counts_for_each_effect_by_itself() -> None:
    rules = (Rule(description="One.", strict=True), Rule(tool=("shell",), description="Two: {description}"))
    tool = apply_to_request(*rules)[0].tools[0]
    assert isinstance(tool, Tool)
    assert (tool.description, tool.strict) == (f"Two: {SHELL.description}", True)


def test_a_schema_is_replaced_and_calls_still_find_back() -> None:
    schema = {"type": "object", "properties": {"line": {"type": "string"}}}
    rule = Rule(tool=("shell",), schema=schema, reshape={"command": Reshape(conversion="shell-text", to="line")})
    made, undo, _ = apply_to_request(rule)
    assert made.tools[0].parameters == schema  # type: ignore[union-attr]
    back = undo.restore_call(Call("c", "shell", '{"line":"ls"}'), Ledger("", ""))
    assert back == Call("c", "shell", '{"command":["bash","-lc","ls"]}')


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("One. Two. Three.", 9, "One. Two."),
        ("One. Two. Three.", 8, "One."),
        ("One. Two. Three.", 100, "One. Two. Three."),
        ("No sentence ends in here", 12, "No sentence…"),
        ("Abcdefghij", 5, "Abcd…"),
        ("First\n\nSecond part", 10, "First"),
    ],
)
def test_a_description_is_cut_behind_a_sentence(text: str, limit: int, short: str) -> None:
    [tool] = apply_to_request(Rule(describe_at_most=limit), tools=(Tool("t", text),))[0].tools
    assert isinstance(tool, Tool)
    assert tool.description == short


@given(st.text(max_size=80), st.integers(1, 60))
def test_a_description_is_never_longer_than_it_may_be(text: str, limit: int) -> None:
    [tool] = apply_to_request(Rule(describe_at_most=limit), tools=(Tool("t", text),))[0].tools
    assert isinstance(tool, Tool)
    assert len(tool.description or "") <= limit


# --- limits and settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Rule(max_tools=2), ["shell", "apply_patch"]),
        (Rule(max_tools=2, keep=("read_*", "search")), ["read_file", "search"]),
        (Rule(max_tools=3, keep=("read_*",)), ["shell", "apply_patch", "read_file"]),
        (Rule(max_tools=0, type=("function",)), ["apply_patch", "web_search"]),
        (Rule(max_tools=9), names(Request(tools=ALL))),
    ],
)
def test_only_so_many_tools_stay_those_named_first(rule: Rule, left: list[str]) -> None:
    assert names(apply_to_request(rule)[0]) == left


def test_a_tool_that_the_client_demands_is_not_cut_off() -> None:
    choice = ToolChoice("one", (ToolName("read_file"),))
    made, _, _ = apply_to_request(Rule(max_tools=1, keep=("shell",)), choice=choice)
    assert names(made) == ["read_file"]
    assert made.choice == choice


def test_parallel_calls_and_strictness_are_set() -> None:
    made, _, codes = apply_to_request(Rule(parallel=False, strict=False))
    assert made.settings.parallel is False
    assert [tool.strict for tool in made.tools if isinstance(tool, Tool)] == [False, None, False, False]
    assert set(codes) == {"policy-setting"}
    assert apply_to_request(Rule(parallel=False, tool=("telegraph",)))[0].settings.parallel is None


# --- the choice -------------------------------------------------------------------------------------------------------

GONE = Rule(name="gone", tool=("apply_patch", "read_file"), drop=True)


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        (ToolChoice("one", (ToolName("apply_patch", "custom"),)), ToolChoice("auto")),
        (ToolChoice("one", (ToolName("shell"),)), ToolChoice("one", (ToolName("shell"),))),
        (ToolChoice("required"), ToolChoice("required")),
        (
            ToolChoice("allowed", (ToolName("shell"), ToolName("read_file")), True),
            ToolChoice("allowed", (ToolName("shell"),), True),
        ),
        (ToolChoice("allowed", (ToolName("read_file"),), True), ToolChoice("none")),
        (None, None),
    ],
)
def test_a_choice_of_what_is_gone_is_adapted(choice: ToolChoice | None, left: ToolChoice | None) -> None:
    assert apply_to_request(GONE, choice=choice)[0].choice == left


def test_without_tools_there_is_no_choice() -> None:
    made, _, codes = apply_to_request(Rule(drop=True), choice=ToolChoice("required"))
    assert made.choice is None
    assert "policy-choice" in codes


def never_thinks(model: str, thinks: bool | None) -> bool:
    return False


def unless_it_thinks(model: str, thinks: bool | None) -> bool:
    return not thinks


def test_a_demand_that_cannot_be_made_is_weakened_or_refused_as_the_rule_says() -> None:
    request = Request("m", tools=(SHELL,), choice=ToolChoice("required"))
    ledger = Ledger("", "")
    made, _ = apply_rules(request, (Rule(choice="weaken"),), ledger, never_thinks)
    assert made.choice == ToolChoice("auto")
    assert ledger.codes == ("policy-choice",)
    with pytest.raises(Malformed, match="cannot be forced to call a tool; the rule `r` refuses"):
        apply_rules(request, (Rule(name="r", choice="refuse"),), Ledger("", ""), never_thinks)
    kept, _ = apply_rules(request, (Rule(choice="weaken"),), Ledger("", ""), lambda model, thinks: True)
    assert kept is request


@pytest.mark.parametrize(
    ("thinking", "mode"),
    [(None, "one"), (Thinking("off"), "one"), (Thinking(effort="high"), "auto"), (Thinking(budget=2000), "auto")],
)
def test_a_demand_gives_way_to_thinking_where_both_cannot_be(thinking: Thinking | None, mode: str) -> None:
    request = Request(
        "m", tools=(SHELL,), choice=ToolChoice("one", (ToolName("shell"),)), settings=Settings(thinking=thinking)
    )
    made, _ = apply_rules(request, (Rule(choice="weaken"),), Ledger("", ""), unless_it_thinks)
    assert made.choice is not None
    assert made.choice.mode == mode


# --- instructions -----------------------------------------------------------------------------------------------------

GUIDED = Rule(
    name="guided", tool=("apply_patch",), drop=True, guidance="Use `{shell}` instead of `{tool}`.", clean=True
)


def test_guidance_stands_behind_the_instructions_once() -> None:
    system = (Text("Be brief."), Text("Be kind. ", cache=""))
    again = Rule(name="again", tool=("apply_patch",), drop=True, guidance=GUIDED.guidance)
    made, _, codes = apply_to_request(GUIDED, again, system=system)
    assert [part.text for part in made.system if isinstance(part, Text)] == [
        "Be brief.",
        "Be kind.\n\nUse `shell` instead of `apply_patch`.",
    ]
    assert made.system[1].cache == ""  # type: ignore[union-attr]
    assert codes.count("policy-guidance") == 1


def test_guidance_goes_into_the_first_turn_of_instructions_where_they_are_turns() -> None:
    turns = (Turn("developer", (Text("Be brief."),)), Turn("system", (Text("Be kind."),)), HELLO)
    made, _, _ = apply_to_request(GUIDED, turns=turns)
    assert plain_text(made.turns[0].parts) == "Be brief.\n\nUse `shell` instead of `apply_patch`."
    assert made.turns[1:] == turns[1:]
    assert made.system == ()


def test_guidance_is_the_only_instruction_where_there_is_none() -> None:
    assert plain_text(apply_to_request(GUIDED)[0].system) == "Use `shell` instead of `apply_patch`."


@given(st.integers(1, 4))
def test_guidance_is_the_same_while_the_conversation_grows(length: int) -> None:
    turns = (Turn("system", (Text("S `apply_patch`"),)), *(HELLO for _ in range(length)))
    made, _, _ = apply_to_request(GUIDED, turns=turns)
    assert made.turns[0] == apply_to_request(GUIDED, turns=turns[:2])[0].turns[0]


@pytest.mark.parametrize(
    ("tools", "rules", "said"),
    [
        ((PATCH, SHELL), (), "shell"),
        ((PATCH, Tool("exec_command")), (), "exec_command"),
        ((PATCH, Tool("x", kind="local_shell")), (), "x"),
        ((PATCH, SHELL), (Rule(tool=("shell",), rename="Bash"),), "Bash"),
        ((PATCH, READ), (), "the tools that you have"),
    ],
)
def test_guidance_names_the_shell_that_is_there(tools: Any, rules: Any, said: str) -> None:
    rule = Rule(tool=("apply_patch",), drop=True, guidance="Use {shell}, not {tool}.")
    made, _, _ = apply_to_request(rule, *rules, tools=tools)
    assert plain_text(made.system) == f"Use {said}, not apply_patch."


def test_guidance_names_all_that_one_rule_took() -> None:
    rule = Rule(tool=("apply_patch", "read_file", "search"), drop=True, guidance="No `{tool}` here.")
    assert plain_text(apply_to_request(rule)[0].system) == "No `apply_patch`, `read_file` and `search` here."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Use `apply_patch` to edit.", "Use `shell` to edit."),
        (
            "apply_patch: never apply_patches, apply_patch_x or x/apply_patch",
            "shell: never apply_patches, apply_patch_x or x/apply_patch",
        ),
        ("The apply_patch tool, `apply_patch`s, apply_patch.", "The shell tool, `shell`s, shell."),
        ("See apply_patch.py and apply-patch", "See apply_patch.py and apply-patch"),
        ("Read a file with `Read` or the Read tool. Read on.", "Read a file with `view` or the view tool. Read on."),
        ('Call "WebFetch", or WebFetch', 'Call "fetch", or fetch'),
        ("The `update_plan` tool; update_plan", "The other tool; another tool"),
    ],
)
def test_mentions_are_put_right_word_by_word(before: str, after: str) -> None:
    rules = (
        GUIDED,
        Rule(tool=("Read",), rename="view", clean=True),
        Rule(tool=("WebFetch",), rename="fetch", clean=True),
        Rule(tool=("update_plan",), drop=True, clean=True),
    )
    tools = (SHELL, PATCH, Tool("Read"), Tool("WebFetch"), Tool("update_plan"))
    turns = (Turn("system", (Text(before),)), Turn("user", (Text(before),)), Turn("developer", (Text(before),)))
    made, _, _ = apply_to_request(*rules, tools=tools, turns=turns)
    assert plain_text(made.turns[0].parts).partition("\n\n")[0] == after
    assert plain_text(made.turns[1].parts) == before
    assert plain_text(made.turns[2].parts) == after


def test_only_tools_of_rules_that_clean_are_cleaned_away() -> None:
    made, _, _ = apply_to_request(Rule(tool=("apply_patch",), drop=True), system=(Text("`apply_patch`"),))
    assert plain_text(made.system) == "`apply_patch`"


# --- laws -------------------------------------------------------------------------------------------------------------

commands = st.text(st.characters(codec="utf-8"), max_size=20)
arguments = st.fixed_dictionaries(
    {"command": commands.map(lambda text: ["bash", "-lc", text])}, optional={"timeout_ms": st.integers()}
)


@given(arguments)
def test_a_call_that_goes_out_and_comes_back_is_the_same(given_arguments: dict[str, Any]) -> None:
    rule = Rule(
        tool=("shell",),
        rename="Bash",
        parameters={"timeout_ms": "timeout"},
        reshape={"command": Reshape(conversion="shell-text", to="cmd")},
        validate="retry",
    )
    call = Call("c", "shell", encode_text(given_arguments))
    made, undo, _ = apply_to_request(rule, turns=(HELLO, Turn("assistant", (call,))))
    [out] = made.turns[1].parts
    assert isinstance(out, Call)
    assert out.name == "Bash"
    assert decode(out.arguments)["cmd"] == given_arguments["command"][2]
    assert undo.restore_call(out, Ledger("", "")) == call
