"""Frames out of bytes: every line ending, every split, and what stands between frames."""

from __future__ import annotations

import pytest
from bench.gateway import canned
from hypothesis import given
from hypothesis import strategies as st

from toolwire.core.events import ArgumentsDelta, ResponseFailed, TextDelta
from toolwire.core.sse import (
    MAX_LINES,
    Frame,
    FrameTemplate,
    FrameTooLong,
    JsonArraySplitter,
    SseSplitter,
    make_frame_template,
    split_after_frames,
    write_data_frame,
    write_event_frame,
)
from toolwire.protocols import CODECS, find_codec

CASES: list[tuple[bytes, list[Frame]]] = [
    (b"", []),
    (b"data: {}\n\n", [Frame(None, b"{}")]),
    (b"data:{}\n\n", [Frame(None, b"{}")]),
    (b"event: a\ndata: 1\n\ndata: 2\n\n", [Frame("a", b"1"), Frame(None, b"2")]),
    (b"data: 1\ndata: 2\n\n", [Frame(None, b"1\n2")]),
    (b"event: a\ndata: 1\ndata: 2\n\n", [Frame("a", b"1\n2")]),
    (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [Frame(None, b"1"), Frame(None, b"2")]),
    (b"data: 1\r\rdata: 2\r\r", [Frame(None, b"1"), Frame(None, b"2")]),
    (b": comment\n\ndata: 1\n\n: more\n", [Frame(None, b"1")]),
    (b": comment\ndata: 1\n\n", [Frame(None, b"1")]),
    (b"id: 5\nretry: 9\ndata: 1\n\n", [Frame(None, b"1")]),
    (b"event: ping\n\ndata: 1\n\n", [Frame(None, b"1")]),
    (b"\n\n\ndata: 1\n\n\n\ndata: 2\n\n", [Frame(None, b"1"), Frame(None, b"2")]),
    (b"\xef\xbb\xbfdata: 1\n\n", [Frame(None, b"1")]),
    (b"data: 1\n\ndata: cut", [Frame(None, b"1"), Frame(None, b"cut")]),
    (b"event: x\ndata: cut\n", [Frame("x", b"cut")]),
    (b"data\n\n", [Frame(None, b"")]),
    ("data: é✓\n\n".encode(), [Frame(None, "é✓".encode())]),
    (b"data: 1\n\nevent: y\r\ndata: 2\r\n\r\ndata: 3\n\n", [Frame(None, b"1"), Frame("y", b"2"), Frame(None, b"3")]),
]


def split(data: bytes, size: int) -> list[Frame]:
    splitter = SseSplitter()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return [frame for piece in pieces for frame in splitter.feed(piece)] + splitter.close()


@pytest.mark.parametrize(("data", "frames"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_frames(data: bytes, frames: list[Frame], size: int) -> None:
    assert split(data, size) == frames


@given(
    st.lists(st.sampled_from([b"data: a", b"data:b", b"event: e", b": c", b"", b"id: 1", b"junk"]), max_size=12),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_split_gives_the_same_frames_and_line_endings_do_not_matter(lines: list[bytes], end: bytes) -> None:
    data = b"".join(line + end for line in lines)
    whole = split(data, 10_000)
    assert all(split(data, size) == whole for size in (1, 2, 3))
    assert whole == split(data.replace(end, b"\n"), 10_000)


PIECES = [
    b"data: 1\n\n",
    b"data: \n\n",
    b"data:1\n\n",
    b"data: 1\ndata: 2\n\n",
    b"data: 1\rdata: 2\n\n",
    b"data: 1\r\n\r\n",
    b"data: 1\n",
    b"data: 1\n\n\n",
    b"data: 1\n\ndata: 2\n\n",
    b"\n",
    b"\r",
    b": a comment\n\n",
    b"event: a\ndata: 1\n\n",
    b"event: a\ndata: 2\n\n",
    b"event: a \ndata: 1\n\n",
    b"event: b\ndata: 1\nid: 1\n\n",
    b"event: b\ndata: 1\n\n",
    b"event: \ndata: 1\n\n",
    b"event: a\n\n",
    b"event: a\n",
    b"event: \xff\ndata: \xff\n\n",
]
"""As a server may send them, each in a write of its own."""


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_frames_that_come_one_by_one_are_those_that_come_byte_by_byte(pieces: list[bytes]) -> None:
    splitter = SseSplitter()
    frames = [frame for piece in pieces for frame in splitter.feed(piece)] + splitter.close()
    assert frames == split(b"".join(pieces), 1) == split(b"".join(pieces), 10_000)


def test_a_frame_without_an_end_is_refused() -> None:
    splitter = SseSplitter(max_frame=100)
    splitter.feed(b"data: " + b"0" * 90)
    with pytest.raises(FrameTooLong):
        splitter.feed(b"0" * 90)


def test_frames_are_written_as_they_are_read() -> None:
    assert split(write_event_frame("a", b"1") + write_data_frame(b"2"), 10_000) == [Frame("a", b"1"), Frame(None, b"2")]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_array_is_split_into_its_elements(size: int) -> None:
    data = b'[{"a": "}]{\\""}\n,\r\n{"b": {"c": [1]}}]'
    splitter = JsonArraySplitter()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    frames = [frame.data for piece in pieces for frame in splitter.feed(piece)]
    assert frames == [b'{"a": "}]{\\""}', b'{"b": {"c": [1]}}']
    assert splitter.close() == []


def test_a_cut_element_is_shown_at_the_end() -> None:
    splitter = JsonArraySplitter()
    assert splitter.feed(b'[{"a": 1},{"b"') == [Frame(None, b'{"a": 1}')]
    assert splitter.close() == [Frame(None, b'{"b"')]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_bytes_are_split_after_each_frame(end: bytes) -> None:
    frames = [b"data: 1" + end, b"event: e\ndata: 2" + end, b"data: 3"]
    assert split_after_frames(b"".join(frames)) == frames
    assert split_after_frames(b"".join(frames[:2])) == frames[:2]
    assert split_after_frames(b"data: 1\ndata: 2") == [b"data: 1\ndata: 2"]


def template_of(data: bytes, text: str) -> FrameTemplate | None:
    return make_frame_template(Frame(None, data), text, lambda node: node["a"])


def test_a_frame_that_differs_only_in_its_text_matches_the_template() -> None:
    template = template_of(b'{"b":"x","a":"x","c":1}', "x")
    assert template is not None
    around = b'data: {"b":"x","a":%b,"c":1}\n\n'
    for encoded, text in ((b'"y"', "y"), (b'"\\"\\u00e9\\n"', '"é\n'), ('"é"'.encode(), "é")):
        assert template.match_text(around % encoded) == text
    wrong = (b'"', b'""', b"", b"1", b'"y"z"', b' "y"', b'"y\n"', b'"\\ud800"', b'"\xff"', b'"y","c":2,"d":"e"')
    for encoded in wrong:
        assert template.match_text(around % encoded) is None
    for data in (b'data: {"b":"x","a":"y","c":1}', b'data: {"b":"x","a":"y","c":2}\n\n', around % b'"y"' * 2):
        assert template.match_text(data) is None


def test_a_template_matches_only_its_event_name_and_not_the_excluded_start() -> None:
    template = make_frame_template(Frame("e", b'{"a":"x"}'), "x", lambda node: node["a"], excluded_start="{")
    assert template is not None
    assert template.match_text(b'event: e\ndata: {"a":"y"}\n\n') == "y"
    assert template.match_text(b'event: f\ndata: {"a":"y"}\n\n') is None
    assert template.match_text(b'event: e\ndata: {"a":"{y"}\n\n') is None


@pytest.mark.parametrize("name", ["anthropic", "gemini", "openai-chat"])
def test_no_repeat_is_recognised_inside_a_partial_frame(name: str) -> None:
    reader = CODECS[name].make_stream_reader()
    delta = next(frame for frame in canned.events(name) if reader.feed(frame) and reader.read_repeat(frame))
    for start in range(1, len(delta)):
        reader.feed(delta[:start])
        assert reader.read_repeat(delta) is None
        reader.feed(delta[start:])
        assert reader.feed(delta)
        assert reader.read_repeat(delta)


@pytest.mark.parametrize("name", sorted(CODECS.keys() & canned.PATHS.keys()))
def test_reading_repeats_gives_the_same_text_as_feeding_all_frames(name: str) -> None:
    fed, reader = CODECS[name].make_stream_reader(), CODECS[name].make_stream_reader()
    repeats = 0
    for frame in canned.events(name):
        expected = fed.feed(frame)
        text = reader.read_repeat(frame)
        if text is None:
            assert reader.feed(frame) == expected
        else:
            repeats += 1
            assert [event.text for event in expected if isinstance(event, (TextDelta, ArgumentsDelta))] == [text]
    assert reader.close() == fed.close()
    assert repeats > 90 or name == "openai-responses"


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"\\u0078","b":"x"}',
        b'{"a":"\\u0078"}',
        b'{"a":"x",\n"b":1}',
        b'{"a":"x","x":1}',
        b'{"a":"x","b":"x"}',
        b'{"a":"\\u0078","b":["x"',
    ],
)
def test_a_text_whose_position_is_ambiguous_has_no_template(data: bytes) -> None:
    assert template_of(data, "x") is None


def test_a_frame_of_too_many_lines_is_refused() -> None:
    """Each line costs time, and all of them come at once. Lines that are all data cost little."""
    with pytest.raises(FrameTooLong):
        SseSplitter().feed(b"data: x\nid: 1\n" * 10_000 + b"\n")
    assert [len(frame.data) for frame in SseSplitter().feed(b"data: x\n" * 1_000_000 + b"\n")] == [1_999_999]


@given(
    st.lists(
        st.sampled_from([b"data: 1", b"data:2", b"data:  3", b"data:", b"data: ", b"data", b": x", b"id: 4"]),
        min_size=1,
    )
)
def test_frames_of_several_lines_are_those_that_come_byte_by_byte(lines: list[bytes]) -> None:
    frame = b"\n".join(lines) + b"\n\n"
    assert split(frame, 10_000) == split(frame.replace(b"\n", b"\r\n"), 1)


DELTAS = {
    "openai-chat": b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n',
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":"%b"}],"role":"model"}}]}\n\n',
}


@pytest.mark.parametrize("protocol", DELTAS)
def test_nothing_is_recognised_behind_a_frame_that_is_too_long(protocol: str) -> None:
    reader = find_codec(protocol).make_stream_reader()
    for text in (b"a", b"b"):
        reader.feed(DELTAS[protocol] % text)
    assert reader.read_repeat(DELTAS[protocol] % b"c") == "c"
    assert isinstance(reader.feed(b"x\n" * (MAX_LINES + 2) + b"\n")[-1], ResponseFailed)
    assert reader.read_repeat(DELTAS[protocol] % b"d") is None
