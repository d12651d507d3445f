"""Laws of whole bodies: unchanged within a protocol (1), the same meaning after a translation (2), the same bytes (7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from material import NAMES, PAIRS, SAMPLES, corpus, needs_corpus
from toolwire import Malformed, translate
from toolwire.core.codec import WriteContext
from toolwire.core.ir import strip_origins
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}


@pytest.mark.parametrize("name", NAMES)
def test_a_request_comes_back_as_it_was(name: str) -> None:
    place = find_codec(name)
    body = BODIES[name]
    assert json.dumps(place.write_request(place.read_request(body), Ledger(name, name))) == json.dumps(body)
    assert json.loads(translate(body, "request", source=name, target=name).body) == body


@pytest.mark.parametrize("name", NAMES)
def test_a_request_written_from_its_meaning_means_the_same(name: str) -> None:
    place = find_codec(name)
    meant = strip_origins(place.read_request(BODIES[name]))
    again = place.read_request(json.loads(_bytes(place.write_request(meant, Ledger(name, name)))))
    assert strip_origins(again) == meant


def _bytes(value: Any) -> bytes:
    from toolwire.core.json_values import encode

    return encode(value)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_same_input_gives_the_same_bytes(source: str, target: str) -> None:
    once = translate(BODIES[source], "request", source=source, target=target)
    again = translate(json.dumps(BODIES[source]), "request", source=source, target=target)
    assert (once.body, once.losses, once.model, once.stream) == (again.body, again.losses, again.model, again.stream)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_request_survives_the_way_there_and_back(source: str, target: str) -> None:
    """The calls, their arguments and their results are the same after a round trip through any other protocol."""
    there = translate(BODIES[source], "request", source=source, target=target)
    back = translate(there.body, "request", source=target, target=source, model=there.model)
    first, second = (calls_in(find_codec(source).read_request(body)) for body in (BODIES[source], back.json()))
    assert [call[2:] for call in first] == [call[2:] for call in second]


def calls_in(request: Any) -> list[tuple[Any, ...]]:
    from toolwire.core.ir import Call
    from toolwire.translation.request_steps.tools import unwrap_freeform_input

    found = []
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, Call):
                raw = part.arguments if part.kind == "custom" else None
                loads = json.loads(part.arguments or "{}") if raw is None else None
                found.append(
                    (
                        part.name,
                        part.kind,
                        raw
                        if raw is not None
                        else loads
                        if set(loads) != {"input"}
                        else unwrap_freeform_input(part.arguments),
                    )
                )
    return found


@needs_corpus
@pytest.mark.parametrize("kind", ["request", "response"])
def test_recorded_bodies_come_back_as_they_were(kind: str) -> None:
    wrong = []
    for recorded in corpus():
        body = recorded.request if kind == "request" else recorded.response
        if not isinstance(body, dict) or (kind == "response" and recorded.status >= 400):
            continue
        place = find_codec(recorded.protocol)
        try:
            if kind == "request":
                out = place.write_request(place.read_request(body), Ledger(place.name, place.name))
            else:
                out = place.write_response(place.read_response(body), Ledger(place.name, place.name), WriteContext())
        except Malformed as bad:
            if recorded.status < 400:
                wrong.append((recorded.name, str(bad)))
            continue
        if json.loads(_bytes(out)) != body:
            wrong.append((recorded.name, "differs"))
    assert wrong == []


@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_recorded_answers_come_out_in_every_protocol(target: str) -> None:
    wrong = []
    for recorded in corpus():
        if not isinstance(recorded.response, dict) or recorded.status >= 400:
            continue
        result = translate(recorded.response, "response", source=recorded.protocol, target=target)
        if result.status >= 400 and not _is_failure(recorded.response, recorded.protocol):
            wrong.append((recorded.name, result.body[:200]))
    assert wrong == []


def _is_failure(body: Any, protocol: str) -> bool:
    return find_codec(protocol).read_response(body).failure is not None


@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_recorded_errors_come_out_in_every_protocol(target: str) -> None:
    for recorded in corpus():
        if recorded.status < 400:
            continue
        result = translate(recorded.response, "error", source=recorded.protocol, target=target, status=recorded.status)
        assert result.status >= 400
        assert result.json()


def test_samples_of_errors_come_out_in_every_protocol() -> None:
    for folder, source in (("anthropic", "anthropic"), ("gemini", "gemini")):
        for path in sorted((SAMPLES / folder).glob("error_*.json")):
            for target in NAMES:
                result = translate(path.read_bytes(), "error", source=source, target=target)
                assert result.status >= 400, path.name
