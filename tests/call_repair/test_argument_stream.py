"""Arguments in a stream: what is certain flows, and the rest is mended as in a whole answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.call_repair.argument_stream import ArgumentMender
from toolwire.call_repair.arguments import mend_arguments
from toolwire.call_repair.calls import repair_arguments
from toolwire.schema.validate import value_problems

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "mode": {"enum": ["read", "write"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        "free": {},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["path"],
}
CLOSED = {**SCHEMA, "additionalProperties": False}
NEEDS_CONTENT = {**SCHEMA, "required": ["path", "content"]}
OPEN: dict[str, Any] = {"type": "object"}
SCHEMAS = [SCHEMA, CLOSED, NEEDS_CONTENT, OPEN, {}]


def stream(deltas: list[str], schema: dict[str, Any], is_cut: bool = False) -> tuple[list[str], tuple[str, ...], str]:
    mender = ArgumentMender(schema)
    out = [mender.feed(delta) for delta in deltas]
    rest, repairs = mender.close(is_cut)
    return [*out, rest], repairs, mender.problem


# the deltas that come, and what goes on after each, and at the end
FLOWS: dict[str, tuple[list[str], list[str]]] = {
    "text flows": (['{"path": "a', "b", "c\\n", 'd"}'], ['{"path": "a', "b", "c\\n", "d", '"}']),
    "an escape waits for its end": (['{"path": "a\\', "u00", 'e9"}'], ['{"path": "a', "", "\\u00e9", '"}']),
    "a pair waits for its other half": (['{"path": "\\ud83d', '\\ude42"}'], ['{"path": "', "\\ud83d\\ude42", '"}']),
    "a member flows with the next": (['{"path": "a", "co', 'ntent": "b'], ['{"path": "a', '", "content": "b', ""]),
    "a number waits for its end": (
        ['{"count": 1', "2", ', "deep": tr', "ue}"],
        ["", "", '{"count": 12', ', "deep": true', "}"],
    ),
    "a list flows as a whole": (['{"tags": ["a"', ', "b]"', "]", "}"], ["", "", '{"tags": ["a", "b]"]', "", "}"]),
    "a listed value flows as a whole": (['{"mode": "re', 'ad"', "}"], ["", '{"mode": "read"', "", "}"]),
    "an unknown key is held": (
        ['{"path": "a", "x": 1', ', "content": "b"}'],
        ['{"path": "a', "", '", "x": 1, "content": "b"}'],
    ),
    "a wrong type is held": (['{"path": "a", "count": "1', '2"', "}"], ['{"path": "a', "", "", '","count":12}']),
    "a wrong type, and more": (['{"count": "12", "path": "a"', "}"], ["", "", '{"count":12,"path":"a"}']),
    "a wrapper is held": (['{"arguments": {"path"', ': "a"}}'], ["", "", '{"path": "a"}']),
    "single quotes are held": (["{'path': 'a", "'}"], ["", "", '{"path":"a"}']),
    "a line break in a string": (['{"path": "a', "\n", 'b"}'], ['{"path": "a', "", "", '\\nb"}']),
    "a quote in a string": (['{"path": "say "', 'hi" to', ' me"}'], ['{"path": "say ', "", "", '\\"hi\\" to me"}']),
    "a brace is missing": (['{"path": "a', '"'], ['{"path": "a', "", '"}']),
    "a brace too many": (['{"path": "a"', "}", "}"], ['{"path": "a', "", "", '"}']),
    "null is left out": (['{"path": "a", "count": null', "}"], ['{"path": "a', "", '"}']),
    "nothing": ([""], ["", ""]),
}


@pytest.mark.parametrize("case", FLOWS)
def test_what_is_certain_flows(case: str) -> None:
    deltas, wanted = FLOWS[case]
    out, _, _ = stream(deltas, SCHEMA)
    assert [piece.replace('{"path": "a"}', '{"path":"a"}') for piece in out[:-1]] == wanted[: len(out) - 1]
    assert "".join(out).replace(": ", ":") == "".join(wanted).replace(": ", ":")


def test_what_cannot_be_mended_goes_on_as_it_came() -> None:
    deltas = ['{"path": "rm -rf /tmp', "/bui"]
    out, repairs, problem = stream(deltas, SCHEMA, is_cut=True)
    assert ("".join(out), repairs) == ("".join(deltas), ())
    assert problem == "The arguments were cut off before their end."


def test_a_problem_is_said_though_all_flowed() -> None:
    out, repairs, problem = stream(['{"content": "a"}'], SCHEMA)
    assert ("".join(out), repairs) == ('{"content": "a"}', ())
    assert "`path` is missing" in problem


# --- laws ---------------------------------------------------------------------------------------------------------------

keys = st.sampled_from([*SCHEMA["properties"], "Path", "max", "arguments", "PATH", "co-unt", "input", 'q"', "é"])
texts = st.text(alphabet='ab"\\{}[],: \n🙂é\x01', max_size=6) | st.sampled_from(
    ["5", "true", "read", "Write", "null", "[1]", '["a"]', '{"x": "1"}']
)
scalars = texts | st.integers(-9, 99) | st.booleans() | st.none() | st.sampled_from([1.5, 2.0, 1e300])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys | st.just("x"), inner, max_size=2)
)
objects = st.dictionaries(keys, values, max_size=4)
spelled = st.builds(
    lambda value, indent: json.dumps(value, indent=indent, ensure_ascii=indent is None),
    objects,
    st.sampled_from([None, 1]),
)
FAULTS = ['"', "'", ",", "}", "{", "\\", "\\n", "\n", "//x\n", "True", " ", "]", "\\ud83d", "NaN", "path", "07"]


@st.composite
def damaged_arguments(draw: st.DrawFn) -> str:
    """Arguments with a few characters taken out or put in."""
    text = draw(spelled)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(FAULTS)) + text[at + draw(st.integers(0, 2)) :]
    if draw(st.integers(0, 9)) == 0 and text.endswith("}") and len(text) > 2:
        text = f'{text[:-1]}, "{draw(keys)}": {json.dumps(draw(scalars))}}}'  # perhaps a key twice
    return draw(st.sampled_from([text, text, text.replace('"', "'"), text.rstrip("}"), json.dumps(text), f"[{text}]"]))


def split(text: str, places: list[int]) -> list[str]:
    cuts = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(cuts)]


schemas = st.sampled_from(SCHEMAS)
places = st.lists(st.integers(0, 500), max_size=6)


@given(text=damaged_arguments() | spelled, schema=schemas, places=places, is_cut=st.booleans())
def test_every_split_gives_the_same_as_the_whole(
    text: str, schema: dict[str, Any], places: list[int], is_cut: bool
) -> None:
    whole = repair_arguments(text, schema, is_cut=is_cut)
    for deltas in (split(text, places), list(text), [text]):
        out, repairs, problem = stream(deltas, schema, is_cut)
        assert (repairs, problem) == (whole.repairs, whole.problem)
        if whole.repairs:
            assert json.loads("".join(out)) == json.loads(whole.text)
        else:
            assert "".join(out) == text == whole.text


@given(value=objects, schema=schemas, indent=st.sampled_from([None, 1]))
def test_what_is_mended_is_mended_once(value: dict[str, Any], schema: dict[str, Any], indent: int | None) -> None:
    once = repair_arguments(json.dumps(value, indent=indent), schema)
    again = repair_arguments(once.text, schema)
    assert (again.text, again.repairs, again.problem) == (once.text, (), once.problem)


@given(value=objects, schema=schemas)
def test_a_repair_makes_no_new_problem(value: dict[str, Any], schema: dict[str, Any]) -> None:
    mended = mend_arguments(value, schema)
    before, after = value_problems(value, schema), value_problems(mended.value, schema)
    assert len(after) <= len(before)
    if not mended.repairs:
        assert mended.value is value


@given(text=damaged_arguments(), schema=schemas)
def test_no_character_is_invented(text: str, schema: dict[str, Any]) -> None:
    """Strings have no character that did not come; names of properties may come from the schema."""
    repaired = repair_arguments(text, schema)
    if not repaired.repairs or repaired.value is None:
        return
    escaped = {chr(int(code, 16)) for code in re.findall(r"\\u([0-9a-fA-F]{4})", text)}
    came = {*text, *escaped, *"\n\r\t\b\f\ufffd"}
    todo: list[Any] = [repaired.value]
    while todo:
        node = todo.pop()
        if isinstance(node, str) and node not in ("read", "write"):
            assert {one for one in node if ord(one) < 0x10000} <= came  # others may be pairs of escapes
        todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


fitting = st.fixed_dictionaries(
    {"path": st.text(max_size=20)},
    optional={
        "content": st.text(max_size=20),
        "mode": st.sampled_from(["read", "write"]),
        "count": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "deep": st.booleans(),
        "tags": st.lists(st.text(max_size=3)),
        "point": st.fixed_dictionaries({"x": st.integers()}),
        "free": values,
        "either": st.none() | st.text(max_size=3),
    },
)


@given(value=fitting, indent=st.sampled_from([None, 0, 2]), places=places, is_cut=st.booleans())
def test_what_is_right_passes_byte_for_byte(
    value: dict[str, Any], indent: int | None, places: list[int], is_cut: bool
) -> None:
    text = json.dumps(value, indent=indent)
    out, repairs, problem = stream(split(text, places), CLOSED, is_cut)
    assert ("".join(out), repairs, problem) == (text, (), "")


# --- faults that models make, put into arguments that are right -------------------------------------------------------

plain = st.text(alphabet="abc XYZ059.,:;{}[]()<>/#'\"`éü数🙂\n\t_-=", max_size=12)
sure = st.fixed_dictionaries(
    {"path": plain},
    optional={
        "content": plain,
        "mode": st.sampled_from(["read", "write"]),
        "count": st.integers(-999, 9999),
        "ratio": st.sampled_from([0.5, 12.25, -3.0]),
        "deep": st.booleans(),
        "tags": st.lists(plain, max_size=3),
        "point": st.fixed_dictionaries({"x": st.integers(-9, 99)}),
        "either": st.none() | plain.filter(lambda text: text != "null"),
    },
)


def indent_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


MAKE_FAULT: dict[str, Callable[[dict[str, Any]], str]] = {
    "Python": repr,
    "trailing comma": lambda value: json.dumps(value)[:-1] + ",}",
    "trailing commas": lambda value: indent_json(value).replace("\n}", ",\n}").replace('"\n ]', '",\n ]'),
    "raw control characters": lambda value: indent_json(value).replace("\\n", "\n").replace("\\t", "\t"),
    "encoded twice": lambda value: json.dumps(json.dumps(value)),
    "arguments": lambda value: json.dumps({"arguments": value}),
    "parameters as a string": lambda value: json.dumps({"parameters": json.dumps(value)}),
    "a list": lambda value: json.dumps([value]),
    "no last brace": lambda value: json.dumps(value)[:-1],
    "a brace too many": lambda value: json.dumps(value) + "}",
    "comments": lambda value: indent_json(value).replace(",\n", ', // it\'s "so"\n'),
    "escaped line breaks": lambda value: json.dumps(value, indent=0, ensure_ascii=False).replace("\n", "\\n"),
    "missing commas": lambda value: indent_json(value).replace(',\n "', '\n "'),
    "keys without quotes": lambda value: re.sub(r'^ "(\w+)":', r" \1:", indent_json(value), flags=re.MULTILINE),
    "a fence": lambda value: f"```json\n{indent_json(value)}\n```",
    "an end token": lambda value: json.dumps(value) + "<|im_end|>",
    "texts": lambda value: json.dumps(
        {key: item if isinstance(item, str | None) else json.dumps(item) for key, item in value.items()}
    ),
    "upper-case keys": lambda value: json.dumps({key.upper(): item for key, item in value.items()}),
    "upper-case values": lambda value: json.dumps(
        {**value, **({"mode": value["mode"].upper()} if "mode" in value else {})}
    ),
    "nulls": lambda value: json.dumps({"count": None, "tags": None, **value}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", MAKE_FAULT)
@given(value=sure)
def test_a_fault_is_undone(fault: str, value: dict[str, Any]) -> None:
    text = MAKE_FAULT[fault](value)
    repaired = repair_arguments(text, CLOSED)
    assert repaired.value is not None
    assert json.loads(repaired.text) == value
    out, repairs, problem = stream([text[at : at + 5] for at in range(0, len(text), 5)], CLOSED)
    assert json.loads("".join(out)) == value
    assert (repairs, problem) == (repaired.repairs, "")


# --- large arguments: a step of quadratic time would never end --------------------------------------------------------------

MEGABYTE = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("piece", "end"),
    [
        ("x", '"}'),
        ("\\n", '"}'),
        ("\n", '"}'),
        ('"', '"}'),
        ('", "', '"}'),
        ('"}', '"}'),
        ("\\d", '"}'),
        ("x", ""),
        ('", "path": "', '"}'),
    ],
)
def test_a_megabyte_in_small_deltas(piece: str, end: str) -> None:
    text = '{"path": "' + piece * (MEGABYTE // len(piece)) + end
    out, _, _ = stream([text[at : at + 4] for at in range(0, len(text), 4)], SCHEMA)
    assert len("".join(out)) >= MEGABYTE


@pytest.mark.slow
@pytest.mark.parametrize("item", ["'a',", "1,", "{},", "[],", "[", "{a:", '"a" ', "/*", "//\n", "\\n", "a ", '"', "{"])
def test_a_megabyte_of_near_json(item: str) -> None:
    text = '{"tags": [' + item * (MEGABYTE // len(item)) + "]}"
    out, _, _ = stream([text], SCHEMA)
    assert "".join(out)
