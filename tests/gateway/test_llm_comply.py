"""llm-comply, a third party's tests of answers with the vendors' own schemas: each protocol's, with the embedded model and
with a scripted provider behind the gateway.

Between two of one protocol bytes pass, and the judge would only judge the script. Its fifth format, Gemini's Interactions,
is a protocol that the gateway does not speak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import llm_comply
import pytest
from llm_comply import runner, schema, test_case
from llm_comply.config import ComplianceConfig
from llm_comply.http import close_client
from llm_comply.result import TestResult as Verdict
from llm_comply.tests import get_tests

from gateway.conftest import MODELS, configuration, only_where, provider_name, serve_config
from gateway.provider import PROTOCOLS, Provider, Received, Script, ScriptedAnswer, Step
from waits import PATIENCE

EMBEDDED = "loopback"
TARGETS = (EMBEDDED, *PROTOCOLS)
FORMATS = {
    "openai-chat": ("openai-chat", "/v1", "openai_chat.json"),
    "openai-responses": ("open-responses", "/v1", "openresponses.json"),
    "anthropic": ("anthropic", "/v1", "anthropic.json"),
    "gemini": ("google-genai", "", ""),
}
"""By protocol: the judge's name of it, the address that it wants, and its file of schemas."""
STREAMED = {
    "openai-chat": ("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"),
    "openai-responses": ("ResponseResource", ""),
    "anthropic": ("Message", "MessageStreamEvent"),
}
"""The schema of whole answers, and the one of every event of a stream; the judge itself looks only at those of Responses."""
EVENTS_OF_SUMMARIES = {
    "response.reasoning_summary_text.delta": "ResponseReasoningSummaryDeltaStreamingEvent",
    "response.reasoning_summary_text.done": "ResponseReasoningSummaryDoneStreamingEvent",
}
"""As its schemas name them; its own table of events does not."""
TESTS = [(protocol, test) for protocol, (format, _, _) in FORMATS.items() for test in get_tests(format)]
WHOLE = [(protocol, test) for protocol, test in TESTS if test.schema_name == STREAMED.get(protocol, ("",))[0]]
MODEL = "gpt-5-claude-opus-{}"
"""A name by which the judge leaves out nothing: some of its tests are for models that think."""

pytestmark = [
    pytest.mark.parametrize("target", TARGETS),
    pytest.mark.filterwarnings("ignore:jsonschema.RefResolver is deprecated:DeprecationWarning"),
]


def parametrize(tests: list[tuple[str, test_case.TestCase]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("source", "test"), tests, ids=[f"{source}:{test.id}" for source, test in tests])


@pytest.fixture(autouse=True)
def _named_events(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, event in EVENTS_OF_SUMMARIES.items():
        monkeypatch.setitem(schema.SSE_EVENT_TO_SCHEMA, name, event)


@pytest.fixture(scope="module")
def own_provider() -> Iterator[Provider]:
    scripted = Provider()
    yield scripted
    scripted.close()


@pytest.fixture(scope="module")
def address(own_provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    named = {EMBEDDED: (EMBEDDED, EMBEDDED)} | {name: (provider_name(name), MODELS[name]) for name in PROTOCOLS}
    rules = [
        f'[models."{MODEL.format(target)}"]\nprovider = "{provider}"\nmodel = "{model}"\n'
        for target, (provider, model) in named.items()
    ]
    file = tmp_path_factory.mktemp("llm-comply") / "toolwire.toml"
    file.write_text(configuration(own_provider.url) + "".join(rules))
    with serve_config(file) as url:
        yield url
    close_client()


def answer_judge(asked: Received) -> ScriptedAnswer:
    """A call if there are tools, else a text. Chat has no words for thoughts."""
    thought = "" if asked.protocol == "openai-chat" else "They ask, so I answer."
    if asked.body.get("tools"):
        return ScriptedAnswer("Let me look.", (("get_weather", {"location": "San Francisco, CA"}),), thought)
    return ScriptedAnswer("One, two, three, four, five.", (), thought)


@cache
def load_schemas(protocol: str) -> schema.SpecLoader:
    file = FORMATS[protocol][2]
    schemas = schema.SpecLoader(str(Path(llm_comply.__file__).parent / "specs" / file) if file else None)
    if protocol == "openai-chat":  # the vendor's `nullable` stands beside a list of values, which the judge forgets
        chunk = schemas.get_schema("CreateChatCompletionStreamResponse")
        chunk["properties"]["choices"]["items"]["properties"]["finish_reason"]["enum"].append(None)
    return schemas


def judge(address: str, provider: Provider, source: str, target: str, test: test_case.TestCase) -> Verdict:
    provider.strangers = Script("", [Step(answer_judge)])
    base = address + FORMATS[source][1]
    config = ComplianceConfig(base, "none", MODEL.format(target), verbose=True, timeout=PATIENCE)
    done: Verdict = runner.TestRunner(config, [test], load_schemas(source)).run_one(test)
    assert (done.status.value, done.errors) == ("passed", [])
    return done


@only_where(lambda source, target, **_: source != target)
@parametrize(TESTS)
def test_answers_pass_its_tests(
    address: str, own_provider: Provider, source: str, target: str, test: test_case.TestCase
) -> None:
    judge(address, own_provider, source, target, test)


@only_where(lambda source, target, **_: source != target)
@parametrize(WHOLE)
def test_streams_have_the_same_members(
    address: str, own_provider: Provider, source: str, target: str, test: test_case.TestCase
) -> None:
    """What it asks for whole, streamed: a response as it ends a stream, or every event for itself."""
    each = STREAMED[source][1]
    events_only = {"schema_name": None, "validators": [], "validate_stream_events": False} if each else {}
    done = judge(address, own_provider, source, target, replace(test, streaming=True, **events_only))
    assert done.stream_events
    if each:
        events = [event["data"] for event in done.stream_events if event["type"] != "[DONE]"]
        assert [wrong for event in events if (wrong := load_schemas(source).validate(event, each))] == []
