"""The embedded model: in every protocol, whole and streamed, the same each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from material import NAMES, corpus, needs_corpus
from toolwire.core.events import StreamChecker, fold
from toolwire.core.ir import (
    Call,
    Format,
    Grammar,
    Media,
    Part,
    Reasoning,
    Request,
    Response,
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
    strip_origins,
)
from toolwire.core.json_values import encode
from toolwire.core.losses import Ledger
from toolwire.gateway.http.messages import ReadyResponse
from toolwire.gateway.models.loopback.model import answer_request
from toolwire.protocols import find_codec
from toolwire.translation.options import Options
from toolwire.translation.request_steps.adapt_request import adapt_request

NOW = 1_790_000_000
everywhere = pytest.mark.parametrize("name", NAMES)


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string"}
WEATHER = Tool("get_weather", "The weather of a city", schema("city", city=TEXT))
TIME = Tool("get_time", "The time in a city", schema("city", city=TEXT))
READ = Tool("read_file", "Reads a file", schema("path", path=TEXT))


def build_request(*said: str | Part | Turn, tools: tuple[Tool, ...] = (WEATHER, TIME, READ), **fields: Any) -> Request:
    """A conversation: texts and parts are the user's."""
    turns = [
        one if isinstance(one, Turn) else Turn("user", (Text(one) if isinstance(one, str) else one,)) for one in said
    ]
    given: Settings = fields.pop("settings", Settings())
    settings = replace(given, max_tokens=given.max_tokens or 4000, stream_usage=True)
    return Request(model="loopback", turns=tuple(turns), tools=tools, settings=settings, stream=True, **fields)


def body_of(name: str, request: Request) -> bytes:
    place = find_codec(name)
    ledger = Ledger("elsewhere", name)
    fitted, _, _ = adapt_request(request, place, ledger, Options())
    return encode(place.write_request(fitted, ledger))


def send_twice(name: str, request: Request, stream: bool = False) -> ReadyResponse:
    body = body_of(name, request)
    once = answer_request(find_codec(name), body, "loopback", stream, NOW)
    assert once == answer_request(find_codec(name), body, "loopback", stream, NOW)
    return once


def read_both_forms(name: str, request: Request) -> Response:
    """What the model says; whole and streamed must mean the same."""
    place = find_codec(name)
    whole = send_twice(name, request)
    assert (whole.status, whole.headers["content-type"], len(whole.pieces)) == (200, "application/json", 1)
    response = place.read_response(json.loads(whole.pieces[0]))
    streamed = send_twice(name, request, stream=True)
    assert (streamed.status, streamed.headers["content-type"]) == (200, place.http.framing.content_type)
    assert len(streamed.pieces) > 1
    reader, checker = place.make_stream_reader(), StreamChecker()
    events = [event for piece in streamed.pieces for event in reader.feed(piece)] + reader.close()
    assert not [fault for event in events if (fault := checker.check_event(event))]
    assert checker.state == "done"
    folded = fold(events)
    assert folded.failure is None
    assert compare_form(folded) == compare_form(response)
    assert response.usage is not None
    assert response.usage.input > 0 < response.usage.output
    return response


def compare_form(response: Response) -> Any:
    """Parts, endings and counts; empty parts say nothing."""
    choices = [
        (one.finish.kind if one.finish else None, [part for part in strip_origins(one.parts) if part != Text("")])
        for one in response.choices
    ]
    usage = response.usage
    return response.id, response.model, choices, usage and (usage.input, usage.output)


def parts_of(response: Response) -> tuple[Part, ...]:
    return strip_origins(response.choices[0].parts)


def calls_of(response: Response) -> list[Call]:
    return [part for part in parts_of(response) if isinstance(part, Call)]


def made_calls(response: Response) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in calls_of(response)]


def text_of(response: Response) -> str:
    return plain_text(parts_of(response))


def ending(response: Response) -> str:
    finish = response.choices[0].finish
    return finish.kind if finish else ""


PARIS = [("get_weather", {"city": "Paris"})]
PARIS_AND_LONDON = [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "London"})]


# --- every protocol ---------------------------------------------------------------------------------------------------


@everywhere
def test_a_greeting_is_answered_in_words(name: str) -> None:
    response = read_both_forms(name, build_request("Hello"))
    assert "You said: Hello" in text_of(response)
    assert "loopback" in text_of(response)
    assert "toolwire.toml" in text_of(response)
    assert not calls_of(response)
    assert ending(response) == "stop"


@everywhere
def test_a_tool_is_called_and_its_result_is_told(name: str) -> None:
    request = build_request("What is the weather in Paris?")
    response = read_both_forms(name, request)
    assert made_calls(response) == PARIS
    assert ending(response) in find_codec(name).constraints.call_finish_kinds
    (call,) = calls_of(response)
    assert call.id
    result = Turn("tool", (Result(call.id, (Text("15 degrees and sunny"),), name="get_weather"),))
    request = replace(request, turns=(*request.turns, Turn("assistant", parts_of(response)), result))
    after = read_both_forms(name, request)
    assert text_of(after) == "get_weather said: 15 degrees and sunny"
    assert not calls_of(after)
    request = replace(
        request,
        turns=(*request.turns, Turn("assistant", parts_of(after)), Turn("user", (Text("And the time in Rome?"),))),
    )
    (third,) = calls_of(read_both_forms(name, request))
    assert (third.name, json.loads(third.arguments)) == ("get_time", {"city": "Rome"})
    assert third.id != call.id


@everywhere
def test_calls_in_parallel_and_all_their_results(name: str) -> None:
    request = build_request("What is the weather in Paris and London?")
    response = read_both_forms(name, request)
    assert made_calls(response) == PARIS_AND_LONDON
    first, second = calls_of(response)
    assert first.id != second.id
    results = (
        Result(first.id, (Text('{"temperature":15}'),), name="get_weather", value={"temperature": 15}),
        Result(second.id, (Text("no such station"),), error=True, name="get_weather"),
    )
    request = replace(request, turns=(*request.turns, Turn("assistant", parts_of(response)), Turn("tool", results)))
    text = text_of(read_both_forms(name, request))
    assert 'get_weather said: {"temperature":15}' in text
    assert "no such station" in text
    assert "failed" in text or "error" in text.lower()


@pytest.mark.parametrize("place", ["San Francisco, CA", "Berlin, GER", "Paris"])
def test_a_place_with_its_state_is_one_place(place: str) -> None:
    request = build_request(f"What is the weather in {place}? Use the tools.")
    assert made_calls(read_both_forms("openai-chat", request)) == [("get_weather", {"city": place})]


@pytest.mark.parametrize("text", ["run `date`", '"run `date`"\n', "Please execute this: `date`"])
def test_a_command_in_backticks_is_run_by_the_tool_that_takes_commands(text: str) -> None:
    """As opencode quotes a prompt, too; no word of it is in the tool's name."""
    command: Any = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    request = build_request(text, tools=(WEATHER, Tool("exec_command", "", command)))
    assert made_calls(read_both_forms("openai-chat", request)) == [("exec_command", {"cmd": "date"})]


@everywhere
def test_parallel_calls_can_be_forbidden(name: str) -> None:
    if name in ("gemini", "bedrock-converse"):
        pytest.skip("this wire cannot forbid them")
    request = build_request(
        "Weather in Paris and London?", settings=Settings(parallel=False), choice=ToolChoice("auto")
    )
    assert made_calls(read_both_forms(name, request)) == PARIS


@everywhere
def test_the_choice_is_obeyed(name: str) -> None:
    weather, time = ToolName("get_weather"), ToolName("get_time")
    question = "What is the weather in Paris?"
    assert not calls_of(read_both_forms(name, build_request(question, choice=ToolChoice("none"))))
    assert made_calls(read_both_forms(name, build_request(question, choice=ToolChoice("auto")))) == PARIS
    forced = read_both_forms(name, build_request("Hello", choice=ToolChoice("required")))
    assert [call.name for call in calls_of(forced)] == ["get_weather"]
    one = read_both_forms(name, build_request(question, choice=ToolChoice("one", (time,))))
    assert made_calls(one) == [("get_time", {"city": "Paris"})]
    # Where the wire cannot say `allowed`, fewer tools are offered.
    some = read_both_forms(
        name, build_request(question, tools=(READ, TIME), choice=ToolChoice("allowed", (time,), required=True))
    )
    assert [call.name for call in calls_of(some)] == ["get_time"]
    assert weather.name not in {call.name for call in calls_of(some)}


@everywhere
def test_a_forced_tool_is_not_called_again_and_again(name: str) -> None:
    request = build_request("What is the weather in Paris?", tools=(WEATHER,), choice=ToolChoice("required"))
    first = read_both_forms(name, request)
    result = Turn("tool", (Result(calls_of(first)[0].id, (Text("sunny"),), name="get_weather"),))
    request = replace(request, turns=(*request.turns, Turn("assistant", parts_of(first)), result))
    assert text_of(read_both_forms(name, request)) == "get_weather said: sunny"
    final = Tool("final_result", "The final answer", schema("sky", sky={"type": "string", "enum": ["rainy", "sunny"]}))
    assert made_calls(read_both_forms(name, replace(request, tools=(WEATHER, final)))) == [
        ("final_result", {"sky": "sunny"})
    ]


@everywhere
def test_thinking_comes_first_and_is_accepted_when_it_comes_back(name: str) -> None:
    request = build_request(
        "What is the weather in Paris?", settings=Settings(max_tokens=9000, thinking=Thinking("on", "low", 2000))
    )
    response = read_both_forms(name, request)
    first = parts_of(response)[0]
    assert isinstance(first, Reasoning)
    assert "get_weather" in first.text
    result = Turn("tool", (Result(calls_of(response)[0].id, (Text("sunny"),), name="get_weather"),))
    request = replace(request, turns=(*request.turns, Turn("assistant", parts_of(response)), result))
    assert "get_weather said: sunny" in text_of(read_both_forms(name, request))
    assert not any(isinstance(part, Reasoning) for part in parts_of(read_both_forms(name, build_request("Hello"))))


@everywhere
def test_the_end_comes_early_when_it_must(name: str) -> None:
    short = read_both_forms(name, build_request("Hello there", settings=Settings(max_tokens=16), tools=()))
    assert ending(short) == "length"
    assert len(text_of(short)) == 64
    if name == "openai-responses":
        return  # has no stop sequences
    stopped = read_both_forms(
        name, build_request("Hello there", settings=Settings(stop=("loopback", "nowhere")), tools=())
    )
    assert text_of(stopped).endswith("This is ")
    assert ending(stopped) in ("sequence", "stop")


@everywhere
def test_a_form_is_kept(name: str) -> None:
    wanted = schema("city", "days", city=TEXT, days={"type": "integer"}) | {"additionalProperties": False}
    form = Format("schema", wanted, name="trip")
    text = text_of(
        read_both_forms(name, build_request("A trip of 5 days to Rome", tools=(), settings=Settings(format=form)))
    )
    assert json.loads(text) == {"city": "Rome", "days": 5}
    loose = text_of(
        read_both_forms(name, build_request("Hello in JSON", tools=(), settings=Settings(format=Format("json"))))
    )
    if name not in ("anthropic", "bedrock-converse"):  # they cannot ask for JSON without a schema
        assert isinstance(json.loads(loose), dict)


@everywhere
def test_media_are_told(name: str) -> None:
    image = Media("image", "image/png", "iVBORw0KGgo=")
    text = text_of(read_both_forms(name, build_request(Turn("user", (Text("Look at this"), image)), tools=())))
    assert "1 image" in text
    assert "8 bytes" in text
    request = build_request("What is the weather in Paris?")
    call = calls_of(read_both_forms(name, request))[0]
    result = Turn("tool", (Result(call.id, (Text("a chart"), image), name="get_weather"),))
    request = replace(request, turns=(*request.turns, Turn("assistant", (call,)), result))
    text = text_of(read_both_forms(name, request))
    assert "get_weather said: a chart" in text
    assert "image/png" in text


# --- what goes wrong --------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 1, "input": 1, "contents": 1}'])
def test_a_body_that_cannot_be_read_is_an_error_of_the_protocol(name: str, body: bytes) -> None:
    place = find_codec(name)
    for stream in (False, True):
        refused = answer_request(place, body, "loopback", stream, NOW)
        assert (refused.status, refused.headers["content-type"]) == (400, "application/json")
        assert place.read_error(json.loads(refused.pieces[0]), 400, {}).kind == "invalid"


@everywhere
@pytest.mark.parametrize(
    ("order", "kind", "status"),
    [
        ("loopback: fail 429 retry after 3", "rate", 429),
        ("loopback: fail 529", "overloaded", None),
        ("loopback: fail 500", "server", 500),
        ("loopback: overflow", "context", 400),
        ("Loopback: break", "server", 500),
    ],
)
def test_failures_are_rehearsed(name: str, order: str, kind: str, status: int | None) -> None:
    place = find_codec(name)
    failed = send_twice(name, build_request(f"Please answer. {order}"))
    if status is not None:
        assert failed.status == status
    failure = place.read_error(json.loads(failed.pieces[0]), failed.status, failed.headers)
    assert failure.kind == kind
    assert failure.retry_after == (3 if "retry" in order else None)


@everywhere
def test_a_stream_breaks_in_the_middle(name: str) -> None:
    place = find_codec(name)
    for order, message in (("break", "asked to break"), ("cut", "")):
        streamed = send_twice(name, build_request(f"Tell me something. loopback: {order}", tools=()), stream=True)
        reader = place.make_stream_reader()
        folded = fold([event for piece in streamed.pieces for event in reader.feed(piece)] + reader.close())
        assert folded.failure is not None
        assert message in folded.failure.message
        assert text_of(folded).startswith("You said: Tell me something.")
    cut = send_twice(name, build_request("Tell me something. loopback: cut", tools=()))
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut.pieces[0])


# --- which tools ------------------------------------------------------------------------------------------------------

PATH = schema("path", path=TEXT)
MANY = (
    WEATHER,
    TIME,
    READ,
    Tool("write_file", "Writes a file", schema("path", "content", path=TEXT, content=TEXT)),
    Tool("run_command", "Runs a command in a shell", schema("command", command=TEXT)),
    Tool("web_search", "Searches the web", schema("query", query=TEXT)),
    Tool("add", "Adds two numbers", schema("a", "b", a={"type": "number"}, b={"type": "number"})),
    Tool("square", "The square of a number", schema("n", n={"type": "integer"})),
)
ASKED: dict[str, list[tuple[str, Any]]] = {
    "How is the weather in Oslo today?": [("get_weather", {"city": "Oslo"})],
    "Read src/main.py": [("read_file", {"path": "src/main.py"})],
    "Read a.txt, b.txt and c.txt": [("read_file", {"path": f"{one}.txt"}) for one in "abc"],
    'Write "hello world" to notes.txt': [("write_file", {"path": "notes.txt", "content": "hello world"})],
    "Run `ls -la`": [("run_command", {"command": "ls -la"})],
    "Search the web for tool calling": [("web_search", {"query": "Search the web for tool calling"})],
    'Search for "cats" and "dogs"': [("web_search", {"query": "cats"}), ("web_search", {"query": "dogs"})],
    "Add 3 and 4.5": [("add", {"a": 3, "b": 4.5})],
    "The squares of 3, 4 and 5?": [("square", {"n": 3}), ("square", {"n": 4}), ("square", {"n": 5})],
    "The weather and the time in Rome": [("get_weather", {"city": "Rome"}), ("get_time", {"city": "Rome"})],
    "How is the weather in Rome? What time is it?": [("get_weather", {"city": "Rome"}), ("get_time", {"city": "Rome"})],
    "Use get_time for Rome": [("get_time", {"city": "Rome"})],
    'get_weather {"city": "paris"}': [("get_weather", {"city": "paris"})],
    "Call read_file and get_time with path: x.md and city=Bonn": [
        ("get_time", {"city": "Bonn"}),
        ("read_file", {"path": "x.md"}),
    ],
    "Hi, how are you?": [],
    "Thanks!": [],
    "": [],
}


@pytest.mark.parametrize("text", ASKED)
def test_the_text_decides(text: str) -> None:
    assert made_calls(read_both_forms("unified", build_request(text or " ", tools=MANY))) == ASKED[text]


def test_all_tools_at_once() -> None:
    both = read_both_forms("unified", build_request("Call both tools for Paris", tools=(WEATHER, TIME)))
    assert [call.name for call in calls_of(both)] == ["get_weather", "get_time"]


def test_what_agents_put_beside_the_words_is_not_heard() -> None:
    surroundings = "<environment_context>\n<cwd>/src/read_file</cwd>\n</environment_context>"
    response = read_both_forms("openai-responses", build_request(surroundings, "What is the weather in Paris?"))
    assert made_calls(response) == PARIS
    mixed = "<reminder>\nread_file x.txt\n</reminder>\nHello"
    assert "You said: Hello\n" in text_of(read_both_forms("anthropic", build_request(mixed)))


def test_several_answers() -> None:
    response = read_both_forms("openai-chat", build_request("Weather in Paris?", settings=Settings(count=2)))
    ids = [part.id for choice in response.choices for part in choice.parts if isinstance(part, Call)]
    assert len(set(ids)) == 2


# --- tools of other kinds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses"])
def test_a_free_form_tool_gets_text(name: str) -> None:
    grammar = Tool("apply_edit", "Edits code", kind="custom", grammar=Grammar("lark", 'start: "x"'))
    for tool in (grammar, replace(grammar, grammar=None)):
        (call,) = calls_of(read_both_forms(name, build_request("apply_edit:\n```py\nprint(1)\n```", tools=(tool,))))
        assert (call.kind, call.name, call.arguments) == ("custom", "apply_edit", "print(1)\n")


def test_a_tool_in_a_namespace_is_called_in_it() -> None:
    inner = replace(READ, namespace="disk", namespace_description="Files")
    (call,) = calls_of(read_both_forms("openai-responses", build_request("Read a.txt", tools=(inner, WEATHER))))
    assert (call.namespace, call.name, call.arguments) == ("disk", "read_file", '{"path":"a.txt"}')


def test_tools_are_searched_loaded_and_called() -> None:
    search = Tool("tool_search", "Searches for tools", schema("query", query=TEXT), kind="search")
    request = build_request("Use tool_search to find the weather tool, then tell the weather in Paris", tools=(search,))
    response = read_both_forms("openai-responses", request)
    (call,) = calls_of(response)
    assert call.kind == "search"
    loaded = Result(call.id, (ToolsAdded((WEATHER,)),), kind="search")
    request = replace(request, turns=(*request.turns, Turn("assistant", parts_of(response)), Turn("tool", (loaded,))))
    assert made_calls(read_both_forms("openai-responses", request)) == PARIS


def test_a_deferred_tool_waits_until_it_is_loaded() -> None:
    messages: list[Any] = [{"role": "user", "content": "find_tools: what is the weather in Paris?"}]
    finder = {"name": "find_tools", "input_schema": schema("query", query=TEXT)}
    weather = {"name": "get_weather", "input_schema": schema("city", city=TEXT), "defer_loading": True}
    body = {"model": "loopback", "max_tokens": 900, "messages": messages, "tools": [finder, weather]}

    def block() -> Any:
        (one,) = json.loads(answer_request(find_codec("anthropic"), encode(body), "loopback", False, NOW).pieces[0])[
            "content"
        ]
        return one

    search = block()
    assert search["name"] == "find_tools"
    found = {"type": "tool_reference", "tool_name": "get_weather"}
    messages.append({"role": "assistant", "content": [search]})
    messages.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": search["id"], "content": [found]}]}
    )
    assert (block()["name"], block()["input"]) == PARIS[0]


def test_the_tools_that_have_no_schema_on_the_wire() -> None:
    body = {"model": "loopback", "input": "run `ls -la` in a shell", "tools": [{"type": "local_shell"}]}
    whole = answer_request(find_codec("openai-responses"), json.dumps(body).encode(), "loopback", False, NOW)
    (item,) = json.loads(whole.pieces[0])["output"]
    assert item["type"] == "local_shell_call"
    assert item["action"]["command"] == ["ls", "-la"]
    body = {
        "model": "loopback",
        "max_tokens": 900,
        "messages": [{"role": "user", "content": "run `ls -la` in bash"}],
        "tools": [{"type": "bash_20250124", "name": "bash"}],
    }
    whole = answer_request(find_codec("anthropic"), json.dumps(body).encode(), "loopback", False, NOW)
    (block,) = json.loads(whole.pieces[0])["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "bash", {"command": "ls -la"})


def test_arguments_are_valid_in_every_protocol() -> None:
    wanted = schema(
        "to",
        "items",
        to={"type": "string", "format": "email"},
        items={"type": "array", "minItems": 1, "items": schema("sku", "count", sku=TEXT, count={"type": "integer"})},
        note=TEXT,
    )
    tool = Tool("place_order", "Orders things", wanted)
    for name in NAMES:
        (call,) = calls_of(
            read_both_forms(name, build_request("Place an order of 3 pieces for a.b@example.org", tools=(tool,)))
        )
        Draft202012Validator(wanted).validate(json.loads(call.arguments))
        assert json.loads(call.arguments)["to"] == "a.b@example.org"


@needs_corpus
@everywhere
def test_every_recorded_request_is_answered(name: str) -> None:
    place = find_codec(name)
    requests = [one for one in corpus() if one.protocol == name and isinstance(one.request, dict) and one.status < 400]
    assert len(requests) > 20 or name in ("unified", "bedrock-converse")
    for one in requests:
        for stream in (False, True):
            given = answer_request(place, encode(one.request), one.model or "loopback", stream, NOW)
            assert given.status == 200, one.name
            if not stream:
                assert place.read_response(json.loads(given.pieces[0])).choices, one.name
                continue
            reader, checker = place.make_stream_reader(), StreamChecker()
            events = [event for piece in given.pieces for event in reader.feed(piece)] + reader.close()
            assert not [fault for event in events if (fault := checker.check_event(event))], one.name
            assert fold(events).failure is None, one.name
