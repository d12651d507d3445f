"""A call as one provider gets it: the client's own bytes where nothing needs changing, else a translation."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ids import hex_digest
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.json_values import Malformed
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.call import (
    AttemptFailed,
    GatewayCall,
    GatewayTools,
    PassthroughRequest,
    PreparedRequest,
    TranslatedRequest,
)
from toolwire.gateway.pipeline.headers import recognise_agent
from toolwire.gateway.pipeline.runtime import Upstream
from toolwire.gateway.server.request_body import has_ambiguous_model, replace_model
from toolwire.policy.rules import Rule, RuleSubject
from toolwire.translation import seals
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

SHOW_CALLS_HEADER = "x-toolwire-calls"
"""The header by which a client asks to see the calls that are run here (`show`)."""
_ENVELOPE_PREFIX = seals.ENVELOPE_PREFIX.encode()


class MissingState(Struct, frozen=True):
    """A request that is not whole without what is kept under these ids."""

    exchange: Exchange
    ids: tuple[str, ...]
    allows_passthrough: bool


def prepare_request(call: GatewayCall, upstream: Upstream) -> PreparedRequest | AttemptFailed | MissingState:
    """The request as it goes out, or what must be looked up first: then `completed` makes it."""
    if upstream.needs_credential_check and (barred := _check_credentials(call, upstream)) is not None:
        return barred
    passes = upstream.allows_passthrough and upstream.codec is call.client_codec and _allows_passthrough(call)
    if passes and _needs_no_reading(call, upstream):
        return PassthroughRequest(upstream, body_with_upstream_model(call, upstream), call, _make_exchange)
    exchange = _make_exchange(call, upstream)
    if exchange.uses_memory:
        try:
            ids = exchange.memory_keys(call.body)
        except Malformed as bad:
            return error_replies.gateway_error(call, Failure("invalid", str(bad), 400, param=bad.path))
        if ids:
            return MissingState(exchange, ids, passes)
    return finish_preparing(call, upstream, exchange, EMPTY_MAPPING, passes)


def finish_preparing(
    call: GatewayCall, upstream: Upstream, exchange: Exchange, stored: Mapping[str, bytes], allows_passthrough: bool
) -> PreparedRequest | AttemptFailed:
    """The request as it goes out, with what was kept for it put back."""
    try:
        translation = exchange.translate_request(call.body, stored)
    except Malformed as bad:
        return error_replies.gateway_error(call, Failure("invalid", str(bad), 400, param=bad.path))
    if exchange.is_cross_protocol and exchange.needs_provider_state:
        return (
            error_replies.foreign_compaction_error(call, upstream)
            if exchange.has_unreadable_summary
            else error_replies.missing_turns_error(call, upstream)
        )
    ledger, codes = translation.ledger, translation.ledger.codes
    if allows_passthrough and not codes and not stored:
        # It can be taken as it is, so the client's own bytes are better than ours.
        if upstream.needs_seal_stamps or exchange.has_policy_undo:
            return TranslatedRequest(upstream, body_with_upstream_model(call, upstream), exchange, None, ())
        return PassthroughRequest(upstream, body_with_upstream_model(call, upstream), call, _make_exchange)
    if call.runtime.config.translate.on_loss == "refuse":
        lost = [loss for loss in ledger.losses if loss.severity == "lost"]
        if lost:
            return error_replies.loss_refused_error(call, upstream, lost)
    return TranslatedRequest(upstream, translation.body, exchange, ledger, codes)


def _check_credentials(call: GatewayCall, upstream: Upstream) -> AttemptFailed | None:
    if upstream.provider.is_key_missing:
        return error_replies.missing_key_error(call, upstream)
    return None if call.caller.provider_credential else error_replies.missing_client_key_error(call, upstream)


def _make_exchange(call: GatewayCall, upstream: Upstream) -> Exchange:
    """With the options of the line, and what is this call's own."""
    options = upstream.options if call.signature_store is None else upstream.state_options
    if call.model_output_limit is not None or call.strip_seals or call.expect_hidden_calls:
        options = replace(
            options,
            model_output_limit=call.model_output_limit,
            without_seals=call.strip_seals,
            expect_hidden_calls=call.expect_hidden_calls,
        )
    if call.runtime.policy.rules or upstream.needs_credential_check:
        maker, marked = seal_maker(call, upstream)
        options = replace(
            options, maker=maker, stamp_seals=upstream.needs_seal_stamps or marked, policy=active_policy(call, upstream)
        )
    tooling = call.gateway_tools
    if tooling is not None:
        shown = _visible_tools(call, tooling)
        options = replace(options, tools=tooling.tools, substitutes=tooling.substitutes, shown_tools=shown)
    exchange = Exchange(call.client_codec, upstream.codec, options)
    exchange.now, exchange.seed = int(call.now), call.id_seed or call.record.request_id
    return exchange


def seal_maker(call: GatewayCall, upstream: Upstream) -> tuple[str, bool]:
    """Who makes seals here, and whether that depends on rules: seals are bound to the tools that their maker saw, so
    that one who works under other rules is another."""
    maker = upstream.seal_maker
    if upstream.provider.forward_auth:
        maker = f"{upstream.codec.name}/{upstream.provider.name}/{hex_digest(call.caller.provider_credential, 8)}"
    policy = call.runtime.policy
    mark = policy.active_digest(_policy_subject(call, upstream)) if policy.rules else ""
    return (f"{maker}~{mark}", True) if mark else (maker, False)


def active_policy(call: GatewayCall, upstream: Upstream) -> tuple[Rule, ...]:
    """What the operator does to the tools of this exchange."""
    policy = call.runtime.policy
    return policy.active_rules(_policy_subject(call, upstream)) if policy.rules else ()


def _policy_subject(call: GatewayCall, upstream: Upstream) -> RuleSubject:
    agent, product = recognise_agent(call.headers.get("user-agent", ""))
    return RuleSubject(call.client_codec.name, agent, upstream.provider.name, upstream.model, call.model, product)


def _visible_tools(call: GatewayCall, gateway_tools: GatewayTools) -> frozenset[str]:
    """The tools whose calls the client sees: those that the operator shows, or all, where the client asks for it."""
    all_of_them = call.headers.get(SHOW_CALLS_HEADER, "").lower() == "show"
    return frozenset(
        tool.name for tool in gateway_tools.tools if all_of_them or gateway_tools.call_visibility(tool.name) != "hidden"
    )


def _allows_passthrough(call: GatewayCall) -> bool:
    """Does nothing need changing but the model's name? An envelope of ours must be opened before it goes anywhere."""
    return call.gateway_tools is None and not call.strip_seals and call.body.find(_ENVELOPE_PREFIX) < 0


def _needs_no_reading(call: GatewayCall, upstream: Upstream) -> bool:
    """Need its body not even be read? Earlier turns may be another model's."""
    if upstream.needs_seal_stamps or not (call.model == upstream.model or call.model.endswith(f"/{upstream.model}")):
        return False
    if call.runtime.policy.rules and active_policy(call, upstream):
        return False
    find = call.body.find  # `in` costs ten times as much: it makes an error first, and drops it
    for word in call.client_codec.http.history_markers:  # noqa: SIM110 — a generator would cost more than the search
        if find(word) >= 0:
            return False
    return True


def body_with_upstream_model(call: GatewayCall, upstream: Upstream) -> bytes:
    """The client's own bytes with the model's name as the provider knows it."""
    if not upstream.codec.http.model_in_body:
        return call.body
    key = call.caller.key
    # A key that may use some models only must not smuggle in a second name that another parser would take.
    if call.model == upstream.model and (key is None or key.models == ("*",) or not has_ambiguous_model(call.body)):
        return call.body
    return replace_model(call.body, upstream.model)


def body_for_native_path(call: GatewayCall, upstream: Upstream) -> bytes:
    """The client's own bytes for another path of a provider of its protocol, with calls as the rules want them."""
    rules = active_policy(call, upstream)
    if not rules:
        return body_with_upstream_model(call, upstream)
    exchange = Exchange(
        call.client_codec,
        upstream.codec,
        Options(model=upstream.model, maker=seal_maker(call, upstream)[0], policy=rules),
    )
    try:
        said = exchange.translate_request(call.body)
    except Malformed:
        return body_with_upstream_model(call, upstream)  # the provider says what is wrong with it
    return said.body if said.ledger.codes else body_with_upstream_model(call, upstream)
