"""A run of the suite: a verdict on each play (one case in one variant and one stream mode)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.conformance.case import Case, CaseTurn
from toolwire.conformance.peers import PEERS
from toolwire.conformance.player import CaseOutcome, Transport, play_case
from toolwire.conformance.transports import Router

Verdict: TypeAlias = Literal["pass", "wrong", "unsupported", "not played"]
VERDICTS: tuple[Verdict, ...] = ("pass", "wrong", "unsupported", "not played")
PARTS = ("grid", "cases")


class PlayResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one play. `client` and `provider` are short names of protocols."""

    id: str
    title: str
    client: str
    provider: str
    stream: bool
    verdict: Verdict
    differences: tuple[str, ...] = ()
    why: str = ""
    """Why it is unsupported or was not played."""

    @property
    def part(self) -> str:
        return "grid" if self.id.startswith("grid:") else "cases"

    @property
    def kind(self) -> str:
        """The kind of conversation, for a play of the grid."""
        return self.id.split(":", 2)[2]

    @property
    def main_difference(self) -> str:
        """The most important difference, or why there was no play."""
        return self.why or (self.differences[0] if self.differences else "")


def select_cases(cases: Iterable[Case], patterns: Sequence[str] = (), only: str = "") -> list[Case]:
    """The cases of a part whose id begins with a match of one of the patterns."""
    return [
        case
        for case in cases
        if only in ("", "grid" if case.number == 0 else "cases")
        and (not patterns or any(fnmatchcase(case.id, pattern + "*") for pattern in patterns))
    ]


def asked_models(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Each protocol of a provider with each model that it is asked for."""
    pairs = {(turn.provider.protocol, _turn_model(turn)) for case in cases for turn in case.turns}
    return sorted(pair for pair in pairs if pair[1])


def _turn_model(turn: CaseTurn) -> str:
    return turn.client.model or str(turn.client.request.get("model", ""))


def run_cases(
    cases: Sequence[Case], transport: Transport, router: Router, is_configured: Callable[[str], bool]
) -> Iterator[PlayResult]:
    """Play the cases in order. `is_configured` takes an id without the mode: is the gateway set up for that case?"""
    for case in cases:
        outcome = _find_unsupported(case, router)
        if outcome is None:
            name = case.id.removesuffix(":whole").removesuffix(":stream")
            include = not case.configured or is_configured(name)
            outcome = play_case(case, transport, include_out_of_reach=include, same_mode=False, is_formal=False)
        yield _make_play_result(case, outcome)


def _find_unsupported(case: Case, router: Router) -> CaseOutcome | None:
    for turn in case.turns:
        route = router(turn.client.protocol, turn.provider.protocol, _turn_model(turn))
        if isinstance(route, str):
            return CaseOutcome(case.id, False, unsupported=route)
    return None


def _make_play_result(case: Case, outcome: CaseOutcome) -> PlayResult:
    verdict: Verdict = "pass"
    if not outcome.passed:
        verdict = "unsupported" if outcome.unsupported else "not played" if outcome.out_of_reach else "wrong"
    first = case.turns[0] if case.turns else None
    return PlayResult(
        id=case.id,
        title=case.title,
        client=PEERS[first.client.protocol].short_name if first else "",
        # several if a session changes its provider
        provider=", ".join(dict.fromkeys(PEERS[turn.provider.protocol].short_name for turn in case.turns)),
        stream=bool(first and first.client.stream),
        verdict=verdict,
        differences=outcome.differences if verdict == "wrong" else (),
        why=outcome.out_of_reach or outcome.unsupported,
    )
