"""`toolwire serve`: the gateway. The lines that point an SDK at it go to standard output, the log to standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from toolwire import __version__
from toolwire.cli import Complaint, screen
from toolwire.protocols import ROOMS

MISSING = "the gateway's packages are not installed"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration (default: found as the guide says)")
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port to listen on (default: 8642; 0 takes a free one)")
    parser.add_argument("--workers", type=int, help="processes that share the port (default: 1)")
    parser.add_argument("--log", choices=("json", "text", "none"), help="the log line of an exchange")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warn", "error"),
        help="the least that is worth a line; debug tells which tools came and went, and every call on both sides",
    )


def run(chosen: argparse.Namespace) -> int:
    try:
        from toolwire.gateway import serve
    except ImportError as error:
        if error.name is not None and error.name.startswith("toolwire"):
            raise
        raise Complaint(f"{MISSING}: {error.name}", "pip install 'toolwire[gateway]'") from None
    from toolwire.gateway.settings.problems import Problems, said

    given = {name: getattr(chosen, name) for name in ("host", "port", "workers", "log", "log_level")}
    wanted = {name: value for name, value in given.items() if value is not None}
    if "log" not in wanted and sys.stderr.isatty():
        wanted["log"] = "text"
    try:
        return serve.serve(chosen.config, wanted, announced)
    except Problems as problems:
        lines = [said(problem, problems.file) for problem in problems.found]
        hints = [problem.hint for problem in problems.found if problem.hint]
        raise Complaint("\n       ".join(lines), hints[0] if hints else "`toolwire check-config` says more") from None
    except OSError as error:
        hint = "another program listens there: stop it, or choose another port with --port"
        raise Complaint(f"cannot listen on {error.filename}: {error.strerror}", hint) from None


def announced(origin: str, models: tuple[str, ...], providers: Mapping[str, str]) -> None:
    """Where it is, how SDKs find it, and what it serves."""
    names = ", ".join(providers) or "the embedded model only: set OPENAI_API_KEY or the like for a real one"
    head = screen.paint(f"Toolwire {__version__}", "head", sys.stderr)
    sys.stderr.write(f"{head} on {origin}; providers: {names}\n")
    if models:
        shown = ", ".join(models[:8]) + (f" and {len(models) - 8} more" if len(models) > 8 else "")
        sys.stderr.write(f"models by name: {shown}; `provider/model` works too\n")
    sys.stderr.flush()
    for room in ROOMS.values():
        if room.http.sdk is not None:
            vendor, variable, path = room.http.sdk
            line = f"export {variable}={origin}{path}"
            sys.stdout.write(f"{line:56}  # {vendor} SDK\n")
    sys.stdout.flush()
