"""The block that stands for earlier turns."""

from __future__ import annotations

from toolwire.ir import Opaque, Part, Seal, Summary, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.names import NAME, keys
from toolwire.reading import Reading, finished
from toolwire.wire import Object, Path, take_text

_KEYS = keys("type", "content", "encrypted_content")


class AnswerReading(Reading):
    """Of an answer. Only who asked for a summary in this protocol gets one, so there it is carried whole."""


def read_summary(block: Object, path: Path, reading: Reading) -> Part:
    if isinstance(reading, AnswerReading):
        return Opaque("compaction", reading.whole(block, path))
    encrypted = take_text(block, "encrypted_content", path)
    seal = Seal(NAME, encrypted) if encrypted else None
    return Summary(take_text(block, "content", path) or "", seal, origin=reading.origin(block, path, _KEYS))


def write_summary(part: Summary, ledger: Ledger, answer: bool) -> Object | None:
    if part.origin is not None and part.origin.protocol != NAME:
        ledger.note("part-dropped", place(part), "a summary that only its maker can read was left out")
        return None
    out: Object = {"type": "compaction", "content": part.text or None}
    if part.seal is not None:
        out["encrypted_content"] = part.seal.value
    return finished(out, part.origin, NAME)
