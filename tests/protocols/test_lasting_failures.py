"""Errors tell clients whether to try again: by one rule for all protocols."""

from __future__ import annotations

import pytest

from toolwire.core.errors import MAX_WAIT, is_lasting
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
    sent = codec.write_error(codec.read_error(body, 429, {"retry-after": "38808"}))
    assert (sent.status, sent.body) == (429, body)
