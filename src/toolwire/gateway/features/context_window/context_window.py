"""Prompts that cannot fit into the model's context window are refused before the provider is asked.

Only what is certain is refused. The window is certain if the operator has set it, or if the provider's own list says
it; the catalogue may be older than the vendor's last change. The count is a lower bound: tokenizers divide text at
white space, so a text has at least as many tokens as words. Tokenizers that nobody has published may join words, so two
words count as one token; no known one joins that many on average. Images, files, thinking and tools are not counted.
"""

from __future__ import annotations

from toolwire.core.ir import Call, Failure, Part, Request, Result, Summary, Text
from toolwire.core.json_values import Malformed
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.client_body import ClientBody
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, Upstream
from toolwire.gateway.http.large_work import run_by_size

WORDS_PER_TOKEN = 2
MIN_WORD_BYTES = 2
"""A letter and a space."""
MIN_BODY = 4096
"""No model that takes tools has so small a window that a shorter body could not fit."""
MAX_SHORTENED_WINDOW = 8192
"""OpenRouter shortens prompts by itself for models with windows up to this, so what its list says does not matter."""


async def refuse_overflow(request: GatewayRequest, upstream: Upstream) -> AttemptFailed | None:
    """An error in the client's protocol if the prompt cannot fit; None if it may."""
    body, window = request.body, find_certain_window(request, upstream)
    if window is None or len(body.data) < window * WORDS_PER_TOKEN * MIN_WORD_BYTES:
        return None
    if count_odd_runs(body.data) <= window * WORDS_PER_TOKEN:
        return None
    if request.client_codec.http.changes_window(request.headers, body.data):
        return None
    tokens = await run_by_size(len(body.data), lambda: count_fewest_tokens(body))
    if tokens <= window:
        return None
    what = f"prompt is too long: {tokens} tokens > {window} maximum"
    detail = f"the gateway counted at least so many, and did not ask the provider `{upstream.provider.name}`"
    return error_replies.gateway_error(request, Failure("context", f"{what} ({detail})", 400), upstream)


def find_certain_window(request: GatewayRequest, upstream: Upstream) -> int | None:
    if upstream.set_facts.context_window is not None:
        return upstream.set_facts.context_window
    listed = request.runtime.find_listed_facts(upstream.provider.name, upstream.model).context_window
    return listed if listed is not None and listed > MAX_SHORTENED_WINDOW else None


def count_fewest_tokens(body: ClientBody) -> int:
    """The fewest tokens that the text of a request can have; 0 if it cannot be read, or if only a part of it counts."""
    try:
        request = body.read_request()
    except Malformed:
        return 0  # the reader says later what is wrong
    return _count_request_words(request) // WORDS_PER_TOKEN


def _count_request_words(request: Request) -> int:
    parts = [*request.system, *(part for turn in request.turns for part in turn.parts)]
    if any(isinstance(part, Summary) for part in parts):
        return 0  # it replaces the turns before it
    return sum(map(_count_part_words, parts))


def _count_part_words(part: Part) -> int:
    if isinstance(part, Text):
        return count_words(part.text.encode("utf-8", "replace"))
    if isinstance(part, Call):
        return count_words(part.arguments.encode("utf-8", "replace"))
    if isinstance(part, Result):
        return sum(map(_count_part_words, part.content))
    return 0


def count_words(text: bytes) -> int:
    """Not more than the words in a text, and mostly as many. Nothing is stored for each word: a text can be long."""
    return max(0, count_odd_runs(text.translate(_WHITE_SPACE)) - 1)  # one run may be before the first word


def count_odd_runs(text: bytes) -> int:
    """The runs of spaces that have an odd length. A run of n spaces has n spaces and n // 2 pairs."""
    return text.count(b" ") - 2 * text.count(b"  ")


_WHITE_SPACE = bytes.maketrans(b"\n\r\t", b"   ")
