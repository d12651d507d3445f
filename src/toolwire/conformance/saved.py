"""The result of a run as a file that can be kept: in a fixed order, and without anything that every run makes anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from toolwire.conformance.suite import Play

FORM = 1
ANEW = (
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"(?<![\d.])1[789]\d{8}(?:\.\d+)?(?![\d.])"), "NOW"),
    (
        re.compile(r"\b((?:call|toolu|fc|msg|resp|rs|chatcmpl|gen|req)[_-])(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{16,}\b"),
        r"\1MADE",
    ),
)
"""What gateways make up while they run."""


class Gateway(Struct, frozen=True):
    name: str
    title: str
    version: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """All plays of one gateway, and how to repeat them."""

    form: int = FORM
    gateway: Gateway
    suite: str
    """The version of Toolwire whose suite it was."""
    command: str
    plays: tuple[Play, ...]


class Unreadable(Exception):
    """A file that holds no result."""


def settled(play: Play) -> Play:
    """A play without what changes from run to run."""
    return structs.replace(play, differences=tuple(map(_settled, play.differences)), why=_settled(play.why))


def _settled(line: str) -> str:
    for pattern, instead in ANEW:
        line = pattern.sub(instead, line)
    return line


def written(result: Result) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def read(file: Path) -> Result:
    """Raises Unreadable, or OSError."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from None


def changes(before: Sequence[Play], now: Sequence[Play]) -> tuple[list[Play], list[Play]]:
    """What passed before and does not now, and the other way round; plays that were not chosen now are left alone."""
    then = {play.id: play.verdict for play in before}
    worse = [play for play in now if then.get(play.id) == "pass" and play.verdict != "pass"]
    better = [play for play in now if then.get(play.id, "pass") != "pass" and play.verdict == "pass"]
    return worse, better
