"""Laws of streams, over our own samples and the recorded corpus, for every pair of protocols.

Any split of the bytes gives the same output (4); the checker never fires on what a reader makes (6); folding a stream
gives what reading the whole answer gives (3); a stream that ends early is a failure; nothing a peer sends is a traceback.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from material import NAMES, PAIRS, SAMPLES, corpus, needs_corpus, sample_streams
from toolwire import Stream
from toolwire.core import json_values
from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    StreamChecker,
    TextDelta,
    UsageUpdate,
    fold,
    unfold,
)
from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Part,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    Usage,
    strip_origins,
)
from toolwire.core.json_values import decode_object_or_none
from toolwire.core.losses import Ledger
from toolwire.core.tokens import measure_text
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

FOLDERS = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
ALL = [
    (FOLDERS[folder], path)
    for folder in FOLDERS
    for path in sample_streams(folder)
    if path.stem != "interactions_function_call"  # another API of the same vendor
]
NEGATIVE = [
    (name, path) for path in sample_streams("negative") for name in FOLDERS.values() if path.name.startswith(name)
]
ids = [f"{path.parent.name}/{path.stem}" for _, path in ALL]


def events_of(protocol: str, data: bytes, size: int = 0) -> list[Event]:
    reader = find_codec(protocol).make_stream_reader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def through(source: str, target: str, data: bytes, size: int = 0) -> tuple[bytes, Stream]:
    stream = Stream(source=source, target=target)
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    out = b"".join(stream.feed(piece) for piece in pieces) + stream.close()
    return out, stream


def shows_failure(target: str, out: bytes) -> bool:
    """Does the client see a failure in its own shape?"""
    return any(isinstance(event, ResponseFailed) for event in events_of(target, out))


@pytest.mark.parametrize(
    ("protocol", "path"), [*ALL, *NEGATIVE], ids=[*ids, *(f"negative/{path.stem}" for _, path in NEGATIVE)]
)
def test_readers_keep_the_grammar_and_do_not_mind_how_bytes_are_cut(protocol: str, path: Path) -> None:
    data = path.read_bytes()
    events = events_of(protocol, data)
    checker = StreamChecker()
    assert [fault for event in events if (fault := checker.check_event(event))] == []
    assert isinstance(events[-1], (ResponseEnd, ResponseFailed)) or checker.state == "done"
    for size in (1, 2, 7):
        assert strip_origins(tuple(events_of(protocol, data, size))) == strip_origins(tuple(events))


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize(("protocol", "path"), ALL, ids=ids)
def test_every_sample_comes_out_in_every_protocol(protocol: str, path: Path, target: str) -> None:
    data = path.read_bytes()
    out, stream = through(protocol, target, data)
    assert through(protocol, target, data, 1)[0] == out
    calls = [
        part for choice in fold(events_of(protocol, data)).choices for part in choice.parts if isinstance(part, Call)
    ]
    cut = target == "unified" and any(
        decode_object_or_none(call.arguments) is None for call in calls if call.kind != "custom"
    )
    assert shows_failure(target, out) == (shows_failure(protocol, data) or cut)
    assert (stream.failure is not None) == shows_failure(protocol, data)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize(("protocol", "path"), ALL, ids=ids)
def test_frames_that_come_one_by_one_make_what_all_at_once_make(protocol: str, path: Path, target: str) -> None:
    data = path.read_bytes()
    stream = Stream(source=protocol, target=target)
    out = b"".join(stream.feed(piece) for piece in re.split(rb"(?<=\n\n)", data)) + stream.close()
    whole, other = through(protocol, target, data)
    assert out == whole
    assert (stream.losses, stream.failure) == (other.losses, other.failure)


@pytest.mark.parametrize(("protocol", "path"), ALL, ids=ids)
def test_a_stream_comes_back_as_it_was_in_its_own_protocol(protocol: str, path: Path) -> None:
    data = path.read_bytes()
    out, _ = through(protocol, protocol, data)

    def frames(raw: bytes) -> list[object]:
        from toolwire.core.sse import SseSplitter

        splitter = SseSplitter()
        found = [*splitter.feed(raw), *splitter.close()]
        return [(frame.event, json.loads(frame.data) if frame.data[:1] == b"{" else frame.data) for frame in found]

    if path.stem == "error_midstream_bare_json":  # its error stands outside of any frame, we put it into one
        assert frames(out)[:-1] == frames(data)
        return
    assert frames(out) == frames(data)


@pytest.mark.parametrize(("protocol", "path"), ALL, ids=ids)
def test_what_is_written_from_meaning_alone_means_the_same(protocol: str, path: Path) -> None:
    """Law 2 for streams: without its frames, a stream is written anew and read again."""
    place = find_codec(protocol)
    response = strip_origins(fold(events_of(protocol, path.read_bytes())))
    if response.failure is not None:
        return
    writer = place.make_stream_writer(Ledger(protocol, protocol), WriteContext())
    out = b"".join(writer.write(event) for event in unfold(response)) + writer.close()
    again = strip_origins(fold(events_of(protocol, out)))
    if path.stem == "legacy_function_call":  # without the client's request nobody knows that it was a legacy one
        again = Response(choices=(Choice(0, (replace(again.choices[0].parts[0], id=""),), again.choices[0].finish),))
    assert [choice.parts for choice in again.choices] == [choice.parts for choice in response.choices]
    if path.stem != "continuation":  # we never promise a continuation that only its maker could give
        assert [c.finish.kind for c in again.choices if c.finish] == [
            c.finish.kind for c in response.choices if c.finish
        ]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_stream_that_is_cut_is_a_failure(source: str, target: str) -> None:
    folder = next((folder for folder, name in FOLDERS.items() if name == source), None)
    if folder is None:
        whole, _ = through("openai-chat", source, (SAMPLES / "openai_chat" / "parallel_calls.sse").read_bytes())
    else:
        names = {
            "openai_chat": "parallel_calls",
            "openai_responses": "parallel_calls",
            "anthropic": "text_then_tool_use",
        }
        whole = (SAMPLES / folder / f"{names.get(folder, 'function_call')}.sse").read_bytes()
    for at in range(0, int(len(whole) * 0.6), 37):
        out, stream = through(source, target, whole[:at])
        assert stream.failure is not None, at
        assert shows_failure(target, out), at


@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_recorded_streams_come_out_in_every_protocol(target: str) -> None:
    wrong = []
    for recorded in corpus():
        data = recorded.bytes
        if data is None or recorded.status >= 400:
            continue
        out, stream = through(recorded.protocol, target, data)
        if shows_failure(target, out) != (stream.failure is not None):
            wrong.append(recorded.name)
    assert wrong == []


@needs_corpus
def test_mutated_streams_never_raise() -> None:
    """Random cuts and changed bytes of recorded streams: an answer or a failure, never a traceback."""
    chance = random.Random(20261115)
    streams = [recorded for recorded in corpus() if recorded.bytes is not None]
    for recorded in streams:
        data = bytearray(recorded.bytes or b"")[:20000]
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(data) or 1)
            if chance.random() < 0.3:
                del data[at : at + chance.randrange(1, 60)]
            elif data:
                data[min(at, len(data) - 1)] = chance.randrange(256)
        target = chance.choice(NAMES)
        out, stream = through(recorded.protocol, target, bytes(data))
        assert shows_failure(target, out) == (stream.failure is not None), recorded.name


class Scripted:
    """A reader that gives one event for every piece, and recognises repeated deltas if `repeats` is set."""

    def __init__(self, events: list[Event], repeats: bool) -> None:
        self._events = events
        self._position = 0
        self._repeats = repeats
        self.repeat_count = self.repeated_length = 0
        self.replaced_halves: list[json_values.Path] = []

    def feed(self, data: bytes) -> list[Event]:
        self._position += 1
        return [self._events[self._position - 1]]

    def read_repeat(self, data: bytes) -> str | None:
        last, event = self._events[self._position - 1 : self._position + 1]
        if not self._repeats or not isinstance(event, (TextDelta, ArgumentsDelta)) or not event.text:
            return None
        if type(event) is not type(last) or event.index != last.index:
            return None
        self._position += 1
        self.repeat_count += 1
        return event.text

    def close(self) -> list[Event]:
        return []


PARTS: tuple[Part, ...] = (
    Text(""),
    Reasoning(),
    Reasoning(hidden=True),
    Call("call_1", "look"),
    Call("call_1", "cut", kind="custom"),
    Refusal(""),
)


def any_event(chance: random.Random, parts: list[PartStart]) -> Event:
    """Mostly a delta that suits an open part."""
    grown = chance.choice(parts[:1] * 3 + parts)
    if chance.random() < 0.9:
        suits = isinstance(grown.part, Call) == (chance.random() < 0.98)
        return (ArgumentsDelta if suits else TextDelta)(grown.index, chance.choice(("a", "", '{"a":', "1}")))
    return chance.choice(
        (
            PartStart(chance.randrange(5), chance.choice(PARTS)),
            PartEnd(grown.index, chance.random() < 0.3),
            UsageUpdate(Usage(1, 2)),
            UsageUpdate(Usage(3, 4)),
            SealDelta(grown.index, Seal("maker", "sealed")),
            CitationDelta(grown.index, Citation("https://example.com")),
            ChoiceEnd(Finish("stop")),
            ResponseFailed(Failure("server", "broken")),
        )
    )


@pytest.mark.parametrize(("source", "target"), [(source, target) for source, target in PAIRS if source != target])
def test_repeated_deltas_come_out_as_if_they_were_events(source: str, target: str) -> None:
    """The text of a repeated delta goes straight to the writer; the same stream is translated event by event."""
    chance = random.Random(f"{source} {target}")
    repeat_count = 0
    for _ in range(100):
        parts = [PartStart(index, chance.choice(PARTS)) for index in range(chance.randrange(1, 4))]
        events = [ResponseStart("id", "model"), *parts, *(any_event(chance, parts) for _ in range(30))]
        if chance.random() < 0.5:
            events += [*(PartEnd(part.index) for part in parts), ChoiceEnd(Finish("stop")), ResponseEnd()]
        found = []
        for repeats in (True, False):
            reader = Scripted(events, repeats)
            provider = replace(find_codec(source), make_stream_reader=lambda reader=reader: reader)
            stream = StreamTranslation(Exchange(find_codec(target), provider, Options(has_memory=True)))
            out = b"".join(stream.feed(b"") for _ in events) + stream.close()
            repeat_count += reader.repeat_count
            reported = (
                stream.losses,
                stream.failure,
                stream.usage,
                stream.finishes,
                stream.has_complete_call,
                stream.memory_records,
            )
            found.append((out, reported))
        assert found[0] == found[1]
    assert repeat_count > 100


COUNTED = (
    ResponseStart("id", "model"),
    PartStart(0, Text("")),
    *(TextDelta(0, f"{number} größer und {number} 更大 ") for number in range(30)),
    PartEnd(0),
    PartStart(1, Call("call_1", "look")),
    *(ArgumentsDelta(1, text) for text in ('{"words": "', *("more " for _ in range(30)), '"}')),
    PartEnd(1),
    ChoiceEnd(Finish("calls")),
    ResponseEnd(),
)


@pytest.mark.parametrize("options", [Options(), Options(tool_format="auto")], ids=["as it is", "repaired"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_text_of_a_stream_is_counted_once(source: str, target: str, options: Options) -> None:
    """What is estimated of a stream without usage, and what limits count then, is the same for every client, whether
    frames pass, are recognised by their bytes, or are translated one by one."""
    codec = find_codec(source)
    writer = codec.make_stream_writer(Ledger(source, source), WriteContext())
    frames = [frame for event in COUNTED if (frame := writer.write(event))] + [writer.close()]
    deltas = [one for one in events_of(source, b"".join(frames)) if isinstance(one, (TextDelta, ArgumentsDelta))]
    expected = sum(measure_text(delta.text) for delta in deltas)
    assert expected > 500
    readers = [StreamTranslation(Exchange(find_codec(target), codec, options)), PassthroughStream(codec)]
    for reader in readers:
        for frame in frames:
            reader.feed(frame)
        reader.close()
        assert (reader.failure, reader.text_length) == (None, expected)
