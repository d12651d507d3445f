"""`toolwire demo`: one conversation with two parallel tool calls, from each client protocol to each provider protocol,
through the real gateway. Needs no key: the embedded model is the provider."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

from toolwire import terminal
from toolwire.cli import usage
from toolwire.cli.gateway.demo.conversation import (
    PROMPT,
    PlayedConversation,
    RecordedExchange,
    planted_fields,
    start_demo_servers,
)
from toolwire.core.json_values import Json
from toolwire.core.losses import LOSS_CODES
from toolwire.gateway.settings.providers import DEMO_PROTOCOLS
from toolwire.protocols import find_codec
from toolwire.terminal import EXIT_FAILED
from toolwire.terminal.text import pad_text, shorten_text, text_width, wrap_text

DEFAULT_PAIR = ("anthropic", "openai-chat")
MIN_SIDE_WIDTH = 46
"""Below twice this width the provider's side is shown below the client's."""
SEPARATOR = " │ "
SHOWN_FRAMES = 12
"""Frames of a stream that are shown: all of most streams, the start and the end of others."""
LAST_FRAMES = 3
FRAME_START = "data: "
MIN_REPEATED = 40
"""A shorter start that all events have in common is not left out."""


ABOUT_LOSSES = (
    "Each client also sends a field that only its protocol has. It cannot be translated, and the gateway says so: it is"
    " the loss with a name above."
)
NEXT_STEPS = (
    ("toolwire demo --all", "every pair in detail; --from and --to choose one"),
    ("toolwire serve", "then ask it for the model demo-anthropic"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="client", metavar="PROTOCOL", help=f"protocol of the client (default: {DEFAULT_PAIR[0]})")
    add("--to", dest="provider", metavar="PROTOCOL", help=f"protocol of the provider (default: {DEFAULT_PAIR[1]})")
    add("--all", action="store_true", help="show every pair in detail, not only one")


def run(args: argparse.Namespace) -> int:
    for option, name in (("--from", args.client), ("--to", args.provider)):
        if name is not None and name not in DEMO_PROTOCOLS:
            raise usage.unknown_protocol(name, option, DEMO_PROTOCOLS)
    shown = {(args.client or DEFAULT_PAIR[0], args.provider or DEFAULT_PAIR[1])}
    played = asyncio.run(play_all())
    for one in played:
        if args.all or (one.client, one.provider) in shown:
            sys.stdout.writelines(conversation_page(one))
    sys.stdout.writelines(summary_page(played))
    return EXIT_FAILED if any(one.problem for one in played) else 0


async def play_all() -> list[PlayedConversation]:
    async with start_demo_servers() as servers:
        return [await servers.play(client, provider) for client in DEMO_PROTOCOLS for provider in DEMO_PROTOCOLS]


# --- one conversation -----------------------------------------------------------------------------------------------


def conversation_page(played: PlayedConversation) -> Iterator[str]:
    first, second = played.exchanges
    yield terminal.heading(f"{played.client} → {played.provider}")
    yield f"“{PROMPT}”\n\n"
    client_key, provider_key = (find_codec(name).constraints.turns_key for name in (played.client, played.provider))
    sides = _Sides(played.client, played.provider)
    yield from sides.show(
        "sends", "receives", [partial(_fit_json, first.client_body)], [partial(_fit_json, first.provider_body)]
    )
    yield from _loss_lines(played, first)
    yield from sides.show("receives", "streams", _frame_lines(first.client_stream), _frame_lines(first.provider_stream))
    # The second request repeats the first; only its new turns are shown.
    client_turns, provider_turns = (
        _new_turns(first.client_body, second.client_body, client_key),
        _new_turns(first.provider_body, second.provider_body, provider_key),
    )
    yield from sides.show("sends the results", "receives", client_turns, provider_turns)
    yield f"{terminal.paint_text('The answer', 'head')}\n{played.text}\n\n"


class _Sides:
    """The client's side and the provider's, next to each other or, on a narrow terminal, below each other."""

    def __init__(self, client: str, provider: str) -> None:
        self._names = (f"client · {client}", f"provider · {provider}")
        width = terminal.terminal_width()
        self._is_wide = width >= 2 * MIN_SIDE_WIDTH
        self.width = (width - len(SEPARATOR)) // 2 if self._is_wide else width

    def show(self, client_verb: str, provider_verb: str, *texts: Sequence[_Line]) -> Iterator[str]:
        titles = [f"{name} {verb}" for name, verb in zip(self._names, (client_verb, provider_verb), strict=True)]
        columns = [[line for fit in lines for line in fit(self.width)] for lines in texts]
        painted = [pad_text(terminal.paint_text(title, "ok"), self.width) for title in titles]
        if self._is_wide:
            yield f"{SEPARATOR.join(painted).rstrip()}\n"
            for left, right in zip_longest(*columns, fillvalue=""):
                yield f"{pad_text(left, self.width)}{SEPARATOR}{right}".rstrip() + "\n"
        else:
            for title, column in zip(titles, columns, strict=True):
                yield f"{terminal.paint_text(title, 'ok')}\n"
                yield from (f"{line}\n" for line in column)
        yield "\n"


_Line = Callable[[int], list[str]]
"""One line as it fits into a width: JSON that may be broken into several, or a frame that is shortened."""


def _fit_frame(frame: str, width: int) -> list[str]:
    start, rest = frame[:width], frame[width:]
    return [start, shorten_text(" " * len(FRAME_START) + rest, width)] if rest else [start]


def _fit_json(value: Json, width: int) -> list[str]:
    return [shorten_text(line, width) for line in format_body(value, width)]


def format_body(value: Json, width: int, indent: str = "", label: str = "", end: str = "") -> list[str]:
    """JSON in few lines: what fits into one is in one. `label` is before it, `end` after it."""
    text = f"{indent}{label}{json.dumps(value, ensure_ascii=False)}{end}"
    if text_width(text) <= width or not isinstance(value, dict | list) or not value:
        return [text]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        items = [(f"{json.dumps(key)}: ", item) for key, item in value.items()]
    else:
        items = [("", item) for item in value]
    lines = [f"{indent}{label}{opening}"]
    for number, (inner_label, item) in enumerate(items):
        comma = "," if number < len(items) - 1 else ""
        lines += format_body(item, width, indent + "  ", inner_label, comma)
    return [*lines, f"{indent}{closing}{end}"]


def _new_turns(before: Json, after: Json, key: str) -> list[_Line]:
    turns = after.get(key) if isinstance(after, dict) else None
    known = len(before.get(key, ())) if isinstance(before, dict) else 0
    return [partial(_fit_json, turn) for turn in (turns or ())[known:]] if isinstance(turns, list) else []


def _frame_lines(stream: bytes) -> list[_Line]:
    lines = stream.decode("utf-8", "replace").splitlines()
    frames = _drop_repeated_start([line for line in lines if line.startswith(FRAME_START)])
    shown: list[_Line] = [partial(_fit_frame, frame) for frame in frames]
    if len(frames) <= SHOWN_FRAMES:
        return shown
    start = SHOWN_FRAMES - 1 - LAST_FRAMES
    note = f"      … {len(frames) - start - LAST_FRAMES} more events"
    return [*shown[:start], lambda _: [terminal.paint_text(note, "dim")], *shown[-LAST_FRAMES:]]


def _drop_repeated_start(frames: list[str]) -> list[str]:
    """Chat and Gemini repeat ids and names at the start of every event: they are shown once."""
    first, *others = [frame for frame in frames if frame.startswith(f"{FRAME_START}{{")] or [""]
    repeated = 0
    while others and all(frame[: repeated + 1] == first[: repeated + 1] for frame in others):
        repeated += 1
    if repeated < MIN_REPEATED:
        return frames
    return [f"{FRAME_START}…{frame[repeated:]}" if frame in others else frame for frame in frames]


# --- losses ---------------------------------------------------------------------------------------------------------


def read_losses(header: str) -> tuple[int, tuple[str, ...]]:
    """The number of losses and their codes, from `x-toolwire-losses`."""
    count, _, codes = header.partition("; codes=")
    return int(count or 0), tuple(codes.split(",")) if codes else ()


def _loss_lines(played: PlayedConversation, exchange: RecordedExchange) -> Iterator[str]:
    planted = next(iter(planted_fields()[played.client]))
    _, codes = read_losses(exchange.losses)
    if not codes:
        same = "the bytes pass unchanged" if played.client == played.provider else "nothing is lost"
        yield f"{terminal.paint_text('No losses', 'ok')}: {same}.\n\n"
        return
    yield terminal.heading(f"x-toolwire-losses: {exchange.losses}")
    rows, colours = [], []
    for code in codes:
        severity, why = LOSS_CODES[code]
        is_planted = severity == "lost"
        text = why.format(source=played.client, target=played.provider)
        rows.append((f"  {severity}", code, f"`{planted}`: {text}" if is_planted else text))
        colours.append(severity)
    yield terminal.format_table(rows, colours)
    yield "\n"


# --- all pairs ------------------------------------------------------------------------------------------------------


def summary_page(played: Sequence[PlayedConversation]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("client", "provider", "", "calls", "losses", "time")]
    rows += [
        (
            one.client,
            one.provider,
            "failed" if one.problem else "ok",
            str(len(one.calls)),
            summarise_losses(one.exchanges[0].losses),
            f"{one.seconds * 1000:4.0f} ms",
        )
        for one in played
    ]
    yield terminal.format_table(rows, ["head"], has_header=True)
    for one in played:
        if one.problem:
            yield f"{terminal.paint_text('failed', 'lost')} {one.client} → {one.provider}: {one.problem}\n"
    yield "\n"
    yield from (f"{line}\n" for line in wrap_text(ABOUT_LOSSES, terminal.terminal_width()))
    yield "\n"
    rows = [(terminal.command_line(command), what) for command, what in NEXT_STEPS]
    yield terminal.format_table(rows, ["ok"] * len(rows))


def summarise_losses(header: str) -> str:
    """The codes of what is lost, and how many other changes there are."""
    count, codes = read_losses(header)
    lost = [code for code in codes if LOSS_CODES[code][0] == "lost"]
    more = count - len(lost)
    return ", ".join([*lost, *([f"{more} added"] if more else [])]) or "none"
