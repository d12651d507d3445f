"""Why there is no answer, in the client's own shape, and whether asking again or elsewhere may help."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.events import ResponseFailed
from toolwire.gateway.agents import recognised
from toolwire.gateway.call import Call, Refusal, Reply
from toolwire.gateway.lines import Line
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import Failure
from toolwire.loss import Ledger, Loss
from toolwire.room import Context, Room, Rules
from toolwire.wire import Malformed, encode

BACK_OFF = 0.25
"""Seconds before the second try; doubled for every further one, with some chance in it."""
LEAST_LEFT = 256
"""Tokens below which an answer is not worth asking for."""
LONGEST_WAIT = 5.0
"""A provider that asks for more than this is not waited for: another one is asked, or the client is told."""
AGAIN = frozenset({"timeout", "rate", "server", "upstream", "overloaded", "deadline"})
"""Failures after which the same provider may do better in a moment."""
ONWARD = AGAIN | {"quota", "billing", "authentication", "permission", "not_found"}
"""Failures after which another provider may do better: they are not the client's fault."""
FAULTS: Mapping[str, tuple[str, int, bool]] = MappingProxyType(
    {
        "dns": ("upstream", 502, True),
        "refused": ("upstream", 502, True),
        "unreachable": ("upstream", 502, True),
        "tls": ("upstream", 502, False),
        "proxy": ("upstream", 502, False),
        "protocol": ("upstream", 502, False),
        "cut": ("upstream", 502, True),
        "connect-timeout": ("deadline", 504, True),
        "first-byte-timeout": ("deadline", 504, False),
        "idle-timeout": ("deadline", 504, False),
    }
)
"""What a fault is to the client, as kind and status; and whether to ask the same provider again."""
OUTCOMES = frozenset(FAULTS) | {"invalid_answer", "redirection", "provider_key_missing"}
"""What may come of a try at a provider, besides a status."""


def reply(room: Room, failure: Failure) -> Reply:
    """A failure as a client of this room sees it."""
    sent = room.write_error(failure)
    return Reply(sent.status, {"content-type": "application/json", **sent.headers}, encode(sent.body))


def refused(failure: Failure, answer: Reply) -> Refusal:
    """What a provider refused."""
    return Refusal(failure, answer, failure.kind in AGAIN, failure.kind in ONWARD)


def streamed(call: Call, refusal: Refusal) -> Refusal:
    """A refusal as a stream, where one was asked for by an agent that understands that kind of failure only there."""
    client = call.client
    agents = client.http.streamed_failures.get(refusal.failure.kind)
    if not call.stream or not agents or recognised(call.headers.get("user-agent", ""))[0] not in agents:
        return refusal
    writer = client.stream_writer(
        Ledger(client.name, client.name), Context(now=int(call.now), seed=call.record.request_id)
    )
    body = writer.write(ResponseFailed(refusal.failure)) + writer.close()
    return replace(refusal, reply=Reply(200, {**refusal.reply.headers, "content-type": client.http.stream_type}, body))


def wait_after(failure: Failure, again: int) -> float:
    """Seconds until the same provider is asked again."""
    if failure.retry_after is not None:
        return failure.retry_after
    return float(BACK_OFF * 2**again * random.uniform(0.5, 1.0))


def told(call: Call, failure: Failure, onward: bool = False) -> Refusal:
    """A refusal of our own, before any provider was asked."""
    return Refusal(failure, reply(call.client, failure), False, onward)


def faulty(call: Call, line: Line, fault: Fault) -> Refusal:
    failure = failure_of(line, fault)
    return Refusal(failure, reply(call.client, failure), FAULTS[fault.kind][2], True)


def failure_of(line: Line, fault: Fault) -> Failure:
    kind, status, _ = FAULTS[fault.kind]
    # In mid-stream there is no status, and some clients know by these two words that they should ask again.
    what = f"the provider `{line.provider.name}` gave no whole answer (connection error): {fault.detail}"
    return Failure(kind, what, status, fault.kind)


def unreadable(call: Call, line: Line, bad: Malformed) -> Refusal:
    what = f"the provider `{line.provider.name}` answered something that is no answer of its protocol ({bad})"
    failure = Failure("upstream", f"{what}: check its base_url and what it speaks", 502, "invalid_answer")
    return Refusal(failure, reply(call.client, failure), True, True)


def redirected(call: Call, line: Line, status: int) -> Refusal:
    what = f"the provider `{line.provider.name}` answers with a redirection ({status})"
    return told(call, Failure("upstream", f"{what}: check its base_url", 502, "redirection"), onward=True)


def keyless(call: Call, line: Line) -> Refusal:
    what = f"the provider `{line.provider.name}` has no key: set {line.provider.api_key_env} and start the gateway anew"
    return told(call, Failure("authentication", what, 401, "provider_key_missing"), onward=True)


def anonymous(call: Call, line: Line) -> Refusal:
    what = f"the provider `{line.provider.name}` wants your own key of it: send it as your client does"
    hint = "; the key of this gateway then goes into the header x-toolwire-key" if call.visitor.key is not None else ""
    return told(call, Failure("authentication", what + hint, 401))


def forgotten(call: Call, line: Line) -> Refusal:
    """Earlier turns that nobody holds: an answer without them would look right and be wrong."""
    what = f"the provider `{line.provider.name}` does not hold the earlier turns that this request refers to"
    hint = "send the whole conversation, without ids of stored responses, conversations or items (`store: false`)"
    return told(call, Failure("invalid", f"{what}; {hint}", 400, "previous_response_not_found"))


def of_seals(failure: Failure, rules: Rules) -> bool:
    """Is it a seal that the provider takes for another's? Without them it may answer."""
    return failure.kind == "invalid" and rules.seal_refusals.search(f"{failure.code} {failure.message}") is not None


def most_tokens(failure: Failure, rules: Rules) -> tuple[int, bool] | None:
    """What may be asked for, where the provider refuses to give so much; and whether that holds for the model, not only
    for this request. Nothing where too little is left to be worth an answer."""
    if failure.kind not in ("invalid", "context"):
        return None
    for pattern in rules.limit_refusals:
        found = pattern.search(failure.message)
        if found is not None:
            said = {name: int(number) for name, number in found.groupdict().items() if number is not None}
            most = said.get("most") or said.get("below", 0) - 1
            if "window" in said:
                most = said["window"] - said["used"]
            return (most, "window" not in said) if most >= LEAST_LEFT else None
    return None


def unsealed(call: Call) -> tuple[str, ...]:
    """What is said when seals should have been kept and could not be."""
    return ("seal-dropped",) if call.sealing is not None and call.sealing.missed else ()


def undisclosed(call: Call, line: Line) -> Refusal:
    """Earlier turns that were summed up for somebody else's eyes."""
    what = "this request holds a compacted history that can only be read by the provider that made it"
    hint = f"ask that provider, or send `{line.provider.name}` the conversation as it was before"
    return told(call, Failure("invalid", f"{what}; {hint}", 400, "previous_response_not_found"))


def unsayable(call: Call, line: Line, lost: Sequence[Loss]) -> Refusal:
    """What the operator forbids to lose."""
    listed = "; ".join(f"{loss.code} at {loss.path or 'the body'}: {loss.what}" for loss in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    what = f"the provider `{line.provider.name}` cannot be told everything, and losing is not allowed here"
    return told(call, Failure("invalid", f"{what}: {listed}{more}", 400, "loss_refused", lost[0].path))
