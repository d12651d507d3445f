"""Every preset in whole exchanges: the request, and calls that come back whole, streamed and replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

import pytest

from toolwire.core.events import fold
from toolwire.core.ir import Call, Request, Result, Role, Text, Tool, Turn
from toolwire.core.json_values import decode, expect_object
from toolwire.core.losses import Ledger
from toolwire.gateway.settings.policies import AgentTool, Parameter, load_catalogue, preset_rules
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.effects import RefusedCall
from toolwire.policy.rules import Rule
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

SPEAKS = {"codex": "openai-responses", "claude": "anthropic", "gemini": "gemini"}
"""What the agents speak. The model is asked in another protocol, so that all of it is written anew."""
MODEL = "openai-chat"


def exchange(preset: str, client: str, provider: str = MODEL) -> Exchange:
    return Exchange(find_codec(client), find_codec(provider), Options(policy=preset_rules()[preset], model="m"))


def wire(client: str, request: Request) -> dict[str, Any]:
    """A request as a client would send it."""
    return find_codec(client).write_request(request, Ledger(client, client))


def tools_by_name(body: dict[str, Any]) -> dict[str, Any]:
    """The tools of a request to the model, by name."""
    return {tool["function"]["name"]: tool["function"] for tool in body.get("tools", ())}


def whole_answer(name: str, arguments: str) -> dict[str, Any]:
    """A model's whole answer with one call."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chunks(name: str, arguments: str) -> Iterator[bytes]:
    """The same as a stream, its arguments in small pieces."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(body)}\n\n".encode()

    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    yield chunk({"role": "assistant", "content": None, "tool_calls": [first]})
    for start in range(0, len(arguments), 7):
        piece = arguments[start : start + 7]
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def read_call(body: Any, client: str) -> Call:
    """The one call of an answer, read as the client would."""
    [choice] = find_codec(client).read_response(expect_object(body, None)).choices
    [call] = [part for part in choice.parts if isinstance(part, Call)]
    return call


def read_streamed_call(data: bytes, client: str) -> Call:
    reader = find_codec(client).make_stream_reader()
    [choice] = fold([*reader.feed(data), *reader.close()]).choices
    [call] = [part for part in choice.parts if isinstance(part, Call)]
    return call


def round_trip(preset: str, client: str, tool: Tool, name: str, arguments: Any) -> dict[str, Any]:
    """A model's call as the client gets it: the same whole and streamed, and the model's own again when replayed."""
    this = exchange(preset, client)
    this.translate_request(wire(client, Request(model="m", tools=(tool,), turns=(Turn("user", (Text("Go."),)),))))
    text = json.dumps(arguments)
    call = read_call(this.translate_response(whole_answer(name, text)).json(), client)
    stream = StreamTranslation(this)
    same = read_streamed_call(b"".join(map(stream.feed, chunks(name, text))) + stream.close(), client)
    assert stream.failure is None
    assert (call.name, call.namespace) == (same.name, same.namespace) == (tool.name, tool.namespace)
    assert decode(call.arguments) == decode(same.arguments)
    assert replay_call(preset, client, tool, call) == (name, arguments)
    return decode(call.arguments)  # type: ignore[no-any-return]


def replay_call(preset: str, client: str, tool: Tool, call: Call) -> tuple[str, Any]:
    """A call of the client's history as the model sees it."""
    role: Role = "user" if client != "openai-responses" else "tool"
    turns = (
        Turn("user", (Text("Go."),)),
        Turn("assistant", (call,)),
        Turn(role, (Result(call.id, (Text("done"),), name=call.name),)),
    )
    body = (
        exchange(preset, client).translate_request(wire(client, Request(model="m", tools=(tool,), turns=turns))).json()
    )
    [function] = [call["function"] for turn in body["messages"] for call in turn.get("tool_calls", ())]
    return function["name"], json.loads(function["arguments"])


# --- one agent's tools for another ----------------------------------------------------------------------------------


class Case(NamedTuple):
    preset: str
    client: str
    own: AgentTool
    seen: AgentTool
    parameters: tuple[Parameter, ...]

    @property
    def tool(self) -> Tool:
        """As the client declares it."""
        return Tool(self.own.name, "Does something.", parameters_schema(self.parameters))


def parameters_schema(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {one.name: parameter_schema(one) for one in parameters},
        "required": [one.name for one in parameters if one.required],
    }


def parameter_schema(one: Parameter) -> dict[str, Any]:
    return {"type": one.type, **({"items": {"type": one.of}} if one.of else {})}


def spellings(row: AgentTool) -> Iterator[tuple[str, tuple[Parameter, ...]]]:
    """The parameters of today, and those of older versions in the places of what replaced them."""
    today = tuple(one for one in row.parameters if not one.older)
    older = {one.meaning: one for one in row.parameters if one.older}
    yield "today", today
    if older:
        yield "older", (*(one for one in today if one.meaning not in older), *older.values())


def cases() -> Iterator[Any]:
    for client, model in permutations(SPEAKS, 2):
        preset = f"{model}-tools-for-{client}"
        mapped = {tool for rule in preset_rules()[preset] for tool in rule.tool}
        for name, entry in load_catalogue().tools.items():
            for own in entry.tools_of(client):
                if own.name in mapped:
                    seen = entry.tools_of(model)[0]
                    for when, parameters in spellings(own):
                        case = Case(preset, client, own, seen, parameters)
                        yield pytest.param(case, id=f"{preset}-{name}-{own.name}-{when}")


CASES = list(cases())


def test_all_six_directions_are_there() -> None:
    assert {case.values[0].preset for case in CASES} == {f"{a}-tools-for-{b}" for a, b in permutations(SPEAKS, 2)}


def sample(schema: dict[str, Any], name: str) -> Any:
    """A value for a parameter, different from parameter to parameter."""
    kind = schema["type"]
    if kind == "object":
        made = {key: sample(inner, f"{name} {key}") for key, inner in schema.get("properties", {}).items()}
        return made | ({"activeForm": made["content"]} if "activeForm" in made else {})  # which no other agent has
    if kind == "array":
        return [sample(schema["items"], f"{name} {number}") for number in (1, 2)]
    if "enum" in schema:
        return schema["enum"][1]
    if kind == "string":
        return f"https://example.com/{len(name)}" if name == "url" else f"some {name}"
    return {"integer": 7, "number": 7, "boolean": True}[kind]


@pytest.mark.parametrize("case", CASES)
def test_the_model_sees_one_agents_tool_and_the_client_gets_its_own(case: Case) -> None:
    request = Request(model="m", tools=(case.tool,), turns=(Turn("user", (Text("Go."),)),))
    translation = exchange(case.preset, SPEAKS[case.client]).translate_request(wire(SPEAKS[case.client], request))
    [(name, function)] = tools_by_name(translation.json()).items()
    assert name == case.seen.name
    shown = function["parameters"]["properties"]
    known = {one.name: one for one in case.seen.parameters}
    assert shown
    assert set(shown) <= set(known)
    assert set(function["parameters"]["required"]) <= set(shown)
    given = {key: sample(schema, key) for key, schema in shown.items()}
    given |= {one.name: "Say what https://example.com/x is." for one in known.values() if one.form == "request"}
    got = round_trip(case.preset, SPEAKS[case.client], case.tool, name, given)
    mine = {one.name: one for one in case.parameters}
    assert set(got) <= set(mine), "the client gets nothing that it did not declare"
    assert {one.name for one in case.parameters if one.required} <= set(got), "and all that it demands"
    for key, value in given.items():
        partner = next((one for one in case.parameters if one.meaning and one.meaning == known[key].meaning), None)
        if partner is not None and partner.form == known[key].form:
            assert got[partner.name] == value


class Told(NamedTuple):
    """What the model says, and what the client gets."""

    preset: str
    client: str
    own: str
    name: str
    said: dict[str, Any]
    got: dict[str, Any]
    older: bool = False


TOLD = [
    Told("claude-tools-for-codex", "codex", "shell", "Bash", {"command": "ls | wc"}, {"command": ["bash", "-lc", "ls | wc"]}),
    Told("claude-tools-for-codex", "codex", "exec_command", "Bash", {"command": "ls"}, {"cmd": "ls"}),
    Told("gemini-tools-for-codex", "codex", "exec_command", "run_shell_command", {"command": "ls", "dir_path": "/a"}, {"cmd": "ls", "workdir": "/a"}),
    Told("gemini-tools-for-codex", "codex", "cat", "read_file", {"file_path": "/a"}, {"path": "/a"}),
    Told("claude-tools-for-codex", "codex", "update_plan", "TodoWrite", {"todos": [{"content": "x", "status": "pending", "activeForm": "x"}]}, {"plan": [{"step": "x", "status": "pending"}]}),
    Told("codex-tools-for-claude", "claude", "Bash", "exec_command", {"cmd": "ls"}, {"command": "ls"}),
    Told("codex-tools-for-claude", "claude", "TodoWrite", "update_plan", {"plan": [{"step": "x", "status": "pending"}]}, {"todos": [{"content": "x", "status": "pending", "activeForm": "x"}]}),
    Told("codex-tools-for-gemini", "gemini", "run_shell_command", "exec_command", {"cmd": "ls", "workdir": "/a"}, {"command": "ls", "dir_path": "/a"}),
    Told("codex-tools-for-gemini", "gemini", "run_shell_command", "exec_command", {"cmd": "ls", "workdir": "/a"}, {"command": "ls", "directory": "/a"}, True),
    Told("claude-tools-for-gemini", "gemini", "read_file", "Read", {"file_path": "/a", "offset": 3}, {"file_path": "/a", "start_line": 3}),
    Told("claude-tools-for-gemini", "gemini", "read_file", "Read", {"file_path": "/a"}, {"absolute_path": "/a"}, True),
    Told("claude-tools-for-gemini", "gemini", "replace", "Edit", {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True}, {"file_path": "/a", "old_string": "x", "new_string": "y", "allow_multiple": True, "instruction": "Replace old_string by new_string."}),
    Told("claude-tools-for-gemini", "gemini", "grep_search", "Grep", {"pattern": "x", "path": "/a", "glob": "*.py"}, {"pattern": "x", "dir_path": "/a", "include_pattern": "*.py"}),
    Told("claude-tools-for-gemini", "gemini", "search_file_content", "Grep", {"pattern": "x", "glob": "*.py"}, {"pattern": "x", "include": "*.py"}),
    Told("claude-tools-for-gemini", "gemini", "google_web_search", "WebSearch", {"query": "x"}, {"query": "x"}),
    Told("claude-tools-for-gemini", "gemini", "web_fetch", "WebFetch", {"url": "https://a.example/x", "prompt": "Who?"}, {"prompt": "Who?\n\nhttps://a.example/x"}),
    Told("gemini-tools-for-claude", "claude", "WebFetch", "web_fetch", {"prompt": "Who is https://a.example/x?"}, {"prompt": "Who is https://a.example/x?", "url": "https://a.example/x"}),
    Told("gemini-tools-for-claude", "claude", "Edit", "replace", {"file_path": "/a", "old_string": "x", "new_string": "y"}, {"file_path": "/a", "old_string": "x", "new_string": "y"}),
    Told("gemini-tools-for-claude", "claude", "Grep", "grep_search", {"pattern": "x"}, {"pattern": "x", "output_mode": "content"}),
    Told("gemini-tools-for-claude", "claude", "WebSearch", "google_web_search", {"query": "x"}, {"query": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(
    "told", [pytest.param(told, id=f"{told.preset}-{told.own}-{number}") for number, told in enumerate(TOLD)]
)
def test_calls_mean_the_same_on_both_sides(told: Told) -> None:
    [row] = [
        row for entry in load_catalogue().tools.values() for row in entry.tools_of(told.client) if row.name == told.own
    ]
    parameters = dict(spellings(row))["older" if told.older else "today"]
    tool = Tool(told.own, "Does something.", parameters_schema(parameters))
    assert round_trip(told.preset, SPEAKS[told.client], tool, told.name, told.said) == told.got


def test_parameters_without_a_counterpart_are_not_shown_and_not_taken() -> None:
    tool = Tool(
        "Read",
        "Reads.",
        {
            "type": "object",
            "properties": {"file_path": {"type": "string"}, "pages": {"type": "string"}},
            "required": ["file_path"],
        },
    )
    this = exchange("gemini-tools-for-claude", "anthropic")
    translation = this.translate_request(
        wire("anthropic", Request(model="m", tools=(tool,), turns=(Turn("user", (Text("Go."),)),)))
    )
    assert [*tools_by_name(translation.json())["read_file"]["parameters"]["properties"]] == ["file_path"]
    assert any("pages" in loss.what for loss in translation.losses), "and are named in the report"
    call = read_call(
        this.translate_response(whole_answer("read_file", '{"file_path": "/a", "pages": "1-2"}')).json(), "anthropic"
    )
    assert decode(call.arguments) == {"file_path": "/a"}


def test_a_parameter_that_the_catalogue_does_not_know_stays() -> None:
    tool = Tool(
        "Bash",
        "Runs.",
        {
            "type": "object",
            "properties": {"command": {"type": "string"}, "mood": {"type": "string"}},
            "required": ["command", "mood"],
        },
    )
    got = round_trip("codex-tools-for-claude", "anthropic", tool, "exec_command", {"cmd": "ls", "mood": "good"})
    assert got == {"command": "ls", "mood": "good"}


def test_two_tools_never_get_one_name() -> None:
    tools = tuple(
        Tool(name, "Runs.", {"type": "object", "properties": {"command": {"type": "string"}}})
        for name in ("shell_command", "shell")
    )
    this = exchange("claude-tools-for-codex", "openai-responses")
    translation = this.translate_request(
        wire("openai-responses", Request(model="m", tools=tools, turns=(Turn("user", (Text("Go."),)),)))
    )
    assert len(tools_by_name(translation.json())) == 2
    assert "policy-skipped" in translation.ledger.codes


# --- Codex on Claude ------------------------------------------------------------------------------------------------

PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "text"}}
PLAN = {
    "type": "function",
    "name": "update_plan",
    "parameters": {"type": "object", "properties": {"plan": {"type": "array", "items": {"type": "object"}}}},
}
SHELLS = {
    "shell": {
        "type": "function",
        "name": "shell",
        "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}},
    },
    "exec_command": {
        "type": "function",
        "name": "exec_command",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
    },
}
SAID = "You are Codex. Edit files with `apply_patch`. Call update_plan early."


def codex(shell: str, **more: Any) -> dict[str, Any]:
    tools = [PATCH, PLAN, SHELLS[shell]]
    messages = [{"role": "developer", "content": SAID}, {"role": "user", "content": "Go."}]
    return {"model": "claude-opus-5-5", "input": messages, "tools": tools, "max_output_tokens": 99, **more}


def system_of(body: dict[str, Any]) -> str:
    system = body["system"]
    return system if isinstance(system, str) else "\n".join(block["text"] for block in system)


@pytest.mark.parametrize("shell", SHELLS)
def test_codex_on_claude_works_with_the_shell_that_is_declared(shell: str) -> None:
    this = exchange("codex-on-anthropic", "openai-responses", "anthropic")
    translation = this.translate_request(codex(shell, tool_choice={"type": "custom", "name": "apply_patch"}))
    body = translation.json()
    assert [tool["name"] for tool in body["tools"]] == [shell]
    assert body.get("tool_choice", {"type": "auto"})["type"] == "auto"
    said = system_of(body)
    assert "Edit files with `apply_patch`" not in said
    assert "Call update_plan" not in said
    assert said.count("There is no apply_patch tool here") == said.count("There is no update_plan tool here") == 1
    assert f"changed with {shell}" in said
    assert {"policy-dropped", "policy-guidance", "policy-cleaned", "policy-choice"} <= set(translation.ledger.codes)


def test_codex_on_claude_says_the_same_in_every_turn() -> None:
    first = exchange("codex-on-anthropic", "openai-responses", "anthropic").translate_request(codex("shell")).json()
    longer = codex("shell")
    longer["input"] += [
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command": ["ls"]}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
    ]
    second = exchange("codex-on-anthropic", "openai-responses", "anthropic").translate_request(longer).json()
    assert (first["system"], first["tools"]) == (second["system"], second["tools"])


def test_codex_on_claude_gets_its_calls() -> None:
    this = exchange("codex-on-anthropic", "openai-responses", "anthropic")
    this.translate_request(codex("shell"))
    arguments = {"command": ["bash", "-lc", "ls"]}
    use = {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": arguments}
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [use],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    call = read_call(this.translate_response(answer).json(), "openai-responses")
    assert (call.name, decode(call.arguments)) == ("shell", arguments)


def test_without_the_preset_codex_keeps_its_tools_on_claude() -> None:
    this = Exchange(find_codec("openai-responses"), find_codec("anthropic"), Options(model="m"))
    body = this.translate_request(codex("shell")).json()
    assert [tool["name"] for tool in body["tools"]] == ["apply_patch", "update_plan", "shell"]
    assert system_of(body) == SAID


def test_a_codex_without_these_tools_is_left_alone() -> None:
    plain = codex("shell", tools=[SHELLS["shell"]], input=[{"role": "user", "content": SAID}], instructions="Work.")
    this = exchange("codex-on-anthropic", "openai-responses", "anthropic")
    assert system_of(this.translate_request(plain).json()) == "Work."


UNKNOWN = (
    "- Use the `apply_patch` tool to edit files (NEVER try `applypatch`, only `apply_patch`):"
    ' {"command":["apply_patch","*** Begin Patch\\n+ {}\\n*** End Patch"]}\n- Keep {"theme": "dark"}.'
)
"""What Codex says to a model whose name it does not know, without declaring `apply_patch`."""


def test_codex_on_claude_names_a_tool_that_it_does_not_declare() -> None:
    this = exchange("codex-on-anthropic", "openai-responses", "anthropic")
    request = codex("exec_command", tools=[SHELLS["exec_command"]], input="Go.", instructions=UNKNOWN)
    translation = this.translate_request(request)
    said = system_of(translation.json())
    edit = "- Use the `exec_command` tool to edit files (NEVER try `applypatch`, only `exec_command`)"
    assert said.startswith(
        f'{edit}\n- Keep {{"theme": "dark"}}.\n\nThere is no apply_patch tool here; files are created'
    )
    assert "update_plan" not in said
    assert translation.ledger.codes == ("policy-cleaned", "policy-guidance")
    _, undo = apply_rules(
        find_codec("openai-responses").read_request(request), preset_rules()["codex-on-anthropic"], Ledger("a", "a")
    )
    refused = undo.restore_call(Call("c1", "apply_patch", '{"input": "*** Begin Patch"}'), translation.ledger)
    assert isinstance(refused, RefusedCall)
    assert "There is no apply_patch tool here" in refused.reason


@pytest.mark.parametrize(
    ("instructions", "tools"),
    [
        (UNKNOWN, []),  # a summary: there is nothing to call
        ("Run tools/apply_patch.py, or see docs/apply_patch.", [SHELLS["shell"]]),
        (UNKNOWN, [{**SHELLS["shell"], "name": "exec", "description": "{ apply_patch(input: string): void }"}]),
    ],
)
def test_a_tool_that_the_instructions_do_not_call_one_is_left_alone(instructions: str, tools: list[Any]) -> None:
    this = exchange("codex-on-anthropic", "openai-responses", "anthropic")
    request = codex("shell", tools=tools, input="Go.", instructions=instructions)
    assert system_of(this.translate_request(request).json()) == instructions


@pytest.mark.parametrize(("said", "is_named"), [("Use the `bash` tool.", True), ("Write it in `bash`.", False)])
def test_an_ordinary_word_names_a_tool_only_as_one(said: str, is_named: bool) -> None:
    rule = Rule(tool=("bash",), drop=True, guidance="No {tool}.", clean=True)
    ledger = Ledger("anthropic", "anthropic")
    request = Request(model="m", system=(Text(said),), tools=(Tool("read", "", {}),))
    changed, undo = apply_rules(request, (rule,), ledger)
    assert bool(undo) is is_named
    assert changed.system == ((Text("Use the other tool.\n\nNo bash."),) if is_named else request.system)


# --- small models ---------------------------------------------------------------------------------------------------


def test_a_small_model_gets_few_tools_and_short_descriptions() -> None:
    long = "Does one thing. " * 40
    others = [Tool(f"mcp__x__{number}", long, {"type": "object"}) for number in range(30)]
    mine = [Tool(name, long, {"type": "object"}) for name in ("WebSearch", "Write", "Grep", "Edit", "Read", "Bash")]
    request = Request(model="m", tools=(*others, *mine), turns=(Turn("user", (Text("Go."),)),))
    this = exchange("small-model", "anthropic")
    body = this.translate_request(wire("anthropic", request)).json()
    tools = tools_by_name(body)
    assert list(tools) == ["mcp__x__0", "mcp__x__1", "WebSearch", "Write", "Grep", "Edit", "Read", "Bash"]
    assert all(0 < len(tool["description"]) <= 200 and tool["description"].endswith(".") for tool in tools.values())
    assert body["parallel_tool_calls"] is False
    call = read_call(this.translate_response(whole_answer("Bash", '{"command": "ls"}')).json(), "anthropic")
    assert (call.name, decode(call.arguments)) == ("Bash", {"command": "ls"})


def test_a_small_model_with_few_tools_keeps_them_all() -> None:
    tools = tuple(Tool(f"tool_{number}", "Short.", {"type": "object"}) for number in range(8))
    body = (
        exchange("small-model", "anthropic")
        .translate_request(wire("anthropic", Request(model="m", tools=tools, turns=(Turn("user", (Text("Go."),)),))))
        .json()
    )
    assert len(tools_by_name(body)) == 8


def test_tools_speak_of_each_other_by_their_new_names() -> None:
    path = {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}
    tools = (
        Tool("read_file", "Reads a file.", path),
        Tool("write_file", "Writes. Look with read_file first, and use 'replace' for changes.", path),
    )
    request = Request(model="m", tools=tools, turns=(Turn("user", (Text("Go."),)),))
    translation = exchange("claude-tools-for-gemini", "gemini").translate_request(wire("gemini", request))
    said = tools_by_name(translation.json())["Write"]["description"]
    assert said == "Writes. Look with Read first, and use 'replace' for changes."  # which is not declared here
    [loss] = [loss for loss in translation.losses if loss.code == "policy-cleaned"]
    assert (loss.what, loss.why) == (
        "the instructions now mention `Read` instead of `read_file`",
        "the rule `read_file as Read`",
    )
