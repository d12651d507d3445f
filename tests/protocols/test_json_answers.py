"""A client that wants JSON gets JSON from every provider: by a schema that it enforces, or by an instruction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import translate
from toolwire.core.json_values import encode_text
from toolwire.core.response_format import ONLY_JSON_INSTRUCTION
from toolwire.translation.exchange import Translation
from toolwire_conformance.peers import find_violations

STRING = {"type": "string"}


def make_closed_object(**properties: Any) -> dict[str, Any]:
    names = list(properties)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


ENFORCED: dict[str, Any] = {
    "many items": make_closed_object(a={"type": "array", "items": STRING, "minItems": 2}),
    "bounds": make_closed_object(a={"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2}),
    "lengths": make_closed_object(a={"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^(?=a)"}),
    "unique items": make_closed_object(a={"type": "array", "items": STRING, "uniqueItems": True, "maxItems": 3}),
    "one of": make_closed_object(a={"oneOf": [STRING, {"type": "number"}]}),
    "all of one reference": {**make_closed_object(a={"allOf": [{"$ref": "#/$defs/A"}]}), "$defs": {"A": STRING}},
    "nothing said about other keys": {"type": "object", "properties": {"a": STRING}},
    "invalid keywords": {**make_closed_object(a={**STRING, "title": None, "pattern": 5}), "required": ["a", "a"]},
    "an anchor": {**make_closed_object(a={"$ref": "#it"}), "$defs": {"I": {**STRING, "$anchor": "it"}}},
}
INSTRUCTED: dict[str, Any] = {
    "dict[str, int]": make_closed_object(a={"type": "object", "additionalProperties": {"type": "integer"}}),
    "dict[str, int] alone": {"type": "object", "additionalProperties": {"type": "integer"}},
    "dict": make_closed_object(a={"type": "object"}),
    "Any": make_closed_object(a={}),
    "true": make_closed_object(a=True),
    "recursion": {
        **make_closed_object(tree={"$ref": "#/$defs/Tree"}),
        "$defs": {"Tree": make_closed_object(children={"type": "array", "items": {"$ref": "#/$defs/Tree"}})},
    },
    "a list without items": make_closed_object(a={"type": "array"}),
    "a tuple": make_closed_object(a={"type": "array", "prefixItems": [STRING, STRING]}),
    "pattern properties": make_closed_object(a={"type": "object", "patternProperties": {"^a": STRING}}),
    "all of a reference": {**make_closed_object(a={"allOf": [{"$ref": "#/$defs/A"}, STRING]}), "$defs": {"A": STRING}},
    "too many optional properties": {
        "type": "object",
        "properties": {f"p{number}": STRING for number in range(25)},
        "additionalProperties": False,
    },
    "too many unions": make_closed_object(**{f"p{number}": {"type": ["string", "null"]} for number in range(17)}),
    "a reference to nowhere": make_closed_object(a={"$ref": "#/$defs/A"}),
    "a reference to another file": make_closed_object(a={"$ref": "https://example.com/a.json"}),
    "values that are objects": make_closed_object(a={"enum": [{"k": 1}, [1]]}),
}


def ask_chat(response_format: Any, model: str = "claude-opus-5", **more: Any) -> Translation:
    messages = [{"role": "user", "content": "Three cities?"}]
    asked = {"model": model, "messages": messages, "response_format": response_format, **more}
    sent = translate(asked, "request", source="openai-chat", target="anthropic")
    assert find_violations("anthropic", sent.json()) == []
    return sent


def ask_schema(schema: Any, model: str = "claude-opus-5", **more: Any) -> Translation:
    return ask_chat({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}, model, **more)


@pytest.mark.parametrize("name", ENFORCED)
def test_what_can_be_enforced_is(name: str) -> None:
    body = ask_schema(ENFORCED[name]).json()
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert "system" not in body


@pytest.mark.parametrize("name", INSTRUCTED)
def test_what_cannot_be_enforced_becomes_an_instruction(name: str) -> None:
    sent = ask_schema(INSTRUCTED[name])
    assert "output_config" not in sent.json()
    assert sent.json()["system"].startswith(ONLY_JSON_INSTRUCTION)
    assert sent.json()["system"].endswith(encode_text(INSTRUCTED[name]))
    assert ("format-mapped", "/response_format") in {(loss.code, loss.path) for loss in sent.losses}


@pytest.mark.parametrize("schema", ENFORCED.values(), ids=ENFORCED)
def test_a_model_without_schemas_gets_the_instruction(schema: Any) -> None:
    assert encode_text(schema) in ask_schema(schema, "claude-sonnet-4-0").json()["system"]


def test_json_mode_becomes_an_instruction_after_the_system_prompt() -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "JSON, please."}]
    sent = ask_chat({"type": "json_object"}, messages=messages)
    assert sent.json()["system"] == f"Be short.\n\n{ONLY_JSON_INSTRUCTION}"
    assert "format-mapped" in {loss.code for loss in sent.losses}


def test_a_system_prompt_in_blocks_gets_one_more() -> None:
    blocks = [{"type": "text", "text": "Be short."}, {"type": "text", "text": "Be kind."}]
    messages = [{"role": "system", "content": blocks}, {"role": "user", "content": "JSON, please."}]
    assert ask_chat({"type": "json_object"}, messages=messages).json()["system"][-1]["text"] == ONLY_JSON_INSTRUCTION


SCHEMAS = st.recursive(
    st.sampled_from(
        [STRING, {"type": "integer", "minimum": 3}, {}, {"type": "object"}, {"type": "array"}, {"const": 1}]
    ),
    lambda inner: st.one_of(
        st.builds(lambda node: {"type": "array", "items": node, "minItems": 3}, inner),
        st.builds(lambda node: {"type": "object", "additionalProperties": node}, inner),
        st.builds(lambda one, two: {"type": "object", "properties": {"a": one, "b": two}}, inner, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(lambda node: make_closed_object(a=node), SCHEMAS),
    st.sampled_from(["claude-opus-5", "claude-3-7-sonnet-latest"]),
)
def test_a_wanted_schema_never_vanishes(schema: Any, model: str) -> None:
    sent = ask_schema(schema, model)
    body = sent.json()
    assert ("output_config" in body) != (ONLY_JSON_INSTRUCTION in body.get("system", ""))


# --- OpenAI -----------------------------------------------------------------------------------------------------------

FORMATS: dict[str, tuple[Any, bool]] = {
    "a list": ({"type": "ARRAY", "items": {"type": "STRING"}}, False),
    "a word": ({"type": "STRING", "enum": ["a", "b"]}, False),
    "an object": ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, True),
    "a list without items": ({"type": "OBJECT", "properties": {"a": {"type": "ARRAY"}}}, True),
    "a union of objects": ({"anyOf": [{"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}] * 2}, True),
}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("name", FORMATS)
def test_openai_gets_an_object_or_an_instruction(name: str, target: str) -> None:
    schema, is_enforced = FORMATS[name]
    config = {"responseMimeType": "application/json", "responseSchema": schema}
    body = {"contents": [{"role": "user", "parts": [{"text": "Three cities?"}]}], "generationConfig": config}
    sent = translate(body, "request", source="gemini", target=target, model="gpt-4.1")
    out = sent.json()
    assert find_violations(target, out) == []
    form = out.get("response_format") or out.get("text", {}).get("format")
    assert (form is not None) == is_enforced
    assert (ONLY_JSON_INSTRUCTION in sent.body.decode()) != is_enforced
    if form is not None:
        written = form.get("json_schema", form)["schema"]
        assert (written["type"], "anyOf" in written) == ("object", False)
        assert '"array"' not in encode_text(written) or '"items"' in encode_text(written)
    else:
        assert "format-mapped" in {loss.code for loss in sent.losses}


def test_other_servers_of_chat_may_enforce_any_value() -> None:
    config = {"responseMimeType": "application/json", "responseSchema": {"type": "ARRAY", "items": {"type": "STRING"}}}
    body = {"contents": [{"role": "user", "parts": [{"text": "Three cities?"}]}], "generationConfig": config}
    out = translate(body, "request", source="gemini", target="openai-chat", model="qwen3-32b").json()
    assert out["response_format"]["json_schema"]["schema"]["type"] == "array"
