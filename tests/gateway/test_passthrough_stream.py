"""A stream that passes is seen the same however it comes: in one piece, frame by frame, byte by byte, or cut off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from material import SAMPLES
from toolwire.core.ir import Failure
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.protocols import CODECS

FRAMES = re.compile(rb".*?(?:\r?\n){2}|.+", re.DOTALL)
PROTOCOLS = {folder: name for name in CODECS if (SAMPLES / (folder := name.replace("-", "_"))).is_dir()}
STREAMS = [(name, path) for folder, name in PROTOCOLS.items() for path in sorted((SAMPLES / folder).glob("*.sse"))]
BROKEN = Failure("upstream", "it broke off", 502)


def frames(data: bytes) -> list[bytes]:
    return FRAMES.findall(data)


def repeat_frames(data: bytes, times: int = 5) -> bytes:
    """The same with every frame that a stream may have more of sent again: then there are some in a row."""
    marks = (b"_delta", b".delta", b'"content":"', b'"text":')
    return b"".join(frame * times if any(mark in frame for mark in marks) else frame for frame in frames(data))


def pass_through(name: str, pieces: list[bytes], ends: bool) -> list[object]:
    passing = PassthroughStream(CODECS[name])
    out = b"".join(map(passing.feed, pieces)) + (passing.close() if ends else passing.fail(BROKEN))
    return [
        out,
        passing.usage,
        passing.finishes,
        passing.failure,
        passing.has_content,
        passing.text_length,
        passing.called_tools,
        passing.ended,
        passing.has_complete_call,
    ]


@pytest.mark.parametrize(("name", "path"), STREAMS, ids=[f"{name}/{path.stem}" for name, path in STREAMS])
@pytest.mark.parametrize("more", [False, True], ids=["as it is", "with more of the same"])
def test_what_is_seen_does_not_depend_on_the_pieces(name: str, path: Path, more: bool) -> None:
    data = repeat_frames(path.read_bytes()) if more else path.read_bytes()
    every = frames(data)
    for ends, end in ((True, len(every)), (True, len(every) * 2 // 3), (False, len(every) * 2 // 3)):
        told = b"".join(every[:end])
        expected = pass_through(name, [told], ends)
        assert pass_through(name, every[:end], ends) == expected
        assert pass_through(name, [told[at : at + 1] for at in range(len(told))], ends) == expected
        assert pass_through(name, [told[at : at + 300] for at in range(0, len(told), 300)], ends) == expected


def test_there_are_streams_of_every_protocol() -> None:
    assert len({name for name, _ in STREAMS}) == 4
    assert any(len(frames(path.read_bytes())) > 10 for _, path in STREAMS)
