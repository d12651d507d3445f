"""What the user of an agent sees of a limit that opens late, of one that opens soon, and of a key that was disabled: an
agent that waits for hours, or asks again and again, says nothing meanwhile."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agents.agent import Agent, AgentResult, AgentWorkspace
from agents.all import CLAUDE, CODEX, GEMINI, OPENCODE, QWEN
from agents.conftest import configuration, laid
from agents.scenes import DONE
from gateway.process import run_gateway
from gateway.provider import Hold, Provider, Received, Script, ScriptedAnswer, Step
from gateway.raw_exchange import RawConnection, ask
from toolwire.gateway.settings.client_keys import CLIENT_KEY_VARIABLE, hash_key
from waits import free_port, wait_until

AGENTS: dict[str, Agent] = {
    "codex": CODEX,
    "claude": CLAUDE,
    "gemini": GEMINI,
    "opencode": OPENCODE["opencode-chat"],
    "qwen": QWEN,
}
EVERY_AGENT = pytest.mark.parametrize("name", AGENTS)
AMOUNT = 1_000_000
KEY = "a key that is long enough to be one"


@contextmanager
def serve(folder: Path, provider: Provider, target: str, more: str) -> Iterator[tuple[AgentWorkspace, int]]:
    port, file = free_port(), folder / "toolwire.toml"
    file.write_text(configuration(provider.url, target, port, more))
    with run_gateway(folder, "--config", str(file), "--port", str(port)):
        yield laid(folder, file), port


@contextmanager
def serve_large_use() -> Iterator[str]:
    """A Chat server that has always used the whole amount."""
    usage = {"prompt_tokens": AMOUNT, "completion_tokens": 1, "total_tokens": AMOUNT + 1}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    )

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def send_chat(port: int, model: str, text: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return ask(port, "POST", "/v1/chat/completions", json.dumps(body).encode()).status


def count_refusals(port: int, what: str) -> int:
    """Lines of the metrics that this pattern finds, added up."""
    text = ask(port, "GET", "/metrics").data.decode()
    return sum(int(float(value)) for value in re.findall(rf"^{what}[^\n]* (\S+)$", text, re.MULTILINE))


REFUSED = r"toolwire_limit_refusals_total\{"


def play(desk: AgentWorkspace, agent: Agent, talk: Script) -> AgentResult:
    talk.aside = agent.aside
    ran = desk.run(agent, agent.headless(f"Do it. {talk.mark}"), talk)
    assert not ran.looped, f"it asked again and again\n{ran}"
    assert not ran.late, f"it did not come to its end\n{ran}"
    return ran


WORDS_OF_A_LIMIT = {
    "codex": r"hit your usage limit. Try again at \w+ 1st, \d{4}",
    "gemini": "exhausted your daily quota",
}
"""What two of them say in words of their own; the others show the gateway's sentence."""


@EVERY_AGENT
def test_a_limit_that_opens_late_is_shown_at_once(name: str, provider: Provider, tmp_path: Path) -> None:
    """A limit by the month, because days end while tests run."""
    agent = replace(AGENTS[name], options=(*AGENTS[name].options, "--no-check"))
    with serve_large_use() as url:
        more = f'[providers.large]\nprotocols = ["openai-chat"]\nbase_url = "{url}"\napi_key = "any key"\n'
        more += f'[models.large]\nprovider = "large"\n[[limits]]\nname = "budget"\ntokens_per_month = {AMOUNT}\n'
        with serve(tmp_path, provider, agent.protocol, more) as (desk, port):
            wait_until(lambda: send_chat(port, "large", "Hi") == 403)
            before = count_refusals(port, REFUSED)
            ran = play(desk, agent, provider.script(ScriptedAnswer(DONE)))
            tries = count_refusals(port, REFUSED) - before
    assert ran.code != 0, str(ran)
    words = WORDS_OF_A_LIMIT.get(
        name, r"the limit `budget`, 1,000,000 tokens per month, is reached: .{1,60}It opens at "
    )
    assert re.search(words, ran.out + ran.err), str(ran)
    assert tries <= 2, str(ran)  # opencode asks for a title, too


@EVERY_AGENT
def test_a_limit_that_opens_soon_is_waited_for(name: str, provider: Provider, tmp_path: Path) -> None:
    """Another request is running, and ends when the agent has been refused once."""
    agent = replace(AGENTS[name], options=(*AGENTS[name].options, "--no-check"))
    hold = Hold()
    other = provider.script(Step(ScriptedAnswer("Hi"), hold=hold))
    with serve(tmp_path, provider, agent.protocol, "[[limits]]\nparallel_requests = 1\n") as (desk, port):
        line = RawConnection(port)
        body = {"model": agent.model, "messages": [{"role": "user", "content": other.mark}]}
        line.send("POST", "/v1/chat/completions", json.dumps(body).encode())
        assert hold.reached.wait(60)

        def let_go() -> None:
            wait_until(lambda: count_refusals(port, REFUSED) > 0)
            hold.release()

        released = threading.Thread(target=let_go)
        released.start()
        talk = provider.script(ScriptedAnswer(DONE))
        ran = play(desk, agent, talk)
        released.join()
        line.start().read()
        line.disconnect()
    hold.close()
    assert ran.code == 0, str(ran)
    assert DONE in ran.out, str(ran)
    assert len(talk.asked) == 1


@EVERY_AGENT
def test_a_key_that_is_disabled_is_said_at_once(name: str, provider: Provider, tmp_path: Path) -> None:
    """In the middle of a session: `toolwire run` starts no agent with a key that is not accepted."""
    agent = AGENTS[name]
    agent = replace(agent, environ={**agent.environ, CLIENT_KEY_VARIABLE: KEY})
    keys = f'[[server.keys]]\nname = "ci"\nsha256 = "{hash_key(KEY)}"\nmetrics = true\n'
    with serve(tmp_path, provider, agent.protocol, keys) as (desk, port):

        def disable_key(asked: Received) -> ScriptedAnswer:
            desk.config.write_text(desk.config.read_text().replace("metrics = true", "disabled = true"))
            sent = {"authorization": f"Bearer {KEY}"}
            wait_until(lambda: ask(port, "GET", "/v1/models", headers=sent).status == 401)
            return ScriptedAnswer("I shall look.", (agent.shell("echo made"),))

        ran = play(desk, agent, provider.script(Step(disable_key), ScriptedAnswer(DONE)))
    assert "the key `ci` is disabled" in ran.out + ran.err, str(ran)
    assert ran.code != 0, str(ran)
    assert ran.out.count("api_retry") == 0, str(ran)  # of Claude Code


@EVERY_AGENT
def test_an_account_without_credit_is_said_at_once(name: str, provider: Provider, tmp_path: Path) -> None:
    """After a 429 with `insufficient_quota`, opencode and Qwen Code ask again and again."""
    agent = replace(AGENTS[name], options=(*AGENTS[name].options, "--no-check"))
    talk = provider.script(*[Step(fails="quota")] * 20)
    with serve(tmp_path, provider, agent.protocol, "") as (desk, _):
        ran = play(desk, agent, talk)
    assert ran.code != 0, str(ran)
    assert re.search(r"quota|billing|usage limit", ran.out + ran.err), str(ran)
    assert len(talk.asked) <= 2, str(ran)
