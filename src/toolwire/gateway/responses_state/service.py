"""Requests that want more than an answer: to go on from what is kept, to have it kept, or to fetch it later."""

from __future__ import annotations

import secrets
from copy import copy

from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed, Object, decode, encode, expect_object
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply, StartedStream
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.pipeline.route import Target, choose_codec
from toolwire.gateway.responses_state import history as recalling
from toolwire.gateway.responses_state.background import (
    INTERNAL_ERROR,
    BackgroundJob,
    BackgroundJobs,
    JobCoroutine,
    run_background_call,
    store_failed,
)
from toolwire.gateway.responses_state.history import STATELESS_HINT, StoredHistory
from toolwire.gateway.responses_state.pipeline_interface import Pipeline
from toolwire.gateway.responses_state.recorder import StatelessRecorder, StoringRecorder, no_store_failure
from toolwire.gateway.responses_state.repository import (
    UNFINISHED_STATUSES,
    StateRepository,
    owner_of,
    store_unavailable_failure,
)
from toolwire.gateway.responses_state.signature_store import SignatureRepository
from toolwire.gateway.server.request_body import peek_body
from toolwire.gateway.store.store import StoreDown
from toolwire.keeping import Keeping, Wants
from toolwire.translation import seals

ENVELOPE_PREFIX = seals.ENVELOPE_PREFIX.encode()


class ResponsesService:
    """One for a process, where the gateway keeps anything at all."""

    def __init__(self, repository: StateRepository) -> None:
        self.repository = repository
        self.signatures = SignatureRepository(repository)
        self.jobs = BackgroundJobs(repository)

    async def close(self, seconds: float | None) -> None:
        """Work in the background may finish, as streams may."""
        await self.jobs.close(seconds)
        await self.repository.store.close()

    async def prepare_call(
        self, call: GatewayCall, targets: tuple[Target, ...], pipeline: Pipeline
    ) -> Reply | AttemptFailed | BackgroundJob | None:
        """See to what a request wants besides an answer. None: go on and ask for it."""
        keeping = call.client_codec.keeping
        if keeping is None:
            return None
        body = read_request_body(call)
        wants = keeping.wants(body) if body is not None else None
        if body is None or wants is None:
            return None  # whoever reads it next says what is wrong with it
        if isinstance(wants, Failure):
            return error_replies.gateway_error(call, wants)
        if not (wants.store or wants.previous or wants.conversation or wants.references or wants.summary):
            return None
        call.id_seed = secrets.token_hex(12)
        owner = owner_of(call.caller)
        hint = "" if wants.background else STATELESS_HINT
        recalled = await recalling.load_history(self.repository, owner, keeping, wants, hint)
        if isinstance(recalled, Failure):
            return (
                None if _may_be_upstream_state(call, targets, recalled) else error_replies.gateway_error(call, recalled)
            )
        if not self.repository.is_enabled:
            return await self._prepare_stateless_call(call, targets, pipeline, keeping, wants, body, recalled)
        down = await self.repository.check_reachable() if wants.store else None
        if down is not None:
            return error_replies.gateway_error(call, store_unavailable_failure(down, hint))
        items = keeping.items(keeping.expanded(body, [], recalled.new_references), call.id_seed)
        given = (keeping.new("response", call.id_seed), int(call.now)) if wants.background else ("", 0)
        keeper = StoringRecorder(self.repository, owner, keeping, wants, items, given)
        return await self._prepare_stored_call(call, targets, pipeline, keeper, body, recalled)

    async def _prepare_stored_call(
        self,
        call: GatewayCall,
        targets: tuple[Target, ...],
        pipeline: Pipeline,
        recorder: StoringRecorder,
        body: Object,
        history: StoredHistory,
    ) -> Reply | AttemptFailed | BackgroundJob | None:
        keeping, wants = recorder.keeping, recorder.wants
        if wants.summary and not (is_native_target(call, targets) and ENVELOPE_PREFIX not in call.body):
            return await self._answer_with_compaction(call, targets, pipeline, recorder, body, history)
        if wants.previous or wants.conversation or wants.references or wants.background:
            replace_body(call, keeping.expanded(body, history.history, history.referenced), wants.background)
        if wants.background:
            return await self._start_background_job(call, targets, pipeline, recorder, body)
        call.recorder = recorder
        return None

    async def _prepare_stateless_call(
        self,
        call: GatewayCall,
        targets: tuple[Target, ...],
        pipeline: Pipeline,
        keeping: Keeping,
        wants: Wants,
        body: Object,
        history: StoredHistory,
    ) -> Reply | AttemptFailed | None:
        """Nothing is kept here. A provider of the client's own protocol may do it, where nobody shares its account."""
        if is_native_target(call, targets) and allows_upstream_state(call):
            return None
        if wants.background:
            return error_replies.gateway_error(call, no_store_failure(400))
        unkept = StatelessRecorder(keeping)
        if wants.summary:
            return await self._answer_with_compaction(call, targets, pipeline, unkept, body, history)
        call.recorder = unkept
        return None

    async def expand_references(self, call: GatewayCall, targets: tuple[Target, ...]) -> AttemptFailed | None:
        """Put in what a request only refers to, where no answer is wanted."""
        keeping = call.client_codec.keeping
        if keeping is None:
            return None
        body = read_request_body(call)
        wants = keeping.wants(body) if body is not None else None
        if (
            body is None
            or not isinstance(wants, Wants)
            or not (wants.previous or wants.conversation or wants.references)
        ):
            return None
        found = await recalling.load_history(self.repository, owner_of(call.caller), keeping, wants, STATELESS_HINT)
        if isinstance(found, Failure):
            return None if _may_be_upstream_state(call, targets, found) else error_replies.gateway_error(call, found)
        replace_body(call, keeping.expanded(body, found.history, found.referenced))
        return None

    # --- in the background ---

    async def _start_background_job(
        self,
        call: GatewayCall,
        targets: tuple[Target, ...],
        pipeline: Pipeline,
        recorder: StoringRecorder,
        body: Object,
    ) -> Reply | AttemptFailed | BackgroundJob:
        queued, running = (
            {**recorder.keeping.begun(body, int(call.now), status), **recorder.overrides}
            for status in UNFINISHED_STATUSES
        )
        job = BackgroundJob(self.repository, recorder, queued, running)
        got = await job.store_queued()
        if isinstance(got, StoreDown):
            return error_replies.gateway_error(call, store_unavailable_failure(got))
        work = copy(call)
        work.stream, work.recorder = True, None

        def fail_job(error: BaseException) -> JobCoroutine:
            pipeline.report_error(error)
            return store_failed(job, recorder, INTERNAL_ERROR)

        self.jobs.run_job(recorder.owner, job, run_background_call(pipeline, work, targets, recorder, job), fail_job)
        return job if call.stream else Reply(200, JSON_HEADERS, encode(queued))

    # --- summaries ---

    async def _answer_with_compaction(
        self,
        call: GatewayCall,
        targets: tuple[Target, ...],
        pipeline: Pipeline,
        recorder: StoringRecorder | StatelessRecorder,
        body: Object,
        history: StoredHistory,
    ) -> Reply | AttemptFailed:
        """A summary in place of an answer, for a provider that makes none itself."""
        keeping, streams = recorder.keeping, call.stream
        whole = keeping.expanded(body, history.history, history.referenced)
        got = await self.request_summary(call, targets, pipeline, keeping, whole)
        if isinstance(got, AttemptFailed):
            return got
        response = keeping.summary(body, got, call.id_seed, int(call.now))
        if isinstance(response, Failure):
            return error_replies.gateway_error(call, response)
        reply = await recorder.save_reply(Reply(200, JSON_HEADERS, encode(response)))
        if not streams:
            return reply
        told = expect_object(decode(reply.body), None)
        headers = {**reply.headers, "content-type": call.client_codec.http.stream_content_type}
        return Reply(200, headers, keeping.frames(told))

    async def request_summary(
        self, call: GatewayCall, targets: tuple[Target, ...], pipeline: Pipeline, keeping: Keeping, whole: Object
    ) -> Object | AttemptFailed:
        """The model's own words about a conversation, as an answer of the client's protocol."""
        replace_body(call, keeping.summons(whole, keeping.items(whole, call.id_seed)))
        call.stream, call.recorder, call.gateway_tools = False, None, None
        got = await pipeline.request_answer(call, targets)
        if isinstance(got, AttemptFailed):
            return got
        if isinstance(got, StartedStream):
            raise ValueError("a whole answer was asked for")
        try:
            return expect_object(decode(got.body, max_bytes=len(got.body)), None)
        except Malformed as bad:
            return error_replies.gateway_error(call, Failure("upstream", str(bad), 502))


def read_request_body(call: GatewayCall) -> Object | None:
    try:
        return expect_object(decode(call.body, max_bytes=len(call.body)), None)
    except Malformed:
        return None


def replace_body(call: GatewayCall, body: Object, stream: bool = False) -> None:
    """From here on this is what the client asked for."""
    if stream and call.client_codec.http.stream_in_body:
        body = {**body, "stream": True}
    call.body = encode(body)
    call.peek = peek_body(call.body) or call.peek


def is_native_target(call: GatewayCall, targets: tuple[Target, ...]) -> bool:
    """Is the first provider one of the client's own protocol, that may keep such things itself?"""
    target = targets[0]
    room = choose_codec(target, call.client_codec, call.has_tools)
    return room.name == call.client_codec.name and not target.provider.embedded


def _may_be_upstream_state(call: GatewayCall, targets: tuple[Target, ...], failure: Failure) -> bool:
    """May the provider itself know what we do not?"""
    return failure.status in (400, 404) and is_native_target(call, targets) and allows_upstream_state(call)


def allows_upstream_state(call: GatewayCall) -> bool:
    """May a client refer to what the provider keeps? Not where several clients share the provider's account."""
    return not call.runtime.config.server.keys
