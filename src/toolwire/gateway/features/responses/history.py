"""Resolves `previous_response_id`, `conversation` and `item_reference`: loads the stored items, and puts them into the
request in place of the reference. Compaction (`/v1/responses/compact`, `compaction_trigger`) replaces a long history by
a summary: a provider that speaks Responses writes it itself, any other model is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.envelopes import ENVELOPE_PREFIX, TOOLWIRE_MAKER, EnvelopeEntry, EnvelopeKeys, write_envelope
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure, Usage
from toolwire.core.json_values import Malformed, Object, encode, parse_object
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.client_body import ClientBody, read_client_body
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, StartedStream
from toolwire.gateway.exchange.stages import RequestRunner
from toolwire.gateway.features.responses.background import fail_if_abandoned
from toolwire.gateway.features.responses.recorder import (
    StatelessRecorder,
    StoringRecorder,
    read_stored_item,
    read_stored_response,
)
from toolwire.gateway.features.responses.response_objects import (
    COMPACTION,
    COMPACTION_TRIGGER,
    StateOptions,
    add_missing_ids,
    clean_item,
    is_reference,
    item_type,
    not_found_failure,
    read_input_items,
    read_items_to_store,
    read_output,
    write_listed_item,
    write_pending_response,
    write_response_stream,
    write_user_message,
)
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.settings.router import Target, choose_codec
from toolwire.gateway.store.repository import (
    CONVERSATION,
    ITEM,
    MAX_CHAIN_LENGTH,
    NOTHING_KEPT,
    RESPONSE,
    StateRepository,
    no_store_failure,
    store_unavailable_failure,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.http import PATH
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES
from toolwire.protocols.openai_responses.response import write_usage

STATELESS_HINT = "with `store: false` and the whole conversation in the request, the store is not needed"

ITEMS_IN_A_ROW = 1000
"""Items of a conversation that are read while everybody else waits."""


class StoredHistory(Struct, frozen=True, kw_only=True):
    """The stored items that a request refers to."""

    items: list[Object]
    """The items of the turns before it, from `previous_response_id` or `conversation`."""
    referenced: dict[str, Object]
    """The items of its `item_reference`s, by id."""
    response_ids: frozenset[str]
    """The ids of the responses before it."""

    @property
    def new_references(self) -> dict[str, Object]:
        """The referenced items that are not in the turns before."""
        known_ids = {item.get("id") for item in self.items}
        return {id: item for id, item in self.referenced.items() if id not in known_ids}


# --- loading ----------------------------------------------------------------------------------------------------------

MAX_HISTORY_ITEMS = 100_000
REFERENCES_PER_PAGE = 8
"""How many referenced items or responses are loaded at once; each can be as large as a request."""


def history_too_large_failure(max_bytes: int, param: str = "") -> Failure:
    """For a request that would be larger than any request may be, with what it refers to in it."""
    message = (
        f"The stored conversation that this request continues is too long: with it, the request is larger than"
        f" {max_bytes} bytes. Continue from a summary of it in a new conversation, or raise server.max_body."
    )
    return Failure("context", message, 400, "context_length_exceeded", param)


def is_not_stored_here(failure: Failure) -> bool:
    """Is something unknown to this gateway, so that the provider may know it?"""
    return failure.kind == "not_found" or failure.code == NOTHING_KEPT


class _ItemBudget:
    """How much of a history may be loaded. What is stored beside the items, such as instructions, does not count."""

    def __init__(self, max_bytes: int, param: str) -> None:
        self._max_bytes, self._param = max_bytes, param
        self._count = self._stored_bytes = 0
        self._unmeasured: list[Object] = []
        self._measured_bytes = 0

    def spend(self, items: list[Object], stored_bytes: int) -> Failure | None:
        """Add these items, which have this size in the store; a failure if they are too much."""
        self._count += len(items)
        self._stored_bytes += stored_bytes
        self._unmeasured += items
        if self._stored_bytes > self._max_bytes:
            self._measured_bytes += sum(len(encode(item)) for item in self._unmeasured)
            self._unmeasured = []
        if self._count <= MAX_HISTORY_ITEMS and self._measured_bytes <= self._max_bytes:
            return None
        return history_too_large_failure(self._max_bytes, self._param)


async def load_history(
    repository: StateRepository, owner: str, options: StateOptions, max_bytes: int, hint: str = ""
) -> StoredHistory | Failure:
    """Load everything that a request refers to; a failure if something of it is missing, or if it is too large."""
    if not repository.is_enabled and options.refers_to_stored:
        return no_store_failure(400)
    items: list[Object] | Failure | StoreDown = []
    response_ids: set[str] = set()
    if options.previous_response_id:
        id = options.previous_response_id
        items = await load_previous_responses(repository, owner, id, max_bytes, response_ids)
    elif options.conversation:
        items = await _load_conversation_items(repository, owner, options.conversation, max_bytes)
    if not isinstance(items, list):
        return store_unavailable_failure(items, hint) if isinstance(items, StoreDown) else items
    referenced = await _load_referenced_items(repository, owner, options.references, max_bytes)
    if not isinstance(referenced, dict):
        return store_unavailable_failure(referenced, hint) if isinstance(referenced, StoreDown) else referenced
    return StoredHistory(items=items, referenced=referenced, response_ids=frozenset(response_ids))


async def load_previous_responses(
    repository: StateRepository, owner: str, previous_response_id: str, max_bytes: int, seen_ids: set[str]
) -> list[Object] | Failure | StoreDown:
    """The input and output items of this response and of all responses before it, oldest first. Their ids are added to
    `seen_ids`."""
    budget = _ItemBudget(max_bytes, "previous_response_id")
    newest_first: list[list[Object]] = []
    next_id = previous_response_id
    while next_id:
        entries = await repository.get_chain_page(owner, next_id)
        if isinstance(entries, StoreDown):
            return entries
        for entry in reversed(entries):
            if entry.id in seen_ids:  # older versions could store a response as the one before itself
                return replace(not_found_failure("previous", entry.id), kind="invalid")
            finished = entry if seen_ids else await _check_finished(repository, entry)
            if not isinstance(finished, Entry):
                return finished
            seen_ids.add(entry.id)
            stored = await run_by_size(len(finished.body), partial(read_stored_response, finished))
            newest_first.append([*stored.items, *read_output(stored.response)])
            failure = budget.spend(newest_first[-1], len(entry.body))
            if failure is not None or len(seen_ids) > MAX_CHAIN_LENGTH:
                return failure or history_too_large_failure(max_bytes, "previous_response_id")
        if not entries:
            return not_found_failure("previous", next_id)
        await repository.extend_expiring(owner, RESPONSE, [(entry.id, entry.expires) for entry in entries])
        next_id = entries[0].parent
    return [item for items in reversed(newest_first) for item in items]


async def _check_finished(repository: StateRepository, entry: Entry) -> Entry | Failure | StoreDown:
    """The entry of a response that is to be continued; a failure if it is still being made."""
    current = await fail_if_abandoned(repository, entry)
    if isinstance(current, StoreDown) or current.mark not in UNFINISHED_STATUSES:
        return current
    message = f"the response `{entry.id}` is still {current.mark}; wait until it has completed"
    return Failure("conflict", message, 400, "response_not_completed")


async def _load_conversation_items(
    repository: StateRepository, owner: str, id: str, max_bytes: int
) -> list[Object] | Failure | StoreDown:
    conversation = await repository.get_one(owner, CONVERSATION, id)
    if not isinstance(conversation, Entry):
        return not_found_failure("conversation", id) if conversation is None else conversation
    budget = _ItemBudget(max_bytes, "conversation")
    items: list[Object] = []
    item_ids: list[str] = []
    expires = conversation.expires
    async for entry in repository.iterate_children(owner, ITEM, id):
        if isinstance(entry, StoreDown):
            return entry
        items.append(read_stored_item(entry))
        failure = budget.spend(items[-1:], len(entry.body))
        if failure is not None:
            return failure
        if len(items) % ITEMS_IN_A_ROW == 0:
            await asyncio.sleep(0)  # for others
        item_ids.append(entry.id)
        expires = min(expires, entry.expires)
    # All expire at the same time, so that a conversation never loses only its first items. It must not outlive them,
    # so it comes last.
    now = repository.clock()
    await repository.extend_expiring(owner, ITEM, [(one, expires) for one in item_ids], now)
    await repository.extend_expiring(owner, CONVERSATION, [(id, expires)], now)
    return items


async def _load_referenced_items(
    repository: StateRepository, owner: str, ids: tuple[str, ...], max_bytes: int
) -> dict[str, Object] | Failure | StoreDown:
    """Single items. For an output item the store has only a pointer to its response, which contains it."""
    budget = _ItemBudget(max_bytes, "input")
    found: dict[str, Object] = {}
    pointers: dict[str, str] = {}
    for page in _split_pages(list(ids)):
        entries = await repository.get(owner, ITEM, page)
        if isinstance(entries, StoreDown):
            return entries
        items = {entry.id: read_stored_item(entry) for entry in entries if entry.body}
        found |= items
        pointers |= {entry.id: entry.parent for entry in entries if not entry.body}
        failure = budget.spend(list(items.values()), sum(len(entry.body) for entry in entries))
        if failure is not None:
            return failure
    for page in _split_pages(list(dict.fromkeys(pointers.values()))):
        responses = await repository.get(owner, RESPONSE, page)
        if isinstance(responses, StoreDown):
            return responses
        outputs = [item for response in responses for item in read_output(read_stored_response(response).response)]
        items = {str(item["id"]): item for item in outputs if item.get("id") in pointers}
        found |= items
        failure = budget.spend(list(items.values()), sum(len(response.body) for response in responses))
        if failure is not None:
            return failure
    missing = [id for id in ids if id not in found]
    return not_found_failure("item", missing[0]) if missing else found


def _split_pages(ids: list[str]) -> list[list[str]]:
    return [ids[start : start + REFERENCES_PER_PAGE] for start in range(0, len(ids), REFERENCES_PER_PAGE)]


async def load_input_items(
    repository: StateRepository, entry: Entry, max_bytes: int
) -> list[Object] | Failure | StoreDown:
    """All items that a stored response was made from: those before its request, and those of its request."""
    stored = read_stored_response(entry)
    if entry.parent:
        items = await load_previous_responses(repository, entry.owner, entry.parent, max_bytes, set())
        return [*items, *stored.items] if isinstance(items, list) else items
    if not stored.conversation:
        return stored.items
    budget = _ItemBudget(max_bytes, "")
    output_ids = {item.get("id") for item in read_output(stored.response)}
    before: list[tuple[float, Object]] = []
    async for one in repository.iterate_children(entry.owner, ITEM, stored.conversation):
        if isinstance(one, StoreDown):
            return one
        item = read_stored_item(one)
        if item.get("id") in output_ids:
            return [earlier for _, earlier in before]
        before.append((one.created, item))
        failure = budget.spend([item], len(one.body))
        if failure is not None:
            return failure
    # The output is not in the conversation: give what was there at the time, and the request's own input.
    return [*(item for created, item in before if created < entry.created), *stored.items]


# --- putting it into the request --------------------------------------------------------------------------------------

_STATE_KEYS = frozenset({"previous_response_id", "conversation", "background"})
_LASTING_TYPES = frozenset({"additional_tools", "configuration_update"})
"""Items that still apply after the conversation before them was compacted."""


def expand_request(body: Object, history: list[Object], referenced: Mapping[str, Object]) -> Object:
    """The request with the history before its own items, and items in place of references to them. Also the first turn
    of a conversation, so that later turns repeat exactly the same items and the provider's prompt cache matches."""
    own_items = read_input_items(body)
    out = {key: value for key, value in body.items() if key not in _STATE_KEYS}
    before = [item for item in history if item.get("type") != COMPACTION_TRIGGER]
    out["input"] = resolve_references([*_drop_compacted(before, own_items), *own_items], referenced)
    return out


def resolve_references(items: list[Object], referenced: Mapping[str, Object]) -> list[Object]:
    """The items, cleaned, with references replaced by the items they refer to. No item appears twice."""
    known_ids = {item.get("id") for item in items if not is_reference(item)}
    out: list[Object] = []
    for item in items:
        if not is_reference(item):
            out.append(clean_item(item))
        elif item["id"] not in known_ids:
            known_ids.add(item["id"])
            out.append(clean_item(referenced.get(item["id"], item)))
    return out


def _drop_compacted(history: list[Object], new_items: list[Object]) -> list[Object]:
    """The history without what its last compaction item sums up. As in OpenAI's own compaction, messages that are not
    the model's stay, and so do calls whose result comes later."""
    last = max((number for number, item in enumerate(history) if item.get("type") == COMPACTION), default=0)
    answered = {item.get("call_id") for item in (*history[last:], *new_items)} - {None}
    remaining = [
        item
        for item in history[:last]
        if (item_type(item) == "message" and item.get("role") != "assistant")
        or item.get("type") in _LASTING_TYPES
        or item.get("call_id") in answered
    ]
    return remaining + history[last:]


# --- compaction -------------------------------------------------------------------------------------------------------


COMPACT_PATH = f"{PATH}/compact"
_ENVELOPE_MARK = ENVELOPE_PREFIX.encode()


def replace_body(request: GatewayRequest, body: Object, stream: bool = False) -> GatewayRequest | Failure:
    """The request, as if the client had sent this body. A failure if it is larger than any request may be, or has more
    values: with its own body, it would be answered without what it continues."""
    data, max_bytes = encode({**body, "stream": True} if stream else body), request.runtime.config.server.max_body
    if len(data) > max_bytes:
        return history_too_large_failure(max_bytes)
    read = read_client_body(request.client_codec, data)
    if isinstance(read, ClientBody):
        return replace(request, body=read)
    if read.kind != "too_large":
        return read
    message = (
        f"The conversation that this request continues is too long: with it, {read.message}. Continue from a summary of"
        " it in a new conversation."
    )
    return Failure("context", message, 400, "context_length_exceeded")


def is_native_target(request: GatewayRequest, targets: tuple[Target, ...]) -> bool:
    """Does the first provider speak Responses, so that it may store things itself?"""
    target = targets[0]
    codec = choose_codec(target, request.client_codec, request.body.has_tools)
    return codec.name == request.client_codec.name and not target.provider.embedded


def allows_upstream_state(request: GatewayRequest) -> bool:
    """May clients refer to what the provider stores? Not if several gateway keys share the provider's account: one
    client could read what another has stored. And not if there are several accounts: only one of them has it."""
    return not request.runtime.config.server.needs_keys and request.runtime.accounts is None


def compacts_upstream(request: GatewayRequest, targets: tuple[Target, ...]) -> bool:
    """Can the provider compact the conversation itself? Not if it contains envelopes, which only the gateway reads."""
    return is_native_target(request, targets) and _ENVELOPE_MARK not in request.body.data


async def answer_with_compaction(
    request: GatewayRequest,
    targets: tuple[Target, ...],
    pipeline: RequestRunner,
    recorder: StoringRecorder | StatelessRecorder,
    body: Object,
    history: StoredHistory,
) -> Reply | AttemptFailed:
    """Answer a request whose input ends with `compaction_trigger`."""
    stream, size = request.stream, len(request.body.data)
    if history.items or history.referenced:
        size = max(size, LARGE_BODY)  # with stored items the body can become as large as any
    whole = await run_by_size(size, partial(expand_request, body, history.items, history.referenced))
    answer = await request_summary(request, targets, pipeline, whole, size)
    if isinstance(answer, AttemptFailed):
        return answer
    summary, provider_headers = answer
    response = write_summary_response(
        body, summary, request.id_seed, int(request.now), request.runtime.envelope_keys_of(request.caller.key)
    )
    if isinstance(response, Failure):
        return error_replies.gateway_error(request, response)
    reply = await recorder.save_reply(Reply(200, provider_headers, encode(response)))
    if not stream:
        return reply
    headers = {**reply.headers, "content-type": request.client_codec.http.framing.content_type}
    return Reply(200, headers, write_response_stream(parse_object(reply.body)))


async def request_summary(
    request: GatewayRequest, targets: tuple[Target, ...], pipeline: RequestRunner, body: Object, size: int
) -> tuple[Object, Mapping[str, str]] | AttemptFailed:
    """Ask the model for a summary of a body of about this size; returns its response, and the headers for the
    client."""

    def write_request() -> GatewayRequest | Failure:
        return replace_body(request, write_summary_request(body, read_items_to_store(body, request.id_seed)))

    asked = await run_by_size(size, write_request)
    if isinstance(asked, Failure):
        return error_replies.gateway_error(request, asked)
    request = replace(asked, stream=False, recorder=None, gateway_tools=None)
    answer = await pipeline.request_answer(request, targets)
    if isinstance(answer, AttemptFailed):
        return answer
    if isinstance(answer, StartedStream):
        raise TypeError("the pipeline streams the answer to a request with `stream: false`")
    try:
        return parse_object(answer.body, len(answer.body)), answer.headers
    except Malformed as bad:
        return error_replies.gateway_error(request, Failure("upstream", str(bad), 502))


SUMMARY_PROMPT = """\
This conversation has become long and will go on without its earlier messages. Write the summary from which another \
model can take over the work at this very point. It will see your summary and nothing else of what was said and done \
so far, except for the user's own messages.

Say, under short headings:
- what the user wants in the end, and how they want it done (wishes, rules, preferences, things they refused);
- what was decided, and why; what was tried and did not work;
- the state of the work: files that were read, made or changed and what stands in them, commands that were run and \
what came out, what runs or is open now;
- what is left to do, the next step first;
- everything that must be spelled exactly: names, paths, ids, versions, addresses, numbers, errors, pieces of code.

Write facts only, no greeting and no remark about this task. Call no tools, and do not go on with the work itself."""

_DROPPED_KEYS = frozenset(
    """previous_response_id conversation background stream stream_options context_management include
    max_output_tokens store tool_choice input text""".split()
)


def write_summary_request(body: Object, items: list[Object]) -> Object:
    """The request that asks the model for a summary. It has the same instructions and tools as the client's, so that
    the provider's prompt cache matches."""
    out = {key: value for key, value in body.items() if key not in _DROPPED_KEYS}
    text = body.get("text")
    if isinstance(text, dict) and text.get("verbosity") is not None:
        out["text"] = {"verbosity": text["verbosity"]}
    out["input"] = [
        *(clean_item(item) for item in items if item.get("type") != COMPACTION_TRIGGER),
        write_user_message(SUMMARY_PROMPT),
    ]
    if body.get("tools"):
        out["tool_choice"] = "none"
    out["store"] = False
    return out


def write_compact_response(
    answer: Object, items: list[Object], seed: str, now: int, keys: EnvelopeKeys | None = None
) -> Object | Failure:
    """The response of `/v1/responses/compact`: the user's messages, and the summary of everything else."""
    item = _write_compaction_item(answer, seed, keys)
    if isinstance(item, Failure):
        return item
    messages = [clean_item(one) for one in items if item_type(one) == "message" and one.get("role") == "user"]
    return {
        "id": derive_id("resp_", f"{seed}|compact"),
        "object": "response.compaction",
        "created_at": now,
        "output": [*map(write_listed_item, add_missing_ids(messages, seed)), item],
        "usage": _summary_usage(answer),
    }


def write_summary_response(
    body: Object, answer: Object, seed: str, now: int, keys: EnvelopeKeys | None = None
) -> Object | Failure:
    """The response to a request with `compaction_trigger`: its output is the summary."""
    item = _write_compaction_item(answer, seed, keys)
    if isinstance(item, Failure):
        return item
    return {
        **write_pending_response(body, now, "completed"),
        "id": derive_id("resp_", seed),
        "completed_at": now,
        "output": [item],
        "usage": _summary_usage(answer),
    }


def _write_compaction_item(answer: Object, seed: str, keys: EnvelopeKeys | None) -> Object | Failure:
    messages = [item.get("content") for item in read_output(answer) if item.get("type") == "message"]
    parts = [part for content in messages if isinstance(content, list) for part in content if isinstance(part, dict)]
    texts = [part.get("text") for part in parts if part.get("type") == "output_text"]
    text = "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())
    if not text:
        return Failure("upstream", "the model wrote no summary of the conversation", 502, "no_summary")
    envelope = write_envelope([EnvelopeEntry("summary", TOOLWIRE_MAKER, "", text)], keys)
    return {"id": derive_id("cmp_", seed), "type": COMPACTION, "encrypted_content": envelope}


def _summary_usage(answer: Object) -> Object:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else write_usage(Usage())
