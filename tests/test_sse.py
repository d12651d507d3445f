"""Frames out of bytes: every line ending, every split, and what stands between frames."""

from __future__ import annotations

import pytest
from bench.gateway import canned
from hypothesis import given
from hypothesis import strategies as st

from toolwire.core.sse import (
    Frame,
    FrameTemplate,
    FrameTooLong,
    JsonArraySplitter,
    SseSplitter,
    make_frame_template,
    write_data_frame,
    write_event_frame,
)
from toolwire.protocols import CODECS

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


def alike_to(data: bytes, text: str) -> FrameTemplate | None:
    return make_frame_template(Frame(None, data), text, lambda node: node["a"])


def test_a_frame_like_another_but_for_one_text_is_known_by_its_bytes() -> None:
    known = alike_to(b'{"b":"x","a":"x","c":1}', "x")
    assert known is not None
    around = b'data: {"b":"x","a":%b,"c":1}\n\n'
    for spelled, text in ((b'"y"', "y"), (b'"\\"\\u00e9\\n"', '"é\n'), ('"é"'.encode(), "é")):
        assert known.match_text(around % spelled) == text
    assert (known.match_count, known.text_length) == (3, 5)
    wrong = (b'"', b'""', b"", b"1", b'"y"z"', b' "y"', b'"y\n"', b'"\\ud800"', b'"\xff"', b'"y","c":2,"d":"e"')
    for spelled in wrong:
        assert known.match_text(around % spelled) is None
    for data in (b'data: {"b":"x","a":"y","c":1}', b'data: {"b":"x","a":"y","c":2}\n\n', around % b'"y"' * 2):
        assert known.match_text(data) is None


def test_a_frame_is_known_by_its_name_too_and_its_text_is_kept_by_whoever_wants_it() -> None:
    kept: list[str] = []
    known = make_frame_template(Frame("e", b'{"a":"x"}'), "x", lambda node: node["a"], kept.append, excluded_start="{")
    assert known is not None
    assert known.match_text(b'event: e\ndata: {"a":"y"}\n\n') == "y"
    assert known.match_text(b'event: f\ndata: {"a":"y"}\n\n') is None
    assert known.match_text(b'event: e\ndata: {"a":"{y"}\n\n') is None
    assert kept == ["y"]


KNOWING = sorted(name for name, room in CODECS.items() if hasattr(room.make_stream_reader(), "again"))
"""Rooms whose readers know a delta by its bytes."""


@pytest.mark.parametrize("name", KNOWING)
def test_nothing_is_known_by_its_bytes_while_a_frame_waits_for_its_rest(name: str) -> None:
    reader = CODECS[name].make_stream_reader()
    delta = next(frame for frame in canned.events(name) if reader.feed(frame) and reader.read_repeat is not None)
    for start in range(1, len(delta)):
        reader.feed(delta[:start])
        assert reader.read_repeat is None
        reader.feed(delta[start:])
    assert reader.feed(delta)
    assert len(KNOWING) > 2


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
def test_where_the_bytes_do_not_tell_the_place_of_a_text_none_is_known(data: bytes) -> None:
    assert alike_to(data, "x") is None
