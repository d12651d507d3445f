"""The header `Idempotency-Key`: a request that a client sends again, because it did not see the answer, is not done
twice.

The first request claims its key in the store before a provider is asked, and renews the claim while it runs. What it
stores is written in one transaction with the note that the request is done. The same request with the same key then
gets the same answer again.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure
from toolwire.core.json_values import Object, encode, parse_object
from toolwire.gateway.http.headers import JSON_HEADERS
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.store.repository import IDEMPOTENCY, StateRepository
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.gateway.telemetry.record import ExchangeRecord

HEADER = "idempotency-key"
REPLAYED_HEADER = {"idempotent-replayed": "true"}
"""The header of an answer that was made for an earlier request."""
MAX_KEY_LENGTH = 255
KEEP_SECONDS = 24 * 3600.0
"""How long a key is known after its request is done."""
CLAIM_SECONDS = 30.0
"""After this time a claim is void that is not renewed, because its gateway has stopped."""
RUNNING, DONE = "running", "done"
_IGNORED_KEYS = frozenset({"stream", "stream_options"})
"""A request can be sent again to get its answer as a stream, or not as a stream."""


class FinishedRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a request that is done."""

    request: str
    """A digest of the request."""
    response_id: str = ""
    """The stored response."""
    answer: Object | None = None
    """The answer itself, where it is not stored otherwise."""


class IdempotencyClaim:
    """The key of a request that is being done."""

    def __init__(self, repository: StateRepository, entry: Entry, request: str) -> None:
        self._repository, self._entry, self._request = repository, entry, request
        self._renewal = asyncio.get_running_loop().create_task(self._renew())

    def finished_entry(self, response_id: str = "", answer: Object | None = None) -> Entry:
        """The note that the request is done, to be written together with what it stores."""
        finished = FinishedRequest(request=self._request, response_id=response_id, answer=answer)
        return replace(self._entry, mark=DONE, body=encode(finished), expires=self._repository.clock() + KEEP_SECONDS)

    def end(self, record: ExchangeRecord) -> None:
        """The exchange that holds it has ended."""
        self.release()

    def release(self) -> None:
        """The request has ended. If it is not done, it may be sent again with the same key."""
        self._renewal.cancel()
        self._repository.start_task(self._void())

    async def _void(self) -> None:
        void = replace(self._entry, expires=self._repository.clock() - 1.0)
        await self._repository.put(void, required_marks=(RUNNING,))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            expires = self._repository.clock() + CLAIM_SECONDS
            await self._repository.put(replace(self._entry, expires=expires), required_marks=(RUNNING,))


async def claim_key(
    repository: StateRepository, owner: str, key: str, place: str, body: Object
) -> IdempotencyClaim | FinishedRequest | Failure | StoreDown:
    """Claim a key for a request to this place; or what is known of the request if it was done already. A failure if it
    is still being done, or if the key was used for another request."""
    if len(key) > MAX_KEY_LENGTH:
        message = f"the header Idempotency-Key has more than {MAX_KEY_LENGTH} characters"
        return Failure("invalid", message, 400, "invalid_idempotency_key")
    own = {name: value for name, value in body.items() if name not in _IGNORED_KEYS}
    request = hex_digest(f"{place}|{encode(own).decode()}", 32)
    now = repository.clock()
    entry = Entry(
        owner=owner, kind=IDEMPOTENCY, id=hex_digest(key, 32), mark=RUNNING, created=now, expires=now + CLAIM_SECONDS,
        body=encode(FinishedRequest(request=request)),
    )  # fmt: skip
    added = await repository.add(entry)
    if isinstance(added, StoreDown):
        return added
    if added:
        return IdempotencyClaim(repository, entry, request)
    earlier = await repository.get_one(owner, IDEMPOTENCY, entry.id)
    if isinstance(earlier, StoreDown):
        return earlier
    known = None if earlier is None else FinishedRequest(**parse_object(earlier.body))
    if known is not None and known.request != request:
        message = "this Idempotency-Key was used for another request; use a new one for each request"
        return Failure("invalid", message, 400, "idempotency_key_reused")
    if earlier is None or known is None or earlier.mark != DONE:
        message = "a request with this Idempotency-Key is still being answered; try again later"
        return Failure("conflict", message, 409, "idempotency_key_in_use", retry_after=1.0)
    return known


def replay_answer(answer: Object) -> Reply:
    return Reply(200, {**JSON_HEADERS, **REPLAYED_HEADER}, encode(answer))
