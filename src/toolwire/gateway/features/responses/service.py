"""Prepares Responses requests that use state: loads what they refer to, and stores their responses."""

from __future__ import annotations

import secrets
from collections.abc import Set
from functools import partial
from urllib.parse import parse_qsl

from msgspec.structs import replace

from toolwire.core.codec import Codec
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed, Object, encode
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, StreamReplay
from toolwire.gateway.exchange.session import find_session
from toolwire.gateway.exchange.stages import ExtendedRequest, RequestRunner, Stage
from toolwire.gateway.features.responses.background import (
    INTERNAL_ERROR,
    BackgroundJob,
    BackgroundJobs,
    JobCoroutine,
    follow_remote_job,
    run_background_request,
    start_record,
    store_failed,
)
from toolwire.gateway.features.responses.endpoints import OperationContext, StateOperation, match_operation
from toolwire.gateway.features.responses.history import (
    STATELESS_HINT,
    StoredHistory,
    allows_upstream_state,
    answer_with_compaction,
    compacts_upstream,
    expand_request,
    is_native_target,
    is_not_stored_here,
    load_history,
    replace_body,
)
from toolwire.gateway.features.responses.idempotency import (
    HEADER,
    FinishedRequest,
    IdempotencyClaim,
    claim_key,
    replay_answer,
)
from toolwire.gateway.features.responses.recorder import StatelessRecorder, StoringRecorder, read_stored_response
from toolwire.gateway.features.responses.response_objects import (
    StateOptions,
    is_stateless,
    not_found_failure,
    read_items_to_store,
    read_state_options,
    write_pending_response,
    write_response_stream,
)
from toolwire.gateway.http.headers import JSON_HEADERS
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size, run_in_thread
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.settings.router import Target
from toolwire.gateway.store.repository import (
    RESPONSE,
    StateRepository,
    no_store_failure,
    owner_of,
    store_unavailable_failure,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses import CODEC
from toolwire.protocols.openai_responses.http import PATH
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES


class ResponsesService(Stage):
    """The Responses state of one gateway process: its stage is the same under every configuration. Without a store,
    requests that need one are refused or left to the provider."""

    def __init__(self, repository: StateRepository) -> None:
        self.repository = repository
        self.jobs = BackgroundJobs(repository)

    async def finish_jobs(self, seconds: float | None) -> None:
        """Wait for background responses as for streams."""
        await self.jobs.close(seconds)

    def serves(self, codec: Codec) -> bool:
        return codec is CODEC

    def match_operation(self, codec: Codec, method: str, path: str) -> StateOperation | None:
        """The operation on stored things that a request asks for, if it does."""
        return match_operation(method, path) if self.serves(codec) else None

    def make_context(
        self, pipeline: RequestRunner, request: GatewayRequest, operation: StateOperation, query: str
    ) -> OperationContext:
        owner, fields = owner_of(request.caller.key), dict(parse_qsl(query, keep_blank_values=True))
        return OperationContext(self.repository, self.jobs, pipeline, request, operation, owner, fields)

    # --- requests for an answer ---

    async def extend(
        self, request: GatewayRequest, targets: tuple[Target, ...], pipeline: RequestRunner
    ) -> ExtendedRequest:
        """Load what a request refers to and arrange that its response is stored; or its answer already."""
        if is_stateless(request.body.members):
            return request
        size = len(request.body.data)
        body = await run_by_size(size, partial(_read_body, request))
        if body is None:
            return request  # the codec reads the body next, and says what is wrong with it
        options = await run_by_size(size, partial(read_state_options, body))
        if isinstance(options, Failure):
            return error_replies.gateway_error(request, options)
        if not (options.store or options.refers_to_stored or options.compaction):
            return request
        request = replace(request, id_seed=secrets.token_hex(12))
        claimed = await self._claim_key(request, owner_of(request.caller.key), options, body)
        if claimed is not None and not isinstance(claimed, IdempotencyClaim):
            return claimed
        prepared: ExtendedRequest | None = None
        try:
            prepared = await self._prepare_claimed_request(request, targets, pipeline, options, body, claimed)
        finally:
            if claimed is not None and not isinstance(prepared, GatewayRequest):
                claimed.release()
        if claimed is not None and isinstance(prepared, GatewayRequest):
            request.running.holdings += (claimed,)
        return prepared

    async def _prepare_claimed_request(
        self,
        request: GatewayRequest,
        targets: tuple[Target, ...],
        pipeline: RequestRunner,
        options: StateOptions,
        body: Object,
        claim: IdempotencyClaim | None,
    ) -> ExtendedRequest:
        owner, max_bytes = owner_of(request.caller.key), request.runtime.config.server.max_body
        history = await load_history(self.repository, owner, options, max_bytes, _stateless_hint(options))
        if isinstance(history, Failure):
            return _refuse_missing(request, targets, history) or request
        # With stored items the body can become as large as any.
        run = run_in_thread if options.refers_to_stored else partial(run_by_size, len(request.body.data))
        own_body = await run(lambda: expand_request(body, [], history.new_references))
        recorder = await self._make_recorder(request, targets, options, own_body, history.response_ids, claim)
        if recorder is None or isinstance(recorder, AttemptFailed):
            return recorder or request
        if options.compaction and not (self.repository.is_enabled and compacts_upstream(request, targets)):
            return await answer_with_compaction(request, targets, pipeline, recorder, body, history)
        if options.refers_to_stored or options.background:
            expanded = await run(partial(_expand_body, request, body, history, options.background))
            if isinstance(expanded, Failure):
                return error_replies.gateway_error(request, expanded)
            request = expanded
            request.record.asked.session = find_session(request)  # now the start of the conversation is known
        if options.background and isinstance(recorder, StoringRecorder):
            return await self._start_background_job(request, targets, pipeline, recorder, body, claim)
        return replace(request, recorder=recorder)

    async def _claim_key(
        self, request: GatewayRequest, owner: str, options: StateOptions, body: Object
    ) -> IdempotencyClaim | Reply | AttemptFailed | StreamReplay | None:
        """Claim the request's idempotency key, if it has one and stores something. If the request was done already, its
        answer."""
        key = request.headers.get(HEADER, "")
        if not key or not self.repository.is_enabled or not (options.store or options.conversation):
            return None
        claim = await claim_key(self.repository, owner, key, PATH, body)
        if isinstance(claim, IdempotencyClaim):
            return claim
        if not isinstance(claim, FinishedRequest):
            failure = store_unavailable_failure(claim) if isinstance(claim, StoreDown) else claim
            return error_replies.gateway_error(request, failure)
        answer = claim.answer
        if answer is None:
            entry = await self.repository.get_one(owner, RESPONSE, claim.response_id)
            if not isinstance(entry, Entry):
                missing = not_found_failure("response", claim.response_id)
                failure = store_unavailable_failure(entry) if isinstance(entry, StoreDown) else missing
                return error_replies.gateway_error(request, failure)
            stored = read_stored_response(entry)
            if stored.background and request.stream:
                job = self.jobs.get(owner, entry.id)
                follower = follow_remote_job(self.repository, entry, -1) if job is None else job.follow_stream(-1)
                return StreamReplay(follower)
            answer = stored.response
        reply = replay_answer(answer)
        if not request.stream:
            return reply
        headers = {**reply.headers, "content-type": request.client_codec.http.framing.content_type}
        return Reply(200, headers, write_response_stream(answer))

    async def _make_recorder(
        self,
        request: GatewayRequest,
        targets: tuple[Target, ...],
        options: StateOptions,
        own_body: Object,
        taken_ids: Set[str],
        claim: IdempotencyClaim | None,
    ) -> StoringRecorder | StatelessRecorder | AttemptFailed | None:
        """What stores the response; None if the provider does, for a gateway without a store and without keys.
        `own_body` has no history. `taken_ids` are those of the responses before it."""
        if self.repository.is_enabled:
            down = await self.repository.check_reachable() if options.store else None
            if down is not None:
                return error_replies.gateway_error(request, store_unavailable_failure(down, _stateless_hint(options)))
            size = max(len(request.body.data), LARGE_BODY if options.references else 0)
            items = await run_by_size(size, partial(read_items_to_store, own_body, request.id_seed))
            own_id = derive_id("resp_", request.id_seed)
            preassigned = (own_id, int(request.now)) if options.background else ("", 0)
            owner = owner_of(request.caller.key)
            return StoringRecorder(self.repository, owner, options, items, preassigned, own_id, size, taken_ids, claim)
        if is_native_target(request, targets) and allows_upstream_state(request):
            return None
        if options.background:
            return error_replies.gateway_error(request, no_store_failure(400))
        return StatelessRecorder()

    async def _start_background_job(
        self,
        request: GatewayRequest,
        targets: tuple[Target, ...],
        pipeline: RequestRunner,
        recorder: StoringRecorder,
        body: Object,
        claim: IdempotencyClaim | None,
    ) -> Reply | AttemptFailed | StreamReplay:
        queued, running = (
            {**write_pending_response(body, int(request.now), status), **recorder.overrides}
            for status in UNFINISHED_STATUSES
        )
        job = BackgroundJob(self.repository, recorder, queued, running)
        result = await job.store_queued()
        if isinstance(result, StoreDown):
            return error_replies.gateway_error(request, store_unavailable_failure(result))
        if claim is not None:
            await self.repository.put(claim.finished_entry(job.id))
        job_call = start_record(replace(request, stream=True, recorder=None))

        def fail_job(error: BaseException) -> JobCoroutine:
            request.runtime.telemetry.report_error(error)
            return store_failed(job, INTERNAL_ERROR)

        work = run_background_request(pipeline, job_call, targets, recorder, job)
        self.jobs.run_job(recorder.owner, job, work, fail_job)
        return StreamReplay(job.follow_stream(-1)) if request.stream else Reply(200, JSON_HEADERS, encode(queued))

    # --- requests for a token count ---

    async def extend_count(
        self, request: GatewayRequest, targets: tuple[Target, ...]
    ) -> GatewayRequest | AttemptFailed:
        """Put what a request refers to into its body, without storing anything."""
        size, is_served = len(request.body.data), self.serves(request.client_codec)
        body = await run_by_size(size, partial(_read_body, request)) if is_served else None
        options = await run_by_size(size, partial(read_state_options, body)) if body is not None else None
        if body is None or not isinstance(options, StateOptions) or not options.refers_to_stored:
            return request
        owner, max_bytes = owner_of(request.caller.key), request.runtime.config.server.max_body
        history = await load_history(self.repository, owner, options, max_bytes, STATELESS_HINT)
        if isinstance(history, Failure):
            return _refuse_missing(request, targets, history) or request
        expanded = await run_in_thread(partial(_expand_body, request, body, history))
        return error_replies.gateway_error(request, expanded) if isinstance(expanded, Failure) else expanded


def _expand_body(
    request: GatewayRequest, body: Object, history: StoredHistory, stream: bool = False
) -> GatewayRequest | Failure:
    """The request as if the client had sent the history with it."""
    return replace_body(request, expand_request(body, history.items, history.referenced), stream)


def _stateless_hint(options: StateOptions) -> str:
    return "" if options.background else STATELESS_HINT


def _read_body(request: GatewayRequest) -> Object | None:
    try:
        return request.body.decode()
    except Malformed:
        return None


def _refuse_missing(request: GatewayRequest, targets: tuple[Target, ...], failure: Failure) -> AttemptFailed | None:
    """Refuse a request that refers to something unknown; None if the provider may know it."""
    if is_not_stored_here(failure) and is_native_target(request, targets) and allows_upstream_state(request):
        return None
    return error_replies.gateway_error(request, failure)
