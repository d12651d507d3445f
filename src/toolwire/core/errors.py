"""What all protocols share about failures: HTTP statuses, how long to wait, streams that end early, and prompts that do
not fit into the model's context."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.codec import RateLimit
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure, Response
from toolwire.core.json_values import Json, Malformed, Object, encode_text
from toolwire.core.rate_limits import read_duration, read_http_date

TRUNCATED_STREAM_MESSAGE = "the provider's stream ended before its answer did (connection error)"
"""In the middle of a stream there is no status. Some clients retry because of the words "connection error"."""
FAILURE_KIND_BY_STATUS: Mapping[int, str] = MappingProxyType(
    # The first kind of a status is the usual one. Anthropic says 529 where others say 503.
    {status: kind for kind, status in reversed([*STATUS_BY_FAILURE_KIND.items()])} | {529: "overloaded"}
)
"""The kind of failure for a status, where the body says nothing more exact."""


MAX_UNSHAPED_ERROR = 2000
"""Characters of an error that does not have the shape of its protocol, such as the page of a proxy."""
GATEWAY_CODES = frozenset({"store_unavailable", "provider_key_missing"})
"""Codes of the gateway's own errors that clients get as they are, in place of the vendor's code for that kind: the
vendor's would say that the provider is the one that failed."""


def truncated_stream_failure(missing: str = "") -> Failure:
    """The failure of a stream that ended before its answer did. `missing` names what should have come."""
    message = f"{TRUNCATED_STREAM_MESSAGE}: {missing}" if missing else TRUNCATED_STREAM_MESSAGE
    return Failure("upstream", message, 502, "stream_truncated")


def bad_call_failure(name: str, problem: str, setting: str) -> Failure:
    """The failure of an answer with a call that this setting of the operator does not let pass. The model wrote it, and
    the provider has not failed: nobody is asked again."""
    message = f"the model's call of `{name}` was refused: {problem} ({setting})"
    return Failure("unprocessable", message, STATUS_BY_FAILURE_KIND["unprocessable"])


NOTHING_SAID = "it has neither content nor a finish reason"


def expect_answer(response: Response) -> Response:
    """The answer that was read. Raises Malformed if there is nothing in it."""
    if response.is_hollow:
        raise Malformed(None, f"this is not an answer: {NOTHING_SAID}")
    return response


def text_field(error: Object, key: str) -> str:
    """A text in an error; "" for a value of another type: whatever an error holds, it is read."""
    value = error.get(key)
    return value if isinstance(value, str) else ""


UNSHAPED_KEYS = ("message", "Message", "detail", "error")
"""Where servers say it. Gateways of AWS write `Message`."""


def read_unshaped_error(body: Json, status: int) -> str:
    """What an error says that does not have the shape of its protocol: a text, the page of a proxy, nothing, or JSON of
    another server, such as FastAPI's `detail`."""
    fields = [body.get(key) for key in UNSHAPED_KEYS] if isinstance(body, dict) else [body]
    text = next((field for field in fields if isinstance(field, str) and field.strip()), "")
    has_more = any(body.values()) if isinstance(body, dict) else bool(body) and not isinstance(body, str)
    if not text and has_more:
        text = encode_text(body)
    without = (
        f"the provider answered with status {status} and no explanation" if status else "the provider gave no reason"
    )
    return text.strip()[:MAX_UNSHAPED_ERROR] or without


def failure_kind_for_status(status: int) -> str:
    return FAILURE_KIND_BY_STATUS.get(status) or ("server" if status >= 500 else "invalid")


MAX_RETRY_AFTER = 1e9
"""Seconds. Providers can send any number, and dates have an end."""


def bound_wait(seconds: float) -> float:
    return min(max(0.0, seconds), MAX_RETRY_AFTER)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds in `retry-after-ms` or `retry-after`. A date is compared with that of the answer, in `date`: there is
    no other clock here."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = lower.get(name, "")
        if value.isascii() and value.replace(".", "", 1).isdecimal():
            return bound_wait(float(value) / unit)
    until, said = (read_http_date(lower.get(name, "")) for name in ("retry-after", "date"))
    return None if until is None or said is None else bound_wait(until - said)


MAX_SEARCHED = 32_000
"""Characters of an error that are searched for the words of servers: a regular expression keeps the event loop busy."""


def cut_for_search(message: str) -> str:
    """The start and the end of a message: some servers repeat the whole request in between."""
    if len(message) <= MAX_SEARCHED:
        return message
    return f"{message[: MAX_SEARCHED // 2]}\n{message[-MAX_SEARCHED // 2 :]}"


_RETRY_PHRASE = re.compile(r"(?:try again|retry) in ([\d.]+ ?[a-z]+(?:[\d.]+[a-z]+)*)", re.IGNORECASE)
_UNIT_WORD = re.compile(r" ?([smh])(?:ec|econd|in|inute|our)s?$")


def read_retry_after_message(message: str) -> float | None:
    """The seconds in a message such as `try again in 1.5s`, `6m0s` or `20 seconds`."""
    found = _RETRY_PHRASE.search(cut_for_search(message))
    return None if found is None else read_duration(_UNIT_WORD.sub(r"\1", found[1].lower()).replace(" ", ""))


MAX_WAIT = 60.0
"""Seconds. A client that has to wait longer should tell its user instead of trying again."""
LASTING_KINDS = frozenset(
    {
        "invalid",
        "context",
        "authentication",
        "billing",
        "permission",
        "not_found",
        "too_large",
        "unprocessable",
        "quota",
    }
)
"""Failures that the same request meets again, unless they say when it will not."""


def is_lasting(failure: Failure) -> bool:
    """Would the same request fail again, for longer than a client should wait?"""
    return failure.kind in LASTING_KINDS if failure.retry_after is None else failure.retry_after > MAX_WAIT


RETRY_HEADERS = frozenset({"retry-after", "retry-after-ms"})


def find_wait(limits: tuple[RateLimit, ...]) -> float | None:
    """The seconds to wait before asking again because limits are used up; None if none is, or nobody says when.

    The headers say when all of a limit is available again, not when the next request is. A bucket that fills evenly has
    room for one much earlier: 10,000 requests a day leave room every nine seconds. So nobody waits for longer than
    `MAX_WAIT` because of them, or gives up. (Guides on rate limits of OpenAI, "resets to its initial state", and of
    Anthropic, "fully replenished"; November 2026.)"""
    return max((_find_next(limit) for limit in limits if limit.remaining == 0 and limit.reset_after), default=None)


def _find_next(limit: RateLimit) -> float:
    """Seconds until a limit has room for a request."""
    share = limit.limit if limit.kind == "requests" and limit.limit else 1
    return min((limit.reset_after or 0.0) / share, MAX_WAIT)


def is_used_up(failure: Failure) -> bool:
    """Is it a limit that opens only after a long wait, or nobody knows when? Codecs write it as an error that clients
    show at once: Codex, opencode and Qwen Code were seen to wait for hours without a word after a 429 with such a
    `retry-after`, and the last two asked again and again where an account had no credit."""
    wait = failure.retry_after
    if wait is None:
        return failure.kind == "quota"
    return failure.kind in ("rate", "quota") and wait > MAX_WAIT


def write_retry_headers(failure: Failure) -> dict[str, str]:
    """The headers that ask to wait, or not to try again, which the SDKs of OpenAI and Anthropic and Claude Code obey.
    They ask for no wait of hours: clients that ignore `x-should-retry` would keep it."""
    return {"x-should-retry": "false"} if is_lasting(failure) else write_retry_after(failure.retry_after)


def write_retry_after(seconds: float | None) -> dict[str, str]:
    """Whole seconds, and milliseconds where they are not whole."""
    if seconds is None:
        return {}
    headers = {"retry-after": str(math.ceil(seconds))}
    if seconds != int(seconds):
        headers["retry-after-ms"] = str(math.ceil(seconds * 1000))
    return headers


# --- prompts that are too long ----------------------------------------------------------------------------------------

CONTEXT_CODE = "context_length_exceeded"
"""The code that OpenAI gives such an error. Agents shorten their history when they see it, or the vendor's words."""
OVERFLOW_KINDS = frozenset({"invalid", "too_large", "unprocessable", "server", "upstream"})
"""Kinds of failures that may be an overflow in truth: servers answer with statuses of all kinds."""

_OVERFLOW = re.compile(
    r"prompt (?:is )?too long|input is too long|too many (?:input )?tokens|reduce the length|too large for model with"
    r"|context[ _-]?(?:length|window|size|limit)|maximum (?:context|prompt) length|exceeded model token limit"
    r"|token count.{0,60}exceeds|maximum.{0,12}tokens.{0,40}exceed|maximum number of (?:input )?tokens"
    r"|longer than the max(?:imum)?[ _]model[ _]len|exceeds? the max_model_len|maximum allowed input length"
    r"|input tokens exceed|range of input length should be|exceed_context_size",
    re.IGNORECASE,
)
"""How OpenAI, Anthropic, Google, Bedrock, xAI, Groq, Mistral, Moonshot, OpenRouter, Copilot, DashScope, vLLM,
llama.cpp, LM Studio and Ollama say that a prompt does not fit."""

_USED, _LIMIT = r"(?P<used>[\d,]{1,24})", r"(?P<limit>[\d,]{1,24})"
_OVERFLOW_COUNTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"too long: {_USED} tokens? > {_LIMIT}",
        rf"context limit: {_USED} \+ [\d,]+ > {_LIMIT}",
        rf"maximum (?:context|prompt) length is {_LIMIT}.{{0,60}}?"
        rf"(?:resulted in|requested(?: about)?|contains|has) {_USED}",
        rf"token count (?:of )?\(?{_USED}\)? exceeds the (?:limit of|maximum number of tokens allowed) \(?{_LIMIT}",
        rf"request \({_USED} tokens\) exceeds the available context size \({_LIMIT}",
        rf"token limit: {_LIMIT} \(requested: {_USED}",
        rf"contains {_USED} tokens.{{0,60}}?model with {_LIMIT} maximum",
        rf"length {_USED}\) is longer than the maximum model length of {_LIMIT}",
        rf"exceed the configured limit of {_LIMIT} tokens\. Your messages resulted in {_USED}",
    )
)


def is_context_overflow(message: str) -> bool:
    """Does the message of an error say that the prompt does not fit into the model's context?"""
    return _OVERFLOW.search(cut_for_search(message)) is not None


def read_overflow_counts(message: str) -> tuple[int, int] | None:
    """The tokens of the prompt and of the context, where the message names both."""
    message = cut_for_search(message)
    for pattern in _OVERFLOW_COUNTS:
        found = pattern.search(message)
        if found is not None:
            used, limit = (int(found[name].replace(",", "") or 0) for name in ("used", "limit"))
            return (used, limit) if used > limit > 0 else None
    return None


def word_overflow(message: str, with_counts: str, without_counts: str) -> str:
    """The message of an overflow in a vendor's words, with the provider's own in brackets. `with_counts` has the fields
    `{used}` and `{limit}`."""
    counts = read_overflow_counts(message)
    words = without_counts if counts is None else with_counts.format(used=counts[0], limit=counts[1])
    return f"{words} ({message})" if message else words
