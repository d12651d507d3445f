"""All steps that adapt a request to a provider, in their order."""

from __future__ import annotations

from toolwire.core.codec import Codec
from toolwire.core.envelopes import EnvelopeKeys
from toolwire.core.ir import Request, source_path, with_turns
from toolwire.core.losses import Ledger
from toolwire.translation import seals
from toolwire.translation.options import Options
from toolwire.translation.request_steps import history, turn_content
from toolwire.translation.request_steps.history import normalise_call_ids
from toolwire.translation.request_steps.tools import ToolNameMap, rename_tools
from toolwire.translation.request_steps.turn_content import RareFeature, RequestFeatures, request_features

NO_CALL_IDS: frozenset[str] = frozenset()


def adapt_request(
    request: Request,
    provider: Codec,
    ledger: Ledger,
    options: Options,
    envelope_keys: EnvelopeKeys | None = None,
    keep_all_tools: bool = False,
    stale_turns: int = 0,
) -> tuple[Request, ToolNameMap, frozenset[str]]:
    """The request as the provider accepts it, the map that restores tool names, and the call ids that are in use. With
    `keep_all_tools` there may be more tools than it accepts. `stale_turns` is the number of turns that were made with
    other tools, if the model refuses its thinking in them."""
    rules, used_ids = provider.constraints, NO_CALL_IDS
    features = request_features(request)
    rare = features.rare
    if rare:
        request = _open_request(request, provider, ledger, options, envelope_keys, rare, stale_turns)
    request, tool_names = rename_tools(request, rules, ledger, features, keep_all_tools)
    has_calls = features.calls or features.results
    if has_calls:
        request, used_ids = normalise_call_ids(request, rules, ledger, features)
    if rare:
        request = _restrict_seals(request, provider, ledger, options, features)
    if "blank text" in rare:
        request = turn_content.drop_empty_text(request, rules, ledger)
    request = turn_content.place_system_prompt(request, rules, ledger)
    request = turn_content.fit_response_format(request, rules, ledger)
    request = turn_content.mention_json(request, rules, ledger)
    if has_calls:
        request = history.pair_results(
            turn_content.drop_summarised_media(request, ledger) if options.binary_results == "summary" else request,
            rules,
            ledger,
        )
    elif rules.merged_roles and not ledger.is_same_protocol:
        request = history.join_neighbours(request, rules, ledger)
    if rules.must_start_with_user:
        request = history.ensure_user_first(request, ledger)
    if "failed results" in rare:
        request = turn_content.mark_failed_results(request, rules, ledger)
    if "media results" in rare:
        request = turn_content.move_result_media(request, rules, options, ledger)
    return request, tool_names, used_ids


def _open_request(
    request: Request,
    target: Codec,
    ledger: Ledger,
    options: Options,
    keys: EnvelopeKeys | None,
    rare: set[RareFeature],
    stale_turns: int,
) -> Request:
    """Replace what only the client's protocol has: summaries, envelopes, and tools that are loaded in the middle."""
    if "summaries" in rare:
        request = seals.summaries_as_text(request, options.maker or target.name, keys, ledger)
    if "seals" in rare:
        request = seals.open_envelopes(request, keys, ledger)
        if stale_turns:
            stale = request.turns[:stale_turns]
            request = with_turns(request, turn_content.drop_reasoning_of(request.turns, stale, ledger))
    if "loaded tools" in rare:
        request = turn_content.merge_loaded_tools(request, target.constraints, ledger)
    return request


def _restrict_seals(
    request: Request, provider: Codec, ledger: Ledger, options: Options, features: RequestFeatures
) -> Request:
    """Leave out thinking and seals of other makers, and phases where the provider has none."""
    rules, rare = provider.constraints, features.rare
    if "seals" in rare:
        request = turn_content.drop_reasoning_without_tools(request, rules, ledger)
        maker = seals.NO_MAKER if options.without_seals else options.maker or provider.name
        request = seals.keep_own_seals(request, maker, rules, ledger)
    if "phases" in rare and not rules.has_turn_phases and not ledger.is_same_protocol:
        for turn in features.phased_turns:
            ledger.note("no-counterpart", (source_path(turn), "phase"), f"the phase `{turn.phase}` was left out")
    return request
