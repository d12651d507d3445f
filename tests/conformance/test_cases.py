"""Every reported case is there, keeps to the format, and is played through the library."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.in_process import InProcessTransport
from toolwire_conformance.case import BadCase, Case, read_case, read_case_files
from toolwire_conformance.player import play_case

REPORTED = {
    "ids": (1, 2, 3, 5, 6, 7, 9, 10, 11),
    "arguments": (12, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25),
    "parallel calls": (26, 27, 29, 30, 31, 33, 34),
    "Anthropic streams": (35, 37, 38, 39, 41, 42, 43, 45, 46),
    "Responses streams": (47, 49, 50, 51, 53, 54, 55, 57, 58),
    "history and results": (59, 61, 62, 63, 65, 66, 67, 68, 69, 70, 71, 73, 74, 75),
    "media and errors in results": (77, 78, 79, 81, 82, 83),
    "reasoning": (84, 85, 86, 87, 89, 90, 91, 93, 94, 95, 97, 98, 99, 101, 102),
    "tools of other kinds": (103, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 118, 119, 121, 122),
    "choice, names, limits": (123, 125, 126, 127, 129, 130, 131, 133, 134, 135),
    "schemas": (137, 138, 139, 141, 142, 143, 145, 146),
    "endings": (147, 149, 150, 151),
    "usage and caching": (153, 154, 155, 157, 158, 159),
    "roles and parameters": (161, 162, 163),
    "errors and transport": (165, 166, 167, 169, 170, 171, 173, 174, 175, 177),
    "found by real agents": (301, 302, 303, 304, 305),
}
FILES = dict(read_case_files())
CASES = [case for data in FILES.values() for case in read_case(data)]


def test_no_case_is_missing() -> None:
    wanted = [number for numbers in REPORTED.values() for number in numbers]
    assert [data["id"] for data in FILES.values()] == wanted


@pytest.mark.parametrize("name", FILES)
def test_file(name: str) -> None:
    data = FILES[name]
    assert name.startswith(f"{data['id']:03}-")
    assert data["title"]
    assert data["title"][0].isupper() or not data["title"][0].isalpha()
    assert data["source"]
    assert all(" " in source or "#" in source for source in data["source"])
    assert len(json.dumps(data)) < 40_000


def test_names_are_unique() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_case(case: Case) -> None:
    outcome = play_case(case, InProcessTransport())
    if outcome.out_of_reach:
        assert len(outcome.out_of_reach) > 40, "say why the library cannot do it"
        pytest.skip(outcome.out_of_reach)
    assert outcome.differences == ()
    assert outcome.passed


BASE: dict[str, Any] = {
    "id": 1,
    "title": "T",
    "source": ["x/y#1"],
    "client": {"protocol": "anthropic", "request": {}},
    "provider": {"protocol": "anthropic", "exchanges": []},
}


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"client": {"protocol": "anthropic"}},
        {"client": {"protocol": "anthropic", "request": {}, "streem": True}},
        {"provider": {"protocol": "anthropic", "exchanges": [{"expects": {}}]}},
        {"client_sees": {"bodies": 1}},
    ],
)
def test_invalid_file(change: dict[str, Any]) -> None:
    with pytest.raises(BadCase):
        read_case({**BASE, **change})


def test_variants_and_modes_are_expanded() -> None:
    both = {**BASE, "client": {**BASE["client"], "stream": "both"}}
    cases = read_case({**both, "variants": [{"name": "a"}, {"name": "b", "client": {"stream": True}}]})
    assert [case.id for case in cases] == ["001:a:whole", "001:a:stream", "001:b"]
    assert [case.turns[0].client.stream for case in cases] == [False, True, True]
