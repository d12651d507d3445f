"""`toolwire serve`: run the gateway. Prints the variables that point SDKs at it; the log goes to standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from toolwire import __version__
from toolwire.cli import CommandError, terminal
from toolwire.protocols import CODECS

SHOWN_MODELS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", metavar="FILE", help="configuration file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    add("--host", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, help="port to listen on (default: 8642; 0: any free port)")
    add("--workers", type=int, help="number of processes that share the port (default: 1)")
    route = "answer requests for NAME with MODEL (a configured name, or `provider/model`); overrides the file; "
    add("--route", metavar="NAME=MODEL", action="append", default=[], help=f"{route}may be repeated")
    log = "format of the log (default: auto, which is text on a terminal and json elsewhere)"
    add("--log-format", "--log", dest="log_format", choices=("auto", "json", "text", "none"), help=log)
    level = "minimum log level; debug also logs the tools and the calls of every request, on both sides"
    add("--log-level", choices=("debug", "info", "warn", "error"), help=level)
    # For a parent process that holds the other end of this pipe: the gateway stops when the pipe closes.
    add("--lifeline", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from toolwire.gateway.config.problems import ConfigError
    from toolwire.gateway.server import serve

    given = {name: getattr(args, name) for name in ("host", "port", "workers", "log_format", "log_level")}
    settings = {name: value for name, value in given.items() if value is not None}
    try:
        return serve.serve(args.config, settings, print_banner, read_routes(args.route), args.lifeline)
    except ConfigError as problems:
        raise CommandError(*problems.message_and_hint) from None
    except OSError as error:
        hint = "stop the program that uses this port, or choose another port with --port"
        raise CommandError(f"cannot listen on {error.filename}: {error.strerror}", hint) from None


def read_routes(texts: Sequence[str]) -> dict[str, str]:
    """The routes by name. A name may contain `=`, a model may not."""
    routes: dict[str, str] = {}
    for text in texts:
        name, _, model = text.rpartition("=")
        if not name or not model:
            raise CommandError(f"--route: invalid route `{text}`", "write NAME=MODEL, such as --route fast=groq/MODEL")
        routes[name] = model
    return routes


def print_banner(origin: str, models: tuple[str, ...], providers: Mapping[str, str]) -> None:
    """Print where the gateway is, what it serves, and the variables for SDKs."""
    names = ", ".join(providers) or "only the embedded model; set OPENAI_API_KEY or another key for a real one"
    title = terminal.paint_text(f"Toolwire {__version__}", "head", sys.stderr)
    sys.stderr.write(f"{title} on {origin}; providers: {names}\n")
    if models:
        more = f" and {len(models) - SHOWN_MODELS} more" if len(models) > SHOWN_MODELS else ""
        sys.stderr.write(f"models: {', '.join(models[:SHOWN_MODELS])}{more}; `provider/model` works too\n")
    sys.stderr.flush()
    for codec in CODECS.values():
        if codec.http.sdk_base_url is not None:
            vendor, variable, path = codec.http.sdk_base_url
            line = f"export {variable}={origin}{path}"
            sys.stdout.write(f"{line:56}  # {vendor} SDK\n")
    sys.stdout.flush()
