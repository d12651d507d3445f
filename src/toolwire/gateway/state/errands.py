"""Requests about what is kept: answers fetched, deleted, cancelled, and what they were made of."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from toolwire.gateway.call import Refusal, Reply
from toolwire.gateway.headers import JSON
from toolwire.gateway.state.book import ITEM, LIVING, RESPONSE, Kept, read_kept, unreachable
from toolwire.gateway.state.desk import ENVELOPE, is_native, take, trusts
from toolwire.gateway.state.forgetful import nothing_kept
from toolwire.gateway.state.jobs import elsewhere, ended, looked_after
from toolwire.gateway.state.recalling import past, recalled
from toolwire.gateway.state.talks import TALKS
from toolwire.gateway.state.visit import Outcome, Passed, Replay, Visit
from toolwire.gateway.store.record import Down, Entry
from toolwire.ir import Failure
from toolwire.wire import Object, as_object, decode, encode

_NUMBER = re.compile(r"-?[0-9]{1,18}")


async def run(visit: Visit) -> Outcome:
    """See to it."""
    if not visit.book.keeps and visit.errand.verb != "compact":
        return visit.refused(nothing_kept(404)) if not trusts(visit.call) else Passed()
    return await _ERRANDS[visit.errand.verb](visit)


# --- answers --------------------------------------------------------------------------------------------------------


async def _entry(visit: Visit) -> Entry | Reply | Passed:
    entry = await visit.book.one(visit.owner, RESPONSE, visit.errand.id)
    if entry is not None and not isinstance(entry, Down):
        entry = await looked_after(visit.book, visit.keeping, entry)
    if isinstance(entry, Down):
        return visit.down(entry)
    return visit.missing("response", visit.errand.id) if entry is None else entry


async def _response(visit: Visit) -> Outcome:
    entry = await _entry(visit)
    if not isinstance(entry, Entry):
        return entry
    if visit.query.get("stream", "").lower() not in ("true", "1"):
        return Reply(200, JSON, encode(read_kept(entry).response))
    after = visit.query.get("starting_after", "-1")
    if _NUMBER.fullmatch(after) is None:
        return visit.refused(Failure("invalid", "starting_after must be a number", 400, param="starting_after"))
    return Replay(replayed(visit, entry, int(after)))


async def replayed(visit: Visit, entry: Entry, after: int) -> AsyncIterator[bytes]:
    """The stream of an answer from behind this event, as it was told or as it is told now."""
    kept, keeping = read_kept(entry), visit.keeping
    job = visit.desk.jobs.get(visit.owner, entry.id)
    if job is not None:
        async for frame in job.followed(after):
            yield frame
    elif kept.background:
        async for frame in elsewhere(visit.book, keeping, entry, after, asyncio.sleep):
            yield frame
    else:
        for number, frame in keeping.numbered(keeping.frames(kept.response)):
            if number > after:
                yield frame


async def _delete(visit: Visit) -> Outcome:
    entry = await _entry(visit)
    if not isinstance(entry, Entry):
        return entry
    job = visit.desk.jobs.get(visit.owner, entry.id)
    gone = await visit.book.delete(visit.owner, RESPONSE, entry.id)
    if isinstance(gone, Down):
        return visit.down(gone)
    if job is not None:
        job.cancel()
    return Reply(200, JSON, encode(visit.keeping.write_deleted("response", entry.id)))


async def _cancel(visit: Visit) -> Outcome:
    entry = await _entry(visit)
    if not isinstance(entry, Entry):
        return entry
    kept = read_kept(entry)
    if not kept.background:
        what = "only an answer that is made in the background can be cancelled"
        return visit.refused(Failure("invalid", what, 400))
    if entry.mark in LIVING:
        now = await ended(visit.book, visit.keeping, entry, "cancelled", None)
        if isinstance(now, Down):
            return visit.down(now)
        kept = read_kept(now)
        job = visit.desk.jobs.get(visit.owner, entry.id)
        if job is not None and now.mark == "cancelled":
            job.cancel()
    return Reply(200, JSON, encode(kept.response))


async def _items(visit: Visit) -> Outcome:
    """All that the answer was made of: what came before it, and what was new."""
    entry = await _entry(visit)
    if not isinstance(entry, Entry):
        return entry
    page = visit.page()
    if isinstance(page, Reply):
        return page
    before = await _before(visit, entry, read_kept(entry))
    if isinstance(before, Failure):
        return visit.refused(before)
    return visit.paged(visit.keeping.named(before, entry.id), page)


async def _before(visit: Visit, entry: Entry, kept: Kept) -> list[Object] | Failure:
    if kept.conversation:
        entries = await visit.book.children(visit.owner, ITEM, kept.conversation)
        if isinstance(entries, Down):
            return unreachable(entries)
        items = [as_object(decode(one.body, max_bytes=len(one.body)), None) for one in entries]
        made = {item.get("id") for item in visit.keeping.output(kept.response)}
        end = next((number for number, item in enumerate(items) if item.get("id") in made), None)
        if end is not None:
            return items[:end]
        # It is not in the conversation: what was there when it was made, and what was asked.
        return [*(item for one, item in zip(entries, items, strict=True) if one.created < entry.created), *kept.items]
    if entry.parent:
        got = await past(visit.book, visit.owner, visit.keeping, entry.parent)
        return got if isinstance(got, Failure) else [*got[1], *kept.items]
    return kept.items


# --- summaries ------------------------------------------------------------------------------------------------------


async def _compact(visit: Visit) -> Outcome:
    """A summary of a conversation: the provider's own where it makes one, else one that the model is asked for."""
    call, keeping = visit.call, visit.keeping
    body = visit.body()
    if isinstance(body, Reply):
        return body
    targets = visit.engine.targets(call)
    if isinstance(targets, Refusal):
        return targets.reply
    wants = keeping.wants(body)
    if isinstance(wants, Failure):
        return visit.refused(wants)
    native = is_native(call, targets)
    got = await recalled(visit.book, visit.owner, keeping, wants)
    if isinstance(got, Failure):
        if got.status >= 500 or not (native and trusts(call)):
            return visit.refused(got)
    elif wants.previous or wants.conversation or wants.references:
        body = keeping.expanded(body, got.history, got.found)
        take(call, body)
    if native and ENVELOPE not in call.body:
        own = await visit.engine.native(call, targets[0], keeping.compact_path)
        if own is not None:
            return own
    items = keeping.items(body, call.seed)
    answer = await visit.desk.summed(call, targets, visit.engine, keeping, body)
    if isinstance(answer, Refusal):
        return answer.reply
    told = keeping.summarised(body, answer, items, call.seed, int(call.now))
    return visit.refused(told) if isinstance(told, Failure) else Reply(200, JSON, encode(told))


_ERRANDS: Mapping[str, Callable[[Visit], Awaitable[Outcome]]] = {
    "response": _response,
    "response-delete": _delete,
    "response-cancel": _cancel,
    "response-items": _items,
    "compact": _compact,
    **TALKS,
}
