"""What all protocols share about failures: HTTP statuses, how long to wait, and streams that end early."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure
from toolwire.core.rate_limits import read_duration

TRUNCATED_STREAM_MESSAGE = "the provider's stream ended before its answer did (connection error)"
"""In the middle of a stream there is no status. Some clients retry because of the words "connection error"."""
FAILURE_KIND_BY_STATUS: Mapping[int, str] = MappingProxyType(
    # The first kind of a status is the usual one. Anthropic says 529 where others say 503.
    {status: kind for kind, status in reversed([*STATUS_BY_FAILURE_KIND.items()])} | {529: "overloaded"}
)
"""The kind of failure for a status, where the body says nothing more exact."""


def truncated_stream_failure(missing: str = "") -> Failure:
    """The failure of a stream that ended before its answer did. `missing` names what should have come."""
    message = f"{TRUNCATED_STREAM_MESSAGE}: {missing}" if missing else TRUNCATED_STREAM_MESSAGE
    return Failure("upstream", message, 502, "stream_truncated")


def failure_kind_for_status(status: int) -> str:
    return FAILURE_KIND_BY_STATUS.get(status) or ("server" if status >= 500 else "invalid")


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds in `retry-after-ms` or `retry-after`. A date is ignored, because that would need a clock."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = lower.get(name, "")
        if value.isascii() and value.replace(".", "", 1).isdecimal():
            return float(value) / unit
    return None


_RETRY_PHRASE = re.compile(r"(?:try again|retry) in ([\d.]+ ?[a-z]+(?:[\d.]+[a-z]+)*)", re.IGNORECASE)
_UNIT_WORD = re.compile(r" ?([smh])(?:ec|econd|in|inute|our)s?$")


def read_retry_after_message(message: str) -> float | None:
    """The seconds in a message such as `try again in 1.5s`, `6m0s` or `20 seconds`."""
    found = _RETRY_PHRASE.search(message)
    return None if found is None else read_duration(_UNIT_WORD.sub(r"\1", found[1].lower()).replace(" ", ""))


def write_retry_after(seconds: float | None) -> dict[str, str]:
    """The headers that ask to wait: whole seconds, and milliseconds where they are not whole."""
    if seconds is None:
        return {}
    headers = {"retry-after": str(math.ceil(seconds))}
    if seconds != int(seconds):
        headers["retry-after-ms"] = str(math.ceil(seconds * 1000))
    return headers
