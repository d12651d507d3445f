"""A client's request as a provider can take it: all steps on the way out, in their order."""

from __future__ import annotations

from toolwire import seals
from toolwire.ir import Request, place
from toolwire.loss import Ledger
from toolwire.options import Options
from toolwire.room import Room, Rules
from toolwire.steps import content, history
from toolwire.steps.identity import identified
from toolwire.steps.naming import Plan, planned
from toolwire.steps.survey import Survey, surveyed

NONE_TAKEN: frozenset[str] = frozenset()


def outbound(
    request: Request, provider: Room, ledger: Ledger, options: Options
) -> tuple[Request, Plan, frozenset[str]]:
    """The request as the provider can take it, the way back for names, and the ids that are taken."""
    rules, taken = provider.rules, NONE_TAKEN
    survey = surveyed(request)
    seldom = survey.seldom
    if seldom:
        request = _opened(request, provider, ledger, options, survey)
    request, plan = planned(request, rules, ledger, survey)
    has_calls = survey.calls or survey.results
    if has_calls:
        found = identified(request, rules, ledger, survey)
        request, taken = found.request, found.used
    if seldom:
        request = _sealed(request, provider, ledger, options, survey)
    request = content.instructed(request, rules, ledger)
    if request.settings.format is not None:
        request = content.worded(request, rules, ledger)
    if seldom and "blank text" in seldom:
        request = content.filled(request, rules, ledger)
    if has_calls:
        request = history.ordered(request, rules, ledger)
    elif rules.joins and ledger.source != ledger.target:
        request = history.alternating(request, rules, ledger)
    if rules.starts_with_user:
        request = history.begun(request, ledger)
    if seldom:
        request = _told(request, rules, ledger, options, survey)
    return request, plan, taken


def _opened(request: Request, provider: Room, ledger: Ledger, options: Options, survey: Survey) -> Request:
    """What is closed to others at the place where it stands: summaries, envelopes, tools loaded in the middle."""
    seldom = survey.seldom
    if "summaries" in seldom:
        request = seals.retold(request, options.maker or provider.name, ledger)
    if "seals" in seldom:
        request = seals.opened(request)
    if "loaded tools" in seldom:
        request = content.gathered(request, provider.rules, ledger)
    return request


def _sealed(request: Request, provider: Room, ledger: Ledger, options: Options, survey: Survey) -> Request:
    """Thoughts and seals for their maker alone; phases where there is a place for them."""
    rules, seldom = provider.rules, survey.seldom
    if "seals" in seldom or "reasoning" in seldom:
        request = content.unbound(request, rules, ledger)
        maker = seals.NOBODY if options.without_seals else options.maker or provider.name
        request = seals.kept(request, maker, rules, ledger)
    if "phases" in seldom and not rules.phases and ledger.source != ledger.target:
        for turn in survey.phases:
            ledger.note("no-counterpart", (place(turn), "phase"), f"the phase `{turn.phase}` was left out")
    return request


def _told(request: Request, rules: Rules, ledger: Ledger, options: Options, survey: Survey) -> Request:
    """Results as the target tells them."""
    if "failed results" in survey.seldom:
        request = content.marked(request, rules, ledger)
    if "media results" in survey.seldom:
        request = content.housed(request, rules, options, ledger)
    return request
