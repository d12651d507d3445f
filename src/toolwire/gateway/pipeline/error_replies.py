"""Why there is no answer, in the client's own shape, and whether asking again or elsewhere may help."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.core.codec import Codec, Constraints, WriteContext
from toolwire.core.events import ResponseFailed
from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed, encode
from toolwire.core.losses import Ledger, Loss
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply
from toolwire.gateway.pipeline.headers import recognise_agent
from toolwire.gateway.pipeline.runtime import Upstream
from toolwire.gateway.upstream.errors import TransportError

FIRST_RETRY_WAIT = 0.25
"""Seconds before the second try; doubled for every further one, with some chance in it."""
MIN_OUTPUT_TOKENS = 256
"""Tokens below which an answer is not worth asking for."""
MAX_RETRY_WAIT = 5.0
"""A provider that asks for more than this is not waited for: another one is asked, or the client is told."""
RETRYABLE_KINDS = frozenset({"timeout", "rate", "server", "upstream", "overloaded", "deadline"})
"""Failures after which the same provider may do better in a moment."""
FALLBACK_KINDS = RETRYABLE_KINDS | {"quota", "billing", "authentication", "permission", "not_found"}
"""Failures after which another provider may do better: they are not the client's fault."""
TRANSPORT_ERROR_REPLIES: Mapping[str, tuple[str, int, bool]] = MappingProxyType(
    {
        "dns": ("upstream", 502, True),
        "refused": ("upstream", 502, True),
        "unreachable": ("upstream", 502, True),
        "tls": ("upstream", 502, False),
        "proxy": ("upstream", 502, False),
        "protocol": ("upstream", 502, False),
        "connection-closed": ("upstream", 502, True),
        "connect-timeout": ("deadline", 504, True),
        "first-byte-timeout": ("deadline", 504, False),
        "idle-timeout": ("deadline", 504, False),
    }
)
"""What a fault is to the client, as kind and status; and whether to ask the same provider again."""
ATTEMPT_OUTCOMES = frozenset(TRANSPORT_ERROR_REPLIES) | {"invalid_answer", "redirection", "provider_key_missing"}
"""What may come of a try at a provider, besides a status."""


def error_reply(codec: Codec, failure: Failure) -> Reply:
    """A failure as a client of this room sees it."""
    sent = codec.write_error(failure)
    return Reply(sent.status, {"content-type": "application/json", **sent.headers}, encode(sent.body))


def provider_error(failure: Failure, reply: Reply) -> AttemptFailed:
    """What a provider refused."""
    return AttemptFailed(failure, reply, failure.kind in RETRYABLE_KINDS, failure.kind in FALLBACK_KINDS)


def stream_failure_for_agent(call: GatewayCall, failed: AttemptFailed) -> AttemptFailed:
    """A refusal as a stream, where one was asked for by an agent that understands that kind of failure only there."""
    client = call.client_codec
    agents = client.http.failures_sent_in_stream.get(failed.failure.kind)
    if not call.stream or not agents or recognise_agent(call.headers.get("user-agent", ""))[0] not in agents:
        return failed
    writer = client.make_stream_writer(
        Ledger(client.name, client.name), WriteContext(now=int(call.now), seed=call.record.request_id)
    )
    body = writer.write(ResponseFailed(failed.failure)) + writer.close()
    return replace(
        failed, reply=Reply(200, {**failed.reply.headers, "content-type": client.http.stream_content_type}, body)
    )


def retry_wait(failure: Failure, retries: int) -> float:
    """Seconds until the same provider is asked again."""
    if failure.retry_after is not None:
        return failure.retry_after
    return float(FIRST_RETRY_WAIT * 2**retries * random.uniform(0.5, 1.0))


def gateway_error(call: GatewayCall, failure: Failure, can_fall_back: bool = False) -> AttemptFailed:
    """A refusal of our own, before any provider was asked."""
    return AttemptFailed(failure, error_reply(call.client_codec, failure), False, can_fall_back)


def transport_error(call: GatewayCall, upstream: Upstream, error: TransportError) -> AttemptFailed:
    failure = transport_failure(upstream, error)
    return AttemptFailed(failure, error_reply(call.client_codec, failure), TRANSPORT_ERROR_REPLIES[error.kind][2], True)


def transport_failure(upstream: Upstream, error: TransportError) -> Failure:
    kind, status, _ = TRANSPORT_ERROR_REPLIES[error.kind]
    # In mid-stream there is no status, and some clients know by these two words that they should ask again.
    what = f"the provider `{upstream.provider.name}` gave no whole answer (connection error): {error.detail}"
    return Failure(kind, what, status, error.kind)


def unreadable_response(call: GatewayCall, upstream: Upstream, error: Malformed) -> AttemptFailed:
    what = f"the provider `{upstream.provider.name}` answered something that is no answer of its protocol ({error})"
    failure = Failure("upstream", f"{what}: check its base_url and what it speaks", 502, "invalid_answer")
    return AttemptFailed(failure, error_reply(call.client_codec, failure), True, True)


def redirect_error(call: GatewayCall, upstream: Upstream, status: int) -> AttemptFailed:
    what = f"the provider `{upstream.provider.name}` answers with a redirection ({status})"
    return gateway_error(
        call, Failure("upstream", f"{what}: check its base_url", 502, "redirection"), can_fall_back=True
    )


def missing_key_error(call: GatewayCall, upstream: Upstream) -> AttemptFailed:
    provider = upstream.provider
    what = f"the provider `{provider.name}` has no key: set {provider.api_key_env} and start the gateway again"
    return gateway_error(call, Failure("authentication", what, 401, "provider_key_missing"), can_fall_back=True)


def missing_client_key_error(call: GatewayCall, upstream: Upstream) -> AttemptFailed:
    what = f"the provider `{upstream.provider.name}` wants your own key of it: send it as your client does"
    hint = "; the key of this gateway then goes into the header x-toolwire-key" if call.caller.key is not None else ""
    return gateway_error(call, Failure("authentication", what + hint, 401))


def missing_turns_error(call: GatewayCall, upstream: Upstream) -> AttemptFailed:
    """Earlier turns that nobody holds: an answer without them would look right and be wrong."""
    what = f"the provider `{upstream.provider.name}` does not hold the earlier turns that this request refers to"
    hint = "send the whole conversation, without ids of stored responses, conversations or items (`store: false`)"
    return gateway_error(call, Failure("invalid", f"{what}; {hint}", 400, "previous_response_not_found"))


def is_seal_refusal(failure: Failure, constraints: Constraints) -> bool:
    """Is it a seal that the provider takes for another's? Without them it may answer."""
    return (
        failure.kind == "invalid"
        and constraints.seal_error_pattern.search(f"{failure.code} {failure.message}") is not None
    )


def read_token_limit(failure: Failure, constraints: Constraints) -> tuple[int, bool] | None:
    """What may be asked for, where the provider refuses to give so much; and whether that holds for the model, not only
    for this request. Nothing where too little is left to be worth an answer."""
    if failure.kind not in ("invalid", "context"):
        return None
    for pattern in constraints.token_limit_error_patterns:
        found = pattern.search(failure.message)
        if found is not None:
            said = {name: int(number) for name, number in found.groupdict().items() if number is not None}
            most = said.get("most") or said.get("below", 0) - 1
            if "window" in said:
                most = said["window"] - said["used"]
            return (most, "window" not in said) if most >= MIN_OUTPUT_TOKENS else None
    return None


def unsaved_seal_codes(call: GatewayCall) -> tuple[str, ...]:
    """What is said when seals should have been kept and could not be."""
    return ("seal-dropped",) if call.signature_store is not None and call.signature_store.has_failed else ()


def foreign_compaction_error(call: GatewayCall, upstream: Upstream) -> AttemptFailed:
    """Earlier turns that were summed up for somebody else's eyes."""
    what = "this request holds a compacted history that can only be read by the provider that made it"
    hint = f"ask that provider, or send `{upstream.provider.name}` the conversation as it was before"
    return gateway_error(call, Failure("invalid", f"{what}; {hint}", 400, "previous_response_not_found"))


def loss_refused_error(call: GatewayCall, upstream: Upstream, lost: Sequence[Loss]) -> AttemptFailed:
    """What the operator forbids to lose."""
    listed = "; ".join(f"{loss.code} at {loss.path or 'the body'}: {loss.what}" for loss in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    what = f"the provider `{upstream.provider.name}` cannot be told everything, and losing is not allowed here"
    return gateway_error(call, Failure("invalid", f"{what}: {listed}{more}", 400, "loss_refused", lost[0].path))
