"""The headers of both sides, and the address of a call, without credentials: worked out when somebody looks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_plus

from toolwire.gateway.http.redact import REDACTED, printable_text
from toolwire.gateway.surfaces.console import api
from toolwire.gateway.surfaces.console.rows import CleanText
from toolwire.gateway.telemetry.record import UpstreamCapture

MAX_HEADERS = 100
"""Headers of one side that are shown."""
MAX_VALUE = 1000
SHOWN_HEADERS = frozenset(
    """accept accept-encoding accept-language age allow anthropic-beta anthropic-version cache-control cf-ray connection
    content-encoding content-language content-length content-type date editor-version expect expires host keep-alive
    originator openai-beta openai-model openai-processing-ms openai-version retry-after retry-after-ms server
    server-timing session-id session_id te traceparent trailer transfer-encoding upgrade user-agent vary via warning
    x-app x-claude-code-session-id x-envoy-upstream-service-time x-goog-api-client x-request-id x-should-retry
    request-id anthropic-organization-id openai-organization openai-project""".split()
)
"""Headers whose values say nothing that is secret. Those of all others are hidden: a gateway before this one, or an
agent, may carry a credential in a header of any name."""
SHOWN_STARTS = re.compile(
    r"(?:x-|anthropic-)?ratelimit-|x-stainless-|x-toolwire-|sec-fetch-|sec-ch-ua|x-ms-region|x-amzn-requestid|x-goog-request-"
)
SHOWN_QUERIES = frozenset(("alt", "api-version", "beta"))


def list_headers(pairs: Iterable[tuple[str, str]], clean: CleanText) -> list[api.Header]:
    return [*_write_headers(pairs, clean)][:MAX_HEADERS]


def _write_headers(pairs: Iterable[tuple[str, str]], clean: CleanText) -> Iterator[api.Header]:
    for name, value in pairs:
        lower = name.lower()
        is_shown = lower in SHOWN_HEADERS or SHOWN_STARTS.match(lower) is not None
        shown = printable_text(clean(value), MAX_VALUE) if is_shown else REDACTED
        yield api.Header(name=printable_text(clean(name)), value=shown)


def write_url(call: UpstreamCapture, clean: CleanText) -> str:
    """The address that was called, with the path of its base URL. Values in its query are hidden, because there may be
    a key among them."""
    path, _, query = call.url.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    shown = [
        f"{name}{mark}{value if unquote_plus(name).lower() in SHOWN_QUERIES else REDACTED}"
        for name, mark, value in pairs
    ]
    return clean(path) + (f"?{clean('&'.join(shown))}" if shown else "")
