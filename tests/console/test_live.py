"""The list as it changes: streams that grow, many exchanges, a gateway that is restarted, several workers, real agents."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from agents import install
from agents.all import AGENTS
from agents.conftest import laid
from agents.scenes import DONE
from console.browser import Page
from console.conftest import Gallery, Open
from gateway.process import run_gateway
from gateway.provider import KEYS, Provider, Script, ScriptedAnswer, Step
from gateway.raw_exchange import (
    STREAM_HEAD,
    RawConnection,
    ScriptedConnection,
    Served,
    ask,
    frames,
    open_call,
)
from toolwire_conformance.peers.peer import encode_json
from waits import free_port

ROW = ".exchange-rows a"


def ask_loopback(port: int, model: str = "loopback", text: str = "Hi") -> str:
    """One exchange without a provider; its request id."""
    body = encode_json({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    got = ask(port, "POST", "/v1/chat/completions", body, {"user-agent": f"{model}-client/1"})
    assert got.status == 200
    return got.id


def wait_for_rows(page: Page, number: int) -> None:
    page.wait_until(f"document.querySelector('.row-count')?.innerText.startsWith('{number:,} exchange')")


def test_a_stream_grows_in_the_list_and_in_its_view(gallery: Gallery, open_page: Open) -> None:
    served: Served = gallery.served
    pieces = frames("openai-chat", "The rain will stop at noon, and then the sun comes out.")
    middle = next(at for at, piece in enumerate(pieces) if b"noon" in piece) + 1

    def play(connection: ScriptedConnection) -> None:
        connection.send(STREAM_HEAD)
        connection.chunk(*pieces[:middle])
        connection.wait_for_release()
        connection.chunk(*pieces[middle:])
        connection.send(b"0\r\n\r\n")

    page = open_page(served)
    page.show("")
    page.text("Connected").wait()
    scene = served.scene("openai-chat", play)
    asking = open_call(served, "anthropic", scene.model, True)
    running = page.find(f"{ROW}.state-running:has-text('noon')")
    running.wait()
    assert "sun" not in running.text
    running.click()
    page.find("#panel >> text=noon").wait()
    scene.go.set()
    page.find("#panel >> text=and then the sun comes out.").wait()
    page.find(".title-line >> text=200").wait()
    asking.start()
    asking.response.read()
    asking.disconnect()
    page.find("#tab-stream").click()
    page.find(".event-row:has-text('message_stop')").wait()


def test_a_list_that_is_paused_waits(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.text("Connected").wait()
    before = page.find(".row-count").text
    page.button("Pause").click()
    ask_loopback(gallery.served.port)
    page.text("Continue (1 waiting)").wait()
    assert page.find(".row-count").text == before
    page.button("Continue (1 waiting)").click()
    page.wait_until(f"document.querySelector('.row-count').innerText !== {before!r}")


def agent_request(number: int) -> bytes:
    """As large as those of an agent in the middle of its work."""
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "A path. " * 40}}}
    tools = [{"name": f"tool_{one}", "description": "Does it. " * 60, "input_schema": schema} for one in range(20)]
    messages: list[dict[str, object]] = []
    for turn in range(6):
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "tool_1", "input": {"path": f"src/{turn}.py"}}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "    return convert(day)\n" * 200}
        messages += [
            {"role": "user", "content": [result if turn else {"type": "text", "text": f"Task {number // 10}"}]}
        ]
        messages += [{"role": "assistant", "content": [use]}]
    said = {"type": "text", "text": f"needle-{number} <img src=x onerror=alert(1)>"}
    result = {"type": "tool_result", "tool_use_id": "toolu_5", "content": "ok"}
    messages += [{"role": "user", "content": [result, said]}]
    body = {"model": "loopback", "max_tokens": 99, "system": "You are an agent. " * 1000, "tools": tools}
    return encode_json({**body, "messages": messages}).encode()


def test_a_thousand_exchanges_of_agents(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    """Through two workers, while the page looks."""
    (tmp_path / "console.toml").write_text('[console]\nmax_bytes = 536870912\n[store]\nurl = "none"\n')
    command = ("--workers", "2", "--config", str(tmp_path / "console.toml"))
    port = gateways.enter_context(run_gateway(tmp_path, *command)).port
    page = open_page(f"http://127.0.0.1:{port}")
    page.show("")
    page.text("No exchanges yet").wait()
    assert len(agent_request(0)) > 60_000
    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(lambda number: ask(port, "POST", "/v1/messages", agent_request(number)).status, range(1000))
        assert {*asked} == {200}
    wait_for_rows(page, 1000)
    assert page.find(ROW).count < 80  # the others exist only when they are visible
    last = page.evaluate(
        "fetch('/console/api/v1/exchanges').then((got) => got.json()).then((all) => all.exchanges.at(-1).id)"
    )
    page.find(f"#row-{last}").wait("detached")
    page.press("End")
    page.find(f"#row-{last}").wait()
    assert page.find(ROW).count < 80
    page.find("input[type=search]").fill("needle-723")
    page.find(ROW).wait_for_count(1)
    page.find(".row-count").wait_for_text("1 of 1,000")
    page.find(ROW).click()
    page.find("#tab-conversation").click()
    page.find("#panel").wait_for_text("needle-723", "calls tool_1", "<img src=x")
    page.show("#/sessions")
    page.find(".session-row >> nth=0").wait()
    page.show("#/usage?show=p95&since=1h")
    page.find("[aria-label=Sums] >> tfoot").wait_for_text("Total 1,000")


def test_the_page_comes_back_after_a_restart(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    port = free_port()
    page = open_page(f"http://127.0.0.1:{port}")
    page.allowed = (
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
    )
    with run_gateway(tmp_path, "--port", str(port)) as process:
        page.show("")
        page.text("No exchanges yet").wait()
        ask_loopback(port)
        wait_for_rows(page, 1)
        process.signal(signal.SIGKILL)
        process.wait_for_exit()
        page.text("The gateway is gone.").wait()
        page.find(ROW).wait_for_count(1)  # what was seen stays
    gateways.enter_context(run_gateway(tmp_path, "--port", str(port)))
    page.text("Connected").wait()
    page.text("No exchanges yet").wait()
    ask_loopback(port, text="again")
    wait_for_rows(page, 1)
    page.find(ROW).click()
    page.find("#tab-overview").wait()


def test_the_exchanges_of_all_workers_are_shown(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    process = gateways.enter_context(run_gateway(tmp_path, "--workers", "2"))
    page = open_page(f"http://127.0.0.1:{process.port}")
    page.show("")
    page.text("No exchanges yet").wait()
    held: list[RawConnection] = []
    workers: set[str] = set()
    while len(workers) < 2:  # connections are spread over the workers
        assert len(held) < 64
        body = encode_json({"model": "loopback", "messages": [{"role": "user", "content": "Hi"}]}).encode()
        held.append(RawConnection(process.port))
        held[-1].send("POST", "/v1/chat/completions", body)
        held[-1].start().read()
        wait_for_rows(page, len(held))
        workers = {
            str(id).split("-")[1] for id in page.evaluate(f"[...document.querySelectorAll('{ROW}')].map(row => row.id)")
        }
    for worker in sorted(workers):
        page.show("#/live")
        page.find(f"#row-{worker}-1").click()
        page.find("#tab-overview").wait()
    for line in held:
        line.disconnect()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider(first=1000)
    # `toolwire run` asks the model for a word before it starts the agent.
    made.strangers = Script("", [], aside=lambda asked: ScriptedAnswer("ok"), limit=1_000_000)
    yield made
    made.close()


def test_a_real_agent(provider: Provider, tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    """Codex, started by `toolwire run`, on a model that speaks another protocol."""
    if why := install.missing():
        pytest.skip(why)
    agent = AGENTS["codex"]
    port, folder = free_port(), tmp_path / "agent"
    folder.mkdir()
    file = tmp_path / "toolwire.toml"
    key = KEYS["openai-chat"]
    file.write_text(
        f'[server]\nport = {port}\nretries = 0\n[providers.scripted]\nprotocols = ["openai-chat"]\n'
        f'base_url = "{provider.url}/v1"\napi_key = "{key}"\n[models."*"]\nprovider = "scripted"\nmodel = "gpt-4.1"\n'
    )
    gateways.enter_context(run_gateway(tmp_path, "--config", str(file), "--port", str(port)))
    page = open_page(f"http://127.0.0.1:{port}")
    page.show("")
    page.text("No exchanges yet").wait()
    desk = laid(folder, file)
    shell = agent.shell("echo made-$((40+2)) | tee made.txt")
    talk = provider.script(Step(ScriptedAnswer("I shall make it.", (shell,))), Step(ScriptedAnswer(DONE)))
    talk.aside = agent.aside
    ran = desk.run(agent, agent.headless(f"Make the file. {talk.mark}"), talk)
    assert ran.code == 0, str(ran)
    page.find(f"{ROW}:has-text('codex') >> nth=0").wait()
    page.show("#/sessions")
    page.find(".session-row:has-text('2 turns') >> nth=0").click()
    page.find(".turn").wait_for_count(2)
    page.find(".turn >> nth=1 >> a").click()
    page.find("#tab-calls").click()
    page.find(".call-side:has-text('made-42') >> nth=0").wait()
    assert key not in page.call("content")
