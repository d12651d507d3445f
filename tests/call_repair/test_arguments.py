"""Arguments against the schema of their tool: what is mended, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire.call_repair.arguments import mend_arguments
from toolwire.call_repair.calls import repair_arguments
from toolwire.core.json_values import decode_object, encode_text

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": name} for name in ("string", "integer", "number", "boolean"))
STRINGS, INTEGERS = ({"type": "array", "items": items} for items in (STRING, INTEGER))


def schema_of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


POINT = schema_of("x", x=INTEGER, y=INTEGER)
COLOUR = {"type": "string", "enum": ["red", "dark_red", "BLUE"]}

# schema of `a`, the value that came, the value that goes on
VALUES: dict[str, tuple[Any, str, str]] = {
    "array in a string": (STRINGS, r'"[\"test\"]"', '["test"]'),
    "near-JSON in a string": (STRINGS, "\"['x', 'y']\"", '["x","y"]'),
    "object in a string": (POINT, r'"{\"x\": \"1\"}"', '{"x":1}'),
    "array of objects in a string": ({"type": "array", "items": POINT}, r'"[{\"x\": 1}]"', '[{"x":1}]'),
    "integer in a string": (INTEGER, '"-42"', "-42"),
    "integer with zeros in a string": (INTEGER, '"007"', "7"),
    "number in a string": (NUMBER, '"1.50"', "1.50"),
    "whole number in a string": (NUMBER, '"5"', "5"),
    "boolean in a string": (BOOLEAN, '"True"', "true"),
    "boolean in a string, false": (BOOLEAN, '"FALSE"', "false"),
    "null in a string": ({"type": ["integer", "null"]}, '"null"', "null"),
    "integer or boolean": ({"type": ["integer", "boolean"]}, '"true"', "true"),
    "number as a string": (STRING, "18956", '"18956"'),
    "number as a string, as it is spelled": (STRING, "1.50", '"1.50"'),
    "number as a string, nullable": ({"anyOf": [STRING, {"type": "null"}]}, "5", '"5"'),
    "number as a listed string": ({"enum": ["1", "2"]}, "1", '"1"'),
    "boolean as a listed string": ({"enum": ["true", "false", "auto"]}, "true", '"true"'),
    "fraction of zero": (INTEGER, "5.0", "5"),
    "fraction of zero, inside": (INTEGERS, "[1.0, 2]", "[1,2]"),
    "case of a listed value": (COLOUR, '"Red"', '"red"'),
    "separators of a listed value": (COLOUR, '"dark-red"', '"dark_red"'),
    "blanks around a listed value": (COLOUR, '" BLUE "', '"BLUE"'),
    "listed values in anyOf": ({"anyOf": [COLOUR, {"type": "null"}]}, '"blue"', '"BLUE"'),
    "listed values in a list": ({"type": "array", "items": COLOUR}, '["RED", "BLUE"]', '["red","BLUE"]'),
    "one string for an array": (STRINGS, '"x"', '["x"]'),
    "one integer for an array": (INTEGERS, "5", "[5]"),
    "one object for an array": ({"type": "array", "items": POINT}, '{"x": 1}', '[{"x":1}]'),
    "by reference": ({"$ref": "#/$defs/n"}, '"5"', "5"),
    "by reference, inside": ({"type": "array", "items": {"$ref": "#/$defs/p"}}, '[{"x": "5"}]', '[{"x":5}]'),
    "allOf": ({"allOf": [{"description": "d"}, INTEGER]}, '"5"', "5"),
    "oneOf": ({"oneOf": [INTEGER, BOOLEAN]}, '"5"', "5"),
    "a listed number": ({"enum": [1, 2]}, '"2"', "2"),
    "inside of objects": (POINT, '{"x": "1", "y": null}', '{"x":1}'),
    "key inside": (POINT, '{"X": 1}', '{"x":1}'),
    "in a map": ({"type": "object", "additionalProperties": INTEGER}, '{"k": "1"}', '{"k":1}'),
    "first items": ({"type": "array", "prefixItems": [INTEGER, STRING], "items": False}, '["1", "1"]', '[1,"1"]'),
    "alternatives of objects": ({"anyOf": [POINT, schema_of("z", z=BOOLEAN)]}, '{"z": "true"}', '{"z":true}'),
}

LEFT_ALONE: dict[str, tuple[Any, str]] = {
    "JSON text for a string": (STRING, r'"{\"a\": 1}"'),
    "a number in text for a string": (STRING, '"007"'),
    "null in text for a string or null": ({"type": ["string", "null"]}, '"null"'),
    "none for null": ({"type": ["integer", "null"]}, '"none"'),
    "words for an integer": (INTEGER, '"abc"'),
    "a date for an integer": (INTEGER, '"2026-01-15"'),
    "a fraction for an integer": (INTEGER, '"5.5"'),
    "a fraction for an integer, as a number": (INTEGER, "5.5"),
    "yes for a boolean": (BOOLEAN, '"yes"'),
    "1 for a boolean": (BOOLEAN, "1"),
    "true for a string": (STRING, "true"),
    "an object for a string": (STRING, '{"a":1}'),
    "a list for a string": (STRING, '["a"]'),
    "items of the wrong type in a string": (INTEGERS, r'"[\"x\"]"'),
    "an array or a string": ({"anyOf": [STRINGS, STRING]}, r'"[\"x\"]"'),
    "perhaps a list in text": (STRINGS, '"x, y"'),
    "the wrong type for an array": (INTEGERS, '"5"'),
    "an array of anything": ({"type": "array"}, '"x"'),
    "an array of anything, said": ({"type": "array", "items": {"description": "d"}}, '"x"'),
    "an unknown listed value": (COLOUR, '"green"'),
    "a listed number with a point": ({"enum": ["10", "20"]}, '"1.0"'),
    "a listed version": ({"enum": ["v10", "v20"]}, '"v1.0"'),
    "a listed number with a sign": ({"enum": ["5"]}, '"-5"'),
    "a listed order": ({"enum": ["name", "date"]}, '"-name"'),
    "two listed values": ({"enum": ["a_b", "A-B"]}, '"a b"'),
    "out of bounds": ({"type": "integer", "maximum": 3}, '"5"'),
    "too long": ({"type": "string", "maxLength": 2}, "12345"),
    "no match for a pattern": ({"type": "string", "pattern": "^[a-z]+$"}, "12345"),
    "nothing known": ({}, '"5"'),
    "no value": (False, '"5"'),
    "a map's key": ({"type": "object", "properties": {"x": INTEGER}, "additionalProperties": INTEGER}, '{"X":1}'),
    "rivals": (POINT, '{"x":1,"X":2}'),
    "null in a list": (INTEGERS, "[null]"),
    "an exponent": (INTEGER, "1e3"),
    "keys of separators": (schema_of(_=INTEGER), '{"-":1}'),
    "null beside a rival": (POINT, '{"x":1,"y":null,"Y":null}'),
}


def root_with(schema: Any) -> dict[str, Any]:
    return {**schema_of(a=schema), "$defs": {"n": INTEGER, "p": POINT}}


@pytest.mark.parametrize("case", VALUES)
def test_values_are_mended(case: str) -> None:
    schema, came, wanted = VALUES[case]
    mended = mend_arguments(decode_object(f'{{"a":{came}}}'), root_with(schema))
    assert encode_text(mended.value) == f'{{"a":{wanted}}}'
    assert mended.repairs
    assert mend_arguments(mended.value, root_with(schema)).repairs == ()


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_values_are_left_alone(case: str) -> None:
    schema, came = LEFT_ALONE[case]
    value = decode_object(f'{{"a":{came}}}')
    mended = mend_arguments(value, root_with(schema))
    assert mended.value is value
    assert mended.repairs == ()


TOOL = schema_of("path", path=STRING, max_lines=INTEGER, tags=STRINGS)
ONE = schema_of("city", city=STRING, units={"enum": ["metric"]})
NOTHING = schema_of()

# schema, the arguments that came, the arguments that go on
WHOLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "arguments": (TOOL, '{"arguments": {"path": "a"}}', '{"path":"a"}'),
    "parameters": (TOOL, '{"parameters": {"path": "a", "max_lines": "5"}}', '{"path":"a","max_lines":5}'),
    "properties": (TOOL, '{"properties": {"path": "a"}}', '{"path":"a"}'),
    "input as a string": (TOOL, r'{"input": "{\"path\": \"a\"}"}', '{"path":"a"}'),
    "two wrappers": (TOOL, '{"arguments": {"input": {"path": "a"}}}', '{"path":"a"}'),
    "the whole call": (TOOL, '{"name": "read", "arguments": {"path": "a"}}', '{"path":"a"}'),
    "the whole call, as a string": (TOOL, r'{"function": "read", "parameters": "{\"path\": \"a\"}"}', '{"path":"a"}'),
    "a key with a tag": (TOOL, '{"path</arg_key>": "a", "max_lines": 5}', '{"path":"a","max_lines":5}'),
    "an empty list": (TOOL | {"required": []}, "[]", "{}"),
    "a key's case": (TOOL, '{"Path": "a", "maxLines": 5, "TAGS": "x"}', '{"path":"a","max_lines":5,"tags":["x"]}'),
    "a key's separator": (TOOL, '{"path": "a", "max-lines": "5"}', '{"path":"a","max_lines":5}'),
    "null for an optional property": (TOOL, '{"path": "a", "max_lines": null}', '{"path":"a"}'),
    "a list of one object": (TOOL, '[{"path": "a"}]', '{"path":"a"}'),
    "the only required value": (ONE, '"Paris"', '{"city":"Paris"}'),
    "the only value": (schema_of(n=INTEGER), "5", '{"n":5}'),
    "the only value, in a string": (schema_of(n=INTEGER), '"5"', '{"n":5}'),
    "the only value, a list": (schema_of("tags", tags=STRINGS), '["a", "b"]', '{"tags":["a","b"]}'),
    "encoded twice": (TOOL, r'"{\"path\": \"a\", \"max_lines\": \"5\"}"', '{"path":"a","max_lines":5}'),
    "empty": (NOTHING, "", "{}"),
    "null": (NOTHING, "null", "{}"),
    "empty, all optional": (schema_of(n=INTEGER), '""', "{}"),
    "words without quotes": (ONE, "{city: Paris}", '{"city":"Paris"}'),
    "NaN for a string": (ONE, '{"city": NaN}', '{"city":"NaN"}'),
    "leading zeros for a string": (ONE, '{"city": 00123}', '{"city":"00123"}'),
    "leading zeros for an integer": (schema_of(n=INTEGER), '{"n": 07}', '{"n":7}'),
    "inner quotes": (ONE, '{"city": "env.get("KEY")"}', '{"city":"env.get(\\"KEY\\")"}'),
    "inner quotes in the last": (
        schema_of("path", "content", path=STRING, content=STRING),
        '{"path": "a.py", "content": "print("a", "b")\nx"}',
        '{"path":"a.py","content":"print(\\"a\\", \\"b\\")\\nx"}',
    ),
    "inner quotes before an optional property": (
        schema_of("path", path=STRING, content=STRING),
        '{"content": "say "hi" to", "path": "a.py"}',
        '{"content":"say \\"hi\\" to","path":"a.py"}',
    ),
    "inner quotes before a required property": (
        schema_of("path", "content", path=STRING, content=STRING),
        '{"content": "say "hi"", "path": "a.py"}',
        '{"content":"say \\"hi\\"","path":"a.py"}',
    ),
}

WHOLE_LEFT_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "a wrapper that is a property": (schema_of(input=POINT), '{"input": {"x": 1}}'),
    "a wrapper of other keys": (TOOL, '{"arguments": {"query": "a"}}'),
    "a wrapper of arguments that do not match": (TOOL, '{"arguments": {"max_lines": 5}}'),
    "a wrapper beside a name that is no text": (TOOL, '{"name": 1, "arguments": {"path": "a"}}'),
    "an empty list, but required": (TOOL, "[]"),
    "a wrapper beside another key": (TOOL, '{"path": "a", "arguments": {"max_lines": 5}}'),
    "an unknown key": (TOOL, '{"path": "a", "limit": "5"}'),
    "null for a required property": (TOOL, '{"path": null}'),
    "null for a property that allOf requires": (
        {**schema_of(n=INTEGER), "allOf": [{"required": ["n"]}]},
        '{"n": null}',
    ),
    "two required parameters": (schema_of("a", "b", a=STRING, b=STRING), '"x"'),
    "two objects in a list": (TOOL, '[{"path": "a"}, {"path": "b"}]'),
    "empty, but required": (TOOL, ""),
    "null, but required": (TOOL, "null"),
    "NaN for a number": (schema_of(n=NUMBER), '{"n": NaN}'),
    "words for an integer": (schema_of(n=INTEGER), "{n: five}"),
    "words under an unknown key": (schema_of(city=STRING), "{town: Paris}"),
    "a key twice": (schema_of(n=INTEGER, m=INTEGER), '{"n": 1, "n": "2"}'),
    "a key twice, elsewhere": (schema_of(n=INTEGER, m=INTEGER), '{"n": 1, "n": 2, "m": "1"}'),
    "plain text": (ONE, "Paris"),
    "two objects": (ONE, '{"city": "a"}{"city": "b"}'),
    "inner quotes before an unknown key": (schema_of("a", a=STRING), '{"a": "x "y" z", "b": "w"}'),
    "inner quotes around a member": (schema_of("a", a=STRING, b=STRING), '{"a": "f("x", "b": 1)"}'),
    "another separator": (schema_of("a", a=STRING, b=STRING), '{"a": "x"; "b": "y"}'),
    "no colon": (schema_of("a", a=STRING, b=STRING), '{"a": "x", "b" "y"}'),
    "triple quotes": (schema_of("a", a=STRING), '{"a": """x"""}'),
    "cut in a string": (ONE, '{"city": "Par'),
}


@pytest.mark.parametrize("case", WHOLE)
def test_arguments_are_mended(case: str) -> None:
    schema, came, wanted = WHOLE[case]
    repaired = repair_arguments(came, schema)
    assert repaired.text.replace(": ", ":") == wanted.replace(": ", ":")
    assert repaired.repairs
    assert repaired.problem == ""
    assert repair_arguments(repaired.text, schema).repairs == ()


@pytest.mark.parametrize("case", WHOLE_LEFT_ALONE)
def test_arguments_are_left_alone(case: str) -> None:
    schema, came = WHOLE_LEFT_ALONE[case]
    repaired = repair_arguments(came, schema)
    assert repaired.text == came
    assert repaired.repairs == ()


PROBLEMS = {
    '{"path": "a", "max_lines": "x"}': "The arguments do not match the schema: /max_lines: expected a whole number, got a string.",
    "{}": "The arguments do not match the schema: the arguments: `path` is missing.",
    "[1, 2]": "The arguments must be a JSON object, not an array.",
    '{"path": "a': "The arguments are not JSON: Unterminated string starting at line 1 column 10.",
    "": "The arguments do not match the schema: the arguments: `path` is missing.",
}


@pytest.mark.parametrize("came", PROBLEMS)
def test_the_problem_is_said(came: str) -> None:
    assert repair_arguments(came, TOOL).problem == PROBLEMS[came]


def test_a_cut_is_said() -> None:
    assert repair_arguments('{"path": "a', TOOL, is_cut=True).problem == "The arguments were cut off before their end."
    assert repair_arguments('{"path": "a"}', TOOL, is_cut=True).problem == ""
