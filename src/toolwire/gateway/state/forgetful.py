"""A gateway that keeps nothing: what needs that is refused, and no answer says that it was kept."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.gateway.call import Reply
from toolwire.gateway.store.absent import NOTHING
from toolwire.ir import Failure
from toolwire.keeping import Keeping, Tap
from toolwire.wire import Json, Malformed, Object, as_object, decode, encode


class Unkept:
    """In the place of a keeper."""

    def __init__(self, keeping: Keeping) -> None:
        self.keeping = keeping

    def tap(self) -> Tap:
        return self.keeping.tap(self.keeping.unkept)

    async def keep(self, response: Object) -> Mapping[str, Json] | None:
        return None

    async def whole(self, reply: Reply) -> Reply:
        try:
            response = as_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return reply
        return Reply(reply.status, reply.headers, encode({**response, **self.keeping.unkept}))


def nothing_kept(status: int) -> Failure:
    """What is said to those who want something kept, or refer to it."""
    hint = "send the whole conversation in the request, with `store: false`, and wait for the answer"
    return Failure("invalid" if status == 400 else "not_found", f"{NOTHING.what}; {hint}", status, "nothing_kept")
