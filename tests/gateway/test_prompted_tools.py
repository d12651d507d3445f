"""Models and servers without tools: they get the tools in the prompt, from the beginning (`tools = "prompted"`) or after
they have refused them by a known error, and their calls in text come back as calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.case_gateway import Object, differences
from gateway.conftest import provider_name, serve_config
from gateway.provider import PROTOCOLS, refusal
from toolwire_conformance.targets import Route
from toolwire_conformance.transports import HttpTransport, ProviderServer
from waits import PATIENCE

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MODEL = "some-model"
OLLAMA = "registry.ollama.ai/library/gemma3:latest does not support tools"
VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
CALL = 'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
DECLARED = {"$within": "You are provided with function signatures within <tools></tools> XML tags"}
NATIVE: Object = {"tools": "$any"}
PROMPTED: dict[str, Object] = {
    "openai-chat": {"tools": "$absent", "messages": [{"role": "system", "content": DECLARED}, "$any"]},
    "openai-responses": {"tools": "$absent", "instructions": DECLARED},
    "anthropic": {"tools": "$absent", "system": DECLARED},
    "gemini": {"tools": "$absent", "systemInstruction": DECLARED},
}


def text_answer(protocol: str, text: str) -> Object:
    message = {"type": "message", "role": "assistant", "status": "completed", "id": "msg_1"}
    bodies: dict[str, Object] = {
        "openai-chat": {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]},
        "openai-responses": {
            "output": [{**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}]
        },
        "anthropic": {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"},
        "gemini": {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]},
    }
    return bodies[protocol]


SEES: dict[str, Object] = {
    "openai-chat": {
        "choices": [
            {
                "message": {
                    "content": "I look.\n",
                    "tool_calls": [
                        {"function": {"name": "get_weather", "arguments": {"$json": {"$is": {"city": "Paris"}}}}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "anthropic": {
        "content": [
            {"type": "text", "text": "I look.\n"},
            {"type": "tool_use", "name": "get_weather", "input": {"$is": {"city": "Paris"}}},
        ],
        "stop_reason": "tool_use",
    },
}


def client(protocol: str, stream: bool, **more: object) -> Object:
    request: Object = {"model": MODEL, "messages": [{"role": "user", "content": "Weather?"}]}
    if protocol == "anthropic":
        request |= {"max_tokens": 100, "tools": [{"name": "get_weather", "input_schema": CITY}]}
    else:
        request |= {"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]}
    return {"protocol": protocol, "stream": stream, "request": request | more}


def refusal_exchange(protocol: str, words: str) -> Object:
    kind = "INVALID_ARGUMENT" if protocol == "gemini" else "invalid_request_error"
    return {"expect": NATIVE, "status": 400, "body": refusal(protocol, 400, kind, None, words)}


@pytest.fixture(params=["auto"])
def through(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HttpTransport]:
    """A gateway of its own for every test: what one has learnt would be known to the next."""
    stage = ProviderServer(drain_timeout=PATIENCE)
    lines = ['[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"\n[store]\nurl = "none"']
    for protocol in PROTOCOLS:
        lines.append(
            f'[providers.p-{provider_name(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{stage.origin}"'
        )
        lines.append(f'tools = "{request.param}"')
        for mode in ("native", "prompted"):
            lines.append(
                f'[models."{mode}-{provider_name(protocol)}"]\nprovider = "p-{provider_name(protocol)}"\nmodel = "{MODEL}"'
            )
            lines.append(f'tools = "{mode}"')
    file = tmp_path / "toolwire.toml"
    file.write_text("\n".join(lines))
    with serve_config(file) as url:
        yield HttpTransport(url, stage, find_route, timeout=PATIENCE, frame_timeout=PATIENCE)
    stage.close()


def find_route(_client: str, provider: str, model: str) -> Route:
    return Route(model if model.startswith(("native-", "prompted-")) else f"p-{provider_name(provider)}/{model}")


streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
pairs = pytest.mark.parametrize(("source", "target"), [(one, two) for one in SEES for two in PROTOCOLS])


@streamed
@pairs
def test_after_a_refusal_the_tools_are_in_the_prompt(
    source: str, target: str, stream: bool, through: HttpTransport
) -> None:
    prompted = {"expect": PROMPTED[target], "body": text_answer(target, CALL)}
    sees = {"body": SEES[source]}
    assert (
        differences(client(source, stream), target, [refusal_exchange(target, OLLAMA), prompted], sees, through) == []
    )
    assert differences(client(source, stream), target, [prompted], sees, through) == []  # it is known from then on


@pytest.mark.parametrize("through", ["prompted"], indirect=True)
@streamed
@pairs
def test_a_provider_without_tools(source: str, target: str, stream: bool, through: HttpTransport) -> None:
    prompted = {"expect": PROMPTED[target], "body": text_answer(target, CALL)}
    assert differences(client(source, stream), target, [prompted], {"body": SEES[source]}, through) == []


@pytest.mark.parametrize("through", ["native"], indirect=True)
def test_a_provider_with_native_tools_only(through: HttpTransport) -> None:
    sees = {"status": 400, "body": {"error": {"message": {"$contains": VLLM}}}}
    found = differences(
        client("anthropic", False), "openai-chat", [refusal_exchange("openai-chat", VLLM)], sees, through
    )
    assert found == []


@pytest.mark.parametrize(("mode", "expected"), [("native", NATIVE), ("prompted", PROMPTED["openai-chat"])])
def test_a_model_of_its_own_mode(mode: str, expected: Object, through: HttpTransport) -> None:
    exchange = {"expect": expected, "body": text_answer("openai-chat", "Hello.")}
    asked = client("anthropic", False, model=f"{mode}-chat")
    assert differences(asked, "openai-chat", [exchange], {"status": 200}, through) == []


def test_not_a_third_time(through: HttpTransport) -> None:
    again = refusal_exchange("openai-chat", VLLM) | {"expect": PROMPTED["openai-chat"]}
    exchanges = [refusal_exchange("openai-chat", VLLM), again]
    assert differences(client("anthropic", False), "openai-chat", exchanges, {"status": 400}, through) == []


def test_other_errors_are_told_at_once(through: HttpTransport) -> None:
    exchanges = [refusal_exchange("openai-chat", "tools.0.name is too long")]
    assert differences(client("anthropic", False), "openai-chat", exchanges, {"status": 400}, through) == []


def test_the_refusal_of_one_model_is_not_that_of_another(through: HttpTransport) -> None:
    prompted = {"expect": PROMPTED["openai-chat"], "body": text_answer("openai-chat", CALL)}
    exchanges = [refusal_exchange("openai-chat", OLLAMA), prompted]
    assert differences(client("openai-chat", False), "openai-chat", exchanges, {"status": 200}, through) == []
    native = {"expect": NATIVE, "body": text_answer("openai-chat", "Hello.")}
    other = client("openai-chat", False, model="another-model")
    assert differences(other, "openai-chat", [native], {"status": 200}, through) == []


def test_a_request_without_tools_passes_through(through: HttpTransport) -> None:
    prompted = {"expect": PROMPTED["openai-chat"], "body": text_answer("openai-chat", CALL)}
    exchanges = [refusal_exchange("openai-chat", OLLAMA), prompted]
    assert differences(client("openai-chat", False), "openai-chat", exchanges, {"status": 200}, through) == []
    plain = client("openai-chat", False)
    del plain["request"]["tools"]
    expected = {"messages": {"$is": plain["request"]["messages"]}, "stop": "$absent"}
    exchange = {"expect": expected, "body": text_answer("openai-chat", CALL)}
    sees = {"body": {"choices": [{"message": {"content": CALL}}]}}
    assert differences(plain, "openai-chat", [exchange], sees, through) == []


def test_the_losses_say_so(through: HttpTransport) -> None:
    prompted = {"expect": PROMPTED["openai-chat"], "body": text_answer("openai-chat", CALL)}
    sees = {"headers": {"x-toolwire-losses": {"$contains": "tools-prompted"}}}
    exchanges = [refusal_exchange("openai-chat", OLLAMA), prompted]
    assert differences(client("openai-chat", False), "openai-chat", exchanges, sees, through) == []
