"""`toolwire translate`: a body or a stream from one protocol to another.

Exit codes: 0 done; 1 the provider's answer or stream is a failure; 2 bad input; 3 something was lost under --strict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolwire.cli import CommandError, terminal
from toolwire.core.codec import Codec
from toolwire.core.events import Event
from toolwire.core.ir import PROVENANCE_FIELDS, Opaque
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object
from toolwire.core.losses import Loss
from toolwire.protocols import CODECS, UnknownProtocol, find_codec
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options

EXIT_FAILED, EXIT_LOST = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(CODECS)
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


def run(args: argparse.Namespace) -> int:
    try:
        source = find_codec(args.source)
        target = source if args.target == "ir" else find_codec(args.target)
    except UnknownProtocol as unknown:
        raise CommandError(str(unknown), "protocols are named with --from and --to") from None
    try:
        return _print_ir(args, source) if args.target == "ir" else _translate(args, source, target)
    except Malformed as bad:
        raise CommandError(str(bad), f"the input is read as {source.name}; is that what it is?") from None


def _print_ir(args: argparse.Namespace, source: Codec) -> int:
    sys.stdout.write(render_ir(args.kind, terminal.read_input(args.file), source, args.status))
    return 0


def _translate(args: argparse.Namespace, source: Codec, target: Codec) -> int:
    options = Options(model=args.model, binary_results=args.binary_results, status=args.status)
    if args.kind == "request":
        result = Exchange(source, target, options).translate_request(terminal.read_input(args.file))
        return _print_translation(args, result)
    exchange = Exchange(target, source, options)
    if args.request:
        exchange.remember_request(terminal.read_input(args.request))
    if args.kind == "stream":
        return _translate_stream(args, exchange)
    if args.kind == "response":
        return _print_translation(args, exchange.translate_response(terminal.read_input(args.file)))
    _print_translation(args, exchange.translate_error(terminal.read_input(args.file), args.status))
    return 0


def _print_translation(args: argparse.Namespace, result: Translation) -> int:
    sys.stdout.write(result.body.decode() + "\n")
    code = _report_losses(args, result.losses)
    return code or (EXIT_FAILED if result.status >= 400 else 0)


def _translate_stream(args: argparse.Namespace, exchange: Exchange) -> int:
    stream = exchange.start_stream()
    out = sys.stdout.buffer
    for data in terminal.read_chunks(args.file):
        out.write(stream.feed(data))
        out.flush()
    out.write(stream.close())
    out.flush()
    code = _report_losses(args, stream.losses)
    if stream.failure is not None:
        sys.stderr.write(f"error: {stream.failure.message}\nhint: the failure is the last event of the output\n")
        return EXIT_FAILED
    return code


def _report_losses(args: argparse.Namespace, losses: Sequence[Loss]) -> int:
    if args.report:
        lines = b"".join(encode(loss) + b"\n" for loss in losses)
        try:
            Path(args.report).write_bytes(lines)
        except OSError as error:
            raise CommandError(f"cannot write {args.report}: {error.strerror}", "check the path of --report") from None
    elif losses:
        terminal.print_losses(losses, sys.stderr)
    lost = [loss for loss in losses if loss.severity == "lost"]
    if args.strict and lost:
        sys.stderr.write(
            f"error: {len(lost)} lost under --strict\nhint: leave --strict out to translate all the same\n"
        )
        return EXIT_LOST
    return 0


def render_ir(kind: str, data: bytes, source: Codec, status: int) -> str:
    """What the reader of a room makes of some input: one JSON document, or one line an event of a stream."""
    if kind == "stream":
        reader = source.make_stream_reader()
        events: list[Event] = [*reader.feed(data), *reader.close()]
        return "".join(encode(node_as_json(event)).decode() + "\n" for event in events)
    body = decode(data)
    if kind == "error":
        return _format_json(node_as_json(source.read_error(body, status, {})))
    read: Any = source.read_request if kind == "request" else source.read_response
    return _format_json(node_as_json(read(expect_object(body, None))))


def _format_json(value: Json) -> str:
    return msgspec.json.format(encode(value), indent=2).decode() + "\n"


def node_as_json(value: Any) -> Json:
    """A node as JSON: its type and what it holds."""
    if isinstance(value, Opaque):
        return {"node": "Opaque", "kind": value.kind, "protocol": value.origin.protocol, "json": value.origin.wire}
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        told = {
            field.name: node_as_json(getattr(value, field.name))
            for field in fields
            if field.name not in PROVENANCE_FIELDS and getattr(value, field.name) != field.default
        }
        return {"node": type(value).__name__, **told}
    if isinstance(value, (tuple, list)):
        return [node_as_json(item) for item in value]
    return value
