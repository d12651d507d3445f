"""Errors tell clients whether to try again: by one rule for all protocols."""

from __future__ import annotations

import pytest

from toolwire.core.codec import RateLimit
from toolwire.core.errors import (
    MAX_RETRY_AFTER,
    MAX_WAIT,
    find_wait,
    is_context_overflow,
    is_lasting,
    read_overflow_counts,
    read_retry_after_message,
)
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure
from toolwire.protocols import CODECS

PASSING = {"timeout", "conflict", "rate", "cancelled", "server", "upstream", "overloaded", "deadline"}


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize("kind", STATUS_BY_FAILURE_KIND)
def test_a_failure_that_lasts_is_not_tried_again(protocol: str, kind: str) -> None:
    write = CODECS[protocol].write_error
    lasting, soon, late = (Failure(kind, "No.", retry_after=wait) for wait in (None, MAX_WAIT, MAX_WAIT + 1))
    assert is_lasting(lasting) == (kind not in PASSING)
    assert write(lasting).headers.get("x-should-retry") == ("false" if is_lasting(lasting) else None)
    assert (write(soon).headers["retry-after"], "x-should-retry" in write(soon).headers) == ("60", False)
    assert (write(late).headers["x-should-retry"], "retry-after" in write(late).headers) == ("false", False)


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize("kind", ["rate", "quota"])
def test_a_limit_that_opens_late_is_read_back_as_used_up(protocol: str, kind: str) -> None:
    """A gateway behind a gateway rests for it."""
    codec = CODECS[protocol]
    sent = codec.write_error(Failure(kind, "The limit is reached.", 429, retry_after=38808.0, opens_at=1_795_000_000))
    read = codec.read_error(sent.body, sent.status, sent.headers)
    assert read.kind in ("rate", "quota")
    assert "rate_limit" not in str(sent.body) or protocol in ("anthropic", "unified")


def test_a_providers_own_words_stay_in_its_protocol() -> None:
    body = {"error": {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    codec = CODECS["openai-chat"]
    sent = codec.write_error(codec.read_error(body, 429, {"retry-after": "60"}))
    assert (sent.status, sent.body) == (429, body)


@pytest.mark.parametrize(
    ("protocol", "seen"), [("openai-chat", "insufficient_quota"), ("openai-responses", "usage_limit_reached")]
)
def test_only_its_message_stays_where_agents_would_wait_for_hours(protocol: str, seen: str) -> None:
    body = {"error": {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    codec = CODECS[protocol]
    sent = codec.write_error(codec.read_error(body, 429, {"retry-after": "38808"}))
    assert isinstance(sent.body, dict)
    error = sent.body["error"]
    assert isinstance(error, dict)
    assert (error["message"], error["type"], error["code"]) == ("Slow down.", seen, seen)
    assert sent.status == (403 if protocol == "openai-chat" else 429)


SAID = "Wed, 18 Nov 2026 21:00:00 GMT"


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "Thu, 19 Nov 2026 10:00:00 GMT", "date": SAID}, 46800.0),
        ({"Retry-After": "Wed, 18 Nov 2026 21:00:20 GMT", "Date": SAID}, 20.0),
        ({"retry-after": "Wed, 18 Nov 2026 20:00:00 GMT", "date": SAID}, 0.0),
        ({"retry-after": "Thu, 19 Nov 2026 10:00:00 GMT"}, None),
        ({"retry-after": "soon", "date": SAID}, None),
        ({"retry-after": "Thu, 19 Foo 2026 10:00:00 GMT", "date": SAID}, None),
    ],
)
def test_a_wait_until_a_date(protocol: str, headers: dict[str, str], wait: float | None) -> None:
    assert CODECS[protocol].read_error({"error": {"message": "Slow down."}}, 429, headers).retry_after == wait


@pytest.mark.parametrize("protocol", [name for name in CODECS if name != "unified"])
def test_a_wait_in_the_message(protocol: str) -> None:
    body = {"error": {"message": "Rate limit reached. Please try again in 10h45m2s."}}
    assert CODECS[protocol].read_error(body, 429, {}).retry_after == 38702.0


NO_CREDIT = {"error": {"message": "Check your plan.", "type": "insufficient_quota", "code": "insufficient_quota"}}


@pytest.mark.parametrize(("protocol", "status"), [("openai-chat", 403), ("openai-responses", 429)])
def test_a_quota_that_nobody_says_when_it_opens(protocol: str, status: int) -> None:
    """Agents of Chat ask again after any 429; Codex ends after the code."""
    codec = CODECS[protocol]
    sent = codec.write_error(codec.read_error(NO_CREDIT, 429, {}))
    assert (sent.status, sent.body, sent.headers) == (status, NO_CREDIT, {"x-should-retry": "false"})


@pytest.mark.parametrize(("delay", "wait"), [("20s", None), ("7200s", 7200.0)])
def test_google_says_a_short_wait_for_the_quota_of_a_day(delay: str, wait: float | None) -> None:
    details = [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}, {"retryDelay": delay}]
    body = {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": details}}
    read = CODECS["gemini"].read_error(body, 429, {})
    assert (read.kind, read.retry_after) == ("quota", wait)


def test_the_wait_for_limits_that_are_used_up() -> None:
    used_up, open_, unsaid = (
        RateLimit("requests", remaining=0, reset_after=36000.0),
        RateLimit("tokens", remaining=5, reset_after=90000.0),
        RateLimit("tokens", remaining=0),
    )
    assert find_wait((used_up, open_, RateLimit("tokens", remaining=0, reset_after=5.0))) == MAX_WAIT
    assert find_wait((open_, RateLimit("tokens", limit=9000, remaining=0, reset_after=5.0))) == 5.0
    assert find_wait((open_, unsaid)) is None


def test_a_bucket_has_room_long_before_it_is_full() -> None:
    assert find_wait((RateLimit("requests", limit=10_000, remaining=0, reset_after=86_340.0),)) == 8.634
    assert find_wait((RateLimit("requests", limit=200, remaining=0, reset_after=86_340.0),)) == MAX_WAIT


NUMBER = "9" * 5000
LARGE_NUMBERS = {
    "a context": f"request ({NUMBER}9 tokens) exceeds the available context size ({NUMBER} tokens)",
    "Anthropic's context": f"too long: {NUMBER}9 tokens > {NUMBER}",
    "OpenAI's context": f"maximum context length is {NUMBER} tokens, however you requested {NUMBER}9 tokens",
    "a wait": f"try again in {NUMBER}s",
}


@pytest.mark.parametrize("said", LARGE_NUMBERS)
@pytest.mark.parametrize("protocol", CODECS)
def test_a_number_that_no_clock_or_counter_takes_is_no_end(protocol: str, said: str) -> None:
    """Of a provider: its error is read and written all the same, and another provider can be asked."""
    codec, message = CODECS[protocol], LARGE_NUMBERS[said]
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{'9' * 400}s"}
    error = {"message": message, "code": NUMBER, "retry_after": 1e308, "details": [delay]}
    for body in (error, {"error": error}, {"error": {**error, "code": 99_999, "status": 99_999}}):
        for headers in ({}, {"retry-after": "9" * 400}, {"retry-after-ms": "9" * 4000}):
            failure = codec.read_error(body, 429, headers)
            assert failure.retry_after is None or failure.retry_after <= MAX_RETRY_AFTER
            assert 400 <= codec.write_error(codec.read_error(body, 0, headers)).status < 600
            for other in CODECS.values():
                assert 400 <= other.write_error(failure).status < 600


def test_the_words_of_servers_are_searched_at_the_start_and_the_end_of_a_long_message() -> None:
    """Some repeat the whole request in between; a search of 2 MB would take a second of the event loop."""
    words, long = "maximum context length is 10 tokens, you requested 20 tokens", "x" * 100_000
    for message, is_found in ((words + long, True), (long + words, True), (long + words + long, False)):
        assert is_context_overflow(message) is is_found
        assert (read_overflow_counts(message) is not None) is is_found
    assert read_retry_after_message(f"{long} try again in 2s") == 2.0
    assert read_retry_after_message(f"{long} try again in 2s {long}") is None
