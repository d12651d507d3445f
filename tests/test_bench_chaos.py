"""The judge of `make chaos` notices what a client would suffer from: its figures are worth what it sees."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.chaos.__main__ import replace_tables
from bench.chaos.clients import ENDS, PLAYED, Exchange, Response, judge
from bench.chaos.provider import answer_arguments, answer_text

from gateway.raw_exchange import error_frame
from toolwire_conformance.peers.peer import ModelAnswer, encode_json, read_frames

ROOT = Path(__file__).parents[1]
NUMBER = 7
Frames = list[bytes]
PROTOCOLS = pytest.mark.parametrize("protocol", list(PLAYED))


def make_frames(protocol: str, number: int = NUMBER) -> Frames:
    peer = PLAYED[protocol]
    answer = ModelAnswer(answer_text(number), (("save", answer_arguments(number)),))
    whole = peer.complete_answer(peer.write_answer(answer), peer.model)
    return [frame.encode() for frame in peer.write_stream(whole)]


def judge_stream(protocol: str, frames: Frames, is_whole: bool = True) -> str:
    response = Response(200, {"content-type": "text/event-stream"}, b"".join(frames), is_whole)
    return judge(Exchange(protocol, protocol, "none", NUMBER, True), response)


def find_texts(frames: Frames) -> list[int]:
    """The frames with a piece of the text."""
    found = [at for at, frame in enumerate(frames) if any(b"w%d " % word in frame for word in (30, 60, 90))]
    return [at for at in found if b"output_text.done" not in frames[at]][:3]


def find_end(protocol: str, frames: Frames) -> int:
    return next(at for at, frame in enumerate(frames) if _is_end(protocol, frame))


def _is_end(protocol: str, frame: bytes) -> bool:
    (read,) = read_frames(frame.decode())
    return isinstance(read.data, dict) and ENDS[protocol](read.data)


def _swap(protocol: str, frames: Frames) -> Frames:
    one, two, *_ = find_texts(frames)
    frames[one], frames[two] = frames[two], frames[one]
    return frames


def _double(protocol: str, frames: Frames) -> Frames:
    at = find_texts(frames)[1]
    return [*frames[:at], frames[at], *frames[at:]]


def _take_of_another(protocol: str, frames: Frames) -> Frames:
    other = make_frames(protocol, NUMBER + 1)
    at = find_texts(frames)[-1]
    last = next(number for number in range(at, len(frames)) if b"END" in frames[number])
    return [*frames[:last], other[last], *frames[last + 1 :]]


def _leave_out_the_end(protocol: str, frames: Frames) -> Frames:
    return [frame for at, frame in enumerate(frames) if at < find_end(protocol, frames)]


def _end_twice(protocol: str, frames: Frames) -> Frames:
    at = find_end(protocol, frames)
    return [*frames[: at + 1], *frames[at:]]


def _speak_behind_the_end(protocol: str, frames: Frames) -> Frames:
    """An end that stands before the last pieces."""
    at = find_end(protocol, frames)
    return [*frames[: at + 1], frames[find_texts(frames)[0]].replace(b"w", b""), *frames[at + 1 :]]


def _fail(protocol: str, frames: Frames) -> Frames:
    tail = [encode_json({"error": {"code": 503}}).encode() + b"\n\n"] if protocol == "gemini" else []
    return [*frames[: find_texts(frames)[1]], error_frame(protocol), *tail]


def _speak_behind_an_error(protocol: str, frames: Frames) -> Frames:
    at = find_texts(frames)[1]
    return [*frames[:at], error_frame(protocol), *frames[at:]]


def _fail_in_another_shape(protocol: str, frames: Frames) -> Frames:
    other = "anthropic" if protocol != "anthropic" else "openai-chat"
    return [*frames[: find_texts(frames)[1]], error_frame(other)]


DAMAGE: dict[str, tuple[set[str], Callable[[str, Frames], Frames]]] = {
    "nothing": ({"complete"}, lambda protocol, frames: frames),
    "order": ({"mixed"}, _swap),
    "doubled": ({"mixed"}, _double),
    "of another answer": ({"mixed"}, _take_of_another),
    "no end": ({"lost", "misshapen"}, _leave_out_the_end),
    "two ends": ({"misshapen"}, _end_twice),
    "behind the end": ({"misshapen", "mixed"}, _speak_behind_the_end),
    "an error": ({"failed"}, _fail),
    "behind an error": ({"misshapen"}, _speak_behind_an_error),
    "an error of another protocol": ({"misshapen"}, _fail_in_another_shape),
}


@PROTOCOLS
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_wrong_with_a_stream_is_noticed(protocol: str, damage: str) -> None:
    verdicts, change = DAMAGE[damage]
    assert judge_stream(protocol, change(protocol, make_frames(protocol))) in verdicts


@PROTOCOLS
def test_what_is_wrong_with_a_whole_answer_is_noticed(protocol: str) -> None:
    peer = PLAYED[protocol]
    exchange = Exchange(protocol, protocol, "none", NUMBER, False)

    def judge_body(text: str, *arguments: dict[str, object], status: int = 200) -> str:
        answer = ModelAnswer(text, tuple(("save", one) for one in arguments))
        whole = peer.complete_answer(peer.write_answer(answer), peer.model)
        return judge(exchange, Response(status, {}, encode_json(whole).encode(), True))

    text, arguments = answer_text(NUMBER), answer_arguments(NUMBER)
    assert judge_body(text, arguments) == "complete"
    assert judge_body(text) == "lost"
    assert judge_body(text[:100], arguments) == "lost"
    assert judge_body(text, arguments, arguments) == "mixed"
    assert judge_body(answer_text(NUMBER + 1), arguments) == "mixed"
    assert judge_body(text, arguments, status=500) == "misshapen"
    assert judge(exchange, None) == "hung"
    assert judge_stream(protocol, make_frames(protocol)[:-3], is_whole=False) == "broken"


def test_a_part_that_was_not_measured_keeps_its_table() -> None:
    page = "Text.\n<!-- figures: begin -->\n\n### One\n\n| 1 |\n\n### Two\n\n| 2 |\n\n<!-- figures: end -->\nEnd.\n"
    assert replace_tables(page, ["### Two\n\n| 3 |\n"]) == page.replace("| 2 |", "| 3 |")


def test_every_promise_says_where_it_is_measured() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    promises = re.findall(
        r"^- \*\*(.+?)\.?\*\*", page.partition("## What to expect")[2].partition("\n## ")[0], re.MULTILINE
    )
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|", page.partition("## Where it is measured")[2], re.MULTILINE)
    assert [promise for promise, _ in rows] == promises
    for _, files in rows:
        for file in re.findall(r"`([^`]+)`", files):
            assert (ROOT / "tests" / file).is_file(), file
