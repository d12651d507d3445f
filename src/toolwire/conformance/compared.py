"""Several gateways side by side, as a page of the documentation. Its words stand in `compared.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template

from toolwire.conformance.report import by_case, counted, mark, of_part, share, square
from toolwire.conformance.saved import Result
from toolwire.conformance.suite import PARTS, VERDICTS, Play
from toolwire.conformance.targets import TARGETS

COLUMNS = [("grid", verdict) for verdict in VERDICTS[:3]] + [("cases", verdict) for verdict in VERDICTS]
"""All of the grid is played."""
ORDER = list(TARGETS)


def compared(results: Sequence[Result]) -> str:
    """The page, with the gateways that are known here in their usual order, and others behind them."""
    results = sorted(results, key=lambda one: [*ORDER, one.gateway.name].index(one.gateway.name))
    template = Template((files("toolwire.conformance") / "compared.md").read_text("utf-8"))
    return template.substitute(
        plays=max(len(result.plays) for result in results),
        summary=_summary(results),
        squares="\n".join(_square(result) for result in results),
        kinds=_kinds(results),
        cases=_cases(results),
        commands="\n".join(_command(result) for result in results),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """The first columns hold words, the others marks and numbers."""
    ruler = ["---" if column < words else ":-:" for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ruler, *rows))


def _summary(results: Sequence[Result]) -> str:
    head = ["gateway", "version", *(f"{part}: {verdict}" for part, verdict in COLUMNS)]
    rows = []
    for result in results:
        found = {part: counted(of_part(result.plays, part)) for part in PARTS}
        numbers = [str(found[part][verdict]) for part, verdict in COLUMNS]
        rows.append([result.gateway.title, result.gateway.version, *numbers])
    return _table(head, rows, 2)


def _square(result: Result) -> str:
    head, *rows = square(result.plays)
    return f"### {result.gateway.title} {result.gateway.version}\n\n{_table(head, rows)}"


def _kinds(results: Sequence[Result]) -> str:
    found = [of_part(result.plays, "grid") for result in results]
    kinds = dict.fromkeys(play.kind for plays in found for play in plays)
    rows = [[f"`{kind}`", *(share([play for play in plays if play.kind == kind]) for plays in found)] for kind in kinds]
    return _table(["", *_titles(results)], rows)


def _cases(results: Sequence[Result]) -> str:
    found = [by_case(result.plays) for result in results]
    rows = [
        [number, title, *(mark(cases.get(number, [])) for cases in found)] for number, title in _about(found).items()
    ]
    return _table(["case", "", *_titles(results)], rows, 2)


def _titles(results: Sequence[Result]) -> list[str]:
    return [result.gateway.title for result in results]


def _about(found: Sequence[Mapping[str, Sequence[Play]]]) -> dict[str, str]:
    """The titles of all cases, by number."""
    titles = {number: plays[0].title.replace("|", "\\|") for cases in found for number, plays in cases.items()}
    return dict(sorted(titles.items()))


def _command(result: Result) -> str:
    return f"{result.command}  # {result.gateway.title} {result.gateway.version}"
