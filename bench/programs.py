"""One small tool call inside of a program: the SDK alone, the SDK with `toolwire.http_client`, and LiteLLM's function.

All three ask the same provider on loopback, which answers with the same call in the protocol that it is asked in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench import bodies, clock
from bench.gateway import canned
from bench.gateway.measure import serve_provider
from toolwire import http_client

CHAT, ANTHROPIC = "openai-chat", "anthropic"


def measure_programs(seconds: float) -> dict[str, float]:
    """Microseconds of a request by each way. Its answer must have the call in it."""
    import openai

    conversation = bodies.conversation(*bodies.SIZES["small"])
    asked: dict[str, Any] = {name: conversation[name] for name in ("messages", "tools")}
    with ExitStack() as stack:
        url = f"http://127.0.0.1:{serve_provider(stack)}"
        tables = {"providers": {"canned": {"protocols": [ANTHROPIC], "base_url": url, "api_key": "any"}}}
        alone = stack.enter_context(openai.OpenAI(api_key="any", base_url=f"{url}/v1"))
        inside = stack.enter_context(openai.OpenAI(api_key="any", http_client=http_client(tables)))
        ways: dict[str, Callable[[], Any]] = {
            "sdk": lambda: alone.chat.completions.create(model=canned.MODELS[CHAT], **asked),
            "toolwire": lambda: inside.chat.completions.create(model=f"canned/{canned.MODELS[ANTHROPIC]}", **asked),
        }
        try:
            from litellm import completion
        except ImportError:
            pass
        else:
            model = f"anthropic/{canned.MODELS[ANTHROPIC]}"
            ways["litellm"] = lambda: completion(model=model, api_key="any", api_base=url, **asked)
        for name, ask in ways.items():
            (call,) = ask().choices[0].message.tool_calls
            assert call.function.name == canned.TOOL, name
        return clock.measure_microseconds(ways, seconds)
