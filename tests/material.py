"""What the tests are fed with: our own samples, and the recorded corpus where it lies beside the project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from toolwire.protocols import ROOMS

HERE = Path(__file__).parent
SAMPLES = HERE / "samples"
CORPUS = HERE.parent.parent / "shared" / "corpus"
NAMES = tuple(ROOMS)
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
