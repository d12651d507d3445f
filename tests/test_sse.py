"""Frames out of bytes: every line ending, every split, and what stands between frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.sse import ArraySplitter, Frame, FrameTooLong, Splitter, bare, named

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
    splitter = Splitter()
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
    splitter = Splitter()
    frames = [frame for piece in pieces for frame in splitter.feed(piece)] + splitter.close()
    assert frames == split(b"".join(pieces), 1) == split(b"".join(pieces), 10_000)


def test_a_frame_without_an_end_is_refused() -> None:
    splitter = Splitter(max_frame=100)
    splitter.feed(b"data: " + b"0" * 90)
    with pytest.raises(FrameTooLong):
        splitter.feed(b"0" * 90)


def test_frames_are_written_as_they_are_read() -> None:
    assert split(named("a", b"1") + bare(b"2"), 10_000) == [Frame("a", b"1"), Frame(None, b"2")]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_array_is_split_into_its_elements(size: int) -> None:
    data = b'[{"a": "}]{\\""}\n,\r\n{"b": {"c": [1]}}]'
    splitter = ArraySplitter()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    frames = [frame.data for piece in pieces for frame in splitter.feed(piece)]
    assert frames == [b'{"a": "}]{\\""}', b'{"b": {"c": [1]}}']
    assert splitter.close() == []


def test_a_cut_element_is_shown_at_the_end() -> None:
    splitter = ArraySplitter()
    assert splitter.feed(b'[{"a": 1},{"b"') == [Frame(None, b'{"a": 1}')]
    assert splitter.close() == [Frame(None, b'{"b"')]
