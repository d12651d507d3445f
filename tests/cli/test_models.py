"""`toolwire models`: the list and one model, on a terminal and as data, from providers on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.terminal_golden import check_golden, run_in_pipe
from gateway.list_server import list_server, openai_list
from waits import free_port

CLAUDE = {"id": "claude-opus-5-5", "display_name": "Claude", "max_input_tokens": 1000000, "max_tokens": 128000}
LISTS = {
    "/v1/models": openai_list("gpt-5.5", "text-embedding-3-large"),
    "/v1/models?limit=1000": (200, {"data": [CLAUDE, {"id": "claude-9"}]}),
}


@pytest.fixture(name="configured")
def write_configuration(folder: Path) -> Iterator[Path]:
    with list_server(LISTS) as server:
        (folder / "toolwire.toml").write_text(f"""
[providers.openai]
base_url = "{server.url}/v1"
api_key = "key-of-openai"
[providers.anthropic]
base_url = "{server.url}"
api_key = "key-of-anthropic"
[providers.vllm]
base_url = "http://127.0.0.1:{free_port()}/v1"
[providers.gemini]
[models]
fast = "anthropic/claude-opus-5-5"
[models.brief]
provider = "anthropic"
model = "claude-opus-5-5"
max_output_tokens = 1000
fallbacks = ["fast"]
[models."claude-9".facts]
context_window = 123456
""")
        yield folder


def test_the_list(configured: Path) -> None:
    check_golden("models", ["models"], configured)


@pytest.mark.parametrize("name", ["brief", "claude-9", "gpt-5.5", "loopback"])
def test_one_model(configured: Path, name: str) -> None:
    check_golden(f"models-show-{name}", ["models", "show", name], configured)


CHOICES = {
    "a part of the name": ("CLAUDE", ["claude-opus-5-5", "claude-9"]),
    "a pattern": ("*-large", ["openai/text-embedding-3-large"]),
    "a pattern without the provider": ("text-*-large", ["openai/text-embedding-3-large"]),
    "a name": ("gpt-5.5", ["gpt-5.5"]),
}


@pytest.mark.parametrize(("pattern", "expected"), CHOICES.values(), ids=list(CHOICES))
def test_a_pattern_chooses(configured: Path, pattern: str, expected: list[str]) -> None:
    done = run_in_pipe(["models", pattern, "--json"], configured)
    assert done.code == 0, done
    document = json.loads(done.out)
    assert [model["id"] for model in document["models"]] == expected
    assert set(document["unavailable"]) == {"vllm", "gemini"}
    assert done.err.count("left out: ") == 2


def test_one_model_as_data(configured: Path) -> None:
    document = json.loads(run_in_pipe(["models", "show", "fast", "--json"], configured).out)
    assert document["served_by"] == [{"provider": "anthropic", "model": "claude-opus-5-5"}]
    assert document["facts"]["context_window"] == {"value": 1000000, "source": "the list of models of anthropic"}


UNUSABLE = {
    "gpt-5.5": ("openai", "OPENAI_API_KEY"),
    "openai/gpt-5.5": ("openai", "OPENAI_API_KEY"),
    "claude-opus-5-5": ("anthropic", "ANTHROPIC_API_KEY"),
    "ollama/x": ("ollama", "OLLAMA_BASE_URL"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_model_without_a_key_shows_what_is_known_and_what_is_missing(tmp_path: Path, name: str) -> None:
    provider, variable = UNUSABLE[name]
    shown = run_in_pipe(["models", "show", name, "--offline"], tmp_path)
    assert (shown.code, shown.err) == (0, "")
    assert f"missing  {variable}: set it to use this model\n" in shown.out
    document = json.loads(run_in_pipe(["models", "show", name, "--offline", "--json"], tmp_path).out)
    assert (document["missing"], document["served_by"][0]["provider"]) == (variable, provider)
    assert provider == "ollama" or document["facts"]["context_window"]["value"] == 1000000


def test_no_provider_is_asked_offline(configured: Path) -> None:
    done = run_in_pipe(["models", "--offline", "--json"], configured)
    assert done.err == ""
    names = [model["id"] for model in json.loads(done.out)["models"]]
    assert names == ["fast", "brief", "loopback"]


ERRORS = {
    "nothing matches": (["models", "nonesuch"], 1, "no model matches `nonesuch`"),
    "an unknown model": (["models", "show", "nonesuch"], 1, "unknown model `nonesuch`"),
    "too many words": (["models", "a", "b"], 2, "too many words: a b"),
}


@pytest.mark.parametrize(("words", "code", "message"), ERRORS.values(), ids=list(ERRORS))
def test_mistakes(configured: Path, words: list[str], code: int, message: str) -> None:
    done = run_in_pipe(words, configured)
    assert done.code == code
    assert message in done.err
    assert done.out == ""
