"""Every error that the gateway returns, in the client's protocol; and whether a retry or another provider may help."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from toolwire.core.codec import Codec, Constraints, EndpointMatch, WriteContext
from toolwire.core.errors import cut_for_search
from toolwire.core.events import ResponseFailed
from toolwire.core.ir import EMPTY_MAPPING, Failure, replace_fields
from toolwire.core.json_values import Json, Malformed, decode, encode
from toolwire.core.losses import Ledger, Loss
from toolwire.core.rate_limits import MAX_DIGITS
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, Upstream
from toolwire.gateway.exchange.hooks import Refusal
from toolwire.gateway.http.admission import RETRY_AFTER
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import JSON_HEADERS
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target
from toolwire.gateway.telemetry.agents import recognise_agent
from toolwire.gateway.telemetry.record import NOT_ASKED_OUTCOMES
from toolwire.protocols import CODECS

FIRST_RETRY_WAIT = 0.25
"""Seconds before the first retry; doubled for each further one, with jitter."""
MIN_OUTPUT_TOKENS = 256
"""A smaller output limit is not worth a retry."""
MAX_READ_ERROR = 4096
"""Bytes of an error that is not JSON, as far as the log needs them."""
MAX_RETRY_WAIT = 5.0
"""Seconds. A provider that asks for a longer wait is not asked again: another one is, or the client gets the error."""
RETRYABLE_KINDS = frozenset({"timeout", "rate", "server", "upstream", "overloaded", "deadline"})
"""Failures after which the same provider may answer in a moment."""
FALLBACK_KINDS = RETRYABLE_KINDS | {"quota", "billing", "authentication", "permission", "not_found"}
"""Failures after which another provider may answer: they are not the client's fault."""
BROKEN_ANSWER_KINDS = frozenset({"upstream", "deadline"})
"""Failures without a refusal by the provider: there was no answer in time, or it broke off, or nobody can read it."""
TRANSPORT_ERROR_REPLIES: Mapping[str, tuple[str, int, bool]] = {
    "dns": ("upstream", 502, True),
    "refused": ("upstream", 502, True),
    "unreachable": ("upstream", 502, True),
    "tls": ("upstream", 502, False),
    "proxy": ("upstream", 502, False),
    "protocol": ("upstream", 502, False),
    "connection-closed": ("upstream", 502, True),
    "stale-connection": ("upstream", 502, True),
    "out-of-descriptors": ("overloaded", 503, True),
    "out-of-memory": ("overloaded", 503, False),
    "connect-timeout": ("deadline", 504, True),
    "first-byte-timeout": ("deadline", 504, False),
    "idle-timeout": ("deadline", 504, False),
    "answer-timeout": ("deadline", 504, False),
    "no-credential": ("server", 503, False),
}
"""A transport error as the client sees it (kind and status), and whether to ask the same provider again."""
SILENCES = frozenset({"connect-timeout", "first-byte-timeout"})
"""Transport errors of a provider that says nothing at all: another one is asked before it is waited for again."""
OWN_LIMITS = frozenset({"out-of-descriptors", "out-of-memory"})
"""Transport errors that are limits of the gateway itself."""
ATTEMPT_OUTCOMES = frozenset(TRANSPORT_ERROR_REPLIES) | {"invalid_answer", "redirection", *NOT_ASKED_OUTCOMES}
"""Outcomes of an attempt, besides a status."""
PROVIDER_HINTS: Mapping[str, str] = {
    "authentication": "check {key}",
    "permission": "check what {key} may use",
    "billing": "check the balance of its account",
    "quota": "the quota of its account is used up",
    "not_found": "check the model's name there, `{model}`, and its base_url",
    "rate": "a limit of its account: {wait}, or add a fallback",
    **dict.fromkeys(("timeout", "server", "upstream", "overloaded", "deadline"), "{wait}, or add a fallback"),
}
"""What to do about a provider's failure, by its kind. Other kinds are about the request itself: the provider's message
says what is wrong with it. No hint may contain words that agents look for ("context window", "try again in")."""


def error_reply(
    codec: Codec, failure: Failure, upstream: Upstream | None = None, more_headers: Mapping[str, str] = EMPTY_MAPPING
) -> Reply:
    """A failure as an error of this protocol; with an upstream, one about its provider."""
    sent = codec.write_error(failure)
    shared, own = JSON_HEADERS if upstream is None else upstream.reply_headers, {**sent.headers, **more_headers}
    return Reply(sent.status, {**shared, **own} if own else shared, encode(sent.body))


def adapt_error(endpoint: EndpointMatch | None, reply: Reply) -> Reply:
    """An error as the client's SDK reads it, if that is one for a cloud."""
    if endpoint is None or endpoint.adapt_error is None:
        return reply
    body, headers = endpoint.adapt_error(reply.body)
    return Reply(reply.status, {**reply.headers, **headers}, body)


def name_provider(upstream: Upstream, failure: Failure) -> Failure:
    """The failure with a message that also names the provider and its address, and says what to do. What the provider
    said comes first and stays as it is, because agents look for certain words in it. The message of an overflow is not
    changed at all: agents read numbers from it."""
    provider = upstream.provider
    # A message of ours has the name already.
    if failure.kind == "context" or failure.code in OWN_LIMITS or f"the provider `{provider.name}`" in failure.message:
        return failure
    if is_missing_path(upstream, failure):
        hint = _explain_missing_path(upstream)
    else:
        hint = PROVIDER_HINTS.get(failure.kind, "").format(
            key=_describe_key(provider),
            model=upstream.model,
            wait="try again later" if failure.retry_after is None else f"wait {failure.retry_after:g} s",
        )
    what = f"from {_describe_provider(upstream)}{f': {hint}' if hint else ''}"
    return replace_fields(failure, message=f"{failure.message} ({what})")


MISSING_PATH = re.compile(
    r"(?i)\bnot[ _]found\b|\bno (?:such )?(?:route|path|endpoint|handler)\b|unexpected endpoint|cannot post"
    r"|(?:invalid|unknown|unrecognized|unsupported) (?:request )?(?:url|path|endpoint|route)|method not allowed"
    r"|and no explanation$"
)
"""What servers say of a path that they do not have (FastAPI, Express, LM Studio, llama.cpp, Go, OpenAI)."""


def is_missing_path(upstream: Upstream, failure: Failure) -> bool:
    """Does the provider not have the path that it was asked at? A model that it does not have is named."""
    if failure.status not in (404, 405) or failure.kind == "context":
        return False
    message = cut_for_search(failure.message)
    return upstream.model not in message and "model" not in message.lower() and bool(MISSING_PATH.search(message))


def _explain_missing_path(upstream: Upstream) -> str:
    provider, asked = upstream.provider, upstream.codec.name
    other = next(name for name in (*provider.protocols, *CODECS) if name != asked)
    spoken = " and ".join(provider.protocols)
    asking = f"it was asked in {asked} at {upstream.path}, and is configured to speak {spoken}"
    todo = f'set `protocols = ["{other}"]` under [providers.{provider.name}]'
    return f"{asking}: if it has no such path, {todo}, or else check its base_url"


def _describe_provider(upstream: Upstream) -> str:
    place = f" at {upstream.names.address}" if upstream.names.address else ""
    account = f" (account `{upstream.provider.account}`)" if upstream.provider.account else ""
    return f"the provider `{upstream.provider.name}`{account}{place}"


def _describe_key(provider: Provider) -> str:
    if provider.forward_auth:
        return "your own key for it"
    if provider.access.method:
        return f"the {provider.access.label.removeprefix('the ')}"
    if provider.api_key_env:
        return f"its key, {provider.api_key_env}"
    return f"`api_key` of [providers.{provider.name}]"


def read_error_reply(codec: Codec, reply: Reply) -> Failure:
    """What an error says that a client gets, for the log."""
    try:
        return codec.read_error(decode(reply.body), reply.status, {})
    except Malformed:
        return codec.read_error(reply.body[:MAX_READ_ERROR].decode("utf-8", "replace"), reply.status, {})


def passed_failure(
    upstream: Upstream, failure: Failure, status: int, headers: Mapping[str, str], data: bytes
) -> AttemptFailed:
    """An error of the provider for a client of its own protocol: as it came, but for the message, which names the
    provider. The user of an SDK sees nothing else."""
    named = name_provider(upstream, failure)
    body = decode(data)
    if named is not failure and _replace_message(body, failure.message, named.message):
        data = encode(body)
    return provider_error(named, Reply(status, headers, data))


def _replace_message(body: Json, message: str, named: str) -> bool:
    """In the shapes that servers give their errors: in `error`, in an array, or flat. False if it is not there."""
    node = body[0] if isinstance(body, list) and body else body
    if not isinstance(node, dict):
        return False
    inner = node.get("error")
    for holder in (inner, node) if isinstance(inner, dict) else (node,):
        for key in ("message", "detail", "error"):
            if holder.get(key) == message:
                holder[key] = named
                return True
    return False


def provider_error(failure: Failure, reply: Reply) -> AttemptFailed:
    return AttemptFailed(failure, reply, failure.kind in RETRYABLE_KINDS, failure.kind in FALLBACK_KINDS)


def provider_failure(
    request: GatewayRequest, upstream: Upstream, failure: Failure, headers: Mapping[str, str]
) -> AttemptFailed:
    """A failure of the provider as an error of the client's protocol: of an answer with status 200, or of another
    protocol. `headers` are those of the provider that the client gets."""
    failure = _with_opening(request, name_provider(upstream, failure))
    return provider_error(failure, error_reply(request.client_codec, failure, upstream, headers))


def used_up_failure(
    request: GatewayRequest, upstream: Upstream, failure: Failure, headers: Mapping[str, str]
) -> AttemptFailed:
    """A limit of a provider of the client's own protocol that opens late. Its words stay, but in Chat and Responses the
    error is another one: after their own, agents were seen to wait for hours without a word."""
    error = request.client_codec.write_error(_with_opening(request, failure))
    return passed_failure(upstream, failure, error.status, {**error.headers, **headers}, encode(error.body))


def _with_opening(request: GatewayRequest, failure: Failure) -> Failure:
    """With the time at which a limit opens."""
    wait = failure.retry_after
    return failure if wait is None else replace(failure, opens_at=int(request.now + wait))


def stream_failure_for_agent(request: GatewayRequest, failed: AttemptFailed) -> AttemptFailed:
    """The failure as a stream, for agents that understand this kind of failure only in the stream."""
    client = request.client_codec
    agents = client.http.failures_sent_in_stream.get(failed.failure.kind)
    if not request.stream or not agents or recognise_agent(request.headers.get("user-agent", ""))[0] not in agents:
        return failed
    context = WriteContext(now=int(request.now), seed=request.record.request_id)
    writer = client.make_stream_writer(Ledger(client.name, client.name), context)
    body = writer.write(ResponseFailed(failed.failure)) + writer.close()
    headers = {**failed.reply.headers, "content-type": client.http.framing.content_type}
    return replace(failed, reply=Reply(200, headers, body))


def retry_wait(failure: Failure, retries: int) -> float:
    """Seconds to wait before the same provider is asked again."""
    if failure.retry_after is not None:
        return failure.retry_after
    return float(FIRST_RETRY_WAIT * 2**retries * random.uniform(0.5, 1.0))


def gateway_error(
    request: GatewayRequest, failure: Failure, upstream: Upstream | None = None, can_fall_back: bool = False
) -> AttemptFailed:
    """An error of the gateway itself; with an upstream, about what its provider needs or cannot do."""
    return AttemptFailed(failure, error_reply(request.client_codec, failure, upstream), False, can_fall_back)


def limit_error(request: GatewayRequest, refusal: Refusal) -> AttemptFailed:
    """A limit of the operator refuses the request: with the rate-limit headers of the client's dialect."""
    headers = request.client_codec.http.write_rate_limits(refusal.rate_limits, request.now)
    reply = error_reply(request.client_codec, refusal.failure, None, headers)
    return AttemptFailed(refusal.failure, reply, can_fall_back=refusal.depends_on_target)


def transport_error(request: GatewayRequest, upstream: Upstream, error: TransportError) -> AttemptFailed:
    failure = transport_failure(upstream, error)
    reply, can_retry = error_reply(request.client_codec, failure, upstream), TRANSPORT_ERROR_REPLIES[error.kind][2]
    # Without descriptors or memory no other provider can be asked either, and this one must not be blamed.
    return AttemptFailed(failure, reply, can_retry, can_fall_back=error.kind not in OWN_LIMITS)


def transport_failure(upstream: Upstream, error: TransportError) -> Failure:
    kind, status, _ = TRANSPORT_ERROR_REPLIES[error.kind]
    if error.kind in OWN_LIMITS:
        return Failure(kind, error.detail, status, error.kind, retry_after=RETRY_AFTER)
    if error.kind == "no-credential":  # its source is asked again by itself
        what = f"the provider `{upstream.provider.name}` cannot be asked: {error.detail}"
        return Failure(kind, what, status, error.kind)
    # In a stream there is no status. Some clients look for the words "connection error" to know that they may retry.
    what = f"the provider `{upstream.provider.name}` did not send a complete answer (connection error): {error.detail}"
    return Failure(kind, what, status, error.kind)


def unreadable_response(request: GatewayRequest, upstream: Upstream, error: Malformed) -> AttemptFailed:
    what = f"{_describe_provider(upstream)} sent something that is not a response of its protocol ({error})"
    failure = Failure("upstream", f"{what}: check its base_url and protocols", 502, "invalid_answer")
    return AttemptFailed(failure, error_reply(request.client_codec, failure, upstream), True, True)


def redirect_error(request: GatewayRequest, upstream: Upstream, status: int) -> AttemptFailed:
    what = f"{_describe_provider(upstream)} answered with a redirect ({status}): check its base_url"
    return gateway_error(request, Failure("upstream", what, 502, "redirection"), upstream, can_fall_back=True)


def missing_key_error(request: GatewayRequest, upstream: Upstream) -> AttemptFailed | None:
    """The provider has no key, or it needs the client's own and the client sent none."""
    provider = upstream.provider
    if provider.is_key_missing:
        what = f"the provider `{provider.name}` has no key: set {provider.api_key_env} and start again"
        failure = Failure("authentication", what, 401, "provider_key_missing")
        return gateway_error(request, failure, upstream, can_fall_back=True)
    if request.caller.provider_credential:
        return None
    what = f"the provider `{provider.name}` needs your own key for it: send it as your client usually does"
    hint = "; send the key of this gateway in the header x-toolwire-key" if request.caller.key is not None else ""
    return gateway_error(request, Failure("authentication", what + hint, 401), upstream)


def missing_turns_error(request: GatewayRequest, upstream: Upstream, has_unreadable_summary: bool) -> AttemptFailed:
    """Earlier turns are missing, or they were compacted by another provider, and only that one can read them: an answer
    without them would look right and be wrong."""
    what = f"the provider `{upstream.provider.name}` does not have the earlier turns that this request refers to"
    hint = (
        "send the whole conversation, without ids of stored responses, conversations, prompts or items (`store: false`)"
    )
    code = "previous_response_not_found"
    if has_unreadable_summary:
        what = "this request holds a compacted history that can only be read by the provider that made it"
        hint = f"ask that provider, or send `{upstream.provider.name}` the conversation from before the compaction"
        code = "invalid_encrypted_content"
    return gateway_error(request, Failure("invalid", f"{what}; {hint}", 400, code), upstream)


def is_seal_refusal(failure: Failure, constraints: Constraints) -> bool:
    """Does the provider refuse a seal? Without seals it may answer."""
    text = cut_for_search(f"{failure.code} {failure.message}")
    return failure.kind == "invalid" and constraints.seal_error_pattern.search(text) is not None


TOOL_REFUSALS = re.compile(
    "|".join(
        (
            r"does not support tools",  # Ollama: registry.ollama.ai/library/gemma3:latest does not support tools
            r"requires --enable-auto-tool-choice|requires --tool-call-parser",  # vLLM
            r"tools param requires --jinja flag",  # llama.cpp
            r"No endpoints found that support tool use",  # OpenRouter
            r"does not support (?:tool use|function calling)",  # xAI, Fireworks
            r"[Tt]ool calling is not supported (?:for|with) (?:this )?model",  # DeepInfra, Groq
            r"Function calling is not enabled for",  # Mistral, Gemini (of its Gemma models)
        )
    )
)
"""What servers say when a model, or the server as it was started, takes no tools. LM Studio refuses none: it writes the
tools into the prompt itself."""


def is_tool_refusal(failure: Failure) -> bool:
    """Does the provider refuse the tools of a request? With tools in the prompt it may answer."""
    # llama.cpp says it with status 500, OpenRouter with 404.
    is_kind = failure.kind in ("invalid", "not_found", "server", "unprocessable") or failure.status == 405
    return is_kind and TOOL_REFUSALS.search(cut_for_search(failure.message)) is not None


MAX_REFUSAL = 4000
"""Characters of an error that are searched for what a server refuses."""


def find_shown_quirks(failure: Failure, target: Target, plain: Codec) -> tuple[str, ...]:
    """The quirks by which the provider may have refused a request, and that it was not known to have."""
    is_kind = failure.kind in ("invalid", "server", "unprocessable")
    if not is_kind or not target.provider.may_have_quirks:
        return ()
    patterns = {name: quirk.refusal for name, quirk in plain.quirks.items() if name not in target.quirks}
    words = failure.message[:MAX_REFUSAL]
    return tuple(name for name, pattern in patterns.items() if pattern is not None and pattern.search(words))


def read_token_limit(failure: Failure, constraints: Constraints) -> tuple[int, bool] | None:
    """The output limit that the provider names in its error, and whether it holds for the model, not only for this
    request. None if there is none, or it is too small."""
    if failure.kind not in ("invalid", "context"):
        return None
    message = cut_for_search(failure.message)
    for pattern in constraints.token_limit_error_patterns:
        found = pattern.search(message)
        if found is not None and all(len(number or "") <= MAX_DIGITS for number in found.groups()):
            numbers = {name: int(number) for name, number in found.groupdict().items() if number is not None}
            limit = numbers.get("most") or numbers.get("below", 0) - 1
            if "window" in numbers:
                limit = numbers["window"] - numbers["used"]
            return (limit, "window" not in numbers) if limit >= MIN_OUTPUT_TOKENS else None
    return None


def unsaved_seal_codes(request: GatewayRequest) -> tuple[str, ...]:
    return ("seal-dropped",) if request.signature_store is not None and request.signature_store.has_failed else ()


def loss_refused_error(request: GatewayRequest, upstream: Upstream, lost: Sequence[Loss]) -> AttemptFailed:
    """The translation would lose something, and the operator forbids that (`on_loss = "refuse"`)."""
    listed = "; ".join(f"{loss.code} at {loss.path or 'the body'}: {loss.what}" for loss in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    what = f"the provider `{upstream.provider.name}` cannot get all of this request, and losses are not allowed here"
    failure = Failure("invalid", f"{what}: {listed}{more}", 400, "loss_refused", lost[0].path)
    return gateway_error(request, failure, upstream)
