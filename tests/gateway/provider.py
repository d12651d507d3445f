"""A provider on loopback that plays by a script: all four protocols, told apart by path, as strict as the real ones.

A talk is found by its mark, `[[t1]]`, which stands in the user's text: so any number of talks may go on at once, through
any client and any gateway. What the real service would refuse with 400 is refused with 400, in its own words.
"""

from __future__ import annotations

import base64
import json
import re
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Literal

from gateway.declared_tools import Called, NotOffered, Unreadable, Use, write_call
from gateway.provider_seals import SealChecker
from toolwire_conformance.peers import PEERS, find_violations
from toolwire_conformance.peers.peer import encode_json, write_frame

PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "gemini")
KEYS = {protocol: f"key-of-the-{protocol}-account" for protocol in PROTOCOLS}
SECOND_KEYS = {protocol: f"key-of-another-{protocol}-account" for protocol in PROTOCOLS}
SEALS = {
    "openai-chat": "",
    "openai-responses": "gAAAAABpsealed-_reasoning==",
    "anthropic": "ErUBCkYIARgCIkD/sealed+thinking==",
    "gemini": base64.b64encode(b"\x12\x94a sealed \xff thought").decode(),
}
"""What only its maker can read, and wants back byte for byte."""
WAIT = 7
"""Seconds that a client that asks too often is told to wait."""


@dataclass(frozen=True)
class ScriptedAnswer:
    """What the model says, in no protocol yet. Calls are a name (or the description of a tool) and its arguments; or a
    `Use`, which is looked up among the declared tools."""

    text: str = ""
    calls: tuple[tuple[str, Any] | Use | Called, ...] = ()
    thinking: str = ""
    again: bool = False
    """Does it think more than once: in words that nobody may read, and again before it calls?"""
    cut: bool = False
    """Does it end where no more tokens were allowed?"""


class Hold:
    """A place where the provider stops until it is let go, or until its client has left."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.gone = threading.Event()
        self._theirs, self._ours = socket.socketpair()

    def release(self) -> None:
        self._ours.sendall(b"!")

    def wait(self, client: socket.socket) -> None:
        self.reached.set()
        ready, _, _ = select.select([client, self._theirs], [], [])
        if client in ready and self._theirs not in ready and not client.recv(1, socket.MSG_PEEK):
            self.gone.set()

    def close(self) -> None:
        self._theirs.close()
        self._ours.close()


@dataclass(frozen=True)
class Step:
    """One answer of a script."""

    says: ScriptedAnswer | Callable[[Received], ScriptedAnswer] = ScriptedAnswer()
    """What is said, or what makes it of the request."""
    fails: str = ""
    """A kind of `FAULTS` instead of an answer."""
    breaks: Literal["", "error", "cut", "ended"] = ""
    """In the middle of the answer: an error frame (of the kind that `fails` says), the connection closed, or the body
    ended as if that were all."""
    wait: int = WAIT
    """How long a client that asks too often is told to wait."""
    whole: bool = False
    """Is the answer whole though a stream was asked for, as some servers do?"""
    hold: Hold | None = None
    after: int = 0
    """How many frames go out before the hold; with none, not even the head does."""


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    protocol: str
    model: str
    stream: bool
    headers: Mapping[str, str]
    body: dict[str, Any]
    raw: str

    @property
    def account(self) -> str:
        """The key that was shown."""
        name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(self.protocol, "authorization")
        return self.headers.get(name, "").removeprefix("Bearer ")

    @property
    def text(self) -> str:
        """The body with every character as itself, however the client spelled it."""
        return encode_json(self.body)


@dataclass
class Script:
    """One conversation: its mark for the user's text, its steps, and what was asked so far."""

    mark: str
    steps: list[Step]
    asked: list[Received] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    seal_checker: SealChecker | None = None
    """Signs every answer, and looks whether what comes back is unaltered and its maker's."""
    aside: Callable[[Received], ScriptedAnswer | None] = lambda asked: None
    """Answers what an agent asks beside the conversation: a title, a route, a summary."""
    asides: list[Received] = field(default_factory=list)
    counted: list[Received] = field(default_factory=list)
    """What it was asked to count, which is no part of the conversation."""
    limit: int = 40
    looped: Callable[[], None] = lambda: None
    """Called when more was asked than any sane client would."""


# --- answers, in each protocol ---------------------------------------------------------------------------------------


def _chat(says: ScriptedAnswer, ids: list[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"content": says.text or None}
    if says.thinking:
        message["reasoning_content"] = says.thinking
    if says.calls:
        message["tool_calls"] = [
            {"id": f"call.{id}:0", "type": "custom", "custom": {"name": name, "input": arguments}}
            if isinstance(arguments, str)
            else {
                "id": f"call.{id}:0",
                "type": "function",
                "function": {"name": name, "arguments": _arguments_text(arguments)},
            }
            for id, (name, arguments) in zip(ids, says.calls, strict=True)
        ]
    return {"choices": [{"message": message, "finish_reason": _finish_reason(says, "length", "tool_calls", "stop")}]}


def _arguments_text(arguments: Any) -> str:
    return arguments.text if isinstance(arguments, Unreadable) else encode_json(arguments)


def _finish_reason(says: ScriptedAnswer, cut: str, called: str, plain: str) -> str:
    return cut if says.cut else called if says.calls else plain


def _responses(says: ScriptedAnswer, ids: list[str]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if says.thinking:
        thought = [{"type": "summary_text", "text": says.thinking}]
        item = {"id": f"rs_{ids[-1]}", "type": "reasoning", "summary": thought}
        output.append({**item, "encrypted_content": SEALS["openai-responses"]})
    if says.text:
        part = {"type": "output_text", "text": says.text, "annotations": [], "logprobs": []}
        message = {"id": f"msg_{ids[-1]}", "type": "message", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [part]})
    if says.again and says.calls:
        again = {"id": f"rs_{ids[-1]}x", "type": "reasoning", "summary": []}
        output.append({**again, "encrypted_content": SEALS["openai-responses"]})
    output += [_item(id, call) for id, call in zip(ids, says.calls, strict=False)]
    why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return {"output": output, **(why if says.cut else {})}


def _item(id: str, call: tuple[str, Any] | Called) -> dict[str, Any]:
    """A call as an item: its kind, and its namespace in a field of its own, are those of the declaration."""
    same = {"status": "completed", "call_id": f"call_{id}"}
    if isinstance(call, tuple):
        return {"id": f"fc_{id}", "type": "function_call", **same, "name": call[0], "arguments": encode_json(call[1])}
    tool, arguments = call.tool, call.arguments
    named = {"name": tool.name, **({"namespace": tool.namespace} if tool.namespace else {})}
    if tool.kind == "custom":
        return {"id": f"ctc_{id}", "type": "custom_tool_call", **same, **named, "input": arguments}
    if tool.kind == "tool_search":
        return {"id": f"tsc_{id}", "type": "tool_search_call", **same, "execution": "client", "arguments": arguments}
    return {"id": f"fc_{id}", "type": "function_call", **same, **named, "arguments": _arguments_text(arguments)}


def _messages(says: ScriptedAnswer, ids: list[str]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if says.thinking:
        content.append({"type": "thinking", "thinking": says.thinking, "signature": SEALS["anthropic"]})
    if says.again:
        content.append({"type": "redacted_thinking", "data": SEALS["anthropic"]})
    if says.text:
        content.append({"type": "text", "text": says.text})
    if says.again and says.calls:
        content.append({"type": "thinking", "thinking": "", "signature": SEALS["anthropic"]})
    for id, (name, arguments) in zip(ids, says.calls, strict=False):
        given = {} if isinstance(arguments, Unreadable) else arguments
        content.append({"type": "tool_use", "id": f"toolu_{id}", "name": name, "input": given})
    return {"content": content, "stop_reason": _finish_reason(says, "max_tokens", "tool_use", "end_turn")}


def _generate(says: ScriptedAnswer, ids: list[str]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if says.thinking:
        parts.append({"text": says.thinking, "thought": True})
    if says.text:
        parts.append({"text": says.text, **({"thoughtSignature": SEALS["gemini"]} if says.again else {})})
    for number, (id, (name, arguments)) in enumerate(zip(ids, says.calls, strict=False)):
        sealed = {"thoughtSignature": SEALS["gemini"]} if number == 0 else {}
        parts.append({"functionCall": {"id": id, "name": name, "args": arguments}, **sealed})
    return {
        "candidates": [
            {"content": {"parts": parts}, "finishReason": _finish_reason(says, "MAX_TOKENS", "STOP", "STOP")}
        ]
    }


ANSWERS = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _messages, "gemini": _generate}


# --- refusals, in each protocol --------------------------------------------------------------------------------------

RPC = "type.googleapis.com/google.rpc."
RATE = "Too many requests for this account."
BUSY = "The servers are busy."
FAILED = "The server had an error."
BAD_KEY = "That is no key of this service."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
FAULTS: dict[str, dict[str, tuple[int, str, str | None, str]]] = {
    "bad": {
        "openai-chat": (400, "invalid_request_error", None, "That cannot be done."),
        "openai-responses": (400, "invalid_request_error", None, "That cannot be done."),
        "anthropic": (400, "invalid_request_error", None, "That cannot be done."),
        "gemini": (400, "INVALID_ARGUMENT", None, "That cannot be done."),
    },
    "rate": {
        "openai-chat": (429, "requests", "rate_limit_exceeded", RATE),
        "openai-responses": (429, "requests", "rate_limit_exceeded", RATE),
        "anthropic": (429, "rate_limit_error", None, RATE),
        "gemini": (429, "RESOURCE_EXHAUSTED", None, RATE),
    },
    "busy": {
        "openai-chat": (503, "service_unavailable_error", "server_is_overloaded", BUSY),
        "openai-responses": (503, "service_unavailable_error", "server_is_overloaded", BUSY),
        "anthropic": (529, "overloaded_error", None, BUSY),
        "gemini": (503, "UNAVAILABLE", None, BUSY),
    },
    "error": {
        "openai-chat": (500, "server_error", None, FAILED),
        "openai-responses": (500, "server_error", None, FAILED),
        "anthropic": (500, "api_error", None, FAILED),
        "gemini": (500, "INTERNAL", None, FAILED),
    },
    "key": {
        "openai-chat": (401, "invalid_request_error", "invalid_api_key", BAD_KEY),
        "openai-responses": (401, "invalid_request_error", "invalid_api_key", BAD_KEY),
        "anthropic": (401, "authentication_error", None, BAD_KEY),
        "gemini": (401, "UNAUTHENTICATED", None, BAD_KEY),
    },
    "quota": {
        "openai-chat": (429, "insufficient_quota", "insufficient_quota", QUOTA),
        "openai-responses": (429, "insufficient_quota", "insufficient_quota", QUOTA),
        "anthropic": (402, "billing_error", None, QUOTA),
        "gemini": (429, "RESOURCE_EXHAUSTED", None, QUOTA),
    },
    "missing": {
        "openai-chat": (404, "invalid_request_error", "model_not_found", "There is no such model."),
        "openai-responses": (404, "invalid_request_error", "model_not_found", "There is no such model."),
        "anthropic": (404, "not_found_error", None, "There is no such model."),
        "gemini": (404, "NOT_FOUND", None, "There is no such model."),
    },
    "context": {
        "openai-chat": (
            400, "invalid_request_error", "context_length_exceeded",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        ),
        "openai-responses": (
            400, "invalid_request_error", "context_length_exceeded",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
        ),
        "anthropic": (400, "invalid_request_error", None, "prompt is too long: 210000 tokens > 200000 maximum"),
        "gemini": (
            400, "INVALID_ARGUMENT", None,
            "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        ),
    },
}  # fmt: skip
"""Status, type, code and message."""


def refusal(protocol: str, status: int, kind: str, code: str | None, message: str, wait: int = WAIT) -> dict[str, Any]:
    if protocol == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CScripted"}
    if protocol == "gemini":
        details: list[dict[str, Any]] = [{"@type": f"{RPC}RetryInfo", "retryDelay": f"{wait}s"}]
        if message == QUOTA:
            spent = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "250"}
            details = [{"@type": f"{RPC}QuotaFailure", "violations": [spent]}]
        return {
            "error": {
                "code": status,
                "message": message,
                "status": kind,
                **({"details": details} if status == 429 else {}),
            }
        }
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


REFUSED = {
    400: {"gemini": "INVALID_ARGUMENT"},
    401: {"anthropic": "authentication_error", "gemini": "UNAUTHENTICATED"},
}


def _break_body(protocol: str, model: str, number: int, step: Step) -> str:
    """The frame that says that the stream failed."""
    status, kind, code, message = FAULTS[step.fails or "busy"][protocol]
    body = refusal(protocol, status, kind, code, message, step.wait)
    if protocol == "openai-responses":
        if step.fails == "rate":
            message = f"{message} Please try again in {step.wait}s."
        code = (step.fails and code) or "server_error"
        failed = {"status": "failed", "error": {"code": code, "message": message}, "usage": None}
        response = PEERS[protocol].complete_answer(failed, model)
        return write_frame(
            "response.failed", {"type": "response.failed", "sequence_number": number, "response": response}
        )
    return write_frame("error" if protocol == "anthropic" else None, body)


# --- the server ------------------------------------------------------------------------------------------------------

PATHS = {"/v1/chat/completions": "openai-chat", "/v1/responses": "openai-responses", "/v1/messages": "anthropic"}
GENERATE = re.compile(r"/v1beta/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)")
COUNTS = {"/v1/responses/input_tokens": "openai-responses", "/v1/messages/count_tokens": "anthropic"}
TOKENS = 1234
"""How many tokens everything has."""
LONE_HALVES = "backslashreplace"
"""How half of a surrogate pair is encoded: as the escape (`\\ud83d`) that servers in JavaScript write."""
MARK = re.compile(r"\[\[(t\d+)\]\]")
SAME = {"openai-responses": "resp_conformance", "anthropic": "msg_01Conformance"}
"""The id that all answers of a dialect have. Servers of Chat do so, too; with these services no two have the same."""


class Provider:
    """All talks, and the server that holds them."""

    def __init__(self, first: int = 1) -> None:
        """Talks are numbered from the `first`: the ids of calls are made of these numbers."""
        provider = self

        class Handler(_Handler):
            owner = provider

        self.talks: dict[str, Script] = {}
        self.strangers: Script | None = None
        """What belongs to no talk; refused where there is nobody for it."""
        self._numbers = count(first)
        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def script(self, *steps: Step | ScriptedAnswer, signed: bool = False) -> Script:
        id = f"t{next(self._numbers)}"
        whole = [step if isinstance(step, Step) else Step(step) for step in steps]
        self.talks[id] = Script(f"[[{id}]]", whole, seal_checker=SealChecker() if signed else None)
        return self.talks[id]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no fault of ours; all else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    owner: Provider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        """A greeting."""
        self._send(200, "")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        asked = self._read(raw.decode())
        if asked is None:
            self._send(404, encode_json({"error": {"message": f"no such path: {self.path}"}}))
            return
        wrong = _wrong_head(asked)
        if wrong:
            self._refuse(asked, *wrong)
            return
        found = MARK.search(asked.raw)
        talk = self.owner.talks.get(found[1]) if found else self.owner.strangers
        if talk is None:
            self._refuse(asked, 400, "there is no such talk")
            return
        if self._counts:
            talk.counted.append(asked)
            self._send(200, encode_json({"totalTokens" if asked.protocol == "gemini" else "input_tokens": TOKENS}))
            return
        beside = talk.aside(asked)
        (talk.asked if beside is None else talk.asides).append(asked)
        if len(talk.asked) + len(talk.asides) > talk.limit:
            talk.looped()
        talk.refused += find_violations(asked.protocol, asked.body, asked.model)
        if talk.seal_checker and not talk.refused and beside is None:
            talk.refused += talk.seal_checker.find_problems(asked.account, asked.protocol, asked.model, asked.body)
        if talk.refused:
            self._refuse(asked, 400, talk.refused[0])
        elif beside is not None:
            self._play(talk, asked, Step(beside))
        elif len(talk.asked) > len(talk.steps):
            self._refuse(asked, 400, "the script is at its end")
        else:
            self._play(talk, asked, talk.steps[len(talk.asked) - 1])

    @property
    def _counts(self) -> bool:
        path = self.path.partition("?")[0]
        return path in COUNTS or path.endswith(":countTokens")

    def _read(self, raw: str) -> Received | None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        generate = GENERATE.fullmatch(path)
        body = json.loads(raw)
        if generate:
            stream = generate[2].startswith("stream")
            return (
                Received("gemini", generate[1], stream, headers, body, raw)
                if not stream or "alt=sse" in query
                else None
            )
        protocol = PATHS.get(path) or COUNTS.get(path)
        if protocol is None:
            return None
        return Received(protocol, body.get("model", ""), bool(body.get("stream")), headers, body, raw)

    def _refuse(self, asked: Received, status: int, message: str) -> None:
        kind = REFUSED[status].get(asked.protocol, "invalid_request_error")
        self._send(status, encode_json(refusal(asked.protocol, status, kind, None, message)))

    def _play(self, talk: Script, asked: Received, step: Step) -> None:
        try:
            self._answer(talk, asked, step)
        except NotOffered as error:
            talk.refused.append(str(error))
            self._refuse(asked, 400, str(error))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            if step.hold:
                step.hold.gone.set()

    def _answer(self, talk: Script, asked: Received, step: Step) -> None:
        if step.hold and not step.after:
            step.hold.wait(self.connection)
        if step.fails and not step.breaks:
            status, kind, code, message = FAULTS[step.fails][asked.protocol]
            waits = {"retry-after": str(step.wait)} if step.fails == "rate" and asked.protocol != "gemini" else {}
            self._send(status, encode_json(refusal(asked.protocol, status, kind, code, message, step.wait)), waits)
            return
        number = f"{talk.mark[3:-2]}x{len(talk.asked)}"
        says = step.says(asked) if callable(step.says) else step.says
        ids = [f"{number}x{at}" for at in range(len(says.calls))] or [number]
        dialect = PEERS[asked.protocol]
        calls = _native(asked, says)
        said = ANSWERS[asked.protocol](replace(says, calls=calls), ids)
        body = dialect.complete_answer(_compact_answer(number) if _wants_summary(asked) else said, asked.model)
        if asked.protocol == "openai-responses":
            body |= {"store": asked.body.get("store") is not False, "metadata": asked.body.get("metadata") or {}}
        if talk.seal_checker:
            talk.seal_checker.sign(asked.account, asked.protocol, asked.model, asked.body, body)
        if asked.stream and not step.whole:
            self._stream(_unreadable_frames(dialect.write_stream(body), says), asked, step, number)
        else:
            self._send(200, _number_id(asked, encode_json(body), number), cut=step.breaks == "cut")

    def _send(self, status: int, body: str, headers: Mapping[str, str] | None = None, cut: bool = False) -> None:
        data = body.encode(errors=LONE_HALVES)
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self._hang_up()

    def _stream(self, frames: list[str], asked: Received, step: Step, name: str) -> None:
        if not (asked.protocol == "openai-chat" and (asked.body.get("stream_options") or {}).get("include_usage")):
            frames = [frame for frame in frames if asked.protocol != "openai-chat" or '"choices":[],' not in frame]
        if step.breaks:
            frames = frames[: len(frames) // 2]
        if step.breaks == "error":
            frames.append(_break_body(asked.protocol, asked.model, len(frames), step))
        frames = [_number_id(asked, frame, name) for frame in frames]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, frame in enumerate(frames):
            if step.hold and step.after and number == step.after:
                step.hold.wait(self.connection)
            self._chunk(frame.encode(errors=LONE_HALVES))
        if step.breaks == "cut":
            self._hang_up()
        else:
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _unreadable_frames(frames: list[str], says: ScriptedAnswer) -> list[str]:
    """The frames of an Anthropic answer whose call has unreadable arguments: a whole answer cannot have them."""
    for text in [
        call.arguments.text
        for call in says.calls
        if isinstance(call, Use | Called) and isinstance(call.arguments, Unreadable)
    ]:
        frames = [frame.replace('"partial_json":""', f'"partial_json":{encode_json(text)}') for frame in frames]
    return frames


def _wants_summary(asked: Received) -> bool:
    """Does it ask the service itself to make the talk short? Only one protocol has that."""
    items = asked.body.get("input")
    return isinstance(items, list) and items[-1:] == [{"type": "compaction_trigger"}]


def _compact_answer(number: str) -> dict[str, Any]:
    """A summary that only its maker can read."""
    return {"output": [{"id": f"cmp_{number}", "type": "compaction", "encrypted_content": f"gAAAAAB{number}=="}]}


def _number_id(asked: Received, text: str, number: str) -> str:
    """An answer, or a frame of it, with an id of its own."""
    same = SAME.get(asked.protocol)
    return text.replace(same, f"{same.partition('_')[0]}_{number}") if same else text


def _native(asked: Received, says: ScriptedAnswer) -> tuple[tuple[str, Any] | Called, ...]:
    """The calls by the names and in the forms that this request knows."""
    offered = _declared_tool_names(asked.body)
    found = [write_call(asked.body, call) if isinstance(call, Use) else call for call in says.calls]
    if asked.protocol == "openai-responses":
        return tuple(call if isinstance(call, Called) else (offered.get(call[0], call[0]), call[1]) for call in found)
    plain = [(call.tool.name, call.arguments) if isinstance(call, Called) else call for call in found]
    return tuple((offered.get(name, name), arguments) for name, arguments in plain)


def _declared_tool_names(body: dict[str, Any]) -> dict[str, str]:
    """The names of the tools, by what is said of them."""
    tools = [tool.get("function", tool) for tool in body.get("tools") or ()]
    functions = [one for tool in tools for one in tool.get("functionDeclarations", [tool])]
    return {one["description"]: one["name"] for one in functions if {"name", "description"} <= one.keys()}


def _wrong_head(asked: Received) -> tuple[int, str] | None:
    """What is wrong with the headers: the key in the protocol's own way and no other key, version and type."""
    name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(asked.protocol, "authorization")
    if asked.account not in (KEYS[asked.protocol], SECOND_KEYS[asked.protocol]):
        return 401, f"{name} does not hold the key of this account"
    others = {"authorization", "x-api-key", "x-goog-api-key"} - {name}
    if shown := sorted(others & asked.headers.keys()):
        return 400, f"{shown[0]} was sent too"
    if asked.protocol == "anthropic" and "anthropic-version" not in asked.headers:
        return 400, "anthropic-version: header is required"
    if asked.headers.get("content-type", "").partition(";")[0] != "application/json":
        return 400, f"content-type is {asked.headers.get('content-type')}"
    return None
