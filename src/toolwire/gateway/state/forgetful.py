"""A gateway that keeps nothing: what needs that is refused, and no answer says that it was kept."""

from __future__ import annotations

from toolwire.gateway import refusals
from toolwire.gateway.call import Call, Refusal, Reply
from toolwire.gateway.settings.routing import Target
from toolwire.gateway.state.desk import body_of, is_native, trusts
from toolwire.ir import Failure
from toolwire.keeping import Keeping, Tap
from toolwire.wire import Json, Malformed, Object, as_object, decode, encode

NOTHING_KEPT = "this gateway keeps nothing (`[store] url` is `none`)"


class Unkept:
    """In the place of a keeper."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    def tap(self) -> Tap:
        return self._keeping.tap(self._keeping.unkept)

    async def keep(self, response: Object) -> dict[str, Json] | None:
        return None

    async def whole(self, reply: Reply) -> Reply:
        try:
            response = as_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return reply
        return Reply(reply.status, reply.headers, encode({**response, **self._keeping.unkept}))


def begin(call: Call, targets: tuple[Target, ...]) -> Refusal | None:
    """A provider of the client's own protocol keeps what it is asked to; another keeps nothing for us."""
    keeping = call.client.keeping
    if keeping is None or keeping.stateless(call.body) or (is_native(call, targets) and trusts(call)):
        return None
    body = body_of(call)
    wants = keeping.wants(body) if body is not None else None
    if wants is None:
        return None
    if isinstance(wants, Failure):
        return refusals.told(call, wants)
    if wants.background or wants.previous or wants.conversation or wants.references:
        return refusals.told(call, _refusal(400))
    call.keeper = Unkept(keeping)
    return None


def errand(call: Call) -> Reply | None:
    """What is asked about things that are kept. None: a provider may know them, and nobody else uses its account."""
    return None if trusts(call) else refusals.reply(call.client, _refusal(404))


def _refusal(status: int) -> Failure:
    hint = "send the whole conversation in the request, with `store: false`, and wait for the answer"
    return Failure("invalid" if status == 400 else "not_found", f"{NOTHING_KEPT}; {hint}", status, "nothing_kept")
