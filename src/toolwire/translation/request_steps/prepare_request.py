"""A client's request as a provider can take it: all steps on the way out, in their order."""

from __future__ import annotations

from toolwire.core.codec import Codec, Constraints
from toolwire.core.ir import Request, source_path
from toolwire.core.losses import Ledger
from toolwire.translation import seals
from toolwire.translation.options import Options
from toolwire.translation.request_steps import history_order, turn_content
from toolwire.translation.request_steps.call_ids import normalise_call_ids
from toolwire.translation.request_steps.request_features import RequestFeatures, request_features
from toolwire.translation.request_steps.tool_names import ToolNameMap, rename_tools

NO_CALL_IDS: frozenset[str] = frozenset()


def prepare_request(
    request: Request, provider: Codec, ledger: Ledger, options: Options
) -> tuple[Request, ToolNameMap, frozenset[str]]:
    """The request as the provider can take it, the way back for names, and the ids that are taken."""
    rules, taken = provider.constraints, NO_CALL_IDS
    survey = request_features(request)
    seldom = survey.rare
    if seldom:
        request = _open_request(request, provider, ledger, options, survey)
    request, plan = rename_tools(request, rules, ledger, survey)
    has_calls = survey.calls or survey.results
    if has_calls:
        found = normalise_call_ids(request, rules, ledger, survey)
        request, taken = found.request, found.used_ids
    if seldom:
        request = _restrict_seals(request, provider, ledger, options, survey)
    request = turn_content.place_system_prompt(request, rules, ledger)
    if request.settings.format is not None:
        request = turn_content.mention_json(request, rules, ledger)
    if seldom and "blank text" in seldom:
        request = turn_content.drop_empty_text(request, rules, ledger)
    if has_calls:
        request = history_order.pair_results(request, rules, ledger)
    elif rules.merged_roles and ledger.source != ledger.target:
        request = history_order.join_neighbours(request, rules, ledger)
    if rules.must_start_with_user:
        request = history_order.ensure_user_first(request, ledger)
    if seldom:
        request = _adapt_results(request, rules, ledger, options, survey)
    return request, plan, taken


def _open_request(
    request: Request, provider: Codec, ledger: Ledger, options: Options, features: RequestFeatures
) -> Request:
    """What is closed to others at the place where it stands: summaries, envelopes, tools loaded in the middle."""
    seldom = features.rare
    if "summaries" in seldom:
        request = seals.summaries_as_text(request, options.maker or provider.name, ledger)
    if "seals" in seldom:
        request = seals.open_envelopes(request)
    if "loaded tools" in seldom:
        request = turn_content.merge_loaded_tools(request, provider.constraints, ledger)
    return request


def _restrict_seals(
    request: Request, provider: Codec, ledger: Ledger, options: Options, features: RequestFeatures
) -> Request:
    """Thoughts and seals for their maker alone; phases where there is a place for them."""
    rules, seldom = provider.constraints, features.rare
    if "seals" in seldom or "reasoning" in seldom:
        request = turn_content.drop_reasoning_without_tools(request, rules, ledger)
        maker = seals.NO_MAKER if options.without_seals else options.maker or provider.name
        request = seals.keep_own_seals(request, maker, rules, ledger)
    if "phases" in seldom and not rules.has_turn_phases and ledger.source != ledger.target:
        for turn in features.phased_turns:
            ledger.note("no-counterpart", (source_path(turn), "phase"), f"the phase `{turn.phase}` was left out")
    return request


def _adapt_results(
    request: Request, constraints: Constraints, ledger: Ledger, options: Options, features: RequestFeatures
) -> Request:
    """Results as the target tells them."""
    if "failed results" in features.rare:
        request = turn_content.mark_failed_results(request, constraints, ledger)
    if "media results" in features.rare:
        request = turn_content.move_result_media(request, constraints, options, ledger)
    return request
