"""Arguments that are nearly JSON: what is mended, and what is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire.call_repair.near_json import read_arguments

READ: dict[str, tuple[str, Any]] = {
    "empty": ("", {}),
    "blank": (" \n", {}),
    "null": ("null", {}),
    "empty string": ('""', {}),
    "encoded twice": (r'"{\"a\": 1}"', {"a": 1}),
    "control characters": ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
    "backslash before a line break": ('{"a": "x\\\ny"}', {"a": "x\\\ny"}),
    "invalid escapes": (r'{"a": "\d+ C:\path \* \(x\)"}', {"a": r"\d+ C:\path \* \(x\)"}),
    "ambiguous escapes stay": (r'{"a": "C:\temp \d"}', {"a": "C:\temp \\d"}),
    "half of a \\u escape": ('{"a": "\\u6수"}', {"a": "\\u6수"}),
    "\\n between values": ('{"a": "x", "r": \\n[1, 2]\\n\\n}', {"a": "x", "r": [1, 2]}),
    "last brace": ('{"a": {"b": 1}', {"a": {"b": 1}}),
    "last brackets": ('{"a": [{"b": "x"', {"a": [{"b": "x"}]}),
    "an inner bracket": ('{"a": [1, 2}', {"a": [1, 2]}),
    "a brace too many": ('{"a": 1}}', {"a": 1}),
    "brackets too many": ('{"a": 1} ]}\n', {"a": 1}),
    "trailing commas": ('{"a": 1, "b": [1, 2,],}', {"a": 1, "b": [1, 2]}),
    "single quotes": ("{'a': 'say \"hi\"', 'b': 'it\\'s'}", {"a": 'say "hi"', "b": "it's"}),
    "Python's literals": ("{'a': True, 'b': False, 'c': None}", {"a": True, "b": False, "c": None}),
    "comments": ('{"a": 1, // one\n /* two */ "b": 2 # three\n}', {"a": 1, "b": 2}),
    "no comment in a string": ('{"a": "http://x/*y*/#z",}', {"a": "http://x/*y*/#z"}),
    "keys without quotes": ('{a: 1, b-c: "x"}', {"a": 1, "b-c": "x"}),
    "words without quotes": ("{city: New York, zip: 02134}", {"city": "New York", "zip": "02134"}),
    "missing comma": ('{"a": 1 "b": 2\n"c": [{"d": 1} {"e": 2}]}', {"a": 1, "b": 2, "c": [{"d": 1}, {"e": 2}]}),
    "NaN": ('{"a": NaN}', {"a": "NaN"}),
    "a fence": ('```json\n{"a": "```"}\n```\n', {"a": "```"}),
    "end tokens": ('{"a": 1}<|im_end|> </s>\n', {"a": 1}),
    "a closing tag": ('{"a": 1}\n</tool_call>', {"a": 1}),
    "escaped once too often": (r"{\"a\": [1, \"x\"]}", {"a": [1, "x"]}),
    "half of a character": (r'{"a": "x\ud83dy"}', {"a": "x\ufffdy"}),
    "a pair of halves": (r'{"a": "\ud83d\ude42\d"}', {"a": "🙂\\d"}),
}

UNREADABLE = {
    "no JSON": "not JSON at all",
    "cut in a string": '{"command": "rm -rf /tmp/bui',
    "cut in a single-quoted string": "{'command': 'rm -rf /tmp/bui",
    "cut in a key": '{"a": 1, "comm',
    "cut in a word": '{"a": tru',
    "cut after a key": '{"a"',
    "cut after a colon": '{"a":',
    "cut after a comma": '{"a": 1,',
    "cut after a brace": '{"a": {',
    "cut in a comment": '{"a": 1 /* x }',
    "cut in a number": '{"a": 1.',
    "two objects": '{"a":1}{"b":2}',
    "text behind": '{"a": 1} and so on',
    "a fence that does not end": '```json\n{"a": 1}',
    "escaped in part": r'{\"a\": "x"}',
    "another call behind": '{"a": 1}<|tool_call|>{"a": 2}',
    "text before": 'Sure: {"a": 1}',
    "missing colon": '{"a" 1}',
    "inner quotes": '{"a": "env.get("KEY")"}',
    "strings in a row": '{"a": ["x" "y"]}',
    "a repeated key": '{"a": 1, "a": 2,}',
    "a list": "[1, 2]",
    "a number": "5",
    "a text": '"Paris"',
    "encoded three times": json.dumps(json.dumps(json.dumps({"a": 1}))),
    "too deep": "{'a':" * 100 + "1" + "}" * 100,
    "a wrong bracket": '{"a": 1]}',
}


@pytest.mark.parametrize("case", READ)
def test_what_has_one_sure_reading_is_mended(case: str) -> None:
    text, wanted = READ[case]
    found = read_arguments(text)
    assert found is not None
    assert found.value == wanted
    assert found.repairs
    assert json.loads(found.text) == wanted


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_has_no_sure_reading_is_left_alone(case: str) -> None:
    assert read_arguments(UNREADABLE[case]) is None


@pytest.mark.parametrize("text", ['{"a": {"b": 1}', '{"a": 1', '{"a": "x"', '{"a": true', "{'a': [1]"])
def test_nothing_is_closed_after_a_cut(text: str) -> None:
    assert read_arguments(text) is not None
    assert read_arguments(text, is_cut=True) is None


def test_json_keeps_its_spelling() -> None:
    text = ' {"b" : 1.50,\n "a": [1e5, "\\u00e9"]} '
    found = read_arguments(text)
    assert found is not None
    assert (found.text, found.repairs) == (text, ())
