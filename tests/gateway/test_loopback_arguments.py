"""The arguments that the embedded model makes: valid, and made from values in the text."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from material import CORPUS, needs_corpus
from toolwire.gateway.models.loopback import tool_calls
from toolwire.gateway.models.loopback.tool_calls import find_values, make_arguments, make_value
from toolwire.schema.standard import convert_to_standard


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}
FLAG: dict[str, Any] = {"type": "boolean"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
NODE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": schema(
            "name", name=TEXT, child={"$ref": "#/$defs/node"}, all={"type": "array", "items": {"$ref": "#/$defs/node"}}
        )
    },
}

MADE: list[tuple[str, dict[str, Any], str, Any]] = [
    ("a place", schema("city", city=TEXT), "What is the weather in New York?", {"city": "New York"}),
    ("a name in the text", schema("q1", q1=TEXT), "How is Rome?", {"q1": "Rome"}),
    ("from and to", schema("origin", "destination", origin=TEXT, destination=TEXT), "From Oslo to Rome", {"origin": "Oslo", "destination": "Rome"}),
    ("a path", schema("file_path", file_path=TEXT), "Open `src/a.py` please", {"file_path": "src/a.py"}),
    ("a path that begins at the root", schema("path", path=TEXT), "cat /etc/hosts", {"path": "/etc/hosts"}),
    ("a file as agents mention it", schema("path", path=TEXT), "Read @README.md", {"path": "README.md"}),
    ("a URL", schema("url", url={**TEXT, "format": "uri"}), "Fetch https://example.org/a?b=c.", {"url": "https://example.org/a?b=c"}),
    ("a command", schema("command", command=TEXT), "Run `git log -3` now", {"command": "git log -3"}),
    ("a command that is not quoted is harmless", schema("command", command=TEXT), "Delete everything", {"command": "echo hello"}),
    ("a command as words", schema("command", command=TEXTS), "run `grep -n 'a b' x`", {"command": ["grep", "-n", "a b", "x"]}),
    ("several commands", schema("commands", commands=TEXTS), "`ls` and `pwd`", {"commands": ["ls", "pwd"]}),
    ("several places", schema("cities", cities=TEXTS), "Compare Rome, Oslo and Bonn", {"cities": ["Rome", "Oslo", "Bonn"]}),
    ("key and value", schema("symbol", symbol=TEXT, limit=WHOLE), "symbol: ACME, limit=7", {"symbol": "ACME", "limit": 7}),
    ("an object in the text", schema("a", a={"type": "array", "items": WHOLE}, b=schema(c=FLAG)), 'with {"a": [1, 2], "b": {"c": true}}', {"a": [1, 2], "b": {"c": True}}),
    ("numbers in order", schema("a", "b", a={"type": "number"}, b={"type": "number"}), "add 2 and 3.5", {"a": 2, "b": 3.5}),
    ("numbers in bounds", schema("n", n={**WHOLE, "minimum": 10, "maximum": 20}), "take 3", {"n": 10}),
    ("no number", schema("n", n={"type": "number", "exclusiveMinimum": 4}), "some", {"n": 4.5}),
    ("a multiple", schema("n", n={**WHOLE, "multipleOf": 5}), "take 7", {"n": 10}),
    ("an enum that is mentioned", schema("unit", unit={"enum": ["celsius", "fahrenheit"]}), "in Fahrenheit", {"unit": "fahrenheit"}),
    ("an enum that is not", schema("unit", unit={"enum": ["celsius", "fahrenheit"]}), "how warm?", {"unit": "celsius"}),
    ("several of an enum", schema("days", days={"type": "array", "items": {"enum": ["mon", "tue", "wed"]}}), "mon and wed", {"days": ["mon", "wed"]}),
    ("a flag", schema("deep", recursive=FLAG, hidden=FLAG, deep=FLAG), "recursive: true, hidden=no", {"recursive": True, "hidden": False, "deep": False}),
    ("what is optional and not offered", schema("city", city=TEXT, days=WHOLE, unit={"enum": ["c", "f"]}, x=TEXT), "in Rome", {"city": "Rome"}),
    ("a date", schema("date", date={**TEXT, "format": "date"}), "on 2026-05-06", {"date": "2026-05-06"}),
    ("a date that is missing", schema("date", date={**TEXT, "format": "date"}), "some day", {"date": "2026-01-01"}),
    ("an address", schema("to", to={**TEXT, "format": "email"}), "mail a@example.org", {"to": "a@example.org"}),
    ("null for what is not offered", schema("city", "days", city=TEXT, days={"type": ["integer", "null"]}), "in Rome", {"city": "Rome", "days": None}),
    ("null as a branch", schema("city", "n", city=TEXT, n={"anyOf": [WHOLE, {"type": "null"}]}), "in Rome", {"city": "Rome", "n": None}),
    ("a nullable of another dialect", schema("days", days={"type": "INTEGER", "nullable": True}), "days: 3", {"days": 3}),
    ("the first branch", schema("v", v={"oneOf": [schema("a", a={"const": "x"}), TEXT]}), "", {"v": {"a": "x"}}),
    ("a default", schema("n", n={**WHOLE, "default": 12}), "some", {"n": 12}),
    ("a constant", schema("v", v={"const": {"a": 1}}), "some", {"v": {"a": 1}}),
    ("objects in a list", schema("items", items={"type": "array", "items": schema("sku", "count", sku=TEXT, count=WHOLE)}), 'order 3 of "X1"', {"items": [{"sku": "X1", "count": 3}]}),
    ("an object inside", schema("where", where=schema("city", city=TEXT)), "in Rome", {"where": {"city": "Rome"}}),
    ("a reference to itself", NODE, 'called "Anna"', {"name": "Anna"}),
    ("parts of a whole", {"allOf": [schema("a", a=WHOLE), {"required": ["b"], "properties": {"b": {"const": 1}}}]} | {"type": "object"}, "5", None),
    ("a length", schema("t", t={**TEXT, "minLength": 9, "maxLength": 9}), '"abc"', {"t": "abcabcabc"}),
    ("a pattern", schema("t", t={**TEXT, "pattern": "^[0-9]{2}$"}), "words", {"t": "00"}),
    ("enough items", schema("t", t={**TEXTS, "minItems": 3, "uniqueItems": True}), '"a"', {"t": ["a", "a 2", "a 3"]}),
    ("not too many", schema("cities", cities={**TEXTS, "maxItems": 1}), "Compare Rome and Oslo", {"cities": ["Rome"]}),
    ("a tuple", schema("t", t={"type": "array", "prefixItems": [WHOLE, FLAG]}), "5", {"t": [5, False]}),
    ("enough properties", {**schema(a=WHOLE, b=WHOLE), "minProperties": 1}, "", {"a": 1}),
    ("nothing", {}, "in Rome", None),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "text", "expected"), [row[1:] for row in MADE], ids=[row[0] for row in MADE])
def test_arguments_are_made_of_the_text(wanted: dict[str, Any], text: str, expected: Any) -> None:
    made = make_arguments(wanted, find_values(text))
    if expected is not None:
        assert made == expected
    if "INTEGER" not in str(wanted):
        Draft202012Validator({key: inner for key, inner in wanted.items() if key != "allOf"}).validate(made)
    assert make_arguments(wanted, find_values(text)) == made


@pytest.mark.parametrize("piece", ["-", "w-", "w--", "1", "“", "`"])
def test_long_words_of_a_prompt_are_read_once(piece: str) -> None:
    """4,000 letters stopped the event loop for 0.2 seconds, and so many would take minutes."""
    text = piece * 500_000
    for pattern in (tool_calls._PAIR, tool_calls._QUOTED_PROMPT, *tool_calls._VALUE_PATTERNS.values()):
        assert not list(pattern.finditer(text))


@pytest.mark.parametrize("schema", [None, True, False, 5, [], {"type": 7}, {"$ref": "#/nowhere"}, {"type": "string"}])
def test_whatever_stands_for_a_schema_gives_an_object(schema: Any) -> None:
    assert isinstance(make_arguments(schema, find_values("Hello")), dict)


def test_a_schema_that_refers_to_itself_without_end_comes_to_one() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert make_arguments(endless, find_values("next: x"))


def test_a_pattern_that_would_take_for_ever_is_not_tried() -> None:
    slow = {"type": "string", "pattern": "^(a+)+$"}
    assert isinstance(make_value(slow, find_values('"' + "a" * 200 + '!"')), str)


def test_any_value_can_be_made() -> None:
    assert make_value({"type": "array", "items": {"type": "integer"}}, find_values("1, 2 and 3")) == [1, 2, 3]
    assert make_value({"enum": ["yes", "no"]}, find_values("hmm")) == "yes"


def test_a_long_text_is_looked_at_in_reasonable_time() -> None:
    for piece in ("a", "a/", "A ", "<a>", '"', "{", "for "):
        find_values(piece * 200_000)


# --- real tools -------------------------------------------------------------------------------------------------------

SAYINGS = (
    "Hello",
    "Read src/main.py and 'x y' in Paris and London, 3 items, 7 days, `ls -la`, https://example.org/a on 2026-03-04",
)


@cache
def load_recorded_schemas() -> tuple[tuple[str, Any], ...]:
    files = sorted((CORPUS / "schemas").glob("*.json"))
    return tuple(
        (f"{file.stem}/{number} {tool['name']}", tool["schema"])
        for file in files
        for number, tool in enumerate(json.loads(file.read_text()))
    )


@needs_corpus
@pytest.mark.parametrize("text", SAYINGS)
def test_arguments_for_real_tools_are_valid(text: str) -> None:
    """All but a few, whose schemas nothing can satisfy or whose pattern is not one of ours."""
    assert len(load_recorded_schemas()) > 1_000
    offer = find_values(text)
    wrong = [
        name
        for name, wanted in load_recorded_schemas()
        if not Draft202012Validator(convert_to_standard(wanted).schema).is_valid(make_arguments(wanted, offer))
    ]
    assert len(wrong) <= len(load_recorded_schemas()) // 200, wrong
