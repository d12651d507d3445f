"""Law 8: whatever a peer sends, the answer is a translation or a clear error that names the place."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from material import NAMES, PAIRS
from toolwire import Malformed, Stream, translate

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)

BAD_DOCUMENTS: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"[1, 2", "not JSON"),
    (b"{} {}", "not JSON"),
    (b"[]", "expected an object"),
    (b'"text"', "expected an object"),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": Infinity}', "Infinity"),
    (b"\xff\xfe{}", "UTF-8"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "nested too deeply"),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize(("data", "word"), BAD_DOCUMENTS, ids=range(len(BAD_DOCUMENTS)))
def test_documents_that_cannot_be_read(source: str, target: str, data: bytes, word: str) -> None:
    with pytest.raises(Malformed, match=word):
        translate(data, "request", source=source, target=target)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_was_parsed_elsewhere_may_hold_what_cannot_be_sent(source: str, target: str) -> None:
    repaired = 0
    for path in places(BODIES[source]):
        try:
            translated = translate(
                replace_value(BODIES[source], path, "a\ud800"), "request", source=source, target=target
            )
        except Malformed:  # this must be a number, or a word of the protocol
            continue
        repaired += 1
        assert ("text-repaired", "/" + "/".join(map(str, path))) in {(one.code, one.path) for one in translated.losses}
        assert b"\\ud800" not in translated.body
    assert repaired > 10
    body = {**BODIES[source], "metadata": {"a\udc00": "1"}}
    assert "/metadata" in {one.path for one in translate(body, "request", source=source, target=target).losses}
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(Malformed, match="nested too deeply"):
        translate({"model": "m", "x": deep}, "request", source=source, target=target)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("depth", [990, 5_000])
def test_deep_nesting_in_any_place_is_translated_or_refused(source: str, target: str, depth: int) -> None:
    """How deep JSON can be read depends on the version of Python, how deep it can be walked on what walks it."""
    for path in list(places(BODIES[source]))[::4]:
        data = json.dumps(replace_value(BODIES[source], path, "deep")).replace(
            '"deep"', '{"a":' * depth + "1" + "}" * depth
        )
        with suppress(Malformed):
            translate(data.encode(), "request", source=source, target=target)


@pytest.mark.parametrize("name", NAMES)
def test_a_body_over_the_limit_is_refused_by_its_size(name: str) -> None:
    with pytest.raises(Malformed, match="limit"):
        translate(b'"' + b"x" * 70_000_000 + b'"', "request", source=name, target=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_large_body_is_translated(name: str) -> None:
    body = copy.deepcopy(BODIES["openai-chat"])
    body["messages"][-1]["content"] = "x" * 50_000_000
    assert len(translate(body, "request", source="openai-chat", target=name).body) > 50_000_000


@pytest.mark.parametrize("name", NAMES)
def test_unknown_roles_are_named(name: str) -> None:
    body = copy.deepcopy(BODIES[name])
    turns = body.get("messages") or body.get("input") or body["contents"]
    turns[0]["role"] = "wizard"
    with pytest.raises(Malformed, match=r"/0.*wizard|wizard"):
        translate(body, "request", source=name, target="openai-chat")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, child in value.items():
            found += places(child, (*path, key))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            found += places(child, (*path, number))
    return found


def replace_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    body = copy.deepcopy(body)
    node = body
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return body


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), source=st.sampled_from(NAMES), target=st.sampled_from(NAMES))
def test_any_value_anywhere_is_a_translation_or_a_clear_error(data: st.DataObject, source: str, target: str) -> None:
    body = replace_value(BODIES[source], data.draw(st.sampled_from(places(BODIES[source]))), data.draw(JSON))
    try:
        result = translate(body, "request", source=source, target=target)
    except Malformed:
        return
    json.loads(result.body)


@settings(max_examples=200, deadline=None)
@given(
    body=JSON,
    source=st.sampled_from(NAMES),
    target=st.sampled_from(NAMES),
    kind=st.sampled_from(["request", "response", "error"]),
)
def test_any_json_is_a_translation_or_a_clear_error(body: Any, source: str, target: str, kind: Any) -> None:
    try:
        result = translate(json.dumps(body), kind, source=source, target=target)
    except Malformed:
        assert kind != "error"
        return
    json.loads(result.body)


def frames_of(items: list[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in items)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=300) | st.lists(JSON, max_size=4).map(frames_of),
    source=st.sampled_from(NAMES),
    target=st.sampled_from(NAMES),
)
def test_any_bytes_of_a_stream_are_an_answer_or_a_failure(data: bytes, source: str, target: str) -> None:
    stream = Stream(source=source, target=target)
    out = stream.feed(data) + stream.close()
    assert stream.failure is not None
    assert out
