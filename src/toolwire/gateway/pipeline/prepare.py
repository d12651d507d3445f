"""The second step of the pipeline: the request as one provider gets it, translated, or the client's own bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.core.ids import hex_digest
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.json_values import Malformed
from toolwire.core.losses import Ledger
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.client_body import ClientBody
from toolwire.gateway.exchange.gateway_request import (
    Attempt,
    AttemptFailed,
    GatewayRequest,
    PassthroughRequest,
    PreparedRequest,
    TranslatedRequest,
    Upstream,
)
from toolwire.gateway.exchange.inner_members import check_inner_members
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size, run_in_thread
from toolwire.gateway.telemetry.agents import recognise_agent
from toolwire.policy.rules import Rule, RuleSubject
from toolwire.tool_formats.families import OFF
from toolwire.translation.accepted_requests import is_accepted
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

SHOW_CALLS_HEADER = "x-toolwire-calls"
"""A client that sends `x-toolwire-calls: show` sees the tool calls that the gateway runs."""
MIN_TOOL_LENGTH = 64
"""The fewest bytes of a tool's declaration: shorter bodies need not be searched for too many tools."""
_ENVELOPE_PREFIX = ENVELOPE_PREFIX.encode()


async def prepare_request(request: GatewayRequest, attempt: Attempt) -> PreparedRequest | AttemptFailed:
    upstream = attempt.upstream
    can_pass = (
        upstream.passing_codec is request.client_codec
        and request.gateway_tools is None
        and not attempt.strips_seals
        and request.body.data.find(_ENVELOPE_PREFIX) < 0  # only we can open envelopes
        and not (upstream.codec.rewritten_markers and request.body.may_have(upstream.codec.rewritten_markers))
    )
    data = request.body.data
    is_large = len(data) >= LARGE_BODY or request.gateway_tools is not None  # whose schemas may be large
    if (
        can_pass
        and not request.body.has_lone_halves
        and (
            written := await run_in_thread(partial(_write_unread, request, attempt))
            if is_large
            else _write_unread(request, attempt)
        )
        is not None
    ):
        return PassthroughRequest(attempt, upstream, written, request, _make_exchange)
    exchange = _make_exchange(request, attempt)
    stored: Mapping[str, bytes] = EMPTY_MAPPING
    try:
        if not exchange.is_cross_protocol:
            await _check_inner_members(request, upstream, exchange)
        read_request = request.body.read_request
        exchange.set_request(
            data, await run_in_thread(read_request) if is_large else read_request(), request.body.repairs
        )
        if exchange.uses_memory:
            loaded = await _load_signatures(request, exchange)
            if isinstance(loaded, Failure):
                return error_replies.gateway_error(request, loaded)
            stored = loaded
        if upstream.image_model:
            await _describe_images(request, upstream, exchange, stored)
        translate, given = exchange.translate_request, (data, stored, can_pass)
        translation = await run_in_thread(partial(translate, *given)) if is_large else translate(*given)
    except Malformed as bad:
        return error_replies.gateway_error(request, Failure("invalid", str(bad), 400, param=bad.path))
    ledger = translation.ledger
    if not exchange.is_cross_protocol:
        _note_refused_headers(request, upstream, ledger)
    codes = ledger.codes
    # If the translation changed nothing, what the client has sent is sent: prompt caches keep their prefix.
    write = request.body.write
    body = translation.body or (
        await run_in_thread(partial(write, upstream.model)) if is_large else write(upstream.model)
    )
    if not translation.body and not codes:
        if upstream.options.stamp_seals or exchange.has_policy_undo or exchange.repairs_answers:
            return TranslatedRequest(attempt, upstream, body, exchange, None, ())
        return PassthroughRequest(attempt, upstream, body, request, _make_exchange)
    refused = _refuse_translation(request, upstream, exchange, ledger) if codes or exchange.is_cross_protocol else None
    return refused or TranslatedRequest(attempt, upstream, body, exchange, ledger, codes)


def _note_refused_headers(request: GatewayRequest, upstream: Upstream, ledger: Ledger) -> None:
    """What was left out of the headers of a client of the provider's protocol."""
    if upstream.codec.http.list_refused is not None:
        for what in upstream.codec.http.list_refused(upstream.model, request.headers):
            ledger.note("no-counterpart", None, f"{what} was left out", "this server refuses it")


async def _load_signatures(request: GatewayRequest, exchange: Exchange) -> Mapping[str, bytes] | Failure:
    find_keys = partial(exchange.memory_keys, request.body.data)
    ids = find_keys() if len(request.body.data) < LARGE_BODY else await run_in_thread(find_keys)
    if not ids or request.signature_store is None:
        return EMPTY_MAPPING
    return await request.signature_store.load_signatures(ids)


async def _describe_images(
    request: GatewayRequest, upstream: Upstream, exchange: Exchange, stored: Mapping[str, bytes]
) -> None:
    describer, size = request.runtime.image_describer, len(request.body.data)
    if describer is None:
        return
    if not stored and not request.body.may_have(request.client_codec.http.media_markers):
        return
    images = await run_by_size(size, lambda: exchange.find_images(request.body.data, stored))
    if images:
        exchange.image_descriptions = await describer.describe_images(request, upstream.image_model, images)


async def _check_inner_members(request: GatewayRequest, upstream: Upstream, exchange: Exchange) -> None:
    """Raises Malformed if rules or limits would judge another value than a provider of this protocol may read."""
    rules = exchange.options.policy
    if rules or upstream.options.max_output_tokens is not None:
        await run_by_size(len(request.body.data), lambda: _check_body(request.body, rules))


def _check_body(body: ClientBody, rules: Sequence[Rule]) -> None:
    removes_tools = any(rule.removes_tools for rule in rules)
    check_inner_members(body.codec.request_members, body.judge(), bool(rules), removes_tools)


def _refuse_translation(
    request: GatewayRequest, upstream: Upstream, exchange: Exchange, ledger: Ledger
) -> AttemptFailed | None:
    """Why the provider must not get the translated request: earlier turns are missing, or a loss is not allowed."""
    if exchange.is_cross_protocol and exchange.needs_provider_state:
        return error_replies.missing_turns_error(request, upstream, exchange.has_unreadable_summary)
    if request.runtime.config.translate.on_loss == "refuse":
        lost = [loss for loss in ledger.losses if loss.severity == "lost"]
        if lost:
            return error_replies.loss_refused_error(request, upstream, lost)
    return None


def _make_exchange(request: GatewayRequest, attempt: Attempt) -> Exchange:
    """The translation between client and provider, with the options of both."""
    upstream = attempt.upstream
    options = upstream.options if request.signature_store is None else upstream.state_options
    if attempt.prompts_tools:
        options = replace(options, tool_prompt=upstream.prompt_if_refused)
    if attempt.output_limit is not None or attempt.strips_seals:
        options = replace(options, model_output_limit=attempt.output_limit, without_seals=attempt.strips_seals)
    if request.runtime.policy.rules or upstream.needs_credential_check:
        maker, depends_on_rules = seal_maker(request, upstream)
        options = replace(
            options,
            maker=maker,
            stamp_seals=upstream.options.stamp_seals or depends_on_rules,
            policy=active_policy(request, upstream),
        )
    offers_tools = request.gateway_tools is not None or not upstream.repairs_only_calls
    if options.repairs_answers and not offers_tools and not request.body.has_tools():
        options = replace(options, tool_format=OFF, repair_calls=False)
    tools = request.gateway_tools
    if tools is not None:
        show_all = request.headers.get(SHOW_CALLS_HEADER, "").lower() == "show"
        names = (tool.name for tool in tools.tools)
        shown = frozenset(name for name in names if show_all or tools.call_visibility(name) != "hidden")
        options = replace(options, tools=tools.tools, substitutes=tools.substitutes, shown_tools=shown)
    exchange = Exchange(request.client_codec, upstream.codec, options)
    exchange.now, exchange.seed = int(request.now), request.id_seed or request.record.request_id
    exchange.envelope_keys = request.runtime.envelope_keys_of(request.caller.key)
    return exchange


def seal_maker(request: GatewayRequest, upstream: Upstream) -> tuple[str, bool]:
    """The name of the account that makes seals here, and whether policy rules are part of it. Anthropic's signatures
    are bound to the tools that the model saw, and rules change these: under other rules it is another maker."""
    maker = upstream.options.maker
    if upstream.provider.forward_auth:
        maker = f"{upstream.codec.name}/{upstream.provider.name}/{hex_digest(request.caller.provider_credential, 8)}"
    policy = request.runtime.policy
    digest = policy.active_digest(_policy_subject(request, upstream)) if policy.rules else ""
    return (f"{maker}~{digest}", True) if digest else (maker, False)


def active_policy(request: GatewayRequest, upstream: Upstream) -> tuple[Rule, ...]:
    policy = request.runtime.policy
    return policy.active_rules(_policy_subject(request, upstream)) if policy.rules else ()


def _policy_subject(request: GatewayRequest, upstream: Upstream) -> RuleSubject:
    agent, product = recognise_agent(request.headers.get("user-agent", ""))
    key = request.caller.key
    name, team = (key.name, key.team) if key is not None else ("", "")
    provider, model = upstream.provider.name, upstream.model
    return RuleSubject(request.client_codec.name, agent, provider, model, request.model, product, name, team)


def _write_unread(request: GatewayRequest, attempt: Attempt) -> bytes | None:
    """The bytes to send, if they may be sent without reading them. Not if earlier turns may come from another model."""
    upstream = attempt.upstream
    if not upstream.may_pass_unread or attempt.prompts_tools:
        return None
    if request.model != upstream.model and not request.model.endswith(f"/{upstream.model}"):
        return None
    if request.runtime.policy.rules and active_policy(request, upstream):
        return None
    if upstream.reads_tools and request.body.has_tools():
        return None
    may_describe = upstream.image_model and request.runtime.image_describer is not None
    reads_media = may_describe or upstream.options.binary_results == "summary"
    if reads_media and request.body.may_have(request.client_codec.http.media_markers):
        return None
    limit = upstream.max_tools
    if limit is not None and len(request.body.data) > limit * MIN_TOOL_LENGTH and request.body.tool_count > limit:
        return None
    if request.body.may_have(request.client_codec.http.history_markers):
        return None
    judged = upstream.judged_members
    if judged and not is_accepted(upstream.codec, upstream.model, request.body.members, judged):
        return None
    return request.body.write(upstream.model)


def prepare_native_request(request: GatewayRequest, upstream: Upstream) -> PassthroughRequest | Failure:
    """A request to another path of a provider of the client's protocol."""
    body = _write_native_body(request, upstream)
    if isinstance(body, Failure):
        return body
    return PassthroughRequest(Attempt(upstream), upstream, body, request, _make_exchange)


def _write_native_body(request: GatewayRequest, upstream: Upstream) -> bytes | Failure:
    """The client's own bytes, with the policy applied."""
    rules = active_policy(request, upstream)
    keys = request.runtime.envelope_keys_of(request.caller.key)
    options = Options(model=upstream.model, maker=seal_maker(request, upstream)[0], policy=rules, envelope_keys=keys)
    if not rules:
        return request.body.write(upstream.model)
    try:
        _check_body(request.body, rules)
        translation = Exchange(request.client_codec, upstream.codec, options).translate_request(request.body.data)
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    if translation.ledger.codes:
        return translation.body
    return request.body.write(upstream.model)
