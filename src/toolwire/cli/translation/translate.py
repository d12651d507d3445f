"""`toolwire translate`: translate a body or a stream from one protocol to another.

Exit codes: 0 done; 1 the provider's answer or stream is a failure; 2 bad input; 3 something was lost under --strict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolwire import terminal
from toolwire.cli import usage
from toolwire.core.codec import Codec
from toolwire.core.ir import PROVENANCE_FIELDS, Opaque
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object
from toolwire.core.losses import Loss
from toolwire.protocols import CODECS
from toolwire.terminal import CommandError
from toolwire.tool_formats.families import AUTO, FORMAT_NAMES
from toolwire.tool_formats.prompt_table import PROMPTS
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

EXIT_FAILED, EXIT_LOST = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("kind", choices=("request", "response", "stream", "error"), help="what to translate")
    add("file", nargs="?", metavar="FILE", help="the input (default: standard input)")
    add("--from", dest="source", required=True, metavar="PROTOCOL", help=f"protocol of the input: {', '.join(CODECS)}")
    add(
        "--to",
        dest="target",
        required=True,
        metavar="PROTOCOL",
        help="protocol of the output, or `ir`: the internal form",
    )
    add("--request", metavar="FILE", help="for answers, the client's request: restores its tool names and shapes")
    add("--report", metavar="FILE", help="write the losses as JSON lines (default: as a table on standard error)")
    add("--strict", action="store_true", help="exit with 3 if something is lost")
    add("--model", default="", help="the model's name, if the body does not contain it or it should change")
    add("--binary-results", choices=("native", "summary"), default="native", help="how to write media in tool results")
    add("--tool-format", default="off", help="how calls are written as text in an answer: auto, eager, off or a format")
    add("--tool-prompt", default="", metavar="FORMAT", help="write the tools into the prompt: auto or a format")
    add("--repair-calls", action="store_true", help="repair names and arguments of calls in an answer")
    add("--status", type=int, default=0, help="the HTTP status of an error")


def run(args: argparse.Namespace) -> int:
    source = usage.find_protocol(args.source, "--from")
    target = source if args.target == "ir" else usage.find_protocol(args.target, "--to")
    try:
        if args.target != "ir":
            return _translate(args, source, target)
        sys.stdout.write(render_ir(args.kind, terminal.read_input(args.file), source, args.status))
        return 0
    except Malformed as bad:
        raise CommandError(str(bad), f"the input was read as {source.name}; check --from") from None


def _translate(args: argparse.Namespace, source: Codec, target: Codec) -> int:
    check_tool_format(args.tool_format)
    check_tool_prompt(args.tool_prompt)
    options = Options(
        model=args.model,
        binary_results=args.binary_results,
        status=args.status,
        tool_format=args.tool_format,
        tool_prompt=args.tool_prompt,
        repair_calls=args.repair_calls,
    )
    if args.kind == "request":
        translation = Exchange(source, target, options).translate_request(terminal.read_input(args.file))
        return _print_translation(args, translation)
    exchange = Exchange(target, source, options)
    if args.request:
        exchange.remember_request(terminal.read_input(args.request))
    if args.kind == "stream":
        return _translate_stream(args, exchange)
    if args.kind == "response":
        return _print_translation(args, exchange.translate_response(terminal.read_input(args.file)))
    _print_translation(args, exchange.translate_error(terminal.read_input(args.file), args.status))
    return 0


def check_tool_format(name: str) -> None:
    if name not in FORMAT_NAMES:
        raise CommandError(f"--tool-format: unknown format `{name}`", f"choose from: {', '.join(FORMAT_NAMES)}")


def check_tool_prompt(name: str) -> None:
    known = (AUTO, *PROMPTS)
    if name and name not in known:
        raise CommandError(f"--tool-prompt: unknown format `{name}`", f"choose from: {', '.join(known)}")


def _print_translation(args: argparse.Namespace, translation: Translation) -> int:
    terminal.print_body(translation.body)
    code = _report_losses(args, translation.losses)
    return code or (EXIT_FAILED if translation.status >= 400 else 0)


def _translate_stream(args: argparse.Namespace, exchange: Exchange) -> int:
    stream = StreamTranslation(exchange)
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
        rows = [(loss.severity, loss.code, loss.path or "(body)", f"{loss.what}: {loss.why}") for loss in losses]
        sys.stderr.write(terminal.format_table(rows, [loss.severity for loss in losses], sys.stderr))
    lost = [loss for loss in losses if loss.severity == "lost"]
    if args.strict and lost:
        sys.stderr.write(f"error: {len(lost)} lost under --strict\nhint: translate without --strict to accept this\n")
        return EXIT_LOST
    return 0


def render_ir(kind: str, data: bytes, source: Codec, status: int) -> str:
    """The internal form of some input: one JSON document, or one line per event of a stream."""
    if kind == "stream":
        reader = source.make_stream_reader()
        return "".join(f"{encode(node_as_json(event)).decode()}\n" for event in (*reader.feed(data), *reader.close()))
    body = decode(data)
    if kind == "error":
        return terminal.format_json(node_as_json(source.read_error(body, status, {})))
    read: Any = source.read_request if kind == "request" else source.read_response
    return terminal.format_json(node_as_json(read(expect_object(body, None))))


def node_as_json(value: Any) -> Json:
    """A node of the internal form as JSON: its type, and the fields that differ from their defaults."""
    if isinstance(value, Opaque):
        return {"node": "Opaque", "kind": value.kind, "protocol": value.origin.protocol, "json": value.origin.wire}
    if isinstance(value, msgspec.Struct):
        fields = {
            field.name: node_as_json(getattr(value, field.name))
            for field in msgspec.structs.fields(type(value))
            if field.name not in PROVENANCE_FIELDS and getattr(value, field.name) != field.default
        }
        return {"node": type(value).__name__, **fields}
    if isinstance(value, (tuple, list)):
        return [node_as_json(item) for item in value]
    return value
