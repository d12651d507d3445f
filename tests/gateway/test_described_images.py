"""Images for models that cannot see: another model describes each image once, and its text replaces the image.

The models that cannot see refuse a request with an image. Every client, every provider, streamed and whole.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from configs import load_config
from gateway.clients import CLIENTS, PNG, Conversation, Result, Task, close_all, losses
from gateway.conftest import configuration, serve_config
from gateway.declared_tools import NotOffered, Use
from gateway.mcp_gateway import COMMAND
from gateway.provider import KEYS, PROTOCOLS, Hold, Provider, Received, Script, ScriptedAnswer, Step
from gateway.raw_exchange import ask, path_of, request_of, run_own_server
from gateway.test_prefixes import prefix
from gateway.test_tool_search import MODELS
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire.gateway.app import Gateway
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.features.image_descriptions import describe_images
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.telemetry.telemetry import Telemetry
from waits import PATIENCE

RESULTS = {"Paris": Result("A map", image=True), "Rome": Result("noon")}
EYES = {
    "openai-chat": "gpt-5.5",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-sonnet-5-5",
    "gemini": "gemini-3.8-flash",
}
PIXEL = PNG[:40]

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


def refuse_images(says: ScriptedAnswer) -> Callable[[Received], ScriptedAnswer]:
    """An answer of a model that refuses images."""

    def answer(asked: Received) -> ScriptedAnswer:
        if PIXEL in asked.raw:
            raise NotOffered("this model takes no images")
        return says

    return answer


def script_without_images(provider: Provider, *says: ScriptedAnswer) -> Script:
    return provider.script(*(Step(refuse_images(one)) for one in says))


@pytest.fixture
def eyes() -> Iterator[Provider]:
    """A model that sees: it says something else about every image that it is asked about."""
    provider = Provider()
    steps = [Step(ScriptedAnswer(f"A red dot, number {number}.")) for number in range(40)]
    provider.strangers = Script("", steps)
    yield provider
    provider.close()


def requests_with_images(eyes: Provider) -> list[Received]:
    assert eyes.strangers is not None
    assert eyes.strangers.refused == []
    return eyes.strangers.asked


def write_config(
    provider: Provider, eyes: Provider, folder: Path, protocol: str = "openai-chat", store: str = "", more: str = ""
) -> Path:
    setting = f'describe_images = "eyes/{EYES[protocol]}"\n'
    base = eyes.url if protocol in ("anthropic", "gemini") else f"{eyes.url}/v1"
    text = configuration(provider.url).replace("api_key =", f"{setting}api_key =")
    text += f'[providers.eyes]\nprotocols = ["{protocol}"]\nbase_url = "{base}"\napi_key = "{KEYS[protocol]}"\n'
    text += f'[store]\nurl = "{store or f"sqlite:///{folder}/store.db"}"\n{more}'
    file = folder / "toolwire.toml"
    file.write_text(text)
    return file


@contextmanager
def open_conversation(file: Path, talk: Script, source: str, target: str, stream: bool) -> Iterator[Conversation]:
    task = Task(f"What is it? {talk.mark}", RESULTS, image=True)
    with ExitStack() as stack:
        stack.callback(close_all)
        base = stack.enter_context(serve_config(file))
        losses()
        yield CLIENTS[source](base, MODELS[target], stream, task)


def assert_steady(talk: Script) -> None:
    for shorter, longer in pairwise(prefix(asked)[1:] for asked in talk.asked):
        assert longer[: len(shorter)] == shorter


@parametrize_pairwise({"source": CLIENTS.keys(), "target": PROTOCOLS, "stream": WHOLE_OR_STREAM})
def test_messages_and_results(
    provider: Provider, eyes: Provider, tmp_path: Path, source: str, target: str, stream: bool
) -> None:
    """The same image in two messages and, where the client can send one, in a result: it is described once."""
    talk = script_without_images(
        provider,
        ScriptedAnswer("", (Use("get_weather", {"city": "Paris"}),)),
        ScriptedAnswer("A dot."),
        ScriptedAnswer("The same."),
    )
    with open_conversation(write_config(provider, eyes, tmp_path), talk, source, target, stream) as client:
        turns = client.run()
        assert "media-described" in losses()
        client.ask("And this?", image=True)
        assert client.turn().text == "The same."
    assert turns[-1].text == "A dot."
    assert talk.refused == []
    assert len(requests_with_images(eyes)) == 1
    assert PNG in requests_with_images(eyes)[0].raw
    text = "[image described by eyes/gpt-5.5: A red dot, number 0.]"
    has_result_image = source != "openai-chat"
    assert [asked.text.count(text) for asked in talk.asked] == [1, 1 + has_result_image, 2 + has_result_image]
    assert_steady(talk)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_model_that_describes(provider: Provider, eyes: Provider, tmp_path: Path, protocol: str) -> None:
    """It may be of any protocol. After a restart the store has the text."""
    file = write_config(provider, eyes, tmp_path, protocol)
    for _ in range(2):
        talk = script_without_images(provider, ScriptedAnswer("A dot."))
        with open_conversation(file, talk, "anthropic", "openai-chat", False) as client:
            assert client.turn().text == "A dot."
        assert talk.refused == []
        assert f"[image described by eyes/{EYES[protocol]}: A red dot, number 0.]" in talk.asked[0].text
    assert len(requests_with_images(eyes)) == 1


def test_without_a_store(provider: Provider, eyes: Provider, tmp_path: Path) -> None:
    """The text is kept in memory."""
    talk = script_without_images(provider, ScriptedAnswer("A dot."), ScriptedAnswer("Yes."))
    with open_conversation(
        write_config(provider, eyes, tmp_path, store="none"), talk, "gemini", "anthropic", True
    ) as client:
        client.turn()
        client.ask("Sure?", image=True)
        client.turn()
    assert talk.refused == []
    assert len(requests_with_images(eyes)) == 1
    assert_steady(talk)


@parametrize_pairwise({"source": CLIENTS.keys(), "target": PROTOCOLS, "stream": WHOLE_OR_STREAM})
def test_a_model_that_fails(
    provider: Provider, eyes: Provider, tmp_path: Path, source: str, target: str, stream: bool
) -> None:
    """The request goes on without the image, and the loss is named. The next request tries again."""
    assert eyes.strangers is not None
    eyes.strangers.steps[0] = Step(fails="bad")
    eyes.strangers.steps[1] = Step(ScriptedAnswer(""))
    talk = script_without_images(provider, ScriptedAnswer("Hm."), ScriptedAnswer("Hm?"), ScriptedAnswer("Ah."))
    with open_conversation(write_config(provider, eyes, tmp_path), talk, source, target, stream) as client:
        for text in ("Hm.", "Hm?", "Ah."):
            assert client.turn().text == text
            told = losses()
            assert ("media-dropped" in told, "media-described" in told) == (text != "Ah.", text == "Ah.")
            client.ask("And now?")
    assert talk.refused == []
    assert [asked.text.count("[an image was left out") for asked in talk.asked] == [1, 1, 0]


def test_models_that_see_get_images(provider: Provider, eyes: Provider, tmp_path: Path) -> None:
    """A model's rule can turn off what its provider sets."""
    file = write_config(provider, eyes, tmp_path)
    file.write_text(
        file.read_text() + '[models.seeing]\nprovider = "chat"\nmodel = "gpt-5.5"\ndescribe_images = "off"\n'
    )
    talk = provider.script(ScriptedAnswer("A dot."))
    with serve_config(file) as base:
        task = Task(f"What is it? {talk.mark}", image=True)
        assert CLIENTS["anthropic"](base, "seeing", False, task).turn().text == "A dot."
    close_all()
    assert PNG in talk.asked[0].raw
    assert requests_with_images(eyes) == []


def test_a_model_that_describes_gets_the_image_itself(
    provider: Provider, eyes: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its provider's setting holds for it, too: nobody describes an image to the model that describes it."""
    monkeypatch.setattr(describe_images, "MAX_SECONDS", PATIENCE / 4)
    file = write_config(provider, eyes, tmp_path)
    setting = 'describe_images = "eyes/gpt-5.5"\n'
    file.write_text(file.read_text().replace("[providers.eyes]\n", f"[providers.eyes]\n{setting}"))
    talk = script_without_images(provider, ScriptedAnswer("A dot."))
    with open_conversation(file, talk, "anthropic", "openai-chat", False) as client:
        assert client.turn().text == "A dot."
    assert talk.refused == []
    assert "[image described by eyes/gpt-5.5: A red dot, number 0.]" in talk.asked[0].text
    assert len(requests_with_images(eyes)) == 1


def images_request(mark: str, count: int, **more: object) -> bytes:
    parts: list[object] = [{"type": "text", "text": mark}]
    for number in range(count):
        data = base64.b64encode(b"\x89PNG" + number.to_bytes(4, "big") * 40).decode()
        parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    return json.dumps({"model": "m-chat", "messages": [{"role": "user", "content": parts}], **more}).encode()


def test_many_images(provider: Provider, eyes: Provider, tmp_path: Path) -> None:
    """At most sixteen new ones, the last of them; the others are described with the next request."""
    talk = provider.script(ScriptedAnswer("Many."), ScriptedAnswer("All."))
    with serve_config(write_config(provider, eyes, tmp_path)) as base:
        port = int(base.rpartition(":")[2])
        for text, dropped in (("Many.", 4), ("All.", 0)):
            got = ask(port, "POST", "/v1/chat/completions", images_request(talk.mark, 20))
            assert (got.status, text.encode() in got.data) == (200, True), got.data
            assert talk.asked[-1].text.count("[an image was left out") == dropped
            assert talk.asked[-1].text.count("[image described by") == 20 - dropped
    assert len(requests_with_images(eyes)) == 20


def test_results_of_mcp_servers(provider: Provider, eyes: Provider, tmp_path: Path) -> None:
    talk = provider.script(ScriptedAnswer("", (("test__image", {}),)), ScriptedAnswer("A dot."))
    more = f'[mcp.test]\n{COMMAND}\nmodels = ["*"]\n'
    with serve_config(write_config(provider, eyes, tmp_path, more=more)) as base:
        body = json.dumps(request_of("openai-chat", "m-chat", False)).replace("Hi", talk.mark).encode()
        got = ask(int(base.rpartition(":")[2]), "POST", path_of("openai-chat", "m-chat", False), body)
    assert got.status == 200, got.data
    assert b"A dot." in got.data
    assert talk.refused == []
    assert len(requests_with_images(eyes)) == 1
    assert "[image described by eyes/gpt-5.5: A red dot, number 0.]" in talk.asked[1].text
    assert "image_url" not in talk.asked[1].text


def test_the_log(provider: Provider, eyes: Provider, tmp_path: Path) -> None:
    """A description has a line of its own, with its tokens; a failure is named, and no key is shown."""
    file = write_config(provider, eyes, tmp_path)
    file.write_text(file.read_text().replace('log_format = "none"', 'log_format = "json"'))
    assert eyes.strangers is not None
    eyes.strangers.steps[1] = Step(fails="bad")
    live = LiveConfig(file, {"HOME": os.devnull}, lambda found: None)
    lines: list[str] = []
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."))
    with run_own_server(Gateway(live, Telemetry(live.current.server, lines.append))) as port:
        for count in (1, 2):
            assert ask(port, "POST", "/v1/chat/completions", images_request(talk.mark, count)).status == 200
    logged = [json.loads(line) for text in lines for line in text.splitlines()]
    described = [line for line in logged if line.get("operation") == "describe_image"]
    assert [(line["provider"], line["status"]) for line in described] == [("eyes", 200), ("eyes", 400)]
    assert described[0]["input_tokens"] > 0
    assert described[0]["output_tokens"] > 0
    chats = [line for line in logged if line.get("operation") == "chat"]
    assert [{*line["losses"]} for line in chats] == [{"media-described"}, {"media-described", "media-dropped"}]
    assert {line["request_id"] for line in described} == {line["request_id"] for line in chats}
    assert not any(key in text for key in KEYS.values() for text in lines)


def test_a_model_that_takes_too_long(
    provider: Provider, eyes: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_images, "MAX_SECONDS", 0.2)
    hold = Hold()
    assert eyes.strangers is not None
    eyes.strangers.steps[0] = Step(ScriptedAnswer("Late."), hold=hold)
    talk = provider.script(ScriptedAnswer("Hm."))
    with serve_config(write_config(provider, eyes, tmp_path)) as base:
        got = ask(int(base.rpartition(":")[2]), "POST", "/v1/chat/completions", images_request(talk.mark, 1))
    assert got.status == 200, got.data
    assert "media-dropped" in got.headers["x-toolwire-losses"]
    assert hold.gone.wait(PATIENCE)
    hold.close()


KINDS = {
    "a URL": ("openai-chat", "https://pictures.example/dot.png", "[image described by eyes/gpt-5.5: A red dot"),
    "refused": (
        "anthropic",
        "data:image/svg+xml;base64,PHN2Zy8+",
        "[an image was left out: it could not be described]",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_images(provider: Provider, eyes: Provider, tmp_path: Path, kind: str) -> None:
    """The model that describes gets a URL as it is. If its provider takes no such image, what it says is not used."""
    protocol, url, text = KINDS[kind]
    talk = provider.script(ScriptedAnswer("A dot."))
    body = json.loads(images_request(talk.mark, 1))
    body["messages"][0]["content"][1]["image_url"]["url"] = url
    with serve_config(write_config(provider, eyes, tmp_path, protocol)) as base:
        got = ask(int(base.rpartition(":")[2]), "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert got.status == 200, got.data
    assert text in talk.asked[0].text
    assert (url in requests_with_images(eyes)[0].raw) == (kind == "a URL")


WRONG = {
    '[providers.chat]\ndescribe_images = "nowhere/at-all"\n': "nowhere/at-all",
    '[models.m]\nprovider = "chat"\nmodel = "x"\ndescribe_images = "eye/x"\n': "eye/x",
}


@pytest.mark.parametrize(("text", "name"), WRONG.items())
def test_an_unknown_model(tmp_path: Path, text: str, name: str) -> None:
    base = 'base_url = "http://127.0.0.1:9"\nprotocols = ["openai-chat"]\n'
    file = tmp_path / "toolwire.toml"
    chat = "" if "[providers.chat]" in text else f"[providers.chat]\n{base}"
    file.write_text(
        chat + text.replace("[providers.chat]\n", f"[providers.chat]\n{base}") + f"[providers.eyes]\n{base}"
    )
    with pytest.raises(ConfigError, match=name):
        load_config(file, {})
