"""`toolwire translate`: a body or a stream from one protocol to another.

Exit codes: 0 done; 1 the provider's answer or stream is a failure; 2 bad input; 3 something was lost under --strict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from toolwire.cli import Complaint, files, screen, show
from toolwire.exchange import Exchange, Translation
from toolwire.loss import Loss
from toolwire.options import Options
from toolwire.protocols import ROOMS, UnknownProtocol, room
from toolwire.room import Room
from toolwire.wire import Malformed, encode

FAILED, LOST = 1, 3


def arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(ROOMS)
    parser.add_argument("kind", choices=("request", "response", "stream", "error"), help="what is translated")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the input (default: standard input)")
    parser.add_argument("--from", dest="source", required=True, metavar="P", help=f"the protocol it is in: {names}")
    parser.add_argument("--to", dest="target", required=True, metavar="Q", help="the protocol it shall be in, or `ir`")
    parser.add_argument(
        "--request", metavar="FILE", help="the client's own request, for answers: gives back names and shapes"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="write the losses as JSON lines (default: readable, on stderr)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 3 when something is lost")
    parser.add_argument("--model", default="", help="the model's name, where it stands outside the body or must change")
    parser.add_argument(
        "--binary-results", choices=("native", "summary"), default="native", help="media in tool results"
    )
    parser.add_argument("--status", type=int, default=0, help="the HTTP status of an error")


def run(chosen: argparse.Namespace) -> int:
    try:
        source = room(chosen.source)
        target = source if chosen.target == "ir" else room(chosen.target)
    except UnknownProtocol as unknown:
        raise Complaint(str(unknown), "protocols are named with --from and --to") from None
    try:
        return _show(chosen, source) if chosen.target == "ir" else _translate(chosen, source, target)
    except Malformed as bad:
        raise Complaint(str(bad), f"the input is read as {source.name}; is that what it is?") from None


def _show(chosen: argparse.Namespace, source: Room) -> int:
    sys.stdout.write(show.rendered(chosen.kind, files.read(chosen.file), source, chosen.status))
    return 0


def _translate(chosen: argparse.Namespace, source: Room, target: Room) -> int:
    options = Options(model=chosen.model, binary_results=chosen.binary_results, status=chosen.status)
    if chosen.kind == "request":
        result = Exchange(source, target, options).request(files.read(chosen.file))
        return _finish(chosen, result)
    exchange = Exchange(target, source, options)
    if chosen.request:
        exchange.remember(files.read(chosen.request))
    if chosen.kind == "stream":
        return _stream(chosen, exchange)
    if chosen.kind == "response":
        return _finish(chosen, exchange.response(files.read(chosen.file)))
    _finish(chosen, exchange.error(files.read(chosen.file), chosen.status))
    return 0


def _finish(chosen: argparse.Namespace, result: Translation) -> int:
    sys.stdout.write(result.body.decode() + "\n")
    code = _report(chosen, result.losses)
    return code or (FAILED if result.status >= 400 else 0)


def _stream(chosen: argparse.Namespace, exchange: Exchange) -> int:
    stream = exchange.stream()
    out = sys.stdout.buffer
    for data in files.chunks(chosen.file):
        out.write(stream.feed(data))
        out.flush()
    out.write(stream.close())
    out.flush()
    code = _report(chosen, stream.losses)
    if stream.failure is not None:
        sys.stderr.write(f"error: {stream.failure.message}\nhint: the failure is the last event of the output\n")
        return FAILED
    return code


def _report(chosen: argparse.Namespace, losses: Sequence[Loss]) -> int:
    if chosen.report:
        lines = b"".join(encode(loss) + b"\n" for loss in losses)
        try:
            Path(chosen.report).write_bytes(lines)
        except OSError as error:
            raise Complaint(f"cannot write {chosen.report}: {error.strerror}", "check the path of --report") from None
    elif losses:
        screen.losses(losses, sys.stderr)
    lost = [loss for loss in losses if loss.severity == "lost"]
    if chosen.strict and lost:
        sys.stderr.write(
            f"error: {len(lost)} lost under --strict\nhint: leave --strict out to translate all the same\n"
        )
        return LOST
    return 0
