"""`toolwire conformance URL`: play the conformance suite through a gateway, and report the results."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from toolwire import __version__, terminal
from toolwire.terminal import CommandError
from toolwire.terminal.text import shorten_text
from toolwire_conformance import player, reports
from toolwire_conformance.case import BadCase, Case, load_all_cases, read_recorded_cases
from toolwire_conformance.peers import PEERS
from toolwire_conformance.player import PARTS, PlayResult, Verdict
from toolwire_conformance.targets import (
    TARGETS,
    GatewayNotStarted,
    NotInstalled,
    ProgramFolders,
    Route,
    Router,
    Target,
    start_target,
    wait_for_answer,
)
from toolwire_conformance.transports import CLIENT_KEY, HttpTransport, ProviderServer

EXIT_REGRESSION = 1
DEFAULT_PROVIDER_PORT = 8643
DEFAULT_MODEL_TEMPLATE = "{protocol}-provider/{model}"
VERDICT_COLOURS: dict[Verdict, str] = {"pass": "ok", "wrong": "lost", "unsupported": "changed", "not played": "dim"}
PART_TITLES = {"grid": "Grid", "cases": "Reported cases"}
MIN_LINE_WIDTH = 60
PROGRESS_STEP = 100
"""Plays between two progress lines if standard error is not a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", metavar="URL", help="a gateway that uses the test providers of this command")
    parser.add_argument("--target", choices=TARGETS, help="start this gateway instead, with a suitable configuration")
    add = parser.add_argument_group("gateway").add_argument
    folder = "look for the gateway's program here before PATH; may be repeated"
    add("--from", dest="folders", action="append", type=Path, default=[], metavar="FOLDER", help=folder)
    port = f"port of the test providers (default: {DEFAULT_PROVIDER_PORT}; with --target: any free port)"
    add("--provider-port", type=int, metavar="N", help=port)
    template = f"model names to request (default: {DEFAULT_MODEL_TEMPLATE})"
    add("--model-template", default=DEFAULT_MODEL_TEMPLATE, metavar="T", help=template)
    add("--header", action="append", default=[], metavar="NAME:VALUE", help="also send this header; may be repeated")
    add("--key-env", metavar="VARIABLE", help="environment variable with the key for the gateway")
    add("--wait", type=float, default=60.0, metavar="S", help="seconds to wait for the gateway to start (default: 60)")
    add("--patience", type=float, default=10.0, metavar="S", help="seconds to wait for each answer (default: 10)")
    add("--name", help="the gateway's name in the result")
    add = parser.add_argument_group("cases").add_argument
    pattern = "play only cases whose id begins with this: 084, 'grid:chat>*'; may be repeated"
    add("--case", dest="patterns", action="append", default=[], metavar="PATTERN", help=pattern)
    recorded = "play the recorded exchanges of this folder instead of the cases of the suite"
    add("--recorded", type=Path, metavar="FOLDER", help=recorded)
    only = "play only the grid of all protocol pairs, or only reported cases"
    add("--only", dest="part", choices=PARTS, default="", help=only)
    others = ", ".join(peer.short_name for peer in PEERS.values() if not peer.is_compared)
    all_protocols = f"also play the grid in protocols that gateways are not compared in: {others}"
    add("--all-protocols", action="store_true", help=all_protocols)
    anyway = "also play cases that need a special configuration of the gateway"
    add("--anyway", dest="include_configured", action="store_true", help=anyway)
    add("--list", action="store_true", help="list the cases, and play none")
    add = parser.add_argument_group("results").add_argument
    add("--all", action="store_true", help="also show cases that passed")
    add("--json", type=Path, metavar="FILE", help="write the result as JSON")
    add("--page", type=Path, metavar="FILE", help="write the result as an HTML page")
    against = "compare with a saved result; exit with 1 if a case passed there and does not now"
    add("--against", type=Path, metavar="FILE", help=against)
    compare = "show saved results side by side, and play nothing"
    add("--compare", nargs="+", type=Path, default=[], metavar="FILE", help=compare)
    add("--markdown", type=Path, metavar="FILE", help="with --compare: write the comparison to this file")


def run(args: argparse.Namespace) -> int:
    if args.compare:
        return _compare_results(args)
    if args.markdown:
        raise CommandError("--markdown needs --compare", "name the saved results to compare with --compare")
    if bool(args.url) == bool(args.target) and not args.list:
        hint = f"--target starts one of: {', '.join(TARGETS)}"
        raise CommandError("give either the URL of a gateway or --target", hint)
    try:
        suite = load_all_cases([*PEERS.values()]) if args.all_protocols else load_all_cases()
        known = read_recorded_cases(args.recorded) if args.recorded else suite
    except BadCase as error:
        raise CommandError(str(error), "record it again (toolwire.http_client(record=…))") from None
    cases = player.select_cases(known, args.patterns, args.part)
    if not cases:
        raise CommandError("no case has such an id", "`toolwire conformance --list` lists all cases")
    if args.list:
        sys.stdout.write(terminal.format_table([(case.id, case.title) for case in cases]))
        return 0
    before = _read_result_file(args.against) if args.against else None
    result = _run_suite(args, cases)
    sys.stdout.write(format_result(result, everything=args.all))
    _write_file(args.json, reports.write_result(result))
    _write_file(args.page, reports.write_results_page([result]).encode())
    return _print_changes(before, result) if before is not None else 0


# --- playing --------------------------------------------------------------------------------------------------------


def _run_suite(args: argparse.Namespace, cases: Sequence[Case]) -> reports.RunResult:
    if args.key_env and not os.environ.get(args.key_env):
        raise CommandError(f"{args.key_env} is not set", "set it to a client key of the gateway")
    key = os.environ[args.key_env] if args.key_env else CLIENT_KEY
    with ExitStack() as stack:
        providers = _start_provider(args, cases)
        stack.callback(providers.close)
        if args.target:
            target = TARGETS[args.target]
            # Programs in the same environment as this one come before PATH.
            folders = [*args.folders, Path(sys.executable).parent]
            sources = ProgramFolders(tuple(folder.absolute() for folder in folders))
            gateway, url = _start_target(target, providers, cases, sources, stack)
            router = _make_target_router(target, providers)
            configured = set(target.configured_cases)
        else:
            url, router, configured = args.url, _make_template_router(args), set[str]()
            gateway = reports.GatewayInfo(args.name or urlsplit(url).netloc, args.name or url)
            _wait_for_gateway(url, args, providers, cases)
        transport = HttpTransport(url, providers, router, timeout=args.patience, key=key)
        plays = player.run_cases(cases, transport, router, lambda id: args.include_configured or id in configured)
        played = tuple(reports.normalise_play(play) for play in _show_progress(plays, len(cases)))
        if refused := len(providers.unexpected_calls):
            sys.stderr.write(f"note: the providers refused {refused} calls that belong to no case\n")
    return reports.RunResult(gateway=gateway, suite=__version__, command=_repeat_command(args), plays=played)


def _start_provider(args: argparse.Namespace, cases: Sequence[Case]) -> ProviderServer:
    port = args.provider_port if args.provider_port is not None else 0 if args.target else DEFAULT_PROVIDER_PORT
    try:
        return ProviderServer(port, sorted({model for _, model in player.asked_models(cases)}))
    except OSError as error:
        hint = "stop the program that uses this port, or choose another port with --provider-port"
        raise CommandError(f"the test providers cannot listen on port {port}: {error.strerror}", hint) from None


def _start_target(
    target: Target, providers: ProviderServer, cases: Sequence[Case], sources: ProgramFolders, stack: ExitStack
) -> tuple[reports.GatewayInfo, str]:
    try:
        gateway = reports.GatewayInfo(target.name, target.title, target.read_version(sources))
        sys.stderr.write(f"starting {target.title} {gateway.version}\n")
        return gateway, stack.enter_context(start_target(target, providers.origin, player.asked_models(cases), sources))
    except NotInstalled as missing:
        hint = f"{target.install_hint}; --from names the folder of its program"
        raise CommandError(f"{target.title} is not installed: program {missing} not found", hint) from None
    except GatewayNotStarted as error:
        problem = f"{target.title} did not start; the end of its log:\n{error}"
        raise CommandError(problem, f"it did not answer at {target.ready_path}") from None


def _make_target_router(target: Target, providers: ProviderServer) -> Router:
    return lambda client, provider, model: target.find_route(client, provider, model, providers.origin)


def _make_template_router(args: argparse.Namespace) -> Router:
    try:
        args.model_template.format(protocol="", model="")
    except (KeyError, ValueError, IndexError):
        problem = f"--model-template: invalid template `{args.model_template}`"
        raise CommandError(problem, "it may contain {protocol} and {model}") from None
    pairs = [header.partition(":") for header in args.header]
    if any(not separator for _, separator, _ in pairs):
        raise CommandError("--header: a header has no value", "write --header 'x-name: value'")
    headers = {name.strip(): value.strip() for name, _, value in pairs}

    def route(_client: str, provider: str, model: str) -> Route:
        return Route(args.model_template.format(protocol=provider, model=model), headers)

    return route


def _wait_for_gateway(url: str, args: argparse.Namespace, providers: ProviderServer, cases: Sequence[Case]) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise CommandError(f"{url} is not the URL of a gateway", "write a URL such as http://127.0.0.1:8642")
    asked = player.asked_models(cases)
    lines = ["configure the gateway with these providers, any key, and these models:"]
    for protocol in dict.fromkeys(protocol for protocol, _ in asked):
        lines.append(f"  {protocol} at {providers.origin}{PEERS[protocol].http.base_path}")
        for model in (model for other, model in asked if other == protocol):
            lines.append(f"    {args.model_template.format(protocol=protocol, model=model)} is {model}")
    sys.stderr.writelines(f"hint: {line}\n" for line in lines)
    sys.stderr.flush()
    if not wait_for_answer(url, args.wait):
        raise CommandError(f"no answer from {url}", "start the gateway, configured with the providers above")


def _show_progress(plays: Iterator[PlayResult], total: int) -> Iterator[PlayResult]:
    """Pass the plays on; show one line that is updated on a terminal, or a line every now and then."""
    stream, is_terminal = sys.stderr, sys.stderr.isatty()
    clear = "\r\x1b[K" if is_terminal else ""
    done: list[PlayResult] = []
    status = f"[0/{total}] "
    for play in plays:
        done.append(play)
        counts = [f"{count} {verdict}" for verdict, count in reports.count_verdicts(done).items() if count]
        status = f"[{len(done)}/{total}] {', '.join(counts)}"
        if is_terminal:
            stream.write(clear + f"{status}  {play.id}"[: terminal.terminal_width() - 1])
        elif len(done) % PROGRESS_STEP == 0:
            stream.write(f"{status}\n")
        stream.flush()
        yield play
    stream.write(f"{clear}{status}\n")


# --- results --------------------------------------------------------------------------------------------------------


def _repeat_command(args: argparse.Namespace) -> str:
    """The command that repeats this run, without options for files and programs."""
    words = ["toolwire", "conformance", *([args.url] if args.url else ["--target", args.target])]
    words += [word for pattern in args.patterns for word in ("--case", pattern)]
    words += ["--only", args.part] if args.part else []
    words += ["--anyway"] if args.include_configured else []
    return shlex.join(words)


def _read_result_file(file: Path) -> reports.RunResult:
    try:
        return reports.read_result(file)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}", "use a file that --json wrote") from None
    except reports.UnreadableResult as bad:
        raise CommandError(f"{file} is not a saved result: {bad}", "use a file that --json wrote") from None


def _write_file(file: Path | None, data: bytes) -> None:
    if file is None:
        return
    try:
        file.write_bytes(data)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}", "check the path") from None


def _print_changes(before: reports.RunResult, result: reports.RunResult) -> int:
    worse, better = reports.compare_plays(before.plays, result.plays)
    out, width = sys.stdout, terminal.terminal_width()
    out.write(f"\nagainst {before.gateway.title} {before.gateway.version}".rstrip() + ":")
    out.write(f" {len(worse)} passed before and do not now, {len(better)} pass now and did not before\n")
    rows = [("worse", play.id, f"{play.verdict}: {play.main_difference}"[:width]) for play in worse]
    rows += [("better", play.id, "") for play in better]
    out.write(terminal.format_table(rows, ["lost"] * len(worse) + ["ok"] * len(better)))
    return EXIT_REGRESSION if worse else 0


def _compare_results(args: argparse.Namespace) -> int:
    results = [_read_result_file(file) for file in args.compare]
    text = reports.write_comparison_page(results)
    _write_file(args.markdown, text.encode())
    _write_file(args.page, reports.write_results_page(results).encode())
    if args.markdown is None and args.page is None:
        sys.stdout.write(text)
    return 0


def format_result(result: reports.RunResult, *, everything: bool) -> str:
    head = terminal.paint_text(f"{result.gateway.title} {result.gateway.version}".rstrip(), "head")
    out = [f"{head}\n"]
    for part in PARTS:
        if plays := reports.plays_of_part(result.plays, part):
            counts = [
                terminal.paint_text(f"{count} {verdict}", VERDICT_COLOURS[verdict])
                for verdict, count in reports.count_verdicts(plays).items()
            ]
            title = terminal.paint_text(PART_TITLES[part], "head")
            out += [f"\n{title}: {', '.join(counts)}\n", *([_format_grid(plays)] if part == "grid" else [])]
            rows = _format_plays([play for play in plays if everything or play.verdict != "pass"])
            out.append(f"\n{rows}" if rows else "")
    return "".join(out)


def _format_grid(plays: Sequence[PlayResult]) -> str:
    """Clients in rows, providers in columns; green if all passed."""
    head, *rows = reports.grid_rows(plays)
    found = reports.plays_by_pair(plays)
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(head, widths, strict=True)).rstrip()]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        for provider, cell, size in zip(head[1:], row[1:], widths[1:], strict=True):
            cells.append(terminal.paint_text(cell.ljust(size), _pair_colour(found[row[0], provider])))
        lines.append("  ".join(cells).rstrip())
    return "\n" + "".join(f"  {line}\n" for line in lines)


def _pair_colour(plays: Sequence[PlayResult]) -> str:
    found = reports.count_verdicts(plays)
    if found["wrong"]:
        return "lost"
    return "changed" if found["unsupported"] else "ok" if found["pass"] else "dim"


def _format_plays(plays: Sequence[PlayResult]) -> str:
    """Verdict, id, protocols, mode, and the start of the first difference."""
    rows = []
    for play in plays:
        protocols = f"{play.client} → {play.provider}" if play.client else ""
        mode = "stream" if play.stream else "whole" if play.client else ""
        rows.append((play.verdict, play.id, protocols, mode))
    taken = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    width = max(MIN_LINE_WIDTH, terminal.terminal_width() - sum(taken) - 2 * len(taken))
    texts = (shorten_text(" ".join(play.main_difference.split()), width) for play in plays)
    lines = [(*row, text) for row, text in zip(rows, texts, strict=True)]
    return terminal.format_table(lines, [VERDICT_COLOURS[play.verdict] for play in plays])
