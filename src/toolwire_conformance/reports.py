"""Results of runs: saved as JSON without values that change from run to run, compared, and shown as pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import groupby, product
from pathlib import Path
from string import Template

import msgspec
from msgspec import Struct, structs

from toolwire_conformance.peers import PEERS
from toolwire_conformance.player import PARTS, VERDICTS, PlayResult, Verdict
from toolwire_conformance.targets import TARGETS

FORMAT_VERSION = 1
RUN_SPECIFIC_PATTERNS = (
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"(?<![\d.])1[789]\d{8}(?:\.\d+)?(?![\d.])"), "NOW"),
    (
        re.compile(r"\b((?:call|toolu|fc|msg|resp|rs|chatcmpl|gen|req)[_-])(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{16,}\b"),
        r"\1MADE",
    ),
)
"""Values that a gateway makes up in each run, and what to write instead."""


class GatewayInfo(Struct, frozen=True):
    name: str
    title: str
    version: str = ""


class RunResult(Struct, frozen=True, kw_only=True):
    """The results of all plays on one gateway, and the command that repeats them."""

    form: int = FORMAT_VERSION
    gateway: GatewayInfo
    suite: str
    """The version of Toolwire that ran the suite."""
    command: str
    plays: tuple[PlayResult, ...]


class UnreadableResult(Exception):
    """A file that is not a saved result."""


def normalise_play(play: PlayResult) -> PlayResult:
    """The result without values that change from run to run."""
    return structs.replace(
        play, differences=tuple(map(_normalise_line, play.differences)), why=_normalise_line(play.why)
    )


def _normalise_line(line: str) -> str:
    for pattern, instead in RUN_SPECIFIC_PATTERNS:
        line = pattern.sub(instead, line)
    return line


def write_result(result: RunResult) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def read_result(file: Path) -> RunResult:
    """Raises UnreadableResult or OSError."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableResult(str(error)) from None


def compare_plays(before: Sequence[PlayResult], now: Sequence[PlayResult]) -> tuple[list[PlayResult], list[PlayResult]]:
    """The plays that passed before and do not now, and the reverse; plays missing in one of the runs are ignored."""
    then = {play.id: play.verdict for play in before}
    worse = [play for play in now if then.get(play.id) == "pass" and play.verdict != "pass"]
    better = [play for play in now if then.get(play.id, "pass") != "pass" and play.verdict == "pass"]
    return worse, better


NO_SUPPORT_MARK, NOT_PLAYED_MARK = "–", "·"


def count_verdicts(plays: Iterable[PlayResult]) -> dict[Verdict, int]:
    listed = [play.verdict for play in plays]
    return {verdict: listed.count(verdict) for verdict in VERDICTS}


def plays_of_part(plays: Iterable[PlayResult], part: str) -> list[PlayResult]:
    return [play for play in plays if play.part == part]


def list_protocols(plays: Iterable[PlayResult]) -> tuple[str, ...]:
    """The short names of the protocols that gateways are compared in, and of others that were played."""
    played = {name for play in plays for name in (play.client, play.provider)}
    return tuple(peer.short_name for peer in PEERS.values() if peer.is_compared or peer.short_name in played)


def plays_by_pair(plays: Sequence[PlayResult]) -> dict[tuple[str, str], list[PlayResult]]:
    """The results of the grid by client and provider."""
    return {
        (client, provider): [play for play in plays if (play.client, play.provider) == (client, provider)]
        for client, provider in product(list_protocols(plays), repeat=2)
    }


def pass_share(plays: Sequence[PlayResult]) -> str:
    """How many passed; a dash if the gateway supports none of them."""
    played = [play for play in plays if play.verdict != "not played"]
    if not played:
        return NOT_PLAYED_MARK
    if all(play.verdict == "unsupported" for play in played):
        return NO_SUPPORT_MARK
    return f"{sum(play.verdict == 'pass' for play in played)}/{len(played)}"


def case_mark(plays: Sequence[PlayResult]) -> str:
    """The same for one case, with marks for all and none."""
    share = pass_share(plays)
    passed, slash, played = share.partition("/")
    return {played: "✓", "0": "✗"}.get(passed, share) if slash else share


def grid_rows(plays: Sequence[PlayResult]) -> list[list[str]]:
    """The grid: clients in rows, providers in columns."""
    grid = plays_of_part(plays, "grid")
    found, names = plays_by_pair(grid), list_protocols(grid)
    rows = [[ours, *(pass_share(found[ours, theirs]) for theirs in names)] for ours in names]
    return [["client \\ provider", *names], *rows]


def plays_by_case(plays: Sequence[PlayResult]) -> dict[str, list[PlayResult]]:
    """The results of the reported cases by number."""
    cases = plays_of_part(plays, "cases")
    return {number: list(group) for number, group in groupby(cases, lambda play: play.id[:3])}


SUMMARY_COLUMNS = [("grid", verdict) for verdict in VERDICTS[:3]] + [("cases", verdict) for verdict in VERDICTS]
"""No case of the grid has the verdict `not played`."""


def write_comparison_page(results: Sequence[RunResult]) -> str:
    """A Markdown page that compares gateways: first the known ones in their order, then the others."""
    results = sorted(results, key=lambda result: [*TARGETS, result.gateway.name].index(result.gateway.name))
    template = Template((files("toolwire_conformance") / "compared.md").read_text("utf-8"))
    return template.substitute(
        plays=max(len(result.plays) for result in results),
        summary=_summary_table(results),
        squares="\n".join(_grid_table(result) for result in results),
        kinds=_kind_table(results),
        cases=_case_table(results),
        started=_start_table(results),
        commands="\n".join(f"{run.command}  # {run.gateway.title} {run.gateway.version}" for run in results),
    )


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """The first columns hold words, the others marks and numbers."""
    ruler = ["---" if column < text_columns else ":-:" for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ruler, *rows))


def _summary_table(results: Sequence[RunResult]) -> str:
    head = ["gateway", "version", *(f"{part}: {verdict}" for part, verdict in SUMMARY_COLUMNS)]
    rows = []
    for result in results:
        found = {part: count_verdicts(plays_of_part(result.plays, part)) for part in PARTS}
        numbers = [str(found[part][verdict]) for part, verdict in SUMMARY_COLUMNS]
        rows.append([result.gateway.title, result.gateway.version, *numbers])
    return _markdown_table(head, rows, 2)


def _grid_table(result: RunResult) -> str:
    head, *rows = grid_rows(result.plays)
    return f"### {result.gateway.title} {result.gateway.version}\n\n{_markdown_table(head, rows)}"


def _kind_table(results: Sequence[RunResult]) -> str:
    found = [plays_of_part(result.plays, "grid") for result in results]
    kinds = dict.fromkeys(play.kind for plays in found for play in plays)
    rows = [
        [f"`{kind}`", *(pass_share([play for play in plays if play.kind == kind]) for plays in found)] for kind in kinds
    ]
    return _markdown_table(["", *(result.gateway.title for result in results)], rows)


def _case_table(results: Sequence[RunResult]) -> str:
    found = [plays_by_case(result.plays) for result in results]
    titles = {number: plays[0].title.replace("|", "\\|") for cases in found for number, plays in cases.items()}
    rows = [
        [number, title, *(case_mark(cases.get(number, [])) for cases in found)]
        for number, title in sorted(titles.items())
    ]
    return _markdown_table(["case", "", *(result.gateway.title for result in results)], rows, 2)


def _start_table(results: Sequence[RunResult]) -> str:
    known = [(result.gateway, TARGETS[result.gateway.name]) for result in results if result.gateway.name in TARGETS]
    rows = [[gateway.title, gateway.version, target.installed, f"`{target.started}`"] for gateway, target in known]
    return _markdown_table(["gateway", "version", "installed from", "started as"], rows, 4)


# --- as an HTML page, which loads nothing else ----------------------------------------------------------------------


RESULTS_PLACEHOLDER = "/*RESULTS*/null"


def write_results_page(results: Sequence[RunResult]) -> str:
    template = (files("toolwire_conformance") / "page.html").read_text("utf-8")
    names = list_protocols(play for result in results for play in plays_of_part(result.plays, "grid"))
    data = msgspec.json.encode({"protocols": names, "results": results}).decode()
    return template.replace(RESULTS_PLACEHOLDER, data.replace("</", "<\\/"), 1)
