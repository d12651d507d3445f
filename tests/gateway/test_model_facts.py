"""What is known about models, and from where."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from configs import load_config
from toolwire.core.codec import NO_FACTS, ModelFacts
from toolwire.gateway.models.catalogue import _find_known_facts, _load_models, load_catalogue, load_known_models
from toolwire.gateway.models.facts import FactFinder, find_facts
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.settings.router import Router
from toolwire.protocols import find_codec
from toolwire.protocols.anthropic.models import ALL_EFFORTS

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
input_modalities = ["text", "image"]
tools = false
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
KNOWN = "Toolwire's list of models"
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
    "named with its provider": ("openai/gpt-5", ModelFacts(), (400000, CATALOGUE), (128000, KNOWN)),
    "another address of a known server": ("proxy/gpt-5", ModelFacts(), (400000, CATALOGUE), (128000, KNOWN)),
    "an exception in the list of known models": ("gpt-5-pro", ModelFacts(), (400000, CATALOGUE), (272000, KNOWN)),
    "the list of known models wins over genai-prices": (
        "gemini-2.5-pro",
        ModelFacts(),
        (1048576, KNOWN),
        (65536, KNOWN),
    ),
    "it says nothing about other kinds of models": ("openai/gpt-image-1", ModelFacts(), (None, ""), (None, "")),
    "another name in the catalogue": ("grok-4", ModelFacts(), (256000, CATALOGUE), (None, "")),
    "a date without hyphens": ("gpt-5-20250807", ModelFacts(), (400000, CATALOGUE), (128000, KNOWN)),
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
    facts = find_facts(config, model, listed)
    assert (facts.context_window, facts.max_output_tokens) == (window[0], output[0])


MISTAKES = {
    "a misspelt key": ("context_windw = 1", "unknown key `context_windw`"),
    "not a number": ('context_window = "1M"', "context_window"),
    "no tokens at all": ("max_output_tokens = 0", "max_output_tokens"),
    "an unknown modality": ('input_modalities = ["smell"]', "input_modalities"),
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


CAPABILITIES: dict[str, tuple[str, str, object, str]] = {
    "efforts of a codec's table": ("claude-opus-5-5", "reasoning_efforts", ALL_EFFORTS, TABLE),
    "a budget is an effort, too": ("claude-sonnet-4-5", "reasoning_efforts", ("low", "medium", "high"), TABLE),
    "a model that does not think": ("gpt-4o", "reasoning_efforts", (), "Toolwire's table of openai-responses models"),
    "efforts of another vendor": ("grok-3-mini", "reasoning_efforts", ("low", "high"), KNOWN),
    "modalities": ("gpt-4", "input_modalities", ("text",), KNOWN),
    "tools": ("gpt-5", "tools", True, KNOWN),
    "no tools": ("o1-mini", "tools", False, KNOWN),
    "one call at a time": ("o3", "parallel_tools", False, KNOWN),
    "the file wins": ("lab-large", "input_modalities", ("text", "image"), '[models."lab-*".facts]'),
    "the file says no": ("lab-large", "tools", False, '[models."lab-*".facts]'),
    "unknown": ("lab-large", "parallel_tools", None, ""),
}


@pytest.mark.parametrize(("model", "name", "value", "source"), CAPABILITIES.values(), ids=list(CAPABILITIES))
def test_what_a_model_can_do_has_a_source(config: Config, model: str, name: str, value: object, source: str) -> None:
    found = {fact.name: fact for fact in FactFinder(Router(config)).explain_facts(model)}
    assert (found[name].value, found[name].source) == (value, source)


# --- the catalogue and the codecs -----------------------------------------------------------------------------------

VENDORS = {"openai": ("openai-chat", "openai-responses"), "anthropic": ("anthropic",), "google": ("gemini",)}
"""The providers of the catalogue whose models a codec has a table of."""


def chat_models(vendor: str) -> list[str]:
    """The names of a vendor's models that `known_models.toml` says something about. Google serves Claude, too."""
    known = [model.id for model in _load_models(vendor) if _find_known_facts(vendor, model.id) != NO_FACTS]
    return [name for name in known if name.startswith("claude") == (vendor == "anthropic")]


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_catalogue_does_not_contradict_the_codecs(vendor: str) -> None:
    """What a codec's table knows, the list of known models leaves to it, or says the same."""
    names = chat_models(vendor)
    assert len(names) > 15
    for model, protocol in product(names, VENDORS[vendor]):
        known, table = _find_known_facts(vendor, model), find_codec(protocol).http.find_model_facts(model)
        for name in ModelFacts.__struct_fields__:
            values = {getattr(known, name), getattr(table, name)} - {None}
            assert len(values) <= 1, (model, name, values)


@pytest.mark.parametrize("vendor", load_known_models())
def test_an_answer_fits_into_the_window(vendor: str) -> None:
    codecs = [find_codec(protocol) for protocol in VENDORS.get(vendor, ())]
    checked = 0
    for model in _load_models(vendor):
        known = _find_known_facts(vendor, model.id)
        window = known.context_window or model.context_window
        for facts in (known, *(codec.http.find_model_facts(model.id) for codec in codecs)):
            if window is not None and facts.max_output_tokens is not None:
                assert facts.max_output_tokens <= window, model.id
                checked += 1
    assert checked or not any(row.max_output_tokens for row in load_known_models()[vendor].models)


def test_the_tables_of_the_codecs_know_the_models_of_the_catalogue() -> None:
    """A new family of models is in the codec's table before it is in the catalogue, or this test says so."""
    find_facts = {vendor: find_codec(protocols[0]).http.find_model_facts for vendor, protocols in VENDORS.items()}
    unknown = [
        model
        for vendor in VENDORS
        for model in chat_models(vendor)
        if find_facts[vendor](model).reasoning_efforts is None and not model.startswith(WITHOUT_FAMILY)
    ]
    assert unknown == []


WITHOUT_FAMILY = ("gemma-", "gpt-audio", "claude-v1")
"""The codecs treat them as unknown models."""


LOADED_LATE = """
import tracemalloc
from toolwire.gateway import app
from toolwire.gateway.configuration.load import read_opened_config
from toolwire.gateway.models import catalogue

read_opened_config(None, {"OPENAI_API_KEY": "k", "HOME": "/nowhere"})
assert catalogue.load_catalogue.cache_info().currsize == 0, "nobody has asked for a fact yet"
tracemalloc.start()
for provider in catalogue.load_catalogue().providers:
    catalogue._load_models(provider)
catalogue.load_known_models()
print(tracemalloc.get_traced_memory()[0])
"""


def test_the_catalogue_is_loaded_late_and_small() -> None:
    run = subprocess.run([sys.executable, "-c", LOADED_LATE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert 0 < int(run.stdout) < 10_000_000


def test_every_line_of_the_list_of_known_models_is_about_a_vendor_of_the_catalogue() -> None:
    assert set(load_known_models()) <= set(load_catalogue().providers)
