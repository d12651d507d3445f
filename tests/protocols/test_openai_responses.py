"""The Responses room: its laws over samples and recorded traffic, and what each case demands of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import material
from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    StreamChecker,
    TextDelta,
    UsageUpdate,
    fold,
    unfold,
)
from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Format,
    Media,
    Opaque,
    Origin,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Refusal,
    Request,
    Response,
    Result,
    Seal,
    Settings,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolName,
    ToolsAdded,
    Turn,
    Usage,
    replace_fields,
    strip_origins,
)
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_responses import CODEC
from toolwire.protocols.openai_responses.models import family
from toolwire.protocols.openai_responses.names import NAME

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "samples"
STREAMS = sorted((SAMPLES / "openai_responses").glob("*.sse"))
REQUESTS = sorted((SAMPLES / "requests").glob("responses_*.json"))
CORPUS = material.CORPUS / "openai_responses"
ANSWERS = [
    path
    for path in sorted((SAMPLES / "openai_responses").glob("*.json"))
    if "output" in json.loads(path.read_text()) and path.stem != "compact"
]


def read_recordings() -> Iterator[tuple[str, Any]]:
    for file in sorted(CORPUS.glob("*.json")):
        yield file.stem, json.loads(file.read_text())


needs_corpus = material.needs_corpus


def own_ledger() -> Ledger:
    return Ledger(NAME, NAME)


def foreign_ledger() -> Ledger:
    return Ledger("elsewhere", NAME)


def again(body: Any) -> Any:
    """What a peer would receive."""
    return decode(encode(body))


def read_stream(data: bytes, size: int = 0) -> list[Event]:
    reader, checker = CODEC.make_stream_reader(), StreamChecker()
    events: list[Event] = []
    for start in range(0, len(data), size or max(1, len(data))):
        events += reader.feed(data[start : start + (size or len(data))])
    events += reader.close()
    for event in events:
        fault = checker.check_event(event)
        assert fault is None, fault
    return events


def write_stream(events: Any, ledger: Ledger | None = None, context: WriteContext | None = None) -> bytes:
    writer = CODEC.make_stream_writer(ledger or own_ledger(), context or WriteContext(now=1_767_225_601, seed="seed"))
    return b"".join([*(writer.write(event) for event in events), writer.close()])


def frames(data: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in data.decode().replace("\r\n", "\n").split("\n\n"):
        event = next((line[6:].strip() for line in block.splitlines() if line.startswith("event:")), "")
        text = "\n".join(line[5:].strip() for line in block.splitlines() if line.startswith("data:"))
        if text:
            found.append((event, text if text == "[DONE]" else json.loads(text)))
    return found


def types(data: bytes) -> list[str]:
    return [node["type"] for _, node in frames(data)]


def meaning(response: Response) -> Response:
    bare: Response = strip_origins(response)
    return bare


def sse(*nodes: Any) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (node["type"].encode(), encode(node)) for node in nodes)


# --- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_a_request_comes_back_as_it_was_and_means_the_same_when_written_anew(path: Path) -> None:
    body = decode(path.read_bytes())
    request = CODEC.read_request(body)
    assert CODEC.write_request(request, own_ledger()) is body
    renamed = CODEC.write_request(replace_fields(request, model="other"), own_ledger())
    assert renamed == {**body, "model": "other"}
    assert list(renamed) == list(body)
    anew = again(CODEC.write_request(strip_origins(request), own_ledger()))
    assert known_ids(strip_origins(CODEC.read_request(anew))) == known_ids(strip_origins(request))


ORDINARY: dict[str, Any] = {
    "model": "gpt-5.5",
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
                {"type": "input_image", "file_id": "file-1"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
                {"type": "input_file", "file_url": "https://e.example/a.pdf"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Plan"}],
            "encrypted_content": "gAAA",
        },
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "Looking.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "f",
            "namespace": "crm",
            "arguments": "{ }",
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": "*** Begin"},
        {
            "type": "tool_search_call",
            "id": "tsc_1",
            "status": "completed",
            "call_id": "call_3",
            "execution": "client",
            "arguments": {"query": "eta"},
        },
        {"type": "function_call_output", "call_id": "call_1", "output": ""},
        {
            "type": "custom_tool_call_output",
            "call_id": "call_2",
            "output": [
                {"type": "input_text", "text": "done"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            ],
        },
        {
            "type": "tool_search_output",
            "call_id": "call_3",
            "execution": "client",
            "status": "completed",
            "tools": [{"type": "function", "name": "eta", "parameters": {"type": "object"}, "strict": False}],
        },
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [
                {
                    "type": "namespace",
                    "name": "functions",
                    "description": "All",
                    "tools": [
                        {
                            "type": "custom",
                            "name": "exec",
                            "description": "JS",
                            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
                        }
                    ],
                }
            ],
        },
    ],
    "tools": [
        {
            "type": "function",
            "name": "g",
            "description": "G",
            "parameters": {"type": "object", "properties": {}},
            "strict": True,
            "defer_loading": True,
            "output_schema": {"type": "object"},
        },
        {
            "type": "namespace",
            "name": "crm",
            "description": "CRM",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "q"}],
        },
        {"type": "tool_search", "execution": "client", "description": "Find", "parameters": {"type": "object"}},
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["e.example"]},
            "user_location": {"type": "approximate", "city": "Paris"},
            "search_context_size": "low",
        },
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "image_generation"},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "apply_patch"},
        {"type": "local_shell"},
        {"type": "computer"},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [
            {"type": "function", "name": "g"},
            {"type": "mcp", "server_label": "wiki"},
            {"type": "image_generation"},
        ],
    },
    "stream": True,
    "max_output_tokens": 900,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_logprobs": 2,
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "store": False,
    "metadata": {"a": "b"},
    "safety_identifier": "u1",
    "prompt_cache_key": "k1",
    "reasoning": {"effort": "none", "summary": "auto"},
    "text": {
        "format": {"type": "json_schema", "name": "ans", "schema": {"type": "object"}, "strict": True},
        "verbosity": "low",
    },
    "include": ["message.output_text.logprobs"],
}


def test_an_ordinary_request_written_from_its_meaning_is_the_same_json() -> None:
    request = CODEC.read_request(ORDINARY)
    assert {(stray.key, stray.code) for stray in request.unknown_fields} == {("id", "id-rewritten")}
    assert again(CODEC.write_request(strip_origins(request), own_ledger())) == ORDINARY


@pytest.mark.parametrize(
    ("model", "reasoning", "is_fixed"),
    [
        ("gpt-5", None, True),
        ("o3", {"effort": "low"}, True),
        ("gpt-5.1", None, False),
        ("gpt-5.1", {"effort": "low"}, True),
        ("gpt-5.5", {"summary": "auto"}, True),
        ("gpt-5.5", {"effort": "none"}, False),
        ("gpt-4.1", None, False),
        ("openai/gpt-5", None, False),
        ("ours", {"effort": "low"}, False),
    ],
)
def test_models_that_reason_take_only_the_default_sampling(
    model: str, reasoning: dict[str, Any] | None, is_fixed: bool
) -> None:
    body: dict[str, Any] = {"model": model, "input": "u", "temperature": 0, "top_p": 1.0}
    body |= {} if reasoning is None else {"reasoning": reasoning}
    written = CODEC.write_request(CODEC.read_request(body), ledger := own_ledger())
    assert body.keys() - written.keys() == ({"temperature"} if is_fixed else set())
    assert [loss.code for loss in ledger.losses] == (["no-counterpart"] if is_fixed else [])


def test_what_a_request_means() -> None:
    request = CODEC.read_request(ORDINARY)
    assert [turn.role for turn in request.turns] == [
        "developer", "user", "assistant", "assistant", "assistant", "assistant", "assistant", "tool", "tool", "tool",
        "developer",
    ]  # fmt: skip
    calls = [part for turn in request.turns for part in turn.parts if isinstance(part, Call)]
    assert [(call.kind, call.namespace, call.name, call.id, call.item_id, call.arguments) for call in calls] == [
        ("function", "crm", "f", "call_1", "fc_1", "{ }"),
        ("custom", "", "patch", "call_2", "ctc_1", "*** Begin"),
        ("search", "", "tool_search", "call_3", "tsc_1", '{"query":"eta"}'),
    ]
    reasoning = request.turns[2].parts[0]
    assert isinstance(reasoning, Reasoning)
    assert (reasoning.text, reasoning.form, reasoning.seal) == ("Plan", "summary", Seal(NAME, "gAAA"))
    assert request.turns[3].phase == "commentary"
    added = request.turns[10].parts[0]
    assert isinstance(added, ToolsAdded)
    assert [(tool.namespace, tool.name, tool.kind) for tool in added.tools if isinstance(tool, Tool)] == [
        ("functions", "exec", "custom")
    ]
    assert request.settings.where["format"] == ((None, "text"), "format")
    shell = next(tool for tool in request.tools if isinstance(tool, Tool) and tool.kind == "shell")
    assert shell.parameters["required"] == ["commands"]


def test_a_call_with_nulls_and_strays_as_sdks_replay_them() -> None:
    item = {
        "type": "function_call", "id": None, "call_id": "c", "name": "f", "arguments": "{}", "status": None,
        "async": True, "async_": True, "namespace": None, "caller": None, "created_by": None,
    }  # fmt: skip
    message = {"role": "assistant", "content": None, "phase": None, "status": None}
    request = CODEC.read_request(
        {"model": "m", "input": [item, message], "tools": None, "reasoning": None, "text": None}
    )
    call = request.turns[0].parts[0]
    assert isinstance(call, Call)
    assert call.is_async
    assert request.unknown_fields == ()
    anew = CODEC.write_request(
        replace_fields(request, turns=(replace_fields(request.turns[0], parts=(replace_fields(call, id="d"),)),)),
        own_ledger(),
    )
    assert "async_" not in anew["input"][0]
    assert anew["input"][0]["call_id"] == "d"


STRAYS = {
    "previous_response_id": "resp_1",
    "background": True,
    "include": ["reasoning.encrypted_content", "file_search_call.results"],
    "client_metadata": {"a": 1},
    "truncation": "auto",
    "prompt": {"id": "p"},
    "max_tool_calls": 3,
}


@pytest.mark.parametrize("key", STRAYS)
def test_what_only_this_protocol_knows_is_a_stray(key: str) -> None:
    body = {"model": "m", "input": "x", key: STRAYS[key]}
    request = CODEC.read_request(body)
    assert [stray.key for stray in request.unknown_fields] == [key]
    assert CODEC.write_request(replace_fields(request, model="n"), own_ledger())[key] == STRAYS[key]
    assert request.has_provider_history is (key in ("previous_response_id", "prompt"))


def test_the_wish_for_sealed_reasoning_is_no_loss_and_is_kept() -> None:
    body = {"model": "m", "input": "x", "include": ["reasoning.encrypted_content"], "user": "u"}
    request = CODEC.read_request(body)
    assert [(stray.key, stray.code) for stray in request.unknown_fields] == [("include", "setting-mapped")]
    assert request.settings.user == "u"
    assert CODEC.write_request(replace_fields(request, model="n"), own_ledger()) == {**body, "model": "n"}


OWN_ITEMS: dict[str, Any] = {
    "shell": (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"},
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    "local_shell": (
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "c", "output": '{"exit_code":0}'},
    ),
    "apply_patch": (
        {
            "type": "apply_patch_call",
            "call_id": "c",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a"},
        },
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
    ),
    "computer": (
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "c",
            "status": "completed",
            "action": {"type": "wait"},
            "pending_safety_checks": [],
        },
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="},
        },
    ),
}


@pytest.mark.parametrize("kind", OWN_ITEMS)
def test_calls_of_our_own_kinds_are_written_back_as_their_own_items(kind: str) -> None:
    body = {"model": "m", "input": list(OWN_ITEMS[kind])}
    request = CODEC.read_request(body)
    call, result = request.turns[0].parts[0], request.turns[1].parts[0]
    assert isinstance(call, Call)
    assert isinstance(result, Result)
    assert call.kind == result.kind == kind
    assert call.id == result.id == "c"
    assert again(CODEC.write_request(strip_origins(request), own_ledger())) == body


def test_a_computer_call_with_several_actions() -> None:
    item = {**OWN_ITEMS["computer"][0], "actions": [{"type": "wait"}, {"type": "screenshot"}]}
    del item["action"]
    body = {"model": "m", "input": [item]}
    assert again(CODEC.write_request(strip_origins(CODEC.read_request(body)), own_ledger())) == body


CARRIED_ITEMS = [
    ({"type": "item_reference", "id": "msg_1"}, "user"),
    ({"id": "msg_1"}, "user"),
    ({"type": "compaction_trigger"}, "user"),
    ({"type": "configuration_update", "reasoning": {"effort": "low"}}, "user"),
    ({"type": "program", "id": "p", "call_id": "c", "code": "x", "fingerprint": "f"}, "assistant"),
    ({"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}"}, "assistant"),
    ({"type": "mcp_approval_request", "id": "m", "name": "ask", "arguments": "{}"}, "assistant"),
    ({"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}, "user"),
    ({"type": "tool_search_call", "arguments": {}, "execution": "server"}, "assistant"),
    ({"type": "tool_search_output", "tools": [], "execution": "server"}, "assistant"),
    ({"type": "shell_call", "call_id": "c", "action": {}, "environment": {"type": "container_auto"}}, "assistant"),
    ({"type": "vendor:thing", "x": 1}, "assistant"),
]


@pytest.mark.parametrize(("item", "role"), CARRIED_ITEMS)
def test_items_that_only_this_protocol_knows_are_carried_whole(item: Any, role: str) -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "x"}, item]}
    request = CODEC.read_request(body)
    turn = request.turns[1]
    assert turn.role == role
    assert isinstance(turn.parts[0], Opaque)
    assert CODEC.write_request(strip_origins(request), own_ledger())["input"][1] == item
    ledger = foreign_ledger()
    stranger = Opaque("thing", Origin("elsewhere", None, item))
    assert CODEC.write_request(Request(turns=(Turn("assistant", (stranger,)),)), ledger)["input"] == []
    assert [loss.code for loss in ledger.losses if loss.severity == "lost"] == ["opaque-dropped"]


def test_tools_that_the_providers_search_found_are_tools() -> None:
    """A client can write such an item itself, so rules must see its tools."""
    item = {
        "type": "tool_search_output", "id": "tso_1", "call_id": None, "execution": "server", "status": "completed",
        "tools": [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("a", "b")],
    }  # fmt: skip
    body = {"model": "m", "input": [{"role": "user", "content": "x"}, item]}
    request = CODEC.read_request(body)
    assert CODEC.write_request(request, own_ledger()) is body
    (added,) = request.turns[1].parts
    assert isinstance(added, ToolsAdded)
    assert [tool.name for tool in added.tools if isinstance(tool, Tool)] == ["a", "b"]
    for left in ((added.tools[0],), ()):
        turn = replace_fields(request.turns[1], parts=(replace_fields(added, tools=left),) if left else ())
        changed = replace_fields(request, turns=(request.turns[0], turn))
        written = again(CODEC.write_request(changed, own_ledger()))["input"][1]
        assert written == {**item, "tools": item["tools"][: len(left)]}


def test_a_result_of_a_shell_that_the_provider_ran_is_its_own() -> None:
    call = {"type": "shell_call", "call_id": "c", "action": {}, "environment": {"type": "container_auto"}}
    request = CODEC.read_request({"input": [call, {"type": "shell_call_output", "call_id": "c", "output": []}]})
    assert [type(turn.parts[0]) for turn in request.turns] == [Opaque, Opaque]


MALFORMED: list[tuple[Any, str]] = [
    ({"input": 5}, "/input: expected an array, got a whole number"),
    ({"input": [5]}, "/input/0: expected an object"),
    ({"input": [{"role": "robot", "content": "x"}]}, "/input/0/role: unknown role 'robot'"),
    ({"input": [{"type": 5}]}, "/input/0/type: expected a string"),
    ({"input": [{"role": "user", "content": 5}]}, "/input/0/content: expected an array"),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "/input/0/content/0/text"),
    ({"input": [{"type": "function_call", "call_id": 5, "name": "f", "arguments": "{}"}]}, "/input/0/call_id"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": 5}]}, "/input/0/arguments"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]}, "/input/0/output"),
    ({"tools": {}}, "/tools: expected an array"),
    ({"tools": [{"name": "f"}]}, "/tools/0: `type` is missing"),
    ({"tools": [{"type": "function"}]}, "/tools/0: `name` is missing"),
    ({"tools": [{"type": "function", "name": "f", "parameters": "x"}]}, "/tools/0/parameters: expected an object"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "/tools/0/tools/0: `name`"),
    ({"tool_choice": "maybe"}, "/tool_choice: unknown tool choice 'maybe'"),
    ({"tool_choice": {"type": "function"}}, "/tool_choice: `name` is missing"),
    ({"tool_choice": 5}, "/tool_choice: expected a string or an object"),
    ({"model": 5}, "/model: expected a string"),
    ({"temperature": "hot"}, "/temperature: expected a number"),
    ({"max_output_tokens": 1.5}, "/max_output_tokens: expected a whole number"),
    ({"text": {"format": {"type": "xml"}}}, "/text/format/type: unknown format 'xml'"),
    ({"reasoning": {"effort": 5}}, "/reasoning/effort: expected a string"),
    ({"instructions": []}, "/instructions: expected a string"),
    ({"stream": "yes"}, "/stream: expected true or false"),
]


@pytest.mark.parametrize(("body", "told"), MALFORMED)
def test_what_cannot_be_read_is_named_with_its_place(body: Any, told: str) -> None:
    with pytest.raises(Malformed) as bad:
        CODEC.read_request(body)
    assert str(bad.value).startswith(told)


CHOICES: list[tuple[Any, ToolChoice]] = [
    ("none", ToolChoice("none")),
    ({"type": "function", "name": "f"}, ToolChoice("one", (ToolName("f"),))),
    ({"type": "custom", "name": "f"}, ToolChoice("one", (ToolName("f", "custom"),))),
    ({"type": "mcp", "server_label": "w", "name": "a"}, ToolChoice("one", (ToolName("a", "mcp", "w"),))),
    ({"type": "web_search"}, ToolChoice("one", (ToolName("web_search", "web_search"),))),
    ({"type": "shell"}, ToolChoice("one", (ToolName("shell", "shell"),))),
    ({"type": "tool_search"}, ToolChoice("one", (ToolName("tool_search", "search"),))),
]


@pytest.mark.parametrize(("wire", "choice"), CHOICES)
def test_choices(wire: Any, choice: ToolChoice) -> None:
    tools = [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "f"},
        {"type": "mcp", "server_label": "w", "server_url": "https://example.com"},
        {"type": "web_search"},
        {"type": "shell"},
        {"type": "tool_search", "execution": "client"},
    ]
    request = CODEC.read_request({"input": "x", "tools": tools, "tool_choice": wire})
    assert strip_origins(request.choice) == choice
    assert CODEC.write_request(replace_fields(request, choice=choice), own_ledger())["tool_choice"] == wire


def test_an_answer_goes_back_into_the_conversation_as_it_was() -> None:
    body = decode((SAMPLES / "openai_responses" / "commentary_then_call.json").read_bytes())
    parts = CODEC.read_response(body).choices[0].parts
    two = {**body["output"][1], "id": "msg_2", "phase": "final_answer"}
    parts += CODEC.read_response({**body, "output": [two]}).choices[0].parts
    written_back = CODEC.write_request(Request(turns=(Turn("assistant", parts),)), own_ledger())
    assert written_back["input"] == [*body["output"], two]
    moved = CODEC.write_request(Request(turns=(Turn("user", (parts[1],)),)), own_ledger())
    assert moved["input"][0]["content"] == [{"type": "input_text", "text": "I'll check the weather."}]


# --- requests of other protocols ------------------------------------------------------------------------------------


def write_body(request: Request) -> tuple[Any, dict[str, list[str]]]:
    ledger = foreign_ledger()
    body = again(CODEC.write_request(request, ledger))
    notes: dict[str, list[str]] = {}
    for loss in ledger.losses:
        notes.setdefault(loss.code, []).append(loss.what)
    return body, notes


def test_a_mixed_turn_becomes_items_in_the_models_order_without_foreign_ids() -> None:
    turn = Turn(
        "assistant",
        (
            Text("First."),
            Call("toolu_1", "f", "", item_id="toolu_1"),
            Text("Then."),
            Call("c2", "patch", "*** Begin", "custom", item_id="fc_9"),
            Reasoning("secret thoughts"),
            Reasoning("mine", "summary", seal=Seal(f"{NAME}/acme", "gAAA"), id="thought-1"),
            Refusal("No."),
        ),
    )
    results = [Turn("tool", (Result("toolu_1"),)), Turn("tool", (Result("c2", (Text("a"), Text("b")), kind="custom"),))]
    body, notes = write_body(Request("m", turns=(turn, *results)))
    assert body["input"] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "First.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "toolu_1", "name": "f", "arguments": "{}"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Then.", "annotations": []}],
        },
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "mine"}], "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "function_call_output", "call_id": "toolu_1", "output": ""},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
    ]
    assert set(notes) == {"reasoning-dropped", "default-added"}


def test_results_before_the_text_of_the_same_turn() -> None:
    png = Media("image", "image/png", "AA==")
    turn = Turn(
        "user", (Result("c", (Text("seen"), png, Media("file", "application/pdf", "AA=="))), Text("Now reply."))
    )
    body, notes = write_body(Request("m", turns=(turn,)))
    assert body["input"] == [
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [
                {"type": "input_text", "text": "seen"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
                {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,AA=="},
            ],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Now reply."}]},
    ]
    assert "name-added" in notes


def test_defaults_that_differ_are_said_and_noted() -> None:
    tools = (Tool("f", parameters={"type": "object"}), Tool("g", strict=True, defer=True), Tool("h", strict=False))
    body, notes = write_body(Request("m", tools=tools))
    assert [tool["strict"] for tool in body["tools"]] == [False, True, False]
    assert body["store"] is False
    assert len(notes["default-added"]) == 2
    assert "defer_loading" not in body["tools"][1]
    assert "no-counterpart" in notes


ENCRYPTED = {"include": ["reasoning.encrypted_content"]}
SETTINGS: list[tuple[Settings, dict[str, Any], set[str]]] = [
    (Settings(max_tokens=5), {"max_output_tokens": 16}, {"setting-clamped"}),
    (Settings(max_tokens=500, store=True), {"max_output_tokens": 500, "store": True}, set()),
    (Settings(stop=("x",), seed=1, top_k=3, count=2, presence_penalty=1), {}, {"no-counterpart"}),
    (Settings(thinking=Thinking(budget=8192)), {"reasoning": {"effort": "medium"}, **ENCRYPTED}, {"thinking-mapped"}),
    (Settings(thinking=Thinking(mode="off")), {"reasoning": {"effort": "none"}}, set()),
    (Settings(thinking=Thinking(mode="auto")), ENCRYPTED, {"thinking-mapped"}),
    (Settings(thinking=Thinking(effort="high", summary="updates")), {"reasoning": {"effort": "high", "summary": "auto"}, **ENCRYPTED}, {"thinking-mapped"}),
    (Settings(logprobs=True, top_logprobs=3), {"include": ["message.output_text.logprobs"], "top_logprobs": 3}, {"setting-mapped"}),
    (Settings(format=Format("schema", {"type": "object"})), {"text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}}}, {"name-added"}),
    (Settings(format=Format("json"), verbosity="low"), {"text": {"format": {"type": "json_object"}, "verbosity": "low"}}, set()),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "said", "codes"), SETTINGS)
def test_settings_of_other_protocols(settings: Settings, said: dict[str, Any], codes: set[str]) -> None:
    body, notes = write_body(Request("m", settings=settings))
    assert {key: value for key, value in body.items() if key not in ("model", "input", "store") or key in said} == said
    assert set(notes) - {"default-added"} == codes


def test_long_names_of_users_and_caches_are_hashed() -> None:
    body, notes = write_body(Request("m", settings=Settings(user="u" * 200, cache_key="k" * 65)))
    assert len(body["safety_identifier"]) == len(body["prompt_cache_key"]) == 64
    assert len(notes["setting-clamped"]) == 2


def test_models_that_refuse_a_setting_do_not_get_it() -> None:
    body, _ = write_body(
        Request("openai/gpt-6-sol", settings=Settings(temperature=1, thinking=Thinking(effort="none")))
    )
    assert "temperature" not in body
    assert body["reasoning"] == {"effort": "none"}
    body, notes = write_body(Request("gpt-6-astra", settings=Settings(thinking=Thinking(effort="none"))))
    assert body["reasoning"] == {"effort": "low"}
    assert "thinking-mapped" in notes
    body, notes = write_body(Request("gpt-4o", settings=Settings(temperature=1, thinking=Thinking(budget=1024))))
    assert "reasoning" not in body
    assert body["temperature"] == 1
    assert family("some-model").sampling


def test_hosted_tools_of_other_providers() -> None:
    tools = (
        ProviderTool("web_search", max_uses=8, blocked_domains=("x",), allowed_domains=("y",)),
        ProviderTool("web_fetch"),
        ProviderTool("code_execution"),
        ProviderTool("maps"),
    )
    body, notes = write_body(Request("m", tools=tools))
    assert [tool["type"] for tool in body["tools"]] == ["web_search", "code_interpreter"]
    assert set(notes) == {"no-counterpart", "tool-mapped", "tool-dropped", "default-added"}


def test_what_another_providers_tool_found_stays_visible() -> None:
    parts = (
        ProviderCall("srv_1", "web_search", '{"query":"x"}'),
        ProviderResult("srv_1", "web_search", (Citation("https://e.example"),)),
        ProviderCall("srv_2", "web_fetch", '{"url":"https://f.example"}'),
        ProviderCall("srv_3", "maps"),
        ProviderResult("srv_3", "maps", text="a map"),
    )
    body, notes = write_body(Request("m", turns=(Turn("assistant", parts),)))
    search, fetch, text = body["input"]
    assert search["id"].startswith("ws_")
    assert search["action"] == {
        "type": "search",
        "query": "x",
        "queries": ["x"],
        "sources": [{"type": "url", "url": "https://e.example"}],
    }
    assert fetch["action"] == {"type": "open_page", "url": "https://f.example"}
    assert text["content"][0]["text"] == "[maps found]\na map"
    assert {"hosted-as-text", "part-dropped", "tool-mapped"} <= set(notes)


def test_media_that_this_protocol_does_not_take() -> None:
    media = (
        Media("audio", "audio/mp3", "AA=="),
        Media("video", url="https://e.example/v"),
        Media("image", file_id="file_011", origin=Origin("elsewhere", None, {})),
    )
    body, notes = write_body(Request("m", turns=(Turn("user", (*media, Text("x", cache="1h"))),)))
    assert body["input"][0]["content"] == [{"type": "input_text", "text": "x"}]
    assert len(notes["media-dropped"]) == 3
    assert "cache-dropped" in notes


def test_an_image_that_the_model_made_goes_back_as_the_users() -> None:
    body, notes = write_body(
        Request("m", turns=(Turn("assistant", (Text("Here:"), Media("image", "image/png", "AA=="))),))
    )
    assert [item["role"] for item in body["input"]] == ["assistant", "user"]
    assert "media-moved" in notes


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_an_answer_comes_back_as_it_was_and_means_the_same_when_written_anew(path: Path) -> None:
    body = decode(path.read_bytes())
    response = CODEC.read_response(body)
    assert CODEC.write_response(response, own_ledger(), WriteContext()) is body
    anew = again(CODEC.write_response(meaning(response), own_ledger(), WriteContext(now=body["created_at"] + 1)))
    assert set(body) - {"tool_usage"} <= set(anew)
    assert meaning(CODEC.read_response(anew)) == meaning(response)


@pytest.mark.parametrize("name", ["text", "function_call", "refusal", "custom_tool_call", "incomplete_function_call"])
def test_an_ordinary_answer_written_from_its_meaning_is_the_same_json(name: str) -> None:
    body = decode((SAMPLES / "openai_responses" / f"{name}.json").read_bytes())
    asked = CODEC.read_request({"input": "x", "tools": body["tools"], "max_output_tokens": body["max_output_tokens"]})
    anew = again(
        CODEC.write_response(meaning(CODEC.read_response(body)), own_ledger(), WriteContext(asked, 1767225601))
    )
    for item in (*anew["output"], *body["output"]):
        del item["id"]
    assert {**anew, "reasoning": body["reasoning"]} == body


def test_a_changed_part_keeps_its_items_phase_and_id() -> None:
    body = decode((SAMPLES / "openai_responses" / "commentary_then_call.json").read_bytes())
    response = CODEC.read_response(body)
    thought, text, call = response.choices[0].parts
    parts = (thought, text, replace_fields(call, name="other"))
    anew = CODEC.write_response(
        replace_fields(response, choices=(replace_fields(response.choices[0], parts=parts),)),
        own_ledger(),
        WriteContext(),
    )
    assert anew["output"][:2] == body["output"][:2]
    assert anew["output"][2] == {**body["output"][2], "name": "other"}
    parts = (thought, replace_fields(text, text="Aha."), call)
    anew = CODEC.write_response(
        replace_fields(response, choices=(replace_fields(response.choices[0], parts=parts),)),
        own_ledger(),
        WriteContext(),
    )
    assert (anew["output"][1]["id"], anew["output"][1]["phase"]) == ("msg_1", "commentary")
    assert anew["output"][1]["content"][0]["text"] == "Aha."


ENDINGS: list[tuple[Finish, str, Any]] = [
    (Finish("stop", "end_turn"), "completed", None),
    (Finish("calls", "tool_use"), "completed", None),
    (Finish("length", "max_tokens"), "incomplete", {"reason": "max_output_tokens"}),
    (Finish("filter", "SAFETY"), "incomplete", {"reason": "content_filter"}),
    (Finish("refusal", "refusal"), "incomplete", {"reason": "content_filter"}),
    (Finish("context", "x"), "incomplete", {"reason": "max_output_tokens"}),
    (Finish("sequence", "stop_sequence"), "completed", None),
    (Finish("malformed", "MALFORMED_FUNCTION_CALL"), "failed", None),
]


@pytest.mark.parametrize(("finish", "status", "details"), ENDINGS)
def test_endings(finish: Finish, status: str, details: Any) -> None:
    response = Response("msg_01", "m", 5, (Choice(0, (Text("x"),), finish),), Usage(3, 4, cache_read=1))
    body = CODEC.write_response(response, foreign_ledger(), WriteContext(seed="seed"))
    assert (body["status"], body["incomplete_details"]) == (status, details)
    assert body["id"].startswith("resp_")
    assert body["output"][0]["status"] == ("incomplete" if status == "incomplete" else "completed")
    assert body["usage"]["input_tokens_details"] == {"cached_tokens": 1, "cache_write_tokens": 0}
    assert (body["error"] is not None) == (status == "failed")
    stream = write_stream(unfold(response), foreign_ledger())
    assert types(stream)[-1] == f"response.{status}"
    assert frames(stream)[-1][1]["response"]["output"] == body["output"]


def test_the_request_is_echoed_and_its_namespace_given_back() -> None:
    asked = CODEC.read_request(ORDINARY)
    call = Call("call_9", "f", "{}", namespace="crm")
    response = Response("x", "m", 5, (Choice(0, (Reasoning("hm"), call), Finish("calls")),))
    body = CODEC.write_response(response, foreign_ledger(), WriteContext(asked, 7, "s"))
    assert body["instructions"] == "Be brief."
    assert body["tool_choice"] == ORDINARY["tool_choice"]
    assert body["tools"][0]["strict"] is True
    assert body["output"][1]["namespace"] == "crm"
    assert body["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    events = list(unfold(response))
    nodes = [node for _, node in frames(write_stream(events, foreign_ledger(), WriteContext(asked, 7, "s")))]
    assert all(
        node["item"]["namespace"] == "crm" for node in nodes if node.get("item", {}).get("type") == "function_call"
    )
    assert nodes[0]["response"]["tools"] == body["tools"]
    assert nodes[-1]["response"] == decode(encode(body))


def test_an_empty_reasoning_item_comes_only_when_reasoning_was_asked_for() -> None:
    response = Response("x", "m", 5, (Choice(0, (Text("hi"),), Finish("stop")),))
    for body, wanted in (
        ({"input": "x", "reasoning": {"effort": "low"}}, True),
        ({"input": "x", "include": ["reasoning.encrypted_content"]}, True),
        ({"input": "x", "reasoning": {"effort": "none"}}, False),
        ({"input": "x"}, False),
    ):
        ledger = foreign_ledger()
        context = WriteContext(CODEC.read_request(body), 7, "s")
        whole = CODEC.write_response(response, ledger, context)
        assert [item["type"] for item in whole["output"]] == ["reasoning", "message"][not wanted :]
        assert [loss.code for loss in ledger.losses] == [*["reasoning-added"] * wanted, "default-added"]
        assert whole["usage"]["total_tokens"] == 0
        streamed = frames(write_stream(unfold(response), foreign_ledger(), context))[-1][1]["response"]
        assert streamed["output"] == whole["output"]


def test_an_error_body_with_status_200_is_a_failure() -> None:
    response = CODEC.read_response({"error": {"message": "quota", "type": "insufficient_quota", "code": None}})
    assert response.failure is not None
    assert response.failure.kind == "quota"
    with pytest.raises(Malformed, match="`output` is missing"):
        CODEC.read_response({"id": "x"})


def test_pictures_and_what_tools_found_in_an_answer() -> None:
    parts = (
        Media("image", "image/webp", "AA=="),
        ProviderCall("s1", "code_execution", '{"code":"1+1"}'),
        ProviderResult("s1", "code_execution", text="2"),
        Text("Two.", (Citation("https://e.example", "E"),)),
    )
    response = Response("x", "m", 5, (Choice(0, parts, Finish("stop")),), Usage(1, 1))
    ledger = foreign_ledger()
    body = again(CODEC.write_response(response, ledger, WriteContext()))
    picture, code, text = body["output"]
    assert (picture["type"], picture["result"], picture["output_format"]) == ("image_generation_call", "AA==", "webp")
    assert (code["code"], code["outputs"]) == ("1+1", [{"type": "logs", "logs": "2"}])
    assert text["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "https://e.example", "title": "E", "start_index": 0, "end_index": 4}
    ]
    assert ledger.losses == ()
    assert (
        frames(write_stream(unfold(response), foreign_ledger(), WriteContext()))[-1][1]["response"]["output"]
        == body["output"]
    )


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_stream_comes_back_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    events = read_stream(data)
    assert frames(write_stream(events)) == frames(data)
    assert read_stream(data, 1) == events
    assert read_stream(data, 7) == events


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_folding_a_stream_gives_what_the_whole_answer_says(path: Path) -> None:
    whole = meaning(CODEC.read_response(decode(path.with_suffix(".json").read_bytes())))
    folded = meaning(fold(read_stream(path.read_bytes())))
    if whole.failure is not None:
        assert folded.failure is not None
        assert (folded.failure.kind, folded.failure.code) == (whole.failure.kind, whole.failure.code)
        assert folded.choices == whole.choices
    else:
        assert folded == whole


def lean(events: list[Event]) -> list[Event]:
    """Events without their frames, as another protocol would have made them."""
    return [replace(event, frame=None) for event in events if not isinstance(event, OpaqueEvent)]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_stream_written_from_its_meaning_means_the_same(path: Path) -> None:
    events = read_stream(path.read_bytes())
    for said in (lean(events), list(unfold(meaning(fold(events))))):
        data = write_stream(said)
        numbers = [node["sequence_number"] for _, node in frames(data)]
        assert numbers == list(range(len(numbers)))
        first, second = meaning(fold(events)), meaning(fold(read_stream(data)))
        if first.failure is not None:
            assert types(data)[-1] == "response.failed"
            assert second.failure is not None
            assert second.failure.kind == first.failure.kind
        else:
            assert _plain(second) == _plain(first)
        well_formed(data)


def _plain(response: Response) -> Response:
    """Without what the writer may choose: the ids of items, and zeros for counts that nobody gave."""
    parts = []
    for part in response.choices[0].parts:
        match part:
            case Call():
                part = replace(part, item_id="")
            case Reasoning():
                part = replace(part, id="")
            case ProviderCall() | ProviderResult():
                part = replace(part, id="")
        parts.append(part)
    usage = response.usage
    if usage is not None:
        usage = replace(usage, cache_write=usage.cache_write or 0, cache_read=usage.cache_read or 0)
    return replace(response, id="", usage=usage, choices=(replace(response.choices[0], parts=tuple(parts)),))


def well_formed(data: bytes) -> None:
    """The lifecycle as its strictest clients want it: one item after the other, each event with its item's id."""
    opened: dict[str, Any] | None = None
    done_event: list[Any] = []
    nodes = [node for _, node in frames(data)]
    assert [event for event, _ in frames(data)] == [node["type"] for node in nodes]
    assert [node["type"] for node in nodes[:2]] == ["response.created", "response.in_progress"]
    for node in nodes:
        kind = node["type"]
        if kind == "response.output_item.added":
            assert opened is None
            opened = node["item"]
            assert node["output_index"] == len(done_event)
        elif kind == "response.output_item.done":
            assert opened is not None
            for key in ("id", "type", "call_id"):
                assert opened.get(key) == node["item"].get(key)
            done_event.append(node["item"])
            opened = None
        elif "item_id" in node:
            assert opened is not None
            assert node["item_id"] == opened["id"]
            assert node["output_index"] == len(done_event)
    last = nodes[-1]
    assert last["type"] in ("response.completed", "response.incomplete", "response.failed")
    assert last["response"]["id"] == nodes[0]["response"]["id"]
    assert last["response"]["output"] == done_event
    ids = [item["id"] for item in done_event]
    assert len(set(ids)) == len(ids)


def test_every_call_is_told_in_the_events_that_agents_need() -> None:
    response = Response(
        "x", "m", 5,
        (Choice(0, (
            Text("Look:"),
            Call("c1", "f", '{"a":1}'),
            Call("c2", "ping"),
            Call("c3", "patch", "*** Begin", "custom"),
            Call("c4", "tool_search", '{"query":"x"}', "search"),
            Call("c5", "shell", '{"commands":["ls"]}', "shell"),
        ), Finish("calls")),),
        Usage(1, 2),
    )  # fmt: skip
    data = write_stream(unfold(response), foreign_ledger())
    well_formed(data)
    assert types(data) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    nodes = [node for _, node in frames(data)]
    assert nodes[8]["item"]["arguments"] == ""
    assert nodes[10]["name"] == "f"
    assert nodes[13]["delta"] == nodes[14]["arguments"] == nodes[15]["item"]["arguments"] == "{}"
    assert nodes[21]["item"]["arguments"] == {"query": "x"}
    assert nodes[21]["item"]["execution"] == "client"
    assert nodes[23]["item"]["action"] == {"commands": ["ls"]}
    assert nodes[-1]["response"]["usage"]["total_tokens"] == 3


def test_interleaved_parts_are_put_in_line() -> None:
    events: list[Event] = [
        ResponseStart("x", "m", 5),
        PartStart(0, Call("a", "f")),
        PartStart(1, Call("b", "g")),
        ArgumentsDelta(1, '{"b":'),
        ArgumentsDelta(0, '{"a":1}'),
        PartStart(2, Text("")),
        TextDelta(2, "late"),
        ArgumentsDelta(1, "2}"),
        PartEnd(1),
        PartEnd(0),
        TextDelta(2, "r"),
        PartEnd(2),
        ChoiceEnd(Finish("calls")),
        UsageUpdate(Usage(1, 1)),
        ResponseEnd(),
    ]
    data = write_stream(events, foreign_ledger())
    well_formed(data)
    parts = fold(read_stream(data)).choices[0].parts
    assert [(part.name, part.arguments) for part in parts if isinstance(part, Call)] == [
        ("f", '{"a":1}'),
        ("g", '{"b":2}'),
    ]
    assert parts[2].text == "later"  # type: ignore[union-attr]


def test_a_stream_that_fails_ends_as_failed_and_hands_over_no_open_call() -> None:
    events: list[Event] = [ResponseStart("x", "m", 5), PartStart(0, Call("a", "f")), ArgumentsDelta(0, "{")]
    for data in (
        write_stream([*events, ResponseFailed(Failure("rate", "Slow.", 429, retry_after=2.0))], foreign_ledger()),
        write_stream([ResponseFailed(Failure("context", "Too long.", 400))], foreign_ledger()),
        write_stream(events, foreign_ledger()),
        write_stream([], foreign_ledger()),
    ):
        nodes = [node for _, node in frames(data)]
        assert nodes[0]["type"] == "response.created"
        assert nodes[-1]["type"] == "response.failed"
        assert nodes[-1]["response"]["output"] == []
        assert nodes[-1]["response"]["status"] == "failed"
        assert nodes[-1]["response"]["error"]["code"] in (
            "rate_limit_exceeded",
            "context_length_exceeded",
            "server_error",
        )
    assert (
        "try again in 2s"
        in frames(write_stream([*events, ResponseFailed(Failure("rate", "Slow.", 429, retry_after=2.0))]))[-1][1][
            "response"
        ]["error"]["message"]
    )


def test_a_failure_after_frames_that_were_given_back_follows_on_them() -> None:
    data = (SAMPLES / "openai_responses" / "reasoning_function_call.sse").read_bytes()
    events = [event for event in read_stream(data) if not isinstance(event, (ResponseEnd, ChoiceEnd, UsageUpdate))]
    out = write_stream([*events, ResponseFailed(Failure("server", "Boom."))])
    nodes = [node for _, node in frames(out)]
    assert [node["sequence_number"] for node in nodes] == list(range(len(nodes)))
    assert nodes[-1]["response"]["id"] == "resp_A1"
    assert [item["type"] for item in nodes[-1]["response"]["output"]] == ["reasoning", "function_call"]


def test_choices_beyond_the_first_and_foreign_events_are_noted() -> None:
    ledger = foreign_ledger()
    events: list[Event] = [
        ResponseStart("x", "m", 5),
        PartStart(0, Text("")),
        PartStart(1, Text(""), 1),
        TextDelta(1, "other"),
        TextDelta(0, "first"),
        OpaqueEvent("ping", Origin("elsewhere", None, {}), is_ignorable=True),
        OpaqueEvent("thing", Origin("elsewhere", None, {})),
        PartEnd(1),
        PartEnd(0),
        ChoiceEnd(Finish("stop")),
        ChoiceEnd(Finish("length"), 1),
        ResponseEnd(),
    ]
    data = write_stream(events, ledger)
    well_formed(data)
    assert b"other" not in data
    assert [loss.code for loss in ledger.losses] == ["no-counterpart", "event-dropped", "default-added"]


# --- streams of providers that tell less, more or otherwise -----------------------------------------------------------

RESPONSE = {"id": "resp_1", "model": "m", "created_at": 5, "status": "completed", "output": [], "usage": None}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c",
    "name": "f",
    "arguments": '{"a":1}',
    "status": "completed",
}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}  # fmt: skip


def created_event(**more: Any) -> Any:
    return {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", **more}}


def completed_event(*output: Any) -> Any:
    return {"type": "response.completed", "response": {**RESPONSE, "output": list(output)}}


def added_event(item: Any, index: int = 0) -> Any:
    return {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}


def done_event(item: Any, index: int = 0) -> Any:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def arguments(text: str, end: str = "delta", **more: Any) -> Any:
    key = "delta" if end == "delta" else "arguments"
    return {"type": f"response.function_call_arguments.{end}", "output_index": 0, "item_id": "fc_1", key: text, **more}


def text(words: str, end: str = "delta", **more: Any) -> Any:
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0, **more}
    return {"type": f"response.output_text.{end}", "delta" if end == "delta" else "text": words, **place}


BARE = {**CALL, "arguments": ""}
HOLLOW = {**MESSAGE, "content": []}
ONE_CALL = [Call("c", "f", '{"a":1}', item_id="fc_1")]
ONE_TEXT = [Text("Hello")]

DIALECTS: dict[str, tuple[list[Any], list[Any]]] = {
    "arguments only in done": ([created_event(), added_event(BARE), arguments('{"a":1}', "done"), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "arguments only in the item": ([created_event(), added_event(BARE), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "arguments in added and as deltas": ([created_event(), added_event(CALL), arguments('{"a":1}'), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "deltas, then more in done": ([created_event(), added_event(BARE), arguments('{"a"'), arguments('{"a":1}', "done"), done_event(CALL), completed_event()], ONE_CALL),
    "no item done": ([created_event(), added_event(BARE), arguments('{"a":1}'), completed_event()], ONE_CALL),
    "everything only in completed": ([created_event(), completed_event(CALL)], ONE_CALL),
    "no created": ([added_event(BARE), arguments('{"a":1}'), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "no added": ([created_event(), arguments('{"a":1}'), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "name only at the end": ([created_event(), added_event({**BARE, "name": None}), arguments('{"a":1}'), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "index left out": ([created_event(), added_event(BARE), arguments('{"a":1}', output_index=None), done_event(CALL), completed_event(CALL)], ONE_CALL),
    "other ids at the end": ([created_event(), added_event(BARE), arguments('{"a":1}'), done_event(CALL), completed_event({**CALL, "id": "fc_2"})], ONE_CALL),
    "text as deltas and done": ([created_event(), added_event(HOLLOW), text("Hel"), text("lo"), text("Hello", "done"), done_event(MESSAGE), completed_event(MESSAGE)], ONE_TEXT),
    "sequence and padding": ([created_event(), added_event(HOLLOW), *(text(one, sequence_number=at, obfuscation="x" * at) for at, one in enumerate("Hello")), done_event(MESSAGE), completed_event(MESSAGE)], ONE_TEXT),
    "an event between deltas": ([created_event(), added_event(HOLLOW), text("He"), text("l"), text("Hel", "done"), text("l"), text("o"), done_event(MESSAGE), completed_event(MESSAGE)], ONE_TEXT),
    "text only in done": ([created_event(), added_event(HOLLOW), text("Hello", "done"), done_event(MESSAGE), completed_event(MESSAGE)], ONE_TEXT),
    "text only in the item": ([created_event(), added_event(HOLLOW), done_event(MESSAGE), completed_event(MESSAGE)], ONE_TEXT),
    "text only in completed": ([completed_event(MESSAGE)], ONE_TEXT),
    "empty done text": ([created_event(), added_event(HOLLOW), text("Hello"), text("", "done"), done_event(HOLLOW), completed_event(HOLLOW)], ONE_TEXT),
    "output absent at the end": ([created_event(), added_event(HOLLOW), text("Hello"), {"type": "response.completed", "response": {"id": "resp_1"}}], ONE_TEXT),
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects_of_streams(name: str) -> None:
    nodes, parts = DIALECTS[name]
    response = fold(read_stream(sse(*nodes)))
    assert response.failure is None
    assert list(strip_origins(response.choices[0].parts)) == parts
    assert response.choices[0].finish == Finish("calls" if parts is ONE_CALL else "stop", "completed")
    bare = b"".join(b"data: %b\n\n" % encode(node) for node in nodes) + b"data: [DONE]\n\n"
    assert strip_origins(fold(read_stream(bare))) == strip_origins(response)
    assert frames(write_stream(read_stream(bare))) == frames(bare)
    untyped = sse(*nodes).replace(b'"type":"response.', b'"typ":"response.')
    assert [type(event) for event in read_stream(untyped)] == [type(event) for event in read_stream(sse(*nodes))]
    assert frames(write_stream(read_stream(untyped))) == frames(untyped)


BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "stream_truncated"),
    "no end": (sse(created_event(), added_event(BARE), done_event(CALL)), "stream_truncated"),
    "only done sentinel": (sse(created_event()) + b"data: [DONE]\n\n", "stream_truncated"),
    "no JSON": (sse(created_event()) + b"data: {oops\n\n", "invalid_stream"),
    "no object": (b"data: [1]\n\n", "invalid_stream"),
    "delta for nobody": (sse(created_event(), {**arguments("x"), "output_index": None, "item_id": "?"}), "invalid_stream"),
    "two open items at one place": (sse(created_event(), added_event(BARE), added_event({**BARE, "id": "fc_2", "call_id": "c2"}), {**arguments("x"), "item_id": None}), "invalid_stream"),
    "index of wrong type": (sse(created_event(), {**added_event(BARE), "output_index": "0"}), "invalid_stream"),
    "index of wrong type behind others": (sse(created_event(), added_event(HOLLOW), text("a"), text("b"), text("c", output_index=False)), "invalid_stream"),
    "text of wrong type behind others": (sse(created_event(), added_event(HOLLOW), text("a"), text("b"), {**text(""), "delta": 5}), "invalid_stream"),
    "error in a delta": (sse(created_event(), added_event(HOLLOW), text("a"), text("b"), text("c", error={"code": "server_error", "message": "m"})), "server_error"),
    "nested error": (sse({"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "m"}}), "server_error"),
    "flat error": (sse({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None}), "rate_limit_exceeded"),
    "error without type": (b'data: {"error":{"message":"m","code":"insufficient_quota"}}\n\n', "insufficient_quota"),
    "failed": (sse(created_event(), {"type": "response.failed", "response": {"error": {"code": "server_is_overloaded", "message": "m"}}}), "server_is_overloaded"),
    "cancelled": (sse(created_event(), {"type": "response.cancelled", "response": {}}), "cancelled"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_streams_become_failures(name: str) -> None:
    data, code = BROKEN[name]
    events = read_stream(data)
    failures = [event for event in events if isinstance(event, ResponseFailed)]
    assert [event.failure.code for event in failures] == [code]
    assert not any(isinstance(event, ResponseEnd) for event in events)
    assert read_stream(data, 3) == events


def test_an_unknown_key_of_a_delta_is_noted_wherever_it_stands() -> None:
    end = read_stream(
        sse(created_event(), added_event(HOLLOW), text("Hel"), text("l"), text("o", new=1), completed_event(MESSAGE))
    )[-1]
    assert isinstance(end, ResponseEnd)
    assert [stray.key for stray in end.unknown_fields if stray.key == "new"] == ["new"]


def test_both_namings_of_raw_reasoning_and_several_summaries() -> None:
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    raw = {**item, "content": [{"type": "reasoning_text", "text": "abc"}]}
    at = {"output_index": 0, "item_id": "rs_1"}
    for stem in ("response.reasoning", "response.reasoning_text"):
        deltas = [{"type": f"{stem}.delta", "content_index": 0, "delta": piece, **at} for piece in ("a", "bc")]
        ended = {"type": f"{stem}.done", "content_index": 0, "text": "abc", **at}
        parts = (
            fold(
                read_stream(
                    sse(created_event(), added_event(item), *deltas, ended, done_event(raw), completed_event(raw))
                )
            )
            .choices[0]
            .parts
        )
        assert strip_origins(parts) == (Reasoning("abc", "raw", id="rs_1"),)
    whole = {**item, "summary": [{"type": "summary_text", "text": one} for one in ("A", "B")], "encrypted_content": "g"}
    stem = "response.reasoning_summary_text"
    said = [
        {"type": f"{stem}.delta", "summary_index": 0, "delta": "A", **at},
        {"type": f"{stem}.done", "summary_index": 0, "text": "A", **at},
        {"type": f"{stem}.done", "summary_index": 1, "text": "B", **at},
    ]
    for nodes in (said, said[:1], []):
        parts = (
            fold(
                read_stream(sse(created_event(), added_event(item), *nodes, done_event(whole), completed_event(whole)))
            )
            .choices[0]
            .parts
        )
        assert strip_origins(parts) == (Reasoning("A\n\nB", "summary", seal=Seal(NAME, "g"), id="rs_1"),)


def test_annotations_are_told_once() -> None:
    note = {"type": "url_citation", "url": "https://e.example", "title": "E", "start_index": 0, "end_index": 5}
    item = {**MESSAGE, "content": [{"type": "output_text", "text": "Hello", "annotations": [note]}]}
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0, "annotation_index": 0}
    event = {"type": "response.output_text.annotation.added", "annotation": note, **place}
    for nodes in ([text("Hello"), event], [text("Hello")], []):
        events = read_stream(sse(created_event(), added_event(HOLLOW), *nodes, done_event(item), completed_event(item)))
        assert sum(isinstance(one, CitationDelta) for one in events) == 1
        assert meaning(fold(events)) == meaning(CODEC.read_response({**RESPONSE, "output": [item]}))


def test_quiet_and_strange_events() -> None:
    nodes = [
        {"type": "keepalive", "sequence_number": 3},
        {"type": "ping", "cost": "0.1"},
        {"type": "response.audio.delta", "delta": "AA=="},
        {**text("Hello"), "obfuscation": "xyz", "novel": 1},
        {**text(""), "novel": 2},
    ]
    events = read_stream(
        sse(created_event(), added_event(HOLLOW), *nodes, done_event(MESSAGE), completed_event(MESSAGE))
    )
    told = {event.kind: event.is_ignorable for event in events if isinstance(event, OpaqueEvent)}
    assert told["keepalive"] is True
    assert told["ping"] is False
    assert told["response.audio.delta"] is False
    end = next(event for event in events if isinstance(event, ResponseEnd))
    assert [stray.key for stray in end.unknown_fields] == ["cost", "novel"]


def test_the_start_of_a_stream_never_passes_for_the_whole_answer() -> None:
    response = fold(
        read_stream(
            sse(created_event(), added_event(BARE), arguments('{"a":1}'), done_event(CALL), completed_event(CALL))
        )
    )
    body = CODEC.write_response(response, own_ledger(), WriteContext())
    assert body["status"] == "completed"
    assert body["output"][0]["arguments"] == '{"a":1}'


def test_seals_of_others_are_not_written() -> None:
    ledger = foreign_ledger()
    response = Response(
        "x", "m", 5, (Choice(0, (Reasoning("t", seal=Seal("elsewhere", "s")), Text("x")), Finish("stop")),)
    )
    body = CODEC.write_response(response, ledger, WriteContext())
    assert "encrypted_content" not in body["output"][0]
    assert [loss.code for loss in ledger.losses if loss.severity == "lost"] == ["seal-dropped"]
    sealed = [
        ResponseStart("x"),
        PartStart(0, Reasoning()),
        SealDelta(0, Seal(NAME, "g")),
        PartEnd(0),
        ChoiceEnd(Finish("stop")),
        ResponseEnd(),
    ]
    assert frames(write_stream(sealed))[-1][1]["response"]["output"][0]["encrypted_content"] == "g"


# --- errors ---------------------------------------------------------------------------------------------------------

ERRORS: list[tuple[Any, int, str, str]] = [
    ({"error": {"message": "m", "type": "invalid_request_error", "code": "context_length_exceeded"}}, 400, "context", "m"),
    ({"error": {"message": "m", "type": "tokens", "code": "rate_limit_exceeded"}}, 429, "rate", "m"),
    ({"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}}, 429, "quota", "m"),
    ({"error": {"message": "m", "type": "invalid_request_error", "code": "invalid_api_key"}}, 401, "authentication", "m"),
    ({"error": {"message": "m", "type": "invalid_request_error", "code": "model_not_found"}}, 400, "not_found", "m"),
    ({"error": {"message": "m", "type": "server_error", "code": None}}, 500, "server", "m"),
    ({"error": {"message": "m", "code": "server_is_overloaded"}}, 503, "overloaded", "m"),
    ({"error": {"message": "This model's maximum context length is 5"}}, 400, "context", "This model's maximum context length is 5"),
    ({"detail": "no token"}, 401, "authentication", "no token"),
    ({"error": "plain"}, 404, "not_found", "plain"),
    ("<html>bad gateway</html>", 502, "upstream", "<html>bad gateway</html>"),
    ([1, 2], 418, "invalid", "[1,2]"),
    (None, 529, "overloaded", "the provider answered with status 529 and no explanation"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "kind", "message"), ERRORS)
def test_errors_are_read(body: Any, status: int, kind: str, message: str) -> None:
    failure = CODEC.read_error(body, status, {"Retry-After": "3"})
    assert (failure.kind, failure.message, failure.status, failure.retry_after) == (kind, message, status, 3.0)
    sent = CODEC.write_error(failure)
    if kind == "context":
        assert sent.body["error"]["code"] == "context_length_exceeded"
    elif isinstance(body, dict) and "error" in body:
        assert sent.body is body
        assert sent.status == status


WORDS: list[tuple[Failure, int, str, str | None]] = [
    (Failure("context", "m"), 400, "invalid_request_error", "context_length_exceeded"),
    (Failure("overloaded", "m", 529, "overloaded_error"), 503, "service_unavailable_error", "server_is_overloaded"),
    (Failure("rate", "m", 429), 429, "rate_limit_error", "rate_limit_exceeded"),
    (Failure("billing", "m", 402), 429, "insufficient_quota", "insufficient_quota"),
    (Failure("invalid", "m", 400, "bad_thing", "input[0]"), 400, "invalid_request_error", "bad_thing"),
    (Failure("upstream", "m", 502, "stream_truncated"), 502, "server_error", "stream_truncated"),
    (Failure("cancelled", "m", 499), 499, "server_error", None),
]


@pytest.mark.parametrize(("failure", "status", "kind", "code"), WORDS)
def test_errors_are_written_in_the_words_that_clients_know(
    failure: Failure, status: int, kind: str, code: str | None
) -> None:
    sent = CODEC.write_error(replace(failure, retry_after=0.2))
    assert (sent.status, sent.body["error"]["type"], sent.body["error"]["code"]) == (status, kind, code)
    assert sent.headers == {"retry-after": "1", "retry-after-ms": "200"}


def test_the_door() -> None:
    assert CODEC.http.request_path("m", True) == CODEC.http.request_path("m", False) == "/v1/responses"


# --- any input ------------------------------------------------------------------------------------------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "x", "message"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text"]), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    node = again(body)
    inner = node
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return node


BODIES = [ORDINARY, *(decode(path.read_bytes()) for path in REQUESTS)]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_value_anywhere_in_a_request_is_read_or_named(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(BODIES))
    body = put(body, data.draw(st.sampled_from(places(body)[1:])), data.draw(ANY))
    try:
        request = CODEC.read_request(body)
    except Malformed:
        return
    assert CODEC.write_request(request, own_ledger()) == body
    encode(CODEC.write_request(replace_fields(request, model="m"), own_ledger()))
    encode(CODEC.write_request(strip_origins(request), foreign_ledger()))


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
    ],
)
def test_a_plain_item_is_read_and_written_like_one_with_more_keys(item: dict[str, Any]) -> None:
    plain, other = (
        strip_origins(CODEC.read_request({"model": "m", "input": [one]})) for one in (item, item | {"x": None})
    )
    assert plain == other
    (turn,) = plain.turns
    marked = replace(turn, name="named")  # takes the turn off any short way for plain turns
    written = [CODEC.write_request(replace(plain, turns=(one,)), foreign_ledger())["input"] for one in (turn, marked)]
    assert written[0] == written[1] == [item]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_value_anywhere_in_an_answer_is_read_or_named(data: st.DataObject) -> None:
    body = decode(data.draw(st.sampled_from(ANSWERS)).read_bytes())
    body = put(body, data.draw(st.sampled_from(places(body)[1:])), data.draw(ANY))
    try:
        response = CODEC.read_response(body)
    except Malformed:
        return
    encode(CODEC.write_response(strip_origins(response), foreign_ledger(), WriteContext()))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_value_anywhere_in_a_stream_gives_lawful_events(data: st.DataObject) -> None:
    nodes = [node for _, node in frames(data.draw(st.sampled_from(STREAMS)).read_bytes())]
    path = data.draw(st.sampled_from([place for place in places(nodes) if place and "tools" not in place]))
    stream = b"".join(b"data: %b\n\n" % encode(node) for node in put(nodes, path, data.draw(ANY)))
    events = read_stream(stream)
    ends = [event for event in events if isinstance(event, (ResponseEnd, ResponseFailed))]
    assert len(ends) == 1
    assert write_stream(lean(events), foreign_ledger())
    assert write_stream(events)


# --- recorded traffic -----------------------------------------------------------------------------------------------


@needs_corpus
def test_recorded_requests() -> None:
    for name, record in read_recordings():
        if record.get("request") is None:
            continue
        body = decode(encode(record["request"]))
        request = CODEC.read_request(body)
        assert CODEC.write_request(request, own_ledger()) is body, name
        assert CODEC.write_request(replace_fields(request, model="x"), own_ledger()) == {**body, "model": "x"}, name
        ledger = own_ledger()
        meant = strip_origins(request)
        second = strip_origins(CODEC.read_request(again(CODEC.write_request(meant, ledger))))
        assert known_ids(second) == known_ids(meant) or drops_only_reasoning(ledger), name


def known_ids(request: Request) -> Request:
    """Without what stays with the origin: ids that lack their type's prefix, and the turns that the provider holds."""
    turns = []
    for turn in request.turns:
        parts = tuple(
            replace(part, item_id="")
            if isinstance(part, Call)
            else replace(part, id="")
            if isinstance(part, Reasoning)
            else part
            for part in turn.parts
        )
        turns.append(replace(turn, parts=parts))
    return replace(request, turns=tuple(turns), has_provider_history=False)


def drops_only_reasoning(ledger: Ledger) -> bool:
    return {loss.code for loss in ledger.losses} == {"reasoning-dropped"}


@needs_corpus
def test_recorded_answers() -> None:
    for name, record in read_recordings():
        body = record.get("response")
        if not isinstance(body, dict) or "output" not in body:
            if isinstance(body, dict):
                failure = CODEC.read_error(body, record["status"], {})
                assert failure.message, name
            continue
        body = decode(encode(body))
        response = CODEC.read_response(body)
        assert CODEC.write_response(response, own_ledger(), WriteContext()) is body, name
        ledger = own_ledger()
        anew = again(CODEC.write_response(meaning(response), ledger, WriteContext(now=5)))
        second = meaning(CODEC.read_response(anew))
        if response.choices and {loss.code for loss in ledger.losses} <= {"citation-dropped"}:
            assert parts_without_citations(second) == parts_without_citations(meaning(response)), name
        else:
            assert second.failure is not None, name


def parts_without_citations(response: Response) -> list[Any]:
    """Citations of files that only the provider holds stay with their origin."""
    parts = _plain(response).choices[0].parts
    return [replace(part, citations=()) if isinstance(part, Text) else part for part in parts]


def parts_without_seals(response: Response) -> list[Any]:
    """Some providers seal the same thought anew for the whole answer."""
    parts = _plain(response).choices[0].parts
    return [replace(part, seal=None) if isinstance(part, Reasoning) else part for part in parts]


@needs_corpus
def test_recorded_streams() -> None:
    for name, record in read_recordings():
        if record.get("sse") is None:
            continue
        data = record["sse"].encode()
        events = read_stream(data)
        assert read_stream(data, 11) == events, name
        assert frames(write_stream(events)) == frames(data), name
        folded = fold(events)
        ends = [node for _, node in frames(data) if isinstance(node, dict) and node["type"] == "response.completed"]
        if folded.failure is None and record["kind"] == "recorded" and ends and ends[0]["response"].get("output"):
            whole = meaning(CODEC.read_response(decode(encode(ends[0]["response"]))))
            assert parts_without_seals(meaning(folded)) == parts_without_seals(whole), name
            assert folded.id == whole.id, name
        out = write_stream(lean(events))
        well_formed(out)
        second = fold(read_stream(out))
        assert (second.failure is None) == (folded.failure is None), name
        if folded.failure is None:
            assert _plain(meaning(second)).choices == _plain(meaning(folded)).choices, name
