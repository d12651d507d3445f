"""A run against one gateway: which plays there are, and a verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.conformance.case import Case, Turn, read_cases
from toolwire.conformance.dialects.talks import TALKS
from toolwire.conformance.grid import grid
from toolwire.conformance.over_http import Router
from toolwire.conformance.player import Outcome, Transport, play

Verdict: TypeAlias = Literal["pass", "wrong", "unsupported", "not played"]
VERDICTS: tuple[Verdict, ...] = ("pass", "wrong", "unsupported", "not played")
PARTS = ("grid", "cases")


class Play(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One case in one mode, and how it went. `client` and `provider` are protocols, by their short names."""

    id: str
    title: str
    client: str
    provider: str
    stream: bool
    verdict: Verdict
    differences: tuple[str, ...] = ()
    why: str = ""
    """Of what is unsupported or was not played."""

    @property
    def part(self) -> str:
        return "grid" if self.id.startswith("grid:") else "cases"

    @property
    def kind(self) -> str:
        """Of a play of the grid: what is tried."""
        return self.id.split(":", 2)[2]

    @property
    def first(self) -> str:
        """The one line that says most."""
        return self.why or (self.differences[0] if self.differences else "")


def all_cases() -> list[Case]:
    return [*grid(), *read_cases()]


def chosen(cases: Iterable[Case], patterns: Sequence[str] = (), only: str = "") -> list[Case]:
    """Those of a part whose id, or the beginning of it, meets one of the patterns."""
    return [
        case
        for case in cases
        if only in ("", "grid" if case.number == 0 else "cases")
        and (not patterns or any(fnmatchcase(case.id, pattern + "*") for pattern in patterns))
    ]


def without_mode(id: str) -> str:
    return id.removesuffix(":whole").removesuffix(":stream")


def models(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Every provider's protocol with every model that is asked of it."""
    asked = {(turn.provider.protocol, _model(turn)) for case in cases for turn in case.turns}
    return sorted(pair for pair in asked if pair[1])


def _model(turn: Turn) -> str:
    return turn.client.model or str(turn.client.request.get("model", ""))


def run(
    cases: Sequence[Case],
    transport: Transport,
    router: Router,
    reaches: Callable[[str], bool],
) -> Iterator[Play]:
    """Play one after the other. `reaches` says by the id, without the mode, whether the gateway was configured for a
    case that needs it."""
    for case in cases:
        yield _judged(case, *_verdict(case, transport, router, reaches))


def _verdict(
    case: Case, transport: Transport, router: Router, reaches: Callable[[str], bool]
) -> tuple[Verdict, Outcome]:
    for turn in case.turns:
        route = router(turn.client.protocol, turn.provider.protocol, _model(turn))
        if isinstance(route, str):
            return "unsupported", Outcome(case.id, False, unsupported=route)
    fit = not case.configured or reaches(without_mode(case.id))
    outcome = play(case, transport, anyway=fit, same_mode=False, formal=False)
    if outcome.passed:
        return "pass", outcome
    if outcome.unsupported:
        return "unsupported", outcome
    return ("not played" if outcome.out_of_reach else "wrong"), outcome


def _judged(case: Case, verdict: Verdict, outcome: Outcome) -> Play:
    first = case.turns[0] if case.turns else None
    return Play(
        id=case.id,
        title=case.title,
        client=TALKS[first.client.protocol].short if first else "",
        provider=_providers(case),
        stream=bool(first and first.client.stream),
        verdict=verdict,
        differences=outcome.differences if verdict == "wrong" else (),
        why=outcome.out_of_reach or outcome.unsupported,
    )


def _providers(case: Case) -> str:
    """The provider's protocol; several where a session moves on the way."""
    return ", ".join(dict.fromkeys(TALKS[turn.provider.protocol].short for turn in case.turns))
