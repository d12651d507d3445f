"""The clients of the player: they add up good streams without a word, and stumble where the real ones do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolwire.conformance.peers import PEERS
from toolwire.conformance.peers.peer import read_frames, write_frame

SAMPLES = Path(__file__).parents[1] / "samples"

STUMBLING = {
    "openai-responses-parallel_calls_interleaved": "is open",
    "gemini-error_midstream_bare_json": "no data",
    "gemini-interactions_function_call": "event line",
}
FILES = [(name, file) for name in PEERS for file in sorted((SAMPLES / name.replace("-", "_")).glob("*.sse"))]


@pytest.mark.parametrize(("name", "file"), FILES, ids=[f"{name}-{file.stem}" for name, file in FILES])
def test_samples(name: str, file: Path) -> None:
    """What the official SDKs take is taken here, but for the few that a real agent would stumble over."""
    folded = PEERS[name].fold_stream(read_frames(file.read_text("utf-8")))
    piece = STUMBLING.get(f"{name}-{file.stem}")
    if piece is None:
        assert folded.violations == ()
    else:
        assert any(piece in line for line in folded.violations)


WHOLE: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "choices": [
            {
                "message": {
                    "content": "Let me look.",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                        {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "openai-responses": {
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Plan."}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "raw"},
        ]
    },
    "anthropic": {
        "content": [
            {"type": "thinking", "thinking": "Plan.", "signature": "c2ln"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {}},
        ],
        "stop_reason": "tool_use",
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Plan.", "thought": True},
                        {"text": "Let me look."},
                        {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
                    ]
                },
                "finishReason": "STOP",
            }
        ]
    },
}


@pytest.mark.parametrize("name", PEERS)
def test_a_whole_answer_and_its_stream_are_the_same(name: str) -> None:
    dialect = PEERS[name]
    whole = dialect.complete_answer(WHOLE[name], "model")
    folded = dialect.fold_stream(read_frames("".join(dialect.write_stream(whole))))
    assert folded.violations == ()
    assert folded.body == whole
    assert dialect.history_turns(folded.body) == dialect.history_turns(whole)


def frames(name: str, *changes: Any) -> str:
    """The stream of the whole answer with some frames replaced (or left out, by None)."""
    dialect = PEERS[name]
    given = dialect.write_stream(dialect.complete_answer(WHOLE[name], "model"))
    for index, text in changes:
        given[index] = text or ""
    return "".join(given)


BROKEN: list[tuple[str, str, str]] = [
    ("anthropic", frames("anthropic", (0, None)), "before message_start"),
    ("anthropic", frames("anthropic", (-1, None)), "without message_stop"),
    ("anthropic", frames("anthropic", (3, None)) + "data: [DONE]\n\n", "without its event line"),
    ("anthropic", frames("anthropic", (1, None)), "open is none"),
    ("openai-chat", frames("openai-chat", (-3, None)), "no finish_reason"),
    ("openai-responses", frames("openai-responses", (0, None)), "not response.created"),
    ("openai-responses", frames("openai-responses", (-1, None)), "ended without"),
    ("openai-responses", frames("openai-responses", (-2, None)), "never done"),
    (
        "openai-responses",
        write_frame("error", {"type": "error", "message": "Flat, so no SDK raises it."}),
        "ended with",
    ),
    ("gemini", frames("gemini", (-1, None)), "no finishReason"),
    ("gemini", frames("gemini") + "data: [DONE]\n\n", "no JSON object"),
    ("gemini", ": hello\n\n" + frames("gemini"), "no data"),
    ("gemini", write_frame("message", json.loads(frames("gemini").split("\n")[0][6:])), "event line"),
]


@pytest.mark.parametrize(("name", "text", "piece"), BROKEN, ids=[f"{row[0]}-{row[2]}" for row in BROKEN])
def test_stumbles(name: str, text: str, piece: str) -> None:
    said = PEERS[name].fold_stream(read_frames(text)).violations
    assert any(piece in line for line in said), said


ERROR = {"type": "server_error", "code": None, "message": "Broken.", "param": None}
UNUSUAL: list[tuple[str, str, str]] = [
    ("openai-chat", frames("openai-chat", (-1, None)), "without [DONE]"),
    ("openai-responses", frames("openai-responses") + "data: [DONE]\n\n", "no event: [DONE]"),
    ("openai-responses", re.sub("(?m)^event: .*\n", "", frames("openai-responses")), "event line None"),
    ("openai-responses", re.sub('"sequence_number":', '"number":', frames("openai-responses")), "sequence_number None"),
    ("openai-responses", write_frame("error", {"type": "error", "sequence_number": 0, "error": ERROR}), "is error"),
]


@pytest.mark.parametrize(("name", "text", "piece"), UNUSUAL, ids=[f"{row[0]}-{row[2]}" for row in UNUSUAL])
def test_formalities(name: str, text: str, piece: str) -> None:
    """Codex and the SDKs of OpenAI and Vercel read these streams; a gateway is not to blame, but the library is."""
    folded = PEERS[name].fold_stream(read_frames(text))
    assert folded.violations == folded.minor_violations != ()
    assert all(piece in line for line in folded.minor_violations)
