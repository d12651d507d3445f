"""What the tests are fed with: our own samples, and the recorded corpus where it lies beside the project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import pytest

from toolwire.protocols import CODECS

HERE = Path(__file__).parent
SAMPLES = HERE / "samples"
CORPUS = HERE.parent.parent / "shared" / "corpus"
NAMES = tuple(CODECS)
PAIRS = [(source, target) for source in NAMES for target in NAMES]

RECORDED = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic_messages": "anthropic",
    "gemini_generate": "gemini",
}
"""What the corpus calls the protocols."""

needs_corpus = pytest.mark.skipif(not CORPUS.exists(), reason="the recorded corpus is not here: its tests are left out")


class Recorded:
    """One recorded exchange."""

    def __init__(self, file: Path) -> None:
        record = json.loads(file.read_text())
        self.name = f"{file.parent.name}/{file.stem}"
        self.protocol = RECORDED[record["protocol"]]
        self.request: Any = record.get("request")
        self.response: Any = record.get("response")
        self.sse: str | None = record.get("sse")
        self.stream: bool = bool(record.get("stream"))
        self.status: int = record.get("status") or 200
        self.model: str = record.get("model") or ""
        self.host: str = record.get("host") or ""

    @property
    def bytes(self) -> bytes | None:
        """The stream as it came, for a stream."""
        if self.sse is not None:
            return self.sse.encode()
        if self.stream and self.protocol == "gemini" and isinstance(self.response, list):
            return json.dumps(self.response).encode()
        return None


@cache
def corpus() -> tuple[Recorded, ...]:
    folders = [CORPUS / name for name in ("openai_chat", "openai_responses", "anthropic", "gemini")]
    return (
        tuple(Recorded(file) for folder in folders for file in sorted(folder.glob("*.json"))) if CORPUS.exists() else ()
    )


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar of a JSON value with its JSON Pointer; null says nothing."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from leaves(child, f"{path}/{number}")
    elif value is not None:
        yield path, value


def sample_streams(folder: str) -> list[Path]:
    return sorted((SAMPLES / folder).glob("*.sse"))


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Few combinations in which every two values of different axes meet at least once.

    For axes that do not interact: a fault that needs one value, or two together, is found; one that needs three together
    may be missed. The choice is the same in every run: always the first combination with the most pairs not yet seen.
    """
    values = [tuple(axis) for axis in axes]
    left = {row: _pairs_of(row) for row in product(*(range(len(axis)) for axis in values))}
    missing = set().union(*left.values())
    chosen = []
    while missing:
        best = max(left, key=lambda row: len(left[row] & missing))
        missing -= left.pop(best)
        chosen.append(best)
    return [tuple(values[axis][number] for axis, number in enumerate(row)) for row in sorted(chosen)]


def _pairs_of(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(row), min(2, len(row))))  # a single axis is taken in full


WHOLE_OR_STREAM = {"stream": True, "whole": False}


def parametrize_pairwise(axes: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Like one `parametrize` for each axis, but pairwise. Whoever uses it says so in tests/README.md.

    The axis "first,second" has tuples and counts as one, so all of these are kept; a mapping names its values.
    """
    names = [name.split(",") for name in axes]
    rows = []
    for row in pairwise(*(_with_ids(axis) for axis in axes.values())):
        values = [value if len(name) > 1 else (value,) for name, (_, value) in zip(names, row, strict=True)]
        rows.append(pytest.param(*chain.from_iterable(values), id="-".join(word for word, _ in row)))
    return pytest.mark.parametrize(list(chain.from_iterable(names)), rows)


def _with_ids(axis: Iterable[Any]) -> list[tuple[str, Any]]:
    if isinstance(axis, Mapping):
        return list(axis.items())
    return [("-".join(value) if isinstance(value, tuple) else str(value), value) for value in axis]
