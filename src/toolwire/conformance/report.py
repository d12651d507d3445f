"""Results in numbers and marks: the grid as a square of pairs, and a mark for each reported case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from toolwire.conformance.dialects.talks import TALKS
from toolwire.conformance.suite import VERDICTS, Play, Verdict

SHORTS = tuple(talk.short for talk in TALKS.values())
NONE, UNPLAYED = "–", "·"


def counted(plays: Iterable[Play]) -> dict[Verdict, int]:
    listed = [play.verdict for play in plays]
    return {verdict: listed.count(verdict) for verdict in VERDICTS}


def of_part(plays: Iterable[Play], part: str) -> list[Play]:
    return [play for play in plays if play.part == part]


def pairs(plays: Sequence[Play]) -> dict[tuple[str, str], list[Play]]:
    """The plays of the grid by client and provider."""
    return {
        (client, provider): [play for play in plays if (play.client, play.provider) == (client, provider)]
        for client in SHORTS
        for provider in SHORTS
    }


def share(plays: Sequence[Play]) -> str:
    """How many of them passed; a dash where the gateway has no such thing at all."""
    played = [play for play in plays if play.verdict != "not played"]
    if not played:
        return UNPLAYED
    if all(play.verdict == "unsupported" for play in played):
        return NONE
    return f"{sum(play.verdict == 'pass' for play in played)}/{len(played)}"


def mark(plays: Sequence[Play]) -> str:
    """The same for one case: all of it, none of it, or how much."""
    said = share(plays)
    passed, slash, played = said.partition("/")
    if not slash:
        return said
    return {played: "✓", "0": "✗"}.get(passed, said)


def square(plays: Sequence[Play]) -> list[list[str]]:
    """The grid: clients in rows, providers in columns."""
    found = pairs(of_part(plays, "grid"))
    head = ["client \\ provider", *SHORTS]
    return [head, *([client, *(share(found[client, provider]) for provider in SHORTS)] for client in SHORTS)]


def by_case(plays: Sequence[Play]) -> dict[str, list[Play]]:
    """The plays of reported cases by number."""
    cases = of_part(plays, "cases")
    return {number: list(group) for number, group in groupby(cases, lambda play: play.id[:3])}
