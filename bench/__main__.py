"""How long does a translation take, here and in two other libraries? Bytes in, bytes out, one core, CPU time.

The others take and give dicts, so theirs includes the standard `json`, which is what a caller of theirs would use. What
comes out is not the same: compare the price, not the goods. `make bench ARGS=small` chooses cases by words in their names.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# litellm would fetch a table of prices from the network when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import llm_rosetta
from litellm.llms.anthropic.chat.transformation import AnthropicConfig
from litellm.llms.anthropic.pass_through.adapters.transformation import LiteLLMAnthropicMessagesAdapter

from toolwire import Stream, translate

EXAMPLE = json.loads((Path(__file__).parents[1] / "docs" / "examples" / "request.json").read_text())
LARGE = 250_000
ROUNDS, SECONDS = 7, 0.3

Work = Callable[[bytes], Any]


class Case(NamedTuple):
    name: str
    data: bytes
    ways: dict[str, Work]


def large() -> dict[str, Any]:
    """The example as an agent's session: forty tools, and calls with long results until it weighs enough."""
    first, call, result = EXAMPLE["messages"]
    tools = [{**tool, "name": f"{tool['name']}_{number}"} for tool in EXAMPLE["tools"] for number in range(40)]
    turns = [first]
    size = 0
    while size < LARGE:
        text, use = call["content"]
        output = result["content"][0]
        id = f"toolu_{len(turns):04}"
        turns.append({**call, "content": [text, {**use, "id": id, "name": "get_weather_0"}]})
        lines = "".join(f"{number:>6}\tline of a file that the agent has read\n" for number in range(60))
        turns.append({**result, "content": [{**output, "tool_use_id": id, "content": lines}]})
        size += len(json.dumps(turns[-2:]))
    return {**EXAMPLE, "messages": turns, "tools": tools}


def ours(source: str, target: str) -> Work:
    return lambda data: translate(data, "request", source=source, target=target).body


def rosetta(source: str, target: str) -> Work:
    return lambda data: json.dumps(llm_rosetta.convert(json.loads(data), target, source)).encode()


def litellm_from_messages(data: bytes) -> bytes:
    body, _names = LiteLLMAnthropicMessagesAdapter().translate_anthropic_to_openai(json.loads(data))
    return json.dumps(body).encode()


def litellm_to_messages(data: bytes) -> bytes:
    body = json.loads(data)
    model, messages = body.pop("model"), body.pop("messages")
    config = AnthropicConfig()
    options = config.map_openai_params(body, {}, model, drop_params=False)
    return json.dumps(config.transform_request(model, messages, options, {}, {})).encode()


def stream_of(deltas: int) -> bytes:
    """A provider's stream: one call whose arguments come in many pieces."""
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    block = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {}}
    frames = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in ('{"text":"', *["some words "] * deltas, '"}')
        ],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode() for frame in frames)


def our_stream(target: str) -> Work:
    def run(data: bytes) -> bytes:
        stream = Stream(source="anthropic", target=target)
        pieces = [stream.feed(data[start : start + 1024]) for start in range(0, len(data), 1024)]
        return b"".join([*pieces, stream.close()])

    return run


def cases() -> Iterator[Case]:
    for size, body in (("small", EXAMPLE), ("large", large())):
        messages = json.dumps(body).encode()
        chat = translate(messages, "request", source="anthropic", target="openai-chat").body
        yield Case(
            f"{size} request, anthropic to openai-chat",
            messages,
            {
                "toolwire": ours("anthropic", "openai-chat"),
                "llm-rosetta": rosetta("anthropic", "openai_chat"),
                "litellm": litellm_from_messages,
            },
        )
        yield Case(
            f"{size} request, openai-chat to anthropic",
            chat,
            {
                "toolwire": ours("openai-chat", "anthropic"),
                "llm-rosetta": rosetta("openai_chat", "anthropic"),
                "litellm": litellm_to_messages,
            },
        )
        yield Case(
            f"{size} request, anthropic to gemini",
            messages,
            {"toolwire": ours("anthropic", "gemini"), "llm-rosetta": rosetta("anthropic", "google")},
        )
    for target in ("openai-chat", "openai-responses", "gemini", "unified"):
        yield Case(f"stream of 1,000 deltas, anthropic to {target}", stream_of(1000), {"toolwire": our_stream(target)})


def measured(work: Work, data: bytes) -> float:
    """Microseconds of CPU for one piece of work: the median of a few rounds."""
    work(data)
    start = time.process_time()
    work(data)
    times = max(1, int(SECONDS / max(time.process_time() - start, 1e-6)))
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(times):
            work(data)
        rounds.append((time.process_time() - start) / times)
    return statistics.median(rounds) * 1e6


def main(words: list[str]) -> None:
    litellm.suppress_debug_info = True
    print(f"{'':48}{'bytes':>9}{'library':>14}{'µs':>12}{'times ours':>12}")
    for case in cases():
        if not all(word in case.name for word in words):
            continue
        base = 0.0
        for library, work in case.ways.items():
            cost = measured(work, case.data)
            base = base or cost
            name, size = (case.name, f"{len(case.data):,}") if library == "toolwire" else ("", "")
            print(f"{name:48}{size:>9}{library:>14}{cost:>12,.0f}{cost / base:>12.1f}", flush=True)


main(sys.argv[1:])
