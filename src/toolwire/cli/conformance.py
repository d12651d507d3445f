"""`toolwire conformance URL`: what a gateway makes of tool calls. The table goes to standard output."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from toolwire import __version__
from toolwire.cli import Complaint, screen, verdicts
from toolwire.conformance import saved, suite
from toolwire.conformance.case import Case
from toolwire.conformance.compared import compared
from toolwire.conformance.dialects import DIALECTS
from toolwire.conformance.over_http import KEY, OverHttp, Router
from toolwire.conformance.page import page
from toolwire.conformance.saved import Gateway, Result
from toolwire.conformance.stage import Stage
from toolwire.conformance.suite import PARTS, Play
from toolwire.conformance.targets import TARGETS, NotInstalled, Route, Sources, Target
from toolwire.conformance.targets.starting import DoesNotStart, answers, started

REGRESSION = 1
PORT = 8643
TEMPLATE = "{protocol}-provider/{model}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", metavar="URL", help="a gateway that is pointed at the providers played here")
    parser.add_argument("--target", choices=TARGETS, help="start this gateway instead, with a configuration of its own")
    _about_gateway(parser)
    _about_plays(parser)
    _about_results(parser)


def _about_gateway(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the gateway").add_argument
    where = "look for its programs here before PATH; may be repeated"
    add("--from", dest="folders", action="append", type=Path, default=[], metavar="FOLDER", help=where)
    listen = f"where the providers listen (default: {PORT}; with --target a free one)"
    add("--provider-port", type=int, metavar="N", help=listen)
    add("--model-template", default=TEMPLATE, metavar="T", help=f"the models to ask for (default: {TEMPLATE})")
    add("--header", action="append", default=[], metavar="NAME:VALUE", help="send this, too; may be repeated")
    add("--key-env", metavar="VARIABLE", help="the variable that holds the key for the gateway")
    add("--wait", type=float, default=60.0, metavar="S", help="seconds for it to come up (default: 60)")
    add("--patience", type=float, default=10.0, metavar="S", help="seconds for one answer (default: 10)")
    add("--name", help="what it is called in the result")


def _about_plays(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is played").add_argument
    add("--case", action="append", default=[], metavar="PATTERN", help="only these, by id: 084, 'grid:chat>*'")
    add("--only", choices=PARTS, default="", help="the grid of all pairs, or the reported cases")
    add("--anyway", action="store_true", help="also cases that need a certain configuration")
    add("--list", action="store_true", help="list the plays, and play nothing")


def _about_results(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("results").add_argument
    add("--all", action="store_true", help="show what passed in the table, too")
    add("--json", type=Path, metavar="FILE", help="write the result")
    add("--page", type=Path, metavar="FILE", help="write the result as a page to look at")
    worse = "exit with 1 if something passed in this result and no longer does"
    add("--against", type=Path, metavar="FILE", help=worse)
    add("--compare", nargs="+", type=Path, default=[], metavar="FILE", help="show saved results side by side instead")
    add("--markdown", type=Path, metavar="FILE", help="with --compare: write the comparison here")


def run(chosen: argparse.Namespace) -> int:
    if chosen.compare:
        return _compare(chosen)
    if chosen.markdown:
        raise Complaint("--markdown has nothing to write", "--compare says which results to show")
    if bool(chosen.url) == bool(chosen.target) and not chosen.list:
        raise Complaint("give the URL of a gateway, or --target", f"--target starts one of {', '.join(TARGETS)}")
    cases = suite.chosen(suite.all_cases(), chosen.case, chosen.only)
    if not cases:
        raise Complaint("no play has such an id", "`toolwire conformance --list` shows all")
    if chosen.list:
        sys.stdout.write(screen.table([(case.id, case.title) for case in cases]))
        return 0
    before = _read(chosen.against) if chosen.against else None
    result = _result(chosen, cases)
    sys.stdout.write(verdicts.shown(result, everything=chosen.all))
    _write(chosen.json, saved.written(result))
    _write(chosen.page, page([result]).encode())
    return _against(before, result) if before is not None else 0


# --- playing --------------------------------------------------------------------------------------------------------


def _result(chosen: argparse.Namespace, cases: Sequence[Case]) -> Result:
    key = _key(chosen.key_env)
    with ExitStack() as stack:
        stage = _stage(chosen, cases)
        stack.callback(stage.close)
        if chosen.target:
            target = TARGETS[chosen.target]
            # What is installed beside this very program comes before PATH.
            folders = [*chosen.folders, Path(sys.executable).parent]
            sources = Sources(tuple(folder.absolute() for folder in folders))
            gateway, url = _started(target, stage, cases, sources, stack)
            router = _target_router(target, stage)
            reached = set(target.reaches)
        else:
            url, router, reached = chosen.url, _template_router(chosen), set[str]()
            gateway = Gateway(chosen.name or urlsplit(url).netloc, chosen.name or url)
            _await(url, chosen, stage, cases)
        transport = OverHttp(url, stage, router, patience=chosen.patience, key=key)
        plays = suite.run(cases, transport, router, lambda id: chosen.anyway or id in reached)
        played = tuple(saved.settled(play) for play in _watched(plays, len(cases)))
        if stage.strays:
            sys.stderr.write(
                f"note: {len(stage.strays)} calls came to the provider outside of any play and were refused\n"
            )
    return Result(gateway=gateway, suite=__version__, command=_command(chosen), plays=played)


def _key(variable: str | None) -> str:
    if variable and not os.environ.get(variable):
        raise Complaint(f"{variable} is not set", "it should hold the key that the gateway wants of its clients")
    return os.environ[variable] if variable else KEY


def _stage(chosen: argparse.Namespace, cases: Sequence[Case]) -> Stage:
    port = chosen.provider_port if chosen.provider_port is not None else 0 if chosen.target else PORT
    try:
        return Stage(port, sorted({model for _, model in suite.models(cases)}))
    except OSError as error:
        hint = "another program listens there: choose another port with --provider-port"
        raise Complaint(f"the providers cannot listen on port {port}: {error.strerror}", hint) from None


def _started(
    target: Target, stage: Stage, cases: Sequence[Case], sources: Sources, stack: ExitStack
) -> tuple[Gateway, str]:
    try:
        gateway = Gateway(target.name, target.title, target.version(sources))
        sys.stderr.write(f"starting {target.title} {gateway.version}\n")
        return gateway, stack.enter_context(started(target, stage.origin, suite.models(cases), sources))
    except NotInstalled as missing:
        hint = f"{target.install}; --from says where it is"
        raise Complaint(f"{target.title} is not installed: there is no program {missing}", hint) from None
    except DoesNotStart as silent:
        raise Complaint(
            f"{target.title} does not start; it wrote:\n{silent}", f"it was waited for at {target.ready}"
        ) from None


def _target_router(target: Target, stage: Stage) -> Router:
    return lambda client, provider, model: target.route(client, provider, model, stage.origin)


def _template_router(chosen: argparse.Namespace) -> Router:
    try:
        chosen.model_template.format(protocol="", model="")
    except (KeyError, ValueError, IndexError):
        raise Complaint(f"bad template: {chosen.model_template}", "it may hold {protocol} and {model}") from None
    pairs = [header.partition(":") for header in chosen.header]
    if any(not separator for _, separator, _ in pairs):
        raise Complaint("a header has no value", "--header 'x-name: value'")
    headers = {name.strip(): value.strip() for name, _, value in pairs}

    def route(_client: str, provider: str, model: str) -> Route:
        return Route(chosen.model_template.format(protocol=provider, model=model), headers)

    return route


def _await(url: str, chosen: argparse.Namespace, stage: Stage, cases: Sequence[Case]) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise Complaint(f"{url} is no URL of a gateway", "such as http://127.0.0.1:8642")
    for line in _instructions(chosen, stage, cases):
        sys.stderr.write(f"hint: {line}\n")
    sys.stderr.flush()
    if not answers(url, chosen.wait):
        raise Complaint(f"nothing answers at {url}", "start the gateway, and point it at the providers above")


def _instructions(chosen: argparse.Namespace, stage: Stage, cases: Sequence[Case]) -> Iterator[str]:
    asked = suite.models(cases)
    yield "the gateway must know these providers, with any key, and these models:"
    for protocol in dict.fromkeys(protocol for protocol, _ in asked):
        yield f"  {protocol} at {stage.origin}{DIALECTS[protocol].wire.base}"
        for _, model in (pair for pair in asked if pair[0] == protocol):
            yield f"    {chosen.model_template.format(protocol=protocol, model=model)} is {model}"


def _watched(plays: Iterator[Play], total: int) -> Iterator[Play]:
    """The plays as they come, with a word on how far it is."""
    progress = verdicts.Progress(sys.stderr, total)
    for play in plays:
        progress.tell(play)
        yield play
    progress.end()


# --- results --------------------------------------------------------------------------------------------------------


def _command(chosen: argparse.Namespace) -> str:
    """What repeats this run; where files went and programs were is not part of it."""
    words = ["toolwire", "conformance", *([chosen.url] if chosen.url else ["--target", chosen.target])]
    words += [word for pattern in chosen.case for word in ("--case", pattern)]
    words += ["--only", chosen.only] if chosen.only else []
    words += ["--anyway"] if chosen.anyway else []
    return shlex.join(words)


def _read(file: Path) -> Result:
    try:
        return saved.read(file)
    except OSError as error:
        raise Complaint(f"cannot read {file}: {error.strerror}", "--json writes such a file") from None
    except saved.Unreadable as bad:
        raise Complaint(f"{file} holds no result: {bad}", "--json writes such a file") from None


def _write(file: Path | None, data: bytes) -> None:
    if file is None:
        return
    try:
        file.write_bytes(data)
    except OSError as error:
        raise Complaint(f"cannot write {file}: {error.strerror}", "choose another place") from None


def _against(before: Result, result: Result) -> int:
    worse, better = saved.changes(before.plays, result.plays)
    out: TextIO = sys.stdout
    out.write(f"\nagainst {before.gateway.title} {before.gateway.version}".rstrip() + ":")
    out.write(f" {len(worse)} passed before and do not now, {len(better)} the other way round\n")
    rows = [("worse", play.id, f"{play.verdict}: {play.first}"[: screen.width()]) for play in worse]
    rows += [("better", play.id, "") for play in better]
    out.write(screen.table(rows, ["lost"] * len(worse) + ["ok"] * len(better)))
    return REGRESSION if worse else 0


def _compare(chosen: argparse.Namespace) -> int:
    results = [_read(file) for file in chosen.compare]
    text = compared(results)
    _write(chosen.markdown, text.encode())
    _write(chosen.page, page(results).encode())
    if chosen.markdown is None and chosen.page is None:
        sys.stdout.write(text)
    return 0
