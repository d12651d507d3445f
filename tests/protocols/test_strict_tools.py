"""Tools for OpenAI: schemas that it would refuse are repaired, and strict tools keep their optional properties.

An optional property of a strict tool is a required one that may be null. On the way back such a null is removed, in
whole answers and in streams, so that the client gets arguments of its own schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Stream, translate
from toolwire.schema.repair import convert_to_openai_parameters, convert_to_openai_strict, restore_arguments
from toolwire.schema.strict import strict_problems
from toolwire.schema.validate import schema_problems, value_problems
from toolwire_conformance.peers import find_violations

STRING: dict[str, Any] = {"type": "string"}
NULL: dict[str, Any] = {"type": "null"}
OPENAI = ("openai-chat", "openai-responses")


def anthropic_request(*schemas: Any, strict: bool = True) -> dict[str, Any]:
    tools = [{"name": f"f{n}", "input_schema": schema, "strict": strict} for n, schema in enumerate(schemas)]
    user = {"role": "user", "content": "Hello."}
    return {"model": "gpt-4.1", "max_tokens": 99, "messages": [user], "tools": tools}


def sent_tools(target: str, *schemas: Any, strict: bool = True) -> list[dict[str, Any]]:
    sent = translate(anthropic_request(*schemas, strict=strict), "request", source="anthropic", target=target)
    assert find_violations(target, sent.json()) == []
    return [tool.get("function", tool) for tool in sent.json()["tools"]]


def make_closed_object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# --- references -------------------------------------------------------------------------------------------------------

REFERENCES: dict[str, tuple[Any, str | None]] = {
    "an anchor": ({"$ref": "#it"}, "#/$defs/I"),
    "a dynamic anchor": ({"$dynamicRef": "#dyn"}, "#/$defs/D"),
    "an id": ({"$ref": "item"}, "#/$defs/a~1b"),
    "the id of the root": ({"$ref": "https://example.com/root#/$defs/I"}, "#/$defs/I"),
    "a pointer": ({"$ref": "#/$defs/I"}, "#/$defs/I"),
    "another file": ({"$ref": "other.json#/definitions/x"}, None),
    "another host": ({"$ref": "https://example.com/other.json"}, None),
    "an anchor that is not there": ({"$ref": "#nowhere"}, None),
}
DEFINITIONS = {
    "I": {**STRING, "$anchor": "it"},
    "D": {**STRING, "$dynamicAnchor": "dyn"},
    "a/b": {**STRING, "$id": "item"},
}


@pytest.mark.parametrize("target", [*OPENAI, "gemini", "anthropic"])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_is_a_pointer_into_the_schema_or_left_out(name: str, target: str) -> None:
    reference, expected = REFERENCES[name]
    schema = {
        "$id": "https://example.com/root",
        "type": "object",
        "properties": {"a": reference, "b": STRING},
        "$defs": DEFINITIONS,
    }
    source = "openai-chat" if target == "anthropic" else "anthropic"
    body = anthropic_request(schema, strict=False)
    if source == "openai-chat":
        function = {"name": "f0", "parameters": schema}
        body = {"model": "m", "messages": body["messages"], "tools": [{"type": "function", "function": function}]}
    sent = translate(
        body, "request", source=source, target=target, model="gemini-3.8-flash" if target == "gemini" else "m"
    )
    found = json.dumps(sent.json()["tools"])
    assert find_violations(target, sent.json(), "gemini-3.8-flash" if target == "gemini" else "m") == []
    assert expected is None or f'"$ref": "{expected}"' in found
    assert "Ref" not in found
    assert found.count('"$ref"') == (expected is not None)
    assert expected == reference.get("$ref") or "schema-rewritten" in sent.ledger.codes


# --- strict tools -----------------------------------------------------------------------------------------------------

POINT = make_closed_object(["kind"], kind={"const": "point"}, label=STRING)
CIRCLE = make_closed_object(
    ["kind", "r"], kind={"const": "circle"}, r={"type": "number"}, label={"type": ["string", "null"]}
)
TREE = make_closed_object(["name"], name=STRING, children={"type": "array", "items": {"$ref": "#/$defs/Tree"}})

RESTORED: dict[str, tuple[Any, Any, Any]] = {
    "absent": (make_closed_object(["a"], a=STRING, b=STRING), {"a": "x", "b": None}, {"a": "x"}),
    "given": (make_closed_object(["a"], a=STRING, b=STRING), {"a": "x", "b": "y"}, {"a": "x", "b": "y"}),
    "null was allowed": (
        make_closed_object(["a"], a=STRING, b={"type": ["string", "null"]}),
        {"a": "x", "b": None},
        {"a": "x", "b": None},
    ),
    "null was allowed by a union": (make_closed_object([], b={"anyOf": [STRING, NULL]}), {"b": None}, {"b": None}),
    "null was allowed by an enum": (make_closed_object([], b={"enum": ["x", None]}), {"b": None}, {"b": None}),
    "null was allowed behind a reference": (
        {**make_closed_object([], b={"$ref": "#/$defs/B"}), "$defs": {"B": {"type": ["string", "null"]}}},
        {"b": None},
        {"b": None},
    ),
    "a reference": (
        {**make_closed_object([], b={"$ref": "#/$defs/B"}), "$defs": {"B": STRING}},
        {"b": None},
        {},
    ),
    "an enum": (make_closed_object([], b={"type": "string", "enum": ["x", "y"]}), {"b": None}, {}),
    "a constant": (make_closed_object([], b={"const": "x"}), {"b": None}, {}),
    "nothing given": (make_closed_object([], a=STRING, b={"type": "integer"}), {"a": None, "b": None}, {}),
    "inside an object": (make_closed_object(["o"], o=make_closed_object([], a=STRING)), {"o": {"a": None}}, {"o": {}}),
    "an optional object": (make_closed_object([], o=make_closed_object([], a=STRING)), {"o": None}, {}),
    "inside an array": (
        make_closed_object(["l"], l={"type": "array", "items": make_closed_object(["a"], a=STRING, b=STRING)}),
        {"l": [{"a": "x", "b": None}, {"a": "y", "b": "z"}]},
        {"l": [{"a": "x"}, {"a": "y", "b": "z"}]},
    ),
    "nulls in an array stay": (
        make_closed_object(["l"], l={"type": "array", "items": {"type": ["string", "null"]}}, o=STRING),
        {"l": [None, "x"], "o": None},
        {"l": [None, "x"]},
    ),
    "recursion": (
        {**make_closed_object(["tree"], tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": TREE}},
        {"tree": {"name": "a", "children": [{"name": "b", "children": None}]}},
        {"tree": {"name": "a", "children": [{"name": "b"}]}},
    ),
    "the first alternative": (
        make_closed_object(["s"], s={"anyOf": [POINT, CIRCLE]}),
        {"s": {"kind": "point", "label": None}},
        {"s": {"kind": "point"}},
    ),
    "the second alternative, where null is a value": (
        make_closed_object(["s"], s={"anyOf": [POINT, CIRCLE]}),
        {"s": {"kind": "circle", "r": 1, "label": None}},
        {"s": {"kind": "circle", "r": 1, "label": None}},
    ),
    "a property called null": (make_closed_object([], null=STRING, properties=STRING), {"null": None, "properties": "x"}, {"properties": "x"}),
    "other keys stay": (make_closed_object([], a=STRING), {"z": None}, {"z": None}),
}  # fmt: skip


def chat_answer(arguments: Any) -> dict[str, Any]:
    function = {"name": "f0", "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-4.1", "choices": [choice]}


def chat_stream(arguments: Any) -> bytes:
    text = json.dumps(arguments)
    pieces = [text[start : start + 3] for start in range(0, len(text), 3)]
    calls = [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f0", "arguments": ""}}]
    calls += [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    deltas: list[tuple[Any, str | None]] = [({"tool_calls": [call]}, None) for call in calls]
    frames = []
    for delta, finish in [*deltas, ({}, "tool_calls")]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1", "choices": [choice]}
        frames.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return b"".join(frames) + b"data: [DONE]\n\n"


def streamed_input(data: bytes) -> Any:
    events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: ")]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return json.loads("".join(delta.get("partial_json", "") for delta in deltas) or "{}")


@pytest.mark.parametrize("name", RESTORED)
def test_a_null_that_stands_for_absent_is_removed(name: str) -> None:
    schema, arguments, wanted = RESTORED[name]
    request = anthropic_request(schema)
    for target in OPENAI:
        (tool,) = sent_tools(target, schema)
        assert tool["strict"] is True
        assert not strict_problems(tool["parameters"])
    whole = translate(chat_answer(arguments), "response", source="openai-chat", target="anthropic", request=request)
    assert whole.json()["content"][0]["input"] == wanted
    stream = Stream(source="openai-chat", target="anthropic", request=request)
    assert streamed_input(stream.feed(chat_stream(arguments)) + stream.close()) == wanted


NOT_STRICT: dict[str, Any] = {
    "any keys": make_closed_object(["a"], a={"type": "object", "additionalProperties": STRING}),
    "free keys": make_closed_object(["a"], a={"type": "object"}),
    "open": {"type": "object", "properties": {"a": STRING}, "additionalProperties": True},
    "any value": make_closed_object(["a"], a={}),
    "several of all": make_closed_object(["a"], a={"allOf": [STRING, {"minLength": 1}]}),
    "pattern properties": make_closed_object(["a"], a={"type": "object", "patternProperties": {"^a": STRING}}),
}


@pytest.mark.parametrize("target", OPENAI)
@pytest.mark.parametrize("name", NOT_STRICT)
def test_strict_is_left_out_and_reported_where_openai_would_refuse_it(name: str, target: str) -> None:
    sent = translate(anthropic_request(NOT_STRICT[name]), "request", source="anthropic", target=target)
    (tool,) = (tool.get("function", tool) for tool in sent.json()["tools"])
    assert not tool.get("strict")
    assert find_violations(target, sent.json()) == []
    assert ("no-counterpart", "/tools/0") in {(loss.code, loss.path) for loss in sent.losses}


def test_a_schema_that_openai_accepts_as_strict_is_not_changed() -> None:
    schema = make_closed_object(["a"], a={"type": ["string", "null"], "default": None, "description": "d"})
    schema["x-optional"] = ["a"]
    assert convert_to_openai_strict(schema)[0].schema is schema


def test_the_history_keeps_its_arguments() -> None:
    """A call without the optional property comes back as it was; no provider checks earlier arguments."""
    request = anthropic_request(make_closed_object(["a"], a=STRING, b=STRING))
    call = {"type": "tool_use", "id": "toolu_1", "name": "f0", "input": {"a": "x"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
    request["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    sent = translate(request, "request", source="anthropic", target="openai-chat").json()
    assert json.loads(sent["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"a": "x"}


LEAVES = st.sampled_from(
    [STRING, {"type": "integer"}, {"type": "string", "enum": ["x", "y"]}, {"type": ["boolean", "null"]}, {"const": 1}]
)


def objects(inner: Any) -> Any:
    def build(properties: dict[str, Any], chosen: list[bool]) -> dict[str, Any]:
        return make_closed_object(
            [name for name, is_required in zip(properties, chosen, strict=False) if is_required], **properties
        )

    names = st.sampled_from(["a", "b", "items", "properties", "$defs", "null"])
    return st.builds(build, st.dictionaries(names, inner, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))


NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner), st.builds(lambda node: {"type": "array", "items": node}, inner)
    ),
    max_leaves=8,
)  # fmt: skip


@st.composite
def values_of(draw: st.DrawFn, node: Any) -> Any:
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return draw(st.sampled_from(node["enum"]))
    kind = draw(st.sampled_from(node["type"])) if isinstance(node["type"], list) else node["type"]
    if kind == "object":
        names = [name for name in node["properties"] if name in node["required"] or draw(st.booleans())]
        return {name: draw(values_of(node["properties"][name])) for name in names}
    if kind == "array":
        return draw(st.lists(values_of(node["items"]), max_size=3))
    plain = {"string": "s", "integer": 3, "boolean": True, "null": None}
    return plain[kind]


def fill(value: Any, node: Any) -> Any:
    """The value as a strict model writes it: every absent property is null."""
    if isinstance(value, dict):
        properties = node["properties"].items()
        return {name: fill(value[name], child) if name in value else None for name, child in properties}
    return [fill(item, node["items"]) for item in value] if isinstance(value, list) else value


def drop_nullable_optionals(value: Any, node: Any) -> Any:
    """Where null is a value of an optional property, absent and null cannot be told apart: null is what comes back."""
    if isinstance(value, dict):
        out = {name: drop_nullable_optionals(item, node["properties"][name]) for name, item in value.items()}
        return {name: item for name, item in out.items() if item is not None or name in node["required"]}
    return [drop_nullable_optionals(item, node["items"]) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_a_strict_model_writes_is_restored(data: st.DataObject) -> None:
    schema = data.draw(objects(NODES))
    converted, problem = convert_to_openai_strict(schema)
    value = data.draw(values_of(schema))
    written = fill(value, schema)
    if problem:
        assert "levels" in problem
        return
    assert not strict_problems(converted.schema)
    assert not value_problems(written, converted.schema)
    restored = restore_arguments(written, converted)
    assert not value_problems(restored, schema)
    assert drop_nullable_optionals(restored, schema) == drop_nullable_optionals(value, schema)


# --- schemas that OpenAI refuses --------------------------------------------------------------------------------------


def with_property(node: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": node}}


ANY_OF = [make_closed_object(["a"], a=STRING), make_closed_object(["b"], b=STRING)]
REPAIRED: dict[str, Any] = {
    "an array without items": with_property({"type": "array"}),
    "one of the types is an array": with_property({"type": ["string", "array"]}),
    "a nested array without items": with_property({"type": "array", "items": {"type": "array"}}),
    "in an alternative": with_property({"anyOf": [STRING, {"type": "array"}]}),
    "in a definition": {**with_property({"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "array"}}},
    "tuple items": with_property({"type": "array", "items": [STRING, {"type": "number"}]}),
    "tuple items and no others": with_property({"type": "array", "items": [STRING], "additionalItems": False}),
    "empty tuple items": with_property({"type": "array", "items": []}),
    "prefix items": with_property({"type": "array", "prefixItems": [STRING]}),
    "null items": with_property({"type": "array", "items": None}),
    "anyOf at the root": {"type": "object", "properties": {"a": STRING, "b": STRING}, "anyOf": [{"required": ["a"]}]},
    "only anyOf at the root": {"anyOf": ANY_OF},
    "anyOf of objects": {"type": "object", "anyOf": ANY_OF},
    "oneOf at the root": {"type": "object", "oneOf": ANY_OF},
    "allOf at the root": {"type": "object", "allOf": ANY_OF},
    "not at the root": {**with_property(STRING), "not": {"required": ["b"]}},
    "enum at the root": {**with_property(STRING), "enum": [{"a": "x"}]},
    "if at the root": {**with_property(STRING), "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "exclusive minimum of draft 4": with_property({"type": "number", "minimum": 1, "exclusiveMinimum": True}),
    "exclusive maximum of draft 4": with_property({"type": "number", "maximum": 1, "exclusiveMaximum": False}),
    "exclusive without a bound": with_property({"type": "number", "exclusiveMinimum": True}),
    "a reference at the root": {"$ref": "#/$defs/A", "$defs": {"A": with_property(STRING)}},
    "a reference to itself": {"$ref": "#/$defs/A", "$defs": {"A": with_property({"$ref": "#/$defs/A"})}},
    "a reference to nowhere": with_property({"$ref": "#/$defs/Missing"}),
    "required in a property": with_property({"type": "string", "required": True}),
    "no properties": {"type": "object"},
    "properties of PHP": {"type": "object", "properties": []},
    "no type": {"properties": {"a": STRING}},
    "an empty schema": {},
    "an array at the root": {"type": "array", "items": STRING},
    "types in upper case": {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}},
    "an unknown type": with_property({"type": "any"}),
    "a property that is a word": with_property("string"),
    "a property that is null": with_property(None),
    "a count as text": with_property({"type": "string", "minLength": "1"}),
    "a count that is none": with_property({"type": "string", "minLength": -1}),
    "a bound as text": with_property({"type": "number", "minimum": "1"}),
    "a pattern that is none": with_property({"type": "string", "pattern": "["}),
    "a pattern of ECMAScript": with_property({"type": "string", "pattern": "^\\p{Emoji}+$"}),
    "a description of null": with_property({"type": "string", "description": None}),
    "required of null": {**with_property(STRING), "required": None},
    "required twice": {**with_property(STRING), "required": ["a", "a"]},
    "an enum of null": with_property({"type": "string", "enum": None}),
    "an empty union": with_property({"anyOf": []}),
    "definitions of null": {**with_property(STRING), "$defs": None},
}


def nest_schema(depth: int) -> dict[str, Any]:
    node = STRING
    for _ in range(depth):
        node = with_property(node)
    return node


@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
@pytest.mark.parametrize("target", [*OPENAI, "gemini"])
@pytest.mark.parametrize("name", REPAIRED)
def test_one_bad_schema_does_not_refuse_the_request(name: str, target: str, strict: bool) -> None:
    good = make_closed_object(["a"], a=STRING)
    request = anthropic_request(good, REPAIRED[name], strict=strict)
    sent = translate(request, "request", source="anthropic", target=target)
    assert find_violations(target, sent.json(), "gpt-4.1") == []
    if target in OPENAI:
        first, second = (tool.get("function", tool) for tool in sent.json()["tools"])
        assert first["parameters"] == good
        assert schema_problems(second["parameters"]) == []
        assert second["parameters"]["type"] == "object"


@pytest.mark.parametrize("name", REPAIRED)
def test_the_same_for_anthropic(name: str) -> None:
    function = {"name": "f", "parameters": REPAIRED[name]}
    messages = [{"role": "user", "content": "Hello."}]
    request = {"model": "claude-opus-4-8", "messages": messages, "tools": [{"type": "function", "function": function}]}
    sent = translate(request, "request", source="openai-chat", target="anthropic").json()
    assert find_violations("anthropic", sent) == []
    assert schema_problems(sent["tools"][0]["input_schema"]) == []


@pytest.mark.parametrize("target", [*OPENAI, "anthropic", "gemini"])
@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
def test_a_schema_that_is_too_deep_becomes_an_open_one(target: str, strict: bool) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": nest_schema(250), "strict": strict}}
    good = {"type": "function", "function": {"name": "g", "parameters": make_closed_object(["a"], a=STRING)}}
    request = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "tools": [tool, good]}
    source = "openai-responses" if target == "openai-chat" else "openai-chat"
    if source == "openai-responses":
        request = {
            "model": "m",
            "input": "Hello.",
            "tools": [{"type": "function", **one["function"]} for one in (tool, good)],
        }
    sent = translate(request, "request", source=source, target=target)
    assert "schema-rewritten" in {loss.code for loss in sent.losses}
    assert find_violations(target, sent.json(), "m") == []


def test_what_a_repair_changes_is_reported_and_repairing_again_changes_nothing() -> None:
    for name, schema in REPAIRED.items():
        before = json.dumps(schema)
        made = convert_to_openai_parameters(schema)
        assert json.dumps(schema) == before, name
        assert made.changes or made.schema != schema, name
        again = convert_to_openai_parameters(made.schema)
        assert again.schema == made.schema, name
        assert not again.changes, name


KEYWORDS = st.sampled_from(
    ["type", "items", "properties", "required", "anyOf", "oneOf", "allOf", "enum", "minimum", "exclusiveMinimum",
     "pattern", "$ref", "$defs", "description", "additionalProperties", "prefixItems", "minItems", "not", "format"]
)  # fmt: skip
JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 9), st.sampled_from(["object", "array", "string", "#", "(", ""])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYWORDS, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYWORDS, JUNK, max_size=5), st.booleans(), st.sampled_from(OPENAI))
def test_whatever_a_client_declares_openai_has_nothing_to_refuse(schema: Any, strict: bool, target: str) -> None:
    (tool,) = sent_tools(target, schema, strict=strict)
    assert schema_problems(tool["parameters"]) == []
