"""`toolwire serve`: the gateway. The lines that point an SDK at it go to standard output, the log to standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from toolwire import __version__
from toolwire.cli import CommandError, terminal
from toolwire.protocols import CODECS

MISSING_PACKAGES = "the gateway's packages are not installed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration (default: found as the guide says)")
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port to listen on (default: 8642; 0 takes a free one)")
    parser.add_argument("--workers", type=int, help="processes that share the port (default: 1)")
    parser.add_argument(
        "--route",
        metavar="NAME=MODEL",
        action="append",
        default=[],
        help="ask MODEL (a name of the file, or `provider/model`) for NAME, over the file; may be given several times",
    )
    parser.add_argument(
        "--log",
        dest="log_format",
        choices=("json", "text", "none"),
        help="format of the log (default: json, or text on a terminal)",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warn", "error"),
        help="minimum log level; debug also logs the tools and the calls of every request, on both sides",
    )
    # For a program that started this one and holds the other end: this one shall not outlive it.
    parser.add_argument("--lifeline", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    try:
        from toolwire.gateway.server import serve
    except ImportError as error:
        if error.name is not None and error.name.startswith("toolwire"):
            raise
        raise CommandError(f"{MISSING_PACKAGES}: {error.name}", "pip install 'toolwire[gateway]'") from None
    from toolwire.gateway.config.problems import ConfigError

    given = {name: getattr(args, name) for name in ("host", "port", "workers", "log_format", "log_level")}
    wanted = {name: value for name, value in given.items() if value is not None}
    if "log_format" not in wanted and sys.stderr.isatty():
        wanted["log_format"] = "text"
    try:
        return serve.serve(args.config, wanted, print_banner, read_routes(args.route), args.lifeline)
    except ConfigError as problems:
        raise CommandError(*problems.message_and_hint) from None
    except OSError as error:
        hint = "another program listens there: stop it, or choose another port with --port"
        raise CommandError(f"cannot listen on {error.filename}: {error.strerror}", hint) from None


def read_routes(given: Sequence[str]) -> dict[str, str]:
    """`NAME=MODEL`, as often as wanted; names may hold an equals sign, models may not."""
    found: dict[str, str] = {}
    for text in given:
        name, _, model = text.rpartition("=")
        if not name or not model:
            raise CommandError(f"--route: `{text}` is no route", "write NAME=MODEL, such as --route fast=groq/MODEL")
        found[name] = model
    return found


def print_banner(origin: str, models: tuple[str, ...], providers: Mapping[str, str]) -> None:
    """Where it is, how SDKs find it, and what it serves."""
    names = ", ".join(providers) or "the embedded model only: set OPENAI_API_KEY or the like for a real one"
    head = terminal.paint_text(f"Toolwire {__version__}", "head", sys.stderr)
    sys.stderr.write(f"{head} on {origin}; providers: {names}\n")
    if models:
        shown = ", ".join(models[:8]) + (f" and {len(models) - 8} more" if len(models) > 8 else "")
        sys.stderr.write(f"models by name: {shown}; `provider/model` works too\n")
    sys.stderr.flush()
    for room in CODECS.values():
        if room.http.sdk_base_url is not None:
            vendor, variable, path = room.http.sdk_base_url
            line = f"export {variable}={origin}{path}"
            sys.stdout.write(f"{line:56}  # {vendor} SDK\n")
    sys.stdout.flush()
