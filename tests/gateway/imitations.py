"""Small servers on loopback that imitate Ollama, vLLM, LM Studio, OpenRouter, Azure and others: where their endpoints
are, which key they want in which header, and what they refuse. They answer the first turn with a call of the declared
tool, and the turn with its result with a text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from botocore.credentials import Credentials

from gateway.fake_clouds import Seen, is_signed

CALLED = {"city": "Paris"}
DONE = "It is 15 degrees in Paris."


class Imitation(NamedTuple):
    """What a server is like."""

    paths: dict[str, str]
    """Its endpoints, and the protocol of each."""
    models: tuple[str, ...]
    key: tuple[str, str] | None = None
    """The header of the key, and its value; None if it has no key."""
    refused_roles: tuple[str, ...] = ()
    system_first: bool = False
    signed_for: tuple[Credentials, str] | None = None
    """The keys and the region of AWS that every request must be signed with."""


CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic", "openai-responses", "gemini"
CONVERSE = "bedrock-converse"
OLLAMA = Imitation({"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}, ("qwen3-coder:30b",), None, ("developer",))
VLLM = Imitation(
    {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES},
    ("Qwen/Qwen3-32B", "Qwen/Qwen3-8B"),
    ("authorization", "Bearer VLLM_API_KEY"),
    ("developer",),
    system_first=True,
)
LM_STUDIO = Imitation(OLLAMA.paths, ("qwen/qwen3-coder-30b",), None, ("developer",))
OPENROUTER = Imitation(
    {"/api/v1/chat/completions": CHAT, "/api/v1/messages": MESSAGES},
    ("deepseek/deepseek-chat", "anthropic/claude-sonnet-5"),
    ("authorization", "Bearer OPENROUTER_API_KEY"),
)
AZURE = Imitation(
    {"/openai/v1/chat/completions": CHAT, "/openai/v1/responses": RESPONSES},
    ("my-deployment",),
    ("api-key", "AZURE_OPENAI_API_KEY"),
)
AZURE_TOKEN = AZURE._replace(key=("authorization", "Bearer token-of-the-cloud"))
FOUNDRY = Imitation({"/anthropic/v1/messages": MESSAGES}, ("claude-opus-5-5",), ("x-api-key", "AZURE_OPENAI_API_KEY"))
AWS_KEYS = Credentials("AKIDEXAMPLE", "secret-of-the-recipes")
ARN = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Aapplication-inference-profile%2Fabc123"
BEDROCK = Imitation(
    {
        "/anthropic/v1/messages": MESSAGES,
        "/model/eu.anthropic.claude-opus-4-6-v1%3A0/invoke": MESSAGES,
        f"/model/{ARN}/invoke": MESSAGES,
        "/model/amazon.nova-pro-v1%3A0/converse": CONVERSE,
        "/openai/v1/responses": RESPONSES,
        "/openai/v1/chat/completions": CHAT,
    },
    ("anthropic.claude-opus-5-5", "openai.gpt-5.5"),
    signed_for=(AWS_KEYS, "eu-west-1"),
)
BEDROCK_KEY = BEDROCK._replace(signed_for=None, key=("authorization", "Bearer AWS_BEARER_TOKEN_BEDROCK"))
CLAUDE_PATH = "publishers/anthropic/models/claude-opus-5-5:rawPredict"
VERTEX = Imitation(
    {
        f"/v1/projects/my-project/locations/global/{CLAUDE_PATH}": MESSAGES,
        f"/v1/projects/my-project/locations/europe-west1/{CLAUDE_PATH}": MESSAGES,
    },
    ("claude-opus-5-5",),
    ("authorization", "Bearer token-of-the-cloud"),
)
VERTEX_KEY = Imitation(
    {"/v1beta1/publishers/google/models/gemini-3.8-flash:generateContent": GEMINI},
    ("gemini-3.8-flash",),
    ("x-goog-api-key", "GOOGLE_API_KEY"),
)
ANTHROPIC = Imitation({"/v1/messages": MESSAGES}, ("claude-opus-5-5",), ("x-api-key", "ANTHROPIC_API_KEY"))
DEEPSEEK = Imitation({"/v1/chat/completions": CHAT, "/chat/completions": CHAT}, ("deepseek-chat",), ("authorization", "Bearer DEEPSEEK_API_KEY"), ("developer",))  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    imitation: Imitation
    seen: list[str]
    request_seen: Seen

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        body = json.loads(data)
        self.request_seen = Seen("POST", self.path, {name.lower(): value for name, value in self.headers.items()}, data)
        status, answer = self._answer(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        server = self.imitation
        protocol = server.paths.get(self.path)
        if protocol is None:
            return 404, {"error": {"message": f"no endpoint {self.path}"}}
        if server.signed_for is not None and not is_signed(self.request_seen, *server.signed_for, "bedrock"):
            return 403, {"message": "wrong signature"}
        if server.key is not None and self.headers[server.key[0]] != server.key[1]:
            return 401, {"error": {"message": "wrong key"}}
        if body.setdefault("model", server.models[0]) not in server.models:  # it may be in the path
            return 404, {"error": {"message": f"no model {body['model']}"}}
        roles = [message["role"] for message in body.get("messages", [])]
        if set(roles) & set(server.refused_roles) or (server.system_first and "system" in roles[1:]):
            return 400, {"error": {"message": f"roles {roles}"}}
        self.seen.append(protocol)
        return 200, _WRITERS[protocol](
            body, "15 degrees" in json.dumps(body.get("messages") or body.get("input") or body.get("contents"))
        )

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _chat(body: dict[str, Any], is_done: bool) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps(CALLED)}}
    said = (
        {"role": "assistant", "content": DONE}
        if is_done
        else {"role": "assistant", "content": None, "tool_calls": [call]}
    )
    choice = {"index": 0, "message": said, "finish_reason": "stop" if is_done else "tool_calls"}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice], "usage": usage}  # fmt: skip


def _messages(body: dict[str, Any], is_done: bool) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": CALLED}
    content = [{"type": "text", "text": DONE}] if is_done else [call]
    reason = "end_turn" if is_done else "tool_use"
    usage = {"input_tokens": 9, "output_tokens": 4}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content, "stop_reason": reason, "stop_sequence": None, "usage": usage}  # fmt: skip


def _responses(body: dict[str, Any], is_done: bool) -> dict[str, Any]:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": json.dumps(CALLED), "status": "completed"}  # fmt: skip
    text = {"type": "output_text", "text": DONE, "annotations": []}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"], "output": [said if is_done else call], "usage": usage}  # fmt: skip


def _gemini(body: dict[str, Any], is_done: bool) -> dict[str, Any]:
    part = {"text": DONE} if is_done else {"functionCall": {"name": "get_weather", "args": CALLED}}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3.8-flash", "responseId": "r1"}


def _converse(body: dict[str, Any], is_done: bool) -> dict[str, Any]:
    call = {"toolUse": {"toolUseId": "tooluse_1", "name": "get_weather", "input": CALLED}}
    message = {"role": "assistant", "content": [{"text": DONE} if is_done else call]}
    usage = {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}
    reason = "end_turn" if is_done else "tool_use"
    return {"output": {"message": message}, "stopReason": reason, "usage": usage, "metrics": {"latencyMs": 1}}


_WRITERS = {CONVERSE: _converse, CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses, GEMINI: _gemini}


@contextmanager
def serve_imitation(server: Imitation) -> Iterator[tuple[str, list[str]]]:
    """The address of a running imitation, and the protocols of the requests that it answered."""

    class Handler(_Handler):
        imitation = server
        seen: list[str] = []  # noqa: RUF012  one list for each class

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", Handler.seen
    finally:
        running.shutdown()
        thread.join()
        running.server_close()
