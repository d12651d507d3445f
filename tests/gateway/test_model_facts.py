"""What is known about models, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolwire.core.codec import ModelFacts
from toolwire.gateway.config.config import Config
from toolwire.gateway.config.load import load_config
from toolwire.gateway.config.problems import ConfigError
from toolwire.gateway.models.catalogue import _load_models, load_catalogue
from toolwire.gateway.models.facts import FactFinder, find_facts
from toolwire.gateway.pipeline.route import Router
from toolwire.protocols import find_codec

KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g", "XAI_API_KEY": "x"}

FILE = """
[providers.lab]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:1/v1"
models = ["lab-*"]
[providers.proxy]
kind = "openai"
base_url = "http://proxy.test/v1"
api_key_env = "OPENAI_API_KEY"
[providers.vllm]

[models]
fast = "anthropic/claude-opus-5-5"
[models.brief]
provider = "anthropic"
model = "claude-opus-5-5"
max_output_tokens = 1000
[models."lab-*".facts]
context_window = 8192
max_output_tokens = 512
[models.lab-large.facts]
context_window = 65536
[models."anthropic/claude-opus-4-8".facts]
context_window = 500000
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("facts") / "toolwire.toml"
    path.write_text(FILE)
    return load_config(path, KEYS)


LISTED = ModelFacts(context_window=4096, max_output_tokens=256)
CATALOGUE, TABLE = "genai-prices", "Toolwire's table of anthropic models"
FACTS: dict[str, tuple[str, ModelFacts, tuple[int | None, str], tuple[int | None, str]]] = {
    "catalogue and table": ("claude-opus-5-5", ModelFacts(), (1000000, CATALOGUE), (128000, TABLE)),
    "an alias": ("fast", ModelFacts(), (1000000, CATALOGUE), (128000, TABLE)),
    "the operator allows less": (
        "brief",
        ModelFacts(),
        (1000000, CATALOGUE),
        (1000, "max_output_tokens in [models]"),
    ),
    "the provider's list wins": (
        "claude-opus-5-5",
        LISTED,
        (4096, "the list of models of anthropic"),
        (256, "the list of models of anthropic"),
    ),
    "the file wins over the list": (
        "lab-small",
        LISTED,
        (8192, '[models."lab-*".facts]'),
        (512, '[models."lab-*".facts]'),
    ),
    "an exact name wins, the pattern adds": (
        "lab-large",
        ModelFacts(),
        (65536, "[models.lab-large.facts]"),
        (512, '[models."lab-*".facts]'),
    ),
    "by the provider's name": (
        "claude-opus-4-8",
        ModelFacts(),
        (500000, '[models."anthropic/claude-opus-4-8".facts]'),
        (128000, TABLE),
    ),
    "named with its provider": ("openai/gpt-5", ModelFacts(), (400000, CATALOGUE), (None, "")),
    "another address of a known server": ("proxy/gpt-5", ModelFacts(), (400000, CATALOGUE), (None, "")),
    "another name in the catalogue": ("grok-4", ModelFacts(), (256000, CATALOGUE), (None, "")),
    "a date without hyphens": ("gpt-5-20250807", ModelFacts(), (400000, CATALOGUE), (None, "")),
    "a local server decides itself": ("vllm/gpt-5", ModelFacts(), (None, ""), (None, "")),
    "an unknown model of a known server": ("openai/gpt-99", ModelFacts(), (None, ""), (None, "")),
    "an unknown server": ("lab/gpt-5", ModelFacts(), (None, ""), (None, "")),
    "the embedded model": ("loopback", ModelFacts(), (None, ""), (None, "")),
    "a name that leads nowhere": ("nowhere", ModelFacts(), (None, ""), (None, "")),
}


@pytest.mark.parametrize(("model", "listed", "window", "output"), FACTS.values(), ids=list(FACTS))
def test_a_fact_has_a_source(
    config: Config, model: str, listed: ModelFacts, window: tuple[int | None, str], output: tuple[int | None, str]
) -> None:
    found = {fact.name: fact for fact in FactFinder(Router(config)).explain_facts(model, listed)}
    for name, (value, source) in (("context_window", window), ("max_output_tokens", output)):
        assert found[name].value == value
        assert found[name].source.startswith(source)
        assert bool(found[name].source) == (value is not None)
    expected = ModelFacts(context_window=window[0], max_output_tokens=output[0])
    assert find_facts(config, model, listed) == expected


MISTAKES = {
    "a misspelt key": ("context_windw = 1", "unknown key `context_windw`"),
    "not a number": ('context_window = "1M"', "context_window"),
    "no tokens at all": ("max_output_tokens = 0", "max_output_tokens"),
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_in_the_file_is_reported_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "toolwire.toml"
    path.write_text(f"[models.gpt-5.facts]\n{line}\n")
    with pytest.raises(ConfigError) as error:
        load_config(path, KEYS)
    (problem,) = error.value.problems
    assert problem.line == 2
    assert message in f"{problem.location} {problem.message}"


def test_facts_alone_do_not_change_the_route(config: Config) -> None:
    assert [rule.name for rule in config.models] == ["fast", "brief"]


def test_the_catalogue_can_be_read_to_its_end() -> None:
    """Every clause is one that `Clause` knows, every expression compiles, and every model matches a name."""
    for provider in load_catalogue().providers:
        for model in _load_models(provider):
            model.match.matches(model.id)


def test_the_catalogue_does_not_contradict_the_codecs() -> None:
    """A model cannot answer with more tokens than its window has."""
    limit = find_codec("anthropic").http.max_output_tokens
    windows = {model.id: model.context_window for model in _load_models("anthropic") if model.context_window}
    assert len(windows) > 15
    for model, window in windows.items():
        assert (limit(model) or 0) <= window, model
