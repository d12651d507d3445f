"""Law 5: every leaf of a request is written, carried or in the ledger, for every pair of protocols.

The same for answers and streams: change a leaf, and the output or the ledger changes, unless a loss names its place.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from material import NAMES, PAIRS, SAMPLES, corpus, leaves, needs_corpus
from toolwire import Malformed, Translation, translate
from toolwire.core.events import fold
from toolwire.core.ir import Call, ProviderCall
from toolwire.core.losses import Loss
from toolwire.core.sse import SseSplitter
from toolwire.protocols import find_codec
from toolwire.protocols.openai_responses.names import REDUNDANT_EVENTS
from toolwire.protocols.unified.names import read_call_id
from toolwire.translation.exchange import Exchange
from toolwire.translation.streaming import StreamTranslation

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}

STRUCTURE = frozenset(
    "type role object mode mimeType mime_type media_type execution status nullable thought outcome language "
    "toolType tool_type responseMimeType response_mime_type".split()
)
"""Keys whose words belong to the grammar of a protocol: another protocol says the same by its own grammar."""

DEFAULTS: dict[str, tuple[Any, ...]] = {
    "is_error": (False,),
    "strict": (False,),
    "include_usage": (True,),
    "n": (1,),
    "candidateCount": (1,),
    "stream": (True, False),
    "parallel_tool_calls": (True,),
    "disable_parallel_tool_use": (False,),
    "tool_choice": ("auto",),
    "function_call": ("auto",),
    "includeThoughts": (True,),
    "include_thoughts": (True,),
    "detail": ("auto",),
    "store": (False,),
}
"""Values that say what a wire takes for granted anyway."""

SAME = {
    "any": "required",
    "required": "any",
    "omitted": "",
    "summarized": "auto",
    "reasoning.encrypted_content": "",
    "nova_grounding": "web_search",
    "models/gemini-2.0-flash": "gemini-2.0-flash",
}
"""Words that another protocol, or the outside of the body, says differently; seals are always asked for."""


INVERTED = {
    "disable_parallel_tool_use": "parallel_tool_calls",
    "parallel_tool_calls": "disable_parallel_tool_use",
    "is_error": "status",
}
"""Keys whose meaning is negated in another protocol, or a word of another key."""


def words_of(body: Any) -> tuple[str, set[Any]]:
    """All text of a body, JSON inside of text included, and all its other scalars."""
    texts: list[str] = []
    others: set[Any] = set()
    waiting = [body]
    while waiting:
        node = waiting.pop()
        texts += re.findall(r'"(\w+)": \{\}', json.dumps(node))  # words of a choice that have nothing to add
        for path, value in leaves(node):
            texts.extend(path.split("/"))
            if not isinstance(value, str):
                others.add(value)
                continue
            texts.append(value)
            if value[:1] in "{[":
                try:
                    waiting.append(json.loads(value))
                except ValueError:
                    continue
    return "\0".join(texts), others


def silent(body: Any, source: str, target: str, **options: Any) -> list[str]:
    """The leaves that are neither in the output nor in the ledger."""
    result = translate(body, "request", source=source, target=target, **options)
    return find_lost_leaves(body, result, [loss.path for loss in result.losses if loss.path])


def find_lost_leaves(body: Any, result: Translation, named: list[str]) -> list[str]:
    text, others = words_of(json.loads(result.body))
    outside = {result.model, result.stream}
    missing = []
    for path, value in leaves(body):
        key = path.rsplit("/", 1)[1]
        if key in STRUCTURE or value in DEFAULTS.get(key, ()) or value in outside or value == "":
            continue
        if isinstance(value, str) and (value in text or all(piece in text for piece in _pieces(value))):
            continue
        if isinstance(value, str) and SAME.get(value, value).lower() in f"{text}\0{result.model}".lower():
            continue
        if key in INVERTED and INVERTED[key] in text:
            continue
        if not isinstance(value, str) and (value in others or json.dumps(value) in text):
            continue
        if not any(path == place or path.startswith(f"{place}/") for place in named):
            missing.append(f"{path} = {value!r}")
    return missing


def _pieces(value: str) -> list[str]:
    """What a text is written as elsewhere: a data URL in pieces, JSON by its leaves, bytes in the other alphabet of
    base64, ids of our own by what they stand for."""
    if value.startswith("data:"):
        head, _, data = value.partition(",")
        mime = head.removeprefix("data:").removesuffix(";base64")
        return [mime.removeprefix("image/"), data]  # some say the format, and the kind by the key
    if value[:1] in "{[":
        try:
            return [str(leaf) if isinstance(leaf, str) else json.dumps(leaf) for _, leaf in leaves(json.loads(value))]
        except ValueError:
            return [value]
    if value.startswith("tw_"):
        return [read_call_id(value)]
    if "-" in value or "_" in value:
        return [value.replace("-", "+").replace("_", "/")]
    if len(value) % 4 == 0 and value.isalnum():
        return [base64.b64decode(value).decode("utf-8", "replace")]
    return [base64.b64encode(value.encode()).decode() if value.endswith("\n") else value]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_no_leaf_of_our_own_bodies_is_lost_in_silence(source: str, target: str) -> None:
    assert silent(BODIES[source], source, target) == []


@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_no_leaf_of_recorded_requests_is_lost_in_silence(target: str) -> None:
    found: dict[str, list[str]] = {}
    for recorded in corpus():
        if recorded.request is None or recorded.status >= 400:
            continue
        try:
            missing = silent(recorded.request, recorded.protocol, target, model=recorded.model)
        except Malformed as bad:
            missing = [f"refused: {bad}"]
        if missing:
            found[recorded.name] = missing
    assert found == {}


def test_the_law_can_fail() -> None:
    """Without the ledger, what the target could not say is missed."""
    body = BODIES["openai-chat"]
    result = translate(body, "request", source="openai-chat", target="anthropic")
    missed = find_lost_leaves(body, result, [])
    assert "/future_field/deep = 'unknown-to-all'" in missed
    assert "/seed = 271828" in missed
    assert find_lost_leaves(body, result, [loss.path for loss in result.losses if loss.path]) == []


# --- answers ----------------------------------------------------------------------------------------------------------

ANSWERS: dict[str, Any] = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "c2ln"},
            {"type": "server_tool_use", "id": "s1", "name": "web_fetch", "input": {"url": "https://a.example/x"}},
            {
                "type": "web_fetch_tool_result",
                "tool_use_id": "s1",
                "content": {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"},
            },
            {
                "type": "text",
                "text": "It rains.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "cited_text": "rain all day",
                        "url": "https://b.example/y",
                        "title": "Weather",
                        "encrypted_index": "ZW5j",
                    }
                ],
            },
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "cyber", "explanation": "not this"},
        "usage": {"input_tokens": 11, "output_tokens": 12, "service_tier": "priority"},
        "container": {"id": "container_1", "expires_at": "2030-01-01T00:00:00Z"},
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "parts": [{"text": "It rains."}, {"functionCall": {"name": "f", "args": {"a": 1}}}],
                    "role": "model",
                },
                "finishReason": "STOP",
                "finishMessage": "Model generated function call(s).",
                "index": 0,
                "avgLogprobs": -0.25,
                "logprobsResult": {
                    "chosenCandidates": [{"token": "It", "tokenId": 77, "logProbability": -0.75}],
                    "topCandidates": [{"candidates": [{"token": "He", "tokenId": 78, "logProbability": -1.75}]}],
                    "logProbabilitySum": -0.875,
                },
                "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
                "groundingMetadata": {
                    "webSearchQueries": ["rain today"],
                    "groundingChunks": [{"retrievedContext": {"uri": "gs://x", "title": "Doc", "text": "so it said"}}],
                },
                "urlContextMetadata": {
                    "urlMetadata": [
                        {"retrievedUrl": "https://c.example", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR"}
                    ]
                },
            }
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7},
        "modelVersion": "m",
    },
    "openai-chat": {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "system_fingerprint": "fp_1",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "It rains.",
                    "reasoning_details": [{"type": "reasoning.text", "text": "hmm", "format": "f1", "index": 0}],
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url_citation": {
                                "url": "https://d.example",
                                "title": "T",
                                "content": "words",
                                "start_index": 0,
                                "end_index": 2,
                            },
                        }
                    ],
                    "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                "logprobs": {
                    "content": [
                        {
                            "token": "It",
                            "logprob": -0.5,
                            "bytes": [73, 116],
                            "top_logprobs": [{"token": "He", "logprob": -1.5, "bytes": [72, 101], "rank": 4}],
                        }
                    ],
                    "refusal": None,
                },
                "finish_reason": "peculiar",
                "native_finish_reason": "odd",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.5},
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "open_page", "url": "https://e.example/z"},
            },
            {
                "type": "code_interpreter_call",
                "id": "ci_1",
                "status": "completed",
                "code": "print(1)",
                "container_id": "cntr_1",
                "outputs": [{"type": "logs", "logs": "1"}],
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "final_answer",
                "content": [
                    {
                        "type": "output_text",
                        "text": "It rains.",
                        "logprobs": [{"token": "It", "logprob": -0.5, "bytes": [73, 116], "top_logprobs": []}],
                        "annotations": [
                            {"type": "file_citation", "file_id": "file-1", "filename": "x.txt", "index": 3},
                            {
                                "type": "container_file_citation",
                                "container_id": "cntr_2",
                                "file_id": "cfile-1",
                                "filename": "y.png",
                                "start_index": 1,
                                "end_index": 2,
                            },
                        ],
                    }
                ],
            },
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    },
}
FRAME_KEYS = frozenset(
    """type role object status index id item_id tool_use_id call_id output_index content_index summary_index
    annotation_index sequence_number obfuscation thought media_type part""".split()
)
"""Keys of answers that say what belongs where: another protocol says the same by its own grammar and with its own ids."""
DERIVED_KEYS = frozenset(
    """created created_at completed_at createTime total_tokens totalTokenCount prompt_cache_hit_tokens startIndex
    endIndex end_index cache_creation_input_tokens cache_read_input_tokens""".split()
)
"""What follows from other leaves, and times, which HTTP says too."""
ECHOED = re.compile(
    r"(?:^|/response)/(?:background|frequency_penalty|instructions|max_output_tokens|max_tool_calls|metadata|"
    r"parallel_tool_calls|presence_penalty|previous_response_id|prompt|prompt_cache_key|prompt_cache_retention|"
    r"reasoning|safety_identifier|store|temperature|text|tool_choice|tools|top_logprobs|top_p|truncation|"
    r"user|moderation|billing|tool_usage)(?:/|$)"
)
"""What a Responses answer repeats of its request."""


def pattern(path: str) -> str:
    """A path without numbers: a loss names the first of several like places."""
    return re.sub(r"/\d+(?=/|$)", "/#", re.sub(r"^event/\d+", "", path))


def change(body: Any, value: Any, path: str = "") -> Any:
    """The body with another value at this path, or instead of every such value."""
    other = not value if isinstance(value, bool) else f"{value}q" if isinstance(value, str) else value + 1
    if path:
        body = copy.deepcopy(body)
        *keys, last = [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]
        node = body
        for key in keys:
            node = node[int(key)] if isinstance(node, list) else node[key]
        node[int(last) if isinstance(node, list) else last] = other
        return body
    if isinstance(body, dict):
        return {key: change(child, value) for key, child in body.items()}
    if isinstance(body, list):
        return [change(child, value) for child in body]
    return other if type(body) is type(value) and body == value else body


def must_be_found(path: str, value: Any) -> bool:
    key = path.rsplit("/", 1)[1]
    return value not in ("", 0) and key not in FRAME_KEYS | DERIVED_KEYS and not ECHOED.search(path)


Outcome = tuple[Any, tuple[Loss, ...]]


Place = tuple[str, str, Any, Callable[[], Any]]
"""The shape of the node, the path and value of a leaf, and a function that changes it."""


def silent_changes(
    places: Iterable[Place], play: Callable[[Any], Outcome], base: Outcome, seen: Counter[str]
) -> Iterator[str]:
    """The places whose change neither the output nor the ledger shows. Each shape of a place is tried twice."""
    named = {pattern(loss.path) for loss in base[1] if loss.path}
    places = list(places)
    # What is said twice is reported once.
    reported = {
        (type(value), value)
        for _, path, value, _ in places
        if any(pattern(path) == place or pattern(path).startswith(f"{place}/") for place in named)
    }
    for shape, path, value, changed in places:
        key = shape + pattern(path)
        if seen[key] >= 2 or not must_be_found(path, value) or (type(value), value) in reported:
            continue
        seen[key] += 1
        try:
            if play(changed()) == base:
                yield f"{shape} {path} = {str(value)[:60]!r}"
        except Malformed:
            continue


def play_answer(body: Any, source: str, target: str) -> Outcome:
    translated = Exchange(find_codec(target), find_codec(source)).translate_response(body)
    return (translated.status, translated.body), translated.losses


def silent_in_answer(body: Any, source: str, target: str, seen: Counter[str]) -> list[str]:
    base = play_answer(body, source, target)
    if base[0][0] != 200:
        return []  # an error says what happened in words of its own
    places = (
        (f"{source} {target}", path, value, lambda path=path, value=value: change(body, value, path))
        for path, value in leaves(body)
    )
    return list(silent_changes(places, lambda changed: play_answer(changed, source, target), base, seen))


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] in ANSWERS])
def test_no_leaf_of_an_answer_is_lost_in_silence(source: str, target: str) -> None:
    assert silent_in_answer(ANSWERS[source], source, target, Counter()) == []


PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA", "displayName": "a cat"}}
RARE_ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "named image": ("gemini", {"candidates": [{"content": {"role": "model", "parts": [PICTURE]}, "finishReason": "STOP"}]}),
    "blocked": ("gemini", {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
    "blocked and explained": ("gemini", {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "why"}}),
    "steered": ("openai-responses", {"id": "resp_1", "model": "m", "status": "incomplete", "incomplete_details": {"reason": "steered"}, "output": []}),
    "tier": ("openai-responses", {"id": "resp_1", "model": "m", "status": "completed", "output": [], "service_tier": "flex"}),
    "tier of Chat": ("openai-chat", {"id": "c", "service_tier": "flex", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}),
}  # fmt: skip


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", RARE_ANSWERS)
def test_no_leaf_of_a_rare_answer_is_lost_in_silence(name: str, target: str) -> None:
    source, body = RARE_ANSWERS[name]
    assert silent_in_answer(body, source, target, Counter()) == []


@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_no_leaf_of_recorded_answers_is_lost_in_silence(target: str) -> None:
    found: list[str] = []
    seen: Counter[str] = Counter()
    for recorded in corpus():
        body = recorded.response
        if not isinstance(body, dict) or recorded.status >= 400 or recorded.bytes is not None or body.get("error"):
            continue
        if recorded.protocol != target:
            silent = silent_in_answer(body, recorded.protocol, target, seen)
            found += [f"{recorded.name}: {one}" for one in silent]
    assert found == []


# --- streams ----------------------------------------------------------------------------------------------------------

Frames = list[tuple[str | None, Any]]


def read_frames(data: bytes) -> Frames:
    splitter = SseSplitter()
    frames: Frames = []
    for frame in [*splitter.feed(data), *splitter.close()]:
        try:
            frames.append((frame.event, json.loads(frame.data)))
        except ValueError:
            frames.append((frame.event, None))
    return frames


def play_stream(frames: Frames, source: str, target: str) -> Outcome:
    stream = StreamTranslation(Exchange(find_codec(target), find_codec(source)))
    out = b""
    for event, data in frames:
        name = b"" if event is None else b"event: %b\n" % event.encode()
        out += stream.feed(b"%bdata: %b\n\n" % (name, b"[DONE]" if data is None else json.dumps(data).encode()))
    return out + stream.close(), stream.losses


def words_of_stream(protocol: str, data: bytes) -> str:
    """All that the parts of a stream say, as a client of the protocol reads it."""
    reader = find_codec(protocol).make_stream_reader()
    parts = [part for choice in fold([*reader.feed(data), *reader.close()]).choices for part in choice.parts]
    texts = [part.arguments if isinstance(part, (Call, ProviderCall)) else getattr(part, "text", "") for part in parts]
    return "\0".join(texts)


def change_frames(frames: Frames, value: Any) -> Frames:
    return [(event, change(node, value)) for event, node in frames]


REPEATING_EVENTS = re.compile(
    r"response\.(?:created|queued|in_progress|.*(?<!output_item)\.done|.*(?<!annotation)\.added)"
)
"""Events of Responses that say what deltas said, or what the finished item says."""
REPLACED = re.compile(r"/usage(?:Metadata)?/|/response/output/")
"""What the end of a stream says again: counts so far, and finished items."""


SECOND_CHOICE = re.compile(r"(?:choice|answer) \d+ was left out")


def stream_places(frames: Frames, source: str, target: str, words: str) -> Iterator[Place]:
    """Streams repeat themselves: a value is changed in all frames that say it, and what the deltas said is carried."""
    for number, (event, node) in enumerate(frames):
        if event and (REPEATING_EVENTS.fullmatch(event) or event in REDUNDANT_EVENTS):
            continue
        for path, value in leaves(node):
            if (isinstance(value, str) and value in words) or REPLACED.search(path):
                continue
            where, changed = f"event/{number}{path}", partial(change_frames, frames, value)
            yield f"{source} {target} {event or ''}", where, value, changed


def silent_in_stream(data: bytes, source: str, target: str, seen: Counter[str]) -> list[str]:
    frames = read_frames(data)
    ends = [number for number, (event, _) in enumerate(frames) if event in ("response.completed", "message_stop")]
    frames = frames[: ends[0] + 1] if ends else frames  # some recordings hold a second answer
    base = play_stream(frames, source, target)
    if find_failure(target, base[0]) or any(SECOND_CHOICE.match(loss.what) for loss in base[1]):
        return []  # all of a second choice is left out, with one loss
    dropped = any(pattern(loss.path).endswith("/content_block") for loss in base[1] if loss.code.endswith("-dropped"))
    places = [
        place
        for place in stream_places(frames, source, target, words_of_stream(target, base[0]))
        if not (dropped and "/delta/" in place[1])  # the deltas of a block that is left out
    ]
    return list(silent_changes(places, lambda changed: play_stream(changed, source, target), base, seen))


def find_failure(protocol: str, data: bytes) -> bool:
    reader = find_codec(protocol).make_stream_reader()
    return fold([*reader.feed(data), *reader.close()]).failure is not None


STREAMS = [
    (path, name)
    for folder, name in (
        ("openai_chat", "openai-chat"),
        ("openai_responses", "openai-responses"),
        ("anthropic", "anthropic"),
        ("gemini", "gemini"),
    )
    for path in sorted((SAMPLES / folder).glob("*.sse"))
]


@pytest.mark.parametrize("target", NAMES)
def test_no_leaf_of_our_own_streams_is_lost_in_silence(target: str) -> None:
    seen: Counter[str] = Counter()
    found = [
        f"{path.name}: {one}"
        for path, source in STREAMS
        if source != target and path.stem != "interactions_function_call"  # another API of the same vendor
        for one in silent_in_stream(path.read_bytes(), source, target, seen)
    ]
    assert found == []


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_no_leaf_of_recorded_streams_is_lost_in_silence(target: str) -> None:
    found: list[str] = []
    seen: Counter[str] = Counter()
    for recorded in corpus():
        if recorded.sse is not None and recorded.status < 400 and recorded.protocol != target:
            data = recorded.sse.encode()
            found += [f"{recorded.name}: {one}" for one in silent_in_stream(data, recorded.protocol, target, seen)]
    assert found == []


def test_the_law_of_answers_can_fail() -> None:
    """Without the ledger, what the target could not say is missed."""
    body = ANSWERS["gemini"]
    base = play_answer(body, "gemini", "openai-chat")
    path, value = next((path, value) for path, value in leaves(body) if path.endswith("finishMessage"))
    changed = play_answer(change(body, value, path), "gemini", "openai-chat")
    assert changed[0] == base[0]
    assert changed[1] != base[1]
